"""Trainings as they are requested: one description, which the command line, Python and `relcrf reproduce` run."""

import numpy as np
import pytest

import relcrf
from relcrf import api
from relcrf.backends.provenance import TrainingProtocol
from relcrf.errors import UsageError
from relcrf.resources import resource_path
from relcrf.training import Training, TrainingRequest

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture(scope="module")
def model():
    return relcrf.load(MODEL)


def test_a_request_runs_what_fit_runs(model, web):
    data = relcrf.Dataset(web)
    protocol = TrainingProtocol(split="folds=3", holdout=("1",))
    request = TrainingRequest(model.spec, "local", {"l2": "0.5", "max_iterations": "5"}, data, protocol)
    training = request.ground()
    assert 0 < training.hidden.sum() < len(training.hidden)
    grounding = model.ground(data)
    fit = api.fit(model, grounding, "local", hidden=training.hidden, l2=0.5, max_iterations=5)
    for learned in (request.run(), training.run()):
        np.testing.assert_array_equal(learned.vectors["weights"], fit.learned.vectors["weights"])
        assert learned.settings == fit.learned.settings and learned.settings["l2"] == 0.5
        assert learned.seconds > 0.0


def test_other_settings_are_another_training(model, web):
    grounding = model.ground(relcrf.Dataset(web))
    one = Training.build(model.spec, grounding, "local", l2=0.5)
    other = one.with_settings({"l2": 2.0})
    assert (one.system.l2, other.system.l2) == (0.5, 2.0)
    assert one.identity != other.identity == Training.build(model.spec, grounding, "local", l2="2").identity


def test_mistakes_are_raised_before_anything_is_ground(model, web):
    data, calls = relcrf.Dataset(web), []
    with pytest.raises(UsageError, match="E304"):
        TrainingRequest(model.spec, "local", {"l3": "1"}, data).ground(calls.append)
    assert not calls
