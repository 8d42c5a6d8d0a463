"""Experiment trackers: MLflow and Weights & Biases store the figures of a report, with the page as a file."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends import run_folder
from relcrf.backends.learned_model import LearnedModel
from relcrf.data.extras import import_extra
from relcrf.errors import Diagnostic, UsageError, suggestion
from relcrf.evaluation.predictions import Predictions

PROJECT = "relcrf"
"""Name of the experiment (MLflow) or project (Weights & Biases), unless the environment variables of the tracker name one."""

MLFLOW_BATCH = 1000
"""Maximum number of values per request to MLflow."""


@dataclass(frozen=True)
class TrackedRun:
    """The settings, figures, curves and page of a run.

    Args:
        settings: The backend, its settings, and the folder of the run.
        figures: Finite numbers by name: those of training, and `Page.topic/accuracy` for the measures on held-out labels.
        curves: The objective and the gradient of each iteration, by stage: `weights/objective`.
        page: The path of the report.
    """

    name: str
    settings: Mapping[str, Any]
    figures: Mapping[str, float]
    curves: Mapping[str, list[float]]
    page: Path


def tracked_run(run: Path, page: Path, results: Predictions | None) -> TrackedRun:
    """Collect the figures of a run folder and of its report; `results` contains the scores on held-out labels."""
    learned, timings = run_folder.load(run), run_folder.load_timings(run)
    settings = {"backend": learned.backend, "folder": str(run), **learned.settings}
    curves: dict[str, list[float]] = {}
    for entry in learned.log:
        for name, quantity in (("value", "objective"), ("gradient", "gradient")):
            curves.setdefault(f"{entry['stage']}/{quantity}", []).append(float(entry[name]))
    figures = dict(_iter_figures(learned, timings.phases, results))
    return TrackedRun(run.resolve().name, settings, figures, curves, page)


def _iter_figures(
    learned: LearnedModel, phases: Mapping[str, float], results: Predictions | None
) -> Iterator[tuple[str, float]]:
    figures = {**learned.summary, **{f"seconds/{name}": value for name, value in phases.items()}}
    figures["nonzero_weights"] = learned.n_nonzero_weights
    for row in () if results is None else results.measure_table().to_dicts():
        system = "" if row["system"] == learned.backend else f"/{row['system']}"
        name = f"{row['attribute']}{system}/{row['measure']}"
        figures |= {name: row["value"], f"{name}_low": row["low"], f"{name}_high": row["high"]}
    for name, value in figures.items():
        if isinstance(value, int | float | np.number) and math.isfinite(value):
            yield name, float(value)


def find_trackers(names: Sequence[str]) -> list[Callable[[TrackedRun], str]]:
    """Return the functions that store a run in the named trackers and return where it is stored.

    Raises:
        UsageError: A tracker is unknown (E466), or its package is not installed (E351).
    """
    found = []
    for name in names:
        if name not in _TRACKERS:
            hint = suggestion(name, _TRACKERS) or "use mlflow or wandb"
            raise UsageError(Diagnostic("E466", f"unknown tracker '{name}'", hint=hint))
        import_extra(name, name, f"--log {name}")
        found.append(_reports_errors(name, _TRACKERS[name]))
    return found


def _reports_errors(name: str, store: Callable[[TrackedRun], str]) -> Callable[[TrackedRun], str]:
    def store_run(tracked: TrackedRun) -> str:
        try:
            with redirect_stdout(sys.stderr):  # trackers print the address of the run
                return store(tracked)
        except Exception as error:  # the packages raise exceptions of many other packages
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            message = f"{name} did not store the run: {reason}"
            hint = (
                f"the report is complete; check the settings of {name}, such as its server and the permission to write"
            )
            raise UsageError(Diagnostic("E466", message, hint=hint)) from None

    return store_run


def _store_in_mlflow(tracked: TrackedRun) -> str:
    mlflow = import_extra("mlflow", "mlflow", "--log mlflow")
    if not {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"} & os.environ.keys():
        mlflow.set_experiment(PROJECT)
    with mlflow.start_run(run_name=tracked.name) as run:
        client, run_id, now = mlflow.MlflowClient(), run.info.run_id, run.info.start_time
        metrics = [mlflow.entities.Metric(name, value, now, 0) for name, value in tracked.figures.items()]
        metrics += [
            mlflow.entities.Metric(name, value, now, step)
            for name, values in tracked.curves.items()
            for step, value in enumerate(values)
            if math.isfinite(value)
        ]
        mlflow.log_params(tracked.settings)
        for start in range(0, len(metrics), MLFLOW_BATCH):
            client.log_batch(run_id, metrics=metrics[start : start + MLFLOW_BATCH])
        mlflow.log_artifact(str(tracked.page))
        return f"{mlflow.get_tracking_uri()}, experiment {run.info.experiment_id}, run {run_id}"


def _store_in_wandb(tracked: TrackedRun) -> str:
    wandb = import_extra("wandb", "wandb", "--log wandb")
    project = os.environ.get("WANDB_PROJECT", PROJECT)
    settings = wandb.Settings(silent=True)
    with wandb.init(project=project, name=tracked.name, config=dict(tracked.settings), settings=settings) as run:
        for step in range(max(map(len, tracked.curves.values()), default=0)):
            run.log({name: values[step] for name, values in tracked.curves.items() if step < len(values)})
        run.summary.update(tracked.figures)
        page = tracked.page.read_text(encoding="utf-8")
        run.log({"report": wandb.Html(page, inject=False)})
        return str(run.url or run.dir)


_TRACKERS: Mapping[str, Callable[[TrackedRun], str]] = {"mlflow": _store_in_mlflow, "wandb": _store_in_wandb}
