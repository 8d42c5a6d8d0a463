"""Trainings that are stopped and resumed."""

import numpy as np
import pytest

from relcrf import api
from relcrf.backends import checkpoints, run_folder


class Stopped(Exception):
    pass


class Stopping(checkpoints.CheckpointMonitor):
    """A monitor that stops a training after an iteration of a stage.

    Args:
        stop: the stage and the iteration.
    """

    def __init__(self, folder, stop):
        super().__init__(folder, "same")
        self.stop = stop

    def step(self, stage, state, max_iterations):
        super().step(stage, state, max_iterations)
        self.save()
        if (stage, state.iteration) == self.stop:
            raise Stopped


def assert_goes_on(model, grounding, backend, settings, stops, folder):
    """Assert that a training that is stopped and resumed at each stop has the same result as an uninterrupted one.

    Args:
        stops: The stages and iterations, in the order of the training.

    Returns:
        The result of the uninterrupted training.
    """
    whole = api.fit(model, grounding, backend, **settings)
    partial = run_folder.prepare_partial_folder(folder / "interrupted", resume=False)
    for stop in stops:
        with pytest.raises(Stopped):
            api.fit(model, grounding, backend, monitor=Stopping(partial, stop), **settings)
    again = api.fit(model, grounding, backend, monitor=checkpoints.CheckpointMonitor(partial, "same"), **settings)
    for name, vector in whole.learned.vectors.items():
        np.testing.assert_array_equal(again.learned.vectors[name], vector)
    return whole
