"""What was learned with a model, found in the run folders near its file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from relcrf.backends import run_folder
from relcrf.backends.learned import LearnedModel
from relcrf.backends.strongest import NamedWeight, strongest
from relcrf.model.rules import all_templates
from relcrf.model.spec import Template

MAX_RUNS = 50
"""The newest folders that are looked at: a hover must not wait for a whole archive of experiments."""

_KEPT = 8
"""Runs in memory; a model of words can have millions of weights."""


@dataclass(frozen=True)
class LearnedTemplate:
    """What a run learned of one template.

    Args:
        bindings: factors on the data of the run.
        largest: the weights of the largest magnitude, largest first.
    """

    folder: Path
    backend: str
    weights: int
    bindings: int
    largest: tuple[NamedWeight, ...]


class Runs:
    """Reads run folders, and keeps them until they change."""

    def __init__(self) -> None:
        self._texts: dict[Path, tuple[int, str]] = {}
        self._loaded: dict[Path, tuple[int, LearnedModel]] = {}

    def learned(
        self, template: Template, text: str, folder: Path | None, roots: Sequence[Path], most: int = 5
    ) -> LearnedTemplate | None:
        """What the newest fitting run learned of a template; None where there is none.

        A run fits that trained a model of the same text or, if none did, one that has the same template: weights of a
        template which has changed since would be about something else.

        Args:
            folder: of the model's file. roots: of the workspace. most: how many weights to give.
        """
        found = list(_run_folders(folder, roots))
        same = [run for run in found if self._text(run) == text]
        for run in [*same, *(run for run in found if run not in same)]:
            learned = self._load(run)
            if learned is not None and template in all_templates(learned.spec):
                return _of_template(learned, template, run, most)
        return None

    def _text(self, run: Path) -> str | None:
        changed = _changed(run)
        if run not in self._texts or self._texts[run][0] != changed:
            try:
                self._texts[run] = changed, (run / "model.rcrf").read_text(encoding="utf-8")
            except (OSError, ValueError):
                return None
        return self._texts[run][1]

    def _load(self, run: Path) -> LearnedModel | None:
        """The model of a run; None where its folder is damaged, which is no matter of an editor."""
        changed = _changed(run)
        if run not in self._loaded or self._loaded[run][0] != changed:
            try:
                learned = run_folder.load(run)
            except Exception:  # a damaged folder can hold anything
                return None
            self._loaded.pop(run, None)
            while len(self._loaded) >= _KEPT:
                del self._loaded[next(iter(self._loaded))]
            self._loaded[run] = changed, learned
        return self._loaded[run][1]


def _run_folders(folder: Path | None, roots: Sequence[Path]) -> Iterator[Path]:
    """Folders with a `run.json`, the newest first: beside the model, in `runs/` there, and in `runs/` of the workspace."""
    places = [folder, *folder.glob("*/"), *folder.glob("runs/*/")] if folder is not None else []
    places += [run for root in roots for run in root.glob("runs/*/")]
    found = {place.resolve() for place in places if os.path.isfile(place / "run.json")}
    yield from sorted(found, key=lambda run: (-_changed(run), run))[:MAX_RUNS]


def _changed(run: Path) -> int:
    try:
        return os.stat(run / "run.json").st_mtime_ns
    except OSError:
        return 0


def _of_template(learned: LearnedModel, template: Template, run: Path, most: int) -> LearnedTemplate | None:
    block = next((k for k, info in enumerate(learned.templates) if info.name == template.weights), None)
    if block is None:
        return None
    size, bindings = learned.layout.blocks[block].size, learned.templates[block].bindings
    return LearnedTemplate(run, learned.backend, size, bindings, strongest(learned, [block], most))
