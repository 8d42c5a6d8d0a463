"""The answers of a cross-validation as files: a folder for each round, with a table of each attribute's predictions."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend
from relcrf.backends.provenance import fingerprint, hashes
from relcrf.columns.growing import DAMAGED
from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.measures import Judged
from relcrf.evaluation.trials import Answers, Exam, asked
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.language.render import render

FACTS = "round.json"

FORMAT = 1

TOLERANCE = 1e-6
"""Of the sum of a variable's probabilities."""

_FIRST = ("variable", "truth", "predicted")
"""Columns before those of the probabilities; the keys come last."""


class AnswerFolder:
    """One system's answers: `FOLDER/ess/round-01/Page.category.csv`, and `round.json` with what else there is to know.

    A round is written under another name first, so that what is there is whole.
    """

    def __init__(self, folder: Path, grounding: Grounding, exam: Exam, name: str, system: AbstractBackend) -> None:
        self._folder, self._grounding, self._exam = folder / name, grounding, exam
        settings = asdict(system)
        self._identity = fingerprint(render(grounding.spec.flat()), name, settings, exam.problem, grounding)

    def _path(self, number: int) -> Path:
        return self._folder / f"round-{number + 1:02d}"

    def _identity_of(self, number: int) -> str:
        one = self._exam.rounds[number]
        digest = hashlib.sha256(json.dumps([self._identity, one.name]).encode())
        digest.update(one.held.tobytes())
        digest.update(one.unused.tobytes())
        return digest.hexdigest()

    def save(self, number: int, answers: Answers) -> None:
        """Writes the answers of a round."""
        path = self._path(number)
        partial = path.with_name(f".{path.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for block in self._blocks(answers):
            self._frame(block, answers).write(partial / f"{block.name}.csv")
        facts = {
            "format": FORMAT,
            "identity": self._identity_of(number),
            "tables": hashes(partial, [f"{name}.csv" for name in answers.judged]),
            "labels": dict(answers.labels),
            "seconds_learn": answers.seconds_learn,
            "seconds_infer": answers.seconds_infer,
            "converged": answers.converged,
        }
        (partial / FACTS).write_text(json.dumps(facts), encoding="utf-8")
        os.replace(partial, path)

    def load(self, number: int) -> Answers | None:
        """The answers of a round; None where there are none yet.

        Raises:
            UsageError: where they are of another model, other settings, another split or other data, or damaged.
        """
        path = self._path(number)
        if not path.exists():
            return None
        try:
            facts = json.loads((path / FACTS).read_text(encoding="utf-8"))
            if facts["format"] != FORMAT:
                raise ValueError("another format")
            if facts["identity"] != self._identity_of(number):
                raise ValueError("another identity")
            wanted = {block: asked(self._exam.rounds[number], block) for block in self._exam.blocks}
            wanted = {block: variables for block, variables in wanted.items() if len(variables)}
            if facts["tables"] != hashes(path, [f"{block.name}.csv" for block in wanted]):
                raise ValueError("another content")
            judged = {block.name: self._read(path, block, variables) for block, variables in wanted.items()}
            variables = {block.name: variables for block, variables in wanted.items()}
            return self._answers(self._exam.rounds[number].name, facts, variables, judged)
        except (*DAMAGED, csv.Error):
            message = f"'{path}' holds no answers of this model, split, settings and data"
            hint = "name another --out, or remove that folder"
            raise UsageError(Diagnostic("E353", message, hint=hint)) from None

    def _blocks(self, answers: Answers) -> list[VariableBlock]:
        return [block for block in self._exam.blocks if block.name in answers.judged]

    def _frame(self, block: VariableBlock, answers: Answers) -> Frame:
        variables, judged = answers.variables[block.name], answers.judged[block.name]
        values = np.asarray(block.values, dtype=object)
        found = (variables, values[judged.truth], values[judged.modes])
        columns: dict[str, np.ndarray] = dict(zip(_FIRST, found, strict=True))
        columns |= {f"p_{value}": judged.probabilities[:, state] for state, value in enumerate(block.values)}
        for name, texts in zip(block.columns, self._grounding.arguments(block), strict=True):
            while name in columns:
                name += "_"
            columns[name] = texts[variables - block.start]
        return Frame(columns)

    def _read(self, folder: Path, block: VariableBlock, variables: np.ndarray) -> Judged:
        """The probabilities of a table.

        Raises:
            ValueError: where it is of other variables, or has no probabilities.
        """
        before, k = len(_FIRST), len(block.values)
        with (folder / f"{block.name}.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))[1:]
        if [int(row[0]) for row in rows] != variables.tolist():
            raise ValueError("other variables")
        table = np.array([row[before : before + k] for row in rows], dtype=np.float64).reshape(len(rows), k)
        if not ((table >= 0) & (table <= 1)).all() or (np.abs(table.sum(axis=1) - 1.0) > TOLERANCE).any():
            raise ValueError("no probabilities")
        return Judged(table, self._exam.problem.states[variables])

    def _answers(
        self, name: str, facts: dict[str, Any], variables: dict[str, np.ndarray], judged: dict[str, Judged]
    ) -> Answers:
        """
        Raises:
            ValueError: where what else is said of the round cannot be.
        """
        labels = {attribute: int(count) for attribute, count in facts["labels"].items()}
        learn, infer = float(facts["seconds_learn"]), float(facts["seconds_infer"])
        known = labels.keys() == {block.name for block in self._exam.blocks} and min(labels.values()) >= 0
        if not (known and 0.0 <= learn < np.inf and 0.0 <= infer < np.inf):
            raise ValueError("no round")
        return Answers(name, variables, judged, labels, learn, infer, bool(facts["converged"]))
