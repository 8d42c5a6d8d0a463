"""Random access to a grounding: the bindings of a template, and all factors of a variable."""

import numpy as np
import pytest

import relcrf
from relcrf.grounding import bindings
from relcrf.grounding.block_cache import BlockCache
from relcrf.language.render import render_expression

MODEL = """
domain D = { x, y, z }
domain W = open
domain Part = { morning, evening }
entity E { predict d : D  w : bag of W  g : integer  r : real  v : vector  old : bool }
entity Day
relation R(a: E, b: E)
predict relation Knows(a: E, b: E) where R(a, b)
predict relation warm(m: Day, s: Part)
template prior(e: E) over e.d
template bias(e: E) over e.d by e.r, 1
template counted(e: E, o: E) where R(e, o) over e.d
template single(e: E) over e.d per e.g
template word(e: E, u: W) where u in e.w over e.d per u
template two(e: E, u: W) where u in e.w over e.d per u by 1, e.r
template words(e: E) over e.d by e.w
template pair(a: E, b: E) where R(a, b) over a.d, b.d
template valued(a: E, b: E) where R(a, b) over a.d == b.d by a.v
template keyed(a: E, b: E) where R(a, b) over a.d, b.d per a.g, b.g by b.r
template tied(a: E, b: E) where R(a, b) and a < b over symmetric a.d, b.d
template known(a: E, b: E) where R(a, b) over a.d == b.d and a.old
template friend(a: E, b: E) over Knows(a, b) => a.d == b.d
template level(m: Day, s: Part) over warm(m, s) per s
template stays(m: Day, s: Part, t: Part) where s < t over warm(m, s), warm(m, t) per s, t
template never(e: E) where e.r > 1000 over e.d per e.g
rule: Knows(a, b) => Knows(b, a)
candidates maybe(a: E, b: E) over a.d == b.d
"""


def tables():
    rng = np.random.default_rng(3)
    things = [f"e{k}" for k in range(9)]
    pairs = sorted({tuple(rng.choice(things, 2)) for _ in range(25)})
    return {
        "e": {
            "id": things,
            "d": ["x", "y", None, "z", "x", None, "y", "y", "z"],
            "w": [list(rng.choice(["p", "q", "s"], k % 4)) for k in range(9)],
            "g": [1, 2, 1, 2, 3, 3, 1, None, 2],
            "r": [0.5, 1.5, None, 2.5, -1.0, 0.25, 3.0, 4.0, 0.0],
            "v": [[float(k), 1.0, -2.0] for k in range(9)],
            "old": [True, False, True, None, True, False, True, True, False],
        },
        "day": {"id": ["mon", "tue", "wed"]},
        "r": {"a": [a for a, _ in pairs], "b": [b for _, b in pairs]},
        "knows": {"a": [pairs[0][0]], "b": [pairs[0][1]]},
        "warm": {"m": ["mon", "tue"], "s": ["morning", "evening"], "value": [True, True]},
    }


@pytest.fixture(scope="module")
def model():
    return relcrf.parse(MODEL)


@pytest.fixture(scope="module", params=["new", "cached"])
def grounding(model, request, tmp_path_factory):
    data = relcrf.Dataset(tables())
    if request.param == "new":
        return model.ground(data)
    folder = tmp_path_factory.mktemp("blocks")
    model.ground(data, cache=folder)
    blocks = BlockCache(folder)
    found = model.ground(data, cache=blocks)
    assert not blocks.misses
    return found


def entries(grounding):
    """Yield every entry of every factor from the feature matrices: template, variables, key, feature, value."""
    for template, group in zip(grounding.group_names, grounding.graph.groups, strict=True):
        info = grounding.templates[group.block]
        for factor in range(group.n_factors):
            scope = tuple(int(slot[factor]) for slot in group.scope)
            for feature, value in group.features.row(factor):
                key, name = info.feature_name(feature)
                if value == 0:
                    continue  # only some feature matrices store zeros
                yield template, scope, key, name, value


def test_factors_of_variables_equal_all_entries(grounding):
    wanted = {v: [] for v in range(grounding.graph.n_variables)}
    names = [grounding.variable_name(v) for v in wanted]
    assert len(set(names)) == len(names)
    for template, scope, key, name, value in entries(grounding):
        row = (template, ", ".join(names[v] for v in scope), ", ".join(key), name, value)
        for variable in set(scope):
            wanted[variable].append(row)
    assert {row[0] for rows in wanted.values() for row in rows} == set(grounding.bindings) - {"never"}
    shared = {a for a, b in zip(tables()["r"]["a"], tables()["r"]["b"], strict=True) if a == b}
    assert shared, "a variable may occur twice in a factor"
    for variable, rows in wanted.items():
        found = grounding.factors(names[variable]).rows()
        assert sorted(row for row in found if row[4] != 0) == sorted(rows)
        assert found == grounding.factors(variable).rows()


def test_instances_equal_all_entries(grounding):
    wanted = {name: [] for name in grounding.bindings}
    for template, scope, key, name, value in entries(grounding):
        wanted[template].append((scope, key, name, value))
    for template, rows in wanted.items():
        frame = grounding.instances(template)
        lowered = grounding._lowered[template]
        per = len(lowered.keys)
        names = lowered.feature_names or ("1",)
        found = []
        for k in range(len(frame)):
            row = {name: column[k] for name, column in frame.columns.items()}
            scope = tuple(
                grounding.find_variable(block.format_name(tuple(row[a] for a in arguments)))
                for block, arguments in grounding._scope_arguments(lowered)
            )
            keys = ["W"] if template == "words" else [render_expression(p) for p in lowered.template.per]
            found += [(scope, tuple(row[key] for key in keys), name, row[name]) for name in names if row[name] != 0]
            assert len(keys) == per
        assert sorted(found) == sorted(rows), template
        assert len(frame) == grounding.count_instances(template)


@pytest.mark.parametrize("step", [1, 3])
def test_pages_of_instances_concatenate_to_all(grounding, step):
    for template in grounding.bindings:
        whole = grounding.instances(template).rows()
        parts = [grounding.instances(template, start, step) for start in range(0, len(whole) + step, step)]
        assert [row for part in parts for row in part.rows()] == whole
        assert {tuple(part.columns) for part in parts} == {tuple(parts[0].columns)}


def test_columns_of_instances(model, grounding):
    assert grounding.instances("prior", 1, 2).rows() == [("e1", "y", 1.0), ("e2", None, 1.0)]
    pair = grounding.instances("keyed")
    assert list(pair.columns) == ["a", "b", "a.d", "b.d", "a.g", "b.g", "b.r"]
    first = dict(zip(pair.columns, pair.rows(1)[0], strict=True))
    things = tables()["e"]
    a, b = things["id"].index(first["a"]), things["id"].index(first["b"])
    assert (first["a.d"], first["b.d"], first["b.r"]) == (things["d"][a], things["d"][b], things["r"][b] or 0.0)
    assert (first["a.g"], first["b.g"]) == (str(things["g"][a]), str(things["g"][b]))
    assert grounding.instances("stays").rows() == [
        ("mon", "morning", "evening", "true", "false", 1.0),
        ("tue", "morning", "evening", "false", "true", 1.0),
        ("wed", "morning", "evening", "false", "false", 1.0),
    ]
    assert list(grounding.instances("valued").columns)[4:] == ["a.v[0]", "a.v[1]", "a.v[2]"]
    assert grounding.instances("rule 1").rows(0) == []
    assert grounding.factors("warm(tue, evening)")["scope"].tolist() == [
        "warm(tue, evening)",
        "warm(tue, morning), warm(tue, evening)",
    ]


def test_factors_of_chosen_candidates():
    """The factors of candidates are in the order of the candidates, not of their variables."""
    rater, joke = (index.ravel() for index in np.indices((4, 4)))
    model = relcrf.parse(
        "domain Joke = open\nentity Rater\npredict relation rates(r: Rater, j: Joke) : 1..3\n"
        "template prior(r: Rater, j: Joke) over rates(r, j) per j\n"
        "candidates edge(r: Rater, i: Joke, j: Joke) where i < j over rates(r, i), rates(r, j) per i, j"
    )
    chosen = (("0", "1"), ("1", "2"), ("0", "3"))
    data = {"rater": {"id": range(4)}, "rates": {"r": rater, "j": joke, "value": 1 + (rater + joke) % 3}}
    grounding = model.ground(data).with_candidates({"edge": chosen})
    for variable in range(grounding.graph.n_variables):
        name = grounding.variable_name(variable)
        own_rater, own_joke = name.removeprefix("rates(").removesuffix(")").split(", ")
        wanted = [f"rates({own_rater}, {i}), rates({own_rater}, {j})" for i, j in chosen if own_joke in (i, j)]
        found = grounding.factors(name)
        assert found["scope"][found["template"] == "edge"].tolist() == wanted


def test_long_columns_are_searched_in_chunks(grounding, monkeypatch):
    wanted = [grounding.factors(v).rows() for v in range(grounding.graph.n_variables)]
    monkeypatch.setattr(bindings, "CHUNK_FACTORS", 3)
    monkeypatch.setattr(
        "relcrf.grounding.grounding.MAX_CACHED_NAMES", 0
    )  # names of many variables are not cached either
    assert [grounding.factors(v).rows() for v in range(grounding.graph.n_variables)] == wanted


def catch_problem(call):
    with pytest.raises(relcrf.UsageError) as caught:
        call()
    (problem,) = caught.value.diagnostics
    return problem


def test_unknown_templates_and_variables_raise_error(grounding):
    problem = catch_problem(lambda: grounding.instances("pear"))
    assert (problem.code, problem.hint) == ("E316", "did you mean 'pair'?")
    assert "candidate declaration" in catch_problem(lambda: grounding.instances("maybe")).message
    for text, hint in [
        ("E(e33).d", "did you mean 'E(e3).d'?"),
        ("warm(mon, mornin)", "did you mean 'warm(mon, morning)'?"),
        ("warm(mo, morning)", "did you mean 'warm(mon, morning)'?"),
        ("warm(mon)", "write a name such as E(e0).d"),
        ("E(e1).e", "did you mean 'E.d'?"),
        ("E(e1)", "write a name such as E(e0).d"),
        ("(", "write a name such as E(e0).d"),
        ("e1", "write a name such as E(e0).d"),
        ("", "write a name such as E(e0).d"),
    ]:
        problem = catch_problem(lambda text=text: grounding.factors(text))
        assert (problem.code, problem.hint) == ("E313", hint), text
    for number in (-1, grounding.graph.n_variables):
        assert catch_problem(lambda number=number: grounding.factors(number)).code == "E313"


def test_names_of_keys_with_commas_quotes_and_brackets():
    keys = ["a", "a, b", "b", "b, c", "c", '"c"', "f(x)).d", "d'", " (", "'q'", "ü"]
    model = relcrf.parse(
        "entity E { predict d : bool }\nrelation R(a: E, b: E)\npredict relation S(a: E, b: E) where R(a, b)\n"
        "template t(e: E) over e.d\ntemplate s(a: E, b: E) over S(a, b)"
    )
    pairs = [("a", "b, c"), ("a, b", "c"), ("f(x)).d", "d'"), ("a, b", "'q'"), ("ü", "ü")]
    grounding = model.ground(
        relcrf.Dataset({"e": {"id": keys}, "r": {"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}})
    )
    ambiguous = []
    for variable in range(grounding.graph.n_variables):
        try:
            assert grounding.find_variable(grounding.variable_name(variable)) == variable
        except relcrf.UsageError as error:
            ambiguous.append(grounding.variable_name(variable))
            assert "names 2 variables" in error.diagnostics[0].message
    assert ambiguous == ["S(a, b, c)"] * 2
    one, other = grounding.find_variable('S("a", "b, c")'), grounding.find_variable("S('a, b', 'c')")
    assert grounding.variable_name(one) == grounding.variable_name(other) == "S(a, b, c)" and one != other
    assert grounding.find_variable('E("c").d') == grounding.find_variable('E( "c" ).d')
    assert grounding.variable_name(grounding.find_variable('E("c").d')) == 'E("c").d', (
        "a key with quotes takes precedence"
    )
    assert grounding.find_variable("S( a, b ,'q')") == grounding.find_variable("S(a, b, 'q')")


def test_access_to_a_million_factors(tmp_path):
    """Read rows in the middle of a template with a million factors, and the factors of one variable."""
    n = 300_000
    rng = np.random.default_rng(0)
    source, target = rng.integers(n, size=(2, 1_000_000))
    data = relcrf.Dataset(
        {"e": {"id": np.arange(n), "d": np.where(np.arange(n) % 2, "x", "y")}, "r": {"a": source, "b": target}}
    )
    model = relcrf.parse(
        "domain D = { x, y }\nentity E { predict d : D }\nrelation R(a: E, b: E)\n"
        "template r(a: E, b: E) where R(a, b) over a.d, b.d"
    )
    grounding = model.ground(data, cache=tmp_path)
    total = grounding.count_instances("r")
    middle = grounding.instances("r", total // 2, 5)
    assert len(middle) == 5 and middle["a.d"].tolist() == ["x" if int(a) % 2 else "y" for a in middle["a"]]
    pairs = np.unique(np.column_stack([source, target]), axis=0)
    found = grounding.factors("E(77).d")
    assert len(found) == ((pairs == 77).any(axis=1)).sum()
    assert all("E(77).d" in scope for scope in found["scope"])
    with pytest.raises(relcrf.UsageError, match=r"unknown variable 'E\(300000\)\.d'"):
        grounding.factors("E(300000).d")
