"""Accuracy over messages: gates with and without evidence, and L1, on rows of random fields.

    python benchmarks/gated.py --cache gated.jsonl --samples samples

The experiment of Stoyanov & Eisner (2012): rows of 50 binary variables from 200 random factors over four of them; in each
row, a third of the variables is evidence, a third query and a third hidden. Models have all pairs and three iterations of
belief propagation. `error` is the mean over query variables of (belief - truth)^2 on test rows, `messages` is the mean
number of useful messages per row (see docs/explanation/gated.md), counted in the same way for every method. Each method has
a list of message costs or penalties; nothing is selected by test rows within a run. The error at a number of messages is
interpolated between two runs. `difference` is the error of gates with evidence minus that of static gates of the same
field. The *reference* is the prediction of the true field, by long runs of a sampler. `ungated` sends all useful messages.
`paper` follows the paper's protocol: gates with a weight for each pair of variables and each pair of statuses, learned from
the start after three passes of maximum likelihood, and no factors over one variable.

Cora (five folds) and digits (five folds of all images, gates by the distance of two images): the loss with few messages.
Seven tenths of the labels are evidence in training, sampled four times.

Synthetic web (datasets/web.py): `ratio_gated_dense_N` is the CPU time of `gated` for learning and inference on N pages, divided
by that of `dense`; smaller is better.

With `--cache`, each training run is written to a file when it is finished, so that an interrupted benchmark can be resumed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from support import ROOT, BenchmarkParser, ResultCache, medians, sized

import relcrf
from relcrf import api
from relcrf.backends.registry import make_backend
from relcrf.evaluation.selection import StageCache
from relcrf.evaluation.splits import partition_variables
from relcrf.learning.lbfgs import OptimiserState

sys.path.insert(0, str(ROOT / "datasets"))
import faces
import random_fields
import real
from random_fields import INPUT, OUTPUT, FieldRows
from web import make_web

MODELS = Path(__file__).resolve().parent.parent / "models"
BUDGETS = (250, 500, 1_000, 2_000, 3_000)
MESSAGE_COSTS = (4e-5, 1e-4, 2.5e-4, 6e-4, 1.5e-3)
L1_STRENGTHS = (1.0, 2.5, 6.0, 12.0)
"""Strengths of L1 for 1,000 rows."""
WEB_PAGES = (1_000, 10_000)
"""Numbers of pages of the synthetic webs."""
EVIDENCE_L2 = 0.1
"""L2 penalty on the gate weights that all pairs share; it and `l2` in `COMMON` were chosen on fields 1000 and 1001."""
MIN_MESSAGES = 50
"""Minimum number of messages of a run in the plot, which has a logarithmic axis."""
COMMON: dict[str, Any] = {"l2": 1.0, "unlabelled": "marginal", "pretraining_iterations": 0}
OPEN: dict[str, Any] = {"gates": "none"}
UNGATED_L2 = 15.0
"""L2 penalty on the weights of the model without gates or L1, chosen on field 1000."""
PAPER: dict[str, Any] = {
    "schedule": "joint", "optimiser": "adam", "pretraining_iterations": 3,
    "gate_l2": 0.001, "evidence_l2": 0.001, "deviation_l2": 0.001,
}  # fmt: skip
"""Settings of the protocol of Stoyanov & Eisner, for a model without factors over one variable."""
console = Console()


def runs(options: argparse.Namespace, n: int) -> dict[str, list[dict[str, Any]]]:
    """Return the settings of each method's runs for a number of rows."""
    prices = sized(options, MESSAGE_COSTS, MESSAGE_COSTS[1:4:2], MESSAGE_COSTS[:1])
    strengths = sized(options, L1_STRENGTHS, L1_STRENGTHS[2:], L1_STRENGTHS[:1])
    strengths = tuple(strength * n / 1_000 for strength in strengths)  # penalties apply to the sum over rows
    quick = {"max_iterations": 50, "batch_size": 50}
    short: dict[str, Any] = sized(options, {}, quick, {"max_iterations": 2, "batch_size": 3})
    return {
        "gated": [{"message_cost": price, "evidence_l2": EVIDENCE_L2, **short} for price in prices],
        "static": [{"message_cost": price, "gates": "static", **short} for price in prices],
        "group_l1": [{**OPEN, "group_l1": strength, **short} for strength in strengths],
        "l1": [{**OPEN, "l1": strength, "optimiser": "lbfgs", **short} for strength in strengths],
        "ungated": [{**OPEN, "l2": UNGATED_L2, **short}],
        "paper": [{**PAPER, "message_cost": price, **short} for price in prices],
    }


def sample_rows(
    seed: int, n: int, n_test: int, sweeps: int, folder: Path | None
) -> tuple[FieldRows, FieldRows, dict[str, float]]:
    """Return training and test FieldRows and the reference; from the folder if it contains them."""
    path = None if folder is None else folder / f"field_{seed}_{n}_{n_test}.npz"
    if path is not None and path.exists():
        found = np.load(path, allow_pickle=False)
        training, test = (
            FieldRows(found[f"{part}_values"], found[f"{part}_statuses"]) for part in ("training", "test")
        )
        return training, test, dict(zip(("bayes", "bayes_error", "constant"), found["reference"].tolist(), strict=True))
    rng = np.random.default_rng(seed)
    field = random_fields.make_field(rng)
    training, test = (random_fields.make_rows(field, rows, rng, sweeps) for rows in (n, n_test))
    reference = random_fields.estimate_bayes_error(field, test, rng, sweeps)
    constant = random_fields.squared_error_loss(test, random_fields.constant_prediction(training))
    figures = {"bayes": reference.error, "bayes_error": reference.standard_error, "constant": constant}
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {"training_values": training.values, "training_statuses": training.statuses}
        arrays |= {
            "test_values": test.values,
            "test_statuses": test.statuses,
            "reference": np.array(list(figures.values())),
        }
        np.savez(path, **arrays)
    return training, test, figures


class World:
    """The rows of one field, ground for models with and without factors over one variable."""

    def __init__(self, training: FieldRows, test: FieldRows) -> None:
        self.training, self.test = training, test
        self.stages: dict[tuple[Any, ...], OptimiserState] = {}

    @cached_property
    def _whole(self) -> tuple[api.Model, api.Grounding, api.Grounding]:
        return self._ground((MODELS / "random_field.rcrf").read_text(encoding="utf-8"))

    @cached_property
    def _without_unary_factors(self) -> tuple[api.Model, api.Grounding, api.Grounding]:
        text = (MODELS / "random_field.rcrf").read_text(encoding="utf-8")
        return self._ground(text.replace("template alone(r: Row, s: State) over on(r, s) per s", ""))

    def _ground(self, text: str) -> tuple[api.Model, api.Grounding, api.Grounding]:
        """Return a model with the ground training rows, and the ground test rows without outputs."""
        model = relcrf.parse(text)
        training, test = (
            model.ground(relcrf.Dataset(random_fields.tables(rows, with_outputs=rows is self.training)))
            for rows in (self.training, self.test)
        )
        return model, training, test

    def measure(self, method: str, settings: dict[str, Any]) -> dict[str, float]:
        model, training, test = self._without_unary_factors if method == "paper" else self._whole
        observed = (self.training.statuses == INPUT).ravel()
        settings = {**COMMON, **settings}
        monitor = StageCache(make_backend("gated", **settings), self.stages)
        fit = api.fit(model, training, "gated", observed=observed, monitor=monitor, **settings)
        queried = (self.test.statuses == OUTPUT).ravel()
        found = api.predict(fit, test, queried=queried)
        variables, probability = found.variables(), found.probabilities()[:, 1]
        wanted = queried[variables]
        errors = (probability[wanted] - self.test.values.ravel()[variables[wanted]]) ** 2
        n = len(self.test.values)
        return {
            "messages": (found.inferred.n_messages or 0) / n, "error": float(errors.mean()), "infer": found.seconds,
            "training_error": float(fit.summary["loss"]),
            "training_cost": float(fit.summary["cost_per_query"]), **settings,
        }  # fmt: skip


def error_at(points: list[dict[str, float]], budget: float) -> float:
    """Return the error of one method at a number of messages.

    The error is interpolated linearly in the logarithm of the number of messages. If no run has more messages, it is
    that of the run with the most messages; if no run has fewer messages, it is nan.
    """
    ordered = sorted((np.log(max(point["messages"], 1.0)), point["error"]) for point in points)
    return float(np.interp(np.log(budget), *zip(*ordered, strict=True), left=np.nan))


def citations() -> tuple[str, dict[str, Any]]:
    return (MODELS / "cora_words.rcrf").read_text(), real.cora()


def images() -> tuple[str, dict[str, Any]]:
    return (MODELS / "digits.rcrf").read_text() + "\ngate alike by distance(a.pixels, b.pixels)\n", faces.digits(0)


LINKED: dict[str, Any] = {"evidence_fraction": 0.7, "evidence_draws": 4}
LINKS: dict[str, tuple[Callable[[], tuple[str, dict[str, Any]]], dict[str, dict[str, Any]]]] = {
    "cora": (
        citations,
        {
            "ungated": {"gates": "none", "loss": "cross-entropy", "l2": 3.0, "validation_fraction": 0.05},
            "ungated, 1 iteration": {
                "gates": "none", "loss": "cross-entropy", "l2": 3.0, "validation_fraction": 0.05, "bp_iterations": 1,
            },
            "static": {
                "gates": "static", "loss": "cross-entropy", "l2": 3.0, "validation_fraction": 0.05, "bp_iterations": 1,
                "message_cost": 0.02,
            },
            "gated": {"loss": "cross-entropy", "l2": 3.0, "validation_fraction": 0.05, "bp_iterations": 1, "message_cost": 0.02},
        },
    ),
    "digits": (
        images,
        {
            "ungated": {"gates": "none", "validation_fraction": 0.0},
            "ungated, 1 iteration": {"gates": "none", "validation_fraction": 0.0, "bp_iterations": 1},
            "static": {"gates": "static", "validation_fraction": 0.0, "bp_iterations": 1, "message_cost": 0.0005},
            "gated": {"validation_fraction": 0.0, "bp_iterations": 1, "evidence_l2": 0.1, "message_cost": 0.0005},
        },
    ),
}  # fmt: skip


def evaluate_links(name: str, n_folds: int) -> dict[str, dict[str, float]]:
    """Return the means over folds of each method, and print their table."""
    (text, tables), ways = LINKS[name][0](), LINKS[name][1]
    model = relcrf.parse(text)
    grounding = model.ground(relcrf.Dataset(tables))
    split = partition_variables(grounding, "folds=5")
    table = Table(name, "error %", "log-likelihood", "messages", "ms to infer", "s to learn")
    out = {}
    for way, settings in ways.items():
        rows = []
        for fold in split.fold_names[:n_folds]:
            hidden = split.holdout_mask([fold])
            fit = api.fit(model, grounding, "gated", hidden=hidden, **LINKED, **settings)
            found = min((api.predict(fit, grounding, hidden=hidden) for _ in range(3)), key=lambda one: one.seconds)
            score = found.score(subset=hidden)
            each = (
                100 * (1 - score.accuracy),
                score.log_likelihood,
                found.inferred.n_messages or 0,
                1e3 * found.seconds,
            )
            rows.append((*each, fit.seconds))
        means = np.mean(rows, axis=0).tolist()
        out[way] = dict(zip(("error", "log_likelihood", "messages", "infer_ms", "learn"), means, strict=True))
        spread = np.std(rows, axis=0)[0]
        numbers = f"{means[1]:.3f}", f"{means[2]:,.0f}", f"{means[3]:.1f}", f"{means[4]:.1f}"
        table.add_row(way, f"{means[0]:.2f} ± {spread:.2f}", *numbers)
    console.print(table)
    return out


def compare_dense(n: int, repeats: int) -> dict[str, float]:
    """Compare `gated` with `dense` on a synthetic web of n pages, half of which are predicted, and print a table."""
    model, found = relcrf.load(MODELS / "webkb.rcrf"), dict[str, api.Prediction]()
    with tempfile.TemporaryDirectory() as folder:
        make_web(Path(folder), n)
        grounding = model.ground(relcrf.Dataset(Path(folder)))
        hidden = partition_variables(grounding, "part").holdout_mask(["test"])

        def learn_and_infer(backend: str) -> None:
            found[backend] = api.predict(api.fit(model, grounding, backend, hidden=hidden), grounding, hidden=hidden)

        backends = ("gated", "dense")
        seconds = medians(repeats, *(partial(learn_and_infer, backend) for backend in backends))
        scores = [found[backend].score(subset=hidden) for backend in backends]
    table = Table(f"{n:,} pages", "CPU s", "error %", "log-likelihood")
    out: dict[str, float] = {f"ratio_gated_dense_{n}": seconds[0] / seconds[1]}
    for backend, each, score in zip(backends, seconds, scores, strict=True):
        table.add_row(backend, f"{each:.2f}", f"{100 * (1 - score.accuracy):.1f}", f"{score.log_likelihood:.3f}")
        out |= {f"seconds_{backend}_{n}": each, f"log_likelihood_{backend}_{n}": score.log_likelihood}
    console.print(table)
    return out


def compare_sizes(options: argparse.Namespace) -> dict[str, float | None]:
    """Compare `gated` with `dense` on webs of several sizes."""
    out: dict[str, float | None] = {}
    for n in sized(options, WEB_PAGES, WEB_PAGES[:1], (100,)):
        out |= compare_dense(n, repeats=3 if n == WEB_PAGES[0] else 1)
    if options.quick:
        console.print(f"{WEB_PAGES[1]:,} pages are skipped: `dense` takes too long")
        out[f"ratio_gated_dense_{WEB_PAGES[1]}"] = None
    return out


def mean_and_error(values: list[float]) -> str:
    some = [value for value in values if not np.isnan(value)]
    if len(some) < len(values):
        return ""
    spread = f" ± {np.std(some, ddof=1) / np.sqrt(len(some)):.4f}" if len(some) > 1 else ""
    return f"{np.mean(some):.4f}{spread}"


def show(found: list[dict[str, Any]], n: int) -> None:
    names = list(found[0]["methods"])
    title = f"{len(found)} fields, {n:,} rows"
    table = Table("error at", *names, "difference", title=title, title_justify="left")
    for budget in BUDGETS:
        errors = {name: [error_at(one["methods"][name], budget) for one in found] for name in names}
        differences = [gated - static for gated, static in zip(errors["gated"], errors["static"], strict=True)]
        cells = (mean_and_error(values) for values in (*errors.values(), differences))
        table.add_row(f"{budget:,} messages per row", *cells)
    console.print(table)
    for name in ("bayes", "constant"):
        console.print(f"{name}: {mean_and_error([one[name] for one in found])}")


def pareto(found: list[dict[str, Any]], method: str) -> list[tuple[float, float]]:
    """Return messages and errors of one method's runs, means over fields."""
    each = zip(*(one["methods"][method] for one in found), strict=True)
    return [
        (float(np.mean([p["messages"] for p in runs])), float(np.mean([p["error"] for p in runs]))) for runs in each
    ]


def plot(found: list[dict[str, Any]], path: Path) -> None:
    """Plot errors over messages with one line per method, means over fields."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5))
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for method in found[0]["methods"]:
        points = [point for point in sorted(pareto(found, method)) if point[0] >= MIN_MESSAGES]
        axis.plot(*zip(*points, strict=True), marker="o", label=method.replace("_", " "))
    axis.axhline(np.mean([one["bayes"] for one in found]), linestyle=":", color="gray", label="the field itself")
    axis.set_xscale("log")
    axis.set_xticks(BUDGETS, [f"{budget:,}" for budget in BUDGETS])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("messages per row")
    axis.set_ylabel("mean squared error")
    axis.legend()
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one field, fewer rows and message costs")
    parser.add_argument("--fields", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1_000, help="number of training rows")
    parser.add_argument("--methods", nargs="+", help="only these methods; gated and static are always included")
    parser.add_argument("--cache", type=Path, help="file of cached results")
    parser.add_argument("--samples", type=Path, help="cache folder for sampled rows")
    parser.add_argument("--plot", type=Path, help="file of the plot")
    parser.add_argument("--links", action="store_true", help="only Cora and digits")
    parser.add_argument("--dense", action="store_true", help="only the comparison with backend dense")
    options = parser.parse_args()
    if options.links:
        print(json.dumps({name: evaluate_links(name, 5) for name in _available_datasets(quick=False)}))
        return
    if options.dense:
        print(json.dumps(compare_sizes(options)))
        return
    n, n_test, n_fields = sized(options, (options.rows, 1_000, options.fields), (200, 100, 1), (6, 4, 1))
    sweeps = sized(options, random_fields.SWEEPS, random_fields.SWEEPS, 10)
    found, cache = [], ResultCache(options.cache)
    for seed in range(n_fields):
        training, test, figures = sample_rows(seed, n, n_test, sweeps, options.samples)
        world, methods = World(training, test), {}
        for method, settings in runs(options, n).items():
            if options.methods and method not in (*options.methods, "gated", "static"):
                continue
            described = track(settings, f"field {seed}: {method}", console=console, transient=True)
            methods[method] = [
                cache.get([seed, n, method, one], partial(world.measure, method, one)) for one in described
            ]
        found.append({"seed": seed, **figures, "methods": methods})
        show(found, n)
    if options.plot is not None:
        plot(found, options.plot)
    figures = {f"pareto_{method}": pareto(found, method) for method in found[0]["methods"]}
    ungated = figures.pop("pareto_ungated", [(np.nan, np.nan)])
    bayes = float(np.mean([one["bayes"] for one in found]))
    names = sized(options, _available_datasets(quick=False), _available_datasets(quick=True), [])
    links = {name: evaluate_links(name, 1 if options.quick else 5) for name in names}
    web = compare_sizes(options)
    print(json.dumps({**figures, "ungated": ungated[0][1], "bayes": bayes, "rows": n, "fields": found, **links, **web}))


def _available_datasets(quick: bool) -> list[str]:
    if "RELCRF_DATA" in os.environ:
        return ["cora"] if quick else list(LINKS)
    console.print("Cora is skipped: RELCRF_DATA does not name a folder with its tables")
    return [] if quick else ["digits"]


if __name__ == "__main__":
    main()
