"""Summaries of the run folders below a folder, read without their weights."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relcrf.backends.run_folder import is_run

_OWNER = re.compile(r"^entity +(\w+)|(^)?\bpredict +(?:relation +)?(\w+)", re.MULTILINE)
"""Pattern of the entity types and the predicted attributes and relations in the formatted model of a run."""

_DAMAGES = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""Exceptions for a file of a run that cannot be read or has an unexpected structure."""


@dataclass(frozen=True)
class RunSummary:
    """The main figures of a run.

    Args:
        predicts: Names of the predicted attributes and relations.
        requested: The requested backend; it differs from `backend` if `auto` chose the backend.
        labels: Number of training labels; None if the backend does not report it.
        accuracy, log_likelihood: Scores of the labels that training held out; None if it held out none.
        split: The split of the training, with the folds that it held out; empty if there was none.
        trained: Time at which the run was written, in UTC.
        seconds: Duration of the training.
        n_bytes: Size of the files.
    """

    run: Path
    predicts: tuple[str, ...]
    backend: str
    requested: str
    labels: int | None
    accuracy: float | None
    log_likelihood: float | None
    split: str
    trained: datetime
    seconds: float
    n_bytes: int


def find_runs(folder: Path) -> Iterator[Path]:
    """Yield the run folders in a folder and its subfolders, except hidden and unfinished ones, sorted by name."""
    for path, names, _ in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith(".") and not name.endswith(".partial"))
        if is_run(Path(path)):
            names.clear()
            yield Path(path)


def summarise_run(run: Path) -> RunSummary:
    """Read the summary of a run.

    Raises:
        ValueError: A file of the run is damaged or missing.
    """
    try:
        facts, timings = (json.loads((run / name).read_text("utf-8")) for name in ("run.json", "timings.json"))
        protocol = (json.loads((run / "manifest.json").read_text("utf-8")).get("provenance") or {}).get("protocol", {})
        summary = facts["summary"]
        labels = summary.get("variables")
        accuracy, log_likelihood = _held_out_scores(facts)
        files = [entry.stat() for entry in os.scandir(run) if entry.is_file()]
        return RunSummary(
            run=run,
            predicts=tuple(_predicted_names((run / "model.rcrf").read_text("utf-8"))),
            backend=str(facts["backend"]),
            requested=str((facts.get("request") or facts)["backend"]),  # earlier versions stored no request
            labels=None if labels is None else int(labels),
            accuracy=accuracy,
            log_likelihood=log_likelihood,
            split=" ".join(map(str, [protocol.get("split") or "", *protocol.get("holdout", [])])).strip(),
            trained=datetime.fromtimestamp((run / "run.json").stat().st_mtime, UTC),
            seconds=sum(float(timings.get(name, 0.0)) for name in ("ground", "learn")),
            n_bytes=sum(file.st_size for file in files),
        )
    except _DAMAGES as error:
        raise ValueError(f"'{run}' is damaged: {type(error).__name__}: {error}") from None


def _held_out_scores(facts: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the accuracy and the log-likelihood of the labels that training held out, as far as it reported them."""
    summary = facts["summary"]
    trials = [
        trial for trial in facts.get("trials", []) if trial["backend"] == facts["backend"] and "log_likelihood" in trial
    ]
    best: Mapping[str, Any] = max(trials, key=lambda trial: float(trial["log_likelihood"]), default={})
    accuracy = summary.get("held_out_accuracy", best.get("accuracy"))
    log_likelihood = summary.get("calibrated_log_likelihood", summary.get("held_out_log_likelihood"))
    values = (accuracy, best.get("log_likelihood") if log_likelihood is None else log_likelihood)
    return values[0] if values[0] is None else float(values[0]), values[1] if values[1] is None else float(values[1])


def _predicted_names(model: str) -> Iterator[str]:
    """Yield the names of the predicted attributes, such as `Page.topic`, and relations of a formatted model."""
    entity = ""
    for match in _OWNER.finditer(model):
        if match[1]:
            entity = match[1]
        else:
            yield match[3] if match[2] is not None else f"{entity}.{match[3]}"
