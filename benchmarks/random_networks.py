"""Contrastive feature induction on the random networks of section 4.1 of Lao & Zhu (2014): figures 1 to 3.

    python benchmarks/random_networks.py --plots docs/pictures

A network has N binary states (0 or 1) without biases. Each pair of states is an edge with probability 5 / (N - 1), with a
uniform weight in [-5, 5] that is added if both states are 1. There are 200 rows for training and 200 for tests. Each row is
the end of a separate Gibbs chain of 200 sweeps (10,000 updates of single states if N = 50), so that rows are independent;
the paper draws from one chain, with a burn-in of 10,000 and a thinning of 1,000. States that are 0 in all rows are removed.
In test rows, a fifth of the states is hidden and predicted given the rest, by mean field. Pairs have an L1 penalty of 2, all
weights an L2 penalty of 1; 50 pairs are added per round.

`full`, `grafting` and `cfi` are the values of the setting `structure` of backend `trmrf`. `cfi` has equal thresholds of errors
and signals. It is the paper's algorithm, without the final test of the exact gradients; `cfi, tested` includes this test.
`true graph` has the network's edges as templates, with the same L2 penalty and without L1.

The first part compares thresholds from 0 to .9 on networks of one size; the second part compares the methods on networks of
several sizes, with thresholds .2 for `cfi`. Results are means over networks; `..._error` is the standard error of the mean.
With `--cache`, each result is written to a file when it is measured, so that an interrupted run can be resumed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from network_task import TRUE_MODEL, Figures, NetworkTask, sparse_networks
from rich.console import Console
from rich.table import Table
from support import BenchmarkParser, ResultCache, sized

ROWS, TEST_ROWS = 200, 200
SINGLE_ABOVE = 200
"""Number of states above which only one network is measured."""
SWEEPS = 200
"""Sweeps of each Gibbs chain; after 50, marginals differ from those after 5,000 only by the sampling error."""
PENALTIES: Mapping[str, Any] = {
    "backend": "trmrf",
    "l1": 2.0,
    "l2": 1.0,
    "candidates_per_round": 50,
    "max_iterations": 2_000,
}
METHODS: Mapping[str, Mapping[str, Any]] = {
    "full": {**PENALTIES, "structure": "full"},
    "grafting": {**PENALTIES, "structure": "grafting"},
    "cfi": {**PENALTIES, "structure": "cfi", "final_test": False},
    "cfi, tested": {**PENALTIES, "structure": "cfi"},
    "true graph": {"backend": "pseudo", "inference": "mf", "l2": 1.0},
}
THRESHOLD = 0.2
"""The paper's threshold of errors and signals."""
THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MEASURES = ("seconds", "features", "true", "edges", "error", "cll", "auc")
PANELS = {"seconds": "CPU seconds", "features": "selected pairs", "error": "error %", "cll": "CLL", "auc": "AUC"}
console = Console(width=150)


@lru_cache(maxsize=3)
def make_task(n_states: int, seed: int) -> NetworkTask:
    """Return a task on a random network."""
    rng = np.random.default_rng([n_states, seed])
    network = sparse_networks.make_bernoulli_network(n_states, rng)
    rows = sparse_networks.draw_gibbs(network, ROWS + TEST_ROWS, rng, SWEEPS)
    varies = rows.any(axis=0)  # states that are never 1 are not in the tables
    return NetworkTask.from_rows(network.restrict_to(varies), rows[:, varies], TEST_ROWS, rng)


def measure(n_states: int, seed: int, method: str, threshold: float = THRESHOLD) -> Figures:
    """Return the figures of a method on a random network; those of a structure learner include histograms."""
    settings = dict(METHODS[method])
    if method.startswith("cfi"):
        settings |= {"error_threshold": threshold, "signal_threshold": threshold}
    text = TRUE_MODEL if method == "true graph" else sparse_networks.MODEL
    fit, figures = make_task(n_states, seed).measure(settings, text)
    phases = {
        name: {phase: one.as_dict() for phase, one in by_phase.items()}
        for name, by_phase in fit.learned.histograms.items()
    }
    return {**figures, "histograms": phases}


def summary(each: list[Figures]) -> Figures:
    """Return means over networks and their standard errors, which are 0 for one network."""
    found: Figures = {"networks": len(each)}
    for name in MEASURES:
        values = [figures[name] for figures in each]
        found[name] = float(np.mean(values))
        found[f"{name}_error"] = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return found


def show(title: str, found: Mapping[str, Figures]) -> None:
    table = Table("", "networks", *MEASURES, title=title)
    for name, row in found.items():
        texts = [f"{row[m]:,.3f} ± {row[f'{m}_error']:.3f}" for m in MEASURES]
        table.add_row(name, f"{row['networks']}", *texts)
    console.print(table)


def plot_histograms(histograms: Figures, path: Path) -> None:
    """Plot the fractions of errors and signals in bins; signals do not change during training."""
    figure, axes = _panels(2)
    for axis, (name, phases) in zip(axes, histograms.items(), strict=True):
        for phase, plain in list(phases.items())[: 1 if name == "signals" else None]:
            counts = np.asarray(plain["counts"]).reshape(-1, 2).sum(axis=1)
            axis.stairs(counts / counts.sum(), plain["edges"][::2], label=phase)
        for sign in (-1, 1):
            axis.axvline(sign * THRESHOLD, linestyle=":", color="gray")
        axis.set_yscale("log")
        axis.set_xlabel(name.removesuffix("s"))
        axis.set_ylabel("fraction of the cells")
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=130)


def plot_thresholds(found: Mapping[str, list[Figures]], values: tuple[float, ...], path: Path) -> None:
    """Plot CPU seconds, selected pairs and error over the threshold; `grafting` is a horizontal line."""
    figure, axes = _panels(3)
    for axis, measure_name in zip(axes, ("seconds", "features", "error"), strict=True):
        for k, (method, rows) in enumerate(found.items()):
            if method == "grafting":
                axis.axhline(rows[0][measure_name], linestyle=":", color="gray", label=method)
            else:
                _draw(axis, values, rows, measure_name, method, k)
        axis.set_xlabel("threshold of errors and signals")
        axis.set_ylabel(PANELS[measure_name])
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=130)


def plot_sizes(found: Mapping[int, Mapping[str, Figures]], path: Path) -> None:
    """Plot CPU seconds, error, CLL and AUC over the number of states."""
    figure, axes = _panels(4)
    for axis, measure_name in zip(axes, ("seconds", "error", "cll", "auc"), strict=True):
        for k, method in enumerate(METHODS):
            sizes = [n for n, rows in found.items() if method in rows]
            _draw(axis, sizes, [found[n][method] for n in sizes], measure_name, method, k)
        axis.set_xscale("log")
        axis.set_xticks(list(found), [f"{n:,}" for n in found])
        axis.set_xticks([], minor=True)
        axis.set_xlabel("states")
        axis.set_ylabel(PANELS[measure_name])
    axes[0].set_yscale("log")
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=130)


def _draw(axis: Any, places: Any, rows: list[Figures], name: str, label: str, number: int) -> None:
    """Draw the means as line `number` with bars of one standard error; markers shrink, so that equal points are visible."""
    means, errors = [row[name] for row in rows], [row[f"{name}_error"] for row in rows]
    size = 12 - 2 * number
    axis.errorbar(places, means, errors, marker="o", markersize=size, capsize=2, label=label, color=f"C{number}")


def _panels(n: int) -> tuple[Any, Any]:
    """Return a figure and its panels, at most two per row or three if there are three."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    n_columns = 3 if n == 3 else 2
    n_rows = n // n_columns
    figure = Figure(figsize=(3.6 * n_columns + 1, 3.6 * n_rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(n_rows, n_columns, squeeze=False).ravel()


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one network of 50 states")
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 100, 200, 500, 1_000], help="numbers of states")
    parser.add_argument("--networks", type=int, default=2, help=f"number of networks of at most {SINGLE_ABOVE} states")
    parser.add_argument("--states", type=int, default=100, help="number of states of the networks for the thresholds")
    parser.add_argument("--full-up-to", type=int, default=500, help="maximum number of states for `full`")
    parser.add_argument("--cache", type=Path, help="file of cached results")
    parser.add_argument("--plots", type=Path, help="folder of the plots")
    options: argparse.Namespace = parser.parse_args()
    whole = (options.sizes, options.networks, options.states, THRESHOLDS)
    sizes, n_networks, n_states, values = sized(options, whole, ([50], 1, 50, (0.0, 0.2, 0.6)), ([10], 1, 10, (0.2,)))
    for method in METHODS:  # compile or load the kernels, so that this is not measured
        measure(10, 0, method)
    cache = ResultCache(options.cache)

    def mean(n: int, method: str, threshold: float = THRESHOLD) -> Figures:
        works = [[n, seed, method, threshold] for seed in range(n_networks if n <= SINGLE_ABOVE else 1)]
        return summary([cache.get(work, partial(measure, *work)) for work in works])

    by_threshold = {"grafting": [mean(n_states, "grafting")]}
    for method in ("cfi", "cfi, tested"):
        by_threshold[method] = [mean(n_states, method, value) for value in values]
    for method, rows in by_threshold.items():
        labels = [f"{value:g}" for value in values] if len(rows) > 1 else [""]
        show(f"{n_states:,} states, {method}, thresholds", dict(zip(labels, rows, strict=True)))

    by_size: dict[int, dict[str, Figures]] = {}
    for n in sizes:
        methods = [name for name in METHODS if name != "full" or n <= options.full_up_to]
        by_size[n] = {name: mean(n, name) for name in methods}
        show(f"{n:,} states, thresholds {THRESHOLD}", by_size[n])

    work = [n_states, 0, "cfi", THRESHOLD]
    histograms = cache.get(work, partial(measure, *work))["histograms"]
    if options.plots:
        plot_histograms(histograms, options.plots / "networks_histograms.png")
        plot_thresholds(by_threshold, values, options.plots / "networks_thresholds.png")
        plot_sizes(by_size, options.plots / "networks_sizes.png")
    beyond = {
        name: {phase: plain["n_beyond"] / sum(plain["counts"]) for phase, plain in phases.items()}
        for name, phases in histograms.items()
    }
    results = {"beyond_threshold": beyond, "thresholds": {"values": values, **by_threshold}, "sizes": by_size}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
