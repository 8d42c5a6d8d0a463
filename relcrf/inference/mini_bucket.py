"""Weighted mini-bucket elimination: marginals, and upper bounds of the log partition function and of the best score.

Source: Dechter & Rish (2003) for mini-buckets; Liu & Ihler (2011) for weights, moment matching and marginals. Deviations: the
partition is greedy by numbers of cells, moments are matched over all nodes that the mini-buckets of a bucket share, and a step
that increases the bound is undone and repeated with half the step size. Liu, Fisher & Ihler (2015) for importance sampling;
deviation: the marginals of the samples and of the bound are averaged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.clique_tree import MAX_SEARCHED_NODES
from relcrf.inference.coordinate_ascent import ascend_states, independent_states
from relcrf.inference.elimination_order import NO_LIMIT, adjacent_pairs, greedy_rule, node_weights, search_order
from relcrf.inference.iteration import iterate
from relcrf.inference.result import (
    AbstractInference,
    MapStates,
    Marginals,
    Observer,
    UnsupportedGraphError,
    Verdict,
    ignore_progress,
)
from relcrf.kernels import bucket_partition, elimination
from relcrf.kernels import mini_bucket as kernel
from relcrf.kernels.bucket_partition import MiniBuckets

SEARCHED_CELLS = 1 << 25
"""Number of cells that determines the length of the search for an elimination order, 0.1 s."""

MAX_SHIFT_CELLS = 1 << 10
"""Maximum number of cells of a shift table; with 1 instead, the bounds of strongly coupled grids are five times as far off."""

MAX_TABLE_CELLS = 1 << 40
"""Maximum number of cells of a table for any `max_cells`; sums then fit into 64-bit integers."""

STEP_GROWTH = 1.3
"""Growth of the step size of the weights after a step that decreases the bound; 20 iterations then suffice on most graphs."""

MIN_STEP = 1e-3
"""Step size at which the bound no longer decreases."""

MAX_RANDOM_NUMBERS = 1 << 21
"""Maximum number of random numbers in memory."""

MAX_STANDARD_ERROR = 0.1
"""Relative standard error of the partition function at which importance sampling has converged: 100 effective samples."""

GAP_TOLERANCE = 1e-9
"""Difference of bound and score, relative to max(1, |score|), at which a joint state is optimal up to rounding errors."""


@dataclass(frozen=True)
class MiniBucket(AbstractInference):
    """Weighted mini-bucket elimination, with upper bounds of the log partition function and of the best score.

    If no bucket is split, the result and its verdict are exact. Otherwise `Marginals.log_partition` is an upper bound in nats,
    which does not increase with the number of iterations; -inf proves that all joint states are impossible. The residual is the
    decrease of the bound relative to max(1, |bound|) or, if this is larger, the largest change of a node's marginal.

    With `samples`, joint states are drawn from a proposal that is constructed from the mini-buckets. `Marginals.log_partition`
    is then an estimate, `Marginals.upper` the upper bound, and the residual the relative standard error of the partition
    function, as estimated from the importance weights.

    Args:
        max_cells: Maximum number of cells of a table; the tables of factors can be larger.
        max_iterations: Maximum number of iterations, each a pass of messages in both directions.
        tolerance: Residual at convergence.
        samples: Number of importance samples for the marginals; 0 disables sampling.
        seed: Random seed of the samples.
        memory: Memory limit for potentials, messages and tables in bytes.
        observe: Callback that receives the current verdict after each iteration.

    Raises:
        UnsupportedGraphError: A ValueError, at the first call and before allocation, if the tables would exceed the limit.
    """

    scopes: Scopes
    max_cells: int = 1 << 16
    max_iterations: int = 30
    tolerance: float = 1e-4
    samples: int = 0
    seed: int = 0
    memory: int = 1 << 30
    observe: Observer = field(default=ignore_progress)

    def __post_init__(self) -> None:
        """Validate the settings."""
        if self.max_cells < 1:
            raise ValueError(f"max_cells must be at least 1, not {self.max_cells}")

    @cached_property
    def mini_buckets(self) -> MiniBuckets:
        """Return the mini-buckets for a good elimination order, with full tables for agreement factors."""
        scopes = self.scopes
        full = Scopes(scopes.cardinality, scopes.start, scopes.node)
        log_sizes = np.log2(scopes.cardinality)
        self._check_memory(float(np.exp2(np.add.reduceat(log_sizes[scopes.node], scopes.start[:-1])).sum()))
        minis: MiniBuckets = bucket_partition.partition_buckets(
            full.cardinality,
            _search_order(scopes),
            full.start,
            full.node,
            full.stride,
            full.table_start,
            min(self.max_cells, MAX_TABLE_CELLS),
            MAX_SHIFT_CELLS,
        )
        _, largest_bucket, largest = bucket_partition.count_cells(minis)
        self._check_memory(2.0 * minis.region[-1] + largest_bucket + largest)
        return minis

    def _check_memory(self, n_cells: float) -> None:
        if 8 * n_cells > self.memory:
            message = f"the tables need {8 * n_cells:.3g} bytes, and the limit is {self.memory:,}; lower max_cells"
            raise UnsupportedGraphError(message)

    @property
    def is_exact(self) -> bool:
        """Return True if no bucket is split."""
        return len(self.mini_buckets.message) == self.scopes.n_nodes

    def marginals(self, potentials: Potentials) -> Marginals:
        run = _MiniBucketRun(self, potentials, maximum=False)
        nodes, residual = np.full(len(potentials.nodes), np.inf), 1.0

        def step(rounds: int) -> float:
            nonlocal nodes, residual
            for _ in range(rounds):
                last_bound, last_nodes = run.bound, nodes
                if not run.improve():
                    continue
                if run.bound == -np.inf:
                    return 0.0
                nodes = run.node_marginals()
                change = float(np.abs(nodes - last_nodes).max(initial=0.0))
                residual = min(1.0, max(change, (last_bound - run.bound) / max(1.0, abs(run.bound))))
            return 0.0 if run.step < MIN_STEP else residual

        verdict = (
            Verdict("exact") if self.is_exact else iterate(step, self.tolerance, self.max_iterations, self.observe)
        )
        if run.restore_best() == -np.inf:
            nodes, factors = (np.full_like(table, np.nan) for table in potentials)
            return Marginals(-np.inf, nodes, factors, Verdict("exact", verdict.iterations), upper=-np.inf)
        tables = run.marginal[: run.minis.region[1]].copy()
        tables[: len(potentials.nodes)] = run.node_marginals()
        log_partition = run.bound
        if self.samples > 0 and verdict.status not in ("exact", "interrupted"):
            samples = _ImportanceSamples(run, np.random.default_rng(self.seed))
            sampling = iterate(samples.draw, 0.0, self.samples, self.observe, samples.n_per_chunk)
            if samples.total > 0.0:  # otherwise all samples are impossible, which proves nothing
                log_partition = min(samples.log_partition, run.bound)
            tables = samples.average(tables)
            status = "converged" if samples.standard_error <= MAX_STANDARD_ERROR else "not converged"
            status = sampling.status if sampling.status == "interrupted" else status
            remark = (
                f"estimated from {samples.n:,} samples, with this relative standard error of the partition function"
            )
            verdict = Verdict(status, verdict.iterations, samples.standard_error, remark)
        nodes, factors = (
            tables[: len(potentials.nodes)],
            self.scopes.collapse_agreements(tables[len(potentials.nodes) :]),
        )
        return Marginals(log_partition, nodes, factors, verdict, upper=run.bound)

    def map_states(self, potentials: Potentials) -> MapStates:
        scopes, run = self.scopes, _MiniBucketRun(self, potentials, maximum=True)
        best = ascend_states(scopes.kernel_factors, potentials, independent_states(scopes, potentials))

        def is_optimal() -> bool:
            score = scopes.score(potentials, best)
            return run.bound == -np.inf or run.bound - score <= GAP_TOLERANCE * max(1.0, abs(score))

        def step(rounds: int) -> float:
            nonlocal best
            residual = 1.0
            for _ in range(rounds):
                before = run.bound
                run.improve()
                states = kernel.decode(run.minis, scopes.cardinality, run.values)
                states = ascend_states(scopes.kernel_factors, potentials, states)
                if scopes.score(potentials, states) > scopes.score(potentials, best):
                    best = states
                if is_optimal():
                    return 0.0
                residual = min(1.0, (before - run.bound) / max(1.0, abs(run.bound)))
            return residual

        verdict = iterate(step, self.tolerance, 1 if self.is_exact else self.max_iterations, self.observe)
        score = scopes.score(potentials, best)
        if is_optimal() or (self.is_exact and verdict.status != "interrupted"):
            return MapStates(score, best, score, Verdict("exact", verdict.iterations))
        if score == -np.inf and verdict.status == "converged":  # the state is impossible
            verdict = Verdict("not converged", verdict.iterations, verdict.residual)
        return MapStates(score, best, max(run.bound, score), verdict)


class _MiniBucketRun:
    """The state of an optimisation of the bound: shifts, weights and messages.

    Args:
        method: The method with its settings.
        potentials: Log potentials.
        maximum: Whether the bound is that of the best score.

    Attributes:
        bound: Smallest bound so far.
        step: Step size of the matching of shifts.
        values, marginal: Flat tables and pseudo-marginals; see `kernels/mini_bucket.py`.
    """

    def __init__(self, method: MiniBucket, potentials: Potentials, *, maximum: bool) -> None:
        self.scopes, self.minis, self.maximum = method.scopes, method.mini_buckets, maximum
        region = self.minis.region
        self.values = np.zeros(int(region[-1]))
        self.values[: region[0]] = potentials.nodes
        self.values[region[0] : region[1]] = self.scopes.expand_agreements(potentials)[1].factors
        self.shifts = self.values[region[1] : region[2]]
        self.marginal = np.zeros(int(region[-1]))
        n_splits = np.diff(self.minis.bucket_start)
        self.weight = np.repeat(1.0 / n_splits, n_splits)
        self.entropy = np.zeros(len(self.weight))
        self.bound, self.step, self.weight_step = np.inf, 1.0, 1.0
        self.best = self.shifts.copy(), self.weight.copy()

    def _eliminate(self, step: float, first_pass: bool) -> float:
        arguments = (self.minis, self.weight, self.maximum, step, first_pass, self.values, self.marginal)
        return float(kernel.eliminate(*arguments))

    def _return_messages(self) -> None:
        kernel.return_messages(self.minis, self.weight, self.maximum, self.values, self.marginal, self.entropy)

    def improve(self) -> bool:
        """Change shifts and weights, starting from those of the smallest bound; return True if the bound decreases."""
        self.shifts[:], self.weight[:] = self.best
        if not self.maximum:
            kernel.update_weights(self.minis, self.entropy, self.weight_step, self.weight)
        bound = self._eliminate(self.step, self.bound == np.inf)
        if bound >= self.bound:
            self.step, self.weight_step = self.step / 2, self.weight_step / 2
            return False
        self.bound, self.best = bound, (self.shifts.copy(), self.weight.copy())
        self.step, self.weight_step = min(1.0, STEP_GROWTH * self.step), STEP_GROWTH * self.weight_step
        if bound > -np.inf:
            self._return_messages()
        return True

    def restore_best(self) -> float:
        """Recompute messages and pseudo-marginals for the smallest bound, and return the bound."""
        self.shifts[:], self.weight[:] = self.best
        self.bound = self._eliminate(0.0, False)
        if self.bound > -np.inf:
            self._return_messages()
        return self.bound

    def node_marginals(self) -> np.ndarray:
        """Return the marginals of the nodes, which are normalised geometric means over the mini-buckets of a bucket."""
        scopes = self.scopes
        nodes = self.marginal[: self.minis.region[0]].copy()
        kernel.combine_marginals(self.minis, self.weight, self.marginal, scopes.state_start, nodes)
        return np.asarray(nodes / np.repeat(np.add.reduceat(nodes, scopes.state_start[:-1]), scopes.cardinality))


class _ImportanceSamples:
    """Weighted joint states, drawn from the mini-bucket proposal of a run.

    Attributes:
        counts: Sums of weights for each entry of the node and factor tables, relative to exp(`log_scale`).
    """

    def __init__(self, run: _MiniBucketRun, rng: np.random.Generator) -> None:
        self.run, self.rng = run, rng
        self.counts = np.zeros(int(run.minis.region[1]))
        self.n, self.log_scale, self.total, self.total_squares = 0, -np.inf, 0.0, 0.0
        self.n_per_chunk = max(1, MAX_RANDOM_NUMBERS // max(1, 2 * run.scopes.n_nodes))

    def draw(self, n: int) -> float:
        """Draw n joint states, and return the standard error."""
        run, states, log_weight = self.run, np.empty((n, self.run.scopes.n_nodes), dtype=np.int32), np.empty(n)
        uniform = self.rng.random((*states.shape, 2))
        kernel.draw_states(run.minis, run.weight, run.values, uniform, states, log_weight)
        self.n += n
        top = log_weight.max()
        if top > self.log_scale:
            scale = math.exp(self.log_scale - top)
            self.counts *= scale
            self.log_scale, self.total, self.total_squares = top, self.total * scale, self.total_squares * scale**2
        if self.log_scale > -np.inf:
            weight = np.exp(log_weight - self.log_scale)
            kernel.count_states(run.minis, states, weight, self.counts)
            self.total += float(weight.sum())
            self.total_squares += float(weight @ weight)
        return self.standard_error

    @property
    def log_partition(self) -> float:
        """Return the estimate of the log partition function; -inf if no sample is possible."""
        return self.log_scale + math.log(self.total / self.n) if self.total > 0.0 else -math.inf

    @property
    def standard_error(self) -> float:
        """Return the relative standard error of the partition function, 1 if no sample is possible."""
        return math.sqrt(max(0.0, self.total_squares / self.total**2 - 1 / self.n)) if self.total > 0.0 else 1.0

    def average(self, tables: np.ndarray) -> np.ndarray:
        """Average the marginals of the samples and of the bound, separately for nodes and factors.

        The average minimises the estimated squared error: the variance of the samples' marginals, and for the bound's marginals
        the mean squared difference from the samples' marginals, less this variance.
        """
        if self.total == 0.0:
            return tables
        out, sampled, n_states = tables.copy(), self.counts / self.total, int(self.run.minis.region[0])
        for part in (slice(n_states), slice(n_states, None)):
            p, q = tables[part], sampled[part]
            variance = float((p * (1.0 - p)).sum()) * self.total_squares / self.total**2
            bias = max(0.0, float(((q - p) ** 2).sum()) - variance)
            if bias > 0.0:
                out[part] += bias / (bias + variance) * (q - p)
        return out


def _search_order(scopes: Scopes) -> np.ndarray:
    """Return the nodes in a good elimination order, shape (n_nodes,), int32; edges of nodes with one state are ignored."""
    if not scopes.n_nodes:
        return np.empty(0, dtype=np.int32)
    pairs = adjacent_pairs(scopes, scopes.cardinality[scopes.node] > 1)
    first, second = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    stage = np.zeros(scopes.n_nodes, dtype=np.int64)
    if scopes.n_nodes <= MAX_SEARCHED_NODES:
        found = search_order(scopes.cardinality, stage, first, second, NO_LIMIT, SEARCHED_CELLS)
        if found is not None:
            return found.order
    # Fill-in of dense or large graphs takes minutes. Without it, nodes of few remaining neighbours come first.
    weight, component = node_weights(scopes.cardinality), np.zeros(scopes.n_nodes, dtype=np.int32)
    rule = greedy_rule(stage, add_edges=False)
    is_included = np.ones(scopes.n_nodes, dtype=np.bool_)
    order, *_ = elimination.eliminate(weight, component, is_included, first, second, NO_LIMIT, np.inf, rule)
    return np.asarray(order)
