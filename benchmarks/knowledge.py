"""Completion of synthetic knowledge graphs by `trmrf` with and without latent factors, compared with ComplEx in NumPy.

    python benchmarks/knowledge.py

A tenth of the cells of the relation `holds(x, y, r)` is hidden and predicted. `datasets/knowledge_graphs.py` draws the sets:
`hierarchy`, in which relations between types are inherited, and `kinship`, in which terms depend on groups of people. The
candidates of `trmrf` are pairs of cells of the same two entities, of the inverse pair, of the same row, and of the same
column. The latent factors (`relcrf.backends.latent_scores`) are evidence in the template `affinity`. ComplEx minimises the
penalised logistic loss of all cells by Adam; its penalty is selected by cross-validation, as that of the latent factors.
"""

from __future__ import annotations

import os

# NumPy and Numba read these variables when they are loaded: one thread for all libraries.
os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
)

import json
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import expit
from support import ROOT, BenchmarkParser, sized

import relcrf
from relcrf import api
from relcrf.backends.latent_scores import latent_scores
from relcrf.evaluation.measures import ScoredLabels
from relcrf.evaluation.ranking import group_tuples

sys.path.insert(0, str(ROOT / "datasets"))
import knowledge_graphs

MODEL = """
entity Thing
domain Kind = open
predict relation holds(x: Thing, y: Thing, r: Kind)
template prior(x: Thing, y: Thing, r: Kind) over holds(x, y, r) per r
template subject(x: Thing, y: Thing, r: Kind) over holds(x, y, r) per x, r
template object(x: Thing, y: Thing, r: Kind) over holds(x, y, r) per y, r
candidates together(x: Thing, y: Thing, r: Kind, s: Kind)
    where r < s over holds(x, y, r) and holds(x, y, s) per r, s
candidates inverse(x: Thing, y: Thing, r: Kind, s: Kind)
    where r <= s over holds(x, y, r) and holds(y, x, s) per r, s
candidates rows(x: Thing, y: Thing, z: Thing, r: Kind, s: Kind)
    where y < z over holds(x, y, r) and holds(x, z, s) per y, r, z, s
candidates columns(x: Thing, y: Thing, z: Thing, r: Kind, s: Kind)
    where x < z over holds(x, y, r) and holds(z, y, s) per x, r, z, s
"""
AFFINITY = """
relation Score(x: Thing, y: Thing, r: Kind) { score : real }
template affinity(x: Thing, y: Thing, r: Kind)
    where Score(x, y, r) over holds(x, y, r) by Score(x, y, r).score
"""
TRMRF: dict[str, Any] = {"backend": "trmrf", "l1": 2.0, "l2": 1.0, "candidates_per_round": 300, "max_iterations": 60}
MEASURES = ("pr_auc", "log_loss", "mrr", "hits_at_1")
RANK, STEPS, RATE, L2 = 32, 300, 0.05, (0.5, 1.0, 3.0, 9.0)
"""Settings of ComplEx: complex components, steps of Adam, initial rate, and the penalties to select from."""
HIDDEN = 0.1
console = Console(stderr=True)


def complex_scores(truth: np.ndarray, known: np.ndarray, l2: float, steps: int) -> np.ndarray:
    """Return the log-odds of all cells, of shape (n_relations, n, n) like `truth`, by ComplEx in plain NumPy."""
    rng, (n_relations, n, _) = np.random.default_rng(0), truth.shape
    shapes = ((n, RANK), (n, RANK), (n_relations, RANK), (n_relations, RANK))
    frequency = truth.mean(axis=(1, 2)) + 1e-4
    values = [rng.normal(0, 0.3, shape).astype(np.float32) for shape in shapes] + [np.log(frequency)]
    means, squares = ([np.zeros_like(value) for value in values] for _ in range(2))
    for step in range(1, steps + 1):
        a, b, wr, wi, bias = values
        left, right = a * wr[:, None] - b * wi[:, None], a * wi[:, None] + b * wr[:, None]
        error = known * (expit(left @ a.T + right @ b.T + bias[:, None, None]) - truth)
        by_real, by_imaginary, turned = error @ a, error @ b, error.swapaxes(1, 2)
        gradients = [
            (by_real * wr[:, None] + by_imaginary * wi[:, None]).sum(0) + (turned @ left).sum(0) + l2 * a,
            (by_imaginary * wr[:, None] - by_real * wi[:, None]).sum(0) + (turned @ right).sum(0) + l2 * b,
            (by_real * a + by_imaginary * b).sum(1) + l2 * wr,
            (by_imaginary * a - by_real * b).sum(1) + l2 * wi,
            error.sum(axis=(1, 2)),
        ]
        rate = RATE * min(1.0, 2.0 - 1.8 * step / steps)
        for k, gradient in enumerate(gradients):
            means[k] = 0.9 * means[k] + 0.1 * gradient
            squares[k] = 0.999 * squares[k] + 0.001 * gradient**2
            scale = np.sqrt(squares[k] / (1 - 0.999**step)) + 1e-8
            values[k] = (values[k] - rate * means[k] / (1 - 0.9**step) / scale).astype(np.float32)
    a, b, wr, wi, bias = values
    left, right = a * wr[:, None] - b * wi[:, None], a * wi[:, None] + b * wr[:, None]
    return np.asarray(left @ a.T + right @ b.T + bias[:, None, None], dtype=np.float64)


def select_complex(truth: np.ndarray, known: np.ndarray, steps: int) -> np.ndarray:
    """Return the scores of ComplEx with the penalty of smallest loss on a fifth of the known cells."""
    held_out = (np.random.default_rng(1).random(truth.shape) < 0.2) & (known > 0)
    losses = []
    for l2 in L2:
        scores = complex_scores(truth, known * ~held_out, l2, steps)[held_out]
        losses.append(float((np.logaddexp(0.0, scores) - truth[held_out] * scores).mean()))
    return complex_scores(truth, known, L2[int(np.argmin(losses))], steps)


def make_tables(facts: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Return the tables of a knowledge graph, with keys in the order of the indices."""
    things, kinds = (
        np.array([f"{letter}{k:03}" for k in range(n)]) for letter, n in zip("er", facts.shape[1:], strict=True)
    )
    x, y, r = np.nonzero(facts)
    return {"thing": {"id": things}, "holds": {"x": things[x], "y": things[y], "r": kinds[r]}}


def complete(facts: np.ndarray, seed: int, steps: int, **settings: Any) -> dict[str, dict[str, float]]:
    """Return the measures of every method on one knowledge graph."""
    tables = make_tables(facts)
    model, with_factors = relcrf.parse(MODEL), relcrf.parse(MODEL + AFFINITY)
    grounding = model.ground(relcrf.Dataset(tables))
    (block,) = grounding.blocks
    hidden = np.random.default_rng(seed + 100).random(block.count) < HIDDEN
    truth, groups = grounding.states[hidden], group_tuples(grounding, ("x", "y"))["holds"][:, hidden]
    out = {}

    def record(name: str, probability: np.ndarray, began: float) -> None:
        scored = ScoredLabels(np.column_stack((1.0 - probability, probability)), truth, groups)
        out[name] = {**scored.measures(names=MEASURES), "seconds": time.process_time() - began}
        console.print(name, {key: round(value, 4) for key, value in out[name].items()}, highlight=False)

    # The block contains all cells with a kind that occurs, in the order of x, y, r.
    n, n_kinds = len(tables["thing"]["id"]), block.count // len(tables["thing"]["id"]) ** 2
    tensor, known = (
        np.ascontiguousarray(values.reshape(n, n, n_kinds).transpose(2, 0, 1), dtype=np.float32)
        for values in (grounding.states == 1, ~hidden)
    )
    began = time.process_time()
    scores = select_complex(tensor, known, steps)
    record("ComplEx", expit(scores.transpose(1, 2, 0).ravel()[hidden]), began)
    began = time.process_time()
    table = latent_scores(grounding, "holds", hidden)
    record("latent factors", expit(table.columns["score"][hidden]), began)
    grounding_with_factors = with_factors.ground(relcrf.Dataset({**tables, "score": table.columns}))
    for name, chosen, ground, backend in (
        ("local", model, grounding, {"backend": "local"}),
        ("trmrf", model, grounding, TRMRF | settings),
        ("local, latent factors", with_factors, grounding_with_factors, {"backend": "local"}),
        ("trmrf, latent factors", with_factors, grounding_with_factors, TRMRF | settings),
    ):
        began = time.process_time()
        fit = api.fit(chosen, ground, hidden=hidden, **backend)
        found = api.predict(fit, ground, hidden=hidden)
        record(name, found.probabilities()[:, 1], began)
    return out


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one small graph of each kind")
    parser.add_argument("--graphs", type=int, default=3, help="number of graphs of each kind")
    options = parser.parse_args()
    sizes = sized(options, ((135, 49), (104, 26)), ((50, 15), (50, 12)), ((30, 4), (20, 4)))
    steps, n_graphs = sized(options, STEPS, STEPS, 5), sized(options, options.graphs, 1, 1)
    settings = sized(options, {}, {}, {"max_iterations": 3})
    figures: dict[str, Any] = {}
    draws = {"hierarchy": knowledge_graphs.draw_hierarchy, "kinship": knowledge_graphs.draw_kinship}
    for (kind, draw), size in zip(draws.items(), sizes, strict=True):
        runs = [complete(draw(np.random.default_rng(seed), *size), seed, steps, **settings) for seed in range(n_graphs)]
        table = Table("method", *MEASURES, "CPU s", title=f"{kind}: mean of {n_graphs} graphs ± standard error")
        figures[kind] = {}
        for name in runs[0]:
            columns = {key: [run[name][key] for run in runs] for key in runs[0][name]}
            figures[kind][name] = {key: float(np.mean(values)) for key, values in columns.items()}
            errors = {
                key: np.std(values, ddof=1) / np.sqrt(n_graphs) for key, values in columns.items() if n_graphs > 1
            }
            texts = [
                f"{figures[kind][name][key]:.4f}" + (f" ± {errors[key]:.4f}" if errors else "") for key in MEASURES
            ]
            table.add_row(name, *texts, f"{figures[kind][name]['seconds']:.1f}")
        console.print(table)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
