"""Tests of the backend `ipf`: the same maximum as gradient methods on any graph, rejected input, and interruption."""

import numpy as np
import pandas as pd
import pytest
from answers import CRF, MARKOV, RING, TREE, tables
from interrupted import assert_goes_on

import relcrf
from relcrf import api
from relcrf.backends.registry import make_backend
from relcrf.errors import DataError, UsageError
from relcrf.execution.serial import SerialExecutor


def trained(text, data, backend, **settings):
    model = relcrf.parse(text)
    grounding = model.ground(relcrf.Dataset(data))
    return api.fit(model, grounding, backend, **settings), grounding


@pytest.mark.parametrize("pairs", [TREE, RING], ids=["tree", "ring"])
@pytest.mark.parametrize("text", [MARKOV, CRF], ids=["network", "conditional"])
def test_agrees_with_gradient_methods_and_matches_moments(text, pairs):
    data = tables(pairs, rows=50)
    settings = {"tolerance": 1e-11, "max_iterations": 3000}
    one, grounding = trained(text, data, "ipf", **settings)
    other, _ = trained(text, data, "dense", inference="auto", l2=0.0, **settings)
    assert one.summary["inference"] == "exact" and one.learned.converged
    everything = np.ones(len(grounding.states), dtype=bool)
    likelihoods = [api.joint_log_likelihood(fit, grounding, hidden=everything) for fit in (one, other)]
    assert likelihoods[0] == pytest.approx(likelihoods[1], abs=1e-6)
    first, second = (api.predict(fit, grounding, hidden=everything).inferred.marginals for fit in (one, other))
    np.testing.assert_allclose(first, second, atol=1e-6)
    for fit in (one, other):
        moments = fit.learned.moments
        np.testing.assert_allclose(moments.expected / 50, moments.empirical / 50, atol=1e-6)
    # The pseudo-likelihood, which has no finite maximum here, provides the start of `dense` but not the length of its steps.
    assert np.abs(other.learned.vectors["weights"]).max() < 100.0


def test_a_tree_of_tables_takes_as_many_inferences_as_tables():
    """In a decomposable network each table is final after one fit; a second iteration detects convergence."""
    fit, _ = trained(MARKOV, tables(TREE), "ipf", smoothing=0.0, tolerance=1e-9)
    assert fit.summary["inferences_per_iteration"] == fit.summary["tables"] == 7
    assert fit.summary["weights_iterations"] <= 2


def test_simultaneous_update_reaches_the_same_fit():
    each, grounding = trained(CRF, tables(RING, rows=100), "ipf", tolerance=1e-9)
    all_, _ = trained(CRF, tables(RING, rows=100), "ipf", update="all", tolerance=1e-9, max_iterations=5000)
    assert all_.summary["inferences_per_iteration"] == 1 < each.summary["inferences_per_iteration"]
    everything = np.ones(len(grounding.states), dtype=bool)
    likelihoods = [api.joint_log_likelihood(fit, grounding, hidden=everything) for fit in (each, all_)]
    assert likelihoods[0] == pytest.approx(likelihoods[1], abs=1e-5)


def test_unobserved_states():
    data = tables(TREE, without={(0, 1), (2, 0)})
    fit, grounding = trained(MARKOV, data, "ipf")
    assert fit.summary["unobserved_states"] == 2 and fit.learned.converged
    assert np.isfinite(fit.learned.vectors["weights"]).all()
    frame = fit.moments().to_pandas().set_index(["template", "key", "pattern"])
    never = frame.loc["pair", "a, b", "low, middle"]
    assert never["empirical"] == 0.0 and 0.0 < never["expected"] < 1e-6
    found = api.predict(fit, grounding, hidden=np.ones(len(grounding.states), dtype=bool))
    assert np.isfinite(found.inferred.marginals).all()
    with pytest.raises(DataError, match=r"E228.*never contain a state of template 'pair'"):
        trained(MARKOV, data, "ipf", smoothing=0.0)


def test_smoothing_mixes_in_the_initial_model():
    fit, _ = trained(MARKOV, tables(TREE), "ipf", smoothing=0.2, tolerance=1e-10)
    moments = fit.learned.moments
    sizes = np.where(np.arange(len(moments.empirical)) < 12, 3, 9)
    np.testing.assert_allclose(moments.expected, 0.8 * moments.empirical + 0.2 * 300 / sizes, atol=1e-6)


def test_labels_excluded_by_a_hard_rule_raise_error():
    text = "domain D = { x, y } entity E { predict d : D }\nrelation N(a: E, b: E)\ntemplate t(e: E) over e.d\n"
    text += "template n(a: E, b: E) where N(a, b) over a.d, b.d\nrule hard: N(a, b) => a.d == b.d\n"
    data = {"e": pd.DataFrame({"id": [1, 2], "d": ["x", "y"]}), "n": pd.DataFrame({"a": [1], "b": [2]})}
    with pytest.raises(DataError, match=r"E228.*a state of template 'n' that the fixed weights exclude"):
        trained(text, data, "ipf")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda text: text.replace("over has(r, i) per i\n", "over has(r, i) per i by 1, r.age\n", 1), "E385"),
        (lambda text: text.replace("has(r, j) per i, j", "has(r, j) per i, j l2 0.5"), "E386"),
        (lambda text: text.replace("has(r, j) per i, j", "has(r, j) per i, j l1 0.5"), "E386"),
        (
            lambda text: (
                text.replace("entity Row {", "entity Row { latent mood : Kind ") + "\ntemplate m(r: Row) over r.mood"
            ),
            "E307",
        ),
    ],
)
def test_unsupported_templates_raise_error(change, code):
    data = tables(TREE, rows=20)
    data["row"]["age"] = np.linspace(0.5, 3.0, len(data["row"]))
    text = change(MARKOV.replace("kind : Kind", "kind : Kind age : real"))
    with pytest.raises(UsageError) as caught:
        trained(text, data, "ipf")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code and diagnostic.hint


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"l2": 1.0}, "E386"),
        ({"update": "some"}, "E305"),
        ({"inference": "gibbs"}, "E305"),
        ({"smoothing": 1.0}, "E305"),
    ],
)
def test_invalid_settings_raise_error(settings, code):
    with pytest.raises(UsageError, match=code):
        make_backend("ipf", **settings)


def test_sharded_graph_raises_error():
    model = relcrf.parse(MARKOV)
    grounding = model.ground(relcrf.Dataset(tables(TREE, rows=20)))
    with pytest.raises(UsageError, match="E309"):
        api.fit(model, grounding, "ipf", executor=SerialExecutor())


def test_reports_approximate_inference():
    fit, _ = trained(MARKOV, tables(RING), "ipf", inference="bp")
    assert fit.summary["inference"].startswith("approximate, and so is the fit: converged")
    fit, _ = trained(MARKOV, tables(TREE, rows=20), "ipf", inference="forest", smoothing=0.01)
    assert fit.summary["inference"] == "exact"


def test_interrupted_training_resumes(tmp_path):
    model = relcrf.parse(CRF)
    grounding = model.ground(relcrf.Dataset(tables(RING, rows=60)))
    whole = assert_goes_on(model, grounding, "ipf", {}, [("weights", 1), ("weights", 4)], tmp_path)
    assert whole.summary["weights_iterations"] > 5
