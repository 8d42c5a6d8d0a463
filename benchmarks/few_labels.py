"""Node classification with few labels: relcrf with default settings, compared with methods of semi-supervised learning.

    RELCRF_DATA=... python benchmarks/few_labels.py

The papers of Cora with 20 training labels per topic (`cora_20`), with 5 (`cora_5`), and with 60 % of all labels (`cora_60`),
in ten random splits. 500 further labels form the validation set and 1,000 the test set; `cora_60` has 584 test labels, which
are all that remain. Each rival selects its settings by its accuracy on the validation labels (see few_label_rivals.py); no
probabilities are calibrated. relcrf learns from the training labels with models/cora.rcrf. All other labels are hidden from
learning and from inference, and the validation labels may serve only for the choice of settings.

Per method: mean and standard deviation (`_spread`) over splits of accuracy, log loss, expected calibration error (`ece`, 15
bins of equal width; Guo et al. 2017) and CPU seconds, which include the selection of settings, but not grounding.
`differences` are those of relcrf minus the rival on the same split, with 95 % t intervals. The splits share papers, so that
they are not independent and the intervals are too narrow for conclusions about other networks. `wins_over_gcn` is the number
of splits in which relcrf has the higher accuracy, per task and over all tasks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import scipy.sparse as sp  # noqa: E402
from few_label_rivals import RIVALS, Effort, NodeTask, accuracy_and_loss  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from scipy import stats  # noqa: E402
from support import ROOT, BenchmarkParser, ResultCache, sized  # noqa: E402

import relcrf  # noqa: E402
from relcrf import api  # noqa: E402
from relcrf.grounding.grounding import Grounding  # noqa: E402

sys.path.insert(0, str(ROOT / "datasets"))
from real import cora  # noqa: E402

TASKS: Mapping[str, int | float] = {"cora_20": 20, "cora_5": 5, "cora_60": 0.6}
"""Number of training labels per class, or fraction of all labels."""
N_VALID, N_TEST = 500, 1000
MEASURES = ("accuracy", "log_loss", "ece", "seconds")
METHODS = ("relcrf", *RIVALS)
N_BINS = 15
Figures = dict[str, Any]


@dataclass(frozen=True)
class Split:
    """Indices of the papers of one split, ascending; the other papers have no labels.

    Args:
        valid: Papers whose labels are reserved for the choice of settings.
    """

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class PaperGraph:
    """Papers with words, citations and topics.

    Args:
        words: Word counts, shape (n_papers, n_words).
        links: Symmetric adjacency matrix of zeros and ones, shape (n_papers, n_papers).
        label: Topic of each paper, from 0, shape (n_papers,).
        grounding: The same data as the ground graph of models/cora.rcrf; variable k is the topic of paper k.
    """

    words: sp.csr_matrix
    links: sp.csr_matrix
    label: np.ndarray
    model: api.Model
    grounding: Grounding

    @classmethod
    def from_tables(cls, tables: Mapping[str, pd.DataFrame]) -> PaperGraph:
        """Convert the tables of models/cora.rcrf; the papers are numbered from 0."""
        paper, word, cites = tables["paper"], tables["paper_word"], tables["cites"]
        n = len(paper)
        label = np.unique(paper["topic"].to_numpy(), return_inverse=True)[1]
        words = sp.csr_matrix((np.ones(len(word)), (word["paper"], word["word"])), shape=(n, word["word"].max() + 1))
        links = sp.csr_matrix((np.ones(len(cites)), (cites["source"], cites["target"])), shape=(n, n))
        links.setdiag(0)
        links = ((links + links.T) > 0).astype(float)
        links.eliminate_zeros()
        model = api.load(ROOT / "models" / "cora.rcrf")
        grounding = model.ground(relcrf.Dataset(tables))
        assert (paper["id"] == np.arange(n)).all() and (grounding.states == label).all()
        return cls(words, links, label, model, grounding)

    def node_task(self, split: Split) -> NodeTask:
        """Return the task of the rivals, without the test labels."""
        label = np.full(len(self.label), -1)
        for part in (split.train, split.valid):
            label[part] = self.label[part]
        return NodeTask(self.words, self.links, label, int(self.label.max()) + 1, split.train, split.valid)


def draw_split(
    label: np.ndarray, amount: int | float, seed: int, n_valid: int = N_VALID, n_test: int = N_TEST
) -> Split:
    """Draw disjoint training, validation and test sets.

    Args:
        amount: Number of training labels per class, or fraction of all labels as a float.
        n_test: Maximum number of test labels.
    """
    order = np.random.default_rng(seed).permutation(len(label))
    chosen = np.zeros(len(label), dtype=bool)
    if isinstance(amount, float):
        chosen[order[: int(amount * len(label))]] = True
    else:
        for k in np.unique(label):
            chosen[order[label[order] == k][:amount]] = True
    rest = order[~chosen[order]]
    return Split(np.flatnonzero(chosen), np.sort(rest[:n_valid]), np.sort(rest[n_valid : n_valid + n_test]))


def relcrf_probabilities(
    model: api.Model, grounding: Grounding, train: np.ndarray, valid: np.ndarray, test: np.ndarray
) -> np.ndarray:
    """Return relcrf's probabilities of the test papers with default settings, shape (len(test), n_classes).

    Args:
        train: Papers whose labels are used in training and as evidence.
        valid: Papers whose labels are reserved for the choice of settings; backend ess has no such choice.
    """
    hidden = np.ones(grounding.graph.n_variables, dtype=bool)
    hidden[train] = False
    fit = api.fit(model, grounding, "ess", hidden=hidden)
    found = api.predict(fit, grounding, hidden=hidden)
    return found.probabilities()[np.searchsorted(found.variables(), test)]


def calibration_error(table: np.ndarray, label: np.ndarray) -> float:
    """Return the expected calibration error of the most probable classes."""
    confidence, correct = table.max(axis=1), table.argmax(axis=1) == label
    index = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    return float(np.abs(np.bincount(index, confidence - correct)).sum() / len(label))


def measure(graph: PaperGraph, split: Split, method: str, seed: int, effort: Effort) -> Figures:
    """Return the scores of a method on the test labels of a split, its CPU seconds, and the selected settings."""
    truth = graph.label[split.test]
    start = time.process_time()
    if method == "relcrf":
        table = relcrf_probabilities(graph.model, graph.grounding, split.train, split.valid, split.test)
        chosen: dict[str, Any] = {}
    else:
        result = RIVALS[method](graph.node_task(split), seed, effort)
        table, chosen = result.probabilities[split.test], result.chosen
    seconds = time.process_time() - start
    accuracy, loss = accuracy_and_loss(table, truth)
    figures = {"accuracy": accuracy, "log_loss": loss, "ece": calibration_error(table, truth), "seconds": seconds}
    return {**figures, "chosen": chosen}


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float | None]:
    """Return the mean difference and its 95 % t interval; `low` and `high` are None for a single split."""
    difference = np.subtract(ours, theirs)
    mean = float(difference.mean())
    if len(difference) < 2:
        return {"mean": mean, "low": None, "high": None}
    half = float(stats.t.ppf(0.975, len(difference) - 1) * stats.sem(difference))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def summarise(found: Mapping[str, Sequence[Figures]]) -> dict[str, Any]:
    """Return the results of a task: means and standard deviations per method, differences, and wins over the GCN."""
    values = {name: {m: [f[m] for f in each] for m in MEASURES} for name, each in found.items()}
    result: dict[str, Any] = {}
    for name, columns in values.items():
        result[name] = {}
        for measure, column in columns.items():
            result[name][measure] = float(np.mean(column))
            result[name][f"{measure}_spread"] = float(np.std(column, ddof=1)) if len(column) > 1 else 0.0
    if "relcrf" in values:
        ours = values.pop("relcrf")
        result["differences"] = {
            name: {m: paired_difference(ours[m], theirs[m]) for m in ("accuracy", "log_loss")}
            for name, theirs in values.items()
        }
        if "gcn" in values:
            result["wins_over_gcn"] = int(np.greater(ours["accuracy"], values["gcn"]["accuracy"]).sum())
    return result


def show(console: Console, title: str, found: Mapping[str, Sequence[Figures]]) -> None:
    """Print the results of a task."""
    columns = (*MEASURES, "relcrf - rival: accuracy", "log loss", "selected most often")
    table, result = Table("method", *columns, title=title), summarise(found)

    def interval(name: str, measure: str) -> str:
        pair = result.get("differences", {}).get(name, {}).get(measure)
        if pair is None:
            return ""
        limits = "" if pair["low"] is None else f" [{pair['low']:+.3f}, {pair['high']:+.3f}]"
        return f"{pair['mean']:+.3f}{limits}"

    for name, each in found.items():
        row = result[name]
        texts = [" ".join(f"{key}={value}" for key, value in figures["chosen"].items()) for figures in each]
        shown = [f"{row[m]:.3f} ± {row[f'{m}_spread']:.3f}" for m in MEASURES[:-1]]
        differences = (interval(name, m) for m in ("accuracy", "log_loss"))
        table.add_row(name, *shown, f"{row['seconds']:.2f}", *differences, max(texts, key=texts.count))
    console.print(table)


def main() -> None:
    parser = BenchmarkParser(
        __doc__, quick="one split per task, one setting of networks, two hops of SGC, at most 200 epochs"
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--splits", type=int, default=10, help="number of random splits")
    parser.add_argument("--cache", type=Path, help="file of cached results")
    options = parser.parse_args()
    n_splits = sized(options, options.splits, 1, 1)
    effort = sized(options, Effort(), Effort(max_settings=1, max_epochs=200), Effort(max_settings=1, max_epochs=2))
    console, cache, result = Console(width=180), ResultCache(options.cache), dict[str, Any]()
    graph = PaperGraph.from_tables(cora())
    measure(graph, draw_split(graph.label, 1, 0), "relcrf", 0, effort)  # compile or load the kernels
    for task in options.tasks:
        found: dict[str, list[Figures]] = {name: [] for name in options.methods}
        for seed in range(n_splits):
            split = draw_split(graph.label, TASKS[task], seed)
            for name, results in found.items():
                work = [task, seed, name, effort.max_settings, effort.max_epochs]
                results.append(cache.get(work, partial(measure, graph, split, name, seed, effort)))
        show(console, f"{task}: {n_splits} splits, {len(split.train)} training, {len(split.test)} test labels", found)
        result[task] = summarise(found)
    wins = [result[task].get("wins_over_gcn") for task in options.tasks]
    result["wins_over_gcn"] = None if None in wins else sum(wins)
    print(json.dumps({"splits": n_splits, **result}))


if __name__ == "__main__":
    main()
