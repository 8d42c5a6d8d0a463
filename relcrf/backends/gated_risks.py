"""Risks (see `learning/risk.py`) of a problem with gates: of training batches and of held-out variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.backends.base import AbstractLikelihoodSpec, Problem, SharedVector
from relcrf.errors import DataError, Diagnostic
from relcrf.graph.components import label_components
from relcrf.graph.gated_graph import GatedGraph
from relcrf.graph.gates import HIDDEN, QUERY, LazyGates
from relcrf.graph.reduction import ReducedGraph, Role
from relcrf.kernels.distinct import distinct
from relcrf.learning.likelihood import AbstractLikelihood
from relcrf.learning.risk import Risk, RiskSettings

MIN_WHOLE_COMPONENTS = 20
"""Minimum number of components for holding out whole components; with fewer, single variables are held out."""

MIN_HELD_OUT_LABELS = 10
"""Minimum number of held-out labels; with fewer labels, the held-out risk is inaccurate, so none are held out."""


def build_risk(problem: Problem, scored: np.ndarray, settings: RiskSettings, backend: str) -> Risk:
    """Return the risk of the scored variables.

    A free variable in `problem.queries` (by default, one with a label) has the status `QUERY` (see `graph/gates.py`);
    any other free variable has the status `HIDDEN`.

    Args:
        scored: Mask of the labelled free variables whose beliefs have a loss, shape (n_variables,), bool.
    """
    graph = GatedGraph.from_reduced(problem.reduced_graph(backend))
    gates = problem.gates.gate_features(problem.graph, graph.factors, _gate_statuses(problem))
    variables = graph.ungated.variables
    is_query = _query_mask(problem)[variables]
    return Risk(graph, gates, np.maximum(problem.states[variables], 0), scored[variables], is_query, settings)


@dataclass(frozen=True)
class ExampleSplitter:
    """A splitter of a problem's labelled variables into training batches and held-out variables.

    Args:
        held_out_fraction: Fraction of the components to hold out, or of the variables if there are few components.
        batch_size: Number of components per batch; 0 for a single batch.
    """

    settings: RiskSettings
    backend: str
    held_out_fraction: float
    batch_size: int

    def select_held_out(self, problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, bool]:
        """Return the mask of held-out variables, shape (n_variables,), and whether whole components are held out."""
        component = label_components(problem.graph, problem.roles)
        labelled_components = distinct(component[_labelled_mask(problem)])
        by_component = len(labelled_components) >= MIN_WHOLE_COMPONENTS
        if self.held_out_fraction * _labelled_mask(problem).sum() < MIN_HELD_OUT_LABELS:
            return np.zeros(len(component), dtype=bool), by_component
        if by_component:
            chosen = labelled_components[rng.random(len(labelled_components)) < self.held_out_fraction]
            return np.isin(component, chosen), by_component
        return rng.random(len(component)) < self.held_out_fraction, by_component

    def split_risks(
        self, problems: Sequence[Problem], held_out: np.ndarray, by_component: bool, rng: np.random.Generator
    ) -> tuple[list[Risk], Risk | None]:
        """Return the risks of the training batches of all problems, and the risk of the held-out variables (or None).

        Args:
            problems: Versions of a problem with different labels as evidence; the first version yields the held-out
                risk.
            held_out, by_component: The result of `select_held_out`.

        Raises:
            DataError: If no label remains to learn from.
        """
        risks = [risk for problem in problems for risk in self._batches(problem, held_out, by_component, rng)]
        if not risks:
            message = f"none of the {int(_labelled_mask(problems[0]).sum())} labels remain for training"
            hint = "label more entities, or lower evidence_fraction or validation_fraction"
            raise DataError(Diagnostic("E226", message, hint=hint))
        scored = _labelled_mask(problems[0]) & held_out
        validation = _restrict(problems[0], held_out) if by_component else problems[0]
        return risks, self._risk(validation, scored) if scored.any() else None

    def _batches(
        self, problem: Problem, held_out: np.ndarray, by_component: bool, rng: np.random.Generator
    ) -> list[Risk]:
        labelled = _labelled_mask(problem)
        component = label_components(problem.graph, problem.roles)
        labelled_components = distinct(component[labelled])
        order = rng.permutation(len(labelled_components))
        batch = np.full(len(labelled), -1)
        batch[labelled_components] = order // self.batch_size if self.batch_size else 0
        risks = []
        for number in range(int(batch.max(initial=-1)) + 1):
            in_batch = batch[component] == number
            scored = labelled & in_batch & ~held_out
            if scored.any():
                kept = in_batch & ~held_out if by_component else in_batch
                risks.append(self._risk(problem if kept.all() else _restrict(problem, kept), scored))
        return risks

    def _risk(self, problem: Problem, scored: np.ndarray) -> Risk:
        return build_risk(problem, scored, self.settings, self.backend)


def remove_closed_factors(problem: Problem, gates: np.ndarray, threshold: float) -> Problem:
    """Return the problem without factors whose gate probability, for gate weights `gates`, is below the threshold."""
    graph, open_gates = problem.gates.drop_closed_factors(
        problem.graph, problem.roles, _gate_statuses(problem), gates, threshold
    )
    return replace(problem, graph=graph, lazy_gates=LazyGates(lambda: open_gates))


def _query_mask(problem: Problem) -> np.ndarray:
    return problem.states >= 0 if problem.queries is None else problem.queries


def _gate_statuses(problem: Problem) -> np.ndarray:
    """Return the status of each variable in the form that `Gates.gate_features` requires."""
    unknown = problem.graph.cardinality + np.where(_query_mask(problem), QUERY, HIDDEN)
    return np.where(problem.roles == Role.FREE, unknown, problem.states)


def _labelled_mask(problem: Problem) -> np.ndarray:
    return np.asarray((problem.roles == Role.FREE) & (problem.states >= 0))


def _restrict(problem: Problem, kept: np.ndarray) -> Problem:
    """Return the problem with all evidence, and with only the free variables in the mask `kept`."""
    roles = np.where(kept | (problem.roles == Role.CLAMPED), problem.roles, Role.ABSENT).astype(np.int8)
    return replace(problem, roles=roles)


@dataclass(frozen=True)
class GatedBeliefsSpec(AbstractLikelihoodSpec):
    """A specification of the likelihood under the product of the free variables' beliefs.

    Args:
        gates: Weights of the gates.
        threshold: Gate probability below which factors are omitted.
    """

    backend: str
    settings: RiskSettings
    threshold: float
    gates: SharedVector

    def risk(self, problem: Problem) -> Risk:
        return build_risk(problem, _labelled_mask(problem), self.settings, self.backend)

    def likelihood(self, problem: Problem) -> BeliefLikelihood:
        # The likelihood is computed from the cross-entropy, even if training minimised another loss.
        risk = replace(self, settings=replace(self.settings, loss="cross-entropy")).risk(problem)
        return BeliefLikelihood(risk.graph.ungated, risk.states, risk, self.gates, self.threshold)


@dataclass(frozen=True, eq=False)
class BeliefLikelihood(AbstractLikelihood):
    """The negative sum of the log beliefs in the labels. It is for evaluation only; the gradient is NaN."""

    graph: ReducedGraph
    states: np.ndarray
    risk: Risk
    gates: SharedVector
    threshold: float

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        result = self.risk.infer_with_hard_gates(np.concatenate((weights, self.gates.load())), self.threshold)
        return self.risk.evaluate(result) * self.risk.n_scored, np.full(len(weights), np.nan)
