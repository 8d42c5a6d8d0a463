"""Gates on the factors of a ground graph: for each factor the evidence that tells whether it takes part."""

from __future__ import annotations

from dataclasses import dataclass

from relcrf.graph.features import AbstractFeatures
from relcrf.graph.weights import WeightLayout


@dataclass(frozen=True)
class GateGroup:
    """The gates on the factors of one group.

    Args:
        group: its place among the graph's groups.
        features: shape (n_factors, n_features), a row for each factor of the group, in its order.
        block: which weight block of the gates' layout they use.
    """

    group: int
    features: AbstractFeatures
    block: int


@dataclass(frozen=True)
class Gates:
    """All gates of a graph.

    Args:
        groups: ascending by `group`; groups without gates have none.
        layout: a block for each template with gates; of one pattern, that the gate is open.
    """

    groups: tuple[GateGroup, ...]
    layout: WeightLayout

    @property
    def nbytes(self) -> int:
        return sum(one.features.nbytes for one in self.groups)
