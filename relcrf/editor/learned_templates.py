"""Learned weights of templates, from the run folders near a model file."""

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
"""Maximum number of run folders read, newest first; reading a whole archive of experiments would delay a hover."""

_MAX_CACHED_RUNS = 8
"""Maximum number of cached runs; a bag-of-words model can have millions of weights."""


@dataclass(frozen=True)
class LearnedTemplate:
    """The learned weights of one template in one run.

    Args:
        folder: Run folder.
        n_bindings: Number of bindings in the training data of the run.
        largest: The weights with the largest absolute values, in descending order; see `weight_table`.
    """

    folder: Path
    backend: str
    n_weights: int
    n_bindings: int
    largest: Frame


def find_learned_template(
    template: Template, text: str, folder: Path | None, roots: Sequence[Path], max_weights: int = 5
) -> LearnedTemplate | None:
    """Return the learned weights of a template in the newest matching run; None if there is none.

    Runs whose model has the same text are preferred to other runs whose model has the same template. Weights of an
    earlier version of the template are not returned, because they would have a different meaning.

    Args:
        text: Text of the model file.
        folder: Folder of the model file.
        roots: Folders of the workspace.
        max_weights: Maximum number of weights to return.
    """
    runs = list(_find_run_folders(folder, roots))
    same_text = [run for run in runs if _read_cached(_load_text, run) == text]
    for run in [*same_text, *(run for run in runs if run not in same_text)]:
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
    """Return the part of a run that `reader` loads, cached until the run changes; None if the folder is damaged."""
    try:
        return reader(run, _modification_time(run))
    except Exception:  # a damaged folder can cause any error; the run is then ignored
        return None


@lru_cache(maxsize=MAX_RUNS)
def _load_text(run: Path, modified: int) -> str:
    return (run / "model.rcrf").read_text(encoding="utf-8")


@lru_cache(maxsize=_MAX_CACHED_RUNS)
def _load_model(run: Path, modified: int) -> LearnedModel:
    return run_folder.load(run)


def _find_run_folders(folder: Path | None, roots: Sequence[Path]) -> Iterator[Path]:
    """Yield run folders, newest first: `folder`, its `*/` and `runs/*/`, and the `runs/*/` of the roots."""
    candidates = [folder, *folder.glob("*/"), *folder.glob("runs/*/")] if folder is not None else []
    candidates += [run for root in roots for run in root.glob("runs/*/")]
    runs = {path.resolve() for path in candidates if os.path.isfile(path / "run.json")}
    yield from sorted(runs, key=lambda run: (-_modification_time(run), run))[:MAX_RUNS]


def _modification_time(run: Path) -> int:
    try:
        return os.stat(run / "run.json").st_mtime_ns
    except OSError:
        return 0
