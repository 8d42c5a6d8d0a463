"""Tests of the backend `pseudo`: its two kinds of inference, and rejected input."""

import numpy as np
import pytest
from tables import small_web

import relcrf
from relcrf.backends import whole_graph
from relcrf.errors import UsageError
from relcrf.resources import resource_path


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    return relcrf.Dataset(small_web(tmp_path_factory.mktemp("web")))


@pytest.fixture(scope="module")
def model():
    return relcrf.load(resource_path("models", "webkb.rcrf"))


def test_mean_field_and_sampling_agree(web, model):
    gibbs, field = (model.fit(web, "pseudo", inference=name).predict(web) for name in ("gibbs", "mf"))
    assert gibbs.inferred.verdict.is_good and field.inferred.verdict.is_good
    np.testing.assert_allclose(gibbs.probabilities(), field.probabilities(), atol=0.2)
    assert (gibbs.probabilities() != field.probabilities()).any()
    assert np.isnan(gibbs.inferred.log_partition) and np.isfinite(field.inferred.log_partition)


def test_unknown_inference_raises_before_work(web, model):
    with pytest.raises(UsageError, match=r"E305[\s\S]*cannot be 'gibs'[\s\S]*gibbs"):
        model.fit(web, "pseudo", inference="gibs")


def test_tables_beyond_memory_raise_error(web, model, monkeypatch):
    fit = model.fit(web, "pseudo")
    monkeypatch.setattr(whole_graph, "MAX_TABLE_CELLS", 10)
    with pytest.raises(UsageError, match=r"E308[\s\S]*more than 10 cells"):
        fit.predict(web)
