"""Checkpoints: what an interrupted training goes on from, bit for bit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends.base import Monitor
from relcrf.backends.damage import corrupt
from relcrf.columns.growing import DAMAGED
from relcrf.errors import Diagnostic, UsageError
from relcrf.files import write_array, write_text
from relcrf.learning.lbfgs import State

FORMAT = 1

SAVE_EVERY = 5.0
"""Seconds between checkpoints."""

Seconds = tuple[float, float]
"""By the clock, and of the processor in this process."""


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
        self.log: list[dict[str, Any]] = []
        self.seconds: list[Seconds] = []
        self.began = _now()
        self.latest: tuple[str, State] | None = None
        known, mine = self.folder / "identity", f"{FORMAT} {identity}"
        if known.exists() and (found := known.read_text()) != mine:
            what = "another model, other settings or other data" if found.startswith(f"{FORMAT} ") else "another relcrf"
            message = f"the interrupted run '{folder}' is of {what}"
            raise UsageError(Diagnostic("E333", message, hint="leave --resume out to begin anew"))
        write_text(known, mine)

    def restore(self, stage: str) -> State | None:
        self.began = _now()
        path = self.folder / f"{stage}.json"
        if not path.exists():
            return None
        try:
            facts = json.loads(path.read_text())
            version, self.log = facts.pop("version"), facts.pop("log")
            self.seconds = seconds_of(facts.pop("seconds"))
            self.began = _less(_now(), self.seconds[-1])
            names = ("point", "gradient", "steps", "changes")
            arrays: dict[str, Any] = {
                n: np.load(self.folder / f"{stage}.{version}.{n}.npy", allow_pickle=False) for n in names
            }
            memory: dict[str, Any] = {n: tuple(arrays.pop(n)) for n in ("steps", "changes")}
            kept = {
                n: np.load(self.folder / f"{stage}.{version}.kept-{n}.npy", allow_pickle=False)
                for n in facts.pop("kept")
            }
            return State(**facts, **arrays, **memory, kept=kept)
        except DAMAGED as error:
            raise corrupt(path, error) from None

    def step(self, stage: str, state: State, max_iterations: int) -> None:
        self.latest = (stage, state)
        self.seconds.append(_less(_now(), self.began))
        self.log.append(
            {
                "stage": stage,
                "iteration": state.iteration,
                "value": state.value,
                "gradient": state.gradient_norm,
                "weights": int(np.count_nonzero(state.point)),
                **({"chosen": state.kept["chosen"].shape[1]} if "chosen" in state.kept else {}),
            }
        )
        if time.monotonic() - self.saved > SAVE_EVERY or state.status != "running":
            self.save()
        self.then(stage, state, max_iterations)

    def save(self) -> None:
        """Saves the latest state; the files of the one before go when the new ones are complete."""
        if self.latest is None:
            return
        stage, state = self.latest
        version = str(len(self.log))
        for name in ("point", "gradient", "steps", "changes"):
            write_array(self.folder / f"{stage}.{version}.{name}.npy", np.asarray(getattr(state, name)))
        for name, array in state.kept.items():
            write_array(self.folder / f"{stage}.{version}.kept-{name}.npy", array)
        facts = {
            "kept": sorted(state.kept),
            "value": state.value,
            "gradient_norm": state.gradient_norm,
            "first_gradient": state.first_gradient,
            "iteration": state.iteration,
            "evaluations": state.evaluations,
            "status": state.status,
            "version": version,
            "log": self.log,
            "seconds": self.seconds,
        }
        write_text(self.folder / f"{stage}.json", json.dumps(facts))
        for old in self.folder.glob(f"{stage}.*.npy"):
            if old.name.split(".")[1] != version:
                old.unlink()
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
