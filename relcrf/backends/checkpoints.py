"""Checkpoints of training runs; a run that resumes from a checkpoint has bitwise identical results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from relcrf.backends.base import Monitor
from relcrf.backends.damaged_files import damaged_file_error
from relcrf.backends.training_log import log_entry
from relcrf.columns.storage import READ_ERRORS
from relcrf.errors import Diagnostic, UsageError
from relcrf.files import atomic_file, write_text
from relcrf.learning.lbfgs import AnyState, OptimiserState

FORMAT_VERSION = 3
"""Version of the checkpoint files; checkpoints of other versions are rejected."""

SAVE_INTERVAL = 5.0
"""Minimum number of seconds between two checkpoints of a stage; an interruption loses about this much work."""

WallCpuSeconds = tuple[float, float]
"""Elapsed wall-clock time and CPU time of this process, in seconds."""


@dataclass(frozen=True)
class _Progress:
    """The current stage with its latest state (None before the first step), and the log and times up to this state."""

    state: tuple[str, OptimiserState] | None
    log: list[dict[str, Any]]
    seconds: list[WallCpuSeconds]


class CheckpointMonitor(Monitor):
    """A monitor that saves the optimiser's state every few seconds and restores it.

    `log` is the optimiser's log so far. `seconds` contains, for each log entry, the time since the start of the entry's
    stage, without the duration of interruptions.

    Args:
        folder: The partial run folder.
        identity: The `fingerprint` of the training run.
        on_step, on_phase: The methods `step` and `start_phase` of another monitor, for progress reports.
        sync: Flush the checkpoints to disk, so that training resumes after a power cut.

    Raises:
        UsageError: If the folder's checkpoint belongs to another training run.
    """

    def __init__(
        self,
        folder: Path,
        identity: str,
        on_step: Callable[[str, OptimiserState, int], None] = lambda stage, state, max_iterations: None,
        on_phase: Callable[[str], None] = lambda name: None,
        *,
        sync: bool = True,
    ) -> None:
        self.folder = folder / "checkpoint"
        self.on_step = on_step
        self.on_phase = on_phase
        self.sync = sync
        self.last_save_time = time.monotonic()
        self.stage_start = _current_seconds()
        self.progress = _Progress(None, [], [])
        identity_file, expected = self.folder / "identity", f"{FORMAT_VERSION} {identity}"
        if identity_file.exists() and (stored := identity_file.read_text(errors="replace")) != expected:
            what = (
                "another model, other settings or other data"
                if stored.startswith(f"{FORMAT_VERSION} ")
                else "another version of relcrf"
            )
            message = f"the interrupted run '{folder}' belongs to {what}"
            raise UsageError(Diagnostic("E333", message, hint="start over with --force"))
        write_text(identity_file, expected, sync=sync)

    @property
    def log(self) -> list[dict[str, Any]]:
        return self.progress.log

    def start_phase(self, name: str) -> None:
        self.on_phase(name)

    @property
    def seconds(self) -> list[WallCpuSeconds]:
        return self.progress.seconds

    def restore(self, stage: str, state_class: type[AnyState]) -> AnyState | None:
        self.stage_start = _current_seconds()
        path = self.folder / f"{stage}.npz"
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            log, seconds = json.loads(arrays["path.log"].tobytes()), parse_seconds(arrays["path.seconds"].tolist())
            state = state_class.from_arrays(arrays)
        except (*READ_ERRORS, BadZipFile, NotImplementedError) as error:
            raise damaged_file_error(path, error) from None
        self.progress, self.stage_start = _Progress(None, log, seconds), _subtract(_current_seconds(), seconds[-1])
        return state

    def step(self, stage: str, state: OptimiserState, max_iterations: int) -> None:
        entry = log_entry(stage, state)
        # Assign all fields at once: after an interruption between two assignments, a state could lack its log entry.
        self.progress = _Progress(
            (stage, state), [*self.log, entry], [*self.seconds, _subtract(_current_seconds(), self.stage_start)]
        )
        if time.monotonic() - self.last_save_time > SAVE_INTERVAL or state.status != "running":
            self.save()
        self.on_step(stage, state, max_iterations)

    def save(self) -> None:
        """Write the latest state, and the log and times up to this state, to the checkpoint file of the stage."""
        progress = self.progress
        if progress.state is None:
            return
        stage, state = progress.state
        log = np.frombuffer(json.dumps(progress.log).encode(), dtype=np.uint8)
        with atomic_file(self.folder / f"{stage}.npz", sync=self.sync) as file:
            arrays: dict[str, Any] = {"path.log": log, "path.seconds": np.array(progress.seconds), **state.to_arrays()}
            np.savez(file, **arrays)
        self.last_save_time = time.monotonic()


def _current_seconds() -> WallCpuSeconds:
    return time.perf_counter(), time.process_time()


def _subtract(one: WallCpuSeconds, other: WallCpuSeconds) -> WallCpuSeconds:
    return one[0] - other[0], one[1] - other[1]


def parse_seconds(pairs: Sequence[Sequence[float]]) -> list[WallCpuSeconds]:
    return [(float(wall), float(cpu)) for wall, cpu in pairs]


@dataclass(frozen=True)
class Timings:
    """The durations of the phases and steps of a training run.

    Args:
        phases: Seconds of each phase, by name.
        step_seconds: The time of each log entry (see `CheckpointMonitor`); empty if no monitor recorded the times.
        trial_seconds: CPU seconds of each candidate among which the backend `auto` chose.
    """

    phases: Mapping[str, float]
    step_seconds: tuple[WallCpuSeconds, ...]
    trial_seconds: tuple[float, ...] = ()
