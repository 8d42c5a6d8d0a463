"""Matches of records without labels: comparisons with levels, as in the theory of Fellegi and Sunter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relcrf.backends.base import AbstractBackend, FitResult, Monitor, Problem
from relcrf.backends.exact import UnaryLikelihoodSpec
from relcrf.backends.inference_task import InferenceTask
from relcrf.columns.offsets import offsets
from relcrf.errors import DataError, Diagnostic, UsageError
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.reduction import ReducedGraph, Role
from relcrf.learning.lbfgs import OptimiserState
from relcrf.learning.match_mixture import NO_LEVEL, LevelPatterns, MatchEm, MatchMixture


@dataclass(frozen=True, eq=False)
class Comparison:
    """A comparison of the pairs: the level of each pair in one template.

    Args:
        levels: The level of each pair, or `NO_LEVEL`, shape (n_pairs,).
        block: The weight block of the template.
        n_levels: Number of levels.
        is_partial: Whether the template has factors for some pairs only and no key: level 1 for these pairs, and 0 for others.
    """

    levels: np.ndarray
    block: int
    n_levels: int
    is_partial: bool


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of a problem: its free variables, followed by its random pairs, which are taken not to match.

    Args:
        variables: The free variables, ascending, shape (n_variables,).
        labels: Label of each pair, -1 if there is none, shape (n_pairs,).
        weights: Number of pairs for which each pair stands, shape (n_pairs,).
        groups: Each group of factors over one variable, with the pair of each variable in its scope, or -1.
    """

    variables: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    groups: tuple[tuple[np.ndarray, FactorGroup], ...]

    @classmethod
    def collect(cls, problem: Problem) -> Pairs:
        variables = np.flatnonzero(problem.roles == Role.FREE)
        number = np.full(problem.graph.n_variables, -1)
        number[variables] = np.arange(len(variables))
        groups = [(number, group) for group in problem.graph.groups if len(group.scope) == 1]
        labels, weights = [problem.states[variables]], [np.ones(len(variables))]
        n_pairs = len(variables)
        for random in problem.random_pairs:
            groups += [(np.arange(n_pairs, n_pairs + random.n_pairs), group) for group in random.groups]
            labels.append(np.zeros(random.n_pairs, dtype=np.int32))
            weights.append(np.full(random.n_pairs, random.n_possible / random.n_pairs))
            n_pairs += random.n_pairs
        return cls(variables, np.concatenate(labels), np.concatenate(weights), tuple(groups))


@dataclass(frozen=True)
class FellegiSunterBackend(AbstractBackend):
    """A mixture of matches and other pairs, with independent comparisons; it needs no labels, and uses them if there are some.

    The templates over one Boolean variable are the comparisons: the keys in `per` are their levels, in ascending order of
    agreement. One template without keys and features has a factor for every pair; it holds the share of matches. The weights
    are the logarithms of the ratios of m- to u-probabilities (see docs/how-to/link_records.md). Factors over several
    variables are ignored.

    Args:
        smoothing: Number of pairs of each state that are added to the counts of a comparison, in proportion to the
            frequencies of its levels.
        max_iterations: Maximum number of iterations of EM from each start.
        tolerance: EM has converged when no probability of a match changes by more than this in an iteration.
    """

    name: ClassVar[str] = "fellegi-sunter"
    learns_without_labels: ClassVar[bool] = True
    learning_arrays: ClassVar[tuple[float, float]] = (4, 0)
    inference_arrays: ClassVar[tuple[float, float]] = (4, 0.5)
    smoothing: float = 1.0
    max_iterations: int = 2000
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        self._require_positive("smoothing", "max_iterations", "tolerance")

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        self._require_unsharded(problem)
        problem = problem.with_unlabelled()
        pairs = Pairs.collect(problem)
        self._require_boolean(problem, pairs)
        comparisons, prior, given = self._comparisons(problem, pairs)
        n_levels = {each.block: each.n_levels for each in comparisons}
        patterns = LevelPatterns.count(
            [each.levels for each in comparisons],
            [list(n_levels).index(each.block) for each in comparisons],
            list(n_levels.values()),
            given,
            pairs.labels,
            pairs.weights,
        )
        start = problem.graph.layout.initial()
        em = MatchEm(self.smoothing, self.tolerance, self.max_iterations)

        def observe(mixture: MatchMixture) -> None:
            monitor.step("weights", _optimiser_state(start, mixture), self.max_iterations)

        mixture = em.fit(patterns, observe)
        if mixture is None:
            message = "the comparisons do not separate matches from other pairs"
            hint = "write keys in ascending order of agreement, add comparisons, or label some pairs"
            raise DataError(Diagnostic("E451", message, hint=hint))
        log_odds = dict(zip(n_levels, mixture.match_weights, strict=True))
        state = _optimiser_state(self._weights(problem, comparisons, prior, log_odds, mixture.prior_log_odds), mixture)
        summary: dict[str, float | int | str] = {
            "pairs": len(pairs.variables),
            "labelled": int((pairs.labels[: len(pairs.variables)] >= 0).sum()),
            "random_pairs": len(pairs.labels) - len(pairs.variables),
            "comparisons": len(n_levels),
            "patterns": len(patterns.levels),
            "matches": round(mixture.share * float(pairs.weights.sum())),
        }
        return FitResult({"weights": state.point}, (("weights", state),), summary)

    def joint_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> UnaryLikelihoodSpec:
        return UnaryLikelihoodSpec(self.name)

    def conditional_graph(self, problem: Problem) -> ReducedGraph:
        return UnaryLikelihoodSpec(self.name).graph(problem)

    def inference_tasks(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[InferenceTask, ...]:
        return (self.joint_likelihood(problem, vectors).inference_task(problem, vectors["weights"]),)

    def _comparisons(self, problem: Problem, pairs: Pairs) -> tuple[list[Comparison], int, np.ndarray]:
        """Return the comparisons, the block of the share of matches, and the log odds of fixed templates, (n_pairs,).

        Raises:
            UsageError: If a template multiplies weights by numbers, or no template holds the share of matches (E450).
        """
        layout, n_pairs = problem.graph.layout, len(pairs.labels)
        prior, given, found = -1, np.zeros(n_pairs), []
        for number, block in enumerate(layout.blocks):
            groups = [(each, group) for each, group in pairs.groups if group.block == number]
            factors = [self._factor_levels(each, group, block.name) for each, group in groups]
            if block.fixed:
                weights = layout.matrix(layout.initial(), number)
                for (pair, level), (_, group) in zip(factors, groups, strict=True):
                    np.add.at(given, pair, (weights @ _direction(group))[level])
            elif factors:
                pair, level = (np.concatenate(column) for column in zip(*factors, strict=True))
                n_levels = groups[0][1].features.n_features
                for levels in _layers(pair, level, n_pairs):
                    if n_levels > 1:
                        found.append(Comparison(levels, number, n_levels, False))
                    elif prior < 0 and (levels != NO_LEVEL).all():
                        prior = number
                    else:
                        found.append(Comparison((levels != NO_LEVEL).astype(np.int64), number, 2, True))
        if prior < 0:
            message = f"backend '{self.name}' needs a template that holds the share of matches"
            hint = "add a template with a factor for every pair, without 'per' and 'by', e.g. 'over same(a, b)'"
            raise UsageError(Diagnostic("E450", message, hint=hint))
        return found, prior, given

    def _factor_levels(self, number: np.ndarray, group: FactorGroup, template: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the pair and the level of each factor of a group over pairs.

        Args:
            number: The pair of each variable, -1 for variables that are not pairs, shape (n_variables,).
        """
        factors = np.flatnonzero(number[group.scope[0]] >= 0)
        level = group.features.row_classes(factors)
        if level is None:
            message = (
                f"backend '{self.name}' needs comparisons with levels, but template '{template}' has numbers in 'by'"
            )
            hint = f"replace 'by' of '{template}' with a key, e.g. 'per bin(SIMILARITY, 0.8, 0.95)'"
            raise UsageError(Diagnostic("E450", message, hint=hint))
        return number[group.scope[0]][factors], level

    def _weights(
        self,
        problem: Problem,
        comparisons: list[Comparison],
        prior: int,
        log_odds: dict[int, np.ndarray],
        prior_log_odds: float,
    ) -> np.ndarray:
        """Return the weights, shape (layout.size,), with which the log odds of pairs are those of the mixture.

        Args:
            prior: The block that holds the share of matches.
            log_odds: `log(m / u)` of the levels by weight block.
        """
        weights = problem.graph.layout.initial()
        rows = dict(log_odds)
        for each in comparisons:
            if each.is_partial:  # pairs without a factor have the log odds of level 0
                prior_log_odds += log_odds[each.block][0]
                rows[each.block] = log_odds[each.block][1:] - log_odds[each.block][0]
        rows[prior] = np.array([prior_log_odds])
        for group in problem.graph.groups:
            if group.block in rows and len(group.scope) == 1:
                direction = _direction(group)
                scale = max(float(direction @ direction), 1e-300)
                problem.graph.layout.matrix(weights, group.block)[:] = np.outer(rows[group.block], direction / scale)
        return weights

    def _require_boolean(self, problem: Problem, pairs: Pairs) -> None:
        """Reject a problem without pairs (E451), or with variables of more than two states (E450)."""
        if not len(pairs.variables):
            raise DataError(
                Diagnostic("E451", "the data contain no pairs to compare", hint="admit more pairs in 'where'")
            )
        if (most := int(problem.graph.cardinality[pairs.variables].max())) > 2:
            message = f"backend '{self.name}' learns Boolean variables, but a predicted value has {most} states"
            raise UsageError(Diagnostic("E450", message, hint="use --backend auto, which learns from labels"))


def _direction(group: FactorGroup) -> np.ndarray:
    """Return the log odds of state 1 for each unit weight of the patterns, shape (n_patterns,)."""
    patterns = np.eye(2) if group.patterns is None else group.patterns
    return np.asarray(patterns[1] - patterns[0], dtype=np.float64)


def _layers(pair: np.ndarray, level: np.ndarray, n_pairs: int) -> Iterator[np.ndarray]:
    """Yield the levels of the first factors of the pairs, those of their second factors, and so on, shape (n_pairs,) each."""
    order = np.argsort(pair, kind="stable")
    start = offsets(np.bincount(pair, minlength=n_pairs))
    occurrence = np.arange(len(order)) - start[pair[order]]
    for k in range(int(occurrence.max(initial=-1)) + 1):
        selected = order[occurrence == k]
        levels = np.full(n_pairs, NO_LEVEL, dtype=np.int64)
        levels[pair[selected]] = level[selected]
        yield levels


def _optimiser_state(weights: np.ndarray, mixture: MatchMixture) -> OptimiserState:
    """Return a mixture as the state of an optimiser of the negative log-likelihood; the norm is the change of EM."""
    return OptimiserState(
        weights,
        -mixture.log_likelihood,
        np.zeros_like(weights),
        mixture.change,
        (),
        (),
        1.0,
        iteration=mixture.iterations,
        status=mixture.status,
    )
