"""Match probabilities without labels: a mixture of two classes of pairs with conditionally independent comparisons.

Each pair has a state, 0 or 1 (a match), and the levels of its comparisons, such as `equal` or `similar`. The model is

    P(state = 1) = lambda,    P(level k of comparison c | state 1) = m_ck,    P(level k of comparison c | state 0) = u_ck

Comparisons are independent given the state, so a pair's log odds of a match are `log(lambda / (1 - lambda))` plus the sum
of `log(m_ck / u_ck)`. A missing level adds nothing. The parameters maximise the likelihood by the EM algorithm. Pairs of a
pattern, i.e. with the same levels, have the same probabilities, so an iteration costs as much as there are patterns.

Sources: Fellegi & Sunter (1969), a theory for record linkage; Winkler (1988), EM for its parameters; Nigam et al. (2000)
for labelled and unlabelled samples together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from relcrf.kernels.distinct import number_rows

START_SHARES = (0.5, 0.1, 0.01, 0.001)
"""Shares of matches from which EM starts; the result with the highest likelihood is kept."""

START_CERTAINTY = 0.9
"""Probability of a match at the start for the pairs that agree most, and of a non-match for the others."""

MIN_PAIRS = 1e-6
"""Number of pairs that is added to both states, so that no share is 0."""

MIN_DISTANCE = 1e-9
"""Minimum difference of the mean agreement of matches from that of all pairs; smaller ones are rounding errors."""

NO_LEVEL = -1
"""The level of a pair for which a comparison is missing."""


@dataclass(frozen=True, eq=False)
class LevelPatterns:
    """The distinct patterns of comparison levels, and the numbers of their pairs.

    Args:
        levels: The level of each comparison, or `NO_LEVEL`, shape (n_patterns, n_comparisons).
        parameters: For each comparison, the number of its parameters; comparisons with the same number share them.
        n_levels: Number of levels of each number of `parameters`.
        offset: Sum of the given log odds `log(m / u)` of each pattern, which are not parameters, shape (n_patterns,).
        unlabelled: Number of pairs without a label, shape (n_patterns,).
        labelled: Number of pairs with label 0 and 1, shape (n_patterns, 2).
        resolution: The largest number of pairs for which a counted pair stands; 1 without random samples.
    """

    levels: np.ndarray
    parameters: tuple[int, ...]
    n_levels: tuple[int, ...]
    offset: np.ndarray
    unlabelled: np.ndarray
    labelled: np.ndarray
    resolution: float

    @classmethod
    def count(
        cls,
        levels: Sequence[np.ndarray],
        parameters: Sequence[int],
        n_levels: Sequence[int],
        offset: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
    ) -> LevelPatterns:
        """Count the pairs of each pattern.

        Args:
            levels: The levels of the pairs for each comparison, shape (n_pairs,) each.
            offset: Sum of the given log odds of each pair, shape (n_pairs,).
            labels: Label of each pair, -1 if there is none, shape (n_pairs,).
            weights: Number of pairs for which each pair stands, shape (n_pairs,).
        """
        offset_number = np.unique(offset, return_inverse=True)[1]
        pattern = number_rows(*levels, offset_number)
        n_patterns = int(pattern.max(initial=-1)) + 1
        first = np.empty(n_patterns, dtype=np.int64)
        first[pattern[::-1]] = np.arange(len(pattern))[::-1]
        counts = np.bincount(pattern * 3 + labels + 1, weights, minlength=3 * n_patterns).reshape(n_patterns, 3)
        stacked = (
            np.stack([level[first] for level in levels], axis=1) if levels else np.empty((n_patterns, 0), dtype=int)
        )
        return cls(
            stacked,
            tuple(parameters),
            tuple(n_levels),
            offset[first],
            counts[:, 0],
            counts[:, 1:],
            float(weights.max(initial=1.0)),
        )

    @property
    def counts(self) -> np.ndarray:
        """The numbers of pairs, shape (n_patterns,)."""
        return np.asarray(self.unlabelled + self.labelled.sum(axis=1))

    def totals(self, weights: np.ndarray) -> list[np.ndarray]:
        """Return the sums of the patterns' weights, shape (n_patterns,), by level, one array for each parameter number."""
        out = [np.zeros(n) for n in self.n_levels]
        for column, number in zip(self.levels.T, self.parameters, strict=True):
            known = column != NO_LEVEL
            out[number] += np.bincount(column[known], weights[known], minlength=self.n_levels[number])
        return out

    def sums(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the sums over comparisons of the values of the levels, shape (n_patterns,)."""
        out = np.zeros(len(self.levels))
        for column, number in zip(self.levels.T, self.parameters, strict=True):
            out += np.where(column == NO_LEVEL, 0.0, values[number][column])
        return out

    def agreement(self) -> np.ndarray:
        """Return how much the pairs of each pattern agree, shape (n_patterns,): higher levels mean more agreement.

        Levels are replaced by the share of pairs with lower levels, so that comparisons with rare high levels count more.
        """
        shares = [total / max(total.sum(), 1.0) for total in self.totals(self.counts.astype(float))]
        return self.sums([np.cumsum(share) - share - 0.5 for share in shares])


@dataclass(frozen=True, eq=False)
class MatchMixture:
    """The parameters of a mixture of matches and non-matches.

    Args:
        share: The share of matches, lambda.
        levels: For each parameter number, the logarithms of u and m by level, shape (2, n_levels).
        log_likelihood: Log-likelihood of levels and labels, with the logarithm of the prior of the parameters.
        iterations: Number of iterations so far.
        change: Largest change of a probability of a pattern's match in the last iteration.
        status: `running`, `converged` or `not converged`.
    """

    share: float
    levels: tuple[np.ndarray, ...]
    log_likelihood: float = -np.inf
    iterations: int = 0
    change: float = np.inf
    status: str = "running"

    @property
    def match_weights(self) -> tuple[np.ndarray, ...]:
        """For each parameter number, `log(m / u)` by level, shape (n_levels,)."""
        return tuple(logs[1] - logs[0] for logs in self.levels)

    @property
    def prior_log_odds(self) -> float:
        """The log odds of a match without any comparison."""
        return float(np.log(self.share) - np.log1p(-self.share))


@dataclass(frozen=True)
class MatchEm:
    """The EM algorithm for `MatchMixture`.

    Args:
        smoothing: Number of pairs of each state that are added to the counts of a comparison, in proportion to the
            frequencies of its levels, so that no probability is 0. If random pairs stand for many other pairs, half a
            random pair is added to each level of state 0, because a level that is not in the sample is not impossible.
        tolerance: EM has converged when no probability of a match changes by more than this in an iteration.
    """

    smoothing: float = 1.0
    tolerance: float = 1e-6
    max_iterations: int = 2000

    def fit(
        self, patterns: LevelPatterns, observe: Callable[[MatchMixture], None] = lambda mixture: None
    ) -> MatchMixture | None:
        """Return the mixture of highest likelihood of all starts; None if the pairs do not tell matches from other pairs.

        Unless there are labels of both states, the mixture must be one in which matches agree more than other pairs.
        """
        best: MatchMixture | None = None
        agreement, counts = patterns.agreement(), patterns.counts
        is_labelled = bool((patterns.labelled.sum(axis=0) > 0).all())
        starts = [self._start(patterns, agreement, share) for share in START_SHARES]
        if is_labelled:
            starts.append(self.maximise(patterns, patterns.labelled))
        for start in starts:
            mixture = self.run(patterns, start, observe)
            matched = self.responsibilities(patterns, mixture)[:, 1]
            distance = matched @ agreement / max(matched.sum(), 1e-300) - counts @ agreement / counts.sum()
            if (is_labelled or distance > MIN_DISTANCE) and (
                best is None or mixture.log_likelihood > best.log_likelihood
            ):
                best = mixture
        return best

    def run(
        self, patterns: LevelPatterns, mixture: MatchMixture, observe: Callable[[MatchMixture], None]
    ) -> MatchMixture:
        """Iterate from a mixture until the probabilities of matches no longer change."""
        expected = self.responsibilities(patterns, mixture)
        while mixture.status == "running":
            mixture = replace(self.maximise(patterns, expected), iterations=mixture.iterations + 1)
            previous, expected = expected, self.responsibilities(patterns, mixture)
            change = float((np.abs(expected - previous).max(axis=1) / np.maximum(patterns.counts, 1)).max(initial=0.0))
            ended = mixture.iterations >= self.max_iterations
            status = "converged" if change <= self.tolerance else "not converged" if ended else "running"
            value = self.log_likelihood(patterns, mixture)
            mixture = replace(mixture, log_likelihood=value, change=change, status=status)
            observe(mixture)
        return mixture

    def responsibilities(self, patterns: LevelPatterns, mixture: MatchMixture) -> np.ndarray:
        """Return the expected numbers of pairs by state, shape (n_patterns, 2); the E-step."""
        odds = mixture.prior_log_odds + patterns.offset + patterns.sums(mixture.match_weights)
        matched = patterns.unlabelled * expit(odds)
        return np.asarray(np.stack([patterns.unlabelled - matched, matched], axis=1) + patterns.labelled)

    def maximise(self, patterns: LevelPatterns, expected: np.ndarray) -> MatchMixture:
        """Return the parameters that maximise the expected log-likelihood; the M-step.

        Args:
            expected: The expected numbers of pairs by state, shape (n_patterns, 2).
        """
        logs = []
        by_state = [patterns.totals(expected[:, state]) for state in (0, 1)]
        for added, *counts in zip(self._added_counts(patterns), *by_state, strict=True):
            smoothed = np.stack(counts) + added
            logs.append(np.log(smoothed) - np.log(smoothed.sum(axis=1, keepdims=True)))
        n = expected.sum(axis=0) + MIN_PAIRS
        return MatchMixture(float(n[1] / n.sum()), tuple(logs))

    def log_likelihood(self, patterns: LevelPatterns, mixture: MatchMixture) -> float:
        """Return the logarithm of the likelihood of all levels and labels, times the prior that `smoothing` describes."""
        by_state = np.stack([patterns.sums([logs[state] for logs in mixture.levels]) for state in (0, 1)], axis=1)
        by_state += np.log([1.0 - mixture.share, mixture.share])
        by_state[:, 1] += patterns.offset
        prior = sum(
            float((added * logs).sum())
            for added, logs in zip(self._added_counts(patterns), mixture.levels, strict=True)
        )
        prior += MIN_PAIRS * float(np.log(mixture.share) + np.log1p(-mixture.share))
        unlabelled = np.logaddexp(by_state[:, 0], by_state[:, 1])
        return float(patterns.unlabelled @ unlabelled + (patterns.labelled * by_state).sum() + prior)

    def _added_counts(self, patterns: LevelPatterns) -> list[np.ndarray]:
        """Return the counts that `smoothing` adds, by state and level, shape (2, n_levels) for each parameter number."""
        added = []
        for total in patterns.totals(patterns.counts.astype(float)):
            frequencies = (total + 0.5) / (total + 0.5).sum()
            sampled = np.array([[0.5 * (patterns.resolution - 1.0)], [0.0]])
            added.append(self.smoothing * frequencies + sampled)
        return added

    def _start(self, patterns: LevelPatterns, agreement: np.ndarray, share: float) -> MatchMixture:
        """Return the mixture in which about the given share of unlabelled pairs, those that agree most, are matches."""
        order = np.argsort(-agreement, kind="stable")
        below = np.cumsum(patterns.unlabelled[order]) - patterns.unlabelled[order]
        matched = np.empty(len(order))
        matched[order] = np.where(below < share * patterns.unlabelled.sum(), START_CERTAINTY, 1.0 - START_CERTAINTY)
        expected = patterns.unlabelled[:, None] * np.stack([1.0 - matched, matched], axis=1) + patterns.labelled
        return self.maximise(patterns, expected)
