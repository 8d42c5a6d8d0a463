"""Pseudo-likelihood of a model with features chosen out of spaces of candidates, none of which is expanded.

Where all labels are observed, one step of mean-field contrastive divergence is pseudo-likelihood: each variable's update
from its neighbours' labels is its local conditional (Lao & Zhu 2014, equations 8 to 11; Besag 1975).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from relcrf.graph.candidates import PairSpace, Side
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.triples import Composites, Space
from relcrf.kernels import conditionals
from relcrf.learning.active import Active
from relcrf.learning.likelihood import curvature
from relcrf.learning.literals import Literals


@dataclass(frozen=True)
class Chosen:
    """Candidates that are in a model, in the order of their weights.

    Args:
        space, first, second: of each the number of its space, and the pair of numbers by which that knows it, shape (n,), int64:
            its keys, or of a triple its composite and its third key.
    """

    space: np.ndarray
    first: np.ndarray
    second: np.ndarray

    @classmethod
    def none(cls) -> Chosen:
        return cls.of(np.empty((3, 0), dtype=np.int64))

    @classmethod
    def of(cls, rows: np.ndarray) -> Chosen:
        """From the form that `rows` gives."""
        return cls(rows[0], rows[1], rows[2])

    @classmethod
    def everything(cls, spaces: Sequence[PairSpace]) -> Chosen:
        """All candidates of some spaces of pairs."""
        rows = [np.empty((3, 0), dtype=np.int64)]
        for number, space in enumerate(spaces):
            pairs = space.every_pair()
            rows.append(np.stack((np.full(len(pairs), number), pairs[:, 0], pairs[:, 1])))
        return cls.of(np.concatenate(rows, axis=1))

    @property
    def rows(self) -> np.ndarray:
        """All as one array, shape (3, n)."""
        return np.stack((self.space, self.first, self.second))

    def __len__(self) -> int:
        return len(self.space)

    def joined(self, other: Chosen) -> Chosen:
        return Chosen.of(np.concatenate((self.rows, other.rows), axis=1))

    def only(self, kept: np.ndarray) -> Chosen:
        """Some of them, by their places or by a mask."""
        return Chosen.of(self.rows[:, kept])

    def places(self, space: int) -> np.ndarray:
        """The places of those of one space."""
        return np.flatnonzero(self.space == space)

    def pairs(self, places: np.ndarray) -> np.ndarray:
        """By which their spaces know them, shape (n, 2)."""
        return np.stack((self.first[places], self.second[places]), axis=1)


@dataclass(frozen=True)
class NodeTables:
    """Some variables, shape (n,), and a flat table of each, from `state_start`, shape (n + 1,)."""

    variables: np.ndarray
    state_start: np.ndarray
    tables: np.ndarray


class AbstractGrowing(ABC):
    """An objective of models that candidates join: a function of the weights of the base, then of the chosen.

    Args:
        chosen: the candidates that are in the model.
    """

    exact_gradient: ClassVar[bool] = True
    """Whether the gradient is the derivative of the value, as line searches need it."""
    chosen: Chosen

    @property
    @abstractmethod
    def n_base(self) -> int:
        """How many weights the base has."""

    @abstractmethod
    def having(self, chosen: Chosen) -> Self:
        """With other candidates in the model."""

    @abstractmethod
    def held_out(self) -> Self | None:
        """The same objective of the labels that are not trained on; None where all are."""

    @abstractmethod
    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at weights of shape (n_base + n_chosen,)."""

    @abstractmethod
    def curvature(self) -> np.ndarray:
        """An upper estimate of the diagonal of the Hessian, shape (n_base + n_chosen,)."""


class AbstractInduced(AbstractGrowing):
    """One whose candidates come out of spaces, with a number for each literal."""

    @property
    @abstractmethod
    def sides(self) -> tuple[tuple[Side, ...], ...]:
        """Of each space its sides; their `variable` is the place of a literal in `holds`."""

    @property
    @abstractmethod
    def holds(self) -> np.ndarray:
        """Of each literal of each variable whether it holds in the data, 0.0 or 1.0."""

    @abstractmethod
    def errors(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """The value, and of each literal its probability less whether it holds, of the shape of `holds`; 0 where the label is
        not trained on.
        """

    def errors_and_signals(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each literal two numbers, such that a candidate's gradient is the sum of products of the one and of the other."""
        return self.errors(point)[1], self.holds

    def of_composites(self, made: Composites, errors: np.ndarray, signals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Errors and signals of literals, and after these those of composites of two."""
        return made.errors(errors, signals), made.holds(signals)


@dataclass(frozen=True, eq=False)
class InducedLikelihood(AbstractInduced):
    """Minus the log pseudo-likelihood of labels.

    Args:
        base: each variable with its factors at its neighbours' labels (`blanket_graph`), of all that is no candidate.
        observed: flat tables of its nodes, 1.0 at the label and 0.0 elsewhere.
        literals: of the spaces.
        chosen: what of the spaces is in the model.
        trained: nodes whose labels are learned from, shape (n_nodes,), bool; the others are neighbours only.
        filled: what literals of variables without a label count as, their expectations, shape (literals.size,): such
            variables are neighbours of candidates, and no more.
    """

    base: ReducedGraph
    observed: np.ndarray
    literals: Literals
    chosen: Chosen
    trained: np.ndarray
    filled: np.ndarray

    @classmethod
    def of(
        cls,
        base: ReducedGraph,
        states: np.ndarray,
        spaces: tuple[Space, ...],
        outside: NodeTables | None = None,
    ) -> InducedLikelihood:
        """With nothing chosen, trained on all nodes.

        Args:
            states: shape (n_nodes,), all observed.
            spaces: over variables that are nodes, or outside.
            outside: variables without a label, and their probabilities.
        """
        observed = np.zeros(int(base.state_start[-1]))
        observed[base.state_start[:-1] + states] = 1.0
        literals = Literals.of(base, spaces, np.empty(0, dtype=np.int64) if outside is None else outside.variables)
        filled = np.zeros(literals.size)
        if outside is not None:
            filled = literals.expectations_outside(outside.state_start, outside.tables)
        return cls(base, observed, literals, Chosen.none(), np.ones(base.n_nodes, dtype=bool), filled)

    def having(self, chosen: Chosen) -> InducedLikelihood:
        other = replace(self, chosen=chosen)
        other.__dict__.update(holds=self.holds, _at_label=self._at_label)  # they do not depend on them
        return other

    @cached_property
    def _at_label(self) -> np.ndarray:
        """The place of each node's label in flat tables, shape (n_nodes,)."""
        return np.flatnonzero(self.observed)

    def held_out(self) -> InducedLikelihood | None:
        return None if self.trained.all() else replace(self, trained=~self.trained)

    @property
    def sides(self) -> tuple[tuple[Side, ...], ...]:
        return self.literals.sides

    @cached_property
    def holds(self) -> np.ndarray:
        return np.asarray(self.literals.expectations(self.observed) + self.filled)

    @property
    def n_base(self) -> int:
        return self.base.graph.layout.size

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        value, residual = self.residual(point)
        base = np.zeros(self.n_base)
        self.base.add_node_counts(residual, base)
        errors = self.literals.expectations(residual)
        return value, np.concatenate((base, self.active.gradient(errors, self.holds)))

    @cached_property
    def active(self) -> Active:
        """The chosen, as they act on literals."""
        return Active.of(self.literals.spaces, self.literals.size, self.chosen.rows)

    def curvature(self) -> np.ndarray:
        return np.concatenate((curvature(self.base), self.active.curvature(self.holds)))

    def errors(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        value, residual = self.residual(point)
        return value, self.literals.expectations(residual)

    def residual(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """The value, and flat tables of each state's probability given the neighbours' labels, less 1 at the label.

        Both of the nodes that are trained on: the tables of others are 0.
        """
        tables = self.base.node_log_potentials(point[: self.n_base])
        scores = np.zeros(self.literals.size)
        self.active.add_scores(point[self.n_base :], self.holds, scores)
        self.literals.add(scores, tables)
        at_label = tables[self._at_label]
        log_partition = np.empty(self.base.n_nodes)
        conditionals.normalise(self.literals.state_start, tables, log_partition)
        losses = log_partition - at_label
        tables -= self.observed
        if self.trained.all():
            return float(losses.sum()), tables
        tables[np.repeat(~self.trained, self.base.cardinality)] = 0.0
        return float(losses[self.trained].sum()), tables
