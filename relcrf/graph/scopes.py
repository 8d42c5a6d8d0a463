"""The input of inference: nodes, factor scopes and flat tables of log potentials, without templates or weights.

`Scopes` contain the nodes of each factor, and `Potentials` contain the log potentials. Learning changes only the
potentials. An inference method therefore builds its elimination order or tree once for the scopes and reuses it for all
potentials.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.kernels.factors import Factors

MAX_TABLE_CELLS = 1 << 27
"""Maximum number of cells of the tables of all factors together; 2**27 cells take a gigabyte."""


class TableSizeError(ValueError):
    """The error that the tables of all factors would have more than `MAX_TABLE_CELLS` cells."""


def check_table_cells(n_cells: int) -> None:
    """Raise TableSizeError if tables with the given number of cells would be too large."""
    if n_cells > MAX_TABLE_CELLS:
        raise TableSizeError(f"factor tables of {n_cells:,} cells, more than {MAX_TABLE_CELLS:,} cells")


@dataclass(frozen=True, eq=False)
class Scopes:
    """Nodes, and the scopes of factors over two or more nodes, in CSR form.

    A *slot* is an entry of `node`: one node in the scope of one factor. A factor's table is row-major in the order of
    the slots. The *flat* tables are the concatenated tables of all factors, or of all nodes.

    Args:
        cardinality: Number of states of each node, shape (n_nodes,), int32.
        start: Offset of each factor's first slot, shape (n_factors + 1,), int64.
        node: Node of each slot, shape (start[-1],), int32. The nodes of a factor are distinct.
        agreement: Mask of agreement (Potts) factors, shape (n_factors,), bool; None if there are none. The table of an
            agreement is a single number: the log potential if all its nodes have the same state. Otherwise the log
            potential is 0. All nodes of an agreement have the same cardinality.
        table_class: Class of each factor, shape (n_factors,); the tables of a class are equal for all potentials for which
            the scopes are used. None if this is not known.
    """

    cardinality: np.ndarray
    start: np.ndarray
    node: np.ndarray
    agreement: np.ndarray | None = field(default=None)
    table_class: np.ndarray | None = field(default=None)

    def __post_init__(self) -> None:
        """Convert arrays to the types that kernels are compiled for: contiguous, writeable, int32 or int64."""
        for name, dtype in (("cardinality", np.int32), ("start", np.int64), ("node", np.int32)):
            object.__setattr__(self, name, np.require(getattr(self, name), dtype, ("C", "W")))

    @property
    def n_nodes(self) -> int:
        return len(self.cardinality)

    @property
    def n_factors(self) -> int:
        return len(self.start) - 1

    @cached_property
    def arity(self) -> np.ndarray:
        """Return the number of nodes of each factor, shape (n_factors,), int64."""
        return np.diff(self.start)

    @cached_property
    def factor(self) -> np.ndarray:
        """Return the index of the factor that each slot belongs to, int64."""
        return np.repeat(np.arange(self.n_factors), self.arity)

    @cached_property
    def is_agreement(self) -> np.ndarray:
        """Return `agreement` or, if it is None, an array of False, shape (n_factors,)."""
        if self.agreement is None:
            return np.zeros(self.n_factors, dtype=np.bool_)
        return np.require(self.agreement, np.bool_, ("C", "W"))

    @cached_property
    def state_start(self) -> np.ndarray:
        """Return the offset of each node's states in flat node tables, shape (n_nodes + 1,), int64."""
        return offsets(self.cardinality)

    @cached_property
    def table_start(self) -> np.ndarray:
        """Return the offset of each factor's table in flat factor tables, shape (n_factors + 1,), int64."""
        if not self.n_factors:
            return np.zeros(1, dtype=np.int64)
        sizes = np.multiply.reduceat(self.cardinality[self.node].astype(np.int64), self.start[:-1])
        if self.agreement is not None:
            sizes = np.where(self.agreement, 1, sizes)
        return offsets(sizes)

    @cached_property
    def stride(self) -> np.ndarray:
        """Return the stride, in the factor's table, of the state of each slot's node; shape of `node`, int64."""
        sizes = self.cardinality[self.node].astype(np.int64)
        out = np.ones(len(sizes), dtype=np.int64)
        last = self.start[1:] - 1
        for back in range(1, int(self.arity.max(initial=1))):
            slot = (last - back)[self.arity > back]
            out[slot] = out[slot + 1] * sizes[slot + 1]
        return out

    @cached_property
    def kernel_factors(self) -> Factors:
        """Return the scopes in the form that kernels accept, including the slots of each node."""
        return Factors(
            cardinality=self.cardinality,
            state_start=self.state_start,
            start=self.start,
            node=self.node,
            stride=self.stride,
            table_start=self.table_start,
            agreement=self.is_agreement,
            factor=self.factor,
            touch_start=offsets(np.bincount(self.node, minlength=self.n_nodes)),
            touch=np.argsort(self.node, kind="stable"),
        )

    def with_factors(self, factors: np.ndarray) -> Scopes:
        """Return scopes with all nodes and only the factors at the given indices, shape (n,)."""
        agreement = None if self.agreement is None else self.agreement[factors]
        table_class = None if self.table_class is None else self.table_class[factors]
        node = self.node[entries_of_runs(self.start, factors)]
        return Scopes(self.cardinality, offsets(self.arity[factors]), node, agreement, table_class)

    def expand_agreements(self, potentials: Potentials) -> tuple[Scopes, Potentials]:
        """Return equivalent scopes and potentials with full tables for all factors, including agreements."""
        scopes = replace(self, agreement=None)
        if not self.is_agreement.any():
            return scopes, potentials
        tables = np.zeros(int(scopes.table_start[-1]))
        compact, full = self._table_cells(scopes)
        tables[full] = potentials.factors[compact]
        for factor, cells in self._agreement_cells(scopes):
            tables[cells] = potentials.factors[self.table_start[factor]][:, None]
        return scopes, Potentials(potentials.nodes, tables)

    def collapse_agreements(self, tables: np.ndarray) -> np.ndarray:
        """Convert flat factor marginals of the expanded scopes (see `expand_agreements`) to the tables of these scopes.

        The marginal of an agreement is the probability that its nodes are in the same state.
        """
        if not self.is_agreement.any():
            return tables
        scopes = replace(self, agreement=None)
        out = np.empty(int(self.table_start[-1]))
        compact, full = self._table_cells(scopes)
        out[compact] = tables[full]
        for factor, cells in self._agreement_cells(scopes):
            out[self.table_start[factor]] = tables[cells].sum(axis=1)
        return out

    def _table_cells(self, full: Scopes) -> tuple[np.ndarray, np.ndarray]:
        """Return the table entries of non-agreements: their indices in the flat tables of `self` and of `full`."""
        factors = np.flatnonzero(~self.is_agreement)
        return entries_of_runs(self.table_start, factors), entries_of_runs(full.table_start, factors)

    def _agreement_cells(self, full: Scopes) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return, for each cardinality of nodes, the agreements and the diagonal entries of their full tables."""
        agreements = np.flatnonzero(self.is_agreement)
        n_states = self.cardinality[self.node[self.start[agreements]]]
        step = np.add.reduceat(full.stride, full.start[:-1])
        out = []
        for k in np.unique(n_states):
            factor = agreements[n_states == k]
            out.append((factor, full.table_start[factor, None] + step[factor, None] * np.arange(k)))
        return out

    def cells(self, states: np.ndarray) -> np.ndarray:
        """Return, for each factor, the index of a joint state's entry in the flat tables, shape (n_factors,), int64.

        Raises:
            ValueError: If a factor is an agreement, because an agreement has no entry per joint state.
        """
        if self.is_agreement.any():
            raise ValueError("an agreement does not have cells")
        if not self.n_factors:
            return np.empty(0, dtype=np.int64)
        return np.asarray(self.table_start[:-1] + np.add.reduceat(states[self.node] * self.stride, self.start[:-1]))

    def score(self, potentials: Potentials, states: np.ndarray) -> float:
        """Return the sum of the log potentials of a joint state; `states` has shape (n_nodes,)."""
        return SharedPotentials.from_potentials(self, potentials).score(self, states)


class _Tables(NamedTuple):
    nodes: np.ndarray
    factors: np.ndarray


class Potentials(_Tables):
    """Flat log potentials. The log potential of an impossible state is -inf; +inf and nan are not allowed.

    Args:
        nodes: Concatenated tables of the nodes, shape (state_start[-1],).
        factors: Concatenated tables of the factors, shape (table_start[-1],).
    """

    __slots__ = ()

    def __new__(cls, nodes: np.ndarray, factors: np.ndarray) -> Potentials:
        """Convert arrays to the type that kernels are compiled for: float64, contiguous, writeable."""
        return super().__new__(cls, *(np.require(table, np.float64, ("C", "W")) for table in (nodes, factors)))

    def select_factors(self, scopes: Scopes, factors: np.ndarray) -> Potentials:
        """Return the potentials of `scopes.with_factors(factors)`."""
        return Potentials(self.nodes, self.factors[entries_of_runs(scopes.table_start, factors)])

    def clamp(self, scopes: Scopes, states: np.ndarray) -> Potentials:
        """Return potentials with some nodes clamped: every other state of a clamped node has log potential -inf.

        Args:
            states: Clamped states, shape (n_nodes,); -1 for a free node.
        """
        clamped = np.flatnonzero(states >= 0)
        nodes = self.nodes.copy()
        for k in np.unique(scopes.cardinality[clamped]):
            selected = clamped[scopes.cardinality[clamped] == k]
            cells = scopes.state_start[selected, None] + np.arange(k)
            nodes[cells[states[selected, None] != np.arange(k)]] = -np.inf
        return Potentials(nodes, self.factors)


@dataclass(frozen=True, eq=False)
class SharedPotentials:
    """Log potentials with one table for all factors that have equal tables.

    Args:
        nodes: Flat node tables; see `Potentials`.
        tables: Concatenated distinct factor tables, shape (table_start[-1],).
        table_start: Offset of each distinct table, shape (n_tables + 1,).
        table: Index of the table of each factor, shape (n_factors,); None if each factor has a separate table.
    """

    nodes: np.ndarray
    tables: np.ndarray
    table_start: np.ndarray
    table: np.ndarray | None = None

    @classmethod
    def from_potentials(cls, scopes: Scopes, potentials: Potentials) -> SharedPotentials:
        """Return potentials with a separate table for each factor; the arrays are not copied."""
        return cls(potentials.nodes, potentials.factors, scopes.table_start)

    def first_cells(self, factors: np.ndarray) -> np.ndarray:
        """Return the offset of the table of each given factor, shape (n,)."""
        return np.asarray(self.table_start[factors if self.table is None else self.table[factors]])

    def kernel_factors(self, scopes: Scopes) -> Factors:
        """Return the factors of the scopes with offsets in `tables`; the offset of the next table is not the table's end."""
        found = scopes.kernel_factors
        return found if self.table is None else found._replace(table_start=self.table_start[self.table])

    def score(self, scopes: Scopes, states: np.ndarray) -> float:
        """Return the sum of the log potentials of a joint state; `states` has shape (n_nodes,)."""
        total = float(self.nodes[scopes.state_start[:-1] + states].sum())
        if not scopes.n_factors:
            return total
        in_agreement = np.repeat(scopes.is_agreement, scopes.arity)
        cell = np.add.reduceat(np.where(in_agreement, 0, states[scopes.node] * scopes.stride), scopes.start[:-1])
        value = self.tables[self.spread(self.table_start[:-1]) + cell]
        if scopes.agreement is None:
            return total + float(value.sum())
        low = np.minimum.reduceat(states[scopes.node], scopes.start[:-1])
        high = np.maximum.reduceat(states[scopes.node], scopes.start[:-1])
        return total + float(value[~scopes.agreement | (low == high)].sum())

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Return the values of all factors, given the values of the distinct tables."""
        return values if self.table is None else np.asarray(values[self.table])

    def expand(self) -> Potentials:
        """Return potentials with a table for each factor.

        Raises:
            TableSizeError: If factors share tables, and separate tables would be too large.
        """
        if self.table is None:
            return Potentials(self.nodes, self.tables)
        check_table_cells(int(np.diff(self.table_start)[self.table].sum()))
        return Potentials(self.nodes, self.tables[entries_of_runs(self.table_start, self.table)])

    def sum_tables(self, factors: np.ndarray) -> np.ndarray:
        """Return the sums of flat factor tables over the factors with the same table; the adjoint of `expand`."""
        if self.table is None:
            return factors
        return np.bincount(entries_of_runs(self.table_start, self.table), factors, len(self.tables))

    def clamp(self, scopes: Scopes, states: np.ndarray) -> SharedPotentials:
        """Return potentials with some nodes clamped; see `Potentials.clamp`."""
        return replace(self, nodes=Potentials(self.nodes, np.empty(0)).clamp(scopes, states).nodes)
