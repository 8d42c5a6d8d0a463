"""Approximate inference for graphs that are too large for exact inference: the most credible result of several methods.

Source: Heskes, Stable fixed points of loopy belief propagation are local minima of the Bethe free energy (2002), for the choice
among fixed points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from relcrf.graph.possible_states import is_impossible
from relcrf.graph.scopes import Potentials, Scopes, SharedPotentials
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.coordinate_ascent import ascend_states, modes
from relcrf.inference.dual_decomposition import DualDecomposition
from relcrf.inference.gibbs import Gibbs
from relcrf.inference.map_search import MapSearch
from relcrf.inference.mini_bucket import MiniBucket
from relcrf.inference.result import (
    AbstractInference,
    MapStates,
    Marginals,
    Observer,
    UnsupportedGraphError,
    Verdict,
    ignore_progress,
)

STRONG_DAMPING = 0.5
"""Damping of further attempts, if propagation does not converge with the damping that the user has set."""

START_SPREAD = 2.0
"""Standard deviation of the initial log messages of restarts, in nats; most odds are then between 1:50 and 50:1."""

QUICK_ITERATIONS = 20
"""Number of rounds of propagation after a time limit or Ctrl-C that comes before the first result."""

SAMPLED_SLOTS, MIN_SAMPLES, MAX_SAMPLES = 1 << 26, 200, 10_000
"""Number of slots of factors in all importance samples, which takes about ten seconds, and limits of the number of samples."""

MAX_SEARCHED_NODES = 10_000
"""Maximum number of nodes of a search; the search of a grid of 150 x 150 nodes needs 20 seconds to start."""

MAX_DISAGREEMENT = 0.01
"""Maximum difference of two marginals that are called equal."""


@dataclass(frozen=True, eq=False)
class Approximation(AbstractInference):
    """The most credible of several methods: weighted mini-buckets with samples, belief propagation and Gibbs sampling.

    1. `MiniBucket` is final if its samples converge.
    2. Propagation runs with the flooding schedule; if it does not converge, it runs again with damping, and then node by node. Of
       all fixed points, the one with the largest Bethe approximation of the log partition function is returned. The remark of
       the verdict says how far the marginals of other fixed points differ.
    3. If propagation does not converge, the marginals are those of Gibbs sampling, if this converges, or of `MiniBucket`.

    `Marginals.lower` and `Marginals.upper` are bounds of the log partition function: the score of the best known joint state,
    and the smaller one of the bounds of `MiniBucket` and of single nodes and factors. The log partition function is never outside
    the bounds.

    Args:
        damping, tolerance, max_iterations, device: Settings of belief propagation.
        bound_cells: Maximum number of cells of a table of `MiniBucket`; 0 omits this method.
        restarts: Number of additional propagations from random messages.
        sweeps: Number of sweeps of Gibbs sampling if propagation does not converge; 0 for none.
        rounds: Maximum number of rounds of the search for most probable states (`MapSearch`); 0 for none. Graphs of more than
            `MAX_SEARCHED_NODES` nodes are not searched.
        seed: Seed of the messages, of Gibbs sampling and of the search.
        observe: Callback that receives the verdicts of the methods during the run.
    """

    scopes: Scopes
    damping: float = 0.0
    tolerance: float = 1e-6
    max_iterations: int = 1000
    device: str = "cpu"
    bound_cells: int = 0
    restarts: int = 0
    sweeps: int = 0
    rounds: int = 7
    seed: int = 0
    observe: Observer = field(default=ignore_progress)

    def marginals(self, potentials: Potentials) -> Marginals:
        return self.shared_marginals(SharedPotentials.from_potentials(self.scopes, potentials))

    def node_marginals(self, potentials: Potentials) -> Marginals:
        return self.shared_marginals(SharedPotentials.from_potentials(self.scopes, potentials), with_factors=False)

    def shared_marginals(self, potentials: SharedPotentials, with_factors: bool = True) -> Marginals:
        if is_impossible(self.scopes, potentials):
            factors = np.full(len(potentials.tables) if with_factors else 0, np.nan)
            return Marginals(-np.inf, np.full(len(potentials.nodes), np.nan), factors, Verdict("exact"))
        lower, upper = trivial_bounds(self.scopes, potentials)
        results: list[Marginals] = []
        try:
            for found in self._results(potentials, with_factors, lower, upper):
                upper = min(upper, found.upper)
                results.append(found)
                if upper == -np.inf or found.verdict.status == "interrupted":
                    break
            best = results[-1]
        except KeyboardInterrupt:
            best = results[-1] if results else self._quick_result(potentials, with_factors)
            best = replace(best, verdict=replace(best.verdict, status="interrupted"))
        return best if upper == -np.inf else self._limit(potentials, best, lower, upper)

    def _results(
        self, potentials: SharedPotentials, with_factors: bool, lower: float, upper: float
    ) -> Iterator[Marginals]:
        """Yield results, each more credible than the one before, until one is good."""
        bounded = self._bound(potentials, with_factors)
        if bounded is not None:
            yield bounded
            if bounded.verdict.is_good:
                return
            upper = min(upper, bounded.upper)
        best = self._propagate_best(potentials, with_factors, lower, upper)
        if best.verdict.is_good or bounded is None:
            yield best
        best.verdict.raise_if_interrupted()
        if not best.verdict.is_good and self.sweeps:
            sampled = self._gibbs.shared_marginals(potentials, with_factors)
            sampled.verdict.raise_if_interrupted()
            if sampled.verdict.is_good:
                yield replace(best, nodes=sampled.nodes, factors=sampled.factors, verdict=sampled.verdict)

    def _quick_result(self, potentials: SharedPotentials, with_factors: bool) -> Marginals:
        """Return the result of a few rounds of damped propagation."""
        return replace(self._attempts[1], max_iterations=QUICK_ITERATIONS).shared_marginals(potentials, with_factors)

    def _bound(self, potentials: SharedPotentials, with_factors: bool) -> Marginals | None:
        """Return the result of mini-buckets; None if they are omitted or need too much memory."""
        if not self.bound_cells:
            return None
        n_samples = int(np.clip(SAMPLED_SLOTS // max(1, len(self.scopes.node)), MIN_SAMPLES, MAX_SAMPLES))
        method = MiniBucket(
            self.scopes, max_cells=self.bound_cells, samples=n_samples, seed=self.seed, observe=self.observe
        )
        try:
            return method.shared_marginals(potentials, with_factors)
        except UnsupportedGraphError:
            return None

    def _propagate_best(
        self, potentials: SharedPotentials, with_factors: bool, lower: float, upper: float
    ) -> Marginals:
        """Return the most credible result of all propagations."""
        fixed_points: list[Marginals] = []
        best: Marginals | None = None
        n_runs = 0
        for found in self._propagate(potentials, with_factors):
            n_runs += 1
            if found.verdict.status == "interrupted":
                return found
            if found.verdict.status == "converged":
                fixed_points.append(found)
            if best is None or _credibility(found, lower, upper) > _credibility(best, lower, upper):
                best = found
        assert best is not None
        return self._compare(best, fixed_points, n_runs)

    def map_states(self, potentials: Potentials) -> MapStates:
        """Search for the most probable joint state; without rounds, or on large graphs, only by dual decomposition."""
        if not self.rounds or self.scopes.n_nodes > MAX_SEARCHED_NODES:
            return self._dual.map_states(potentials)
        return MapSearch(self.scopes, max_iterations=self.rounds, seed=self.seed, observe=self.observe).map_states(
            potentials
        )

    @cached_property
    def _dual(self) -> DualDecomposition:
        return DualDecomposition(
            self.scopes, tolerance=self.tolerance, max_iterations=self.max_iterations, observe=self.observe
        )

    @cached_property
    def _gibbs(self) -> Gibbs:
        return Gibbs(self.scopes, sweeps=self.sweeps, seed=self.seed, blocks="tree", observe=self.observe)

    @cached_property
    def _attempts(self) -> list[BeliefPropagation]:
        """Propagations to try until one converges."""
        first = BeliefPropagation(
            self.scopes,
            damping=self.damping,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            device=self.device,
            observe=self.observe,
        )
        damped = replace(first, damping=max(self.damping, STRONG_DAMPING))
        return [first, damped, replace(damped, schedule="sequential", device="cpu")]

    def _propagate(self, potentials: SharedPotentials, with_factors: bool) -> Iterator[Marginals]:
        """Yield the results of the attempts until one converges, then those of the restarts."""
        for method in self._attempts:
            found = method.shared_marginals(potentials, with_factors)
            yield found
            if found.verdict.status in ("converged", "interrupted"):
                break
        for restart in range(self.restarts):
            method = replace(self._attempts[-1], start_spread=START_SPREAD, seed=self.seed + restart)
            yield method.shared_marginals(potentials, with_factors)

    def _compare(self, best: Marginals, fixed_points: list[Marginals], n_runs: int) -> Marginals:
        """Return the best fixed point with a remark on the others."""
        differences = [float(np.abs(other.nodes - best.nodes).max(initial=0.0)) for other in fixed_points]
        n_other = sum(difference > MAX_DISAGREEMENT for difference in differences)
        remark = best.verdict.remark
        if n_other:
            remark = (
                f"{n_other} of {n_runs} runs found other marginals, which differ by up to {max(differences):.2g}: "
                "do not trust the probabilities"
            )
        return replace(best, verdict=replace(best.verdict, remark=remark))

    def _limit(self, potentials: SharedPotentials, found: Marginals, lower: float, upper: float) -> Marginals:
        """Return the result with bounds, and with a log partition function within them.

        The lower bound is raised to the score of the best states of single nodes, improved by coordinate ascent.
        """
        scopes, value, verdict = self.scopes, found.log_partition, found.verdict
        if np.isfinite(found.nodes).all():
            tables = Potentials(potentials.nodes, potentials.tables)
            best = modes(found.nodes, scopes.state_start)
            states = ascend_states(potentials.kernel_factors(scopes), tables, best)
            lower = max(lower, potentials.score(scopes, states.astype(np.int64)))
        if not lower <= value <= upper:
            value = float(np.clip(np.nan_to_num(value, nan=upper), lower, max(lower, upper)))
            remarks = verdict.remark, "the estimate of the partition function was outside its bounds"
            verdict = replace(verdict, remark="; ".join(filter(None, remarks)))
        return Marginals(value, found.nodes, found.factors, verdict, lower, max(lower, upper))


def trivial_bounds(scopes: Scopes, potentials: SharedPotentials) -> tuple[float, float]:
    """Return bounds of the log partition function of a graph with a possible joint state, in nats.

    The lower bound is the sum of the smallest log potentials of possible states, the upper bound the sum of the log partition
    functions of single nodes and of the largest log potentials of the factors.
    """
    if not scopes.n_nodes:
        return 0.0, 0.0
    starts = scopes.state_start[:-1]
    top = np.maximum.reduceat(potentials.nodes, starts)
    with np.errstate(invalid="ignore"):
        mass = np.add.reduceat(np.exp(potentials.nodes - np.repeat(top, scopes.cardinality)), starts)
    upper = float((top + np.log(mass)).sum())
    lower = float(np.minimum.reduceat(np.where(potentials.nodes > -np.inf, potentials.nodes, np.inf), starts).sum())
    if scopes.n_factors:
        begin, tables = potentials.table_start[:-1], potentials.tables
        largest = potentials.spread(np.maximum.reduceat(tables, begin))
        smallest = potentials.spread(np.minimum.reduceat(np.where(tables > -np.inf, tables, np.inf), begin))
        # The log potential of an agreement whose nodes differ is 0.
        upper += float(np.where(scopes.is_agreement, np.maximum(largest, 0.0), largest).sum())
        lower += float(np.where(scopes.is_agreement, np.minimum(smallest, 0.0), smallest).sum())
    return lower, upper


def _credibility(found: Marginals, lower: float, upper: float) -> tuple[bool, bool, float]:
    """Return a key by which results are compared: convergence, consistency with the bounds, and the Bethe approximation."""
    value = found.log_partition
    is_converged = found.verdict.status == "converged"
    return is_converged, lower <= value <= upper, value if is_converged else -found.verdict.residual
