"""A ground graph of numeric rows: each target of each row is a variable; factors are over targets and pairs of targets.

The graph equals the ground graph of the relational model of `build_relational_model`, but is built without tables.
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
    """The dimensions of a model in which each row of a numeric matrix is a separate instance.

    Args:
        cardinalities: numbers of classes of the targets, each at least 2.
        n_features: number of evidence features, without the intercept.
        evidence_on_pairs: whether factors over pairs have the evidence features in addition to the intercept.
    """

    cardinalities: tuple[int, ...]
    n_features: int
    evidence_on_pairs: bool

    def graph(self, evidence: np.ndarray) -> FactorGraph:
        """Return the ground graph of rows; with q targets, the index of a target's variable is `q * row + target`.

        The intercepts of single targets are in separate weight blocks without a penalty.

        Args:
            evidence: the features, shape (n, n_features).
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
            add(f"bias_{target}", [target], ones, 0.0)
            add(f"local_{target}", [target], values, None)
        for left, right in combinations(range(q), 2):
            add(f"interaction_{left}_{right}", [left, right], ones, None)
            if self.evidence_on_pairs:
                add(f"pair_{left}_{right}", [left, right], values, None)
        return FactorGraph(
            np.tile(np.array(self.cardinalities, dtype=np.int32), n), tuple(groups), WeightLayout(tuple(blocks))
        )

    def problem(self, evidence: np.ndarray, states: np.ndarray | None = None) -> Problem:
        """Return the problem of learning from rows, or of predicting the targets of rows.

        Args:
            evidence: the features, shape (n, n_features).
            states: the states of the targets, shape (n, q); None if they are query variables.
        """
        graph = self.graph(evidence)
        roles = np.full(graph.n_variables, Role.FREE, dtype=np.int8)
        observed = np.full(graph.n_variables, -1) if states is None else states.ravel()
        return Problem(graph, roles, observed.astype(np.int32), queries=np.ones(graph.n_variables, dtype=bool))


def build_relational_model(classes: Sequence[np.ndarray], *, evidence_on_pairs: bool) -> Model:
    """Return the relational model: an entity type `Row` with the vector `x` and the targets `t0`, `t1`, ...

    Args:
        classes: the values of each target.
        evidence_on_pairs: whether pairs of targets have templates with the evidence features.
    """
    m = ModelBuilder()
    domains = [m.domain(f"Class{k}", [str(value) for value in values]) for k, values in enumerate(classes)]
    row_type = m.entity("Row", x=vector, **{f"t{k}": predict(domain) for k, domain in enumerate(domains)})
    row = row_type("r")
    targets = [getattr(row, f"t{k}") for k in range(len(classes))]
    for k, target in enumerate(targets):
        m.template(f"bias_{k}", row).over(target).l2(0.0)
        m.template(f"local_{k}", row).over(target).by(row.x)
    for first, second in combinations(range(len(classes)), 2):
        m.template(f"interaction_{first}_{second}", row).over(targets[first], targets[second])
        if evidence_on_pairs:
            m.template(f"pair_{first}_{second}", row).over(targets[first], targets[second]).by(row.x)
    return m.build()
