"""The ground factor graph: variables and factors. The factors of one template form a group.

The log potential of factor n of a group at joint state s is

    log potential[n, s] = sum_f sum_p X[n, f] * W[f, p] * patterns[s, p]

Here f is an evidence feature (`features.py`), and p is a state pattern: a function of the joint state that the `over`
clause of the template defines. All factors of a group share the weights W (`weights.py`). Joint states are numbered in
row-major order of the scope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import numpy as np

from relcrf.columns.storage import release_pages
from relcrf.graph.domains import Domains
from relcrf.graph.features import AbstractFeatures
from relcrf.graph.magnitudes import magnitude_counts
from relcrf.graph.weights import WeightBlock, WeightLayout


@dataclass(frozen=True)
class RepeatedScope(Sequence[np.ndarray]):
    """Scopes of factors that are repeated for every row of a table, stored as row indices and offsets within a row.

    For n factors per row, position k of factor `r * n + p` is the variable `starts[k] + strides[k] * rows[r] +
    offsets[k][p]`. Each access to `scope[k]` computes the variables at position k, shape (n_rows * n,).

    Args:
        rows: Row indices, shape (n_rows,), int32.
        offsets: One array per position, shape (n,), int32.
    """

    rows: np.ndarray
    starts: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, position: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[np.ndarray]: ...
    def __getitem__(self, position: int | slice) -> np.ndarray | Sequence[np.ndarray]:
        if isinstance(position, slice):
            return [self[k] for k in range(*position.indices(len(self)))]
        origin = self.rows * np.int32(self.strides[position]) + np.int32(self.starts[position])
        return np.asarray(np.add.outer(origin, self.offsets[position]).ravel())

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes) + sum(offset.nbytes for offset in self.offsets)


@dataclass(frozen=True)
class FactorGroup:
    """The ground factors of one template.

    Args:
        scope: Variable of each factor, one array per scope position, shape (n_factors,), int32; or a `RepeatedScope`.
        cardinalities: Number of states of the variable at each scope position, which is the same for every factor.
        features: Evidence features, shape (n_factors, n_features).
        patterns: State patterns, shape (n_joint_states, n_patterns); None stands for the identity matrix: each joint
            state has a separate weight.
        block: Index of the group's weight block in the layout.
        needs_marginals: Whether inference returns the joint marginals of the factors, see `joint_marginals.py`.
    """

    scope: Sequence[np.ndarray]
    cardinalities: tuple[int, ...]
    features: AbstractFeatures
    patterns: np.ndarray | None
    block: int
    needs_marginals: bool = False

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
        """Return the stride of each scope position in the row-major index of the joint state."""
        return tuple(math.prod(self.cardinalities[k + 1 :]) for k in range(len(self.cardinalities)))

    @cached_property
    def is_agreement(self) -> bool:
        """Return True for agreement (Potts) factors: over two variables, with log potential 0 if the states differ."""
        if self.patterns is None or len(self.scope) != 2 or self.n_patterns != 1:
            return False
        k, other = self.cardinalities
        return k == other and np.array_equal(self.patterns[:, 0], np.eye(k).ravel())

    @cached_property
    def magnitude_counts(self) -> np.ndarray:
        """Return the numbers of feature values by column and class of magnitude, see `graph/magnitudes.py`."""
        return magnitude_counts(self.features)

    @property
    def nbytes(self) -> int:
        scope = self.scope
        n_bytes = scope.nbytes if isinstance(scope, RepeatedScope) else sum(variable.nbytes for variable in scope)
        return n_bytes + self.features.nbytes


@dataclass(frozen=True)
class FactorGraph:
    """The variables and factors of a ground model.

    Args:
        cardinality: Number of states of each variable, shape (n_variables,), int32.
        known_domains: Domains of the variables; None if they are not known.
        numeric: First and last + 1 variable of each numeric attribute. For the algorithms on discrete variables, a numeric
            variable has one state; the factors over it are those of `graph/numeric_graph.py`.
    """

    cardinality: np.ndarray
    groups: tuple[FactorGroup, ...]
    layout: WeightLayout
    known_domains: Domains | None = None
    numeric: tuple[tuple[int, int], ...] = ()

    @property
    def domains(self) -> Domains:
        """The domains of the variables; if they are not known, variables with the same number of states share one."""
        return Domains.from_cardinality(self.cardinality) if self.known_domains is None else self.known_domains

    def with_groups(self, groups: Sequence[FactorGroup], block: WeightBlock) -> FactorGraph:
        """Return the graph with additional groups that share a new weight block, which is appended to the layout."""
        layout = WeightLayout((*self.layout.blocks, block))
        return replace(self, groups=(*self.groups, *groups), layout=layout)

    def release_pages(self) -> None:
        """Remove the columns that are mapped from files from the memory of this process, until they are read again."""
        for group in self.groups:
            scope = group.scope.offsets if isinstance(group.scope, RepeatedScope) else group.scope
            for column in (*scope, *group.features.arrays()):
                release_pages(column)

    @property
    def n_variables(self) -> int:
        return len(self.cardinality)

    @property
    def n_factors(self) -> int:
        return sum(group.n_factors for group in self.groups)

    @property
    def nbytes(self) -> int:
        return self.cardinality.nbytes + sum(group.nbytes for group in self.groups)
