"""Rows of numbers as a ground graph: for each row its targets, and factors over each of them and each pair of them.

It is what the relational model of `build_relational_model` grounds into, without the way through tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from relcrf.api import Model
from relcrf.backends.base import Problem
from relcrf.builder import ModelBuilder, predict, vector
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import AbstractFeatures, Dense, Ones
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightBlock, WeightLayout


@dataclass(frozen=True)
class RowModel:
    """The shape of a model of rows.

    Args:
        cardinalities: of the targets, each at least 2.
        n_features: of the evidence, the constant aside.
        evidence_on_pairs: whether the evidence weighs on pairs of targets, too, or the constant alone.
    """

    cardinalities: tuple[int, ...]
    n_features: int
    evidence_on_pairs: bool

    def graph(self, evidence: np.ndarray) -> FactorGraph:
        """The ground graph of some rows; variable `q * row + target`.

        The constant has weights of its own, which no penalty holds.

        Args:
            evidence: shape (n, n_features).
        """
        n, q = len(evidence), len(self.cardinalities)
        first = np.arange(n, dtype=np.int32) * np.int32(q)
        values = Dense(np.ascontiguousarray(evidence, dtype=np.float64))
        ones = Ones(n)
        groups: list[FactorGroup] = []
        blocks: list[WeightBlock] = []

        def add(name: str, targets: Sequence[int], features: AbstractFeatures, l2: float | None) -> None:
            scope = tuple(first + np.int32(target) for target in targets)
            sizes = tuple(self.cardinalities[target] for target in targets)
            groups.append(FactorGroup(scope, sizes, features, None, len(blocks)))
            blocks.append(WeightBlock(name, features.n_features, int(np.prod(sizes)), l2=l2))

        for target in range(q):
            add(f"level_{target}", [target], ones, 0.0)
            add(f"local_{target}", [target], values, None)
        for one, other in combinations(range(q), 2):
            add(f"tie_{one}_{other}", [one, other], ones, None)
            if self.evidence_on_pairs:
                add(f"pair_{one}_{other}", [one, other], values, None)
        return FactorGraph(
            np.tile(np.array(self.cardinalities, dtype=np.int32), n), tuple(groups), WeightLayout(tuple(blocks))
        )

    def problem(self, evidence: np.ndarray, states: np.ndarray | None = None) -> Problem:
        """What is learned, or asked.

        Args:
            states: of the targets, shape (n, q); None where they are asked for.
        """
        graph = self.graph(evidence)
        roles = np.full(graph.n_variables, Role.FREE, dtype=np.int8)
        known = np.full(graph.n_variables, -1) if states is None else states.ravel()
        return Problem(graph, roles, known.astype(np.int32), queries=np.ones(graph.n_variables, dtype=bool))


def build_relational_model(classes: Sequence[np.ndarray], *, evidence_on_pairs: bool) -> Model:
    """The relational model: an entity `Row` with the vector `x` and the targets `t0`, `t1`, ...

    Args:
        classes: the values of each target.
    """
    m = ModelBuilder()
    domains = [m.domain(f"Class{k}", [str(value) for value in values]) for k, values in enumerate(classes)]
    row_type = m.entity("Row", x=vector, **{f"t{k}": predict(domain) for k, domain in enumerate(domains)})
    row = row_type("r")
    targets = [getattr(row, f"t{k}") for k in range(len(classes))]
    for k, target in enumerate(targets):
        m.template(f"level_{k}", row).over(target).l2(0.0)
        m.template(f"local_{k}", row).over(target).by(row.x)
    for one, other in combinations(range(len(classes)), 2):
        m.template(f"tie_{one}_{other}", row).over(targets[one], targets[other])
        if evidence_on_pairs:
            m.template(f"pair_{one}_{other}", row).over(targets[one], targets[other]).by(row.x)
    return m.build()
