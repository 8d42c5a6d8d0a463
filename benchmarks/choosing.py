"""Comparison of all backends on WebKB, Cora and nations with `relcrf compare`.

    RELCRF_DATA=... python benchmarks/choosing.py

Settings are the defaults, except for the penalty of candidates on nations. It prints the table of
docs/benchmarks/backends.md: log loss, accuracy and CPU seconds of learning, summed over folds; `*` marks the lowest log
loss. On nations, only backends that support candidates are compared with `local`, because all others would be equal to
`local`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from support import ROOT, BenchmarkParser, sized

import relcrf
from relcrf.evaluation.evaluations import Evaluation, compare

sys.path.insert(0, str(ROOT / "datasets"))
from real import cora, nations, webkb


@dataclass(frozen=True)
class Task:
    """A comparison on one dataset.

    Args:
        asked: Attribute or relation whose results are reported.
        split: Split of the labels; `quick` is that of a quick run.
    """

    name: str
    title: str
    tables: Callable[[], dict[str, pd.DataFrame]]
    asked: str
    split: str
    quick: str
    backends: tuple[str, ...]
    model: str
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)


_ALL = ("auto", "local", "ess", "pseudo", "dense", "gated", "chow-liu", "trmrf")
TASKS = (
    Task(
        "webkb",
        "WebKB, a university held out",
        webkb,
        "Page.category",
        "by=Page.university",
        "hide=0.2",
        _ALL,
        "webkb.rcrf",
    ),
    Task("cora", "Cora, a fifth held out", cora, "Paper.topic", "random", "hide=0.2", _ALL, "cora_words.rcrf"),
    Task(
        "nations",
        "nations, a tenth of the cells hidden",
        nations,
        "verb",
        "hide=0.1",
        "hide=0.1",
        ("auto", "local", "trmrf", "grafting"),
        "nations.rcrf",
        {"trmrf": {"l1": 6.0}, "grafting": {"l1": 6.0}},
    ),
)
QUICK = ("local", "ess", "trmrf")


def evaluate_task(task: Task, *, quick: bool, jobs: int, limit: float) -> Evaluation:
    """Return the evaluation of a task."""
    model = relcrf.load(ROOT / "models" / task.model)
    grounding = model.ground(relcrf.Dataset(task.tables()))
    backends = [b for b in task.backends if b in QUICK] if quick else task.backends
    split = task.quick if quick else task.split
    return compare(grounding, backends, split, jobs=jobs, time_limit=limit, n_subgraphs=0, settings=task.settings)


def format_cell(found: Evaluation, task: Task, name: str) -> tuple[str, dict[str, Any] | None]:
    """Return the table cell of a backend on a task, and the same as JSON."""
    outcome = found.results.get(name)
    if outcome is None:
        return "", None
    if not outcome.predictions:
        code = outcome.error.code if outcome.error else outcome.status
        return f"refuses ([{code}](errors/{code}.md))", {"status": outcome.status}
    figures = found.predictions.estimates(name, task.asked)
    loss, accuracy = figures["log_loss"].value, figures["accuracy"].value
    learn, infer = found.predictions.seconds(name)
    star = " *" if found.predictions.best_system(task.asked) == name else ""
    facts = {"log_loss": loss, "accuracy": accuracy, "seconds_learn": learn, "seconds_infer": infer}
    return f"{loss:.3f}{star}, {accuracy:.1%}, {learn:.1f} s".replace("%", " %"), {**facts, "status": outcome.status}


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one fold each, three backends")
    parser.add_argument("--jobs", type=int, default=1, help="number of backends to run in parallel")
    parser.add_argument("--limit", type=float, default=1200.0, help="timeout per backend and task, in seconds")
    options = parser.parse_args()
    tasks = sized(options, TASKS, TASKS, TASKS[2:])
    found = {t.name: evaluate_task(t, quick=options.quick, jobs=options.jobs, limit=options.limit) for t in tasks}
    names = [name for name in (*_ALL, "grafting") if any(name in one.results for one in found.values())]
    print("| | " + " | ".join(task.title for task in tasks) + " |")
    print("| --- |" + " --- |" * len(tasks))
    machines: dict[str, dict[str, Any]] = {task.name: {} for task in tasks}
    for name in names:
        cells = []
        for task in tasks:
            text, facts = format_cell(found[task.name], task, name)
            cells.append(text)
            if facts is not None:
                machines[task.name][name] = facts
        print(f"| `{name}` | " + " | ".join(cells) + " |")
    print(json.dumps(machines))


if __name__ == "__main__":
    main()
