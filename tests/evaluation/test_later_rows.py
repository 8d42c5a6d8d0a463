"""Counts of rows that are not earlier than their target, against loops over all rows."""

import itertools

import numpy as np
import pytest

import relcrf
from relcrf.evaluation.later_rows import count_later_rows
from relcrf.evaluation.leakage import measure_leakage
from relcrf.evaluation.splits import make_folds

MODEL = """
entity Patient { age : real }
entity Visit { predict back : bool  time day : integer  cost : real  image : vector }
relation Of(visit: Visit, patient: Patient)
relation Sent(a: Visit, b: Visit) { time day : integer }
derive Same(a: Visit, b: Visit) where Of(a, x) and Of(b, x)
"""
RNG = np.random.default_rng(0)
N = 24
DAYS = [None if k % 7 == 6 else int(RNG.integers(8)) for k in range(N)]
PATIENT = RNG.integers(5, size=N).tolist()
SENT = {(int(a), int(b)): int(RNG.integers(8)) for a, b in RNG.integers(N, size=(20, 2))}
TABLES = {
    "patient": {"id": range(5), "age": np.arange(5.0)},
    "visit": {
        "id": range(N),
        "back": [None if day is None else bool(RNG.random() < 0.5) for day in DAYS],
        "day": DAYS,
        "cost": RNG.random(N),
        "image": [*RNG.random((N, 2))],
    },
    "of": {"visit": range(N), "patient": PATIENT},
    "sent": {"a": [a for a, _ in SENT], "b": [b for _, b in SENT], "day": [*SENT.values()]},
}
SAME = [(a, b) for a, b in itertools.product(range(N), repeat=2) if PATIENT[a] == PATIENT[b]]


def ground(body):
    return relcrf.parse(MODEL + body).ground(relcrf.Dataset(TABLES))


def is_later(time, target):
    """Return True if a row with this time is not earlier than the target."""
    return None in (time, DAYS[target]) or time >= DAYS[target]


def uses_later(p):
    return any(is_later(DAYS[q], p) for a, q in SAME if a == p)


def sent_later(p):
    return any(is_later(day, p) or is_later(DAYS[b], p) for (a, b), day in SENT.items() if a == p)


EXPECTED = {
    "template t(a: Visit, b: Visit) where Same(a, b) over a.back, b.back": (
        sum(is_later(DAYS[b], a) for a, b in SAME),
        len(SAME),
    ),
    "template t(p: Visit) over p.back by mean { q.cost where Same(p, q) }": (sum(map(uses_later, range(N))), N),
    "template t(p: Visit) over p.back by count { q where Sent(p, q) }": (sum(map(sent_later, range(N))), N),
    "template t(p: Visit) where Sent(p, q) over p.back": (
        sum(map(sent_later, {a for a, _ in SENT})),
        len({a for a, _ in SENT}),
    ),
    "template t(p: Visit) where not exists { Sent(p, q) and q.cost > 9 } over p.back": (0, N),
    "template t(p: Visit) where count { q where Same(p, q) } > 1 over p.back": (
        sum(uses_later(p) for p in range(N) if PATIENT.count(PATIENT[p]) > 1),
        sum(PATIENT.count(PATIENT[p]) > 1 for p in range(N)),
    ),
    "template t(p: Visit) over p.back by standardise(p.cost)": (N, N),
    "template t(p: Visit) over p.back by p.cost": (0, N),
    "rule t: Same(a, b) and a.back => b.back": (sum(is_later(DAYS[b], a) for a, b in SAME), len(SAME)),
}


@pytest.mark.parametrize("text", EXPECTED)
def test_templates_equal_loops(text):
    counts = {each.declaration: (each.later, each.total) for each in count_later_rows(ground(text))}
    assert counts["template 't'"] == EXPECTED[text]


@pytest.mark.parametrize("text", [text for text in EXPECTED if "standardise" not in text])
def test_restricted_templates_use_no_later_rows(text):
    target = "a" if "Same(a, b)" in text else "p"
    leakage = measure_leakage(ground(f"{text} as of {target}"), make_folds(ground(text), "folds=3,time=day"))
    assert all(counts.later == 0 for counts in leakage.later_rows)
    assert "uses a row that is not earlier than its target" in leakage.interpretation[-1]


FEATURES = """
derive Often(a: Visit) where count { q where Same(a, q) } > 2 LIMIT
derive Either(a: Visit, x: Patient) where (Of(a, x) and Sent(a, q)) or (Of(a, x) and Sent(q, a)) LIMIT
feature rate(a: Visit) = mean { q.cost where Same(a, q) } LIMIT
template t(a: Visit) where Often(a) and Either(a, x) over a.back by rate(a) LIMIT
"""


def test_relations_and_features_equal_loops():
    tables = TABLES
    grounding = relcrf.parse(MODEL + FEATURES.replace(" LIMIT", "")).ground(relcrf.Dataset(tables))
    counts = {each.declaration: (each.later, each.total) for each in count_later_rows(grounding)}
    often = [p for p in range(N) if PATIENT.count(PATIENT[p]) > 2]
    either = {a for a, _ in SENT} | {b for _, b in SENT}
    received_later = {b for (a, b), day in SENT.items() if is_later(day, b) or is_later(DAYS[a], b)}
    assert counts["relation 'Often'"] == (sum(map(uses_later, often)), len(often))
    assert counts["relation 'Either'"] == (sum(sent_later(a) or a in received_later for a in either), len(either))
    assert counts["feature 'rate'"] == (sum(map(uses_later, range(N))), N)
    assert counts["template 't'"] == (0, len(set(often) & either))
    restricted = relcrf.parse(MODEL + FEATURES.replace("LIMIT", "as of a")).ground(relcrf.Dataset(tables))
    assert [each.later for each in count_later_rows(restricted)] == [0] * 5


def test_disjunctions_are_counted():
    text = "template t(a: Visit, b: Visit) where (Sent(a, b) or Sent(b, a)) and a != b over a.back, b.back"
    pairs = {(a, b) for a, b in [*SENT, *((b, a) for a, b in SENT)] if a != b}

    def is_late(a, b):
        days = [SENT[pair] for pair in ((a, b), (b, a)) if pair in SENT]
        return is_later(DAYS[b], a) or any(is_later(day, a) for day in days)

    counts = count_later_rows(ground(text))[0]
    assert (counts.later, counts.total) == (sum(is_late(a, b) for a, b in pairs), len(pairs))
    assert count_later_rows(ground(f"{text} as of a"))[0].later == 0


def test_report_recommends_as_of():
    text = "template t(p: Visit) over p.back by mean { q.cost where Same(p, q) }"
    grounding = ground(text)
    leakage = measure_leakage(grounding, make_folds(grounding, "folds=3,time=day"))
    later, total = EXPECTED[text]
    expected = (
        f"{later} of {total} bindings of template 't' use rows that are not earlier than their target: add 'as of p'"
    )
    assert leakage.interpretation[-1] == expected
    assert leakage.as_dict()["later_rows"][0]["later"] == later


def test_split_by_time_without_times_has_a_hint():
    model = (MODEL + "template t(p: Visit) over p.back by p.cost").replace("time day", "day")
    grounding = relcrf.parse(model).ground(relcrf.Dataset(TABLES))
    by_time = measure_leakage(grounding, make_folds(grounding, "folds=3,time=day"))
    assert "the model declares no times" in by_time.interpretation[-1]
    at_random = measure_leakage(grounding, make_folds(grounding, "random,folds=3"))
    assert not any("declares no times" in sentence for sentence in at_random.interpretation)
