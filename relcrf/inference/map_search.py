"""Anytime search for the most probable joint state: branch and bound on the dual's messages, and simulated annealing.

Source: Allouche, de Givry, Katsirelos, Schiex & Zytnicki, Anytime hybrid best-first search with tree decomposition for weighted
CSP (2015), for best-first search over depth-first searches; Boussemart, Hemery, Lecoutre & Sais, Boosting systematic search by
weighting constraints (2004), for the choice of nodes; Luby, Sinclair & Zuckerman, Optimal speedup of Las Vegas algorithms (1993),
for the lengths of the restarts. Our bound is that of `DualDecomposition` instead of soft arc consistency.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.coordinate_ascent import ascend_states, independent_states
from relcrf.inference.dual_decomposition import GAP_TOLERANCE, DualAscent, PassLayout
from relcrf.inference.induced_forests import forest_cover, sampling_scratch
from relcrf.inference.iteration import iterate
from relcrf.inference.node_elimination import EliminatedGraph, eliminate_nodes
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Observer, Verdict, ignore_progress
from relcrf.kernels import gibbs as gibbs_kernel
from relcrf.kernels import map_search as kernel

DUAL_ROUNDS = 100
"""Maximum number of rounds of the dual before the search; the search continues the descent where it helps."""

DUAL_TOLERANCE = 1e-6
"""Relative decrease of the bound per round at which the dual stops before the search."""

FAILURES = 100
"""Number of failures of a depth-first search; with 10, Promedas_25 of UAI 2014 is not solved, because replays take most time."""

MIN_PROGRESS = 0.02
"""Relative decrease of the gap by which branch and bound in a round is of use, if it finds no better state."""

MAX_INTERVAL = 8
"""Maximum number of rounds per round with branch and bound; in 8 s, Grids_18 of UAI 2014 runs 63 rounds instead of 28."""

TEMPERATURES = np.append(np.geomspace(1.0, 0.005, 50), 1e-7)
"""Temperatures of annealing, relative to the mean range of a factor. The last one makes each forest's joint state optimal."""

SWEEPS = 4
"""Number of sweeps at each temperature in the shortest annealing run."""

PENALTY = 3.0
"""Log potential of an impossible cell in annealing, relative to the largest range of a factor; negative."""

MIN_TRAIL = 1 << 20
"""Minimum number of entries of the trail; 16 MB."""


@dataclass(frozen=True, eq=False)
class MapSearch(AbstractInference):
    """Search for the most probable states of any graph, with an upper bound of all scores, but without marginals.

    First, nodes are eliminated exactly where this needs only small tables, and the dual of the remaining graph is computed. Each
    round then runs simulated annealing over induced forests from a new random state, and branch and bound: depth-first searches
    with a limited number of failures, each below the open search node with the highest bound. In each search node, messages are
    updated where they change, and states whose bound is not above the best score are removed. The lengths of both follow the
    sequence of Luby et al. (1, 1, 2, 1, 1, 2, 4, ...).

    The verdict is `exact` if the search has shown that no joint state has a higher score; `converged` if the state is suboptimal
    by at most the tolerance. The residual is the gap between bound and score, relative to max(1, |score|), and at most 1.

    Args:
        tolerance: Relative gap between bound and score at convergence.
        max_iterations: Maximum number of rounds.
        max_cells: Maximum number of joint states of an eliminated node and its neighbours.
        seed: Seed of all random numbers.
        observe: Callback that receives the current verdict after each round.
    """

    scopes: Scopes
    tolerance: float = 0.0
    max_iterations: int = 255
    max_cells: int = 128
    seed: int = 0
    observe: Observer = field(default=ignore_progress)

    def marginals(self, potentials: Potentials) -> Marginals:
        """Raise ValueError: the method does not compute marginals."""
        raise ValueError("search does not compute marginals, only most probable states")

    def map_states(self, potentials: Potentials) -> MapStates:
        states = ascend_states(self.scopes.kernel_factors, potentials, np.zeros(self.scopes.n_nodes, dtype=np.int32))
        score, bound = self.scopes.score(potentials, states), np.inf
        run: _SearchRun | None = None

        def run_rounds(rounds: int) -> float:
            nonlocal run, states, score, bound
            if run is None:
                graph = eliminate_nodes(self.scopes, potentials, self.max_cells)
                run = _SearchRun(graph, np.random.default_rng(self.seed))
            for _ in range(rounds):
                run.run_round()
                found = run.graph.extend_states(run.states)
                found_score = self.scopes.score(potentials, found)
                if found_score > score:
                    states, score = found, found_score
                bound = min(bound, run.bound + run.graph.constant)
            return _relative_gap(score, bound)

        verdict = iterate(run_rounds, self.tolerance, self.max_iterations, self.observe)
        if _relative_gap(score, bound) <= GAP_TOLERANCE:
            return MapStates(score, states, score, Verdict("exact", verdict.iterations, 0.0))
        return MapStates(score, states, bound, verdict)


def _relative_gap(score: float, bound: float) -> float:
    """Return the gap between bound and score relative to max(1, |score|), at most 1; rounding errors count as 0."""
    if bound <= score:
        return 0.0
    gap = (bound - score) / max(1.0, abs(score)) if score > -np.inf else 1.0
    return 0.0 if gap <= GAP_TOLERANCE else min(gap, 1.0)


class _OpenNode(NamedTuple):
    """An unexplored search node; the tuples sort by descending bound.

    Args:
        negative_bound: Negative upper bound of the scores in the search node.
        serial: Serial number.
        path: Decisions of the depth-first search that left the search node open; see `kernel.explore`.
        n_decisions: The decisions `path[:n_decisions]` lead to the search node.
        reversed_last: Whether the last of these decisions removes its state instead of choosing it.
    """

    negative_bound: float
    serial: int
    path: np.ndarray
    n_decisions: int
    reversed_last: bool

    def decisions(self) -> np.ndarray:
        path = self.path[: self.n_decisions].copy()
        if self.reversed_last:
            path[-1, 2] = 0
        return path


class _SearchRun:
    """The state of a search on the graph that remains after elimination.

    Attributes:
        graph: The graph.
        states, score: The best joint state, and its score.
        bound: Upper bound of the scores of all joint states.
    """

    def __init__(self, graph: EliminatedGraph, rng: np.random.Generator) -> None:
        self.graph, self._rng = graph, rng
        self._scopes, self._potentials = graph.scopes, graph.potentials
        self.states, self.score, self.bound = np.zeros(self._scopes.n_nodes, dtype=np.int32), -np.inf, np.inf
        self._tables = (self._scopes.kernel_factors, *self._potentials)
        self._n_rounds, self._interval, self._serial, self._open = 0, 1, 0, list[_OpenNode]()
        self._annealing = _Annealing(self._scopes, self._potentials)
        layout = PassLayout.of_scopes(self._scopes)
        ascent = DualAscent(self._scopes, self._potentials, layout)
        for _ in range(DUAL_ROUNDS):
            states = ascent.run_round()
            if states is None:
                self.bound = -np.inf
                return
            self._improve(states)
            previous, self.bound = self.bound, ascent.compute_bound()
            if previous - self.bound <= DUAL_TOLERANCE * max(1.0, abs(self.bound)):
                break
        self._search = _search_state(self._scopes, layout, ascent)
        kernel.initialise_bounds(*self._tables, self._search)
        self._push(self._search.total[0], np.empty((0, 3), dtype=np.int64), 0, reversed_last=False)
        n_states = len(self._potentials.nodes)
        self._decisions, self._bounds = np.empty((n_states + 1, 3), dtype=np.int64), np.empty(n_states + 1)

    def run_round(self) -> None:
        """Run annealing and branch and bound once, unless the best state is known to be optimal."""
        if self._is_finished():
            return
        self._n_rounds += 1
        length = _luby(self._n_rounds)
        self._improve(self._annealing.run(length, self._rng))
        if self._n_rounds % self._interval == 0:
            self._run_branch_and_bound(FAILURES * length)

    def _run_branch_and_bound(self, max_failures: int) -> None:
        """Explore open search nodes; double the interval to the next exploration if this one was of little use."""
        self._remove_states()
        old_score, old_gap = self.score, self.bound - self.score
        while max_failures > 0 and not self._is_finished():
            max_failures -= self._explore(max_failures)
        is_useful = self.score > old_score or self.bound - self.score <= (1.0 - MIN_PROGRESS) * old_gap
        self._interval = 1 if is_useful else min(2 * self._interval, MAX_INTERVAL)

    @property
    def _epsilon(self) -> float:
        """Return the smallest difference of scores that is not a rounding error."""
        return GAP_TOLERANCE * max(1.0, abs(self.score)) if self.score > -np.inf else 0.0

    def _is_finished(self) -> bool:
        """Update the bound of all scores, and return True if it equals the best score."""
        if self.bound > -np.inf:
            top = -self._open[0].negative_bound if self._open else self.score
            self.bound = max(self.score, min(self.bound, top))
        return self.bound <= self.score + self._epsilon

    def _improve(self, states: np.ndarray) -> bool:
        """Apply coordinate ascent to a joint state; store the result, and return True, if it is the best so far."""
        states = ascend_states(self._tables[0], self._potentials, states)
        score = self._scopes.score(self._potentials, states)
        if score <= self.score:
            return False
        self.states, self.score = states, score
        return True

    def _remove_states(self) -> None:
        """Remove the states that cannot be part of a better joint state, for the rest of the search."""
        search = self._search
        search.changed[:] = True
        search.counts[2] += 1
        if not kernel.propagate(*self._tables, search, self.score, self._epsilon):
            self._open.clear()
        search.counts[:2] = 0

    def _push(self, bound: float, path: np.ndarray, n_decisions: int, *, reversed_last: bool) -> None:
        self._serial += 1
        heapq.heappush(self._open, _OpenNode(-bound, self._serial, path, n_decisions, reversed_last))

    def _explore(self, max_failures: int) -> int:
        """Search below the open node with the highest bound; return the number of failures."""
        path = heapq.heappop(self._open).decisions()
        states, limit = self.states.copy(), min(FAILURES, max_failures)
        score, depth, failures = kernel.explore(
            *self._tables,
            self._search,
            path,
            self.score,
            self._epsilon,
            limit,
            states,
            self._decisions,
            self._bounds,
        )
        is_better = score > self.score and self._improve(states)
        below = np.concatenate((path, self._decisions[:depth]))
        for k in range(depth):
            kind = self._decisions[k, 2]
            if kind and self._bounds[k] > self.score + self._epsilon:
                n_decisions = len(path) + k + (kind == 1)
                self._push(self._bounds[k], below, n_decisions, reversed_last=kind == 1)
        if is_better:
            self._remove_states()
        return int(failures)


def _search_state(scopes: Scopes, layout: PassLayout, ascent: DualAscent) -> kernel.BoundedState:
    """Return the state of the kernels at the root of the search, except for the bounds of nodes and factors."""
    n_messages, n_nodes = len(ascent.message), scopes.n_nodes
    number = np.zeros(n_messages + n_nodes + scopes.n_factors)
    number[:n_messages] = ascent.message
    rank = np.empty(n_nodes, dtype=np.int64)
    rank[layout.order] = np.arange(n_nodes)
    owner = np.repeat(np.arange(n_nodes, dtype=np.int32), scopes.cardinality)
    n_trail = MIN_TRAIL + 4 * len(number)
    return kernel.BoundedState(
        order=layout.order,
        rank=rank,
        message_start=layout.message_start,
        number=number,
        alive=ascent.alive,
        owner=owner,
        n_alive=np.bincount(owner[ascent.alive], minlength=n_nodes),
        mode=np.zeros(n_nodes, dtype=np.int32),
        changed=np.ones(n_nodes, dtype=np.bool_),
        weight=np.bincount(scopes.node, minlength=n_nodes).astype(np.float64),
        saved_at=np.zeros(len(number), dtype=np.int64),
        trail_index=np.empty(n_trail, dtype=np.int64),
        trail_value=np.empty(n_trail),
        dead=np.empty(len(owner), dtype=np.int64),
        total=np.zeros(1),
        counts=np.zeros(3, dtype=np.int64),
    )


class _Annealing:
    """Simulated annealing over induced forests, with a finite penalty for impossible cells."""

    def __init__(self, scopes: Scopes, potentials: Potentials) -> None:
        self._scopes, self._potentials = scopes, potentials
        self._scale, largest = _ranges(scopes, potentials.factors)
        self._finite = Potentials(*(np.where(np.isneginf(table), -PENALTY * largest, table) for table in potentials))
        n_states, n_cells = len(potentials.nodes), len(potentials.factors)
        self._sums = (*np.zeros((3, n_states)), np.zeros(n_cells), np.zeros(1, dtype=np.int64))

    def run(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """Return a joint state of low energy; `length` multiplies the number of sweeps."""
        factors = self._scopes.kernel_factors
        states = independent_states(self._scopes, self._potentials, rng)
        sets = forest_cover(factors, rng)
        scratch = sampling_scratch(factors, sets)
        for temperature in TEMPERATURES:
            tables = tuple(table / (temperature * self._scale) for table in self._finite)
            for _ in range(length):
                uniform = rng.random((SWEEPS, len(sets.node)))
                gibbs_kernel.run_sweeps(factors, sets, *tables, uniform, False, states, *self._sums, scratch)
        return states


def _ranges(scopes: Scopes, table: np.ndarray) -> tuple[float, float]:
    """Return the mean and the largest range of the finite log potentials of a factor; 1 if all factors are constant."""
    if not scopes.n_factors:
        return 1.0, 1.0
    high = np.maximum.reduceat(table, scopes.table_start[:-1])
    low = np.minimum.reduceat(np.where(np.isneginf(table), np.inf, table), scopes.table_start[:-1])
    ranges = (high - low)[high > low]
    return (float(ranges.mean()), float(ranges.max())) if len(ranges) else (1.0, 1.0)


def _luby(i: int) -> int:
    """Return element `i` (from 1) of the sequence 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, ..."""
    k = i.bit_length()
    return 1 << (k - 1) if i == (1 << k) - 1 else _luby(i - (1 << (k - 1)) + 1)
