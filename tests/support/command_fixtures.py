"""Fixtures for tests of the command: functions that run it, a small web, and interrupted trainings."""

from contextlib import contextmanager

import pytest
from command import json_command, relcrf_command
from tables import small_web

from relcrf.backends import checkpoints


@pytest.fixture
def relcrf_(capsys, monkeypatch):
    return lambda *arguments: relcrf_command(capsys, monkeypatch, *arguments)


@pytest.fixture
def relcrf_json(capsys, monkeypatch):
    return lambda *arguments: json_command(capsys, monkeypatch, *arguments)


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    return small_web(tmp_path_factory.mktemp("web"))


@pytest.fixture
def interrupted_training():
    """Return a context in which every training ends with an exception after the third iteration of its weights."""

    @contextmanager
    def interrupted(exception=KeyboardInterrupt):
        step = checkpoints.CheckpointMonitor.step

        def interrupt(self, stage, state, max_iterations):
            step(self, stage, state, max_iterations)
            if stage == "weights" and state.iteration == 3:
                raise exception

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoints.CheckpointMonitor, "step", interrupt)
            yield

    return interrupted
