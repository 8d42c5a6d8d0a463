"""Aggregates of other entities by sparse matrices: all aggregates over the same path of links share its pairs of entities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from relcrf.model import expressions as e
from relcrf.model.typing import NameScope


@dataclass(frozen=True)
class PairAggregate:
    """An aggregate of the values of other entities, such as `mean { x.age where Link(c, d) and Link(x, d) and x.age < 90 }`.

    Args:
        node: the aggregate; its function is `count`, `sum`, `mean`, `min` or `max`.
        path: an aggregate that counts the other entities; its condition is the part without `condition`.
        other: the name of the other entities.
        term: the value of an entity; None for `count`.
        condition: the part of the condition that only depends on the other entity; None if there is no such part.
    """

    node: e.Aggregate
    path: e.Aggregate
    other: str
    term: e.Expression | None
    condition: e.Expression | None

    @classmethod
    def from_node(cls, node: e.Expression, name: str, scope: NameScope) -> PairAggregate | None:
        """Return the parts of an aggregate; None if it is not of this form.

        Args:
            name: the outer name.
            scope: the scope of `node`.
        """
        if not isinstance(node, e.Aggregate) or len(node.terms) != 1:
            return None
        (term,) = node.terms
        if node.function == "count" and not isinstance(term, e.Name):
            return None
        names, inner = e.names_in(term), scope.aggregate_scope(node)
        if len(names) != 1 or name in names or scope.spec.entity(inner.type_names.get(min(names), "")) is None:
            return None
        (other,) = names
        parts = e.conjuncts(node.where)
        links = [part for part in parts if e.names_in(part) != names]
        if not any(name in e.names_in(part) for part in links):
            return None
        path = e.Aggregate("count", (e.Name(other),), e.conjunction(links))
        if scope.aggregate_scope(path).type_names.get(other) != inner.type_names[other]:
            return None
        own = [part for part in parts if part not in links]
        value = None if node.function == "count" else term
        return cls(node, path, other, value, e.optional_conjunction(own))

    def aggregate(self, pairs: csr_array, values: np.ndarray) -> np.ndarray:
        """Return the aggregate for each row of `pairs`, shape (n_rows,); NaN, or 0 for counts and sums, without known values.

        Args:
            pairs: the number of times that each value counts, shape (n_rows, n_values).
            values: for `count`, 1 for the entities that satisfy the condition and 0 for the others; otherwise the values of
                the entities, NaN if they are unknown or do not satisfy the condition; shape (n_values,).
        """
        if self.node.function == "count":
            return np.asarray(csr_array((np.ones(pairs.nnz), pairs.indices, pairs.indptr), pairs.shape) @ values)
        n, known = pairs.shape[0], ~np.isnan(values[pairs.indices])
        row, weight = np.repeat(np.arange(n), np.diff(pairs.indptr))[known], pairs.data[known]
        each = values[pairs.indices[known]]
        count = np.bincount(row, weight, minlength=n)
        if self.node.function in ("sum", "mean"):
            total = np.bincount(row, weight * each, minlength=n)
            out = total / np.maximum(count, 1.0) if self.node.function == "mean" else total
        else:
            out = np.full(n, np.inf if self.node.function == "min" else -np.inf)
            (np.minimum if self.node.function == "min" else np.maximum).at(out, row, each)
        return np.where((count > 0) | (self.node.function == "sum"), out, np.nan)
