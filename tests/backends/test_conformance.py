"""Tests of every installed backend on the same small problems."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from installed_backends import ALL, GENERAL
from tables import small_web

import relcrf
from relcrf.backends import registry
from relcrf.resources import resource_path
from relcrf.settings import setting_names

WITHOUT_WEIGHTS = ("propagate",)
"""Backends that learn no weights."""

SETTINGS = {"auto": {"effort": "quick"}}
"""Settings with which a backend takes less time."""


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    return relcrf.Dataset(small_web(tmp_path_factory.mktemp("web")))


@pytest.fixture(scope="module")
def model():
    return relcrf.load(resource_path("models", "webkb.rcrf"))


@pytest.fixture(scope="module")
def fits(web, model):
    """Return a function that returns the result of a backend, which is trained once."""
    return cache(lambda backend: model.fit(web, backend, **SETTINGS.get(backend, {})))


def test_builtin_backends_are_entry_points():
    assert {"ess", "local"} <= set(ALL)


@pytest.mark.parametrize("backend", GENERAL)
def test_it_learns_and_predicts(web, model, fits, backend):
    found = fits(backend).predict(web)
    probabilities = found.probabilities()
    assert probabilities.shape == (12, 5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert (probabilities >= 0).all()
    assert found.inferred.verdict.is_good
    evaluation = model.evaluate(web, "school", backend, holdout=["s1"], **SETTINGS.get(backend, {}))
    (fold,) = evaluation.predictions.fold_scores(backend)
    assert fold.scores["Page.category"].accuracy > 0.4, "chance is 0.2"


@pytest.mark.parametrize("backend", GENERAL)
def test_it_is_deterministic(web, model, fits, backend):
    again = model.fit(web, backend, **SETTINGS.get(backend, {}))
    first, second = (fit.learned.vectors for fit in (fits(backend), again))
    assert first.keys() == second.keys()
    for name, vector in first.items():
        np.testing.assert_array_equal(vector, second[name])


@pytest.mark.parametrize("backend", GENERAL)
def test_it_leaves_fixed_weights_alone(web, model, backend):
    text = model.to_rcrf().replace(
        "over page.category\n\ntemplate word", "over page.category\n    init 0.25\n    fixed\n\ntemplate word"
    )
    fit = relcrf.parse(text).fit(web, backend, **SETTINGS.get(backend, {}))
    weights = fit.weights().to_pandas()
    assert (weights.query("template == 'prior'")["weight"] == 0.25).all()
    learns_weights = fit.learned.backend not in WITHOUT_WEIGHTS
    assert (weights.query("template == 'word'")["weight"] != 0).any() == learns_weights


@pytest.mark.parametrize("backend", ALL)
def test_accepts_graph_without_pairs_and_queries(backend):
    model = relcrf.parse("domain D = { x, y } entity E { predict d : D }\ntemplate t(e: E) over e.d")
    data = relcrf.Dataset({"e": pd.DataFrame({"id": [1, 2, 3, 4], "d": ["x", "x", "x", "y"]})})
    settings = {"l2": 0.0} if "l2" in setting_names(registry.backend_class(backend)) else {}
    fit = model.fit(data, backend, **settings)
    assert len(fit.predict(data).table()) == 0
    new = relcrf.Dataset({"e": pd.DataFrame({"id": [7], "d": [None]})})
    found = fit.predict(new).probabilities()
    if backend == "auto":  # it chooses and calibrates the penalty, which pulls the probabilities to 0.5
        assert 0.5 <= found[0, 0] <= 0.75 and found.sum() == pytest.approx(1.0)
    else:
        np.testing.assert_allclose(found, [[0.75, 0.25]], atol=1e-4)


def test_moments_match_at_the_optimum_of_the_local_backend(web, model):
    """Without a penalty the expected counts of the prior equal the observed ones (Guestrin's lecture, 10-708)."""
    text = model.to_rcrf().replace(
        "template prior(page: Page)\n    over page.category",
        "template prior(page: Page)\n    over page.category\n    l2 0.0",
    )
    grounding = relcrf.parse(text).ground(web)
    fit = relcrf.parse(text).fit(web, "local", tolerance=1e-9)
    found = relcrf.api.predict(fit, grounding, hidden=np.ones(60, dtype=bool))
    labelled = grounding.states >= 0
    expected = found.probabilities()[labelled].sum(axis=0)
    np.testing.assert_allclose(expected, np.bincount(grounding.states[labelled], minlength=5), atol=0.05)


def test_a_broken_entry_point_is_an_error_with_its_package(monkeypatch):
    from importlib.metadata import EntryPoint

    entries = [
        EntryPoint("broken", "tests_no_such_package:Thing", registry.ENTRY_POINT_GROUP),
        EntryPoint("wrong", "collections:OrderedDict", registry.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)
    with pytest.raises(relcrf.UsageError, match="backend 'broken' of package"):
        registry.make_backend("broken")
    with pytest.raises(relcrf.UsageError, match="not a subclass of"):
        registry.make_backend("wrong")
    with pytest.raises(relcrf.UsageError, match="unknown backend 'wrnog'"):
        registry.make_backend("wrnog")
