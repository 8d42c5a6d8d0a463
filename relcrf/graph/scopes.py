"""What inference works on: nodes, factors over them, and flat tables of log potentials. No templates, no weights.

`Scopes` say which nodes each factor is over; `Potentials` are the numbers. A method prepares itself once for the scopes
(an order, a tree) and then runs any potentials through them, as learning needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.kernels.factors import Factors


@dataclass(frozen=True, eq=False)
class Scopes:
    """Nodes, and factors over two or more of them. Flat tables are row-major in the order of a factor's nodes.

    Args:
        cardinality: number of states of each node, shape (n_nodes,), int32.
        start: where each factor's nodes begin in `node`, shape (n_factors + 1,), int64.
        node: distinct within a factor, shape (start[-1],), int32.
        agreement: shape (n_factors,), bool; a factor that is one number and no table: the log potential where its nodes
            are all in the same state, 0 elsewhere. Its nodes have the same cardinality. None where there is none.
    """

    cardinality: np.ndarray
    start: np.ndarray
    node: np.ndarray
    agreement: np.ndarray | None = field(default=None)

    def __post_init__(self) -> None:
        """Other integers, or arrays that are read-only or not contiguous, become what kernels are compiled for."""
        for name, kind in (("cardinality", np.int32), ("start", np.int64), ("node", np.int32)):
            object.__setattr__(self, name, np.require(getattr(self, name), kind, ("C", "W")))

    @property
    def n_nodes(self) -> int:
        return len(self.cardinality)

    @property
    def n_factors(self) -> int:
        return len(self.start) - 1

    @cached_property
    def arity(self) -> np.ndarray:
        """How many nodes each factor is over, shape (n_factors,), int64."""
        return np.diff(self.start)

    @cached_property
    def factor(self) -> np.ndarray:
        """The factor of each place of `node`, int64."""
        return np.repeat(np.arange(self.n_factors), self.arity)

    @cached_property
    def is_agreement(self) -> np.ndarray:
        """`agreement` where there is any, else False everywhere, shape (n_factors,)."""
        if self.agreement is None:
            return np.zeros(self.n_factors, dtype=np.bool_)
        return np.require(self.agreement, np.bool_, ("C", "W"))

    @cached_property
    def state_start(self) -> np.ndarray:
        """Where each node's states begin in flat node tables, shape (n_nodes + 1,), int64."""
        return offsets(self.cardinality)

    @cached_property
    def table_start(self) -> np.ndarray:
        """Where each factor's table begins in flat factor tables, shape (n_factors + 1,), int64."""
        if not self.n_factors:
            return np.zeros(1, dtype=np.int64)
        sizes = np.multiply.reduceat(self.cardinality[self.node].astype(np.int64), self.start[:-1])
        if self.agreement is not None:
            sizes = np.where(self.agreement, 1, sizes)
        return offsets(sizes)

    @cached_property
    def stride(self) -> np.ndarray:
        """How far one step of each place's state moves in the factor's table, shape of `node`, int64."""
        sizes = self.cardinality[self.node].astype(np.int64)
        out = np.ones(len(sizes), dtype=np.int64)
        last = self.start[1:] - 1
        for back in range(1, int(self.arity.max(initial=1))):
            place = (last - back)[self.arity > back]
            out[place] = out[place + 1] * sizes[place + 1]
        return out

    @cached_property
    def kernel_factors(self) -> Factors:
        """The scopes as kernels take them, with the places of each node."""
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
        """Return the same nodes with some of the factors, whose indices have shape (n,)."""
        agreement = None if self.agreement is None else self.agreement[factors]
        node = self.node[entries_of_runs(self.start, factors)]
        return Scopes(self.cardinality, offsets(self.arity[factors]), node, agreement)

    def expand_agreements(self, potentials: Potentials) -> tuple[Scopes, Potentials]:
        """The same with a table for every factor, for methods that have no way with agreements."""
        scopes = replace(self, agreement=None)
        if not self.is_agreement.any():
            return scopes, potentials
        tables = np.zeros(int(scopes.table_start[-1]))
        here, there = self._table_cells(scopes)
        tables[there] = potentials.factors[here]
        for factor, cells in self._agreement_cells(scopes):
            tables[cells] = potentials.factors[self.table_start[factor]][:, None]
        return scopes, Potentials(potentials.nodes, tables)

    def collapse_agreements(self, tables: np.ndarray) -> np.ndarray:
        """Flat marginals of the `full` scopes as ones of these: of an agreement, the probability that its nodes agree."""
        if not self.is_agreement.any():
            return tables
        scopes = replace(self, agreement=None)
        out = np.empty(int(self.table_start[-1]))
        here, there = self._table_cells(scopes)
        out[here] = tables[there]
        for factor, cells in self._agreement_cells(scopes):
            out[self.table_start[factor]] = tables[cells].sum(axis=1)
        return out

    def _table_cells(self, full: Scopes) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells of the factors that are no agreements, here and in the full tables."""
        whole = np.flatnonzero(~self.is_agreement)
        return entries_of_runs(self.table_start, whole), entries_of_runs(full.table_start, whole)

    def _agreement_cells(self, full: Scopes) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each cardinality, the agreements over such nodes, and in the full tables their cells where all agree."""
        agreements = np.flatnonzero(self.is_agreement)
        of_node = self.cardinality[self.node[self.start[agreements]]]
        step = np.add.reduceat(full.stride, full.start[:-1])
        out = []
        for k in np.unique(of_node):
            factor = agreements[of_node == k]
            out.append((factor, full.table_start[factor, None] + step[factor, None] * np.arange(k)))
        return out

    def cells(self, states: np.ndarray) -> np.ndarray:
        """Index into the flat factor tables of the cell that a joint state selects, shape (n_factors,), int64.

        Raises:
            ValueError: where a factor is an agreement, which has no cells.
        """
        if self.is_agreement.any():
            raise ValueError("an agreement has no cells")
        if not self.n_factors:
            return np.empty(0, dtype=np.int64)
        return np.asarray(self.table_start[:-1] + np.add.reduceat(states[self.node] * self.stride, self.start[:-1]))

    def score(self, potentials: Potentials, states: np.ndarray) -> float:
        """Sum of the log potentials at a joint state of shape (n_nodes,)."""
        total = float(potentials.nodes[self.state_start[:-1] + states].sum())
        if not self.n_factors:
            return total
        if self.agreement is None:
            return total + float(potentials.factors[self.cells(states)].sum())
        place = np.repeat(self.agreement, self.arity)
        cell = np.add.reduceat(np.where(place, 0, states[self.node] * self.stride), self.start[:-1])
        value = potentials.factors[self.table_start[:-1] + cell]
        low = np.minimum.reduceat(states[self.node], self.start[:-1])
        high = np.maximum.reduceat(states[self.node], self.start[:-1])
        return total + float(value[~self.agreement | (low == high)].sum())


class _Tables(NamedTuple):
    nodes: np.ndarray
    factors: np.ndarray


class Potentials(_Tables):
    """Log potentials, flat; -inf is what cannot be, +inf and nan may not stand here.

    Args:
        nodes: shape (state_start[-1],). factors: shape (table_start[-1],).
    """

    __slots__ = ()

    def __new__(cls, nodes: np.ndarray, factors: np.ndarray) -> Potentials:
        """Arrays that are read-only or not contiguous are copied, as those of other numbers: kernels take no such."""
        return super().__new__(cls, *(np.require(table, np.float64, ("C", "W")) for table in (nodes, factors)))

    def select_factors(self, scopes: Scopes, factors: np.ndarray) -> Potentials:
        """Return those of `scopes.with_factors(factors)`."""
        return Potentials(self.nodes, self.factors[entries_of_runs(scopes.table_start, factors)])

    def clamp(self, scopes: Scopes, states: np.ndarray) -> Potentials:
        """With some nodes clamped: -inf at all their other states.

        Args:
            states: shape (n_nodes,); -1 where a node stays free.
        """
        known = np.flatnonzero(states >= 0)
        nodes = self.nodes.copy()
        for k in np.unique(scopes.cardinality[known]):
            chosen = known[scopes.cardinality[known] == k]
            cells = scopes.state_start[chosen, None] + np.arange(k)
            nodes[cells[states[chosen, None] != np.arange(k)]] = -np.inf
        return Potentials(nodes, self.factors)
