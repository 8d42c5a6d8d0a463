"""Standard errors equal closed forms and the spread of estimates; both solvers give the same numbers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from answers import CRF, RING, TREE
from answers import tables as answers

import relcrf
from relcrf import api
from relcrf.backends.problems import training_problem
from relcrf.backends.pseudo import PseudoLikelihoodSpec
from relcrf.errors import UsageError
from relcrf.evaluation import standard_errors as module
from relcrf.evaluation.named_weights import select_rows, standard_errors_from_data

LOGISTIC = """domain D = { no, yes }
entity E { predict d : D x : real z : real }
template slope(e: E) over e.d == yes by 1, e.x, e.z"""


def logistic(n=300, seed=0, beta=(0.3, 1.0, -0.7)):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n))
    design = np.column_stack((np.ones(n), x, z))
    labels = np.where(rng.random(n) < 1 / (1 + np.exp(-design @ np.array(beta))), "yes", "no")
    return design, {"e": pd.DataFrame({"id": range(n), "d": labels, "x": x, "z": z})}


@pytest.mark.parametrize("l2", [0.0, 2.0])
@pytest.mark.parametrize("backend", ["local", "ess", "chow-liu", "dense"])
def test_logistic_regression_equals_closed_form(backend, l2):
    """The information of a logistic regression is X' diag(p (1 - p)) X + l2 I."""
    design, tables = logistic()
    data = relcrf.Dataset(tables)
    more = {"inference": "jt"} if backend == "dense" else {}
    fit = relcrf.parse(LOGISTIC).fit(data, backend, l2=l2, tolerance=1e-9, max_iterations=500, **more)
    found = fit.weights(data)
    weights = fit.learned.vectors["weights"]
    p = 1 / (1 + np.exp(-design @ weights))
    information = (design * (p * (1 - p))[:, None]).T @ design + l2 * np.eye(3)
    expected = np.sqrt(np.diag(np.linalg.inv(information)))
    np.testing.assert_allclose(found["standard_error"], expected, rtol=1e-6)
    np.testing.assert_allclose(found["z"], weights / expected, rtol=1e-6)


def test_standard_errors_equal_spread_of_estimates():
    """Fit chains of five, whose pairs are learned jointly, on 60 samples of labels."""
    text = """domain D = { x, y } entity E { predict d : D } relation R(a: E, b: E)
    template bias(e: E) over e.d == x
    template same(a: E, b: E) where R(a, b) over a.d == b.d"""
    n, rng = 200, np.random.default_rng(3)
    links = pd.DataFrame([(5 * k + j, 5 * k + j + 1) for k in range(n // 5) for j in range(4)], columns=["a", "b"])
    joint = np.array(np.meshgrid(*[[0, 1]] * 5)).reshape(5, -1).T
    score = 0.4 * (joint == 0).sum(axis=1) + 0.8 * (joint[:, 1:] == joint[:, :-1]).sum(axis=1)
    p = np.exp(score) / np.exp(score).sum()
    model, table = relcrf.parse(text), pd.DataFrame({"id": range(n), "d": ["x", "y"] * (n // 2)})
    grounding = model.ground(relcrf.Dataset({"e": table, "r": links}))
    estimates, errors = [], []
    for k in range(60):
        labels = joint[rng.choice(len(p), size=n // 5, p=p)].ravel()
        labelled = replace(grounding, states=labels.astype(np.int32))
        learned = api.fit(model, labelled, "ess", l2=0.0).learned
        estimates.append(learned.vectors["weights"])
        if k % 3 == 0:
            errors.append(standard_errors_from_data(learned, labelled).values)
    spread = np.std(estimates, axis=0, ddof=1)
    np.testing.assert_allclose(
        np.mean(errors, axis=0), spread, rtol=0.25
    )  # the spread of 60 samples has a relative error of a tenth
    assert np.abs(np.mean(estimates, axis=0) - [0.4, 0.8]).max() < 3 * spread.max() / np.sqrt(60) + 0.02


CHAIN = """domain D = { x, y } entity E { predict d : D } relation R(a: E, b: E)
template bias(e: E) over e.d == x l2 0.0
template same(a: E, b: E) where R(a, b) over a.d == b.d l2 0.0"""


def links(chains, length):
    pairs = [(length * c + j, length * c + j + 1) for c in range(chains) for j in range(length - 1)]
    return pd.DataFrame(pairs, columns=["a", "b"])


def random_chains(chains, length, stay, rng):
    """Sample labels along chains in which each label equals the previous one with probability `stay`."""
    turns = rng.random((chains, length)) > stay
    turns[:, 0] = rng.random(chains) < 0.5
    return (np.cumsum(turns, axis=1) % 2).astype(np.int32)


def estimates(model, grounding, samples, backend):
    return np.array(
        [
            api.fit(model, replace(grounding, states=states.ravel()), backend).learned.vectors["weights"]
            for states in samples
        ]
    )


@pytest.fixture(scope="module")
def resampled():
    """Return a model, the ground graph of 150 chains, and the spread of the weights of resamples of whole chains."""
    rng = np.random.default_rng(5)
    model, states = relcrf.parse(CHAIN), random_chains(150, 6, 0.8, rng)
    data = {"e": pd.DataFrame({"id": range(states.size), "d": np.array(["x", "y"])[states.ravel()]})}
    grounding = model.ground(relcrf.Dataset({**data, "r": links(150, 6)}))
    again = estimates(model, grounding, [states[rng.integers(150, size=150)] for _ in range(100)], "pseudo")
    return model, grounding, again.std(axis=0, ddof=1)


@pytest.mark.parametrize(("backend", "settings"), [("pseudo", {}), ("dense", {"objective": "pseudo"})])
def test_pseudo_likelihood_equals_bootstrap(resampled, backend, settings):
    """The inverse curvature alone would deviate strongly."""
    model, grounding, spread = resampled
    fit = api.fit(model, grounding, backend, **settings)
    errors = standard_errors_from_data(fit.learned, grounding)
    np.testing.assert_allclose(errors.values, spread, rtol=0.25)
    assert "sandwich" in errors.source and errors.is_maximum
    objective, weights = (
        training_problem(grounding).total_likelihood(PseudoLikelihoodSpec()),
        fit.learned.vectors["weights"],
    )
    information = module.hessian(lambda at: objective(at)[1], weights, np.arange(2))
    bias, same = spread / np.sqrt(np.linalg.inv(information).diagonal())
    assert bias < 0.7 and same > 1.25


def test_pseudo_likelihood_on_one_connected_graph():
    """Sample a single connected chain 80 times."""
    rng = np.random.default_rng(6)
    model = relcrf.parse(CHAIN)
    table = pd.DataFrame({"id": range(500), "d": ["x", "y"] * 250})
    grounding = model.ground(relcrf.Dataset({"e": table, "r": links(1, 500)}))
    samples = [random_chains(1, 500, 0.75, rng) for _ in range(80)]
    spread = estimates(model, grounding, samples, "pseudo").std(axis=0, ddof=1)
    found = []
    for states in samples[:20]:
        labelled = replace(grounding, states=states.ravel())
        found.append(standard_errors_from_data(api.fit(model, labelled, "pseudo").learned, labelled).values)
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(found), axis=0)), spread, rtol=0.25)


def test_pseudo_likelihood_of_independent_labels_equals_likelihood():
    """Without links the variance of the score equals its curvature, for any penalty."""
    _, tables = logistic(2000)
    data = relcrf.Dataset(tables)
    model = relcrf.parse(LOGISTIC)
    one, other = (model.fit(data, backend, l2=20.0).weights(data)["standard_error"] for backend in ("pseudo", "local"))
    np.testing.assert_allclose(one, other, rtol=0.1)


def test_penalty_below_rounding_error():
    text = """domain D = { x, y } entity E { predict d : D } template table(e: E) over e.d"""
    data = relcrf.Dataset({"e": pd.DataFrame({"id": range(6000), "d": list("xxxyyx") * 1000})})
    found = relcrf.parse(text).fit(data, "local", l2=1e-13).weights(data)
    assert (found["standard_error"] > 100).all(), "the labels identify only the difference"


@pytest.mark.parametrize("unit", [1e-6, 1e4, 1e6])
@pytest.mark.parametrize("backend", ["local", "pseudo"])
def test_units_of_features_do_not_matter(backend, unit):
    """An income in cents instead of thousands has the same z value."""
    _, tables = logistic(200)
    model, found = relcrf.parse(LOGISTIC), []
    for each in (1.0, unit):
        data = relcrf.Dataset({"e": tables["e"].assign(x=each * tables["e"]["x"])})
        found.append(model.fit(data, backend, l2=0.0, tolerance=1e-9, max_iterations=500).weights(data))
    np.testing.assert_allclose(found[1]["z"], found[0]["z"], rtol=1e-6)
    np.testing.assert_allclose(found[1]["standard_error"] * [1.0, unit, 1.0], found[0]["standard_error"], rtol=1e-6)


def test_conjugate_gradients_equal_inverse(monkeypatch):
    _, tables = logistic(100)
    tables["e"]["c"] = np.random.default_rng(1).choice(list("pqrs"), size=100)
    text = LOGISTIC.replace("z : real", "z : real c : C").replace("domain D", "domain C = open domain D")
    text += "\ntemplate kind(e: E) over e.d per e.c"
    data = relcrf.Dataset(tables)
    fit = relcrf.parse(text).fit(data, "local")
    grounding = fit.ground(data)
    whole = standard_errors_from_data(fit.learned, grounding)
    monkeypatch.setattr(module, "MAX_DENSE_WEIGHTS", 5)
    np.testing.assert_allclose(standard_errors_from_data(fit.learned, grounding).values, whole.values, rtol=1e-5)
    asked = np.arange(len(whole.values)) % 2 == 0
    some = standard_errors_from_data(fit.learned, grounding, requested=asked).values
    np.testing.assert_allclose(some[asked], whole.values[asked], rtol=1e-5)
    assert np.isnan(some[~asked]).all()


def test_unidentified_weights_have_infinite_error():
    """Without a penalty only differences of a table's weights are identified; fixed weights have no error."""
    text = """domain D = { x, y } entity E { predict d : D }
    template table(e: E) over e.d l2 0.0
    template given(e: E) over e.d == x init 0.1 fixed"""
    data = relcrf.Dataset({"e": pd.DataFrame({"id": range(6), "d": list("xxxyyx")})})
    found = relcrf.parse(text).fit(data, "local").weights(data)
    np.testing.assert_array_equal(found["standard_error"], [np.inf, np.inf, np.nan])


def test_other_tables_are_not_at_the_maximum():
    _, tables = logistic()
    data = relcrf.Dataset(tables)
    fit = relcrf.parse(LOGISTIC).fit(data, "local")
    assert standard_errors_from_data(fit.learned, fit.ground(data)).is_maximum
    _, other = logistic(seed=5, beta=(-1.0, -1.0, 1.0))
    assert not standard_errors_from_data(fit.learned, fit.ground(relcrf.Dataset(other))).is_maximum


def test_calibration_scales_standard_errors():
    _, tables = logistic()
    data, model = relcrf.Dataset(tables), relcrf.parse(LOGISTIC)
    plain, calibrated = model.fit(data, "local", l2=30.0), model.fit(data, "local", l2=30.0, calibrate=3)
    scale = calibrated.learned.calibration_scale
    found, expected = calibrated.weights(data), plain.weights(data)
    np.testing.assert_allclose(found["standard_error"], scale * expected["standard_error"], rtol=1e-6)
    np.testing.assert_allclose(found["z"], expected["z"], rtol=1e-6)
    assert scale > 1.1 and "support" not in found.columns
    with pytest.raises(UsageError, match="without calibration"):
        select_rows(calibrated.learned, found, min_support=1.0)
    assert standard_errors_from_data(calibrated.learned, calibrated.ground(data)).is_maximum


@pytest.mark.parametrize(("backend", "settings"), [("dense", {}), ("ess", {"objective": "margin"})])
def test_backend_without_exact_likelihood_raises_e357(backend, settings):
    _, tables = logistic(40)
    data = relcrf.Dataset(tables)
    fit = relcrf.parse(LOGISTIC).fit(data, backend, **settings)
    with pytest.raises(UsageError) as raised:
        fit.weights(data)
    assert raised.value.diagnostics[0].code == "E357"


def test_additional_weights_raise_error():
    text = "domain D = { x, y } domain C = open entity E { predict d : D c : C } template t(e: E) over e.d per e.c"
    table = pd.DataFrame({"id": range(4), "d": list("xyxy"), "c": list("abab")})
    fit = relcrf.parse(text).fit(relcrf.Dataset({"e": table}), "local")
    other = relcrf.Dataset({"e": table.assign(c=list("abcd"))})
    with pytest.raises(UsageError, match="8 weights on these tables, but 4 were learned"):
        fit.weights(other)


def test_latent_attributes():
    text = """domain D = { x, y } entity E { predict d : D latent h : 1..2 }
    template t(e: E) over e.d, e.h template b(e: E) over e.d == x"""
    data = relcrf.Dataset({"e": pd.DataFrame({"id": range(8), "d": list("xxxyyxxy")})})
    fit = relcrf.parse(text).fit(data, "ess", l2=1.0)
    errors = fit.weights(data)["standard_error"]
    assert (errors > 0.1).all()
    assert (errors < 1.01 + 1e-6).all(), "l2 = 1 alone gives 1; the latent attribute adds little information"


def test_support_counts_labels():
    text = "domain D = { x, y } domain C = open entity E { predict d : D c : C } template t(e: E) over e.d per e.c"
    table = pd.DataFrame({"id": range(5), "d": list("xyxyx"), "c": list("ababa")})
    fit = relcrf.parse(text).fit(relcrf.Dataset({"e": table}), "local")
    found = fit.weights()
    rows = {
        (key, pattern): count
        for key, pattern, count in zip(found["key"], found["pattern"], found["support"], strict=True)
    }
    assert rows == {("a", "x"): 3, ("a", "y"): 0, ("b", "x"): 0, ("b", "y"): 2}
    assert "support" not in replace(fit, learned=replace(fit.learned, moments=None)).weights().columns


@pytest.mark.parametrize(
    ("backend", "settings", "pairs"),
    [("local", {}, TREE), ("ess", {}, TREE), ("dense", {"inference": "jt"}, RING), ("pseudo", {}, RING)],
)
def test_default_tolerance_is_small_compared_to_standard_errors(backend, settings, pairs):
    model, data = relcrf.parse(CRF), relcrf.Dataset(answers(pairs))
    exact = model.fit(data, backend, tolerance=1e-9, **settings)
    fit = model.fit(data, backend, **settings)
    assert fit.learned.converged
    assert fit.summary["weights_iterations"] < exact.summary["weights_iterations"]
    error = fit.learned.vectors["weights"] - exact.learned.vectors["weights"]
    assert np.sqrt(np.mean((error / exact.weights(data)["standard_error"]) ** 2)) < 0.03
