"""Collective classification without labelled neighbours, compared with plain NumPy and PGMax, at up to 100,000 pages.

    python benchmarks/collective_peers.py

The pages are those of datasets/weak_links.py: the scores of a page determine its category in half of the cases, and its
eight links determine the rest. Backends learn on one graph and predict all pages of another one. Settings are the defaults.
Each size and backend runs in a separate process, so that peak memory is that of the backend; seconds are CPU time with one
thread, or wall time with the number of threads in `NUMBA_NUM_THREADS`. Accuracies are means over draws of both graphs.
`reference` is belief propagation with the true parameters and with the constraint that the categories have equal sizes
(Decelle et al. 2011), which no backend receives.

The rival in NumPy learns the same model by pseudo-likelihood (logistic scores and a table of pairs) with SciPy's L-BFGS, and
predicts by belief propagation; it is compared with backend `pseudo` and `inference=bp`. PGMax is timed in its compiled loop
only, with the same potentials and the same iterations as relcrf, and the marginals must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from scipy.optimize import minimize  # noqa: E402
from support import ROOT, BenchmarkParser, in_fresh_process, is_installed, medians, peak_mib, sized  # noqa: E402

sys.path.insert(0, str(ROOT / "datasets"))
from weak_links import CATEGORIES, HOMOPHILY, LINKS, MODEL, Pages, make_pages  # noqa: E402

BACKENDS: dict[str, dict[str, Any]] = {"local": {}, "default": {}, "ess": {}, "pseudo": {}, "dense": {}}
"""Measured backends and their settings; `default` is the default backend of `relcrf train`."""
SLOW = ("dense",)
"""Backends that `--quick` leaves out."""
THREADS = int(os.environ["NUMBA_NUM_THREADS"])
"""Number of threads of a process."""
PROCESSES = 2 if THREADS == 1 else 1
"""Number of processes at a time."""
TOLERANCE, MAX_ITERATIONS, L2 = 1e-6, 1000, 1.0
"""Stopping criteria of belief propagation, and the penalty of the weights; relcrf's defaults."""


SHOWN = (
    "accuracy",
    "accuracy_se",
    "log_likelihood",
    "seconds_ground",
    "seconds_learn",
    "seconds_infer",
    "peak_mib",
)


def draw(n: int, seed: int, homophily: float = HOMOPHILY) -> tuple[Pages, Pages]:
    """Return a graph to learn from and a graph to predict."""
    rng = np.random.default_rng(seed)
    return make_pages(n, rng, homophily), make_pages(n, rng, homophily)


def measure(n: int, seed: int, backend: str, homophily: float) -> dict[str, float]:
    """Ground, learn and infer with a backend, in this process."""
    import relcrf
    from relcrf import api

    clock = time.process_time if THREADS == 1 else time.perf_counter

    def run(train: Pages, test: Pages) -> dict[str, float]:
        model = api.parse(MODEL)
        name = {} if backend == "default" else {"backend": backend}
        times = [clock()]
        grounding = model.ground(relcrf.Dataset(train.tables()))
        times.append(clock())
        fit = api.fit(model, grounding, **name, **BACKENDS[backend])
        times.append(clock())
        other = fit.ground(relcrf.Dataset(test.tables()))
        times.append(clock())
        found = api.predict(fit, other, hidden=np.ones(len(test.category), dtype=bool)).score()
        times.append(clock())
        ground, learn, ground_test, infer = np.diff(times)
        return {
            "accuracy": found.accuracy,
            "log_likelihood": found.log_likelihood,
            "seconds_ground": ground + ground_test,
            "seconds_learn": learn,
            "seconds_infer": infer,
        }

    run(*draw(50, 0))  # compile or load the kernels
    return {**run(*draw(n, seed, homophily)), "peak_mib": peak_mib()}


def propagate(unary: np.ndarray, links: np.ndarray, table: np.ndarray, density: np.ndarray | None = None) -> np.ndarray:
    """Return the marginals of sum-product belief propagation, shape (n_pages, CATEGORIES).

    Args:
        unary: Log potentials of the pages, shape (n_pages, CATEGORIES).
        table: Log potentials of a link.
        density: If set, the expected number of links between a page and all pages, times the number of categories, for each
            pair of their categories; the field of absent links of Decelle et al. (2011), equation (27).
    """
    n, m = len(unary), len(links)
    source, target = np.concatenate((links, links[:, ::-1])).T
    reverse = np.concatenate((np.arange(m, 2 * m), np.arange(m)))
    messages = np.zeros((2 * m, CATEGORIES))
    belief, potential = unary, np.exp(table)
    for _ in range(MAX_ITERATIONS):
        cavity = belief[source] - messages[reverse]
        cavity = np.exp(cavity - cavity.max(axis=1, keepdims=True))
        new = np.log(np.concatenate((cavity[:m] @ potential, cavity[m:] @ potential.T)))
        new -= new.max(axis=1, keepdims=True)
        change, messages = np.abs(new - messages).max(), new
        field = 0.0 if density is None else -density @ normalise(belief)[0].mean(axis=0)
        belief = unary + field
        for k in range(CATEGORIES):
            belief[:, k] += np.bincount(target, messages[:, k], n)
        if change <= TOLERANCE:
            break
    return normalise(belief)[0]


def normalise(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities that are proportional to exp(scores) in each row, and the log normalisers, shape (n, 1)."""
    top = scores.max(axis=1, keepdims=True)
    log_total = top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
    return np.exp(scores - log_total), log_total


class NumpyModel:
    """The model of `MODEL` in plain NumPy: a logistic model of the scores, and a table of the categories of a link."""

    def learn(self, pages: Pages) -> None:
        """Learn all weights by pseudo-likelihood."""
        own = np.eye(CATEGORIES)[pages.category]
        source, target = pages.links.T
        targets, sources = np.zeros_like(own), np.zeros_like(own)
        for k in range(CATEGORIES):
            targets[:, k] = np.bincount(source, own[target, k], len(own))
            sources[:, k] = np.bincount(target, own[source, k], len(own))
        features = self._features(pages)

        def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
            weights, table = np.split(point.reshape(-1, CATEGORIES), [features.shape[1]])
            scores = features @ weights + targets @ table.T + sources @ table
            probability, log_total = normalise(scores)
            difference = probability - own
            gradient = np.concatenate((features.T @ difference, difference.T @ targets + sources.T @ difference))
            value = log_total.sum() - (scores * own).sum() + 0.5 * L2 * point @ point
            return float(value), gradient.ravel() + L2 * point

        n_rows = features.shape[1] + CATEGORIES
        point = minimize(loss, np.zeros(n_rows * CATEGORIES), jac=True, method="L-BFGS-B").x
        self.weights, self.table = np.split(point.reshape(-1, CATEGORIES), [features.shape[1]])

    def infer(self, pages: Pages) -> np.ndarray:
        """Return the marginals of the pages, shape (n_pages, CATEGORIES)."""
        return propagate(self._features(pages) @ self.weights, pages.links, self.table)

    @staticmethod
    def _features(pages: Pages) -> np.ndarray:
        return np.column_stack((np.ones(len(pages.scores)), pages.scores))


def reference(pages: Pages, homophily: float) -> float:
    """Return the accuracy of belief propagation with the true parameters."""
    same = homophily + (1.0 - homophily) / CATEGORIES
    other = (1.0 - homophily) / CATEGORIES
    density = 2 * LINKS * CATEGORIES * (other + (same - other) * np.eye(CATEGORIES))
    found = propagate(pages.scores, pages.links, np.log(density), density)
    return float((found.argmax(axis=1) == pages.category).mean())


def compare_numpy(n: int, repeats: int) -> dict[str, float]:
    """Compare learning and inference with the same in NumPy, in this process; ground graphs are not timed."""
    import relcrf
    from relcrf import api

    train, test = draw(n, 0)
    model, rival = api.parse(MODEL), NumpyModel()
    grounding = model.ground(relcrf.Dataset(train.tables()))
    other = api.fit(model, grounding, "pseudo", max_iterations=1).ground(relcrf.Dataset(test.tables()))
    hidden = np.ones(n, dtype=bool)
    probabilities: list[np.ndarray] = [np.empty(0)] * 2

    def ours() -> None:
        fit = api.fit(model, grounding, "pseudo", l2=L2)
        found = api.predict(fit, other, hidden=hidden, inference="bp")
        probabilities[0] = found.probabilities()

    def theirs() -> None:
        rival.learn(train)
        probabilities[1] = rival.infer(test)

    seconds = medians(repeats, ours, theirs)
    accuracy = [float((p.argmax(axis=1) == test.category).mean()) for p in probabilities]
    return {
        "seconds_relcrf": seconds[0],
        "seconds_numpy": seconds[1],
        "ratio_numpy_learn_infer": round(seconds[1] / seconds[0], 2),
        "accuracy_relcrf": accuracy[0],
        "accuracy_numpy": accuracy[1],
    }


def compare_pgmax(n: int, iterations: int, repeats: int) -> dict[str, Any]:
    """Compare belief propagation with PGMax on the graph of n pages, in this process."""
    if not is_installed("PGMax"):
        return {"ratio_pgmax_infer": None}
    from loopy import pgmax

    from relcrf.graph.scopes import Potentials, Scopes
    from relcrf.inference.belief_propagation import BeliefPropagation

    pages = draw(n, 0)[1]
    # PGMax has no two factors over the same variables
    links = np.unique(np.sort(pages.links, axis=1), axis=0).astype(np.int32)
    cardinality = np.full(n, CATEGORIES, dtype=np.int32)
    scopes = Scopes(cardinality, 2 * np.arange(len(links) + 1), links.ravel())
    table = np.random.default_rng(0).normal(scale=0.1, size=(len(links), CATEGORIES**2)) + np.eye(CATEGORIES).ravel()
    potentials = Potentials(pages.scores.ravel(), table.ravel())
    method = BeliefPropagation(scopes, max_iterations=iterations, tolerance=0.0)
    loop, marginals = pgmax(scopes, potentials, iterations)
    seconds = medians(repeats, lambda: method.marginals(potentials), loop)
    return {
        "ratio_pgmax_infer": round(seconds[1] / seconds[0], 2),
        "difference_pgmax": float(np.abs(method.marginals(potentials).nodes - marginals()).max()),
    }


def summarise(runs: list[dict[str, float]], n: int) -> dict[str, float]:
    """Return the means of several draws, and the standard error of the accuracy; that of one draw is binomial."""
    found = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    accuracy = [run["accuracy"] for run in runs]
    variance = np.var(accuracy, ddof=1) if len(runs) > 1 else accuracy[0] * (1.0 - accuracy[0]) / n
    return {**found, "accuracy_se": float(np.sqrt(variance / len(runs)))}


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one draw per size, without backend dense")
    parser.add_argument("--draws", type=int, default=5, help="number of draws of graphs with up to 10,000 pages")
    parser.add_argument(
        "--homophily", type=float, default=HOMOPHILY, help="fraction of links that prefer equal categories"
    )
    parser.add_argument("--measure", nargs=3, metavar=("PAGES", "SEED", "BACKEND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        n, seed, backend = options.measure
        print(json.dumps(measure(int(n), int(seed), backend, options.homophily)))
        return
    os.environ["JAX_ENABLE_X64"] = "1"
    warnings.simplefilter("ignore")
    result: dict[str, Any] = {}
    pool = ThreadPoolExecutor(PROCESSES)
    columns = ("accuracy", "+-", "log-lik.", "ground s", "learn s", "infer s", "MiB")
    table = Table("pages", "backend", *columns, title="pages without labelled neighbours")
    backends = sized(options, tuple(BACKENDS), tuple(BACKENDS), ("local", "default"))
    for n in sized(options, (1_000, 10_000, 100_000), (1_000, 10_000, 100_000), (100,)):
        draws = sized(options, options.draws if n <= 10_000 else 1, 1, 1)
        found: dict[str, Any] = {}
        jobs: dict[str, list[Future[dict[str, Any]]]] = {}
        for backend in backends:
            if options.quick and backend in SLOW:
                found[backend] = None
                continue
            common = (__file__, "--homophily", options.homophily, "--measure", n)
            arguments = [(*common, seed, backend) for seed in range(draws)]
            jobs[backend] = [pool.submit(in_fresh_process, *each) for each in arguments]
        for backend, futures in jobs.items():
            found[backend] = summarise([future.result() for future in futures], n)
            table.add_row(f"{n:,}", backend, *(f"{found[backend][key]:,.3f}" for key in SHOWN))
        drawn = [draw(n, seed, options.homophily)[1] for seed in range(draws)]
        found["accuracy_reference"] = float(np.mean([reference(pages, options.homophily) for pages in drawn]))
        table.add_row(f"{n:,}", "reference", f"{found['accuracy_reference']:.3f}")
        found["accuracy_default"] = found["default"]["accuracy"]
        found["accuracy_local"] = found["local"]["accuracy"]
        result[str(n)] = found
    Console(width=120).print(table)
    pool.shutdown()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # otherwise JAX uses all cores
    result.update(compare_numpy(sized(options, 10_000, 10_000, 100), sized(options, 5, 1, 1)))
    result.update(compare_pgmax(*sized(options, (10_000, 100), (1_000, 100), (100, 5)), sized(options, 5, 3, 1)))
    print("  ".join(f"{key} {result[key]}" for key in result if not key.isdigit()))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
