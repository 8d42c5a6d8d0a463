"""Contrastive feature induction on Animals and Nations with backend `trmrf`, as in Lao & Zhu (2014).

    RELCRF_DATA=... python benchmarks/animals_nations.py --cache animals_nations.jsonl

Ten folds of the known cells: the cells of a fold are hidden in training and predicted given all others. `auc` is average
precision over all states of the hidden cells, in percent; `cll` is the mean log-probability of the true state, in nats;
`error` is the fraction of wrong cells, in percent; `seconds` are CPU time of learning and inference with the selected
settings. Each is a mean over the folds; `..._spread` is the standard deviation.

With `--partitions`, the folds of several random partitions of the cells are measured. Every partition predicts each cell
once, so that the results of partitions differ only by the division into folds. Differences from Lao & Zhu's Table 1, which
is from one partition, are printed with their standard errors: the standard deviation of the means of partitions times
sqrt(1 + 1 / partitions).

Penalties are selected separately for each fold and method, by the mean log-probability of a ninth of the training cells.
Nations has four variants: the paper's candidates; the same with missing cells as false; with candidates that connect an
action with the reverse action; and additionally with pairs of nations as keys.

With `--cache`, each fold is written to a file when it is measured, so that an interrupted run can be resumed.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from sklearn.metrics import average_precision_score  # noqa: E402
from support import ROOT, BenchmarkParser, ResultCache  # noqa: E402

import relcrf  # noqa: E402
from relcrf import api  # noqa: E402
from relcrf.grounding.grounding import Grounding  # noqa: E402

sys.path.insert(0, str(ROOT / "datasets"))
import real  # noqa: E402  (of the folder `datasets`)

Figures = dict[str, Any]
Settings = Mapping[str, Any]
MEASURES = ("auc", "cll", "error", "seconds")
FOLDS = 10
INNER_FRACTION = 1 / 9
"""Fraction of the training cells that select the settings: as many as a fold hides."""
MIN_PROBABILITY = 1e-12
"""Minimum probability of the true state in the log-probability, so that one cell does not dominate."""

REVERSED = """
candidates answers(n: Nation, m: Nation, v: Verb, w: Verb)
    where v < w
    over  verb(n, m, v) and verb(m, n, w)
    per   v, w

template mutual(n: Nation, m: Nation, v: Verb)
    where n < m
    over  verb(n, m, v) and verb(m, n, v)
    per   v
    l1    2
"""
"""Candidates for an action and the reverse action: 1,540 + 56 additional weights."""
NATION_PAIRS = """
candidates alike(n: Nation, m: Nation, t: Trait)
    where n < m
    over  trait(n, t) and trait(m, t)
    per   n, m

candidates alike_as_subjects(n: Nation, k: Nation, m: Nation, v: Verb)
    where n < k
    over  verb(n, m, v) and verb(k, m, v)
    per   n, k

candidates alike_as_objects(n: Nation, m: Nation, k: Nation, v: Verb)
    where m < k
    over  verb(n, m, v) and verb(n, k, v)
    per   m, k

template alike_to_each_other(n: Nation, m: Nation, v: Verb)
    where n < m
    over  verb(n, m, v) and verb(m, n, v)
    per   n, m
    l1    2
"""
"""Candidates with pairs of nations as keys and the same trait or verb: 4 x 91 additional weights."""

TABLE_1 = {
    "animals": {"full": (92.8, -0.337, 14.3), "grafting": (91.6, -0.361, 14.9), "cfi": (92.1, -0.355, 14.9)},
    "nations": {"full": (88.8, -0.41, 16.0), "grafting": (90.2, -0.37, 11.7), "cfi": (93.6, -0.30, 11.2)},
}
"""Results of Lao & Zhu (2014), Table 1: AUC, CLL and error."""
EARLIER_RESULTS = {
    "animals": {"full": "92.0 / -.36 / 15.5", "grafting": "92.0 / -.36 / 15.5", "cfi": "91.6 / -.37 / 15.7"},
    "nations": {"full": "91.5 / -.32 / 10.0", "cfi": "92.1 / -.30 / 9.9"},
    "nations_false": {"full": "93.2 / -.29 / 9.9", "cfi": "93.8 / -.276 / 9.5"},
    "nations_reversed": {"cfi": "94.6 / -.245 / 8.1"},
}
"""Results of an earlier experiment with NumPy: AUC / CLL / error."""


@dataclass(frozen=True)
class Method:
    """A backend with fixed settings, and the values from which others are selected; the first of each is the default."""

    backend: str
    settings: Settings = field(default_factory=dict)
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def choices(self) -> list[dict[str, float]]:
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]


Grid = Mapping[str, tuple[float, ...]]

ANIMALS: Grid = {"l1": (0.5, 1.0), "l2": (2.0, 0.3)}
NATIONS: Grid = {"l1": (2.0, 3.0), "l2": (0.3,)}
"""Penalties of the pairs; the models set those of the priors. See docs/benchmarks/trmrf.md for other values."""
METHODS = ("local", "full", "grafting", "cfi")


@dataclass(frozen=True)
class Task:
    """A model with its tables and candidate penalties."""

    model: Callable[[], api.Model]
    tables: Callable[[], dict[str, pd.DataFrame]]
    grid: Grid = field(default_factory=lambda: NATIONS)

    def method(self, name: str) -> Method:
        """Hidden cells are imputed twice; see docs/benchmarks/trmrf.md."""
        return (
            Method("local")
            if name == "local"
            else Method("trmrf", {"structure": name, "unlabelled": "infer"}, self.grid)
        )


def load_model(name: str, more: str = "") -> api.Model:
    """Return a model of the folder `models`, with additional declarations."""
    return relcrf.parse((ROOT / "models" / f"{name}.rcrf").read_text(encoding="utf-8") + more, name)


def nations_false() -> dict[str, pd.DataFrame]:
    """Return the tables of Nations with missing cells as false."""
    tables = real.nations()
    filled = {name: tables[name].assign(value=tables[name]["value"].fillna(value=False)) for name in ("trait", "verb")}
    return {**tables, **filled}


TASKS = {
    "animals": Task(lambda: load_model("animals"), real.animals, ANIMALS),
    "nations": Task(lambda: load_model("nations"), real.nations),
    "nations_false": Task(lambda: load_model("nations"), nations_false),
    "nations_reversed": Task(lambda: load_model("nations", REVERSED), real.nations),
    "nations_alike": Task(lambda: load_model("nations", REVERSED + NATION_PAIRS), real.nations),
}


def folds(known: np.ndarray, seed: int = 1) -> list[np.ndarray]:
    """Return a random division of the known cells into ten parts of equal size, as masks of shape (n_variables,).

    The folds of seed 0 were used while the candidate settings were developed.
    """
    parts = np.array_split(np.random.default_rng(seed).permutation(np.flatnonzero(known)), FOLDS)
    return [np.isin(np.arange(len(known)), part) for part in parts]


def held_out(training: np.ndarray, seed: int) -> np.ndarray:
    """Return the training cells that select the settings, as a mask of shape (n_variables,)."""
    cells = np.flatnonzero(training)
    chosen = np.random.default_rng(seed).choice(cells, round(len(cells) * INNER_FRACTION), replace=False)
    return np.isin(np.arange(len(training)), chosen)


def scores(probabilities: np.ndarray, truth: np.ndarray) -> Figures:
    """Return AUC and error in percent, and the mean log-probability of the true states.

    Args:
        probabilities: Shape (n, n_states).
        truth: True states, shape (n,).
    """
    is_true = np.arange(probabilities.shape[1]) == truth[:, None]
    return {
        "auc": 100 * float(average_precision_score(is_true.ravel(), probabilities.ravel())),
        "cll": float(np.log(np.maximum(probabilities[is_true], MIN_PROBABILITY)).mean()),
        "error": 100 * float((probabilities.argmax(axis=1) != truth).mean()),
    }


def run(
    model: api.Model, grounding: Grounding, method: Method, choice: Settings, hidden: np.ndarray, scored: np.ndarray
) -> Figures:
    """Train without the hidden cells and score some of them.

    Args:
        hidden: Mask of the hidden cells, shape (n_variables,).
        scored: Mask of the scored cells, a subset of `hidden`.
    """
    start = time.process_time()
    fit = api.fit(model, grounding, method.backend, hidden=hidden, **method.settings, **choice)
    found = api.predict(fit, grounding, hidden=hidden)
    seconds = time.process_time() - start
    probabilities, truth = [], []
    for relation in found.attributes:
        variables = found.variables(relation)
        probabilities.append(found.probabilities(relation)[scored[variables]])
        truth.append(grounding.states[variables[scored[variables]]])
    return {**scores(np.concatenate(probabilities), np.concatenate(truth)), "seconds": seconds}


def measure(
    model: api.Model, grounding: Grounding, method: Method, partition: int, fold: int, *, choose: bool
) -> Figures:
    """Return the scores of one method on one fold of a partition, and the selected settings."""
    known = grounding.states >= 0
    hidden = folds(known, partition)[fold]
    chosen = method.choices[0]
    if choose:
        inner = held_out(known & ~hidden, FOLDS * (partition - 1) + fold)
        tried = [run(model, grounding, method, choice, hidden | inner, inner)["cll"] for choice in method.choices]
        chosen = method.choices[int(np.argmax(tried))]
    return {**run(model, grounding, method, chosen, hidden, hidden), "chosen": chosen}


def measure_warm(
    task: Task,
    model: api.Model,
    grounding: Grounding,
    warm: set[str],
    name: str,
    partition: int,
    fold: int,
    fixed: bool,
) -> Figures:
    """Return the results of `measure`; before the first call for a method, compile or load its kernels.

    Args:
        warm: Names of the methods whose kernels are loaded; updated.
    """
    method = task.method(name)
    if name not in warm:
        measure(model, grounding, method, partition, fold, choose=False)
        warm.add(name)
    return measure(model, grounding, method, partition, fold, choose=not fixed)


def summary(each: list[list[Figures]]) -> dict[str, float]:
    """Return means over all folds, standard deviations over folds, and those of the means of partitions.

    Args:
        each: The results of each fold of each partition.
    """
    found = {}
    for name in MEASURES:
        values = np.array([[figures[name] for figures in partition] for partition in each])
        found[name] = float(values.mean())
        found[f"{name}_spread"] = float(values.std(ddof=1)) if values.size > 1 else 0.0
        if len(values) > 1:
            found[f"{name}_partition_spread"] = float(values.mean(axis=1).std(ddof=1))
    return found


def differences(row: Mapping[str, float], published: tuple[float, ...], n_partitions: int) -> list[str]:
    """Return the difference of each measure from a published value of one partition, with its standard error."""
    texts = []
    for name, value in zip(MEASURES, published, strict=False):
        spread = row.get(f"{name}_partition_spread")
        error = "" if spread is None else f" ± {spread * np.sqrt(1 + 1 / n_partitions):.3f}"
        texts.append(f"{row[name] - value:+.3f}{error}")
    return texts


def show(console: Console, task: str, found: Mapping[str, list[list[Figures]]]) -> None:
    table = Table("method", *MEASURES, "earlier experiment: AUC / CLL / error", "selected most often", title=task)
    for name, each in found.items():
        row = summary(each)
        texts = [json.dumps(figures["chosen"]) for partition in each for figures in partition]
        shown = [f"{row[m]:.3f} ± {row[f'{m}_spread']:.3f}" for m in MEASURES]
        table.add_row(name, *shown, EARLIER_RESULTS.get(task, {}).get(name, ""), max(texts, key=texts.count))
        if name in TABLE_1.get(task, {}):
            published = TABLE_1[task][name]
            table.add_row("  minus Table 1", *differences(row, published, len(each)), "", "", "")
    console.print(table)


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one fold of each dataset, without selection of settings")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--folds", type=int, choices=range(1, FOLDS + 1), default=FOLDS, help="number of folds to run")
    parser.add_argument("--partitions", type=int, default=1, help="number of random partitions into folds")
    parser.add_argument(
        "--fixed", action="store_true", help="use the first penalties of each method, without selection"
    )
    parser.add_argument("--cache", type=Path, help="file of cached results")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.folds, options.fixed = ["animals", "nations"], 1, True
    if options.smallest:
        options.tasks, options.methods = ["animals"], ["local"]
    console = Console(width=150)
    cache, result = ResultCache(options.cache), dict[str, Any]()
    for task in options.tasks:
        model = TASKS[task].model()
        grounding = model.ground(relcrf.Dataset(TASKS[task].tables()))
        warm = set[str]()
        evaluate = partial(measure_warm, TASKS[task], model, grounding, warm)
        found: dict[str, list[list[Figures]]] = {}
        for name in options.methods:
            works = [
                [[task, name, partition, fold, options.fixed] for fold in range(options.folds)]
                for partition in range(1, options.partitions + 1)
            ]
            found[name] = [[cache.get(work, partial(evaluate, *work[1:])) for work in part] for part in works]
        show(console, task, found)
        result[task] = {name: summary(each) for name, each in found.items()}
    print(json.dumps({"folds": options.folds, "partitions": options.partitions, "fixed": options.fixed, **result}))


if __name__ == "__main__":
    main()
