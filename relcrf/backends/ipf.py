"""Iterative proportional fitting: maximum likelihood by matching the counts of one table after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relcrf.backends.base import FitResult, Monitor, Problem
from relcrf.backends.whole_graph import PARTITION_METHODS, AbstractWholeGraphBackend
from relcrf.errors import DataError, Diagnostic, UsageError
from relcrf.graph.reduction import ReducedGraph
from relcrf.learning.lbfgs import OptimiserState
from relcrf.learning.moments import Moments, label_moments
from relcrf.learning.proportional_fitting import (
    ProportionalFitting,
    WeightTables,
    has_count_features,
    has_disjoint_patterns,
)


@dataclass(frozen=True)
class IpfBackend(AbstractWholeGraphBackend):
    """Unpenalised maximum likelihood for tables that the evidence only selects; see `learning/proportional_fitting.py`.

    Args:
        l2: Must be 0; proportional fitting has no penalty.
        max_iterations: Maximum number of passes over all tables.
        tolerance: Converged when the largest difference of counts has decreased to this fraction of its initial value.
        update: `each` updates one table after another; `all` updates all tables at once, as in generalised iterative
            scaling.
        smoothing: Fraction of the samples that is replaced by samples of the initial model, in which all states are
            equally likely, so that the potential of a state that never occurs in the labels is small but not 0.
        inference: Name of a method that computes a log partition; see docs/inference. The fit is only as exact as this
            method.

    Raises:
        UsageError: If `update` or `inference` has another value, `l2` is not 0, or `smoothing` is not in [0, 1).
    """

    name: ClassVar[str] = "ipf"
    l2: float = 0.0
    max_iterations: int = 200
    tolerance: float = 1e-5
    update: str = "each"
    smoothing: float = 1e-9
    inference: str = "auto"

    def __post_init__(self) -> None:
        self._require_one_of("update", ("each", "all"))
        self._require_one_of("inference", PARTITION_METHODS)
        if self.l2:
            raise _penalty_error(f"'l2={self.l2:g}' was set")
        if not 0.0 <= self.smoothing < 1.0:
            self._reject_setting("smoothing", "it takes a share of the samples, below 1")

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        self._require_tables(problem)
        likelihood = self.joint_likelihood(problem, {}).likelihood(problem)
        graph, layout = likelihood.graph, problem.graph.layout
        learned, observed = layout.learnable_mask(), likelihood.observed_counts
        start = layout.initial()
        expected = likelihood.expectation(start, None)[1]
        target = np.where(learned, (1.0 - self.smoothing) * observed + self.smoothing * expected, observed)
        tables = WeightTables.build(graph, simultaneous=self.update == "all")
        self._require_feasible_counts(graph, tables, target, expected)

        def evaluate(weights: np.ndarray) -> tuple[float, np.ndarray]:
            log_partition, counts = likelihood.expectation(weights, None)
            return log_partition - float((target * weights).sum()), np.where(learned, counts - target, 0.0)

        fitting = ProportionalFitting(tables, target, self.tolerance, self.max_iterations)
        state = monitor.restore("weights", OptimiserState) or fitting.start(evaluate, start)

        def observe(state: OptimiserState) -> None:
            monitor.step("weights", state, self.max_iterations)

        state = fitting.minimise(evaluate, state, observe)
        verdict = likelihood.method(graph.scopes).marginals(graph.potentials(state.point)).verdict
        _, variance = label_moments(likelihood, state.point)
        return FitResult(
            {"weights": state.point},
            (("weights", state),),
            {
                "variables": graph.n_nodes,
                "edges": graph.n_edges,
                "tables": len(tables.start),
                "inferences_an_iteration": len(tables.rounds),
                "states_never_seen": int(np.count_nonzero(learned & (observed == 0.0) & (expected > 0.0))),
                "inference": str(verdict)
                if verdict.status == "exact"
                else f"approximate, and so is the fit: {verdict}",
            },
            moments=Moments(observed, np.where(learned, state.gradient + target, np.nan), variance),
        )

    def _require_tables(self, problem: Problem) -> None:
        """Reject problems that proportional fitting does not support.

        Raises:
            UsageError: For a sharded graph, latent attributes, penalties, features that are not counts, or overlapping
                patterns.
        """
        self._require_unsharded(problem, "give more --memory, and no --workers; or use ess")
        reason = "it matches counts of states that are known"
        self._require_labels(problem, reason, "use --backend ess, or dense with inference=jt")
        for group in problem.graph.groups:
            block = problem.graph.layout.blocks[group.block]
            if block.fixed:
                continue
            if block.l1 or block.l2:
                raise _penalty_error(f"template '{block.name}' asks for one")
            if not has_count_features(group):
                reason = "multiplies its weights with numbers of the evidence"
                raise _unsupported_template(block.name, reason, "give the numbers in 'per' as values of a domain")
            if not has_disjoint_patterns(group):
                raise _unsupported_template(
                    block.name, "has patterns of which a state can have several", "list the terms in 'over'"
                )

    def _require_feasible_counts(
        self, graph: ReducedGraph, tables: WeightTables, target: np.ndarray, expected: np.ndarray
    ) -> None:
        """Reject counts that no finite weights match.

        Raises:
            DataError: If the labels contain a state that the fixed weights exclude or, without smoothing, lack a
                possible state.
        """
        layout = graph.graph.layout
        wanted, owner = tables.outcomes(target)
        possible, _ = tables.outcomes(expected)
        for wrong, has, which, hint in (
            (
                (wanted > 0.0) & (possible <= 0.0),
                "have",
                "the fixed weights rule out",
                "mend the labels, or the hard rule",
            ),
            ((wanted <= 0.0) & (possible > 0.0), "never have", "the model can have", "use --set smoothing=1e-9"),
        ):
            if wrong.any():
                block = np.searchsorted(layout.starts, tables.start[owner[wrong.argmax()]], side="right") - 1
                message = f"the labels {has} a state of template '{layout.blocks[block].name}' that {which}"
                raise DataError(Diagnostic("E228", message, hint=hint))


def _penalty_error(reason: str) -> UsageError:
    message = f"backend 'ipf' takes no penalty on weights, and {reason}"
    return UsageError(Diagnostic("E386", message, hint="use --backend dense, or --set smoothing=0.01 in its place"))


def _unsupported_template(template: str, reason: str, alternative: str) -> UsageError:
    message = f"backend 'ipf' fits tables that the evidence selects, and template '{template}' {reason}"
    return UsageError(Diagnostic("E385", message, hint=f"use --backend dense --set inference=auto, or {alternative}"))
