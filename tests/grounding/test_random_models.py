"""Random models on random tiny tables: the engine's ground graph is what plain loops over all bindings say."""

from collections import Counter, defaultdict

import pandas as pd
from evaluator import Evaluator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import relcrf
from relcrf.data.binding import bind
from relcrf.grounding.ground import ground, plan

DECLARATIONS = """
domain D = { x, y, z }
domain C = { red, blue }
domain W = open
entity E { predict d : D  c : C  r : real  n : integer  t : bool  s : string  w : bag of W }
entity F { predict d : D  r : real }
relation R(a: E, b: E)
relation S(a: E, f: F) { v: real }
relation H(a: E, k: C)
derive Meet(a: E, b: E) where R(m, a) and R(m, b) and a < b
derive Far(a: E, b: E) where Meet(a, b) and not R(a, b)
"""
NUMBERS = [
    "a.r",
    "b.r",
    "a.n",
    "2",
    "a.r + b.n",
    "-a.r",
    "a.r / b.n",
    "log(a.r)",
    "sqrt(b.r) * 2",
    "least(a.r, b.r)",
    "abs(a.n)",
]
TIES = [
    "R(a, b)", "R(b, a)", "Meet(a, b)", "Far(a, b)", "R(a, m) and R(m, b)", "R(a, b) and R(b, a)",
    "a.c == b.c", "a.s == b.s", "S(a, f) and S(b, f)", "H(a, red) and R(a, b)", "a.n == b.n",
]  # fmt: skip
CONDITIONS = [
    "a != b", "a < b", "a == b", "a.r > 0", "a.n <= b.n", "a.c == red", "a.c != b.c", "a.t", "not b.t", "a.s == \"one\"",
    "R(b, a)", "not R(b, a)", "not Meet(a, b)", "(R(b, a) or a.r > b.r)", "(a.r > 0 => b.r > 0)", "(a.t <=> b.t)",
    "H(a, blue)", "not H(b, red)", "\"u\" in a.w", "not (\"v\" in b.w)", "a.r + b.r > 0.5", "log(a.r) < 1",
    "not (a.r > 0 and R(a, b))", "true",
]  # fmt: skip
OVERS = [
    "a.d, b.d", "b.d, a.d", "a.d == b.d", "a.d != b.d", "a.d == x and b.d == y", "a.d == x => b.d == x", "a.d < b.d",
    "not (a.d == z or b.d == z)", "a.d", "a.d == x",
]  # fmt: skip
KEYS = ["a", "a.c", "b.n", "a.t", "b.s"]
SINGLES = [
    "(a: E) over a.d", "(a: E) over a.d by a.w", "(a: E, w: W) where w in a.w over a.d per w",
    "(a: E, w: W) where w in a.w and a.r > 0 over a.d per w, a.c by 1, a.r", "(a: E) where R(p, a) over a.d by a.r",
    "(a: E) where R(p, a) and p.r > 0 over a.d == y per a.c", "(a: E, f: F) where S(a, f) over a.d, f.d by S(a, f).v",
    "(a: E, f: F) where S(a, f) and a.r < f.r over a.d == f.d", "(a: E, k: C) where H(a, k) over a.d per k",
    "(a: E, b: E) where R(a, b) over a.d by 1, b.r, b.n per b.c".replace("by 1, b.r, b.n per b.c", "per b.c by 1, b.r, b.n"),
]  # fmt: skip


@st.composite
def templates(draw):
    if draw(st.booleans()):
        return draw(st.sampled_from(SINGLES))
    where = " and ".join([draw(st.sampled_from(TIES)), *draw(st.lists(st.sampled_from(CONDITIONS), max_size=2))])
    text = f"(a: E, b: E) where {where} over {draw(st.sampled_from(OVERS))}"
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=2, unique=True))
    features = draw(st.lists(st.sampled_from(["1", *NUMBERS]), max_size=2))
    return text + (f" per {', '.join(keys)}" if keys else "") + (f" by {', '.join(features)}" if features else "")


def maybe(values):
    return st.one_of(st.none(), st.sampled_from(values))


@st.composite
def tables(draw):
    """Tables as the evaluator reads them: things by key, tuples, attributes of tuples."""
    keys = draw(st.sampled_from([("a", "b", "c", "d"), (1, 2, 10, 9), ("p 1", "p'2", 'p"3', "é")]))
    keys = keys[: draw(st.integers(2, 4))]
    reals = (-1.5, 0.0, 0.25, 2.0)
    things = {
        key: {
            "d": draw(maybe(["x", "y", "z"])), "c": draw(maybe(["red", "blue"])), "r": draw(maybe(reals)),
            "n": draw(maybe([0, 1, 2])), "t": draw(maybe([True, False])), "s": draw(maybe(["one", "two"])),
            "w": draw(st.dictionaries(st.sampled_from(["u", "v", "q"]), st.integers(1, 3), max_size=3)),
        }
        for key in keys
    }  # fmt: skip
    others = {k: {"d": draw(maybe(["x", "y", "z"])), "r": draw(maybe(reals))} for k in ("f", "g")}
    pairs = draw(st.lists(st.tuples(st.sampled_from(keys), st.sampled_from(keys)), max_size=8))
    ties = draw(
        st.dictionaries(st.tuples(st.sampled_from(keys), st.sampled_from(["f", "g"])), maybe(reals), max_size=4)
    )
    colours = draw(st.lists(st.tuples(st.sampled_from(keys), st.sampled_from(["red", "blue"])), max_size=4))
    return {"E": things, "F": others}, pairs, ties, colours


def frames(things, pairs, ties, colours):
    def entity(rows, attributes):
        columns = {a: pd.Series([row[a] for row in rows.values()], dtype=object) for a in attributes}
        return pd.DataFrame({"id": list(rows), **columns})

    words = [(key, w) for key, row in things["E"].items() for w, n in row["w"].items() for _ in range(n)]
    return {
        "E": entity(things["E"], "dcrnts"),
        "F": entity(things["F"], "dr"),
        "E_w": pd.DataFrame(words, columns=["e", "w"], dtype=object),
        "R": pd.DataFrame(pairs, columns=["a", "b"], dtype=object),
        "S": pd.DataFrame([(*k, v) for k, v in ties.items()], columns=["a", "f", "v"], dtype=object),
        "H": pd.DataFrame(colours, columns=["a", "k"], dtype=object),
    }


def engine_factors(grounding, group, info):
    """Each factor of a group: its scope, and its non-zero features as (key, position, value)."""
    width = len(info.features)
    for n in range(group.n_factors):
        scope = []
        for place in group.scope:
            block = grounding.block_of(int(place[n]))
            scope.append((block.entity, str(grounding.keys[block.entity][place[n] - block.start]), block.attribute))
        entries = defaultdict(float)
        for feature, value in group.features.row(n):
            key = info.keys.values[feature // width] if info.keys else ()
            entries[key, feature % width] += value
        yield tuple(scope), entries


def summed(factors):
    """Features by scope, added up; what a group's log potentials depend on."""
    out = defaultdict(lambda: defaultdict(float))
    for scope, entries in factors:
        total = out[scope]
        for place, value in entries.items():
            total[place] += value
    return {s: {k: round(v, 4) for k, v in f.items() if abs(v) > 1e-9} for s, f in out.items()}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(tables(), st.lists(templates(), min_size=1, max_size=3))
def test_the_ground_graph_is_what_the_model_means(data, bodies):
    things, pairs, ties, colours = data
    text = DECLARATIONS + "".join(f"template t{k}{body}\n" for k, body in enumerate(bodies))
    spec = relcrf.parse(text).spec
    words = sorted({w for row in things["E"].values() for w in row["w"]})
    domains = {"D": ["x", "y", "z"], "C": ["red", "blue"], "W": words}
    scores = {("S", k): {"v": v} for k, v in ties.items()}
    naive = Evaluator(spec, things, {"R": set(pairs), "S": set(ties), "H": set(colours)}, scores, domains)

    bound = bind(spec, relcrf.Dataset(frames(things, pairs, ties, colours)))
    grounding = ground(bound)
    for block in grounding.blocks:
        for key, state in zip(
            grounding.keys[block.entity], grounding.states[block.start :][: block.count], strict=True
        ):
            truth = next(row["d"] for k, row in things[block.entity].items() if str(k) == key)
            assert (block.values[state] if state >= 0 else None) == truth
    told = plan(bound)
    for template, group, info, size in zip(
        spec.templates, grounding.graph.groups, grounding.templates, told, strict=True
    ):
        expected = list(naive.factors(template))
        factors = [
            (
                tuple((entity, str(key), attribute) for entity, key, attribute in scope),
                {(keys, d): value for d, value in enumerate(features)},
            )
            for scope, keys, features in expected
        ]
        found = list(engine_factors(grounding, group, info))
        assert summed(found) == summed(factors)
        assert info.bindings == size.bindings == len(factors)
        if len(group.scope) > 1:
            assert Counter(scope for scope, _ in found) == Counter(scope for scope, _ in factors)
        assert size.bytes == group.nbytes
        patterns = None if group.patterns is None else group.patterns[:, 0].tolist()
        assert patterns == naive.patterns(template)
