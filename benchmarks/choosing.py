"""Comparison of `auto` with the best backend on every dataset.

    RELCRF_DATA=... python benchmarks/choosing.py --cache choosing.jsonl
    RELCRF_DATA=... python benchmarks/choosing.py --datasets webkb,cora

The evaluation is nested: `auto` chooses a backend and its settings within the training labels of a fold, and no method
receives the test labels. The tasks are in choosing_tasks.py; settings are the defaults, except those named there. Backends
that learn candidates are compared if the model has candidates, and backends that use relations if it has a template over
two predicted values. A backend may use `--limit` CPU seconds per fold, and `auto` ten times as much; a backend that exceeds
the limit or rejects the model is skipped in further folds.

The first table contains the number of test labels in all folds; the second, the log-likelihood per label, the accuracy, and
the CPU seconds of training, summed over folds. The third compares `auto` with the backend of highest log-likelihood and the
backend of highest accuracy. Standard errors are those of paired differences over labels, or over connected components if
there are enough. `Seconds` is the CPU time of the training of `auto`. `Ratio` is this time divided by the CPU time of the
backend that it chose, trained alone with the chosen settings; for `Ratio of commands`, both times are those of a new process
that loads the tables, grounds the model and trains on the fold, as `relcrf train` does.

The cache has one line per dataset, fold and backend; a line that is deleted is measured again:

    sed -i '/"auto", {/d' choosing.jsonl
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from choosing_tasks import TASKS, Task  # noqa: E402
from support import BenchmarkParser, ResultCache, sized  # noqa: E402

import relcrf  # noqa: E402
from relcrf.backends.base import AbstractBackend, Monitor, Problem  # noqa: E402
from relcrf.backends.problems import training_problem  # noqa: E402
from relcrf.backends.registry import make_backend  # noqa: E402
from relcrf.data.split_plan import parse_split  # noqa: E402
from relcrf.errors import RelcrfError  # noqa: E402
from relcrf.evaluation.automatic import describe_settings  # noqa: E402
from relcrf.evaluation.intervals import Clusters  # noqa: E402
from relcrf.evaluation.runner import predict_fold  # noqa: E402
from relcrf.evaluation.splits import Fold, make_folds  # noqa: E402
from relcrf.execution.blas_threads import SingleThreadedBlas  # noqa: E402
from relcrf.grounding.grounding import Grounding  # noqa: E402

RELATIONAL = ("ess", "pseudo", "dense", "gated", "chow-liu", "propagate", "smooth")
WITH_CANDIDATES = ("trmrf", "grafting")
BACKENDS = ("local", *RELATIONAL, *WITH_CANDIDATES, "auto")
AUTO_LIMIT = 10
"""Time limit of `auto`, as a multiple of the limit of other backends."""
WARM_SECONDS = 5.0
"""CPU seconds below which a cell is measured twice. The second time does not include the loading of compiled kernels."""
MIN_SECONDS = 0.01
"""Resolution of the CPU clock."""
Figures = dict[str, Any]


class Data:
    """The ground graph of a task and its folds; grounded on first access, because cached results do not need it.

    Args:
        arguments: Arguments of the task's tables: a seed or nothing.
    """

    def __init__(self, task: Task, arguments: tuple[int, ...]) -> None:
        self.task, self._arguments = task, arguments

    @cached_property
    def _measured(self) -> tuple[Grounding, float]:
        model, data = self.task.load_model(), relcrf.Dataset(self.task.tables(*self._arguments))
        started = time.process_time()
        return model.ground(data), time.process_time() - started

    @property
    def grounding(self) -> Grounding:
        return self._measured[0]

    @cached_property
    def folds(self) -> dict[str, Fold]:
        plan = parse_split(self.task.split)
        folds = make_folds(self.grounding, plan)
        return {fold.name: fold for fold in folds if not self.task.holdout or fold.name in self.task.holdout}

    def describe(self) -> Figures:
        """Return the names of the folds, the applicable backends and the CPU seconds of grounding."""
        names = ["local"]
        if any(len(group.scope) > 1 for group in self.grounding.graph.groups):
            names += RELATIONAL
        if self.grounding.candidates:
            names += WITH_CANDIDATES
        return {"folds": list(self.folds), "backends": [*names, "auto"], "seconds_ground": self._measured[1]}

    def measure(self, fold: str, name: str, limit: float) -> Figures:
        """Return the scores and the CPU seconds of a backend on a fold, or the reason for which it has none."""
        system = make_backend(name, **self.task.settings.get(name, {}))
        problem = training_problem(self.grounding, with_candidates=system.uses_candidates)
        work = partial(measure_fold, self.grounding, problem, self.folds[fold], system, self.task.asked)
        return run_limited(work, limit * (AUTO_LIMIT if name == "auto" else 1))


def measure_fold(grounding: Grounding, problem: Problem, fold: Fold, system: AbstractBackend, asked: str) -> Figures:
    """Train a backend on a fold, and return its scores; for `auto` also the time of the chosen backend, and the trials."""
    try:
        predicted, learned = predict_fold(problem, fold, system)
        if predicted.seconds_learn + predicted.seconds_infer < WARM_SECONDS:
            predicted, learned = predict_fold(problem, fold, system)
    except RelcrfError as error:
        return {"rejected": error.diagnostics[0].code, "reason": error.diagnostics[0].message}
    block = next(block for block in grounding.blocks if block.name == asked)
    values = predicted.block_labels(block).item_measures
    index = Clusters.from_variables(predicted.variables[block.index_slice(predicted.variables)], grounding.component)
    figures: Figures = {
        "labels": np.bincount(index.index).tolist(),
        "accuracy": np.bincount(index.index, values["accuracy"]).astype(int).tolist(),
        "log_likelihood": np.bincount(index.index, -values["log_loss"]).round(5).tolist(),
        "seconds_learn": predicted.seconds_learn,
        "seconds_infer": predicted.seconds_infer,
        "converged": predicted.converged,
    }
    if learned.system is not None:
        with SingleThreadedBlas():
            started = time.process_time()
            learned.system.fit(fold.learning_problem(problem), Monitor())
            figures["seconds_chosen"] = time.process_time() - started
        figures["chosen"] = f"{learned.system.name} {describe_settings(learned.system)}".strip()
        figures["chosen_system"] = [learned.system.name, asdict(learned.system)]
        figures["trials"] = list(learned.trials)
    return figures


def train_fold(name: str, arguments: tuple[int, ...], fold: str, backend: str, settings: Figures) -> None:
    """Load and ground a task, and train a backend on a fold."""
    data, system = Data(TASKS[name], tuple(arguments)), make_backend(backend, **settings)
    problem = training_problem(data.grounding, with_candidates=system.uses_candidates)
    with SingleThreadedBlas():
        system.fit(data.folds[fold].learning_problem(problem), Monitor())


def time_processes(name: str, arguments: tuple[int, ...], fold: str, systems: Figures) -> Figures:
    """Return the CPU seconds of `train_fold` for each backend and its settings, each in a new process."""
    seconds: Figures = {}
    for kind, system in systems.items():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        work = json.dumps([name, arguments, fold, *system])
        subprocess.run([sys.executable, __file__, "--train", work], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds[kind] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds


def run_limited(work: Callable[[], Figures], seconds: float) -> Figures:
    """Return the result of a call in a forked process, or a reason if the process exceeds its CPU time or dies."""
    context = multiprocessing.get_context("fork")
    gc.collect()
    gc.freeze()  # a child that collects a connection of DuckDB would wait for threads that it does not have
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(sender, work, seconds))
    process.start()
    gc.unfreeze()
    sender.close()
    try:
        result: Figures = receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            return {"rejected": "time", "reason": f"more than {seconds:g} CPU seconds"}
        return {"rejected": "died", "reason": f"exit status {process.exitcode}"}
    process.join()
    return result


def _send_result(sender: Any, work: Callable[[], Figures], seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    sender.send(work())


class Scores:
    """The scores of one backend on all folds of a task.

    Args:
        folds: The figures of each fold.
    """

    def __init__(self, folds: Iterable[Figures]) -> None:
        self.folds = list(folds)
        self.labels = np.concatenate([np.array(fold["labels"], dtype=float) for fold in self.folds])

    def values(self, measure: str) -> np.ndarray:
        """Return the sum of a measure over the labels of each cluster, shape (n_clusters,)."""
        return np.concatenate([np.array(fold[measure], dtype=float) for fold in self.folds])

    def mean(self, measure: str) -> float:
        return float(self.values(measure).sum() / self.labels.sum())

    def seconds(self, name: str) -> float:
        return float(sum(fold[name] for fold in self.folds))

    def difference(self, other: Scores, measure: str) -> tuple[float, float]:
        """Return the mean difference to another backend per label, and its standard error over clusters."""
        gaps = self.values(measure) - other.values(measure)
        mean, n = gaps.sum() / self.labels.sum(), len(gaps)
        residual = gaps - mean * self.labels
        return float(mean), float(np.sqrt(residual @ residual * n / max(n - 1, 1)) / self.labels.sum())

    def as_dict(self) -> Figures:
        """Return means and CPU seconds."""
        seconds = {name: self.seconds(name) for name in ("seconds_learn", "seconds_infer")}
        return {"log_likelihood": self.mean("log_likelihood"), "accuracy": self.mean("accuracy"), **seconds}


def compare_with_best(scores: Mapping[str, Scores], measure: str) -> Figures:
    """Return the best backend other than `auto` by a measure, and the difference of `auto` from it."""
    best = max((name for name in scores if name != "auto"), key=lambda name: scores[name].mean(measure))
    difference, error = scores["auto"].difference(scores[best], measure)
    return {
        "best": best,
        "best_value": scores[best].mean(measure),
        "auto": scores["auto"].mean(measure),
        "difference": difference,
        "standard_error": error,
    }


def run_task(name: str, task: Task, options: argparse.Namespace, cache: ResultCache) -> Figures:
    """Measure all backends on a task; return the scores of each, and the comparison of `auto` with the best."""
    cells: dict[str, list[Figures]] = {}
    commands: list[Figures] = []
    seconds_ground, folds = 0.0, 0
    for arguments in [(seed,) for seed in task.seeds] or [()]:
        data = Data(task, arguments)
        about = cache.get([name, *arguments, "grounding"], data.describe)
        backends = sized(options, about["backends"], about["backends"], [b for b in about["backends"] if b in QUICK])
        for fold in sized(options, about["folds"], about["folds"][:1], about["folds"][:1]):
            seconds_ground, folds = seconds_ground + about["seconds_ground"], folds + 1
            for backend in backends:
                if any("rejected" in cell for cell in cells.get(backend, ())):
                    continue
                work = [name, *arguments, fold, backend, dict(task.settings.get(backend, {}))]
                cell = cache.get(work, partial(data.measure, fold, backend, options.limit))
                cells.setdefault(backend, []).append(cell)
                print(describe_cell(work, cell), file=sys.stderr, flush=True)
                if "chosen_system" in cell:
                    systems = {"auto": [backend, dict(task.settings.get(backend, {}))], "chosen": cell["chosen_system"]}
                    measure = partial(time_processes, name, arguments, fold, systems)
                    commands.append(cache.get([name, *arguments, fold, "processes", *cell["chosen_system"]], measure))
        if options.quick:
            break
    scores = {b: Scores(found) for b, found in cells.items() if not any("rejected" in cell for cell in found)}
    rejected = {b: next(c for c in found if "rejected" in c) for b, found in cells.items() if b not in scores}
    result: Figures = {
        "title": task.title,
        "model": task.model if task.model.endswith(".rcrf") else "",
        "asked": task.asked,
        "folds": folds,
        "labels": int(scores["local"].labels.sum()),
        "seconds_ground": seconds_ground,
        "backends": {backend: found.as_dict() for backend, found in scores.items()} | rejected,
    }
    if "auto" in scores:
        auto = scores["auto"]
        learn, chosen = auto.seconds("seconds_learn"), auto.seconds("seconds_chosen")
        result |= {measure: compare_with_best(scores, measure) for measure in ("log_likelihood", "accuracy")}
        result["chosen"] = [fold["chosen"] for fold in auto.folds]
        result["seconds"] = learn
        result["time_ratio"] = learn / max(chosen, MIN_SECONDS)
        totals = {kind: sum(one[kind] for one in commands) for kind in ("auto", "chosen")}
        result["seconds_command"], result["command_ratio"] = totals["auto"], totals["auto"] / totals["chosen"]
    return result


def describe_cell(work: list[Any], cell: Figures) -> str:
    """Return one line about a measurement."""
    if "rejected" in cell:
        return f"{work}: {cell['rejected']}: {cell['reason']}"
    found = Scores([cell]).as_dict()
    return f"{work}: {found['log_likelihood']:.3f}, {found['accuracy']:.1%}, {found['seconds_learn']:.2f} s"


def format_tasks(results: Mapping[str, Figures]) -> str:
    """Return the table of the tasks."""
    lines = ["| Dataset | Data, and the part that is held out | Model | Labels | Folds |", "|" + " --- |" * 5]
    for dataset, one in results.items():
        model = f"`{one['model']}`" if one["model"] else ""
        lines.append(f"| {dataset} | {one['title']} | {model} | {one['labels']:,} | {one['folds']} |")
    return "\n".join(lines)


def format_backends(results: Mapping[str, Figures]) -> str:
    """Return the table of all backends; `*` marks the highest log-likelihood of a dataset."""
    names = [name for name in BACKENDS if any(name in one["backends"] for one in results.values())]
    lines = ["| Dataset | " + " | ".join(f"`{name}`" for name in names) + " |", "| --- |" + " --- |" * len(names)]
    for dataset, one in results.items():
        found = one["backends"]
        best = max((f["log_likelihood"] for f in found.values() if "log_likelihood" in f), default=0.0)
        cells = []
        for name in names:
            figures = found.get(name)
            if figures is None:
                cells.append("")
            elif "rejected" in figures:
                cells.append("over the time limit" if figures["rejected"] == "time" else figures["rejected"])
            else:
                star = " *" if figures["log_likelihood"] == best else ""
                accuracy, seconds = 100.0 * figures["accuracy"], figures["seconds_learn"]
                cells.append(f"{figures['log_likelihood']:.3f}{star}, {accuracy:.1f} %, {seconds:.1f} s")
        lines.append(f"| {dataset} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def format_comparison(results: Mapping[str, Figures]) -> str:
    """Return the table that compares `auto` with the best backends."""
    columns = ("Dataset", "Best log-likelihood", "`auto`", "Difference", "Best accuracy", "`auto`")
    columns = (*columns, "Difference", "Chosen", "Seconds", "Ratio", "Seconds of the command", "Ratio of commands")
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    for dataset, one in results.items():
        if "chosen" not in one:
            continue
        loss, accuracy = one["log_likelihood"], one["accuracy"]
        counts = {name: one["chosen"].count(name) for name in dict.fromkeys(one["chosen"])}
        cells = (
            dataset,
            f"`{loss['best']}` {loss['best_value']:.3f}",
            f"{loss['auto']:.3f}",
            f"{loss['difference']:+.3f} ± {loss['standard_error']:.3f}",
            f"`{accuracy['best']}` {100 * accuracy['best_value']:.1f} %",
            f"{100 * accuracy['auto']:.1f} %",
            f"{100 * accuracy['difference']:+.1f} ± {100 * accuracy['standard_error']:.1f} %",
            ", ".join(f"`{name}`" + (f" ({n})" if len(one["chosen"]) > 1 else "") for name, n in counts.items()),
            f"{one['seconds']:.1f}",
            f"{one['time_ratio']:.1f}",
            f"{one['seconds_command']:.1f}",
            f"{one['command_ratio']:.1f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


QUICK = ("local", "ess", "auto")


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one fold of each dataset")
    parser.add_argument("--datasets", default="", help="names of datasets, separated by commas; default: all")
    parser.add_argument("--cache", type=Path, help="file of cached results")
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds per backend and fold")
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)  # the arguments of `train_fold`
    options = parser.parse_args()
    if options.train:
        train_fold(*options.train)
        return
    names = options.datasets.split(",") if options.datasets else sized(options, list(TASKS), list(TASKS), ["people"])
    if unknown := [name for name in names if name not in TASKS]:
        parser.error(f"unknown datasets: {', '.join(unknown)}; choose from {', '.join(TASKS)}")
    cache = ResultCache(options.cache)
    results = {name: run_task(name, TASKS[name], options, cache) for name in names}
    print(format_tasks(results), format_backends(results), format_comparison(results), sep="\n\n")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
