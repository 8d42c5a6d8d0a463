"""What was learned with a model, found in the run folders near its file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from relcrf.backends import run_folder
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.weight_names import largest_of_blocks, weight_table
from relcrf.data.frame import Frame
from relcrf.model.rules import all_templates
from relcrf.model.spec import Template

_T = TypeVar("_T")

MAX_RUNS = 50
"""The newest folders that are looked at: a hover must not wait for a whole archive of experiments."""

_MAX_CACHED_RUNS = 8
"""Runs in memory; a model of words can have millions of weights."""


@dataclass(frozen=True)
class LearnedTemplate:
    """What a run learned of one template.

    Args:
        bindings: factors on the data of the run.
        largest: the weights of the largest magnitude, largest first; see `weight_table`.
    """

    folder: Path
    backend: str
    weights: int
    bindings: int
    largest: Frame


def find_learned_template(
    template: Template, text: str, folder: Path | None, roots: Sequence[Path], max_weights: int = 5
) -> LearnedTemplate | None:
    """Return what the newest fitting run learned of a template; None where there is none.

    A run fits that trained a model of the same text or, if none did, one that has the same template: weights of a
    template which has changed since would be about something else.

    Args:
        folder: of the model's file. roots: of the workspace. most: how many weights to give.
    """
    found = list(_find_run_folders(folder, roots))
    same = [run for run in found if _read_cached(_load_text, run) == text]
    for run in [*same, *(run for run in found if run not in same)]:
        model = _read_cached(_load_model, run)
        if model is not None and template in all_templates(model.spec):
            block = next((k for k, info in enumerate(model.templates) if info.name == template.weights), None)
            if block is None:
                return None
            size, bindings = model.layout.blocks[block].size, model.templates[block].bindings
            largest = weight_table(model, largest_of_blocks(model, [block], max_weights))
            return LearnedTemplate(run, model.backend, size, bindings, largest)
    return None


def _read_cached(reader: Callable[[Path, int], _T], run: Path) -> _T | None:
    """Return a part of a run, which is cached until its folder changes; None where the folder is damaged."""
    try:
        return reader(run, _modification_time(run))
    except Exception:  # a damaged folder can hold anything, and is no matter of an editor
        return None


@lru_cache(maxsize=MAX_RUNS)
def _load_text(run: Path, modified: int) -> str:
    return (run / "model.rcrf").read_text(encoding="utf-8")


@lru_cache(maxsize=_MAX_CACHED_RUNS)
def _load_model(run: Path, modified: int) -> LearnedModel:
    return run_folder.load(run)


def _find_run_folders(folder: Path | None, roots: Sequence[Path]) -> Iterator[Path]:
    """Folders with a `run.json`, the newest first: beside the model, in `runs/` there, and in `runs/` of the workspace."""
    places = [folder, *folder.glob("*/"), *folder.glob("runs/*/")] if folder is not None else []
    places += [run for root in roots for run in root.glob("runs/*/")]
    found = {place.resolve() for place in places if os.path.isfile(place / "run.json")}
    yield from sorted(found, key=lambda run: (-_modification_time(run), run))[:MAX_RUNS]


def _modification_time(run: Path) -> int:
    try:
        return os.stat(run / "run.json").st_mtime_ns
    except OSError:
        return 0
