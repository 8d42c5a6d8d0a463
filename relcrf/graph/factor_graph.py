"""The ground graph: variables, and factors in one group a template.

The log potential of factor n of a group at joint state s is

    log potential[n, s] = sum_f sum_p X[n, f] * W[f, p] * patterns[s, p]

with the evidence features X (`features.py`), the weights W that the group shares (`weights.py`), and the state
patterns that the template's `over` names. Joint states are numbered in row-major order of the scope.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from relcrf.graph.features import AbstractFeatures
from relcrf.graph.weights import WeightLayout


@dataclass(frozen=True)
class FactorGroup:
    """The ground factors of one template.

    Args:
        scope: one int32 array of shape (n_factors,) for each place of the scope: the variable that stands there.
        cardinalities: number of states at each place; the same for every factor of the group.
        features: evidence, shape (n_factors, n_features).
        patterns: shape (n_joint_states, n_patterns); None is the identity, a full table.
        block: which weight block of the layout the group uses.
    """

    scope: tuple[np.ndarray, ...]
    cardinalities: tuple[int, ...]
    features: AbstractFeatures
    patterns: np.ndarray | None
    block: int

    @property
    def n_factors(self) -> int:
        return len(self.scope[0])

    @property
    def n_joint_states(self) -> int:
        return math.prod(self.cardinalities)

    @property
    def n_patterns(self) -> int:
        return self.n_joint_states if self.patterns is None else int(self.patterns.shape[1])

    @property
    def strides(self) -> tuple[int, ...]:
        """How far one step of each place's state moves the joint state."""
        return tuple(math.prod(self.cardinalities[place + 1 :]) for place in range(len(self.cardinalities)))

    @property
    def nbytes(self) -> int:
        return sum(variable.nbytes for variable in self.scope) + self.features.nbytes


@dataclass(frozen=True)
class FactorGraph:
    """All variables and factors. `cardinality` has shape (n_variables,), int32."""

    cardinality: np.ndarray
    groups: tuple[FactorGroup, ...]
    layout: WeightLayout

    @property
    def n_variables(self) -> int:
        return len(self.cardinality)

    @property
    def n_factors(self) -> int:
        return sum(group.n_factors for group in self.groups)

    @property
    def nbytes(self) -> int:
        return self.cardinality.nbytes + sum(group.nbytes for group in self.groups)
