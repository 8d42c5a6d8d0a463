"""Labels that a training does not see, to judge it by."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.backends.base import Inferred, Problem
from relcrf.errors import DataError, Diagnostic
from relcrf.graph.components import components
from relcrf.graph.reduction import Role

LARGEST = 1 / 20
"""Of the labels that a component may have where whole ones are held out: rows that nothing joins, and no web with crumbs."""


@dataclass(frozen=True)
class HeldOut:
    """Some of a training problem's labelled variables.

    Args:
        variables: which, shape (n_variables,), bool.
        whole: whether they are whole components.
        unused: variables that are left out of the question as well, shape (n_variables,), bool; None is none.
    """

    variables: np.ndarray
    whole: bool
    unused: np.ndarray | None = None

    @classmethod
    def at_random(cls, problem: Problem, share: float, seed: int) -> HeldOut:
        """A share of the labels: whole components where none has more than `LARGEST` of them, else variables.

        Raises:
            DataError: where that leaves nothing, on one side or the other.
        """
        among, of, whole = _units(problem)
        n = round(share * len(among))
        _require(0 < n < len(among), len(among))
        chosen = np.random.default_rng(seed).permutation(among)[:n]
        return cls(_labelled(problem) & np.isin(of, chosen), whole)

    @classmethod
    def chosen(cls, problem: Problem, variables: np.ndarray) -> HeldOut:
        """The labels among some variables, shape (n_variables,), bool.

        Raises:
            DataError: where that leaves nothing, on one side or the other.
        """
        labelled = _labelled(problem)
        held, component = labelled & variables, components(problem.graph, problem.roles)
        _require(0 < held.sum() < labelled.sum(), int(labelled.sum()))
        cut = bool(np.isin(component[held], component[labelled & ~held]).any())
        return cls(held, not (cut or problem.candidates))

    @classmethod
    def folds(cls, problem: Problem, n: int, seed: int) -> list[HeldOut]:
        """All labels in `n` parts of equal size, each held out in turn; of the same kind as `at_random`.

        Raises:
            DataError: where there are fewer labels, or components of them, than parts.
        """
        among, of, whole = _units(problem)
        _require(len(among) >= n, len(among))
        parts = np.array_split(np.random.default_rng(seed).permutation(among), n)
        return [cls(_labelled(problem) & np.isin(of, part), whole) for part in parts]

    @property
    def n(self) -> int:
        return int(self.variables.sum())

    def learning(self, problem: Problem) -> Problem:
        """What is left to learn from."""
        out = self.variables if self.unused is None else self.variables | self.unused
        return replace(problem, roles=np.where(out, Role.ABSENT, problem.roles).astype(np.int8))

    def asking(self, problem: Problem) -> Problem:
        """What is held out as queries, the other labels as evidence.

        Among variables, those that the training leaves out are queries too: an answer depends on its unlabelled
        neighbours, there as in earnest. Their labels are not used.
        """
        evidence = _labelled(problem) & ~self.variables
        roles, states = np.where(evidence, Role.CLAMPED, problem.roles), problem.states
        if not self.whole:
            left_out = problem.roles == Role.ABSENT
            roles, states = np.where(left_out, Role.FREE, roles), np.where(left_out, -1, states)
        if self.unused is not None:
            roles = np.where(self.unused, Role.ABSENT, roles)
        return replace(problem, roles=roles.astype(np.int8), states=states)

    def scores(self, problem: Problem, found: Inferred) -> tuple[float, float]:
        """Mean log-probability of the labels that are held out, each alone, and the share whose most probable state is right."""
        scored = np.flatnonzero(self.variables[found.variables])
        truth = problem.states[found.variables[scored]]
        probability = found.marginals[found.state_start[:-1][scored] + truth]
        right = found.modes()[scored] == truth  # of states that are equally likely the first counts
        with np.errstate(divide="ignore"):
            return float(np.log(probability).mean()), float(right.mean())


def _labelled(problem: Problem) -> np.ndarray:
    return np.asarray((problem.roles == Role.FREE) & (problem.states >= 0))


def _units(problem: Problem) -> tuple[np.ndarray, np.ndarray, bool]:
    """What can be held out, the one that each variable belongs to, shape (n_variables,), and whether they are components.

    Candidates may join any: where there are some, variables are held out.
    """
    labelled = _labelled(problem)
    if problem.candidates:
        return np.flatnonzero(labelled), np.arange(len(labelled)), False
    component = components(problem.graph, problem.roles)
    sizes = np.bincount(component[labelled])
    if sizes.max(initial=0) <= LARGEST * labelled.sum():
        return np.flatnonzero(sizes), component, True
    return np.flatnonzero(labelled), np.arange(len(labelled)), False


def _require(enough: bool, n: int) -> None:
    if not enough:
        message = f"{n} labels are too few to hold some of them out"
        raise DataError(Diagnostic("E226", message, hint="label more things, or say the settings"))
