"""Evidence-specific trees, compared with a fixed tree and a dense model, as in figure 1 of Chechetka & Guestrin (2010).

    RELCRF_DATA=... python benchmarks/sensors.py --cache sensors.jsonl --plot sensors.png

Test log-likelihood per row over the number of training rows, for temperature and traffic, with rows at random and with blocks
of time held out; mean and standard error over several splits. Then rows whose best tree depends on the evidence by
construction: the fraction of true edges that are selected. The strengths of L2 and of structure regularisation
(`min_fraction` from the paper, or pooling) are selected separately for each method on a fifth of the training rows, sampled
as the test rows are: single rows or blocks of time.

The dense model is learned by pseudo-likelihood, and its likelihood is estimated by the Bethe approximation, which is
unreliable with large weights: it may be above 0. The mean-field log partition function is a lower bound, so its likelihood is
an upper bound: `dense` is the lower of the two, and `dense_bound` is the mean-field bound.

With `--cache`, each result is written to a file when it is measured, so that an interrupted run can be resumed.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from support import ROOT, BenchmarkParser, ResultCache, sized

import relcrf
from relcrf import api

sys.path.insert(0, str(ROOT / "datasets"))
import sensors
import switching

METHODS = {
    "ess": "ESS",
    "ess_least_share": "ESS, least share",
    "ess_regularised": "ESS regularised",
    "chow_liu": "fixed tree",
    "dense": "dense",
}
SHOWN = {
    **METHODS,
    "dense_bound": "dense is below",
    "ess_gain": "ESS - fixed",
    "ess_regularised_gain": "regularised - fixed",
}
DATA = {"temperature": sensors.temperature, "traffic": sensors.traffic}
WITH_ALL_ROWS = ("traffic",)
"""Data that are also measured with all rows available for training; temperature has nearly three times as many rows."""
PREFIX = {
    ("temperature", False): "",
    ("traffic", False): "traffic_",
    ("temperature", True): "blocks_",
    ("traffic", True): "traffic_blocks_",
}
L2 = {"ess": (0.03, 0.3, 3.0, 10.0), "chow-liu": (0.03, 0.3, 3.0, 10.0), "dense": (10.0, 30.0, 100.0)}
"""Strengths of L2 to select from; the best one of each method is inside its range, and the dense model needs the largest."""
SWITCHING_L2 = (1.0, 3.0)
MIN_SORTED_FRACTION = (0.1, 0.3)
POOLING = (0.0, 0.3, 0.6, 0.9, 1.0)
TEST_ROWS = 200
ITERATIONS = {"ess": 60, "chow-liu": 400, "dense": 60}
"""Iteration limits. The fixed tree needs a small L2 and more iterations: with 60 it was 0.6 nats worse on 1,000 rows."""
TOLERANCE = 1e-4
MEMORY = "8GB"
CONSOLE = Console(width=150)

Figures = dict[str, float]


def all_pairs(n: int) -> np.ndarray:
    """Return all pairs i < j, shape (n_pairs, 2)."""
    return np.array(list(combinations(range(n), 2)))


def measure_methods(readings: sensors.Readings, n: int, seed: int, in_blocks: bool) -> Figures:
    """Return the test log-likelihood per row of each method, and the selected settings."""
    model = relcrf.load(ROOT / "models" / "sensors_evidence.rcrf")
    pool, held = sensors.split(readings, seed, in_blocks=in_blocks)
    training, test = pool[:n], held[:TEST_ROWS]
    grounding = model.ground(relcrf.Dataset(sensors.tables(readings, pool, training), memory=MEMORY))
    # Training and test have the same codes, because both contain every sensor.
    asked = model.ground(relcrf.Dataset(sensors.tables(readings, pool, test), memory=MEMORY))

    def likelihood(backend: str, methods: tuple[str, ...] = (), **settings: Any) -> list[float]:
        fit = learn(model, grounding, backend, **settings)
        ways: list[dict[str, Any]] = [{"inference": method} for method in methods] or [{}]
        return [api.joint_log_likelihood(fit, asked, **way) / len(test) for way in ways]

    hold = (
        {"held_out": np.repeat(sensors.validation_rows(readings, training, seed), len(readings.targets))}
        if in_blocks
        else {}
    )
    ess = selected_ess(grounding, L2["ess"], hold)
    fixed = {"l2": select(grounding, "chow-liu", {"l2": L2["chow-liu"]}, **hold)[0]["l2"]}
    dense = {"l2": selected_dense(grounding, hold), "objective": "pseudo"}
    bethe, bound = likelihood("dense", ("bp", "mf"), **dense)
    # Often the best settings are those without regularisation, or the same for both kinds.
    different = {tuple(settings.items()): settings for settings in ess.values()}
    measured = {key: likelihood("ess", **settings)[0] for key, settings in different.items()}
    return {
        **{name: measured[tuple(settings.items())] for name, settings in ess.items()},
        "chow_liu": likelihood("chow-liu", **fixed)[0],
        "dense": min(bethe, bound),
        "dense_bound": bound,
        **{f"{setting}_{name}": value for name, settings in ess.items() for setting, value in settings.items()},
        "l2_chow_liu": fixed["l2"],
        "l2_dense": dense["l2"],
    }


def limits(backend: str) -> dict[str, Any]:
    """Return the settings that all runs of a backend share; likelihoods on the structure are exact."""
    structure = {"edges": "tree"} if backend == "ess" else {}
    return {"max_iterations": ITERATIONS[backend], "tolerance": TOLERANCE, **structure}


def learn(model: api.Model, grounding: api.Grounding, backend: str, **settings: Any) -> api.Fit:
    return api.fit(model, grounding, backend, **limits(backend), **settings)


def select(grounding: api.Grounding, backend: str, grid: dict[str, Any], **settings: Any) -> list[dict[str, Any]]:
    """Return the settings that were evaluated on a fifth of the training rows, the best first."""
    rows = api.select(grounding, backend, grid, seed=0, **settings, **limits(backend)).rows
    return sorted(rows, key=lambda row: -row["log_likelihood"])


def selected_ess(
    grounding: api.Grounding, l2: tuple[float, ...], hold: dict[str, Any] | None = None
) -> dict[str, dict[str, float]]:
    """Return the best settings without structure regularisation, with the paper's only, and with either kind."""
    shares = select(grounding, "ess", {"l2": l2, "min_fraction": MIN_SORTED_FRACTION}, **hold or {})
    pooled = select(grounding, "ess", {"l2": l2, "pooling": POOLING}, **hold or {})
    plain = next(row for row in pooled if row["pooling"] == 0.0)
    candidates = {"ess": [plain], "ess_least_share": [plain, *shares], "ess_regularised": [*pooled, *shares]}
    best = {name: max(rows, key=lambda row: row["log_likelihood"]) for name, rows in candidates.items()}
    return {name: {k: row[k] for k in ("l2", "min_fraction", "pooling") if k in row} for name, row in best.items()}


def selected_dense(grounding: api.Grounding, hold: dict[str, Any]) -> float:
    """Return the L2 strength with the highest lower estimate (Bethe or mean field) of the held-out likelihood."""
    lower = dict.fromkeys(L2["dense"], np.inf)
    for method in ("bp", "mf"):
        for row in select(grounding, "dense", {"l2": L2["dense"]}, objective="pseudo", inference=method, **hold):
            lower[row["l2"]] = min(lower[row["l2"]], row["log_likelihood"])
    return max(lower, key=lambda l2: lower[l2])


def measure_switching(n: int, seed: int) -> Figures:
    """Return the log-likelihoods per row on new rows, and the fraction of true edges among the selected ones."""
    rng = np.random.default_rng(seed)
    world = switching.make_switching_trees(rng)
    rows, test = switching.draw_rows(world, n, rng), switching.draw_rows(world, 1_000, rng)
    model = relcrf.parse(switching.MODEL, "switching")
    pairs = all_pairs(switching.VARIABLES)
    everywhere = np.broadcast_to(pairs, (switching.LEVELS, *pairs.shape))
    found: Figures = {"generator": switching.log_likelihood(world, test)}
    all_edges, true_pairs = (
        [model.ground(relcrf.Dataset(switching.tables(r, c), memory=MEMORY)) for r in (rows, test)]
        for c in (everywhere, world.trees)
    )
    settings: dict[str, tuple[str, dict[str, float]]]
    settings = {name: ("ess", found) for name, found in selected_ess(all_edges[0], SWITCHING_L2).items()}
    for name, backend in (("chow_liu", "chow-liu"), ("true_structures", "ess")):
        tried = select((true_pairs if name == "true_structures" else all_edges)[0], backend, {"l2": SWITCHING_L2})
        settings[name] = backend, {"l2": tried[0]["l2"]}
    for name, (backend, chosen) in settings.items():
        training, asked = true_pairs if name == "true_structures" else all_edges
        fit = learn(model, training, backend, **chosen)
        found[name] = api.joint_log_likelihood(fit, asked) / len(test.states)
        edges = api.predict(fit, asked, hidden=np.ones(asked.graph.n_variables, dtype=bool)).inferred.edges
        found[f"{name}_share"] = share_of_true_edges(world, test, edges)
    return found


def share_of_true_edges(world: switching.SwitchingTrees, rows: switching.SwitchingRows, edges: np.ndarray) -> float:
    """Return the fraction of the true edges of all rows that are in `edges`, pairs of variables by row, shape (m, 2)."""
    row, ends = edges[:, 0] // switching.VARIABLES, np.sort(edges % switching.VARIABLES, axis=1)
    true = np.zeros((switching.LEVELS, switching.VARIABLES, switching.VARIABLES), dtype=bool)
    for level, tree in enumerate(np.sort(world.trees, axis=2)):
        true[level, tree[:, 0], tree[:, 1]] = True
    right = true[rows.levels[row, 0], ends[:, 0], ends[:, 1]].sum()
    return float(right / (len(rows.states) * (switching.VARIABLES - 1)))


def mean_and_spread(values: list[float]) -> tuple[float, float]:
    """Return a mean and its standard error, which is 0 for one value."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(np.mean(values)), float(error)


def plot(found: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    titles = {PREFIX[k]: f"{k[0]}, {'blocks of time' if k[1] else 'rows at random'}" for k in PREFIX}
    figure, axes = plt.subplots(2, 2, figsize=(8, 6), layout="constrained")
    for axis, (prefix, title) in zip(axes.flat, titles.items(), strict=True):
        for (name, label), mark in zip(METHODS.items(), "osDv^", strict=True):
            rows, error = found[f"{prefix}rows"], found[f"{prefix}{name}_spread"]
            axis.errorbar(rows, found[f"{prefix}{name}"], yerr=error, marker=mark, capsize=3, label=label)
        axis.set(xscale="log", title=title, xlabel="training rows", ylabel="nats per row")
        axis.set_xticks(rows, labels=[f"{n:,}" for n in rows], minor=False, rotation=30)
        axis.set_xticks([], minor=True)
    axes[0, 0].legend()
    figure.savefig(path, dpi=100)


def likelihoods(
    readings: sensors.Readings, in_blocks: bool, options: argparse.Namespace, kept: ResultCache
) -> dict[str, Any]:
    """Return means and standard errors of each method over the splits, as lists over rows, and print a table."""
    how = "whole blocks of time held out" if in_blocks else "rows at random"
    table = Table("rows", *SHOWN.values(), title=f"{readings.name}, {how}: log-likelihood per row, nats")
    most = len(sensors.split(readings, 0, in_blocks=in_blocks)[0])
    with_all = readings.name in WITH_ALL_ROWS and not options.quick
    found: dict[str, Any] = {"rows": sorted({min(n, most) for n in (*options.rows, *[most] * with_all)})}
    for n in found["rows"]:
        each = []
        for seed in range(options.splits):
            work = [readings.name, len(readings.targets), in_blocks, n, seed]
            figures = kept.get(work, partial(measure_methods, readings, n, seed, in_blocks))
            # Differences on the same split: the variation between splits cancels.
            gains = {f"{name}_gain": figures[name] - figures["chow_liu"] for name in ("ess", "ess_regularised")}
            each.append({**figures, **gains})
        shown = []
        for name in SHOWN:
            mean, error = mean_and_spread([figures[name] for figures in each])
            found.setdefault(name, []).append(mean)
            found.setdefault(f"{name}_spread", []).append(error)
            shown.append(f"{mean:.2f} ± {error:.2f}")
        table.add_row(f"{n:,}", *shown)
    CONSOLE.print(table)
    return found


def switching_trees(n: int, seeds: int, kept: ResultCache) -> dict[str, Any]:
    """Return means and standard errors over worlds, and print a table."""
    each = [kept.get(["switching", n, seed], partial(measure_switching, n, seed)) for seed in range(1, seeds + 1)]
    table = Table("figure", "mean", "spread", title=f"switching trees: {n:,} rows")
    found: dict[str, Any] = {"rows": n}
    for name in each[0]:
        mean, error = mean_and_spread([figures[name] for figures in each])
        found[name], found[f"{name}_spread"] = mean, error
        table.add_row(name.replace("_", " "), f"{mean:.3f}", f"{error:.3f}")
    CONSOLE.print(table)
    return found


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="six sensors of each dataset, few rows, two splits")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[100, 300, 1_000], help="numbers of training rows; traffic also uses all"
    )
    parser.add_argument("--splits", type=int, default=3, help="number of splits")
    parser.add_argument("--cache", type=Path, help="file of cached results")
    parser.add_argument("--plot", type=Path, help="file of the plot (requires Matplotlib)")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.splits = sized(options, None, ([50, 150], 2), ([20], 1))
    kept = ResultCache(options.cache)
    found: dict[str, Any] = {"splits": options.splits}
    for (name, in_blocks), prefix in list(PREFIX.items())[: sized(options, None, None, 2)]:
        readings = DATA[name]().with_targets(6) if options.quick else DATA[name]()
        figures = likelihoods(readings, in_blocks, options, kept)
        found.update((f"{prefix}{key}", value) for key, value in figures.items())
    n, seeds = sized(options, (10_000, options.splits), (500, 1), (60, 1))
    found.update((f"switching_{key}", value) for key, value in switching_trees(n, seeds, kept).items())
    CONSOLE.print("The dense model's likelihoods are estimates; if one equals its bound, only the bound is known.")
    if options.plot:
        plot(found, options.plot)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
