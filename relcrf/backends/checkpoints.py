"""Checkpoints: what an interrupted training goes on from, bit for bit."""

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
from relcrf.backends.damage import corrupt
from relcrf.columns.growing import DAMAGED
from relcrf.errors import Diagnostic, UsageError
from relcrf.files import whole_file, write_text
from relcrf.learning.lbfgs import AnyState, State
from relcrf.structure.search import SearchState

FORMAT = 2
"""Version of the files; a checkpoint of another one is refused."""

SAVE_EVERY = 5.0
"""Seconds between checkpoints."""

Seconds = tuple[float, float]
"""By the clock, and of the processor in this process."""


@dataclass(frozen=True)
class _Reached:
    """A stage and its state, None before the first; and all that led there."""

    state: tuple[str, State] | None
    log: list[dict[str, Any]]
    seconds: list[Seconds]


class Checkpoints(Monitor):
    """Saves the optimiser's state every few seconds, and gives it back.

    `log` is the path so far, and `seconds` the time that each of its entries came at, from the beginning of its stage on; an
    interruption is not counted.

    Args:
        folder: the partial run folder. identity: the `fingerprint` of what is trained.
        then: another monitor's `step`, for progress.

    Raises:
        UsageError: where the folder's checkpoint is of something else.
    """

    def __init__(
        self, folder: Path, identity: str, then: Callable[[str, State, int], None] = lambda stage, state, most: None
    ) -> None:
        self.folder = folder / "checkpoint"
        self.then = then
        self.saved = time.monotonic()
        self.began = _now()
        self.latest = _Reached(None, [], [])
        known, mine = self.folder / "identity", f"{FORMAT} {identity}"
        if known.exists() and (found := known.read_text(errors="replace")) != mine:
            what = (
                "another model, other settings or other data"
                if found.startswith(f"{FORMAT} ")
                else "another version of relcrf"
            )
            message = f"the interrupted run '{folder}' is of {what}"
            raise UsageError(Diagnostic("E333", message, hint="begin anew with --force"))
        write_text(known, mine)

    @property
    def log(self) -> list[dict[str, Any]]:
        return self.latest.log

    @property
    def seconds(self) -> list[Seconds]:
        return self.latest.seconds

    def restore(self, stage: str, kind: type[AnyState]) -> AnyState | None:
        self.began = _now()
        path = self.folder / f"{stage}.npz"
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            log, seconds = json.loads(arrays["path.log"].tobytes()), seconds_of(arrays["path.seconds"].tolist())
            state = kind.from_arrays(arrays)
        except (*DAMAGED, BadZipFile, NotImplementedError) as error:
            raise corrupt(path, error) from None
        self.latest, self.began = _Reached(None, log, seconds), _less(_now(), seconds[-1])
        return state

    def step(self, stage: str, state: State, max_iterations: int) -> None:
        entry = {
            "stage": stage,
            "iteration": state.iteration,
            "value": state.value,
            "gradient": state.gradient_norm,
            "weights": int(np.count_nonzero(state.point)),
            **({"chosen": len(state.chosen)} if isinstance(state, SearchState) else {}),
        }
        # All at once: Ctrl-C between them would save a state without its entry.
        self.latest = _Reached((stage, state), [*self.log, entry], [*self.seconds, _less(_now(), self.began)])
        if time.monotonic() - self.saved > SAVE_EVERY or state.status != "running":
            self.save()
        self.then(stage, state, max_iterations)

    def save(self) -> None:
        """Write the latest state and all that led there to one file."""
        reached = self.latest
        if reached.state is None:
            return
        stage, state = reached.state
        log = np.frombuffer(json.dumps(reached.log).encode(), dtype=np.uint8)
        with whole_file(self.folder / f"{stage}.npz") as file:
            arrays: dict[str, Any] = {"path.log": log, "path.seconds": np.array(reached.seconds), **state.to_arrays()}
            np.savez(file, **arrays)
        self.saved = time.monotonic()


def _now() -> Seconds:
    return time.perf_counter(), time.process_time()


def _less(one: Seconds, other: Seconds) -> Seconds:
    return one[0] - other[0], one[1] - other[1]


def seconds_of(read: Sequence[Sequence[float]]) -> list[Seconds]:
    return [(float(wall), float(processor)) for wall, processor in read]


@dataclass(frozen=True)
class Timings:
    """How long a training took.

    Args:
        phases: seconds of each, by name.
        steps: for each entry of the log, see `Checkpoints`; empty where nobody watched.
    """

    phases: Mapping[str, float]
    steps: tuple[Seconds, ...]
