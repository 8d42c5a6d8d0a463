"""Priors of weights from settings: scale-free penalties of unary features, and the agreement of linked variables."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from graphs import dense_features, random_features

import relcrf
from relcrf import api
from relcrf.backends.problems import training_problem
from relcrf.backends.weight_priors import (
    agreement_patterns,
    agreement_settings,
    agreement_templates,
    mean_squared_norm,
    unary_weight_mask,
    with_scaled_l2,
    with_weight_priors,
)
from relcrf.graph.agreement_prior import critical_agreement, estimate_agreement
from relcrf.graph.factor_graph import FactorGroup

MODEL = """
domain Topic = { x, y, z }
domain Colour = { red, green, blue }
entity Paper { predict topic : Topic
               predict colour : Colour
               predict good : bool
               latent kind : Topic
               size : real
               journal : string }
relation Cites(a: Paper, b: Paper)
template prior(p: Paper) over p.topic
template sized(p: Paper) over p.topic by SCALE * p.size
template strict(p: Paper) over p.topic by p.size l2 0.5
template table(a: Paper, b: Paper) where Cites(a, b) over a.topic, b.topic
template both(a: Paper, b: Paper) where Cites(a, b) over symmetric a.topic, b.topic
template same(a: Paper, b: Paper) where Cites(a, b) over a.topic == b.topic
template keyed(a: Paper, b: Paper) where Cites(a, b) over a.topic == b.topic per a.journal
template colours(a: Paper, b: Paper) where Cites(a, b) over a.topic, b.colour
template differs(a: Paper, b: Paper) where Cites(a, b) over a.topic != b.topic
template by_size(a: Paper, b: Paper) where Cites(a, b) over a.topic == b.topic by a.size
template declared(a: Paper, b: Paper) where Cites(a, b) over a.topic == b.topic init 2
template known(a: Paper, b: Paper) where Cites(a, b) over a.topic == b.topic init 0 fixed
template boolean(a: Paper, b: Paper) where Cites(a, b) over a.good == b.good
template both_good(a: Paper, b: Paper) where Cites(a, b) over a.good and b.good
template own(p: Paper) over p.topic, p.colour
"""


def tables(n=30, seed=0):
    rng = np.random.default_rng(seed)
    topic = [("x", "y", "z")[k % 3] if k % 5 else None for k in range(n)]
    pairs = sorted({(k, int(j)) for k in range(n) for j in rng.integers(n, size=2) if j != k})
    paper = pd.DataFrame(
        {
            "id": range(n),
            "topic": topic,
            "colour": [("red", "green", "blue")[k] for k in rng.integers(3, size=n)],
            "good": rng.random(n) < 0.5,
            "size": [float(k % 3) + rng.normal() for k in range(n)],
            "journal": [f"j{k % 2}" for k in range(n)],
        }
    )
    return relcrf.Dataset({"paper": paper, "cites": pd.DataFrame(pairs, columns=["a", "b"])})


@pytest.fixture(scope="module")
def graph():
    return training_problem(relcrf.parse(MODEL.replace("SCALE", "1.0")).ground(tables())).graph


def block(graph, name):
    """Return the index and the block of a template."""
    return next((k, each) for k, each in enumerate(graph.layout.blocks) if each.name == name)


def groups(graph, name):
    return [group for group in graph.groups if group.block == block(graph, name)[0]]


def square_sum(row):
    return sum(value**2 for _, value in row)


@pytest.mark.parametrize("seed", range(12))
def test_mean_squared_norm_equals_dense_sum(seed):
    rng = np.random.default_rng(seed)
    made, rows = [], []
    for _ in range(2):
        n = int(rng.integers(1, 9))
        features = random_features(rng, n)
        variables = rng.integers(6, size=n).astype(np.int32)
        made.append(FactorGroup((variables,), (2,), features, None, 0))
        rows += [(variable, square_sum(features.row(k))) for k, variable in enumerate(variables)]
    total = sum(square for _, square in rows)
    expected = total / len({variable for variable, _ in rows}) or 1.0
    assert mean_squared_norm(made) == pytest.approx(expected)
    nothing = replace(made[0], scope=(np.empty(0, dtype=np.int32),), features=random_features(rng, 0))
    assert mean_squared_norm([nothing]) == 1.0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("table", np.eye(3).ravel()),
        ("both", [1, 0, 0, 1, 0, 1]),
        ("same", [1]),
        ("keyed", [1]),
        ("boolean", [1]),
        ("both_good", [1]),
        ("colours", None),
        ("differs", None),
        ("by_size", None),
        ("own", None),
        ("prior", None),
    ],
)
def test_agreement_patterns(graph, name, expected):
    found = agreement_patterns(graph, groups(graph, name))
    assert found is None if expected is None else found.astype(int).tolist() == list(expected)


def test_priors_of_all_templates(graph):
    found = with_weight_priors(graph, 0.1, 0.7)
    initial = {each.name: np.asarray(each.initial).ravel().tolist() for each in found.layout.blocks}
    eye = (0.7 * np.eye(3)).ravel().tolist()
    changed = {"table": eye, "both": [0.7, 0, 0, 0.7, 0, 0.7], "same": [0.7], "keyed": [0.7], "boolean": [0.7]}
    for name, values in {**changed, "both_good": [0.7], "declared": [2.0], "known": [0.0]}.items():
        assert initial.pop(name) == values
    assert not any(any(values) for values in initial.values())
    keyed = found.layout.matrix(found.layout.initial(), block(graph, "keyed")[0])
    assert keyed.tolist() == [[0.7], [0.7]], "each key has the prior mean"
    strength = {each.name: each.l2 for each in found.layout.blocks}
    sizes = dense_features(groups(graph, "sized")[0].features)
    assert strength.pop("prior") == pytest.approx(0.1) and strength.pop("strict") == 0.5
    assert strength.pop("sized") == pytest.approx(0.1 * (sizes**2).sum() / 30)
    assert set(strength.values()) == {None}
    unchanged = with_weight_priors(graph, 0.0, 0.0)
    assert unchanged.layout == graph.layout
    assert with_weight_priors(graph, 0.1, 0.0).layout.blocks[3:] == graph.layout.blocks[3:]


def test_declared_strengths_are_scaled(graph):
    found = with_scaled_l2(with_weight_priors(graph, 0.1, 0.0), 3.0)
    strength = {each.name: each.l2 for each in found.layout.blocks}
    assert strength["prior"] == pytest.approx(0.3) and strength["strict"] == 1.5 and strength["same"] is None


def test_unary_weights(graph):
    mask = unary_weight_mask(graph, np.zeros(graph.n_variables, dtype=bool))
    assert mask.tolist() == [True] * 9 + [False] * (graph.layout.size - 9)
    latent = np.zeros(graph.n_variables, dtype=bool)
    latent[groups(graph, "prior")[0].scope[0][0]] = True
    assert not unary_weight_mask(graph, latent).any()


@cache
def scaled(scale):
    """Return a model without the templates of other tests, and its graph, where a feature is multiplied by a number."""
    unused = {"kind", "strict", "by_size", "own", "colours", "keyed", "declared", "known"}
    lines = [line for line in MODEL.splitlines() if not any(f" {name}" in line.split(":")[0] for name in unused)]
    model = relcrf.parse("\n".join(lines).replace("SCALE", scale))
    return model, model.ground(tables())


@pytest.mark.parametrize("backend", ["local", "ess", "pseudo", "smooth"])
@pytest.mark.parametrize("settings", [{}, {"unlabelled": "self", "threshold": 0.6}])
def test_unary_l2_does_not_depend_on_units(backend, settings):
    """Features ten times as large have weights a tenth as large, and the same predictions; `l2` depends on the units."""
    probabilities = {}
    if backend == "smooth" and settings:  # without these settings, it chooses the best ones
        settings = settings | {"alpha_correct": 0.8, "alpha_smooth": 0.6, "sharpness": 2.0, "smoothing": 0.01}
    for scale in ("1.0", "10.0"):
        model, grounding = scaled(scale)
        for name, penalty in (("unary_l2", {"unary_l2": 0.1, "tolerance": 1e-9}), ("l2", {})):
            fit = api.fit(model, grounding, backend, l2=1.0, **penalty, **settings)
            probabilities[name, scale] = api.predict(fit, grounding).inferred.marginals
    np.testing.assert_allclose(probabilities["unary_l2", "1.0"], probabilities["unary_l2", "10.0"], atol=1e-5)
    assert np.abs(probabilities["l2", "1.0"] - probabilities["l2", "10.0"]).max() > 1e-3


def test_agreement_is_the_mean_of_the_prior():
    """Without a link between labels, the weight is the prior mean, as if the template declared it with `init`."""
    text = """
    domain Topic = { x, y } entity Paper { predict topic : Topic } relation Cites(a: Paper, b: Paper)
    template prior(p: Paper) over p.topic
    template same(a: Paper, b: Paper) where Cites(a, b) over a.topic == b.topic INIT
    """
    data = relcrf.Dataset(
        {
            "paper": {"id": range(8), "topic": ["x", "x", "y", "y", None, None, None, None]},
            "cites": {"a": [0, 1, 2, 3, 4], "b": [4, 4, 5, 6, 7]},
        }
    )
    found = []
    for init, settings in (("", {"agreement": 0.8}), ("init 0.8", {})):
        model = relcrf.parse(text.replace("INIT", init))
        fit = model.fit(data, "pseudo", inference="bp", **settings)
        assert fit.learned.vectors["weights"][-1] == 0.8
        found.append(fit.predict(data).probabilities())
    np.testing.assert_array_equal(found[0], found[1])


def test_agreement_settings_are_the_critical_weight_and_the_estimate(graph):
    """Templates with declared priors, fixed weights or features have no part in the settings."""
    names = {graph.layout.blocks[number].name for number in agreement_templates(graph)}
    assert names == {"table", "both", "same", "keyed", "boolean"}
    labels = np.full(graph.n_variables, -1)
    half, critical, twice = agreement_settings(graph, labels)
    chosen = [group for number in agreement_templates(graph).values() for group in number]
    expected = critical_agreement(chosen, graph.n_variables)
    assert critical["agreement"] == pytest.approx(expected) == 2 * half["agreement"] == twice["agreement"] / 2
    number, _ = block(graph, "same")
    only = replace(graph, groups=tuple(groups(graph, "same")))
    for k, (first, second) in enumerate(zip(*groups(graph, "same")[0].scope, strict=True)):
        if labels[first] < 0 and labels[second] < 0:
            labels[[first, second]] = k % 2
    estimate = agreement_settings(only, labels)[2]
    prior = estimate_agreement(only, {number: groups(graph, "same")}, labels)[number]
    assert estimate == {"agreement": pytest.approx(prior.mean), "l2": pytest.approx(prior.l2)}
    assert agreement_settings(replace(graph, groups=()), labels) == ()
    # No two linked variables have equal labels; the setting `agreement` has no negative values.
    scope = groups(graph, "same")[0].scope
    different = np.full(graph.n_variables, -1)
    different[[scope[0][0], scope[1][0]]] = 0, 1
    assert agreement_settings(only, different)[2]["agreement"] == pytest.approx(
        2 * critical_agreement(only.groups, graph.n_variables)
    )
