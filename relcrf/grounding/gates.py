"""The features of gates in the making: a row for each factor of a group, from the very rows that the factors are made of.

The query of a template fetches its gate's features with its bindings, so that they stand in the order of the factors by
construction. Bindings over one variable add up to one factor, and so do the features of their gates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from relcrf.columns.growing import Storage
from relcrf.data.bound import Bound
from relcrf.data.dataset import quoted
from relcrf.data.names import bag_table
from relcrf.graph.features import AbstractFeatures, Dense, Ones, Sparse
from relcrf.grounding.groups import Rows, first_of_each
from relcrf.grounding.keys import KeyDictionary
from relcrf.grounding.lower import GateBag, LoweredGate


class AbstractGrowingGates(ABC):
    """The features of the gates of one group.

    Args:
        arity: of the factors.
    """

    def __init__(self, gate: LoweredGate, arity: int) -> None:
        self._gate, self._is_unary = gate, arity == 1

    def add(self, rows: Rows) -> None:
        """Adds the gates of bindings that a group of factors takes."""
        columns, count = rows.gates, len(rows)
        first = np.arange(count)
        if self._is_unary:
            (variable,) = rows.scope
            if self._gate.thing is not None:  # a row is one value of a bag; those of a thing are one binding
                pairs = np.column_stack((variable, columns[-1]))
                _, kept = np.unique(pairs, axis=0, return_index=True)
                variable, columns, count = variable[kept], [column[kept] for column in columns], len(kept)
            first = first_of_each(variable)
        self._append(columns, count, first)

    @abstractmethod
    def _append(self, columns: Sequence[np.ndarray], count: int, first: np.ndarray) -> None:
        """
        Args:
            columns: of the gate's outputs, shape (count,) each.
            first: the first binding of each factor, ascending.
        """

    @abstractmethod
    def finish(self) -> AbstractFeatures:
        """The features, shape (n_factors, n_features)."""


class _NumberGates(AbstractGrowingGates):
    """Columns of numbers; the constant 1 is not stored, unless bindings add up."""

    def __init__(self, gate: LoweredGate, arity: int, storage: Storage, name: str) -> None:
        super().__init__(gate, arity)
        self._width = len(gate.features)
        is_stored = self._width > 0 or self._is_unary
        self._values = storage.column(np.float64, max(self._width, 1), f"{name}.gates") if is_stored else None
        self._n_bindings, self._n_factors = 0, 0

    def _append(self, columns: Sequence[np.ndarray], count: int, first: np.ndarray) -> None:
        self._n_bindings += count
        self._n_factors += len(first)
        if self._values is not None:
            values = np.column_stack(columns[: self._width]) if self._width else np.ones((count, 1))
            self._values.append(np.add.reduceat(values, first, axis=0) if self._is_unary else values)

    def finish(self) -> AbstractFeatures:
        values = self._values.finish() if self._values is not None else None
        if values is None or (not self._width and self._n_bindings == self._n_factors):
            return Ones(self._n_factors)
        return Dense(values)


class _BagGates(AbstractGrowingGates):
    """Sparse rows: the bag of the thing that each binding is about."""

    def __init__(self, bound: Bound, gate: LoweredGate, bag: GateBag, arity: int, storage: Storage, name: str) -> None:
        super().__init__(gate, arity)
        self._bound, self._bag = bound, bag
        self._column = storage.column(np.int32, name=f"{name}.gates.column")
        self._values = storage.column(np.float32, name=f"{name}.gates.values")
        self._row_start = storage.column(np.int64, name=f"{name}.gates.row_start")
        self._row_start.append(np.zeros(1, dtype=np.int64))
        self._n_entries = 0

    def _append(self, columns: Sequence[np.ndarray], count: int, first: np.ndarray) -> None:
        things, place = np.unique(columns[-1], return_inverse=True)
        rows = self._bags_of(things).take(place)
        self._column.append(rows.column)
        self._values.append(rows.values)
        self._row_start.append(rows.row_start[np.append(first[1:], count)] + self._n_entries)
        self._n_entries += len(rows.column)

    def _bags_of(self, things: np.ndarray) -> Sparse:
        """The bags of some things, whose vids are ascending: a row for each."""
        table = quoted(bag_table(self._bag.owner, self._bag.attribute))
        with self._bound.cursor() as cursor:
            cursor.register("chosen", {"thing": things})
            query = f"SELECT vid, code, count FROM {table} JOIN chosen ON vid = thing ORDER BY vid, code"
            found = cursor.execute(query).fetchnumpy()
        row_start = np.append(0, np.searchsorted(found["vid"], things, side="right"))
        return Sparse(row_start, found["code"], found["count"], self._n_values)

    @property
    def _n_values(self) -> int:
        return len(self._bound.domains[self._bag.domain])

    def finish(self) -> AbstractFeatures:
        columns = [column.finish() for column in (self._row_start, self._column, self._values)]
        return Sparse(columns[0], columns[1], columns[2], self._n_values)


def growing_gates(bound: Bound, gate: LoweredGate, arity: int, storage: Storage, name: str) -> AbstractGrowingGates:
    """The gates of a group that is to grow.

    Args:
        arity: of the group's factors.
        name: of the files.
    """
    if gate.bag is not None:
        return _BagGates(bound, gate, gate.bag, arity, storage, name)
    return _NumberGates(gate, arity, storage, name)


def gate_meaning(bound: Bound, gate: LoweredGate) -> tuple[tuple[str, ...], KeyDictionary | None]:
    """How the features of a gate are spelt; and the values of its bag, each of which has a weight, None where it has none."""
    if gate.bag is None:
        return gate.feature_names or ("1",), None
    return (gate.bag.spelt,), KeyDictionary(gate.bag.domain, tuple((v,) for v in bound.domains[gate.bag.domain]))
