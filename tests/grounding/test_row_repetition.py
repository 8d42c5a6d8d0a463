"""Repeated scopes: the same factors as with every row grounded, and as in the reference implementation."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from evaluator import Evaluator
from generated import generated
from hypothesis import given
from hypothesis import strategies as st

import relcrf
from relcrf.data.binding import bind
from relcrf.graph.factor_graph import RepeatedScope
from relcrf.grounding import ground as grounding_module
from relcrf.grounding.ground import ground
from relcrf.grounding.preview import budget_errors, plan_templates

DECLARATIONS = """
domain C = { red, blue }
entity M { h : real }
entity S { room : string  n : integer  t : bool  c : C }
relation N(a: S, b: S) { v: real }
relation K(m: M, s: S)
predict relation reading(m: M, s: S) : 1..3
predict relation other(s: S, m: M)
predict relation third(s: S, m: M, c: C)
predict relation self(a: S, b: S)
predict relation colour(m: M, c: C) : C
derive Far(a: S, b: S) where not N(a, b) and a != b
"""
READINGS = ["reading(m, s)", "other(s, m)", "third(s, m, c)", "colour(m, c)"]
OVERS = {
    "m: M, s: S": [
        "reading(m, s)", "other(s, m)", "reading(m, s), other(s, m)", "reading(m, s) == 2", "reading(m, s) > 1 and other(s, m)",
        "reading(m, s) == 1 => s.t", "colour(m, red), reading(m, s)", "third(s, m, blue) and other(s, m)",
        "reading(m, s) == 3 or s.n == 1", "reading(m, s) == 2 and exists { N(s, x) }",
    ],
    "m: M, s: S, t: S": [
        "reading(m, s), reading(m, t)", "symmetric reading(m, t), reading(m, s)", "other(t, m) and other(s, m)",
        "reading(m, s) == reading(m, t)", "reading(m, s), other(t, m)", "reading(m, s) < reading(m, t) or N(s, t)",
        "third(s, m, red) and third(t, m, blue)", "self(s, t) and reading(m, s) == 1",
    ],
    "m: M, s: S, c: C": [
        "third(s, m, c)", "third(s, m, c) and other(s, m)", "third(s, m, c) => reading(m, s) == 2",
        "colour(m, c), third(s, m, c)",
        "colour(m, c) == red", "third(s, m, c) and c == s.c",
    ],
    "a: S, b: S": ["self(a, b)", "self(a, b) and self(b, a)", "symmetric self(a, b), self(b, a)"],
    "a: S, b: S, c: S": ["self(a, b) and self(a, c)", "self(b, a) and self(c, a)", "self(a, b) and self(c, a)",
                         "self(a, b) and self(b, c) => self(a, c)"],
    "m: M": ["reading(m, S1)", "colour(m, red), colour(m, blue)", "colour(m, red) == colour(m, blue)"],
}  # fmt: skip
WHERES = {
    "m: M, s: S": ["s.t", "s.n > 0", "N(s, q)", "N(q, s) and q.n > 0", "K(m, s)", "m.h > 0", "not N(s, s)", "s.c == red",
                   "exists { K(m, q) }"],
    "m: M, s: S, t: S": ["N(s, t)", "s != t", "s < t", "Far(s, t)", "N(s, q) and N(q, t)", "s.room == t.room", "s == t",
                         "(N(s, t) or N(t, s))", "s.n < t.n", "K(m, t)"],
    "m: M, s: S, c: C": ["s.c == c", "s.t", "N(s, q)", "s.c != c and s.n > 0"],
    "a: S, b: S": ["N(a, b)", "a != b", "a.t", "b.n > 0", "N(a, q) and N(q, b)"],
    "a: S, b: S, c: S": ["b < c", "N(b, c)", "a != b"],
    "m: M": ["m.h > 0"],
}  # fmt: skip
KEYS = {
    "m: M, s: S": ["s", "s.room", "s.n", "s.t", "m", "s.c"], "m: M, s: S, t: S": ["s", "t", "s.room", "t.n"],
    "m: M, s: S, c: C": ["c", "s", "s.room"], "a: S, b: S": ["a", "b", "b.room"], "a: S, b: S, c: S": ["a", "c"], "m: M": ["m"],
}  # fmt: skip
NUMBERS = {
    "m: M, s: S": ["1", "s.n", "s.n * 2", "m.h", "count { z where N(s, z) }", "sum { N(s, z).v where N(s, z) }"],
    "m: M, s: S, t: S": ["1", "s.n + t.n", "count { z where N(s, z) and N(z, t) }", "m.h * s.n", "levenshtein(s.room, t.room)"],
    "m: M, s: S, c: C": ["1", "s.n"], "a: S, b: S": ["1", "a.n - b.n", "count { z where N(a, z) and N(z, b) }"],
    "a: S, b: S, c: S": ["a.n", "b.n * c.n"], "m: M": ["m.h", "1"],
}  # fmt: skip


@st.composite
def templates(draw):
    binders = draw(st.sampled_from([b for b in OVERS if b != "m: M"] * 3 + ["m: M"]))
    conditions = draw(st.lists(st.sampled_from(WHERES[binders]), max_size=2, unique=True))
    over = draw(st.sampled_from([o for o in OVERS[binders] if "S1" not in o]))
    keys = draw(st.lists(st.sampled_from(KEYS[binders]), max_size=2, unique=True))
    numbers = draw(st.lists(st.sampled_from(NUMBERS[binders]), max_size=2, unique=True))
    text = f"template NAME({binders})" + (f" where {' and '.join(conditions)}" if conditions else "") + f" over {over}"
    return text + (f" per {', '.join(keys)}" if keys else "") + (f" by {', '.join(numbers)}" if numbers else "")


@st.composite
def rows(draw):
    """Generate entities, tuples and attributes of tuples in the form of the evaluator."""
    rng = np.random.default_rng(draw(st.integers(0, 9999)))
    gaps = draw(st.sampled_from([0.0, 0.3]))

    def pick(values):
        return None if rng.random() < gaps else values[rng.integers(len(values))]

    moments = [f"m{k}" for k in range(draw(st.integers(1, 4)))]
    sensors = [f"s{k}" for k in range(draw(st.integers(1, 4)))]
    things = {
        "M": {m: {"h": pick([-1.0, 0.5, 2.0])} for m in moments},
        "S": {
            s: {"room": pick(["a", "b"]), "n": pick([0, 1, 2]), "t": pick([True, False]), "c": pick(["red", "blue"])}
            for s in sensors
        },
    }
    near = {(a, b): pick([0.5, -2.0]) for a in sensors for b in sensors if rng.random() < 0.5}
    known = [(m, s) for m in moments for s in sensors if rng.random() < 0.5]
    return things, near, known


def frames(things, near, known):
    def entity(found, attributes):
        columns = {a: pd.Series([row[a] for row in found.values()], dtype=object) for a in attributes}
        return pd.DataFrame({"id": list(found), **columns})

    return {
        "M": entity(things["M"], ["h"]),
        "S": entity(things["S"], ["room", "n", "t", "c"]),
        "N": pd.DataFrame([(*k, v) for k, v in near.items()], columns=["a", "b", "v"], dtype=object),
        "K": pd.DataFrame(known, columns=["m", "s"], dtype=object),
    }


def log_potentials(grounding, weights):
    """Return the multiset of factors of each template: scope, and log potentials of all joint states."""
    found = {}
    for group, name in zip(grounding.graph.groups, grounding.group_names, strict=True):
        matrix = grounding.graph.layout.matrix(weights, group.block)
        patterns = np.eye(group.n_joint_states) if group.patterns is None else group.patterns
        tables = np.broadcast_to(
            group.features.scores(matrix, np.arange(group.n_factors)) @ patterns.T, (group.n_factors, len(patterns))
        )
        scopes = zip(*(place.tolist() for place in group.scope), strict=True)
        factors = ((s, tuple(np.round(t, 6) + 0.0)) for s, t in zip(scopes, tables.tolist(), strict=True))
        found.setdefault(name, Counter()).update(factors)
    return found


def ground_repeated_and_expanded(monkeypatch, bound):
    repeated = ground(bound)
    with monkeypatch.context() as patch:
        patch.setattr(grounding_module, "reduce_to_one_row", lambda bound, context, lowered: (lowered, None))
        expanded = ground(bound)
    assert all(not isinstance(group.scope, RepeatedScope) for group in expanded.graph.groups)
    return repeated, expanded


def naive_factors(spec, things, near, known):
    domains = {"C": ["red", "blue"], "1..3": [1, 2, 3]}
    scores = {("N", pair): {"v": v} for pair, v in near.items()}
    return Evaluator(spec, things, {"N": set(near), "K": set(known)}, scores, domains)


def compare(monkeypatch, texts, data):
    spec = relcrf.parse(DECLARATIONS + "\n".join(texts)).spec
    bound = bind(spec, relcrf.Dataset(frames(*data)))
    repeated, expanded = ground_repeated_and_expanded(monkeypatch, bound)
    assert repeated.templates == expanded.templates
    assert repeated.bindings == expanded.bindings
    layout = repeated.graph.layout
    assert layout.blocks == expanded.graph.layout.blocks
    weights = np.random.default_rng(0).normal(size=layout.size)
    found, plain = log_potentials(repeated, weights), log_potentials(expanded, weights)
    assert found == plain
    # The reference has scopes by name and a factor for each binding; the engine sums those over one variable.
    reference = naive_factors(spec, *data)
    for template in spec.templates:
        reference_factors = list(reference.factors(template))
        is_unary = all(len(scope) == 1 for scope, _, _, _ in reference_factors)
        names = Counter(
            tuple(repeated.variable_name(v) for v in scope)
            for scope, _ in found.get(template.name, Counter()).elements()
        )
        expected = Counter(
            tuple(f"{owner}({', '.join(a)})" for owner, a, _ in scope) for scope, _, _, _ in reference_factors
        )
        assert set(names) == set(expected)
        assert is_unary or names == expected
    for one in plan_templates(bound):
        groups = [g for g, n in zip(repeated.graph.groups, repeated.group_names, strict=True) if n == one.name]
        assert one.bindings == repeated.bindings[one.name]
        assert one.factors == sum(g.n_factors for g in groups)
        if groups:  # without bindings a formula has no group; the plan still counts the array of rows
            assert one.bytes == sum(g.nbytes for g in groups)
    return repeated


@generated(6)
@given(rows(), st.lists(templates(), min_size=2, max_size=5))
def test_random_repeated_scopes_equal_expanded_ones(data, texts):
    with pytest.MonkeyPatch.context() as patch:
        compare(patch, [text.replace("NAME", f"t{k}") for k, text in enumerate(texts)], data)


DATA = (
    {
        "M": {"m0": {"h": 0.5}, "m1": {"h": None}, "m2": {"h": 2.0}},
        "S": {
            "s0": {"room": "a", "n": 1, "t": True, "c": "red"},
            "s1": {"room": "b", "n": 0, "t": False, "c": None},
            "s2": {"room": "a", "n": 2, "t": True, "c": "blue"},
        },
    },
    {("s0", "s1"): 0.5, ("s1", "s2"): -2.0, ("s0", "s2"): None, ("s2", "s2"): 1.0},
    [("m0", "s0"), ("m1", "s2")],
)
PARTS = {
    "overs": [f"template NAME({b}) over {o}" for b in OVERS for o in OVERS[b] if "S1" not in o],
    "wheres": [f"template NAME({b}) where {w} over {OVERS[b][0]}" for b in OVERS for w in WHERES[b] if b != "m: M"],
    "keys": [f"template NAME({b}) over {OVERS[b][0]} per {k}" for b in OVERS for k in KEYS[b] if b != "m: M"],
    "numbers": [f"template NAME({b}) over {OVERS[b][0]} by {n}" for b in OVERS for n in NUMBERS[b] if b != "m: M"],
    "joined": [
        "template NAME(m: M, s: S, t: S) where N(s, t) over reading(m, s), reading(m, t) by count { N(s, q) and N(q, t) }",
        "template NAME(m: M, s: S, t: S) where N(s, t) over reading(m, s) by sum { N(s, q).v where N(s, q) and N(q, t) }",
        "template NAME(m: M, s: S) where N(s, q) over reading(m, s) per s.room by 1, s.n",
        "template NAME(m: M, s: S, t: S) where N(s, q) and N(q, t) over reading(m, s), reading(m, t) per s, t.room",
    ],
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_repetition_in_language_constructs(monkeypatch, part):
    compare(monkeypatch, [text.replace("NAME", f"t{k}") for k, text in enumerate(PARTS[part])], DATA)


REPEATED = {
    "(m: M, s: S) over reading(m, s) per s": True,
    "(m: M, s: S, t: S) where s < t over reading(m, s), reading(m, t) per s, t": True,
    "(m: M, s: S, t: S) where N(s, t) over reading(m, s), other(t, m)": True,
    "(m: M, s: S) where N(s, q) over reading(m, s)": True,
    "(m: M, s: S, c: C) over third(s, m, c) and other(s, m)": True,
    "(a: S, b: S) over self(a, b) and self(b, a)": True,
    "(m: M, s: S) where s.t over reading(m, s) by s.n": True,
    "(m: M, s: S) over reading(m, s) per m": True,  # each sensor has the same factors
    "(m: M, s: S) over reading(m, s) by m.h": True,
    "(a: S, b: S, c: S) over self(a, b) and self(b, c)": True,  # b is the row
    "(m: M, s: S) over reading(m, s) per m, s": False,
    "(m: M, s: S) where K(m, s) over reading(m, s)": False,
    "(m: M, s: S) where s.t over reading(m, s) by m.h": False,
    "(m: M, s: S, t: S) where m.h > 0 over reading(m, s), reading(m, t)": False,
    "(a: S, b: S) where N(a, b) over self(a, b)": False,
    "(a: S, b: S, c: S) where a < c over self(a, b) and self(b, c)": True,
    "(a: S, b: S, c: S) over self(a, b) and self(b, c) and self(c, a)": False,
}


@pytest.fixture(scope="module")
def detected():
    """Return the grounding of the templates in `REPEATED`."""
    with pytest.MonkeyPatch.context() as patch:
        return compare(patch, [f"template t{k}{text}" for k, text in enumerate(REPEATED)], DATA)


@pytest.mark.parametrize("text", REPEATED)
def test_detection_of_repetition(detected, text):
    (group,) = detected.groups(f"t{[*REPEATED].index(text)}")
    assert isinstance(group.scope, RepeatedScope) == REPEATED[text]
    if REPEATED[text]:
        assert group.nbytes < sum(place.nbytes for place in group.scope) + group.features.n_rows * 100


def test_restricted_relation_is_not_repeated(monkeypatch):
    text = DECLARATIONS.replace("other(s: S, m: M)", "other(s: S, m: M) where K(m, s)")
    spec = relcrf.parse(text + "template t(m: M, s: S) over other(s, m)").spec
    found, expanded = ground_repeated_and_expanded(monkeypatch, bind(spec, relcrf.Dataset(frames(*DATA))))
    weights = np.ones(found.graph.layout.size)
    assert log_potentials(found, weights) == log_potentials(expanded, weights)
    assert not isinstance(found.graph.groups[0].scope, RepeatedScope)


def test_empty_tables():
    things, near, known = {"M": {}, "S": {}}, {}, []
    spec = relcrf.parse(DECLARATIONS + "template t(m: M, s: S) over reading(m, s) per s").spec
    bound = bind(spec, relcrf.Dataset(frames(things, near, known)))
    (group,) = ground(bound).graph.groups
    assert group.n_factors == 0
    assert [len(place) for place in group.scope] == [0]
    plans = plan_templates(bound)
    assert [(row.bindings, row.stored_bindings) for row in plans] == [(0, 0)] and budget_errors(bound, plans, 10) == []


# Large data: every pair of 100 jokes in 8,000 rows

JESTER = """
domain Joke = open
entity Reader
predict relation rating(r: Reader, j: Joke) : 1..5
template level(r: Reader, j: Joke) over rating(r, j) per j
template pair(r: Reader, i: Joke, j: Joke) where i < j over rating(r, i), rating(r, j) per i, j
"""
AT_SIZE = """
import os, sys
import pandas as pd
import relcrf

def peak():
    # ru_maxrss would start at the peak of the parent process
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) / 1000

wide = pd.read_csv(os.environ["RELCRF_DATA"] + "/jester/rating_wide.csv.gz", nrows=8000).drop(columns="n_rated")
rows = wide.melt("user", var_name="j", value_name="rating").query("rating <= 10").rename(columns={"user": "r"})
rows["value"] = pd.cut(rows.pop("rating"), [-11, -6, -2, 2, 6, 11], labels=False) + 1
data = relcrf.Dataset({"reader": wide[["user"]].rename(columns={"user": "id"}), "rating": rows})
before = peak()
grounding = relcrf.parse(sys.argv[1]).ground(data, 10**9)
level, pair = grounding.graph.groups
print(pair.n_factors, (grounding.states >= 0).sum(), pair.nbytes, grounding.graph.nbytes, before, peak())
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("RELCRF_DATA"), reason="RELCRF_DATA is not set")
def test_pairs_of_100_jokes_use_memory_of_patterns_only():
    done = subprocess.run([sys.executable, "-c", AT_SIZE, JESTER], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    pairs, labels, pair_bytes, graph_bytes, before, peak = map(float, done.stdout.split())
    print(done.stdout)
    assert pairs == 8_000 * 4_950, "40 million factors"
    assert labels == 577_379
    assert pair_bytes < 100_000
    assert graph_bytes < 4e6
    assert peak - before < 300  # the expanded factors would take 415
