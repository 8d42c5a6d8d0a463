"""The risk of the labelled variables of a problem with gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.backends.base import AbstractPart, Problem, SharedVector
from relcrf.errors import DataError, Diagnostic
from relcrf.graph.components import components
from relcrf.graph.gated_graph import GatedGraph
from relcrf.graph.gates import ASKED, HIDDEN, LazyGates
from relcrf.graph.reduction import ReducedGraph, Role
from relcrf.kernels.distinct import distinct
from relcrf.learning.likelihood import AbstractLikelihood
from relcrf.learning.risk import Risk, Settings

FEW = 20
"""Components, fewer than which are not held out whole."""

LEAST_HELD_OUT = 10
"""Labels; fewer would say nothing, and none is held out."""


def risk_of(problem: Problem, asked: np.ndarray, settings: Settings, backend: str) -> Risk:
    """The risk of the variables that are asked for.

    A free variable has the status `asked` where `problem.asked` says so, or by default where it has a label; else `hidden`.

    Args:
        asked: free variables whose beliefs have a loss, shape (n_variables,), bool; they have states.
    """
    graph = GatedGraph.of(problem.reduced(backend))
    gates = problem.gates.rows(problem.graph, graph.factors, _status(problem))
    variables = graph.alone.variables
    n_paying = int(np.count_nonzero(_wanted(problem) & (problem.roles == Role.FREE)))
    return Risk(graph, gates, np.maximum(problem.states[variables], 0), asked[variables], n_paying, settings)


@dataclass(frozen=True)
class Examples:
    """How a problem's labelled variables are divided into what is learned from, in batches, and what is held out.

    Args:
        held_out: share of the components, or of the variables where components are few.
        batch: components at a time; 0 is all.
    """

    settings: Settings
    backend: str
    held_out: float
    batch: int

    def held_out_of(self, problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, bool]:
        """Variables, shape (n_variables,), bool, and whether they are whole components."""
        component = components(problem.graph, problem.roles)
        named = distinct(component[_labelled(problem)])
        whole = len(named) >= FEW
        if self.held_out * _labelled(problem).sum() < LEAST_HELD_OUT:
            return np.zeros(len(component), dtype=bool), whole
        if whole:
            return np.isin(component, named[rng.random(len(named)) < self.held_out]), whole
        return rng.random(len(component)) < self.held_out, whole

    def divided(
        self, drawn: Sequence[Problem], out: np.ndarray, whole: bool, rng: np.random.Generator
    ) -> tuple[list[Risk], Risk | None]:
        """Batches of all problems, and what is held out of the first, if anything is.

        Args:
            drawn: a problem with some labels as evidence, once or more. out, whole: see `held_out_of`.

        Raises:
            DataError: where that leaves nothing to learn from.
        """
        risks = [risk for one in drawn for risk in self._batches(one, out, whole, rng)]
        if not risks:
            message = f"of {int(_labelled(drawn[0]).sum())} labels none is left to learn from"
            hint = "label more things, or take less of them as evidence and hold less out"
            raise DataError(Diagnostic("E226", message, hint=hint))
        judged = _labelled(drawn[0]) & out
        first = _only(drawn[0], out) if whole else drawn[0]
        return risks, self._risk(first, judged) if judged.any() else None

    def _batches(self, problem: Problem, out: np.ndarray, whole: bool, rng: np.random.Generator) -> list[Risk]:
        asked = _labelled(problem)
        component = components(problem.graph, problem.roles)
        named = distinct(component[asked])
        order = rng.permutation(len(named))
        batch = np.full(len(asked), -1)
        batch[named] = order // self.batch if self.batch else 0
        risks = []
        for number in range(int(batch.max(initial=-1)) + 1):
            inside = batch[component] == number
            part = asked & inside & ~out
            if part.any():
                left = inside & ~out if whole else inside
                risks.append(self._risk(problem if left.all() else _only(problem, left), part))
        return risks

    def _risk(self, problem: Problem, asked: np.ndarray) -> Risk:
        return risk_of(problem, asked, self.settings, self.backend)


def without_closed(problem: Problem, gates: np.ndarray, threshold: float) -> Problem:
    """The same without the factors whose gates are less open than a threshold: what is closed costs nothing more.

    Args:
        gates: weights of the gates.
    """
    graph, left = problem.gates.opened(problem.graph, problem.roles, _status(problem), gates, threshold)
    return replace(problem, graph=graph, lazy_gates=LazyGates(lambda: left))


def _wanted(problem: Problem) -> np.ndarray:
    return problem.states >= 0 if problem.asked is None else problem.asked


def _status(problem: Problem) -> np.ndarray:
    """Return the status of each variable, see `Gates.rows`."""
    unknown = problem.graph.cardinality + np.where(_wanted(problem), ASKED, HIDDEN)
    return np.where(problem.roles == Role.FREE, unknown, problem.states)


def _labelled(problem: Problem) -> np.ndarray:
    return np.asarray((problem.roles == Role.FREE) & (problem.states >= 0))


def _only(problem: Problem, kept: np.ndarray) -> Problem:
    """The same without the other free variables. Evidence stays: it belongs to no component."""
    roles = np.where(kept | (problem.roles == Role.CLAMPED), problem.roles, Role.ABSENT).astype(np.int8)
    return replace(problem, roles=roles)


@dataclass(frozen=True)
class GatedBeliefs(AbstractPart):
    """The beliefs of the free variables, as if these were independent.

    Args:
        gates: weights of the gates.
        threshold: below which factors are left out.
    """

    backend: str
    settings: Settings
    threshold: float
    gates: SharedVector

    def risk(self, problem: Problem) -> Risk:
        return risk_of(problem, _labelled(problem), self.settings, self.backend)

    def likelihood(self, problem: Problem) -> BeliefLikelihood:
        # By cross-entropy, whatever was learned by.
        risk = replace(self, settings=replace(self.settings, loss="cross-entropy")).risk(problem)
        return BeliefLikelihood(risk.graph.alone, risk.states, risk, self.gates, self.threshold)


@dataclass(frozen=True, eq=False)
class BeliefLikelihood(AbstractLikelihood):
    """Minus the sum of the log beliefs of the observed states. It is to be judged by, and has no gradient."""

    graph: ReducedGraph
    states: np.ndarray
    risk: Risk
    gates: SharedVector
    threshold: float

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        found = self.risk.hard(np.concatenate((weights, self.gates.get())), self.threshold)
        return self.risk.judged(found)[0] * self.risk.n_asked, np.full(len(weights), np.nan)
