"""The interface of training objectives for models to which structure learning adds candidate factors."""

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
    """A training loss as a function of a *point*: the weights of `base`, then the weights of each chosen candidate.

    Args:
        base: The graph of all factors that are not candidates.
        states: Labels of the nodes of `base`, shape (n_nodes,); -1 for unlabelled nodes.
        spaces: The spaces of candidates (see `graph/candidates.py`). Each subclass defines what the `variable` array of
            a side contains.
        chosen: The candidates that are in the model.
        trained: Mask of the nodes whose labels have a term in the loss, shape (n_nodes,), bool; the other labels are
            used only in the terms of neighbours.
    """

    exact_gradient: ClassVar[bool] = True
    """Whether the gradient is exactly the derivative of the value; line searches require this."""
    depends_on_zero_candidates: ClassVar[bool] = False
    """Whether the value may change when candidates with weights of 0 are added, as for approximate inference."""
    base: ReducedGraph
    states: np.ndarray
    spaces: tuple[PairOrTripleSpace, ...]
    chosen: CandidateSet
    trained: np.ndarray

    def with_candidates(self, chosen: CandidateSet) -> Self:
        """Return the same objective for a model with other chosen candidates."""
        return replace(self, chosen=chosen)

    def trained_on(self, nodes: np.ndarray) -> Self:
        """Return the objective trained on the labels of the given nodes, shape (n_nodes,), bool."""
        return replace(self, trained=nodes)

    def held_out(self) -> Self | None:
        """Return the objective trained on the labels that this objective is not trained on; None if there are none."""
        return None if self.trained[self.states >= 0].all() else self.trained_on(~self.trained)

    @abstractmethod
    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient at `point`."""

    @abstractmethod
    def candidate_curvature(self, candidates: CandidateSet) -> np.ndarray:
        """Return an upper estimate of the Hessian's diagonal for the candidates' weights, shape (n_weights,)."""

    def base_curvature(self) -> np.ndarray:
        """Return an upper estimate of the Hessian's diagonal for the weights of the base, shape (n_base,)."""
        return hessian_diagonal_bound(self.base)

    def curvature(self) -> np.ndarray:
        """Return an upper estimate of the Hessian's diagonal, with the shape of a point."""
        return np.concatenate((self.base_curvature(), self.candidate_curvature(self.chosen)))

    @property
    def n_base(self) -> int:
        """Return the number of weights of the base."""
        return self.base.graph.layout.size

    def weight_start(self, candidates: CandidateSet) -> np.ndarray:
        """Return the offset of each candidate's weights from the end of the base weights, shape (n + 1,)."""
        return candidates.entry_offsets([space.n_weights for space in self.spaces])


def label_residual(
    base: ReducedGraph, scores: np.ndarray, states: np.ndarray, trained: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the negative log probability of the labels of trained nodes, and the residual of each state of each node.

    The residual of a state is its probability, minus 1 if the state is the node's label. The residuals of nodes that
    are not trained on are 0.

    Args:
        scores: Log potentials of the nodes' states, flat; overwritten with the residuals.
        states: Labels of the nodes, shape (n_nodes,).
        trained: Mask of the nodes whose labels have a term in the loss, shape (n_nodes,), bool.
    """
    at_label = base.state_start[:-1] + states
    label_scores, log_partition = scores[at_label], np.empty(base.n_nodes)
    conditionals.normalise(freeze(base.state_start, np.int64), scores, log_partition)
    losses = log_partition - label_scores
    scores[at_label] -= 1.0
    if trained.all():
        return float(losses.sum()), scores
    scores[np.repeat(~trained, base.cardinality)] = 0.0
    return float(losses[trained].sum()), scores
