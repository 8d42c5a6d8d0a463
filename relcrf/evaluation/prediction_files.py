"""Prediction files: each fold has a folder with one table per predicted attribute."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from relcrf.backends.base import AbstractBackend, Problem
from relcrf.backends.provenance import file_hashes, fingerprint
from relcrf.columns.storage import READ_ERRORS
from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.number_measures import NumberPredictions, ScoredNumbers
from relcrf.evaluation.predictions import FoldPrediction, predicted_blocks
from relcrf.evaluation.splits import Fold
from relcrf.files import make_folder, remove_folder, replace_folder
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.inference.gaussian import NumberMarginals
from relcrf.language.render import render

METADATA_FILE = "fold.json"

FORMAT_VERSION = 2

SUM_TOLERANCE = 1e-6
"""Maximum deviation from 1 of the sum of a variable's probabilities, which are rounded in the decimal text."""

_FIRST = ("variable", "truth", "predicted")
"""Columns before the probabilities; the columns of keys follow the probabilities."""


@dataclass(frozen=True, eq=False)
class PredictionFolder:
    """The prediction files of one backend: `FOLDER/fold-01/Page.category.csv`, and `fold.json` with metadata.

    A fold is written to a temporary folder, which is then renamed; a folder with the final name is therefore complete.

    Args:
        identity: The fingerprint of the model, the backend and the data.
    """

    folder: Path
    grounding: Grounding
    identity: str

    @classmethod
    def from_problem(
        cls, folder: Path, grounding: Grounding, problem: Problem, system: AbstractBackend
    ) -> PredictionFolder:
        """Return the folder of a backend that is trained on a problem."""
        text = render(grounding.spec.flatten())
        return cls(folder, grounding, fingerprint(text, system.name, asdict(system), problem, grounding))

    def _path(self, number: int) -> Path:
        return self.folder / f"fold-{number + 1:02d}"

    def _fold_identity(self, fold: Fold) -> str:
        digest = hashlib.sha256(json.dumps([self.identity, fold.name]).encode())
        digest.update(fold.test.tobytes())
        digest.update(fold.excluded.tobytes())
        if fold.hidden.any():
            digest.update(fold.hidden.tobytes())
            digest.update(b"" if fold.validation is None else fold.validation.tobytes())
        return digest.hexdigest()

    def _test_blocks(self, fold: Fold) -> list[tuple[VariableBlock, np.ndarray]]:
        """Return the blocks of variables with test labels; each block is paired with its test variables."""
        test = np.flatnonzero(fold.test)
        parts = [(b, test[b.index_slice(test)]) for b in predicted_blocks(self.grounding)]
        return [(block, variables) for block, variables in parts if len(variables)]

    def save(self, number: int, fold: Fold, predicted: FoldPrediction) -> None:
        """Write the predictions of a fold."""
        path, tested = self._path(number), self._test_blocks(fold)
        partial = path.with_name(f".{path.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        make_folder(partial)
        for block, variables in tested:
            self._frame(block, variables, predicted).write(partial / f"{block.name}.csv")
        metadata = {
            "format": FORMAT_VERSION,
            "identity": self._fold_identity(fold),
            "tables": file_hashes(partial, [f"{block.name}.csv" for block, _ in tested]),
            "seconds_learn": predicted.seconds_learn,
            "seconds_infer": predicted.seconds_infer,
            "converged": predicted.converged,
            "learning_converged": predicted.learning_converged,
            "chosen": predicted.chosen,
        }
        (partial / METADATA_FILE).write_text(json.dumps(metadata), encoding="utf-8")
        replace_folder(partial, path)

    def remove(self, number: int) -> None:
        """Remove the predictions of a fold, and the folders of the backend and of the evaluation if they are empty."""
        remove_folder(self._path(number))
        for folder in (self.folder, self.folder.parent):
            if any(folder.iterdir()):
                break
            folder.rmdir()

    def load(self, number: int, fold: Fold) -> FoldPrediction | None:
        """Read the predictions of a fold; return None if the fold does not exist yet.

        Raises:
            UsageError: The files belong to another model, split, settings or data, or are damaged (E353).
        """
        path = self._path(number)
        if not path.exists():
            return None
        try:
            metadata = json.loads((path / METADATA_FILE).read_text(encoding="utf-8"))
            tested = self._test_blocks(fold)
            learn, infer = float(metadata["seconds_learn"]), float(metadata["seconds_infer"])
            _require(metadata["format"] == FORMAT_VERSION, "format")
            _require(metadata["identity"] == self._fold_identity(fold), "identity")
            _require(metadata["tables"] == file_hashes(path, [f"{block.name}.csv" for block, _ in tested]), "content")
            _require(0.0 <= learn < np.inf and 0.0 <= infer < np.inf, "seconds")
            files = [(path / f"{block.name}.csv", block, variables) for block, variables in tested]
            tables = [_read_probabilities(*each) for each in files if not each[1].is_numeric]
            predicted = FoldPrediction.from_tables(fold, self.grounding, tables)
            return replace(
                predicted,
                numbers=self._read_numbers([(file, variables) for file, block, variables in files if block.is_numeric]),
                seconds_learn=learn,
                seconds_infer=infer,
                converged=bool(metadata["converged"]),
                learning_converged=bool(metadata.get("learning_converged", metadata["converged"])),
                chosen=str(metadata.get("chosen", "")),
            )
        except (*READ_ERRORS, csv.Error):
            message = f"'{path}' is damaged, or contains predictions of another model, split, settings or data"
            hint = "choose another --out, or remove this folder"
            raise UsageError(Diagnostic("E353", message, hint=hint)) from None

    def _read_numbers(self, files: list[tuple[Path, np.ndarray]]) -> NumberPredictions | None:
        if not self.grounding.graph.numeric:
            return None
        tables = [_read_table(path, variables, len(_FIRST) - 1, 2) for path, variables in files]
        table = np.concatenate([np.empty((0, 2)), *tables])
        _require(bool(np.isfinite(table).all() and (table[:, 1] > 0.0).all()), "deviations")
        variables = np.concatenate([np.empty(0, dtype=np.int64), *(each for _, each in files)])
        return NumberPredictions(NumberMarginals(variables, *table.T), self.grounding.numbers[variables])

    def _frame(self, block: VariableBlock, variables: np.ndarray, predicted: FoldPrediction) -> Frame:
        scored = predicted.block_labels(block)
        columns: dict[str, np.ndarray]
        if isinstance(scored, ScoredNumbers):
            columns = dict(
                zip((*_FIRST, "deviation"), (variables, scored.truth, scored.means, scored.deviations), strict=True)
            )
        else:
            values = np.asarray(block.values, dtype=object)
            columns = dict(zip(_FIRST, (variables, values[scored.truth], values[scored.modes]), strict=True))
            columns |= {f"p_{value}": scored.probabilities[:, state] for state, value in enumerate(block.values)}
        for name, texts in zip(block.argument_names, self.grounding.argument_texts(block), strict=True):
            while name in columns:
                name += "_"
            columns[name] = texts[variables - block.start]
        return Frame(columns)


def _read_probabilities(path: Path, block: VariableBlock, variables: np.ndarray) -> np.ndarray:
    """Read the probabilities of a table, shape (n, n_values).

    Raises:
        ValueError: The table has other variables, or invalid probabilities.
    """
    table = _read_table(path, variables, len(_FIRST), len(block.values))
    sums = np.abs(table.sum(axis=1) - 1.0)
    _require(bool(((table >= 0) & (table <= 1)).all() and (sums <= SUM_TOLERANCE).all()), "probabilities")
    return table


def _read_table(path: Path, variables: np.ndarray, before: int, width: int) -> np.ndarray:
    """Read the columns from `before` on, shape (n, width); raise ValueError if the table has other variables."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    _require([int(row[0]) for row in rows] == variables.tolist(), "variables")
    return np.array([row[before : before + width] for row in rows], dtype=np.float64).reshape(len(rows), width)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"unexpected {what}")
