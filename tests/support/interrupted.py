"""Trainings that are ended and gone on with."""

import numpy as np
import pytest

from relcrf import api
from relcrf.backends import checkpoints, run_folder


class Stopped(Exception):
    pass


class Stopping(checkpoints.CheckpointMonitor):
    """Ends a training after an iteration of a stage.

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
    """A training that is ended at each of some places and gone on with gives what one that was not ended does.

    Returns:
        that one.
    """
    whole = api.fit(model, grounding, backend, **settings)
    for stop in stops:
        partial = run_folder.prepare_partial_folder(folder / f"{stop[0]}{stop[1]}", resume=False)
        with pytest.raises(Stopped):
            api.fit(model, grounding, backend, monitor=Stopping(partial, stop), **settings)
        again = api.fit(model, grounding, backend, monitor=checkpoints.CheckpointMonitor(partial, "same"), **settings)
        for name, vector in whole.learned.vectors.items():
            np.testing.assert_array_equal(again.learned.vectors[name], vector)
    return whole
