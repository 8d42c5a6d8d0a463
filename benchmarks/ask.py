"""Active learning: number of labels that `relcrf ask` needs, compared with random choice, entropy and centrality.

    RELCRF_DATA=... python benchmarks/ask.py

Cora (models/cora.rcrf) starts with one random label per topic, 7 in total, and WebKB (models/webkb.rcrf) with one per category,
5 in total. In each step, relcrf is trained on the labels so far, predicts a third of the papers or
pages, the test set, and each method chooses further labels among the other papers: one per topic up to 70 labels, then two
per topic. Test papers are part of the graph, but nobody asks for their labels. The methods choose by the same trained model:

- `ask`: `relcrf ask` with default settings;
- `random`: papers drawn at random;
- `entropy`: the largest entropies of the predictions (uncertainty sampling);
- `age`: the sum of the percentiles of entropy, density and PageRank centrality, as in Cai, Zheng & Chang (2017), Active learning
  for graph embedding. The weight of the centrality falls with the number of labels (the mean of their distribution, with base
  0.95). Deviation: density is that of the predicted probabilities, because relcrf has no embedding.

`labels_to_target` is the number of labels at which the mean accuracy over the seeds first reaches `target`, and the maximum
number of labels if it does not. `labels_ratio` is that of `ask` divided by that of `random` (smaller is better), with a 95 %
bootstrap interval over the seeds. The model is trained by several learners: `auto` (backend `auto`), whose choice of a backend
varies with the labels; `em`, logistic regression with self-training; and `pseudo`, pairwise factors with a prior of equal topics.

The growth is that of the CPU seconds of one `ask` for 20 labels on the synthetic web (datasets/web.py) with backend `ess`, from
a tenth of `--pages` to `--pages`; each run is repeated, and the fastest counts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from scipy.cluster.vq import kmeans2  # noqa: E402
from scipy.sparse import csr_array, diags_array  # noqa: E402
from scipy.stats import rankdata  # noqa: E402
from support import ROOT, BenchmarkParser, ResultCache, sized  # noqa: E402

import relcrf  # noqa: E402
from relcrf import api  # noqa: E402
from relcrf.graph.links import link_matrix  # noqa: E402
from relcrf.grounding.grounding import Grounding  # noqa: E402

sys.path.insert(0, str(ROOT / "datasets"))
from real import cora, webkb  # noqa: E402

MAX_LABELS = 140
FINE_LABELS = 70
"""Number of labels up to which a step has one label per class; a later step has two."""
DAMPING = 0.85
"""Probability that the random walk of PageRank follows a link."""
CENTRALITY_BASE = 0.95
"""Base of the decrease of the weight of centrality in `age`."""
N_RESAMPLES = 2000


@dataclass(frozen=True)
class LabelTask:
    """A classification task with few labels.

    Args:
        target: The accuracy that the methods are to reach.
    """

    model: str
    tables: Callable[[], Mapping[str, Any]]
    target: float


TASKS = {"cora": LabelTask("cora", cora, 0.8), "webkb": LabelTask("webkb", webkb, 0.75)}

LEARNERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "auto": ("auto", {"effort": "quick"}),
    "em": ("local", {"unary_l2": 0.003, "unlabelled": "em", "fraction": 0.5}),
    "pseudo": ("pseudo", {"unary_l2": 0.003, "agreement": 0.6, "l2": 30.0, "inference": "bp"}),
}
"""Backend and settings of each learner; the settings are those of docs/how-to/few_labels.md."""


@dataclass(frozen=True)
class LabelState:
    """The state of one simulation, which a method sees when it chooses labels.

    Args:
        hidden: Mask of the papers without a label so far.
        pool: Mask of the papers that may be chosen; the test papers are not in it.
    """

    fit: api.Fit
    grounding: Grounding
    prediction: api.Prediction
    hidden: np.ndarray
    pool: np.ndarray
    rng: np.random.Generator

    @property
    def candidates(self) -> np.ndarray:
        return np.flatnonzero(self.pool & self.hidden)

    def candidate_probabilities(self) -> np.ndarray:
        return self.prediction.probabilities()[np.searchsorted(self.prediction.variables(), self.candidates)]


def choose_asked(state: LabelState, n: int) -> np.ndarray:
    return api.ask(state.fit, state.grounding, n, hidden=state.hidden, candidates=state.pool).variables


def choose_random(state: LabelState, n: int) -> np.ndarray:
    return state.rng.choice(state.candidates, size=n, replace=False)


def entropies(probabilities: np.ndarray) -> np.ndarray:
    return -(probabilities * np.log(np.maximum(probabilities, 1e-300))).sum(axis=1)


def choose_uncertain(state: LabelState, n: int) -> np.ndarray:
    return state.candidates[np.argsort(-entropies(state.candidate_probabilities()), kind="stable")[:n]]


def page_rank(links: csr_array) -> np.ndarray:
    """Return the PageRank of each node of a symmetric link matrix."""
    size = links.shape[0]
    walk = links @ diags_array(1.0 / np.maximum(links.sum(axis=0), 1.0))
    rank = np.full(size, 1.0 / size)
    for _ in range(100):
        rank = DAMPING * (walk @ rank)
        rank += (1.0 - rank.sum()) / size
    return rank


def choose_central(state: LabelState, n: int) -> np.ndarray:
    graph, probabilities = state.grounding.graph, state.candidate_probabilities()
    centrality = page_rank(link_matrix(graph, graph.domains, np.ones(graph.n_variables, dtype=bool)))[state.candidates]
    centres, nearest = kmeans2(probabilities, probabilities.shape[1], minit="++", rng=0)
    density = 1.0 / (1.0 + np.linalg.norm(probabilities - centres[nearest], axis=1))
    weight = 1.0 / (2.005 - CENTRALITY_BASE ** int((~state.hidden).sum()))
    parts = (centrality, weight), (entropies(probabilities), (1.0 - weight) / 2), (density, (1.0 - weight) / 2)
    score = sum(share * rankdata(values) for values, share in parts)
    return state.candidates[np.argsort(-score, kind="stable")[:n]]


METHODS: Mapping[str, Callable[[LabelState, int], np.ndarray]] = {
    "ask": choose_asked,
    "random": choose_random,
    "entropy": choose_uncertain,
    "age": choose_central,
}


def label_counts(n_classes: int, max_labels: int) -> list[int]:
    """Return the numbers of labels at which the accuracy is measured."""
    fine = min(FINE_LABELS, max_labels)
    return [*range(n_classes, fine + 1, n_classes), *range(fine + 2 * n_classes, max_labels + 1, 2 * n_classes)]


def simulate(task: LabelTask, method: str, seed: int, learner: str, max_labels: int) -> dict[str, Any]:
    """Return the accuracy on the test papers at each number of labels, and the CPU seconds of the choices and of all."""
    model = api.load(ROOT / "models" / f"{task.model}.rcrf")
    grounding = model.ground(relcrf.Dataset(task.tables()))
    truth, rng = grounding.states, np.random.default_rng(seed)
    order = rng.permutation(len(truth))
    test, rest = np.split(order, [len(truth) // 3])
    pool = np.zeros(len(truth), dtype=bool)
    pool[rest] = True
    hidden = np.ones(len(truth), dtype=bool)
    n_classes = int(truth.max()) + 1
    hidden[[rest[truth[rest] == k][0] for k in range(n_classes)]] = False
    counts, accuracies, seconds_choosing = label_counts(n_classes, max_labels), [], 0.0
    started = time.process_time()
    for step, n in enumerate(counts):
        fit = api.fit(model, grounding, LEARNERS[learner][0], hidden=hidden, **LEARNERS[learner][1])
        prediction = api.predict(fit, grounding, hidden=hidden)
        found = prediction.probabilities()[np.searchsorted(prediction.variables(), test)].argmax(axis=1)
        accuracies.append(float((found == truth[test]).mean()))
        if step + 1 < len(counts):
            start = time.process_time()
            state = LabelState(fit, grounding, prediction, hidden, pool, rng)
            chosen = METHODS[method](state, counts[step + 1] - n)
            seconds_choosing += time.process_time() - start
            hidden = hidden.copy()
            hidden[chosen] = False
    seconds = time.process_time() - started
    return {
        "labels": counts[: len(accuracies)],
        "accuracy": accuracies,
        "seconds_choosing": seconds_choosing,
        "seconds": seconds,
    }


def labels_to_reach(labels: Sequence[int], accuracy: np.ndarray, target: float) -> int:
    """Return the first number of labels whose accuracy is at least the target; the largest if none is."""
    reached = np.flatnonzero(accuracy >= target)
    return labels[int(reached[0]) if len(reached) else -1]


def ratio_interval(labels: Sequence[int], ours: np.ndarray, theirs: np.ndarray, target: float) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the ratio of the labels to the target; accuracies have shape (n_seeds, n)."""
    rng, ratios = np.random.default_rng(0), []
    for _ in range(N_RESAMPLES):
        drawn = rng.integers(len(ours), size=len(ours))
        needed = [labels_to_reach(labels, each[drawn].mean(axis=0), target) for each in (ours, theirs)]
        ratios.append(needed[0] / needed[1])
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)


def run_task(
    name: str, methods: Sequence[str], learner: str, seeds: int, max_labels: int, cache: ResultCache, console: Console
) -> dict[str, Any]:
    """Simulate the methods, print their mean accuracies, and return their figures."""
    task, result, curves = TASKS[name], dict[str, Any](), dict[str, np.ndarray]()
    labels: list[int] = []
    for method in methods:
        runs = [
            cache.get(
                [name, method, seed, learner, max_labels], partial(simulate, task, method, seed, learner, max_labels)
            )
            for seed in range(seeds)
        ]
        curves[method], labels = np.array([run["accuracy"] for run in runs]), runs[0]["labels"]
        mean = curves[method].mean(axis=0)
        result[method] = {
            "accuracy": mean.tolist(),
            "mean_accuracy": float(mean.mean()),
            "labels_to_target": labels_to_reach(labels, mean, task.target),
            "reached": bool((mean >= task.target).any()),
            "seconds_choosing": float(np.mean([run["seconds_choosing"] for run in runs])),
            "seconds": float(np.mean([run["seconds"] for run in runs])),
        }
    for method, row in result.items():
        if "random" in result and method != "random":
            row["labels_ratio"] = row["labels_to_target"] / result["random"]["labels_to_target"]
            interval = ratio_interval(labels, curves[method], curves["random"], task.target)
            row["labels_ratio_low"], row["labels_ratio_high"] = interval
    columns = ("method", *map(str, labels), f"to {task.target}", "ratio to random")
    table = Table(*columns, title=f"{name}, {learner}: mean accuracy of {seeds} runs by number of labels, in per cent")
    for method, row in result.items():
        ratio = "{labels_ratio:.2f} [{labels_ratio_low:.2f}, {labels_ratio_high:.2f}]" if "labels_ratio" in row else ""
        needed = f"{'' if row['reached'] else '> '}{row['labels_to_target']}"
        table.add_row(method, *(f"{100 * value:.1f}" for value in row["accuracy"]), needed, ratio.format(**row))
    console.print(table)
    return {"target": task.target, "labels": labels, "seeds": seeds, **result}


def measure_growth(pages: int, repeats: int) -> dict[str, Any]:
    """Return the CPU seconds of `ask` on a tenth of the pages and on all pages, and their ratio."""
    from web import make_web

    seconds = []
    for size in (pages // 10, pages):
        with tempfile.TemporaryDirectory() as folder:
            make_web(Path(folder), size)
            model = relcrf.load(ROOT / "models" / "webkb.rcrf")
            grounding = model.ground(relcrf.Dataset(folder))
            hidden = np.ones(len(grounding.states), dtype=bool)
            hidden[:: len(hidden) // min(200, len(hidden) // 2)] = False
            fit = api.fit(model, grounding, "ess", hidden=hidden)
            runs = []
            for _ in range(repeats):
                start = time.process_time()
                api.ask(fit, grounding, 20, hidden=hidden)
                runs.append(time.process_time() - start)
            seconds.append(min(runs))
    return {
        "pages": pages,
        "seconds_small": seconds[0],
        "seconds_ask": seconds[1],
        "growth_10x": seconds[1] / seconds[0],
    }


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one seed and one learner on Cora, at most 35 labels, and 10,000 pages")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    parser.add_argument("--seeds", type=int, default=5, help="number of random tests and starting labels")
    parser.add_argument("--pages", type=int, default=100_000, help="pages of the synthetic web; 0 omits it")
    parser.add_argument("--cache", type=Path, help="file of cached results")
    options: argparse.Namespace = parser.parse_args()
    max_labels = sized(options, MAX_LABELS, 35, 14)
    seeds, pages = sized(options, options.seeds, 1, 1), sized(options, options.pages, 10_000, 200)
    methods = sized(options, options.methods, list(METHODS), list(METHODS))
    tasks, learners = (
        sized(options, options.tasks, ["cora"], ["cora"]),
        sized(options, options.learners, ["pseudo"], ["pseudo"]),
    )
    console, cache = Console(width=200), ResultCache(options.cache)
    result: dict[str, Any] = {
        name: {learner: run_task(name, methods, learner, seeds, max_labels, cache, console) for learner in learners}
        for name in tasks
    }
    if pages:
        result |= measure_growth(pages, sized(options, 3, 1, 1))
    by_learner = result.get("cora", {})
    result["labels_ratio"] = {name: found.get("ask", {}).get("labels_ratio") for name, found in by_learner.items()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
