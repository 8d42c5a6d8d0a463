"""Gates: features equal those of the reference implementation, in the order of the factors, for every engine, cache and file."""

import json
import re
from collections import Counter
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from generated import generated
from ground_graphs import assert_equal_groundings, engine_factors, same_array
from hypothesis import given
from hypothesis import strategies as st
from random_models import DATA, DECLARATIONS, KINDS, NUMBERS, PARTS, frames, naive_model, tables, templates

import relcrf
from relcrf.columns.storage import find_mapped_file
from relcrf.data.binding import bind
from relcrf.errors import DataError, ModelError
from relcrf.graph.factor_graph import RepeatedScope
from relcrf.graph.features import Dense, Ones, Sparse, Tiled
from relcrf.grounding import ground as grounding_module
from relcrf.grounding.block_cache import BlockCache
from relcrf.grounding.engines.postgres import PostgresEngine
from relcrf.grounding.engines.spark import SparkEngine
from relcrf.grounding.ground import ground

OF_A = [number for number in NUMBERS if not re.search(r"\bb\b", number)]


def gated(text, source, **options):
    return ground(bind(relcrf.parse(text).spec, relcrf.Dataset(source)), **options)


def by_template(grounding):
    """Return, for each template with declared gate features, its groups with these features."""
    found = {}
    for number, gates in grounding.gates.groups.items():
        group, info = grounding.graph.groups[number], grounding.gate_templates[gates.block]
        weights = grounding.gates.layout.blocks[gates.block]
        assert info.name == weights.name and weights.size % len(info.features) == 0
        if gates.features is not None:
            assert (gates.features.n_rows, 1 + gates.features.n_features) == (group.n_factors, len(info.features))
            found.setdefault(grounding.group_names[number], []).append((group, gates.features, info))
    return found


def entries(features, info, factor):
    """Return the non-zero features of one gate, by the value of a bag or by index."""
    names = info.features[1:]
    return {
        ((names[k].split(" in ")[0],), 0) if info.is_extensible else ((), k): value
        for k, value in features.row(factor)
        if value
    }


# Comparison with the reference implementation


def names(text):
    """Return the one-letter names in a text, without attributes."""
    return set(re.findall(r"(?<![.\w])[a-z]\b", text))


def choices(declaration):
    """Return possible features of a gate on a random template or rule."""
    header = re.match(r"template \w+\((.*?)\)", declaration)
    if header is None:
        return ["1", "x.r", "-x.n", "count { q where R(x, q) }"] if re.search(r"\bx\b", declaration) else ["1"]
    binders = dict(part.strip().split(": ") for part in header[1].split(","))
    if "a" not in binders:
        return ["1", "f.r"]
    others = [f"{name}.r" for name, sort in binders.items() if sort == "F"]
    numbers = ["1", *OF_A, *others, *(NUMBERS if binders.get("b") == "E" else [])]
    # An aggregate binds further names, which must differ from those of the template.
    taken = names(declaration) - {"a", "b"}
    numbers = [number for number in numbers if "{" not in number or not names(number) & taken]
    return [*numbers, "a.w", "a.w"] if len(binders) == 1 else numbers


@st.composite
def gated_templates(draw):
    """Generate random templates and rules, each with a gate."""
    found = []
    for k in range(draw(st.integers(3, 6))):
        for text in draw(templates()):
            declaration = re.sub(r"^(rule(?: hard)?):", r"\1 NAME:", text).replace("NAME", f"t{k}")
            found.append(declaration)
            name = re.match(r"template (\w+)|rule.*?(\w+):", declaration)
            pool = choices(declaration)
            by = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))
            found.append(f"gate {name[1] or name[2]} by {'a.w' if 'a.w' in by else ', '.join(by)}")
    return found


def rounded(features):
    return tuple(sorted((place, round(value, 4)) for place, value in features.items() if abs(value) > 1e-9))


def compare(data, declarations):
    """Compare a ground graph and its gates with the reference implementation, binding by binding."""
    spec = relcrf.parse(DECLARATIONS + "\n".join(dict.fromkeys(declarations))).spec
    naive = naive_model(spec, *data)
    if not naive.domains["W"]:
        return
    grounding = ground(bind(spec, relcrf.Dataset(frames(*data))))
    found = by_template(grounding)
    for gate in spec.gates:
        declared = next(d for d in (*spec.templates, *spec.rules) if d.name == gate.template)
        expected = list(naive.bound_factors(declared))
        if not expected or len(expected[0][1][0]) != 2:
            assert not expected or gate.template not in found, "factors with gates have two variables"
            continue
        assert joint(grounding, found[gate.template]) == Counter(
            (scope, pattern, rounded({(keys, d): value for d, value in enumerate(features)}),
             rounded(naive.gate_features(gate, env)))
            for env, (scope, pattern, keys, features) in expected
        )  # fmt: skip


def joint(grounding, groups):
    """Count every factor with its features and those of its gate."""
    found = Counter()
    for group, features, info in groups:
        factors = engine_factors(grounding, group, grounding.templates[group.block])
        for n, (scope, pattern, own) in enumerate(factors):
            found[scope, pattern, rounded(own), rounded(entries(features, info, n))] += 1
    return found


@generated(9)
@given(tables(), gated_templates())
def test_random_gates_equal_reference(data, declarations):
    compare(data, declarations)


@pytest.mark.parametrize("data", DATA, ids=["whole", "gaps"])
def test_gates_accept_all_numeric_features(data):
    shapes = [
        "R(a, b) over a.d, b.d",
        "R(a, b) over a.d == a.o by a.r",
        "R(a, m) and R(m, b) over a.d, b.d per a.c by b.r, 1",
    ]
    texts = [f"template t{k}(a: E, b: E) where {shapes[k % 3]}" for k in range(len(NUMBERS))]
    compare(data, texts + [f"gate t{k} by 1, {number}" for k, number in enumerate(NUMBERS)])


@pytest.mark.parametrize("data", DATA, ids=["whole", "gaps"])
@pytest.mark.parametrize("part", PARTS)
def test_gates_on_every_kind_of_factor(data, part):
    texts = [re.sub(r"^(rule(?: hard)?):", rf"\1 r{k}:", text) for k, text in enumerate(PARTS[part])]
    gates = []
    for text in texts:
        name = re.match(r"template (\w+)|rule.*?(\w+):", text)
        for_each = [c for c in choices(text) if "{" not in c][:3]
        gates.append(f"gate {name[1] or name[2]} by {'a.w' if 'a.w' in choices(text) else ', '.join(for_each)}")
    compare(data, texts + gates)


def test_reading_gates_does_not_change_graph():
    texts = [*KINDS["singles"][:9], *(text for kind in ("overs", "ties", "numbers") for text in KINDS[kind][::3])]
    gates = [f"gate {re.match('template (.*?)[(]', t)[1]} by {choices(t)[-1]}" for t in texts]
    bound = bind(relcrf.parse(DECLARATIONS + "\n".join(texts + gates)).spec, relcrf.Dataset(frames(*DATA[1])))
    read, unread = ground(bound), ground(bound)
    assert sum(map(len, by_template(read).values())) == sum(len(group.scope) == 2 for group in read.graph.groups) > 3
    assert_equal_groundings(read, unread)


# Examples computed by hand

WEB = """
domain C = { x, y }
domain W = open
entity P { predict c : C  predict s : bool  r : real  n : integer  v : vector  w : bag of W }
relation L(a: P, b: P) { score: real }
template prior(p: P) over p.c
template words(p: P) over p.c by p.w
template both(p: P) over p.c, p.s
template linked(a: P, b: P) where L(a, b) over a.c, b.c
template near(p: P, q: P) where L(p, q) over p.c
"""
TABLES = {
    "p": pd.DataFrame(
        {"id": [1, 2, 3], "c": ["x", None, "y"], "s": [True] * 3, "r": [0.5, None, -1.0], "n": [1, 2, 3],
         "v": [[1.0, 2.0], [0.0, 1.0], [3.0, 4.0]], "w": [["u", "u", "v"], [], ["z", "u"]]}
    ),
    "l": pd.DataFrame({"a": [1, 1, 2], "b": [2, 3, 3], "score": [1.5, None, 4.0]}),
}  # fmt: skip


def ground_gate(gate, tables=TABLES):
    """Return the features of the only gate with declared features, and the description of its weights."""
    ((found,),) = by_template(gated(WEB + gate, tables)).values()
    return found[1:]


def test_numeric_features_are_columns():
    features, info = ground_gate("gate linked by 1, L(a, b).score, -a.n, b.v, count { q where L(q, b) }")
    assert info.features == ("base", "1", "L(a, b).score", "-a.n", "b.v[0]", "b.v[1]", "count { q where L(q, b) }")
    assert (info.name, info.patterns, info.keys, info.bindings) == ("linked by linked", ("open",), None, 3)
    expected = [[1, 1.5, -1, 0, 1, 1], [1, 0, -1, 3, 4, 2], [1, 4, -2, 3, 4, 2]]
    assert isinstance(features, Dense)
    assert features.values.tolist() == expected


def test_constant_feature_is_not_stored():
    features, info = ground_gate("gate linked by 1")
    assert features == Ones(3)
    assert info.features == ("base", "1")


def test_bag_feature_has_weight_for_each_value():
    features, info = ground_gate("gate both by p.w")
    assert isinstance(features, Sparse)
    assert info.features == ("base", "u in p.w", "v in p.w", "z in p.w") and info.is_extensible
    assert [features.row(n) for n in range(3)] == [[(0, 2), (1, 1)], [], [(0, 1), (2, 1)]]


def test_unary_factors_have_no_gates():
    for gate in ("near by 1, q.n", "words by 1, p.n", "words by p.w", "prior by p.w"):
        grounding = gated(f"{WEB}gate {gate}", TABLES)
        assert by_template(grounding) == {}
        assert {grounding.group_names[number] for number in grounding.gates.groups} == {"both", "linked"}


def test_other_factors_have_status_gates():
    grounding = gated(WEB + "gate linked by a.n", TABLES)
    both, linked = grounding.gate_templates
    assert (both.name, linked.name) == ("both", "linked by linked")
    assert both.features[:5] == ("base", "x, false", "x, true", "x, query", "x, hidden") and len(both.features) == 17


def test_templates_that_share_weights_have_separate_gates():
    text = (
        WEB
        + "template back(a: P, b: P) where L(b, a) over a.c, b.c weights linked\ngate back by a.n\ngate linked by b.n, 1"
    )
    grounding = gated(text, TABLES)
    assert len({group.block for group in grounding.graph.groups[-3:]}) == 2
    found = {name: features.values.tolist() for name, ((_, features, _),) in by_template(grounding).items()}
    assert found == {"linked": [[2, 1], [3, 1], [3, 1]], "back": [[2], [3], [3]]}
    assert [info.name for info in grounding.gate_templates] == ["both", "linked by linked", "linked by back"]


def test_gates_of_empty_tables():
    tables = {**TABLES, "l": TABLES["l"].iloc[:0]}
    assert ground_gate("gate linked by 1, a.n", tables)[0].values.shape == (0, 2)
    assert ground_gate("gate linked by 1", tables)[0] == Ones(0)
    tables = {**TABLES, "p": TABLES["p"].iloc[1:2], "l": tables["l"]}
    features, info = ground_gate("gate both by p.w", tables)
    assert (features.n_rows, features.n_features, info.features) == (1, 0, ("base",))


# Notes and errors


def notes(grounding):
    return [note for note in grounding.bound.notes if "gates of" in note]


def test_note_names_backend_that_learns_gates():
    text = WEB + "gate linked by a.n\ngate near by p.n"
    assert notes(gated(text, TABLES)) == ["gates of linked, near: learned only by the backend 'gated'"]
    assert notes(gated(WEB, TABLES)) == []


def test_candidates_have_no_gates():
    pairs = "candidates pairs(p: P, v: W, w: W) where v < w over p.c == x and p.s per v, w\n"
    grounding = gated(WEB + pairs + "gate pairs by p.n", TABLES)
    assert notes(grounding) == ["gates of pairs: ignored because candidates have no gates"]
    assert by_template(grounding) == {}


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("gate linked by a.c", "E124"),
        ("gate linked by count { q where L(q, a) and q.s }", "E124"),
        ("gate linked by z.n", "E104"),
        ("gate linked by 1, a.w", "E130"),
        ("gate linked by a.w", "E130"),
        ("gate both by 1, p.w", "E130"),
        ("gate linked by a.n > 1", "E130"),
    ],
)
def test_invalid_gate_features_raise_error(gate, code):
    with pytest.raises(ModelError) as raised:
        relcrf.parse(WEB + gate)
    assert [d.code for d in raised.value.diagnostics if d.is_error] == [code]


@pytest.mark.parametrize("own", ["per p.n by 1, p.r", "by p.w"])
def test_bag_gate_on_templates_with_other_features(own):
    text = WEB + f"template keyed(p: P) over p.s, p.c {own}\ngate keyed by p.w"
    ((_, features, _),) = by_template(gated(text, TABLES))["keyed"]
    rows = [[(0, 2), (1, 1)], [], [(0, 1), (2, 1)]]
    expected = rows if own.startswith("per") else [rows[0], rows[0], rows[2], rows[2]]  # a factor for each word
    assert [features.row(n) for n in range(features.n_rows)] == expected


def test_infinite_gate_feature_raises_e222():
    tables = {**TABLES, "p": TABLES["p"].assign(n=[1, 2, 1000])}
    with pytest.raises(DataError) as raised:
        ground_gate("gate linked by exp(b.n)", tables)
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "E222"
    assert "the feature 'exp(b.n)' of the gate of 'linked'" in diagnostic.message


# Cached gates


def assert_equal_gates(found, expected, same=same_array):
    assert found.gate_templates == expected.gate_templates
    assert found.gates.layout == expected.gates.layout
    assert found.gates.groups.keys() == expected.gates.groups.keys()
    for number, one in found.gates.groups.items():
        other = expected.gates.groups[number]
        assert (one.block, type(one.features)) == (other.block, type(other.features))
        for a, b in zip(arrays(one), arrays(other), strict=True):
            same(a, b)


def arrays(gates):
    return () if gates.features is None else gates.features.arrays()


TIED = WEB + "template tied(p: P) over p.c, p.s\n"
GATED = """
gate words by p.n, p.r
gate tied by p.w
gate both by p.v
gate linked by 1, L(a, b).score, count { w where w in a.w and w in b.w }
"""


def test_cached_gates_equal_grounded_ones(tmp_path):
    text = TIED + GATED
    expected = gated(text, TABLES)
    first, second = BlockCache(tmp_path), BlockCache(tmp_path)
    for cache in (first, second):
        grounding = gated(text, TABLES, cache=cache)
        assert_equal_groundings(grounding, expected)
        assert_equal_gates(grounding, expected)
    templates, gates = ["prior", "words", "both", "linked", "near", "tied"], ["gate tied", "gate both", "gate linked"]
    assert first.misses == second.hits == [*templates, *gates]
    assert first.hits == second.misses == []


def cache_misses(folder, text, tables=TABLES):
    """Return the names of the blocks that are not in the cache."""
    cache = BlockCache(folder)
    assert gated(text, tables, cache=cache).gates.groups
    return cache.misses


def test_changed_gate_invalidates_its_block_only(tmp_path):
    text = TIED + GATED
    assert len(cache_misses(tmp_path, text)) == 9
    assert cache_misses(tmp_path, text.replace("by 1, L(a, b).score", "by L(a, b).score")) == ["gate linked"]
    assert cache_misses(tmp_path, text.replace("by p.v", "by p.v, 1")) == ["gate both"]
    assert cache_misses(tmp_path, text.replace("tied(p: P) over p.c, p.s", "tied(p: P) over p.s, p.c")) == [
        "tied",
        "gate tied",
    ]
    assert cache_misses(tmp_path, TIED) == []


@pytest.mark.parametrize(
    ("table", "rows", "misses"),
    [
        (
            "p",
            {"n": [1, 2, 4]},
            ["prior", "words", "both", "linked", "near", "tied", "gate tied", "gate both", "gate linked"],
        ),
        ("l", {"score": [1.5, 0.5, 4.0]}, ["linked", "near", "gate linked"]),
    ],
)
def test_changed_table_invalidates_dependent_blocks(tmp_path, table, rows, misses):
    cache_misses(tmp_path, TIED + GATED)
    assert cache_misses(tmp_path, TIED + GATED, {**TABLES, table: TABLES[table].assign(**rows)}) == misses


def test_table_read_only_by_gate_invalidates_gate(tmp_path):
    text = WEB.replace(
        "template", "relation K(a: P, b: P)\nderive Two(a: P, b: P) where K(a, m) and K(m, b)\ntemplate", 1
    )
    text += "gate both by count { m where Two(p, m) }"
    tables = {**TABLES, "k": pd.DataFrame({"a": [1, 2], "b": [2, 3]})}
    cache_misses(tmp_path, text, tables)
    assert cache_misses(tmp_path, text, tables) == []
    assert cache_misses(tmp_path, text, {**tables, "k": tables["k"].iloc[:1]}) == ["gate both"]


@pytest.mark.parametrize("harm", ["short", "wide", "gone", "fewer"])
def test_damaged_gates_raise_e227(tmp_path, harm):
    text = WEB + "gate linked by a.n, b.n"
    assert gated(text, TABLES, cache=BlockCache(tmp_path)).gates.groups
    found = {path: json.loads(path.read_text()) for path in tmp_path.glob("*/block.json")}
    ((path, facts),) = ((path, facts) for path, facts in found.items() if facts["info"]["name"] == "gate linked")
    (group,) = facts["groups"]
    file = path.parent / group["features"]["values"]
    if harm == "short":
        np.save(file, np.load(file)[:-1])
    elif harm == "wide":
        np.save(file, np.ones((3, 3)))
    elif harm == "gone":
        file.unlink()
    else:
        facts["groups"] = []
        path.write_text(json.dumps(facts))
    grounding = gated(text, TABLES, cache=BlockCache(tmp_path))
    with pytest.raises(DataError) as raised:
        _ = grounding.gates
    assert [d.code for d in raised.value.diagnostics] == ["E227"]


def test_chosen_candidates_do_not_change_gates():
    pairs = "candidates pairs(p: P, v: W, w: W) where v < w over trait(p, v) and trait(p, w) per v, w"
    text = TIED + "predict relation trait(p: P, w: W)\n" + pairs + GATED
    grounding = gated(text, TABLES)
    chosen = grounding.with_candidates({"pairs": (("u", "z"),)})
    assert chosen.group_names == (*grounding.group_names, "pairs")
    assert by_template(chosen).keys() == by_template(grounding).keys()
    assert chosen.gates.layout.blocks[:-1] == grounding.gates.layout.blocks


# Larger data: many buckets, files, and the other engines

SIZED = """
domain C = { x, y }
domain W = open
entity P { predict c : C  predict d : C  r : real  n : integer  w : bag of W }
relation L(a: P, b: P) { score: real }
template linked(a: P, b: P) where L(a, b) over a.c, b.c per a.n
template meeting(a: P, b: P, m: P) where L(m, a) and L(m, b) and a < b over a.c, b.c
template through(a: P, b: P) where L(a, m) and L(m, b) over a.c == b.c or a.n == b.n
template word(p: P) over p.c, p.d
gate linked by 1, a.r, L(a, b).score
gate meeting by m.r, a.r * b.r
gate through by log(a.r + b.n), count { q where L(a, q) and L(q, b) }
gate word by p.w
"""


def sized(pages, links):
    rng = np.random.default_rng(0)
    ends = np.unique(rng.integers(pages, size=(links, 2)), axis=0)
    page = {
        "id": np.arange(pages), "c": rng.choice(["x", "y"], pages), "d": "x", "r": rng.random(pages),
        "n": rng.integers(5, size=pages),
        "w": [[f"w{k}" for k in row] for row in rng.integers(60, size=(pages, 5))],
    }  # fmt: skip
    link = {"a": ends[:, 0], "b": ends[:, 1], "score": rng.normal(size=len(ends))}
    return {"P": pd.DataFrame(page), "L": pd.DataFrame(link)}


def test_gates_of_many_rows_in_files():
    tables = sized(3000, 30_000)
    spec = relcrf.parse(SIZED).spec
    plain = ground(bind(spec, relcrf.Dataset(tables)))
    small = ground(bind(spec, relcrf.Dataset(tables, memory="150MB")))
    assert_equal_groundings(small, plain)
    assert_equal_gates(small, plain)
    assert any(find_mapped_file(column) for gates in small.gates.groups.values() for column in gates.features.arrays())
    # The keys of pages equal their variables, so that the tables give the expected features.
    r, n, link = tables["P"]["r"].to_numpy(), tables["P"]["n"].to_numpy(), tables["L"]
    gates = {number: one.features for number, one in plain.gates.groups.items()}
    for k, name in enumerate(plain.group_names):
        scope = plain.graph.groups[k].scope
        if name == "linked":
            score = link.set_index(["a", "b"])["score"]
            expected = np.column_stack((np.ones(len(link)), r[scope[0]], score[list(zip(*scope, strict=True))]))
            np.testing.assert_array_equal(gates[k].values, expected)
        elif name == "meeting":  # a pair of pages has a factor for each page that links to both
            assert len(scope[0]) > 1 << 17
            met = link.merge(link, on="a").query("b_x < b_y").assign(r=lambda rows: r[rows["a"]])
            met = met.sort_values(["b_x", "b_y", "r"])
            np.testing.assert_array_equal(np.column_stack((*scope, gates[k].values[:, 0])), met[["b_x", "b_y", "r"]])
            np.testing.assert_allclose(gates[k].values[:, 1], r[scope[0]] * r[scope[1]])
        elif name == "through":
            np.testing.assert_allclose(gates[k].values[:, 0], np.log(r[scope[0]] + n[scope[1]]))
        else:
            names = plain.gate_templates[plain.gates.groups[k].block].features[1:]
            for page in range(0, 3000, 10):
                words = Counter(f"{word} in p.w" for word in tables["P"]["w"][page])
                assert {names[place]: count for place, count in gates[k].row(page)} == words


@pytest.mark.parametrize("name", ["postgres", pytest.param("spark", marks=pytest.mark.slow)])
def test_other_engines_return_same_gates(request, name):
    """Run only two of the four gates on Spark, because each plan takes Spark seconds."""
    postgres = name == "postgres"
    lines = [line for line in SIZED.splitlines() if postgres or not re.search("linked|meeting", line)]
    bound = bind(relcrf.parse("\n".join(lines)).spec, relcrf.Dataset(sized(300, 1500)))
    expected = ground(bound)
    started = request.getfixturevalue(name)
    engine = PostgresEngine(started.new_database(), bound.cursor) if postgres else SparkEngine(started, bound.cursor)
    with closing(engine):
        found = ground(bound, engine=engine)
    assert_equal_groundings(found, expected)
    assert_equal_gates(found, expected)


# Repetition over rows

READINGS = """
domain W = open
entity M { h : real }
entity S { n : integer  w : bag of W }
relation N(a: S, b: S)
predict relation reading(m: M, s: S) : 1..2
template pair(m: M, s: S, t: S) where s < t over reading(m, s), reading(m, t)
template one(m: M, s: S) over reading(m, s) == 2
predict relation other(s: S, m: M) : 1..2
template across(m: M, s: S, t: S) where s < t over other(s, m), other(t, m)
"""
ROWS = {
    "m": pd.DataFrame({"id": [0, 1, 2], "h": [0.5, None, 2.0]}),
    "s": pd.DataFrame({"id": [0, 1, 2, 3], "n": [1, 2, 3, 4], "w": [["u"], ["v", "u"], [], ["v"]]}),
    "n": pd.DataFrame({"a": [0, 1], "b": [1, 3]}),
}


@pytest.mark.parametrize(
    ("gate", "is_repeated"),
    [
        ("pair by 1", True),
        ("pair by s.n, count { q where N(s, q) }", True),
        ("pair by s.n * m.h, t.n", False),
        ("across by s.n", True),
        ("across by s.n + m.h, t.n", False),
    ],
)
def test_gates_of_repeated_scopes(monkeypatch, gate, is_repeated):
    """If a gate depends on the row, its features are expanded although the scope is repeated."""
    bound = bind(relcrf.parse(f"{READINGS}gate {gate}").spec, relcrf.Dataset(ROWS))
    repeated = ground(bound)
    with monkeypatch.context() as patch:
        patch.setattr(grounding_module, "reduce_to_one_row", lambda bound, context, lowered: (lowered, None))
        expanded = ground(bound)
    assert repeated.gate_templates == expanded.gate_templates
    ((group, features, _),) = by_template(repeated)[gate.split()[0]]
    assert isinstance(group.scope, RepeatedScope)
    assert isinstance(features, Tiled) == is_repeated
    assert factors_with_gates(repeated) == factors_with_gates(expanded)


def factors_with_gates(grounding):
    (((group, features, _),),) = by_template(grounding).values()
    scopes = zip(*(place.tolist() for place in group.scope), strict=True)
    return Counter((scope, tuple(features.row(n))) for n, scope in enumerate(scopes))


def test_repeated_gate_stores_one_row():
    ((_, features, _),) = by_template(gated(READINGS + "gate pair by s.n, t.n", ROWS))["pair"]
    assert features.nbytes == 6 * 2 * 8
    assert features.n_rows == 3 * 6
