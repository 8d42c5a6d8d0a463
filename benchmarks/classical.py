"""The classical learners on frequent ingredients of What's Cooking: iterations, seconds, likelihood and moments.

    RELCRF_DATA=... python benchmarks/classical.py --recipes 5000 --more 6

The pairs are those of a spanning tree by mutual information, and a few additional ones. Seconds are CPU time without
compilation. All weights are evaluated under the exact model. The last line is one JSON object.
"""

from __future__ import annotations

import json
import sys
import time

import networkx as nx
import numpy as np
import pandas as pd
from support import ROOT, BenchmarkParser, sized

import relcrf
from relcrf import api
from relcrf.backends.whole_graph import WholeGraphSpec

sys.path.insert(0, str(ROOT / "datasets"))
from real import recipes

MODEL = """
domain Ingredient = open
entity Recipe {}
relation Pair(i: Ingredient, j: Ingredient)
predict relation uses(r: Recipe, i: Ingredient)

template alone(r: Recipe, i: Ingredient)
    over uses(r, i)
    per  i

template pair(r: Recipe, i: Ingredient, j: Ingredient)
    where Pair(i, j)
    over  uses(r, i), uses(r, j)
    per   i, j
"""

LEARNERS = (
    ("dense", {"inference": "auto", "l2": 0.0}),
    ("dense", {"inference": "auto"}),
    ("dense", {"inference": "bp", "l2": 0.0}),
    ("ipf", {}),
    ("ipf", {"update": "all"}),
    ("pseudo", {"l2": 0.0}),
)


def mutual_information(first: np.ndarray, second: np.ndarray) -> float:
    """Return the mutual information of two binary columns in nats; 1e-6 observations are added to each cell."""
    joint = np.histogram2d(first, second, bins=2)[0] + 1e-6
    joint /= joint.sum()
    return float((joint * np.log(joint / np.outer(joint.sum(axis=1), joint.sum(axis=0)))).sum())


def tables(n_recipes: int, n_ingredients: int, more: int) -> dict[str, pd.DataFrame]:
    """Return the tables of the model.

    Args:
        more: Number of pairs in addition to those of the tree.
    """
    found = recipes(n_recipes, n_ingredients)
    uses, ids = found["uses"], found["recipe"]["id"]
    holds = pd.crosstab(uses["r"], uses["i"]).reindex(ids, fill_value=0)
    graph = nx.Graph()
    for a in holds.columns:
        for b in holds.columns[holds.columns > a]:
            graph.add_edge(a, b, weight=mutual_information(holds[a].to_numpy(), holds[b].to_numpy()))
    tree = {tuple(sorted(edge)) for edge in nx.maximum_spanning_tree(graph).edges}
    rest = sorted({tuple(sorted(edge)) for edge in graph.edges} - tree, key=lambda edge: -graph.edges[edge]["weight"])
    pairs = pd.DataFrame(sorted([*tree, *rest[:more]]), columns=["i", "j"])
    return {"recipe": pd.DataFrame({"id": ids}), "uses": uses, "pair": pairs}


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="1,000 recipes, 6 ingredients")
    parser.add_argument("--recipes", type=int, default=5000)
    parser.add_argument("--ingredients", type=int, default=10)
    parser.add_argument("--more", type=int, default=6, help="number of pairs in addition to the tree")
    options = parser.parse_args()
    if options.quick:
        options.recipes, options.ingredients = sized(options, None, (1_000, 6), (200, 4))
    model = relcrf.parse(MODEL)
    grounding = model.ground(relcrf.Dataset(tables(options.recipes, options.ingredients, options.more)))
    exact = WholeGraphSpec("dense", "jt").likelihood(api.training_problem(grounding))
    rows = []
    for backend, own in LEARNERS:
        settings = {"tolerance": 1e-8, "max_iterations": 2000, **own}
        api.fit(model, grounding, backend, **{**settings, "max_iterations": 1})  # compile the kernels
        started = time.process_time()
        fit = api.fit(model, grounding, backend, **settings)
        seconds = time.process_time() - started
        value, apart = exact(fit.learned.vectors["weights"])
        rows.append(
            {
                "backend": backend,
                "settings": own,
                "iterations": fit.summary["weights_iterations"],
                "seconds": round(seconds, 2),
                "log_likelihood": round(-value / options.recipes, 8),
                "moments": float(np.abs(apart).max() / options.recipes),
            }
        )
        print(rows[-1], flush=True)
    sizes = {name: getattr(options, name) for name in ("recipes", "ingredients", "more")}
    print(json.dumps({"options": sizes, "learners": rows}))


if __name__ == "__main__":
    main()
