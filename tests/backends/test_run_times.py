"""Tests of the recorded seconds of each training step, in the run folder and across an interruption."""

import json

import numpy as np
import pytest
from tables import small_web

import relcrf
from relcrf import api
from relcrf.backends import checkpoints, run_folder
from relcrf.resources import resource_path


class Clock:
    """A clock that advances by one second of wall-clock time and half a second of CPU time per call."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        self.time += 1.0
        return self.time, self.time / 2


class Stopped(Exception):
    pass


class Stopping(checkpoints.CheckpointMonitor):
    def step(self, stage, state, max_iterations):
        super().step(stage, state, max_iterations)
        if (stage, state.iteration) == ("weights", 2):
            self.save()
            raise Stopped


def test_seconds_begin_with_each_stage_and_leave_interruptions_out(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(checkpoints, "_current_seconds", clock)
    model = relcrf.load(resource_path("models", "webkb.rcrf"))
    grounding = model.ground(relcrf.Dataset(small_web(tmp_path / "web", pages=20)))
    partial = run_folder.prepare_partial_folder(tmp_path / "run", resume=False)
    with pytest.raises(Stopped):
        api.fit(model, grounding, "ess", monitor=Stopping(partial, "same"))
    clock.time += 1000.0
    monitor = checkpoints.CheckpointMonitor(partial, "same")
    fit = api.fit(model, grounding, "ess", monitor=monitor)
    assert len(monitor.seconds) == len(monitor.log)
    for stage in ("structure", "weights"):
        seconds = np.array([s for s, e in zip(monitor.seconds, monitor.log, strict=True) if e["stage"] == stage])
        n = len(seconds)
        assert n > 3
        # One second per step; resuming calls the clock once or twice more.
        np.testing.assert_array_less(0.0, np.diff(seconds[:, 0]))
        assert seconds[0, 0] == 1.0 and n <= seconds[-1, 0] <= n + 2
        np.testing.assert_allclose(seconds[:, 1], seconds[:, 0] / 2)
    run_folder.save(fit.learned, tmp_path / "run", {"learn": 2.0}, monitor.seconds)
    timings = run_folder.load_timings(tmp_path / "run")
    assert timings.phases == {"learn": 2.0} and timings.step_seconds == tuple(monitor.seconds)
    (tmp_path / "run" / "timings.json").write_text(json.dumps({"learn": 2.0}))
    assert run_folder.load_timings(tmp_path / "run").step_seconds == ()
