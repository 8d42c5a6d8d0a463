"""Learning a graph from candidate edges: objective and held-out pseudo-likelihood over time, and the selected edges.

    python benchmarks/edge_grafting.py --cache rows

Scale-free networks (`datasets/scale_free.py`); with `--data` also Jester and What's Cooking, from the folder in
`RELCRF_DATA`. All methods start from the same unary weights and have the same penalty, optimiser and stopping criterion: on
all edges, no group of weights violates the optimality conditions by more than a hundredth of the penalty. `features` has L1
instead of group L1, so its objective is different. Seconds are CPU time of one thread after the unary weights; `nlpl` is the
negative log pseudo-likelihood of held-out rows, per variable, in nats; `edges` are those with nonzero weights.
`time_share_best_choice` is the time of best choice (alpha 0) to come within 1 % of the final objective of edge grafting,
divided by the total time of edge grafting; `time_share_same_level` is divided by the time of edge grafting to the same
objective.

The default takes about 11 CPU minutes; `--sizes 200 400 600` takes more than an hour. `--cache` stores the results of finished
methods, so that an interrupted run can be repeated. `objectives` compares pseudo-likelihood with likelihood on small networks
(mean and standard error over `--seeds`). `--people` adds a table of the growth with the number of people in Jester, all with
the same penalty per person; above 24,983, the training people are drawn with replacement.
"""

from __future__ import annotations

import os

# NumPy and Numba read these variables when they are loaded: one thread for all libraries.
os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
)

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from support import ROOT, BenchmarkParser, sized

import relcrf
from relcrf import api
from relcrf.backends.base import Problem
from relcrf.backends.grafting import TRAINING_MEMORY
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.graph.scopes import Scopes
from relcrf.inference.methods import create_inference
from relcrf.inference.result import AbstractInference
from relcrf.learning.edge_joint_likelihood import JointEdgeLikelihood
from relcrf.learning.edge_likelihood import EdgeLikelihood
from relcrf.learning.edge_objective import AbstractEdgeObjective
from relcrf.structure.activation import AbstractActivation, BestChoice, FirstHit, TopEdges, TopWeights
from relcrf.structure.scores import null_gradient
from relcrf.structure.search import PenaltyStrengths, SearchState, StructureSearch, group_lasso_factory

sys.path.insert(0, str(ROOT / "datasets"))
import real
import scale_free

L2, TOLERANCE = 0.1, 1e-2
MAX_EDGES_PER_ROUND = 100
"""Maximum number of edges added per round."""
MAX_WEIGHTS_PER_ROUND = 1_000
"""Maximum number of weights added per round, of about 40 to 100 edges."""
MAX_TESTS_PER_ROUND = 5_000
"""Number of edges that best choice tests per round."""
HUB_FRACTION = 0.02
"""Fraction of a node's possible edges above which it is a hub; a hub of 600 nodes has about a dozen edges."""
ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
BEST = "best-choice 0"
METHODS: dict[str, dict[str, Any]] = {
    "edges": {"activation": TopEdges(MAX_EDGES_PER_ROUND)},
    **{
        f"best-choice {alpha:g}": {"activation": BestChoice(alpha, MAX_EDGES_PER_ROUND, MAX_TESTS_PER_ROUND)}
        for alpha in ALPHAS
    },
    "best-choice 0, hubs": {
        "activation": BestChoice(0.0, MAX_EDGES_PER_ROUND, MAX_TESTS_PER_ROUND),
        "hub_fraction": HUB_FRACTION,
    },
    "best-choice 0, counts": {
        "activation": BestChoice(0.0, MAX_EDGES_PER_ROUND, MAX_TESTS_PER_ROUND),
        "score_by_counts": True,
    },
    "first-hit": {"activation": FirstHit(MAX_TESTS_PER_ROUND)},
    "first-hit, hubs": {"activation": FirstHit(MAX_TESTS_PER_ROUND), "hub_fraction": HUB_FRACTION},
    "features": {
        "activation": TopWeights(MAX_WEIGHTS_PER_ROUND),
        "final_activation": TopWeights(MAX_WEIGHTS_PER_ROUND, 1.0 + TOLERANCE),
        "grouped": False,
    },
}
OBJECTIVES = {"pseudo": None, "likelihood, auto": "auto", "likelihood, bp": "bp"}
"""Objectives by name: pseudo-likelihood, and likelihood with the name of the inference method."""
LIKELIHOOD_RESERVOIR = 20
"""Maximum number of edges added per round for the comparison of objectives; wrong edges make exact inference slow."""
L1_PER_PERSON = 0.02
"""Penalty for `--people`; it grows with the number of people, so that all sizes have about the same minimum."""
console = Console(width=150)


@dataclass(frozen=True)
class World:
    """Training and test rows.

    Args:
        truth: The true edges as pairs of keys, if they are known.
    """

    learned: AbstractEdgeObjective
    test: EdgeLikelihood
    strengths: PenaltyStrengths
    point: np.ndarray
    truth: set[tuple[int, int]] | None

    @classmethod
    def of(
        cls,
        model: api.Model,
        learned: dict[str, pd.DataFrame],
        test: dict[str, pd.DataFrame],
        l1: float,
        inference: str | None = None,
    ) -> World:
        """Return a world with learned unary weights. A penalty of 0 selects twice the gradient expected by chance.

        Args:
            inference: Inference method of the likelihood; None for pseudo-likelihood.
        """
        likelihood, layout = _likelihood(model, learned) if inference is None else _joint(model, learned, inference)
        judge, _ = _likelihood(model, test)
        strength = l1 or 2.0 * null_gradient(likelihood, 0, 0)
        strengths = PenaltyStrengths(
            layout.l1(0.0), layout.l2(L2), layout.initial(), layout.learnable_mask(), [strength], [L2]
        )
        alone = create_search(likelihood, strengths, activation=None)
        point = alone.run(alone.initial_state(layout.initial(), CandidateSet.empty())).point
        return cls(likelihood, judge, strengths, point, None)

    def nlpl(self, chosen: CandidateSet, point: np.ndarray) -> float:
        return self.test.with_candidates(chosen)(point)[0] / self.test.base.n_nodes


def create_search(
    model: AbstractEdgeObjective, strengths: PenaltyStrengths, *, activation: AbstractActivation | None, **options: Any
) -> StructureSearch:
    """Return a search that tests all edges at the minimum."""
    minimiser = group_lasso_factory(strengths, TOLERANCE, 100_000)
    options = {"final_activation": TopEdges(MAX_EDGES_PER_ROUND, 1.0 + TOLERANCE), **options}
    return StructureSearch(model, strengths, minimiser, activation, **options)


def _likelihood(model: api.Model, tables: dict[str, pd.DataFrame]) -> tuple[EdgeLikelihood, Any]:
    problem = api.training_problem(model.ground(relcrf.Dataset(tables)), with_candidates=True)
    base = blanket_graph(problem.graph, problem.roles, problem.states)
    return EdgeLikelihood.build(base, problem.states[base.variables], _labelled_spaces(problem)), problem.graph.layout


def _labelled_spaces(problem: Problem) -> tuple[Any, ...]:
    """Return the candidate spaces without unlabelled variables, such as jokes that a person has not rated."""
    return tuple(space.restrict_to_variables(problem.roles == Role.FREE) for space in problem.candidates)


def _joint(model: api.Model, tables: dict[str, pd.DataFrame], inference: str) -> tuple[JointEdgeLikelihood, Any]:
    problem = api.training_problem(model.ground(relcrf.Dataset(tables)), with_candidates=True)
    settings = {"memory": TRAINING_MEMORY} if inference == "auto" else {}

    def method(scopes: Scopes) -> AbstractInference:
        return create_inference(inference, scopes, settings)

    base = reduce_graph(problem.graph, problem.roles, problem.states)
    likelihood = JointEdgeLikelihood.build(base, problem.roles, problem.states, _labelled_spaces(problem), method)
    return likelihood, problem.graph.layout


def network(
    n_nodes: int, n: int, n_test: int, seed: int, keep: Path | None, l1: float, inference: str | None = None
) -> World:
    """Return the rows of a scale-free network."""
    drawn, learned, test = scale_free.load_or_draw(n_nodes, n, n_test, seed, keep)
    model = relcrf.parse(scale_free.MODEL.format(last=drawn.bias.shape[1] - 1))
    world = World.of(model, scale_free.tables(learned), scale_free.tables(test), l1, inference)
    return replace(world, truth={(int(s), int(t)) for s, t in drawn.edges})


def split(tables: dict[str, pd.DataFrame], things: str, rows: str, of: str) -> list[dict[str, pd.DataFrame]]:
    """Return the tables of nine tenths of the entities, and those of the others."""
    test = np.arange(len(tables[things])) % 10 == 9
    out = []
    for mask in (~test, test):
        kept = tables[things][mask]
        out.append({things: kept, rows: tables[rows][tables[rows][of].isin(kept["id"])]})
    return out


def jester(l1: float) -> World:
    learned, test = split(real.jester(), "person", "likes", "p")
    return World.of(relcrf.load(ROOT / "models" / "jester.rcrf"), learned, test, l1)


def cooking(l1: float) -> World:
    learned, test = split(real.cooking(), "recipe", "uses", "r")
    return World.of(relcrf.load(ROOT / "models" / "cooking.rcrf"), learned, test, l1)


REAL = {"jester": jester, "cooking": cooking}


def people(n: int) -> World:
    """Return `n` training people of Jester with all their ratings; a tenth of all people is for the test."""
    learned, test = split(real.jester(None, complete=False), "person", "likes", "p")
    ids, likes = learned["person"]["id"].to_numpy(), learned["likes"]
    drawn = np.arange(n) if n <= len(ids) else np.random.default_rng(0).integers(len(ids), size=n)
    rows = likes.groupby("p", sort=False).indices
    copies = [rows[ids[k]] for k in drawn]
    names = np.array([f"q{k}" for k in range(n)], dtype=object)
    repeated = likes.iloc[np.concatenate(copies)].assign(p=np.repeat(names, [len(copy) for copy in copies]))
    tables = {"person": pd.DataFrame({"id": names}), "likes": repeated.reset_index(drop=True)}
    return World.of(relcrf.load(ROOT / "models" / "jester.rcrf"), tables, test, L1_PER_PERSON * n)


def measure_growth(sizes: list[int], time_limit: float) -> dict[str, dict[str, Any]]:
    """Return the results of `edges` for ascending numbers of people; the peak memory is that of the whole process."""
    answer, table = {}, Table("people", "ratings", "seconds", "evaluations", "edges", "nlpl", "peak MiB", "status")
    for n in sorted(sizes):
        world = people(n)
        figures = measure(world, "edges", time_limit)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        names = ("seconds", "evaluations", "edges", "nlpl", "objective", "status")
        answer[str(n)] = {"ratings": world.learned.base.n_nodes, "peak_mib": peak, **{k: figures[k] for k in names}}
        each = answer[str(n)]
        table.add_row(
            f"{n:,}", f"{each['ratings']:,}", f"{each['seconds']:.1f}", str(each["evaluations"]), str(each["edges"]),
            f"{each['nlpl']:.4f}", f"{peak:,}", each["status"],
        )  # fmt: skip
    console.print(table)
    return answer


def compare_objectives(
    n_nodes: int, rows: int, seeds: int, time_limit: float, folder: Path | None
) -> dict[str, dict[str, Any]]:
    """Return mean and standard error over networks of the results of best choice, for each objective.

    `nlpl_difference` is the difference to the first objective on the same network.
    """
    names = ("edges", "precision", "recall", "nlpl", "nlpl_difference", "seconds")
    reference: list[float] = []
    answer: dict[str, dict[str, Any]] = {}
    table = Table("", *names, "converged", title=f"{n_nodes} nodes, {rows:,} rows: mean and standard error")
    options = {"activation": BestChoice(0.0, LIKELIHOOD_RESERVOIR, MAX_TESTS_PER_ROUND)}
    for name, inference in OBJECTIVES.items():
        found = []
        for seed in range(seeds):
            world = network(n_nodes, rows, 2_000, seed, folder, 0.0, inference)
            found.append(measure(world, BEST, time_limit, **options))
        reference = reference or [figures["nlpl"] for figures in found]
        for figures, nlpl in zip(found, reference, strict=True):
            figures["nlpl_difference"] = figures["nlpl"] - nlpl
        values = np.array([[figures[k] for k in names] for figures in found], dtype=np.float64)
        means, errors = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(seeds)
        converged = sum(figures["status"] == "converged" for figures in found)
        figures = {k: [float(m), float(e)] for k, m, e in zip(names, means, errors, strict=True)}
        answer[name] = {**figures, "converged": converged}
        table.add_row(name, *(f"{m:.4g} ({e:.2g})" for m, e in figures.values()), f"{converged}/{seeds}")
    console.print(table)
    return answer


def measure(world: World, method: str, time_limit: float, **options: Any) -> dict[str, Any]:
    """Return the results of one method, and its path.

    Args:
        time_limit: Maximum CPU seconds.
        options: Options of the search that replace those of the method.
    """
    options = {**METHODS[method], **options}
    search = create_search(
        world.learned, world.strengths, max_seconds=time_limit, clock=time.process_time, **options
    )  # fmt: skip
    path: list[tuple[float, float, int]] = []
    seen: list[tuple[float, CandidateSet, np.ndarray]] = []

    def observe(state: SearchState) -> None:
        path.append((state.seconds, state.value, len(state.chosen)))
        if not seen or state.seconds > 1.1 * seen[-1][0] or state.status != "running":
            seen.append((state.seconds, state.chosen, state.point.astype(np.float32)))

    state = search.run(search.initial_state(world.point, CandidateSet.empty()), observe)
    chosen = state.chosen
    strong = search.nonzero_mask(chosen, state.point)
    found = {(int(s), int(t)) for s, t in chosen.pairs(np.flatnonzero(strong))}
    figures: dict[str, Any] = {
        "objective": state.value,
        "nlpl": world.nlpl(chosen, state.point),
        "seconds": state.seconds,
        "edges": len(found),
        "activated": len(chosen),
        "tests": state.n_tests,
        "evaluations": state.evaluations,
        "status": state.status,
        "precision": None,
        "recall": None,
    }
    if world.truth is not None:
        right = len(found & world.truth)
        figures |= {"precision": right / max(len(found), 1), "recall": right / len(world.truth)}
    judged = [(seconds, world.nlpl(chosen, point.astype(np.float64))) for seconds, chosen, point in seen]
    return {**figures, "path": path, "judged": judged}


def load_or_measure(
    row: dict[str, Any], time_limit: float, make: Callable[[], dict[str, Any]], folder: Path | None
) -> dict[str, Any]:
    """Return cached results of a method if that run finished or had the same time limit; otherwise measure them."""
    if folder is None:
        return make()
    path = folder / "figures.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        found = json.loads(line)
        if found["row"] == row and (found["figures"]["status"] == "converged" or found["time_limit"] >= time_limit):
            return dict(found["figures"])
    figures = make()
    with path.open("a") as file:
        file.write(json.dumps({"row": row, "time_limit": time_limit, "figures": figures}) + "\n")
    return figures


def seconds_to_reach(figures: dict[str, Any], level: float) -> float:
    """Return the seconds until the objective reached a level; infinite if it never did."""
    return next((seconds for seconds, value, _ in figures["path"] if value <= level), np.inf)


def time_fractions(found: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    """Return the times of best choice as fractions of those of edge grafting; see the module."""
    if "edges" not in found or BEST not in found:
        return {"time_share_best_choice": None, "time_share_same_level": None}
    edges = found["edges"]
    out: dict[str, float | None] = {}
    for name, margin in (("", 1.01), ("_tenth_percent", 1.001)):
        level = margin * edges["objective"]
        time_best = seconds_to_reach(found[BEST], level)
        out[f"time_share_best_choice{name}"] = time_best / edges["seconds"]
        out[f"time_share_same_level{name}"] = time_best / seconds_to_reach(edges, level)
    return out


def show(title: str, found: dict[str, dict[str, Any]]) -> None:
    names = ("objective", "nlpl", "seconds", "edges", "activated", "tests", "evaluations", "precision", "recall")
    table = Table("", *names, "status", title=title)
    for method, figures in found.items():
        texts = ["" if figures[name] is None else f"{figures[name]:,.5g}" if name != "objective" else f"{figures[name]:,.1f}"
                 for name in names]  # fmt: skip
        table.add_row(method, *texts, figures["status"])
    console.print(table)


def plot(worlds: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    """Plot objective and held-out results over seconds, with two panels for each world."""
    figure, axes = plt.subplots(len(worlds), 2, figsize=(11, 4 * len(worlds)), squeeze=False, layout="constrained")
    for (name, found), (left, right) in zip(worlds.items(), axes, strict=True):
        for k, (method, figures) in enumerate(found.items()):
            look = {"label": method, "color": "black" if method == "features" else f"C{k}"}
            if method != "features":  # it has a different objective
                left.plot(*np.array([(seconds, value) for seconds, value, _ in figures["path"]]).T, **look)
            right.plot(*np.array(figures["judged"]).T, **look)
        least = min(figures["objective"] for method, figures in found.items() if method != "features")
        first = max(figures["path"][0][1] for method, figures in found.items() if method != "features")
        left.set_ylim(least - 0.02 * (first - least), first)
        for axis, title in ((left, "objective"), (right, "held-out pseudo-likelihood, nats a variable")):
            axis.set_xscale("log")
            axis.set_xlabel("seconds of the processor")
            axis.set_title(f"{name}: {title}")
        right.legend(fontsize=7)
    figure.savefig(path)


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="40 nodes and 3,000 rows")
    parser.add_argument("--sizes", type=int, nargs="*", default=[200], help="numbers of nodes")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--l1", type=float, default=0.0, help="0: twice the gradient expected by chance")
    parser.add_argument("--timeout", type=float, default=40.0, help="time limit per method, in seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", nargs="*", choices=REAL, default=[], help="additional real data")
    parser.add_argument("--small", type=int, nargs="*", default=[20, 40], help="numbers of nodes, all objectives")
    parser.add_argument("--seeds", type=int, default=3, help="number of networks to compare objectives, at least 2")
    parser.add_argument("--people", type=int, nargs="*", default=[], help="numbers of people of Jester")
    parser.add_argument("--cache", type=Path, help="cache folder for sampled rows and results")
    parser.add_argument("--plot", type=Path, help="file of the plot")
    chosen = parser.parse_args()
    whole = (chosen.sizes, chosen.rows, chosen.timeout, chosen.small, chosen.seeds)
    sizes, rows, time_limit, small, seeds = sized(
        chosen, whole, ([40], 3_000, min(chosen.timeout, 4.0), [15], 2), ([10], 100, 0.1, [5], 2)
    )
    makers: dict[str, Callable[[], World]] = {
        f"{n} nodes": partial(network, n, rows, 2_000, chosen.seed, chosen.cache, chosen.l1) for n in sizes
    }
    makers |= {name: partial(REAL[name], chosen.l1) for name in chosen.data}
    worlds: dict[str, dict[str, dict[str, Any]]] = {}
    answer: dict[str, Any] = {}
    for name, make in makers.items():
        world = make()
        measure(world, BEST, 0.2)  # compile the kernels
        worlds[name] = {}
        for method in chosen.methods:
            row = {"world": name, "rows": rows, "seed": chosen.seed, "l1": chosen.l1, "method": method}
            worlds[name][method] = figures = load_or_measure(
                row, time_limit, partial(measure, world, method, time_limit), chosen.cache
            )
            console.print(
                f"{name}: {method}: {figures['seconds']:.1f} s, {figures['edges']} edges, {figures['status']}"
            )
        unary = world.nlpl(CandidateSet.empty(), world.point)
        title = f"{name}, l1 {world.strengths.l1[0]:.1f}, nlpl of unary weights {unary:.4f}"
        show(title, worlds[name])
        plain = {m: {k: v for k, v in f.items() if k not in ("path", "judged")} for m, f in worlds[name].items()}
        answer[name] = {**plain, **time_fractions(worlds[name])}
        console.print(
            {key: round(value, 4) for key, value in time_fractions(worlds[name]).items() if value is not None}
        )
    if chosen.plot:
        plot(worlds, chosen.plot)
    small_rows = min(rows, 5_000)
    objectives = {f"{n} nodes": compare_objectives(n, small_rows, seeds, time_limit, chosen.cache) for n in small}
    growth = measure_growth(chosen.people, time_limit) if chosen.people else {}
    # The top-level results are those of the largest network.
    first = [name for name in answer if name.endswith("nodes")][-1:] or list(answer)[:1]
    top = {k: v for name in first for k, v in answer[name].items()}
    print(json.dumps({**top, "worlds": answer, "objectives": objectives, "growth": growth}))


if __name__ == "__main__":
    main()
