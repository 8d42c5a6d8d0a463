"""Objectives of models that candidates join."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from relcrf.graph.candidates import CandidateSet
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.triples import PairOrTripleSpace
from relcrf.kernels import conditionals
from relcrf.kernels.threads import freeze
from relcrf.learning.likelihood import hessian_diagonal_bound


@dataclass(frozen=True, eq=False)
class AbstractCandidateObjective(ABC):
    """A function of the weights of the base, and after these of the weights of each chosen candidate in turn.

    Args:
        base: the graph of all that is no candidate.
        states: labels of its nodes, shape (n_nodes,); -1 where there is none.
        spaces: of the candidates; the variables of their sides are numbered as the objective needs it.
        chosen: the candidates that are in the model.
        trained: nodes whose labels are learned from, shape (n_nodes,), bool; the others are neighbours only.
    """

    exact_gradient: ClassVar[bool] = True
    """Whether the gradient is the derivative of the value, as line searches need it."""
    base: ReducedGraph
    states: np.ndarray
    spaces: tuple[PairOrTripleSpace, ...]
    chosen: CandidateSet
    trained: np.ndarray

    def with_candidates(self, chosen: CandidateSet) -> Self:
        """Return the objective with other candidates in the model."""
        return replace(self, chosen=chosen)

    def trained_on(self, nodes: np.ndarray) -> Self:
        """Return the objective of the labels of some nodes, shape (n_nodes,), bool."""
        return replace(self, trained=nodes)

    def held_out(self) -> Self | None:
        """Return the same objective of the labels that are not trained on; None where all are."""
        return None if self.trained[self.states >= 0].all() else self.trained_on(~self.trained)

    @abstractmethod
    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient at weights of the base and of the chosen."""

    @abstractmethod
    def candidate_curvature(self, candidates: CandidateSet) -> np.ndarray:
        """Return an upper estimate of the Hessian's diagonal in the weights of some candidates, shape (n_weights,)."""

    def base_curvature(self) -> np.ndarray:
        """Return an upper estimate of the Hessian's diagonal in the weights of the base, shape (n_base,)."""
        return hessian_diagonal_bound(self.base)

    def curvature(self) -> np.ndarray:
        """Return an upper estimate of the Hessian's diagonal, of the shape of a point."""
        return np.concatenate((self.base_curvature(), self.candidate_curvature(self.chosen)))

    @property
    def n_base(self) -> int:
        """Return the number of weights of the base."""
        return self.base.graph.layout.size

    def weight_start(self, candidates: CandidateSet) -> np.ndarray:
        """Return where the weights of each candidate begin behind those of the base, shape (n + 1,)."""
        return candidates.entry_offsets([space.n_weights for space in self.spaces])


def label_residual(
    base: ReducedGraph, scores: np.ndarray, states: np.ndarray, trained: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return minus the log-probability of labels, and each state's probability less 1 at the label; both of trained nodes.

    Args:
        scores: log potentials of the nodes' states, flat; overwritten by what is returned.
        states: the nodes' labels, shape (n_nodes,).
        trained: shape (n_nodes,), bool; the residuals of other nodes are 0.
    """
    at_label = base.state_start[:-1] + states
    of_label, log_partition = scores[at_label], np.empty(base.n_nodes)
    conditionals.normalise(freeze(base.state_start, np.int64), scores, log_partition)
    losses = log_partition - of_label
    scores[at_label] -= 1.0
    if trained.all():
        return float(losses.sum()), scores
    scores[np.repeat(~trained, base.cardinality)] = 0.0
    return float(losses[trained].sum()), scores
