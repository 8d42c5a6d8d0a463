"""Explanations: contributions are additive and equal the effect of removing factors; changes flip predictions."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from graphs import all_states, joint_scores

import relcrf
from relcrf.api import Fit
from relcrf.errors import UsageError
from relcrf.evaluation.explanation import ExplanationCase
from relcrf.report import neighbourhood
from relcrf.report.plot import require_drawable

MODEL = """
domain Topic = { a, b, c }
domain Word = open
domain Colour = { red, green }
entity Page {
    predict topic : Topic
    words : bag of Word
    colour : Colour
    long : bool
}
relation Link(x: Page, y: Page)
template prior(p: Page) over p.topic
template word(p: Page, w: Word) where w in p.words over p.topic per w
template colour(p: Page) over p.topic per p.colour
template long(p: Page) where p.long over p.topic == a
template linked(p: Page, q: Page) where Link(p, q) over p.topic, q.topic
template alike(p: Page, q: Page) where Link(p, q) over p.topic == q.topic
"""

TREE = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (4, 6)]
EXACT = ["ess", "chow-liu", "dense-jt", "dense-enumeration", "dense-bp", "pseudo"]


def tables(links=TREE, labels=None, seed=0):
    rng = np.random.default_rng(seed)
    n = 8
    labels = labels or [None, None, "b", None, None, "c", "a", "c"]
    page = pd.DataFrame({"id": range(n), "topic": pd.Series(labels, dtype=object)})
    page["colour"] = rng.choice(["red", "green"], size=n)
    page["long"] = rng.random(n) < 0.5
    words = pd.DataFrame([(p, w) for p in range(n) for w in "uvwxyz" if rng.random() < 0.5], columns=["page", "word"])
    return {"page": page, "page_word": words, "link": pd.DataFrame(links, columns=["x", "y"])}


@cache
def ground(*more, seed=0):
    """Return the ground graph of the default tables with more links."""
    return relcrf.parse(MODEL).ground(relcrf.Dataset(tables([*TREE, *more], seed=seed)))


def random_fit(grounding, backend="ess", seed=0, **settings):
    """Return a model with random weights, so that there are contributions of both signs."""
    name, _, method = backend.partition("-") if backend.startswith("dense") else (backend, "", "")
    if method:
        settings["inference"] = method
    fit = relcrf.api.fit(relcrf.parse(MODEL), grounding, name, max_iterations=2, **settings)
    rng = np.random.default_rng(seed)
    drawn = {key: rng.normal(size=len(value)) for key, value in fit.learned.vectors.items()}
    return Fit(replace(fit.learned, vectors={**fit.learned.vectors, "weights": drawn["weights"]}))


@cache
def default_fit(backend="ess"):
    """Return `random_fit` of the default tables, which is trained once."""
    return random_fit(ground(), backend)


def enumerated(fit, grounding, variable, *, hidden=(), without=()):
    """Return the log marginal of a variable by enumeration, without some of its factors given as (group, factor)."""
    graph, weights = grounding.graph, fit.learned.vectors_for(grounding)["weights"]
    states = grounding.states.copy()
    states[[variable, *hidden]] = -1
    free = np.flatnonzero(states < 0)
    groups = []
    for number, group in enumerate(graph.groups):
        kept = np.array([k for k in range(group.n_factors) if (number, k) not in without], dtype=np.int64)
        groups.append(
            replace(group, scope=tuple(np.asarray(s)[kept] for s in group.scope), features=group.features.take(kept))
        )
    graph = replace(graph, groups=tuple(groups))
    joint = all_states(graph.cardinality, states, free)
    scores = joint_scores(graph, weights, joint)
    total = [np.logaddexp.reduce(scores[joint[:, variable] == k]) for k in range(graph.cardinality[variable])]
    return np.array(total) - np.logaddexp.reduce(scores)


def assert_additive(one):
    """Assert that a contribution is the sum of its features and of its sources."""
    if one.features:
        assert sum(part.amount for part in one.features) == pytest.approx(one.amount, abs=1e-9)
    if one.sources:
        assert sum(source.amount for source in one.sources) == pytest.approx(one.amount, abs=1e-9)
        for source in one.sources:
            assert_additive(source)


@pytest.mark.parametrize("backend", ["local", "smooth"])
def test_templates_after_a_template_over_two_variables_keep_their_names(backend):
    """`local` and the base predictions of `smooth` use a graph without the factors over several variables."""
    data, pair = tables(), "template linked(p: Page, q: Page) where Link(p, q) over p.topic, q.topic\n"
    found = []
    for text in (MODEL, MODEL.replace(pair, "").replace("template prior", f"{pair}template prior")):
        model = relcrf.parse(text)
        grounding = model.ground(relcrf.Dataset(data))
        explained = relcrf.api.fit(model, grounding, backend).explain(grounding, "Page/1")
        found.append({one.templates: one.amount for one in explained.contributions if one.kind == "itself"})
    assert set(found[0]) <= {("prior",), ("word",), ("colour",), ("long",)}
    assert found[0] == pytest.approx(found[1])


@pytest.mark.parametrize("backend", EXACT)
@pytest.mark.parametrize("seed", range(2))
def test_contributions_on_a_tree_sum_to_enumerated_log_odds(backend, seed):
    grounding = ground(seed=seed)
    fit = random_fit(grounding, backend, seed)
    for page in range(8):
        found = fit.explain(grounding, f"Page/{page}", depth=3)
        exact = enumerated(fit, grounding, page)
        values = grounding.blocks[0].values
        expected = exact[values.index(found.answer)] - exact[values.index(found.against)]
        assert found.answer == values[exact.argmax()]
        assert found.log_odds == pytest.approx(expected, abs=1e-9)
        assert found.remainder == pytest.approx(0.0, abs=1e-9)
        assert sum(one.amount for one in found.contributions) == pytest.approx(expected, abs=1e-9)
        assert sum(found.by_template().values()) == pytest.approx(expected, abs=1e-9)
        for one in found.contributions:
            assert_additive(one)
            rest = [source.amount for source in one.sources if source.kind == "interaction"]
            assert rest == pytest.approx([0.0] * len(rest), abs=1e-9)


def test_neighbour_on_a_tree_contributes_the_effect_of_its_factors():
    """Removing the factors of one link changes the enumerated log odds by the contribution of that neighbour."""
    grounding, fit = ground(), default_fit()
    found = fit.explain(grounding, "Page/1", against="a")
    values, checked = grounding.blocks[0].values, []
    for one in found.contributions:
        if not one.neighbours:
            continue
        other = grounding.find_variable(one.neighbours[0].name)
        without = [
            (number, k)
            for number, group in enumerate(grounding.graph.groups)
            if len(group.scope) == 2
            for k in range(group.n_factors)
            if {int(group.scope[0][k]), int(group.scope[1][k])} == {1, other}
        ]
        odds = [
            exact[values.index(found.answer)] - exact[values.index("a")]
            for exact in (enumerated(fit, grounding, 1), enumerated(fit, grounding, 1, without=without))
        ]
        assert one.amount == pytest.approx(odds[0] - odds[1], abs=1e-9)
        checked.append((one.kind, one.templates))
    assert len(checked) == 3
    assert {templates for _, templates in checked} <= {("linked", "alike"), ("alike", "linked")}


@pytest.mark.parametrize(
    "backend", ["dense-jt", "dense-bp", "dense-mf", "dense-trw", "pseudo", "ess", "gated", "trmrf", "grafting"]
)
def test_remainder_on_a_graph_with_cycles(backend):
    grounding = ground((1, 2), (3, 4))
    fit = random_fit(grounding, backend)
    prediction = relcrf.api.predict(fit, grounding)
    for variable, probabilities in zip(prediction.variables(), prediction.probabilities(), strict=True):
        found = fit.explain(grounding, f"Page/{variable}", depth=2)
        np.testing.assert_allclose(list(found.probabilities.values()), probabilities, atol=1e-4)
        total = sum(one.amount for one in found.contributions) + found.remainder
        assert total == pytest.approx(found.log_odds, abs=1e-9)
        assert found.log_odds == pytest.approx(
            np.log(found.probabilities[found.answer] / found.probabilities[found.against]), abs=1e-9
        )
        for one in found.contributions:
            assert_additive(one)
        if backend in ("ess", "dense-bp"):  # converged messages, or a forest
            assert abs(found.remainder) < 0.5
        if backend in ("dense-mf", "trmrf"):  # mean field passes only expected log potentials
            assert abs(found.remainder) < 1e-4


def test_junction_tree_log_odds_equal_enumeration():
    grounding = relcrf.parse(MODEL).ground(relcrf.Dataset(tables([(0, 1), (1, 3), (0, 3)])))
    fit = random_fit(grounding, "dense-jt")
    found = fit.explain(grounding, "Page/0")
    exact, values = enumerated(fit, grounding, 0), grounding.blocks[0].values
    assert found.log_odds == pytest.approx(exact[values.index(found.answer)] - exact[values.index(found.against)])
    assert abs(found.remainder) > 1e-3


def test_several_trees_are_averaged():
    grounding = ground((1, 2), (3, 4), (0, 3))
    found = random_fit(grounding, "ess", trees=3).explain(grounding, "Page/1", depth=2)
    total = sum(one.amount for one in found.contributions) + found.remainder
    assert total == pytest.approx(found.log_odds, abs=1e-9)
    for one in found.contributions:
        assert_additive(one)


def test_labelled_neighbours_in_the_tree_are_evidence():
    found = random_fit(ground(), "ess", observed_edges="tree").explain(ground(), "Page/0")
    assert {one.kind for one in found.contributions if one.neighbours} == {"neighbour", "evidence"}
    assert found.remainder == pytest.approx(0.0, abs=1e-9)


def test_closed_gates_have_no_contributions():
    grounding = ground((1, 2))
    fit = random_fit(grounding, "gated")
    closed = Fit(replace(fit.learned, settings={**fit.learned.settings, "gate_threshold": 0.999}))
    kinds = {one.kind for one in closed.explain(grounding, "Page/1").contributions}
    assert kinds == {"itself"}
    assert "neighbour" in {one.kind for one in fit.explain(grounding, "Page/1").contributions}


def test_further_labels_can_be_hidden():
    grounding, fit = ground(), default_fit()
    hidden = np.arange(8) == 2
    found = fit.explain(grounding, "Page/0", hidden=hidden)
    exact, values = enumerated(fit, grounding, 0, hidden=[2]), grounding.blocks[0].values
    assert found.log_odds == pytest.approx(exact[values.index(found.answer)] - exact[values.index(found.against)])
    assert found.truth is None
    assert fit.explain(grounding, "Page/2").truth == "b"


@pytest.mark.parametrize(
    ("page", "backend"), [(0, "ess"), (1, "ess"), (3, "ess"), (4, "ess"), (0, "dense-mf"), (1, "gated")]
)
def test_changes_equal_changed_tables(page, backend):
    """Apply the changes to copies of the tables, and ground these together."""
    data, fit = tables(), default_fit(backend)
    found = fit.flips(ground(), f"Page/{page}")
    asked = fit.explain(ground(), f"Page/{page}")
    kinds = set()
    assert list(found.single) == sorted(found.single, key=lambda flip: flip.log_odds)
    flips = [*found.single, *filter(None, [found.nearest])]
    grounding = fit.ground(relcrf.Dataset(join_tables([change_tables(data, page, flip.changes) for flip in flips])))
    for k, flip in enumerate(found.single):
        (change,) = flip.changes
        kinds.add(change.subject.split()[0].split("(")[0])
        again = fit.explain(grounding, f"Page/{8 * k + page}", against=None)
        assert again.answer == flip.answer
        assert again.probabilities[flip.answer] == pytest.approx(flip.probability, abs=1e-6)
        odds = np.log(again.probabilities[asked.answer] / again.probabilities[asked.against])
        assert odds == pytest.approx(flip.log_odds, abs=1e-5)
    assert {"word", "colour", "long"} <= kinds
    if found.nearest is not None:
        again = fit.explain(grounding, f"Page/{8 * len(found.single) + page}")
        assert again.answer == found.nearest.answer != asked.answer


def join_tables(copies):
    """Return tables of all pages of the copies; copy k has the pages from 8 k on."""
    joined = {}
    for name, columns in {"page": ["id"], "page_word": ["page"], "link": ["x", "y"]}.items():
        shifted = [copy[name].assign(**{c: copy[name][c] + 8 * k for c in columns}) for k, copy in enumerate(copies)]
        joined[name] = pd.concat(shifted, ignore_index=True)
    return joined


def change_tables(data, page, changes):
    """Return tables with changes of evidence."""
    for change in changes:
        data = change_table(data, page, change)
    return data


def change_table(data, page, change):
    pages, words = data["page"].copy(), data["page_word"]
    template, _, key = change.subject.partition(" ")
    if template.startswith("Page("):
        pages.loc[pages["id"] == int(template[5 : template.index(")")]), "topic"] = change.after
    elif template == "colour":
        pages.loc[page, "colour"] = change.after
    elif template == "long":
        pages.loc[page, "long"] = change.after == "true"
    elif change.after == "0":
        words = words[(words["page"] != page) | (words["word"] != key)]
    else:
        words = pd.concat([words, pd.DataFrame({"page": [page], "word": [key]})], ignore_index=True)
    return {**data, "page": pages, "page_word": words}


@pytest.mark.parametrize(("prior", "changes"), [(-0.95, ["t a"]), (-0.5, ["t a", "t b"]), (0.5, None)])
def test_nearest_flip_has_minimal_changes(prior, changes):
    """Words support x by 1 and 0.9 nats; the prior opposes it."""
    text = f"""domain D = {{ x, y }} domain W = open entity E {{ predict d : D words : bag of W }}
    template prior(e: E) over e.d == x init {prior} fixed
    template t(e: E, w: W) where w in e.words over e.d == x per w"""
    words = pd.DataFrame({"e": [1, 1, 2], "word": ["a", "b", "a"]})
    data = relcrf.Dataset({"e": pd.DataFrame({"id": [1, 2], "d": [None, "x"]}), "e_word": words})
    fit = relcrf.parse(text).fit(data, "local")
    fit = Fit(replace(fit.learned, vectors={"weights": np.array([prior, 1.0, 0.9])}))
    found = fit.flips(data, "E/1")
    assert (found.answer, found.n_candidates) == ("x", 2)
    assert (found.nearest and [change.subject for change in found.nearest.changes]) == changes


def test_a_value_of_several_bindings_is_removed_as_a_whole():
    """Three linked entities have the word a, which supports x by 1 nat each; the prior opposes it."""
    text = """domain D = { x, y } domain W = open entity E { predict d : D words : bag of W } relation L(a: E, b: E)
    template prior(e: E) over e.d == x init -1.5 fixed
    template t(e: E, f: E, w: W) where L(e, f) and w in f.words over e.d == x per w"""
    words = pd.DataFrame({"e": [2, 3, 4, 2], "word": list("aaab")})
    links = pd.DataFrame({"a": [1, 1, 1], "b": [2, 3, 4]})
    entities = pd.DataFrame({"id": [1, 2, 3, 4], "d": [None, "x", "y", "x"]})
    data = relcrf.Dataset({"e": entities, "e_word": words, "l": links})
    fit = relcrf.parse(text).fit(data, "local")
    fit = Fit(replace(fit.learned, vectors={"weights": np.array([-1.5, 1.0, 0.2])}))
    found = fit.flips(data, "E/1")
    assert [str(flip.changes[0]) for flip in found.single] == ["t a: 3 -> 0", "t b: 1 -> 0"]
    assert found.nearest == found.single[0] and found.nearest.log_odds == pytest.approx(-1.3)


def test_predicted_relations_and_cliques():
    text = """entity P
    relation F(x: P, y: P)
    predict relation S(x: P)
    rule 0.8: F(x, y) and S(x) => S(y)
    rule 1.1 three: F(x, y) and F(y, z) and S(x) and S(z) => S(y)
    template prior(x: P) over S(x) init 0.3 fixed"""
    people = pd.DataFrame({"id": ["anna", "bob, jr", "carl"]})
    friends = pd.DataFrame({"x": ["anna", "bob, jr"], "y": ["bob, jr", "carl"]})
    data = relcrf.Dataset({"p": people, "f": friends, "s": pd.DataFrame({"x": ["anna"], "value": [True]})})
    fit = relcrf.parse(text.replace("rule 0.8:", "rule 0.8 two:")).fit(data, "pseudo", inference="enumeration")
    grounding = fit.ground(data)
    hidden = np.ones(3, dtype=bool)
    for name in ("S(anna)", "S/bob, jr", "S('bob, jr')", "S/carl"):
        found = fit.explain(grounding, name, hidden=hidden, depth=2)
        total = sum(one.amount for one in found.contributions) + found.remainder
        assert total == pytest.approx(found.log_odds, abs=1e-9)
        exact = enumerated(fit, grounding, grounding.find_variable(found.variable), hidden=range(3))
        assert found.log_odds == pytest.approx(abs(exact[1] - exact[0]), abs=1e-9)


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ("Page/99", "E313", "unknown variable 'Page/99'"),
        ("Pag/1", "E313", "did you mean 'Page/1'"),
        ("Page/1.topi", "E313", "did you mean 'Page/1.topic'"),
        ("Page(1).topi", "E313", "Page.topic"),
        ("nothing", "E313", "nothing"),
        ("", "E313", "unknown variable"),
    ],
)
def test_unknown_variables_are_one_diagnostic(asked, code, said):
    with pytest.raises(UsageError) as raised:
        default_fit().explain(ground(), asked)
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == code
    assert said in diagnostic.render()


def test_ambiguous_attribute_raises_error():
    text = """domain D = { x, y } entity E { predict d : D predict f : D }
    template t(e: E) over e.d template u(e: E) over e.f template v(e: E) over e.d, e.f"""
    data = relcrf.Dataset({"e": pd.DataFrame({"id": ["a.d", "b"], "d": ["x", None], "f": ["y", "x"]})})
    fit = relcrf.parse(text).fit(data, "ess")
    with pytest.raises(UsageError, match="does not name the attribute"):
        fit.explain(data, "E/b")
    assert fit.explain(data, "E/b.d").variable == "E(b).d"
    assert fit.explain(data, "E/a.d.f").variable == "E(a.d).f"


def test_invalid_states_raise_error():
    fit = default_fit()
    with pytest.raises(UsageError, match="unknown value 'd'"):
        fit.explain(ground(), "Page/0", against="d")
    answer = fit.explain(ground(), "Page/0").answer
    with pytest.raises(UsageError, match="the predicted value itself"):
        fit.explain(ground(), "Page/0", against=answer)
    one = relcrf.Dataset({"e": pd.DataFrame({"id": [1, 2], "d": ["x", None]})})
    alone = relcrf.parse("domain D = open entity E { predict d : D } template t(e: E) over e.d").fit(one, "local")
    with pytest.raises(UsageError, match="single state"):
        alone.explain(one, "E/2")


def test_backend_without_inference_tasks_raises_e368():
    fit = random_fit(ground(), "local")
    case = ExplanationCase.from_model(fit.learned, ground(), 0)

    class Silent(type(case.system)):
        inference_tasks = relcrf.backends.base.AbstractBackend.inference_tasks

    with pytest.raises(UsageError) as raised:
        relcrf.evaluation.explanation.explain(replace(case, system=Silent()))
    assert raised.value.diagnostics[0].code == "E368"


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_equal_explanations_have_equal_pictures(ending, tmp_path):
    pytest.importorskip("matplotlib")
    data = tables()
    names = np.array(["$a$", "b\x1b[31m", *"cdefgh"], dtype=object)
    data["page"]["id"] = names
    data["page_word"]["page"] = names[data["page_word"]["page"]]
    data["link"] = pd.DataFrame(names[np.array(TREE)], columns=["x", "y"])
    grounding = relcrf.parse(MODEL).ground(relcrf.Dataset(data))
    found = random_fit(grounding).explain(grounding, "Page/$a$", depth=2)
    for name in ("one", "two"):
        neighbourhood.save_neighbourhood(found, tmp_path / f"{name}{ending}")
    first = (tmp_path / f"one{ending}").read_bytes()
    assert first == (tmp_path / f"two{ending}").read_bytes()
    assert len(first) > 5000
    if ending == ".svg":
        assert b"\x1b" not in first


def test_invalid_picture_extension_raises_error(tmp_path):
    with pytest.raises(UsageError, match="does not end in"):
        require_drawable(tmp_path / "one.gif")
