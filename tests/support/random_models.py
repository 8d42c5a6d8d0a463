"""Hypothesis strategies of random models and tiny random tables."""

import numpy as np
import pandas as pd
from evaluator import Evaluator
from hypothesis import strategies as st

DECLARATIONS = """
domain D = { x, y, z }
domain C = { red, blue }
domain W = open
entity E {
    predict d : D  latent l : 1..2  c : C  o : D  k : 1..3  r : real  n : integer  t : bool  s : string  w : bag of W  q : W
}
entity F { predict d : D  r : real }
relation R(a: E, b: E)
relation S(a: E, f: F) { v: real }
relation H(a: E, k: C)
predict relation P(a: E, b: E) where a != b
predict relation Q(a: E, k: C) : D
predict relation T(a: E) where exists { R(a, b) }
predict relation U(a: E, w: W)
derive Meet(a: E, b: E) where R(m, a) and R(m, b) and a < b
derive Far(a: E, b: E) where Meet(a, b) and not R(a, b)
derive Reach(a: E, b: E) where R(a, b) or (Reach(a, m) and R(m, b))
derive Odd(a: E, b: E) where R(a, b) or (R(a, m) and Even(m, b))
derive Even(a: E, b: E) where R(a, m) and Odd(m, b)
derive Popular(a: E) where count { p where R(p, a) } >= 2
derive Lonely(a: E) where not exists { Reach(a, b) and a != b }
derive Wordy(a: E, w: W) where w in a.w or w in b.w and R(b, a)
"""
NUMBERS = [
    "a.r", "b.r", "a.n", "2", "a.r + b.n", "-a.r", "a.r / b.n", "log(a.r)", "sqrt(b.r) * 2", "least(a.r, b.r)", "abs(a.n)",
    "a.k", "count { q where R(a, q) }", "sum { q.r where R(q, a) }", "min { q.n where R(a, q) }", "length(a.s)",
    "mean { q.r * a.n where R(a, q) and q != b }", "count { q, w where R(a, q) and w in q.w }", "levenshtein(a.s, b.s)",
    "count { R(q, a) or R(a, q) }", "sum { q.r where R(q, a) or R(a, q) }",
    "count { w where w in a.w and w in b.w }", "sum { q.r where R(a, q) and (R(q, b) or q.r > b.r) }",
    "count { Reach(b, p) and R(p, r) }", "bin(a.r + b.r, 0, 0.5, 2)", "default(a.r, b.r)", "missing(a.r)", "missing(a.n / b.r)",
    "max { S(b, g).v where S(b, g) }",
]  # fmt: skip
TIES = [
    "R(a, b)", "R(b, a)", "Meet(a, b)", "Far(a, b)", "R(a, m) and R(m, b)", "R(a, b) and R(b, a)", "Reach(a, b)",
    "a.c == b.c", "a.s == b.s", "S(a, f) and S(b, f)", "H(a, red) and R(a, b)", "a.n == b.n", "a.k == b.k", "a.q == b.q",
    "(R(a, b) or R(b, a))", "(Meet(a, b) or R(a, m) and Far(m, b))", "Even(a, b)", "Popular(a) and a != b",
]  # fmt: skip
CONDITIONS = [
    "a != b", "a < b", "a == b", "a.r > 0", "a.n <= b.n", "a.c == red", "a.c != b.c", "a.t", "not b.t", "a.s == \"one\"",
    "R(b, a)", "not R(b, a)", "not Meet(a, b)", "(R(b, a) or a.r > b.r)", "(a.r > 0 => b.r > 0)", "(a.t <=> b.t)",
    "H(a, blue)", "not H(b, red)", "\"u\" in a.w", "not (\"v\" in b.w)", "a.r + b.r > 0.5", "log(a.r) < 1",
    "not (a.r > 0 and R(a, b))", "true", "a.k == 2", "a.k < b.n", "a.o > b.o", "a.q < b.q", "b.q <= \"u\"", "a.t == b.t",
    "exists { R(q, a) and q.r > 0 }", "count { q where R(a, q) } > 1", "not (sum { q.r where R(a, q) } > 0)", "Lonely(b)",
    "count { w where w in a.w and not w in b.w } > 0", "min { q.n where R(a, q) and exists { R(b, q) } } < 2",
    "exists { R(q, a) or R(a, q) }", "exists { not true }", "exists { exists { R(a, q) } }", "a.t == (b.r > 0)",
    "exists { count { q where R(a, q) } > 1 }",
    "contains(a.s, \"o\")", "(Reach(b, a) or exists { S(b, g) and S(b, g).v > 0 })", "not exists { H(a, k) and H(b, k) }",
    "count { q where not R(q, a) } > 2", "prefix(a.s, 1) == prefix(b.s, 1)", "(H(a, h) or not R(b, i))",
    "not R(h2, a) and exists { R(h2, b) }", "exists { R(h2, b) } and not R(h2, a)", "(exists { R(h2, h2) } or not R(a, h2))",
    "count { h3 where R(h3, h2) } > 1 and not R(h2, a)", "not R(h2, a) and count { h3 where R(h3, h2) } > 1",
    "missing(a.r)", "not missing(b.n)", "missing(a.c) == b.t", "exists { R(a, q) and missing(q.s) }",
]  # fmt: skip
OVERS = [
    "a.d, b.d", "b.d, a.d", "a.d == b.d", "a.d != b.d", "a.d == x and b.d == y", "a.d == x => b.d == x", "a.d < b.d",
    "not (a.d == z or b.d == z)", "a.d", "a.d == x", "symmetric a.d, b.d", "P(a, b)", "P(a, b), a.d", "P(a, b) and P(b, a)",
    "P(a, b) => a.d == b.d", "a.d == a.o", "a.d != b.o", "a.d < a.o", "a.d == x and a.t", "P(a, b) and (R(a, b) or b.t)",
    "Q(a, red)", "Q(a, red) == b.d", "Q(a, red), b.d", "Q(b, blue) == z", "a.l, a.d", "a.l == b.l", "a.l == 2 and b.d == y",
    "a.d == y => R(b, a)", "T(a) <=> a.t", "symmetric T(a), T(b)", "not T(b) or count { q where R(q, b) } > 1", "T(a) == b.t",
    "T(b) != a.t", "(T(a) == a.t) or a.t",
    "(a.d == b.d) == a.t", "(a.d == x) == P(a, b)", "U(a, \"u\") and U(b, \"v\")", "a == b or P(a, b)", "a.l > 1",
]  # fmt: skip
KEYS = [
    "a", "a.c", "b.n", "a.t", "b.s", "a.k", "b.q", "a.c == b.c", "bin(a.r, -1, 0.25)", "bin(default(a.r, -9), -5, 0)",
    "length(b.s)", "a.n - b.n", "a.t == b.t",
    "bin(count { q where R(a, q) }, 1, 2)", "prefix(a.s, 1)", "R(b, a)", "a.r > b.r or a.n == 1", "levenshtein(a.s, b.s)",
    "count { q where R(q, b) }", "a.t == (b.r > 0)", "not exists { R(a, q) and q.r > 0 }", "a.k + 1", "-b.k", "missing(a.s)",
    "missing(a.n) or b.r > 0", "missing(a.c) == missing(b.c)",
]  # fmt: skip
SINGLES = [
    "(a: E) over a.d", "(a: E) over a.d by a.w", "(a: E, w: W) where w in a.w over a.d per w",
    "(a: E, w: W) where w in a.w and a.r > 0 over a.d per w, a.c by 1, a.r", "(a: E) where R(p, a) over a.d by a.r",
    "(a: E) where R(p, a) and p.r > 0 over a.d == y per a.c", "(a: E, f: F) where S(a, f) over a.d, f.d by S(a, f).v",
    "(a: E, f: F) where S(a, f) and a.r < f.r over a.d == f.d", "(a: E, k: C) where H(a, k) over a.d per k",
    "(a: E, b: E) where R(a, b) over a.d per b.c by 1, b.r, b.n", "(a: E, w: W) over U(a, w) per w",
    "(a: E, v: W, w: W) where v < w over U(a, v) and U(a, w) per v, w", "(a: E, k: C) over Q(a, k) per k",
    "(a: E, k: C) over Q(a, k) == x per a.c by 1, a.r", "(a: E, j: C, k: C) where j != k over symmetric Q(a, j), Q(a, k)",
    "(a: E, b: E) over P(a, b) by 1, a.r", "(a: E, k: 1..2) where a.k > k over a.d per k",
    "(a: E, w: W) where Wordy(a, w) over U(a, w)",
    "(a: E, k: C) over Q(a, k), a.d", "(a: E, w: W) where w == a.q over U(a, w), T(a) per a.t",
    "(f: F) over f.d == x and f.r > 0",
]  # fmt: skip
RULES = [
    ": T(x) => U(x, \"u\")", ": R(x, y) and T(x) => T(y)", " hard: P(x, y) => P(y, x)",
    " 1.5 sym: P(x, y) and P(y, z) => P(x, z)",
    ": T(x) and x.t => Q(x, red) == y", ": P(x, y) => R(x, y)", ": R(x, y) => x.d == y.d per x.c", ": not T(x)",
    ": H(x, k) and Q(x, k) == z => T(x) per k", ": T(x) and R(x, y) => Meet(x, y)", ": w in x.w => U(x, w) l2 0.5",
    " hard: R(x, y) or P(x, y)", ": U(x, w) and R(x, y) and x.r > y.r => U(y, w) per w", ": P(x, y) <=> R(x, y)",
    ": T(x) and T(y) and R(x, y) => x.t", ": (x.t => T(x)) and R(x, x)", ": R(x, y) and T(x) => T(x)",
]  # fmt: skip
SHARED = [
    ("(a: E, b: E) where R(a, b) over a.d == b.d by a.r", "(a: E, b: E) where R(b, a) over a.d != b.d by 1"),
    ("(a: E) over a.d per a.c, a.k", "(f: F, a: E) where S(a, f) over f.d per a.c, a.k"),
    ("(a: E, b: E) where R(a, b) over a.d, b.d per a.s", "(a: E, f: F) where S(a, f) over a.d, f.d per a.s"),
    ("(a: E, w: W) over U(a, w) per w l2 1.0", "(a: E, w: W) where w in a.w over T(a) per w"),
]  # fmt: skip


@st.composite
def templates(draw):
    kind = draw(st.integers(0, 9))
    if kind < 2:
        return [f"template NAME{draw(st.sampled_from(SINGLES))}"]
    if kind < 4:
        return [f"rule{draw(st.sampled_from(RULES))}"]
    if kind == 4:
        first, second = draw(st.sampled_from(SHARED))
        return [f"template NAME{first} weights NAMEw", f"template NAMEother{second} weights NAMEw"]
    where = " and ".join([draw(st.sampled_from(TIES)), *draw(st.lists(st.sampled_from(CONDITIONS), max_size=2))])
    text = f"template NAME(a: E, b: E) where {where} over {draw(st.sampled_from(OVERS))}"
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=2, unique=True))
    features = draw(st.lists(st.sampled_from(["1", *NUMBERS]), max_size=2))
    return [text + (f" per {', '.join(keys)}" if keys else "") + (f" by {', '.join(features)}" if features else "")]


def maybe(values):
    return st.one_of(st.none(), st.sampled_from(values))


@st.composite
def tables(draw):
    """Return tables for the evaluator: entities by key, tuples, attributes of tuples, listed random tuples."""
    keys = draw(st.sampled_from([("a", "b", "c", "d"), (1, 2, 10, 9), ("p 1", "p'2", 'p"3', "é")]))
    keys = keys[: draw(st.integers(2, 4))]
    reals = (-1.5, 0.0, 0.25, 2.0)
    things = {
        key: {
            "d": draw(maybe(["x", "y", "z"])), "c": draw(maybe(["red", "blue"])), "o": draw(maybe(["x", "y", "z"])),
            "k": draw(maybe([1, 2, 3])), "r": draw(maybe(reals)), "q": draw(maybe(["u", "v", "x y"])),
            "n": draw(maybe([0, 1, 2])), "t": draw(maybe([True, False])), "s": draw(maybe(["one", "two"])),
            "w": draw(st.dictionaries(st.sampled_from(["u", "v", "q"]), st.integers(1, 3), max_size=3)),
        }
        for key in keys
    }  # fmt: skip
    others = {k: {"d": draw(maybe(["x", "y", "z"])), "r": draw(maybe(reals))} for k in ("f", "g")}
    key = st.sampled_from(keys)
    pairs = draw(st.lists(st.tuples(key, key), max_size=8))
    ties = draw(st.dictionaries(st.tuples(key, st.sampled_from(["f", "g"])), maybe(reals), max_size=4))
    colours = draw(st.lists(st.tuples(key, st.sampled_from(["red", "blue"])), max_size=4))
    listed = {
        "P": draw(st.none() | st.dictionaries(st.tuples(key, key), maybe([True, False]), max_size=4)),
        "Q": draw(
            st.none() | st.dictionaries(st.tuples(key, st.sampled_from(["red", "blue"])), maybe(["x", "z"]), max_size=3)
        ),
        "T": draw(st.none() | st.dictionaries(st.tuples(key), st.just(True), max_size=3)),
        "U": draw(
            st.dictionaries(st.tuples(key, st.sampled_from(["u", "v", "new"])), maybe([True, False]), max_size=4)
        ),
    }
    return {"E": things, "F": others}, pairs, ties, colours, listed


def frames(things, pairs, ties, colours, listed):
    def entity(rows, attributes):
        columns = {a: pd.Series([row[a] for row in rows.values()], dtype=object) for a in attributes}
        return pd.DataFrame({"id": list(rows), **columns})

    words = [(key, w) for key, row in things["E"].items() for w, n in row["w"].items() for _ in range(n)]
    found = {
        "E": entity(things["E"], "dcokrntsq"),
        "F": entity(things["F"], "dr"),
        "E_w": pd.DataFrame(words, columns=["e", "w"], dtype=object),
        "R": pd.DataFrame(pairs + pairs[:2], columns=["a", "b"], dtype=object),
        "S": pd.DataFrame([(*k, v) for k, v in ties.items()], columns=["a", "f", "v"], dtype=object),
        "H": pd.DataFrame(colours, columns=["a", "k"], dtype=object),
    }
    columns = {"P": ["a", "b"], "Q": ["a", "k"], "T": ["a"], "U": ["a", "w"]}
    for name, rows in listed.items():
        if rows is not None:
            table = pd.DataFrame([(*k, v) for k, v in rows.items()], columns=[*columns[name], "value"], dtype=object)
            found[name] = table.drop(columns="value") if name == "T" else table
    return found


def naive_model(spec, things, pairs, ties, colours, listed):
    """Return the evaluator of a model on such tables."""
    words = {w for row in things["E"].values() for w in row["w"]} | {row["q"] for row in things["E"].values()}
    words |= {w for _, w in listed["U"]}
    domains = {
        "D": ["x", "y", "z"],
        "C": ["red", "blue"],
        "W": sorted(words - {None}),
        "1..2": [1, 2],
        "1..3": [1, 2, 3],
    }
    scores = {("S", k): {"v": v} for k, v in ties.items()}
    return Evaluator(spec, things, {"R": set(pairs), "S": set(ties), "H": set(colours)}, scores, domains)


def some_tables():
    """Yield tables without and with missing values, for templates that random examples may miss."""
    rng = np.random.default_rng(0)
    for gaps in (0.0, 0.3):

        def pick(values, gaps=gaps):
            return None if rng.random() < gaps else values[rng.integers(len(values))]

        keys = ["a", "b", "c", "d"]
        things = {
            k: {
                "d": pick("xyz"), "c": pick(["red", "blue"]), "o": pick("xyz"), "k": pick([1, 2, 3]), "q": pick(["u", "v"]),
                "r": pick([-1.5, 0.25, 2.0]), "n": pick([0, 1, 2]), "t": pick([True, False]), "s": pick(["one", "two"]),
                "w": {w: int(rng.integers(1, 3)) for w in "uvq" if rng.random() < 0.5},
            }
            for k in keys
        }  # fmt: skip
        others = {k: {"d": pick("xyz"), "r": pick([0.5, -1.0])} for k in "fg"}
        pairs = [(a, b) for a in keys for b in keys if rng.random() < 0.4]
        ties = {(a, f): pick([0.5, -2.0]) for a in keys for f in "fg" if rng.random() < 0.5}
        colours = [(a, c) for a in keys for c in ("red", "blue") if rng.random() < 0.5]
        listed = {
            "P": {(a, b): pick([True, False]) for a in keys for b in keys if rng.random() < 0.5},
            "Q": {(a, c): pick("xz") for a in keys for c in ("red", "blue") if rng.random() < 0.5},
            "T": {(a,): True for a in keys if rng.random() < 0.5},
            "U": {(a, w): pick([True, False]) for a in keys for w in ("u", "v", "new") if rng.random() < 0.5},
        }
        yield {"E": things, "F": others}, pairs, ties, colours, listed


DATA = list(some_tables())
KINDS = {
    "singles": [f"template singles{k}{text}" for k, text in enumerate(SINGLES)],
    "rules": [f"rule{text}" for text in RULES],
    "shared": [f"template shared{k}{n}{pair[n]} weights w{k}" for k, pair in enumerate(SHARED) for n in (0, 1)],
    "overs": [f"template overs{k}(a: E, b: E) where R(a, b) over {text}" for k, text in enumerate(OVERS)],
    "ties": [f"template ties{k}(a: E, b: E) where {text} over a.d, b.d" for k, text in enumerate(TIES)],
    "conditions": [
        f"template conditions{k}(a: E, b: E) where {c} and R(a, b) over a.d, b.d" for k, c in enumerate(CONDITIONS)
    ],
    "numbers": [f"template numbers{k}(a: E, b: E) where R(a, b) over a.d by {text}" for k, text in enumerate(NUMBERS)],
    "keys": [f"template keys{k}(a: E, b: E) where R(a, b) over a.d, b.d per {text}" for k, text in enumerate(KEYS)],
}
"""Declarations with each construct of the language, by the kind of the construct."""

PARTS = {
    "scopes": [*KINDS["singles"], *KINDS["rules"], *KINDS["shared"], *KINDS["overs"]],
    "conditions": [*KINDS["ties"], *KINDS["conditions"]],
    "features": [*KINDS["numbers"], *KINDS["keys"]],
}
"""The same declarations in three models: each model takes half a second even without templates."""
