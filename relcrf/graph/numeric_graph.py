"""The factors over numeric variables: a Gaussian distribution with a sparse precision matrix.

The numbers y of all numeric variables, given the evidence and the states of the discrete variables, are

    y = mean + exp(-log_precision / 2) * u,    u ~ N(0, Q^-1),
    u' Q u = sum_i u_i^2 + sum_n [d_n (u_a - u_b)^2 + s_n (u_a + u_b)^2]

`mean` and `log_precision` are sums over the factors with one numeric variable; the number n runs over the factors with two, a
and b, and log d_n and log s_n are sums over their features. All four are linear in the weights, and Q is positive definite for
all weights. Every Gaussian distribution whose precision matrix becomes diagonally dominant by scaling has this form; these
are the walk-summable (pairwise normalisable) ones, see Malioutov, Johnson & Willsky, Walk-sums and belief propagation in Gaussian
graphical models (2006). The variables u are *standardised deviations*: because Q multiplies them instead of y, the weights of
pairs change neither the means nor the meaning of other weights, and two attributes may have different units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix, vstack
from scipy.sparse.csgraph import connected_components

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Sparse, Tiled

PAIR_PATTERNS = 2
"""Number of weights of a feature in a factor over two numbers: those of the difference and of the sum."""


@dataclass(frozen=True, eq=False)
class NumericGraph:
    """The numeric variables and their factors; see the module.

    Args:
        variables: Numeric variables, ascending, shape (n,).
        attribute: Index of the attribute of each variable, shape (n,).
        mean, log_precision: Matrices whose product with the weights is the mean and the logarithm of the precision, without the
            numbers of the attribute; shape (n, n_weights).
        first, second: Positions in `variables` of the two variables of each pair, shape (n_pairs,), int32.
        difference, sum: Matrices whose product with the weights is log d and log s, shape (n_pairs, n_weights).
        group: Index of the factor group of each pair in the ground graph, shape (n_pairs,).
    """

    variables: np.ndarray
    attribute: np.ndarray
    mean: csr_matrix
    log_precision: csr_matrix
    first: np.ndarray
    second: np.ndarray
    difference: csr_matrix
    sum: csr_matrix
    group: np.ndarray

    @property
    def n_pairs(self) -> int:
        return len(self.first)

    @cached_property
    def component(self) -> np.ndarray:
        """The component of each variable, shape (n,); pairs connect the variables of a component."""
        n = len(self.variables)
        links = csr_matrix((np.ones(self.n_pairs), (self.first, self.second)), shape=(n, n))
        return np.asarray(connected_components(links, directed=False)[1])

    @cached_property
    def links(self) -> tuple[np.ndarray, np.ndarray]:
        """The links, i.e. the sets of pairs of the same two variables: their ends, and the link of each pair.

        The shapes are (n_links, 2), int32, with the lower end first, and (n_pairs,).
        """
        low, high = np.minimum(self.first, self.second), np.maximum(self.first, self.second)
        n = max(1, len(self.variables))
        keys, link = np.unique(low.astype(np.int64) * n + high, return_inverse=True)
        return np.stack(np.divmod(keys, n), axis=1).astype(np.int32), link

    def with_pairs(self, chosen: np.ndarray) -> NumericGraph:
        """Return the graph with the pairs in a mask, shape (n_pairs,), or in an array of indices."""
        return replace(
            self,
            first=self.first[chosen],
            second=self.second[chosen],
            difference=self.difference[chosen],
            sum=self.sum[chosen],
            group=self.group[chosen],
        )

    def without_pairs(self) -> NumericGraph:
        """Return the graph of independent numbers."""
        return self.with_pairs(np.empty(0, dtype=np.int64))

    def select(self, chosen: np.ndarray) -> NumericGraph:
        """Return the graph of the variables in a mask, shape (n,), without the pairs of other variables."""
        position = np.cumsum(chosen) - 1
        kept = self.with_pairs(chosen[self.first] & chosen[self.second])
        return kept._with_rows(np.flatnonzero(chosen), position[kept.first], position[kept.second])

    def separate_links(self) -> tuple[np.ndarray, NumericGraph]:
        """Return the graph in which each link is a component of its own, with copies of its two variables.

        Returns:
            The variable of each copy, as a position in `variables`, shape (2 * n_links,), and the graph of the copies.
        """
        ends, link = self.links
        is_reversed = self.first > self.second
        return ends.ravel(), self._with_rows(ends.ravel(), 2 * link + is_reversed, 2 * link + ~is_reversed)

    def _with_rows(self, rows: np.ndarray, first: np.ndarray, second: np.ndarray) -> NumericGraph:
        """Return the graph of some variables, given the ends of the pairs as positions in `rows`."""
        return replace(
            self,
            variables=self.variables[rows],
            attribute=self.attribute[rows],
            mean=self.mean[rows],
            log_precision=self.log_precision[rows],
            first=first.astype(np.int32),
            second=second.astype(np.int32),
        )


@dataclass(frozen=True, eq=False)
class NumericTargets:
    """The predicted numbers of a problem.

    Args:
        graph: The ground graph with the factors over numbers.
        values: Value of each variable, shape (n_variables,); nan if unknown, and for discrete variables.
        names: Name of each numeric attribute, in the order of `graph.numeric`.
    """

    graph: FactorGraph
    values: np.ndarray
    names: tuple[str, ...]

    @cached_property
    def groups(self) -> tuple[FactorGroup, ...]:
        """The groups of factors over numbers."""
        return tuple(group for group in self.graph.groups if numeric_slots(self.graph, group))

    @cached_property
    def mask(self) -> np.ndarray:
        """The mask of the numeric variables, shape (n_variables,), bool."""
        mask = np.zeros(self.graph.n_variables, dtype=bool)
        for start, stop in self.graph.numeric:
            mask[start:stop] = True
        return mask


def discrete_part(graph: FactorGraph) -> FactorGraph:
    """Return a ground graph without the factors over numbers."""
    if not graph.numeric:
        return graph
    groups = tuple(group for group in graph.groups if not numeric_slots(graph, group))
    return replace(graph, groups=groups, numeric=())


def numeric_graph(targets: NumericTargets, states: np.ndarray) -> NumericGraph:
    """Return the numeric variables with their factors; a factor over a number and itself is omitted.

    Args:
        states: State of each discrete variable, shape (n_variables,); factors with an unknown state, -1, are omitted.
    """
    graph, size = targets.graph, targets.graph.layout.size
    is_numeric = targets.mask
    variables = np.flatnonzero(is_numeric)
    attribute = np.repeat(np.arange(len(graph.numeric)), [stop - start for start, stop in graph.numeric])
    position = np.cumsum(is_numeric) - 1
    unary: list[tuple[np.ndarray, csr_matrix, csr_matrix]] = []
    pairs: list[tuple[np.ndarray, np.ndarray, csr_matrix, csr_matrix, np.ndarray]] = []
    for number, group in enumerate(graph.groups):
        slots = numeric_slots(graph, group)
        if not slots:
            continue
        start = graph.layout.starts[group.block]
        if len(slots) == 2:
            first, second = (position[group.scope[slot]].astype(np.int32) for slot in slots)
            linked = np.flatnonzero(first != second)
            columns = [_weighted(group, start, np.full(group.n_factors, k), size)[linked] for k in range(PAIR_PATTERNS)]
            pairs.append((first[linked], second[linked], *columns, np.full(len(linked), number)))
            continue
        joint = joint_states(group, states)
        known = np.flatnonzero(joint >= 0)
        of_mean, of_precision = (_weighted(group, start, joint + k, size)[known] for k in (0, group.n_joint_states))
        unary.append((position[group.scope[slots[0]]][known], of_mean, of_precision))
    empty = csr_matrix((0, size))
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(row for row, _, _ in unary)])
    spread = csr_matrix((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(len(variables), len(rows)))
    return NumericGraph(
        variables,
        attribute,
        csr_matrix(spread @ vstack([empty, *(mean for _, mean, _ in unary)], "csr")),
        csr_matrix(spread @ vstack([empty, *(precision for _, _, precision in unary)], "csr")),
        np.concatenate([np.empty(0, dtype=np.int32), *(pair[0] for pair in pairs)]),
        np.concatenate([np.empty(0, dtype=np.int32), *(pair[1] for pair in pairs)]),
        vstack([empty, *(pair[2] for pair in pairs)], "csr"),
        vstack([empty, *(pair[3] for pair in pairs)], "csr"),
        np.concatenate([np.empty(0, dtype=np.int64), *(pair[4] for pair in pairs)]),
    )


def lacks_states(targets: NumericTargets, states: np.ndarray) -> np.ndarray:
    """Return the mask of the numbers that depend on a discrete variable of unknown state, -1, shape (n_variables,), bool."""
    mask = np.zeros(len(states), dtype=bool)
    for group in targets.groups:
        slots = numeric_slots(targets.graph, group)
        if len(slots) == 1:
            mask[group.scope[slots[0]][joint_states(group, states) < 0]] = True
    return mask


def numeric_slots(graph: FactorGraph, group: FactorGroup) -> list[int]:
    """Return the positions of the numeric variables in the scopes of a group."""
    if not graph.numeric or not group.n_factors:
        return []
    first = [int(variables[0]) for variables in group.scope]
    return [k for k, v in enumerate(first) if any(start <= v < stop for start, stop in graph.numeric)]


def joint_states(group: FactorGroup, states: np.ndarray) -> np.ndarray:
    """Return the joint state of the discrete variables of each factor, shape (n_factors,); -1 if a state is unknown."""
    joint = np.zeros(group.n_factors, dtype=np.int64)
    known = np.ones(group.n_factors, dtype=bool)
    for variables, cardinality, stride in zip(group.scope, group.cardinalities, group.strides, strict=True):
        if cardinality > 1:
            joint += stride * states[variables]
            known &= states[variables] >= 0
    return np.where(known, joint, -1)


def _weighted(group: FactorGroup, start: int, pattern: np.ndarray, size: int) -> csr_matrix:
    """Return the features of a group in the columns of their weights, for one pattern of each factor."""
    row, feature, value = group.features.entries(np.arange(group.n_factors))
    column = start + feature.astype(np.int64) * group.n_patterns + pattern[row]
    return csr_matrix((value, (row, column)), shape=(group.n_factors, size))


def indicator_weights(targets: NumericTargets) -> np.ndarray:
    """Return the mask of the weights whose feature is 0 or 1 in all factors, shape (n_weights,), bool.

    Features that are summed over several bindings do not count: the number of bindings has no limit.
    """
    graph = targets.graph
    mask = np.zeros(graph.layout.size, dtype=bool)
    for group in targets.groups:
        features = group.features.tile if isinstance(group.features, Tiled) else group.features
        if isinstance(features, Sparse):
            continue
        _, feature, value = features.entries(np.arange(features.n_rows))
        is_other = np.bincount(feature, (value != 0.0) & (value != 1.0), minlength=features.n_features) > 0
        graph.layout.matrix(mask, group.block)[~is_other] = True
    return mask
