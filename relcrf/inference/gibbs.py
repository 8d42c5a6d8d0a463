"""Gibbs sampling: approximate marginals of graphs with cycles and factors of any size.

Source: Geman & Geman (1984); Hamze & de Freitas (2004) for joint samples of forests. Marginals are averages of the conditional
distributions instead of the sampled states (Rao-Blackwell).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.chain_convergence import ChainStatistics
from relcrf.inference.coordinate_ascent import ascend_states, find_feasible_states, independent_states
from relcrf.inference.induced_forests import forest_cover, sampling_scratch, single_node_sets
from relcrf.inference.iteration import iterate
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Observer, Verdict, ignore_progress
from relcrf.kernels import gibbs as kernel
from relcrf.kernels.forest_sampling import NodeSets

N_BATCHES = 20
"""Number of recorded batches per chain. The effective sample size uses batch means; Ctrl-C is handled after each batch."""

WARM_UP_BATCHES = N_BATCHES // 5
"""Number of warm-up batches per chain, which are discarded."""

MAX_RANDOM_NUMBERS = 1 << 21
"""Maximum number of random numbers in memory, enough for about a second of sampling."""


@dataclass(frozen=True, kw_only=True)
class SampledMarginals(Marginals):
    """Marginals with convergence diagnostics of the chains.

    Args:
        r_hat: Maximum R-hat over the states of each node, shape (n_nodes,); 1 if the chains agree.
        effective_sample_size: Minimum effective sample size over the states of each node, shape (n_nodes,).
    """

    r_hat: np.ndarray
    effective_sample_size: np.ndarray

    def summary(self) -> dict[str, float]:
        """Return, for each diagnostic, the worst value and the median over the nodes."""
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
    """Gibbs sampling with several chains, without an estimate of the log partition function (nan).

    The verdict is `converged` if every chain has reached a possible joint state, R-hat is at most 1 + `tolerance`, and the
    effective sample size is at least `min_effective` at every node. The residual is the maximum R-hat minus 1, or inf if a chain
    is at an impossible joint state.

    The first chain starts from the best state of each node under the potentials of this node alone, the other chains from
    random states. If a start violates a rule (a cell with log potential -inf), the chain searches for a state without
    violations. If rules separate the possible states into regions, a chain stays in one region; R-hat detects this only if
    chains are in different regions.

    Args:
        sweeps: Number of recorded sweeps per chain, at least 1, rounded up to a multiple of 20. Warm-up takes a fifth as many
            additional sweeps.
        chains: Number of chains, at least 1; with a single chain, R-hat compares the two halves of the chain.
        seed: Seed of all random numbers.
        blocks: `single` samples node by node. `tree` samples induced forests jointly, with fewer sweeps, but more time per
            sweep.
        tolerance: Maximum value of R-hat minus 1 at convergence.
        min_effective: Minimum effective sample size at convergence; values above the number of samples are reduced to this
            number.
        observe: Callback that receives the current verdict after each batch.

    Raises:
        ValueError: If sweeps or chains are less than 1; at the first call, if `blocks` is unknown.
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
            raise ValueError(f"sweeps and chains must be at least 1, not {self.sweeps} and {self.chains}")

    def marginals(self, potentials: Potentials) -> SampledMarginals:
        """Average the conditional distributions over all chains.

        Raises:
            KeyboardInterrupt: If Ctrl-C is pressed before the first sample.
        """
        run = _ChainRun(self, potentials, N_BATCHES)
        verdict = run.run()
        statistics = run.statistics.close_half()
        if not statistics.n:
            raise KeyboardInterrupt
        r_hat = self._reduce_nodes(np.maximum, statistics.r_hat())
        effective = self._reduce_nodes(np.minimum, statistics.effective_sample_size())
        residual = run.residual()
        if verdict.status != "interrupted":
            is_converged = residual <= self.tolerance and effective.min(initial=np.inf) >= min(
                self.min_effective, statistics.n
            )
            verdict = Verdict("converged" if is_converged else "not converged", verdict.iterations, residual)
        return SampledMarginals(
            log_partition=float("nan"),
            nodes=statistics.total / statistics.n,
            factors=run.factor_sums / run.n_recorded[0],
            verdict=verdict,
            r_hat=r_hat,
            effective_sample_size=effective,
        )

    def map_states(self, potentials: Potentials) -> MapStates:
        """Return the best joint state that coordinate ascent reaches from the states of the chains after warm-up batches.

        The verdict is `converged` if the chains agree on the best score; the residual is the range of the chains' best scores.
        """
        run = _ChainRun(self, potentials, 0)
        verdict = run.run()
        scores = np.array(run.best_scores)
        score_range = float(np.ptp(scores)) if np.isfinite(scores).all() else np.inf
        agree = np.isfinite(score_range) and score_range <= 1e-9 * max(1.0, float(np.abs(scores).max()))
        if verdict.status != "interrupted":
            verdict = Verdict("converged" if agree else "not converged", verdict.iterations, score_range)
        return MapStates(max(run.best_scores), run.best_states, np.inf, verdict)

    def _reduce_nodes(self, worst: np.ufunc, values: np.ndarray) -> np.ndarray:
        return np.asarray(worst.reduceat(values, self.scopes.state_start[:-1]))

    @cached_property
    def _node_sets(self) -> NodeSets:
        if self.blocks == "single":
            return single_node_sets(self.scopes.kernel_factors)
        if self.blocks == "tree":
            return forest_cover(self.scopes.kernel_factors, np.random.default_rng(self.seed))
        raise ValueError(f"unknown blocks '{self.blocks}'; use tree or single")


class _ChainRun:
    """The state of all chains, which run one after the other in batches."""

    def __init__(self, method: Gibbs, potentials: Potentials, n_batches: int) -> None:
        """Start a run with `n_batches` recorded batches per chain; 0 records only the best joint states of warm-up."""
        self.method, self.potentials, self.n_batches = method, potentials, n_batches
        self.rng = np.random.default_rng(method.seed)
        self.statistics = ChainStatistics.empty(len(potentials.nodes))
        self.conditionals, self.n_recorded = np.zeros(len(potentials.nodes)), np.zeros(1, dtype=np.int64)
        self.factor_sums = np.zeros(len(potentials.factors))
        self.states = independent_states(method.scopes, potentials)
        self.best_states, self.best_scores = self.states, [-np.inf]
        self.batch_index, self.all_possible = 0, True

    def run(self) -> Verdict:
        """Run all chains to the end or until Ctrl-C. The observer receives the residual of the completed halves of chains."""
        n_sweeps = -(-self.method.sweeps // N_BATCHES)
        max_sweeps = self.method.chains * (WARM_UP_BATCHES + self.n_batches) * n_sweeps
        return iterate(self._run_batch, -1.0, max_sweeps, self.method.observe, n_sweeps)

    def residual(self) -> float:
        """Return the maximum R-hat minus 1; inf if a chain is at an impossible joint state."""
        if not self.all_possible:
            return np.inf
        r_hat = self.statistics.r_hat()
        return 0.0 if not len(r_hat) else float(np.nan_to_num(r_hat, nan=2.0).max() - 1.0)

    def _run_batch(self, n_sweeps: int) -> float:
        method, batch_in_chain = self.method, self.batch_index % (WARM_UP_BATCHES + self.n_batches)
        if batch_in_chain == 0:
            self._start_chain(None if self.batch_index == 0 else self.rng)
        recording = batch_in_chain >= WARM_UP_BATCHES
        if batch_in_chain == WARM_UP_BATCHES:
            self.all_possible = self.all_possible and method.scopes.score(self.potentials, self.states) > -np.inf
        total, square = np.zeros((2, len(self.conditionals)))
        sets = method._node_sets
        tables = (method.scopes.kernel_factors, sets, *self.potentials)
        scratch = sampling_scratch(method.scopes.kernel_factors, sets)
        sweeps_per_call = max(1, MAX_RANDOM_NUMBERS // max(1, len(sets.node)))
        for first in range(0, n_sweeps, sweeps_per_call):
            uniform = self.rng.random((min(sweeps_per_call, n_sweeps - first), len(sets.node)))
            sums = (self.conditionals, total, square, self.factor_sums, self.n_recorded)
            kernel.run_sweeps(*tables, uniform, recording, self.states, *sums, scratch)
        if recording:
            self.statistics = self.statistics.with_batch(n_sweeps, total, square)
            if batch_in_chain - WARM_UP_BATCHES + 1 in (N_BATCHES // 2, N_BATCHES):
                self.statistics = self.statistics.close_half()
        elif not self.n_batches:
            self._record_best()
        self.batch_index += 1
        residual = self.residual()
        return residual if np.isfinite(residual) else 1.0

    def _start_chain(self, rng: np.random.Generator | None) -> None:
        """Start a new chain."""
        scopes = self.method.scopes
        start = independent_states(scopes, self.potentials, rng)
        self.states, _ = find_feasible_states(self.method.scopes.kernel_factors, self.potentials, start, self.rng)
        if self.batch_index:
            self.best_scores.append(-np.inf)
        self._record_best()

    def _record_best(self) -> None:
        """Apply coordinate ascent to the current state of the chain, and store the result if its score is the best so far."""
        states = ascend_states(self.method.scopes.kernel_factors, self.potentials, self.states)
        score = self.method.scopes.score(self.potentials, states)
        if score > max(self.best_scores):
            self.best_states = states
        self.best_scores[-1] = max(score, self.best_scores[-1])
