"""Iterative proportional fitting: maximum likelihood by matching expected to observed counts, table by table."""

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
    """Unpenalised maximum likelihood; the evidence may select the weights of a factor, but not multiply weights.

    See docs/explanation/classical.md.

    Args:
        l2: Must be 0; proportional fitting has no penalty.
        max_iterations: Maximum number of passes over all tables.
        tolerance: The fit converges when the largest difference between observed and expected counts has decreased to
            this fraction of its initial value.
        update: `each` updates one table after another; `all` updates all tables simultaneously, as in generalised
            iterative scaling.
        smoothing: Fraction of the observed counts that is replaced by expected counts under the initial weights. With
            smoothing, a state that never occurs in the labels has a small potential instead of 0.
        inference: Name of a method that computes the log partition; see docs/explanation/inference. The fit is exact
            only if this method is exact.

    Raises:
        UsageError: If `update` or `inference` has an unknown value, `l2` is not 0, or `smoothing` is not in [0, 1).
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
            raise _penalty_error(f"setting 'l2' is {self.l2:g}")
        if not 0.0 <= self.smoothing < 1.0:
            self._reject_setting("smoothing", "use a fraction of the samples, from 0 to below 1")

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
        verdict.raise_if_interrupted()
        _, variance = label_moments(likelihood, state.point)
        return FitResult(
            {"weights": state.point},
            (("weights", state),),
            {
                "variables": graph.n_nodes,
                "edges": graph.n_edges,
                "tables": len(tables.start),
                "inferences_per_iteration": len(tables.rounds),
                "unobserved_states": int(np.count_nonzero(learned & (observed == 0.0) & (expected > 0.0))),
                "inference": str(verdict)
                if verdict.status == "exact"
                else f"approximate, and so is the fit: {verdict}",
            },
            moments=Moments(observed, np.where(learned, state.gradient + target, np.nan), variance),
        )

    def _require_tables(self, problem: Problem) -> None:
        """Reject problems that proportional fitting does not support.

        Raises:
            UsageError: If the graph is sharded, an attribute is latent, or a template has a penalty, features that are
                not counts, or overlapping patterns.
        """
        self._require_unsharded(problem, "raise --memory and omit --workers, or use --backend ess")
        reason = "proportional fitting matches counts of observed states"
        self._require_labels(problem, reason, "use --backend ess, or dense with inference=jt")
        for group in problem.graph.groups:
            block = problem.graph.layout.blocks[group.block]
            if block.fixed:
                continue
            if block.l1 or block.l2:
                raise _penalty_error(f"template '{block.name}' has a penalty")
            if not has_count_features(group):
                reason = "multiplies its weights by numbers of the evidence"
                raise _unsupported_template(block.name, reason, "encode the numbers as values of a domain in 'per'")
            if not has_disjoint_patterns(group):
                raise _unsupported_template(block.name, "has states with several patterns", "list the terms in 'over'")

    def _require_feasible_counts(
        self, graph: ReducedGraph, tables: WeightTables, target: np.ndarray, expected: np.ndarray
    ) -> None:
        """Reject counts that cannot be matched with finite weights.

        Raises:
            DataError: If the labels contain a state that the fixed weights exclude or, without smoothing, lack a
                possible state.
        """
        layout = graph.graph.layout
        observed, owner = tables.outcomes(target)
        possible, _ = tables.outcomes(expected)
        for infeasible, verb, reason, hint in (
            (
                (observed > 0.0) & (possible <= 0.0),
                "contain",
                "the fixed weights exclude",
                "fix the labels or the hard rule",
            ),
            ((observed <= 0.0) & (possible > 0.0), "never contain", "the model allows", "use --set smoothing=1e-9"),
        ):
            if infeasible.any():
                block = np.searchsorted(layout.starts, tables.start[owner[infeasible.argmax()]], side="right") - 1
                message = f"the labels {verb} a state of template '{layout.blocks[block].name}' that {reason}"
                raise DataError(Diagnostic("E228", message, hint=hint))


def _penalty_error(reason: str) -> UsageError:
    message = f"backend 'ipf' does not support penalties on weights, but {reason}"
    return UsageError(
        Diagnostic("E386", message, hint="use --backend dense, or replace the penalty with --set smoothing=0.01")
    )


def _unsupported_template(template: str, reason: str, alternative: str) -> UsageError:
    message = f"backend 'ipf' fits tables that the evidence selects, but template '{template}' {reason}"
    return UsageError(Diagnostic("E385", message, hint=f"use --backend dense --set inference=auto, or {alternative}"))
