"""Gibbs sampling: marginals of graphs with cycles and factors of any size, by chains that visit joint states.

Source: Geman & Geman (1984). Blocks that are forests are drawn as a whole (Hamze & de Freitas 2004). Marginals are averages
of the conditionals and not of the states (Rao-Blackwell).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.chain_convergence import ChainStatistics
from relcrf.inference.coordinate_ascent import ascend_states, find_feasible_states, independent_states
from relcrf.inference.induced_forests import forest_cover, single_node_sets
from relcrf.inference.iteration import iterate
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Observer, Verdict, ignore_progress
from relcrf.kernels import gibbs as kernel
from relcrf.kernels.forest_sampling import NodeSets

N_BATCHES = 20
"""Of each chain: the samples come in so many, for the effective sample size and between looks at the keyboard."""

WARM_UP_BATCHES = N_BATCHES // 5
"""Batches before them that do not count."""

MAX_RANDOM_NUMBERS = 1 << 21
"""Random numbers that are held at a time: a second of work."""


@dataclass(frozen=True)
class SampledMarginals(Marginals):
    """Marginals with what the chains say about themselves.

    Args:
        r_hat: of each node the largest over its states, shape (n_nodes,); 1 is agreement.
        effective_sample_size: of each node the smallest over its states, shape (n_nodes,): how many independent samples its
            probabilities are worth.
    """

    r_hat: np.ndarray
    effective_sample_size: np.ndarray

    def summary(self) -> dict[str, float]:
        """Worst and median over the nodes."""
        if not len(self.r_hat):
            return {}
        return {
            "r_hat_worst": float(self.r_hat.max()),
            "r_hat_median": float(np.median(self.r_hat)),
            "effective_worst": float(self.effective_sample_size.min()),
            "effective_median": float(np.median(self.effective_sample_size)),
        }


@dataclass(frozen=True, eq=False)
class Gibbs(AbstractInference):
    """Chains of joint states; the average over them is the answer. It has no log partition (nan).

    The verdict is `converged` where every chain has found joint states that can be, R-hat is at most 1 + `tolerance` and
    the effective sample size at least `min_effective` at every node. Its residual is the largest R-hat, less 1; inf where a chain
    is at a joint state that cannot be.

    The first chain starts where each node alone is best, the others at what each alone would draw; where that breaks
    rules, a joint state that breaks none is searched for. Of rules that cut the possible states into islands a chain
    sees one only: R-hat tells, if another chain is on another.

    Args:
        sweeps: of each chain that count, at least one, rounded up to whole twentieths; a fifth as many come before and do not.
        chains: at least one; with one, its two halves are compared.
        seed: of all random numbers.
        blocks: `single` draws node by node; `tree` draws sets of nodes that are forests given the rest, each as a whole:
            more for a sweep, and a sweep costs more.
        tolerance: see above. least: likewise; where there are fewer samples at all, all of them.

    Raises:
        ValueError: for no sweeps or no chains; at the first call, for unknown blocks.
    """

    scopes: Scopes
    sweeps: int = 1000
    chains: int = 4
    seed: int = 0
    blocks: str = "single"
    tolerance: float = 0.05
    min_effective: float = 100.0
    observe: Observer = field(default=ignore_progress)

    def __post_init__(self) -> None:
        if self.sweeps < 1 or self.chains < 1:
            raise ValueError(f"{self.sweeps} sweeps of {self.chains} chains give no sample")

    def marginals(self, potentials: Potentials) -> SampledMarginals:
        """Averages over all chains.

        Raises:
            KeyboardInterrupt: where it comes before the first sample.
        """
        run = _ChainRun(self, potentials, N_BATCHES)
        verdict = run.run()
        series = run.statistics.close_half()
        if not series.n:
            raise KeyboardInterrupt
        r_hat = self._reduce_nodes(np.maximum, series.r_hat())
        effective = self._reduce_nodes(np.minimum, series.effective_sample_size())
        residual = run.residual()
        if verdict.status != "interrupted":
            good = residual <= self.tolerance and effective.min(initial=np.inf) >= min(self.min_effective, series.n)
            verdict = Verdict("converged" if good else "not converged", verdict.iterations, residual)
        return SampledMarginals(
            log_partition=float("nan"),
            nodes=series.total / series.n,
            factors=run.factor_sums / run.n_recorded[0],
            verdict=verdict,
            r_hat=r_hat,
            effective_sample_size=effective,
        )

    def map_states(self, potentials: Potentials) -> MapStates:
        """The best joint state to which coordinate ascent leads from the chains, after each batch of the warm-up.

        The verdict is `converged` where the chains agree on its score, and its residual how far apart their best are.
        """
        run = _ChainRun(self, potentials, 0)
        verdict = run.run()
        scores = np.array(run.best_scores)
        apart = float(np.ptp(scores)) if np.isfinite(scores).all() else np.inf
        agree = np.isfinite(apart) and apart <= 1e-9 * max(1.0, float(np.abs(scores).max()))
        if verdict.status != "interrupted":
            verdict = Verdict("converged" if agree else "not converged", verdict.iterations, apart)
        return MapStates(max(run.best_scores), run.best_states, np.inf, verdict)

    def _reduce_nodes(self, worst: np.ufunc, values: np.ndarray) -> np.ndarray:
        return np.asarray(worst.reduceat(values, self.scopes.state_start[:-1]))

    @cached_property
    def _node_sets(self) -> NodeSets:
        if self.blocks == "single":
            return single_node_sets(self.scopes.kernel_factors)
        if self.blocks == "tree":
            return forest_cover(self.scopes.kernel_factors, np.random.default_rng(self.seed))
        raise ValueError(f"no blocks '{self.blocks}'; there are tree and single")


class _ChainRun:
    """All chains one after the other, a batch at a time."""

    def __init__(self, method: Gibbs, potentials: Potentials, n_batches: int) -> None:
        """`n_batches` of each chain count; with none, the best joint states on the way are kept instead."""
        self.method, self.potentials, self.n_batches = method, potentials, n_batches
        self.rng = np.random.default_rng(method.seed)
        self.statistics = ChainStatistics.empty(len(potentials.nodes))
        self.conditionals, self.n_recorded = np.zeros(len(potentials.nodes)), np.zeros(1, dtype=np.int64)
        self.factor_sums = np.zeros(len(potentials.factors))
        self.states = independent_states(method.scopes, potentials)
        self.best_states, self.best_scores = self.states, [-np.inf]
        self.batch_index, self.all_possible = 0, True

    def run(self) -> Verdict:
        """Runs until the end or Ctrl-C. The residual that an observer sees is that of the finished halves."""
        n_sweeps = -(-self.method.sweeps // N_BATCHES)
        most = self.method.chains * (WARM_UP_BATCHES + self.n_batches) * n_sweeps
        return iterate(self._run_batch, -1.0, most, self.method.observe, n_sweeps)

    def residual(self) -> float:
        """The largest R-hat, less 1; inf where a chain is at what cannot be."""
        if not self.all_possible:
            return np.inf
        r_hat = self.statistics.r_hat()
        return 0.0 if not len(r_hat) else float(np.nan_to_num(r_hat, nan=2.0).max() - 1.0)

    def _run_batch(self, n_sweeps: int) -> float:
        method, place = self.method, self.batch_index % (WARM_UP_BATCHES + self.n_batches)
        if place == 0:
            self._start_chain(None if self.batch_index == 0 else self.rng)
        taking = place >= WARM_UP_BATCHES
        if place == WARM_UP_BATCHES:
            self.all_possible = self.all_possible and method.scopes.score(self.potentials, self.states) > -np.inf
        total, square = np.zeros((2, len(self.conditionals)))
        sets = method._node_sets
        tables = (method.scopes.kernel_factors, sets, *self.potentials)
        k = int(method.scopes.cardinality.max(initial=1))
        work = (
            np.empty(len(self.conditionals)),
            np.empty(len(self.conditionals)),
            np.empty(k * k),
            np.empty(k * k),
            np.empty(k),
        )
        at_a_time = max(1, MAX_RANDOM_NUMBERS // max(1, len(sets.node)))
        for first in range(0, n_sweeps, at_a_time):
            uniform = self.rng.random((min(at_a_time, n_sweeps - first), len(sets.node)))
            sums = (self.conditionals, total, square, self.factor_sums, self.n_recorded)
            kernel.run_sweeps(*tables, uniform, taking, self.states, *sums, work)
        if taking:
            self.statistics = self.statistics.with_batch(n_sweeps, total, square)
            if place - WARM_UP_BATCHES + 1 in (N_BATCHES // 2, N_BATCHES):
                self.statistics = self.statistics.close_half()
        elif not self.n_batches:
            self._record_best()
        self.batch_index += 1
        residual = self.residual()
        return residual if np.isfinite(residual) else 1.0

    def _start_chain(self, rng: np.random.Generator | None) -> None:
        """A new chain."""
        scopes = self.method.scopes
        start = independent_states(scopes, self.potentials, rng)
        self.states, _ = find_feasible_states(self.method.scopes.kernel_factors, self.potentials, start, self.rng)
        if self.batch_index:
            self.best_scores.append(-np.inf)
        self._record_best()

    def _record_best(self) -> None:
        """Keeps the joint state above this one if it is the best so far."""
        states = ascend_states(self.method.scopes.kernel_factors, self.potentials, self.states)
        score = self.method.scopes.score(self.potentials, states)
        if score > max(self.best_scores):
            self.best_states = states
        self.best_scores[-1] = max(score, self.best_scores[-1])
