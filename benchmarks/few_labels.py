"""Node classification with few labels: relcrf with default settings, compared with methods of semi-supervised learning.

    RELCRF_DATA=... python benchmarks/few_labels.py
    python benchmarks/few_labels.py --axes --out results

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

`--axes` compares the same methods on 2,000 papers of datasets/stochastic_blocks.py instead, and varies the mean degree, the
homophily, the number of training labels per topic or the word signal, around a setting with four citations per paper, of
which 70 % are within a topic, 20 labels per topic, and 20 % of words from the topic. Each draw has another network and
another split. It writes a table, `few_labels_axes.json`, and a figure, `few_labels_axes.svg` and `.png`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
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
from relcrf.report.plot import new_figure, save_picture  # noqa: E402

sys.path.insert(0, str(ROOT / "datasets"))
from real import cora  # noqa: E402
from stochastic_blocks import BlockModel, make_papers  # noqa: E402

TASKS: Mapping[str, int | float] = {"cora_20": 20, "cora_5": 5, "cora_60": 0.6}
"""Number of training labels per class, or fraction of all labels."""
N_VALID, N_TEST = 500, 1000
MEASURES = ("accuracy", "log_loss", "ece", "seconds")
METHODS = ("relcrf", *RIVALS)
N_BINS = 15
Figures = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """One parameter of the synthetic networks, and its values.

    Args:
        label: Label of the horizontal axis.
        is_log: Whether the horizontal axis is logarithmic.
    """

    label: str
    values: tuple[float, ...]
    is_log: bool = False


AXES = {
    "degree": Axis("mean degree", (1, 2, 4, 8, 16), is_log=True),
    "homophily": Axis("homophily (0.2: none)", (0.0, 0.1, 0.2, 0.45, 0.7, 0.95)),
    "labels": Axis("training labels per topic", (2, 5, 20, 60, 150), is_log=True),
    "signal": Axis("word signal", (0.0, 0.1, 0.2, 0.4, 0.7)),
}
CENTRE = {"degree": 4, "homophily": 0.7, "labels": 20, "signal": 0.2}
"""The setting around which one parameter at a time is varied."""
STYLES = {
    "relcrf": ("black", "o", 2.4),
    "logistic": ("#999999", "s", 1.2),
    "propagation": ("#e69f00", "^", 1.2),
    "sgc": ("#56b4e9", "v", 1.2),
    "correct_smooth": ("#009e73", "D", 1.2),
    "appnp": ("#cc79a7", "P", 1.2),
    "gcn": ("#d55e00", "X", 1.2),
}
"""Colour (Okabe & Ito), marker and line width of each method in the figure."""


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
        valid: Papers whose labels are reserved for the choice of the backend and its settings.
    """
    hidden, validation = (
        np.ones(grounding.graph.n_variables, dtype=bool),
        np.zeros(grounding.graph.n_variables, dtype=bool),
    )
    hidden[train], validation[valid] = False, True
    fit = api.fit(model, grounding, hidden=hidden, validation=validation)
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


def first_papers(n: int | None) -> dict[str, pd.DataFrame]:
    """Return the tables of the first papers of Cora; of all papers if `n` is None."""
    keys, tables = {"paper": ["id"], "paper_word": ["paper"], "cites": ["source", "target"]}, cora()
    return tables if n is None else {name: tables[name][(tables[name][keys[name]] < n).all(axis=1)] for name in keys}


def run_tasks(options: argparse.Namespace, effort: Effort, cache: ResultCache, console: Console) -> dict[str, Any]:
    """Compare the methods on Cora."""
    n_splits = sized(options, options.splits or 10, 1, 1)
    n_valid, n_test = sized(options, (N_VALID, N_TEST), (N_VALID, N_TEST), (100, 200))
    graph, result = PaperGraph.from_tables(first_papers(sized(options, None, None, 500))), dict[str, Any]()
    if not options.smallest:
        measure(graph, draw_split(graph.label, 1, 0), "relcrf", 0, effort)  # compile or load the kernels
    for task in options.tasks:
        found: dict[str, list[Figures]] = {name: [] for name in options.methods}
        for seed in range(n_splits):
            split = draw_split(graph.label, TASKS[task], seed, n_valid, n_test)
            for name, results in found.items():
                work = [task, seed, name, effort.max_settings, effort.max_epochs]
                results.append(cache.get(work, partial(measure, graph, split, name, seed, effort)))
        show(
            console,
            f"{task}; splits: {n_splits}, training labels: {len(split.train)}, test labels: {len(split.test)}",
            found,
        )
        result[task] = summarise(found)
    wins = [result[task].get("wins_over_gcn") for task in options.tasks]
    return {"splits": n_splits, **result, "wins_over_gcn": None if None in wins else sum(wins)}


def run_axes(options: argparse.Namespace, effort: Effort, cache: ResultCache, console: Console) -> dict[str, Any]:
    """Compare the methods on synthetic networks, and write the table and the figure."""
    n_papers, n_valid = sized(options, (2000, N_VALID), (2000, N_VALID), (200, 30))
    n_splits = sized(options, options.splits or 5, 1, 1)

    @lru_cache(maxsize=1)
    def network(degree: float, homophily: float, signal: float, seed: int) -> PaperGraph:
        model = BlockModel(n_papers, degree=degree, homophily=homophily, signal=signal)
        return PaperGraph.from_tables(make_papers(model, np.random.default_rng(seed)).tables())

    def measure_point(point: Mapping[str, float], seed: int, name: str) -> Figures:
        graph = network(point["degree"], point["homophily"], point["signal"], seed)
        split = draw_split(graph.label, int(point["labels"]), seed, n_valid)
        return measure(graph, split, name, seed, effort)

    if not options.smallest:
        measure_point(CENTRE, 0, "relcrf")  # compile or load the kernels
    result: dict[str, Any] = {}
    for name, axis in AXES.items():
        values = sized(options, axis.values, axis.values[::2], axis.values[:2])
        rows: list[dict[str, list[Figures]]] = []
        for value in values:
            found: dict[str, list[Figures]] = {method: [] for method in options.methods}
            point = {**CENTRE, name: value}
            for seed in range(n_splits):
                for method, results in found.items():
                    work = ["axes", n_papers, *point.values(), seed, method, effort.max_settings, effort.max_epochs]
                    results.append(cache.get(work, partial(measure_point, point, seed, method)))
            rows.append(found)
        summaries = [summarise(found) for found in rows]
        methods = {m: {key: [row[m][key] for row in summaries] for key in summaries[0][m]} for m in options.methods}
        result[name] = {"values": list(values), **methods}
        table = Table(axis.label, *options.methods, title=f"accuracy; number of networks: {n_splits}")
        for k, value in enumerate(values):
            cells = ((methods[m]["accuracy"][k], methods[m]["accuracy_spread"][k]) for m in options.methods)
            table.add_row(f"{value:g}", *(f"{mean:.3f} ± {spread:.3f}" for mean, spread in cells))
        console.print(table)
    result = {"splits": n_splits, "papers": n_papers, "centre": CENTRE, **result}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "few_labels_axes.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for suffix in (".svg", ".png"):
        save_picture(partial(draw_axes, result), options.out / f"few_labels_axes{suffix}", dpi=150)
    return result


def draw_axes(result: Mapping[str, Any]) -> Any:
    """Return the figure of the accuracies, with a panel per axis; bars are standard errors of the means."""
    figure = new_figure((9.0, 7.0), layout="constrained")
    panels = figure.subplots(2, 2, sharey=True)
    for panel, (name, axis) in zip(panels.flat, AXES.items(), strict=True):
        found = result[name]
        for method, (colour, marker, width) in STYLES.items():
            if method in found:
                error = np.array(found[method]["accuracy_spread"]) / np.sqrt(result["splits"])
                style = {"color": colour, "marker": marker, "linewidth": width, "markersize": 5, "elinewidth": 0.8}
                order = 3 if method == "relcrf" else 2
                panel.errorbar(found["values"], found[method]["accuracy"], error, label=method, zorder=order, **style)
        if axis.is_log:
            panel.set_xscale("log")
            panel.minorticks_off()
        panel.set_xticks(found["values"], [f"{value:g}" for value in found["values"]])
        panel.set_xlabel(axis.label)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.axvline(CENTRE[name], color="#bbbbbb", linewidth=0.8, linestyle=":")
    for panel in panels[:, 0]:
        panel.set_ylabel("test accuracy")
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(STYLES))
    return figure


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one split, one setting of networks, two hops of SGC, at most 200 epochs")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--splits", type=int, help="number of random splits: 10, or 5 networks with --axes")
    parser.add_argument("--cache", type=Path, help="file of cached results")
    parser.add_argument("--axes", action="store_true", help="vary degree, homophily, labels and words")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the table and the figure of --axes")
    options = parser.parse_args()
    effort = sized(options, Effort(), Effort(max_settings=1, max_epochs=200), Effort(max_settings=1, max_epochs=2))
    run = run_axes if options.axes else run_tasks
    print(json.dumps(run(options, effort, ResultCache(options.cache), Console(width=180))))


if __name__ == "__main__":
    main()
