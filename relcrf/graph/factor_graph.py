"""The ground graph: variables, and factors in one group a template.

The log potential of factor n of a group at joint state s is

    log potential[n, s] = sum_f sum_p X[n, f] * W[f, p] * patterns[s, p]

with the evidence features X (`features.py`), the weights W that the group shares (`weights.py`), and the state
patterns that the template's `over` names. Joint states are numbered in row-major order of the scope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np

from relcrf.graph.features import AbstractFeatures
from relcrf.graph.weights import WeightBlock, WeightLayout


@dataclass(frozen=True)
class RepeatedScope(Sequence[np.ndarray]):
    """The scopes of factors that are the same for every row of a table: rows x patterns, kept and not expanded.

    Factor `r * n_patterns + p` has at place k the variable `starts[k] + strides[k] * rows[r] + offsets[k][p]`. To ask for
    a place makes its array, shape (n_rows * n_patterns,), anew.

    Args:
        rows: shape (n_rows,), int32.
        offsets: for each place, shape (n_patterns,), int32.
    """

    rows: np.ndarray
    starts: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, place: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[np.ndarray]: ...
    def __getitem__(self, place: int | slice) -> np.ndarray | Sequence[np.ndarray]:
        if isinstance(place, slice):
            return [self[k] for k in range(*place.indices(len(self)))]
        origin = self.rows * np.int32(self.strides[place]) + np.int32(self.starts[place])
        return np.asarray(np.add.outer(origin, self.offsets[place]).ravel())

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes) + sum(offset.nbytes for offset in self.offsets)


@dataclass(frozen=True)
class FactorGroup:
    """The ground factors of one template.

    Args:
        scope: for each place an int32 array of shape (n_factors,), the variable that stands there; or a `RepeatedScope`.
        cardinalities: number of states at each place; the same for every factor of the group.
        features: evidence, shape (n_factors, n_features).
        patterns: shape (n_joint_states, n_patterns); None is the identity, a full table.
        block: which weight block of the layout the group uses.
    """

    scope: Sequence[np.ndarray]
    cardinalities: tuple[int, ...]
    features: AbstractFeatures
    patterns: np.ndarray | None
    block: int

    @property
    def n_factors(self) -> int:
        return self.features.n_rows

    @cached_property
    def n_joint_states(self) -> int:
        return math.prod(self.cardinalities)

    @property
    def n_patterns(self) -> int:
        return self.n_joint_states if self.patterns is None else int(self.patterns.shape[1])

    @property
    def strides(self) -> tuple[int, ...]:
        """How far one step of each place's state moves the joint state."""
        return tuple(math.prod(self.cardinalities[place + 1 :]) for place in range(len(self.cardinalities)))

    @cached_property
    def is_agreement(self) -> bool:
        """Whether the factors are over two places, and 1 times a number where these agree and 0 elsewhere."""
        if self.patterns is None or len(self.scope) != 2 or self.n_patterns != 1:
            return False
        k, other = self.cardinalities
        return k == other and np.array_equal(self.patterns[:, 0], np.eye(k).ravel())

    @property
    def nbytes(self) -> int:
        scope = self.scope
        n_bytes = scope.nbytes if isinstance(scope, RepeatedScope) else sum(variable.nbytes for variable in scope)
        return n_bytes + self.features.nbytes


@dataclass(frozen=True)
class FactorGraph:
    """All variables and factors. `cardinality` has shape (n_variables,), int32."""

    cardinality: np.ndarray
    groups: tuple[FactorGroup, ...]
    layout: WeightLayout

    def with_groups(self, groups: Sequence[FactorGroup], block: WeightBlock) -> FactorGraph:
        """The graph with more factors, of one more block of weights, the last."""
        return FactorGraph(self.cardinality, (*self.groups, *groups), WeightLayout((*self.layout.blocks, block)))

    @property
    def n_variables(self) -> int:
        return len(self.cardinality)

    @property
    def n_factors(self) -> int:
        return sum(group.n_factors for group in self.groups)

    @property
    def nbytes(self) -> int:
        return self.cardinality.nbytes + sum(group.nbytes for group in self.groups)
