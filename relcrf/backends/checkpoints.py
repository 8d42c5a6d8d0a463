"""Checkpoints: what an interrupted training goes on from, bit for bit."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends.base import Monitor
from relcrf.backends.damage import corrupt
from relcrf.backends.provenance import hashes
from relcrf.columns.growing import DAMAGED
from relcrf.errors import Diagnostic, UsageError
from relcrf.files import write_array, write_text
from relcrf.learning.lbfgs import State

FORMAT = 1

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
            what = "another model, other settings or other data" if found.startswith(f"{FORMAT} ") else "another relcrf"
            message = f"the interrupted run '{folder}' is of {what}"
            raise UsageError(Diagnostic("E333", message, hint="begin anew with --force"))
        write_text(known, mine)

    @property
    def log(self) -> list[dict[str, Any]]:
        return self.latest.log

    @property
    def seconds(self) -> list[Seconds]:
        return self.latest.seconds

    def restore(self, stage: str) -> State | None:
        self.began = _now()
        path = self.folder / f"{stage}.json"
        if not path.exists():
            return None
        try:
            digest, text = path.read_text().split("\n", 1)
            if digest != hashlib.sha256(text.encode()).hexdigest():
                raise ValueError("its content is not what was written")
            facts = json.loads(text)
            if hashes(self.folder, list(facts["files"])) != facts.pop("files"):
                raise ValueError("an array beside it is not what was written")
            version, reached = facts.pop("version"), _Reached(None, facts.pop("log"), seconds_of(facts.pop("seconds")))
            names = ("point", "gradient", "steps", "changes")
            arrays: dict[str, Any] = {
                n: np.load(self.folder / f"{stage}.{version}.{n}.npy", allow_pickle=False) for n in names
            }
            memory: dict[str, Any] = {n: tuple(arrays.pop(n)) for n in ("steps", "changes")}
            kept = {
                n: np.load(self.folder / f"{stage}.{version}.kept-{n}.npy", allow_pickle=False)
                for n in facts.pop("kept")
            }
            self.latest, self.began = reached, _less(_now(), reached.seconds[-1])
            return State(**facts, **arrays, **memory, kept=kept)
        except DAMAGED as error:
            raise corrupt(path, error) from None

    def step(self, stage: str, state: State, max_iterations: int) -> None:
        entry = {
            "stage": stage,
            "iteration": state.iteration,
            "value": state.value,
            "gradient": state.gradient_norm,
            "weights": int(np.count_nonzero(state.point)),
            **({"chosen": state.kept["chosen"].shape[1]} if "chosen" in state.kept else {}),
        }
        # All at once: Ctrl-C between them would save a state without its entry.
        self.latest = _Reached((stage, state), [*self.log, entry], [*self.seconds, _less(_now(), self.began)])
        if time.monotonic() - self.saved > SAVE_EVERY or state.status != "running":
            self.save()
        self.then(stage, state, max_iterations)

    def save(self) -> None:
        """Saves the latest state; the files of the one before go when the new ones are complete."""
        reached = self.latest
        if reached.state is None:
            return
        stage, state = reached.state
        version = str(len(reached.log))
        arrays = {name: np.asarray(getattr(state, name)) for name in ("point", "gradient", "steps", "changes")}
        arrays |= {f"kept-{name}": array for name, array in state.kept.items()}
        files = {name: f"{stage}.{version}.{name}.npy" for name in arrays}
        for name, array in arrays.items():
            write_array(self.folder / files[name], array)
        facts = {
            "files": hashes(self.folder, list(files.values())),
            "kept": sorted(state.kept),
            "value": state.value,
            "gradient_norm": state.gradient_norm,
            "first_gradient": state.first_gradient,
            "iteration": state.iteration,
            "evaluations": state.evaluations,
            "status": state.status,
            "version": version,
            "log": reached.log,
            "seconds": reached.seconds,
        }
        text = json.dumps(facts)
        write_text(self.folder / f"{stage}.json", f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
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
