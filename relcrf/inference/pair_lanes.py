"""The memory layout of pairwise factors for `kernels.pair_flooding`: `LANES` factors of equal shape are interleaved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.kernels import pair_flooding
from relcrf.kernels.distinct import distinct_rows
from relcrf.kernels.pair_flooding import LANES
from relcrf.kernels.threads import map_lanes

CELLS_PER_CHUNK = 1 << 16
"""Number of cells that are exponentiated at a time; this number of cells fits into the cache of a core."""

MIN_SHARING_PAIRS = 1 << 12
"""Minimum number of pairs with equal tables for which a separate group is formed; each group has a cost per round."""


@dataclass(frozen=True)
class PairLanes:
    """The layout of pairwise factors (pairs) of one shape, i.e. with the same cardinalities of the first and the second node.

    A block contains `LANES` pairs. The last block is padded with uniform pairs; the states of their dummy nodes come last.

    Args:
        factors: Factor indices, shape (n_pairs,).
        first, second: Cardinalities of the first and the second node.
        is_agreement: True if the pairs are agreement factors; see `Scopes`.
        state_starts: Offsets of the states of each pair's nodes, shape (n_blocks, 2, LANES).
        shares_table: True if all pairs have equal tables; the number of pairs is then a multiple of `LANES`.
    """

    factors: np.ndarray
    first: int
    second: int
    is_agreement: bool
    state_starts: np.ndarray
    shares_table: bool = False

    @classmethod
    def from_scopes(cls, scopes: Scopes) -> list[PairLanes]:
        """Return the layouts of all pairs of the scopes: one for each large class of equal tables, one per shape for the rest."""
        pairs = np.flatnonzero(scopes.arity == 2)
        ends = scopes.node[scopes.start[pairs, None] + np.arange(2)]
        shape = np.column_stack((scopes.cardinality[ends], scopes.is_agreement[pairs]))
        out = []
        for first, second, is_agreement in distinct_rows(shape):
            members = np.flatnonzero((shape == (first, second, is_agreement)).all(axis=1))
            for group, shares_table in _divide_by_table(scopes, pairs, members):
                start = np.full((-(-len(group) // LANES) * LANES, 2), scopes.state_start[-1])
                start[: len(group)] = scopes.state_start[ends[group]]
                layout = int(first), int(second), bool(is_agreement), _to_lanes(start), shares_table
                out.append(cls(pairs[group], *layout))
        return out

    def tables(self, scopes: Scopes, potentials: Potentials) -> np.ndarray:
        """Return potentials in the linear domain with maximum 1 per pair, shape (n_blocks, n_cells, LANES).

        An agreement factor has two cells, one for equal and one for different states. Pairs that share a table have a single
        block.
        """
        n_cells = 2 if self.is_agreement else self.first * self.second
        out = np.ones((1 if self.shares_table else len(self.state_starts), n_cells, LANES))
        step = max(CELLS_PER_CHUNK // (n_cells * LANES), 1)
        for block in range(0, len(out), step):
            factors = self.factors[block * LANES : min(block + step, len(out)) * LANES]
            rows = np.zeros((len(out[block : block + step]) * LANES, n_cells))
            logs = rows[: len(factors)]
            if self.is_agreement:
                weight = potentials.factors[scopes.table_start[factors]]
                logs[:] = np.minimum(np.column_stack((weight, -weight)), 0.0)
            else:
                logs[:] = potentials.factors[scopes.table_start[factors, None] + np.arange(n_cells)]
                logs -= logs.max(axis=1, keepdims=True)
            np.exp(rows, out=rows)
            out[block : block + step] = rows.reshape(-1, LANES, n_cells).transpose(0, 2, 1)
        return out

    def to_lanes(self, messages: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return linear messages in lanes; the inverse is `store_messages`.

        Args:
            messages: Flat linear messages of all factors.
            start: Offset of the messages of each factor.
        """
        width = self.first + self.second
        out = np.ones((len(self.state_starts), width, LANES))
        step = max(CELLS_PER_CHUNK // (width * LANES), 1)
        for block in range(0, len(out), step):
            factors = self.factors[block * LANES : (block + step) * LANES]
            rows = np.ones((len(out[block : block + step]) * LANES, width))
            rows[: len(factors)] = messages[start[factors, None] + np.arange(width)]
            out[block : block + step] = rows.reshape(-1, LANES, width).transpose(0, 2, 1)
        return out

    def appearance(self, appearance: np.ndarray) -> np.ndarray:
        """Return the appearance probabilities in lanes, shape (n_blocks, LANES); shape (0, LANES) if all are 1."""
        if (appearance == 1.0).all():
            return np.empty((0, LANES))
        out = np.ones(len(self.state_starts) * LANES)
        out[: len(self.factors)] = appearance[self.factors]
        return out.reshape(-1, LANES)

    def flood(
        self,
        tables: np.ndarray,
        message: np.ndarray,
        product: np.ndarray,
        next_product: np.ndarray,
        settings: tuple[bool, float, np.ndarray],
    ) -> float:
        """Run one round; see `kernels.pair_flooding.flood`. `settings` are its `maximum`, `damping` and `appearance`.

        Several threads share the blocks of a large graph, in ranges that do not depend on the number of threads.
        """
        maximum, damping, appearance = settings

        def flood_blocks(first: int, last: int) -> tuple[float, np.ndarray]:
            # The first range multiplies its messages into the result; the others have products of their own.
            out = next_product if first == 0 else np.ones_like(next_product)
            ratio = pair_flooding.flood(
                self.first,
                self.second,
                self.is_agreement,
                maximum,
                damping,
                appearance[first:last],
                tables if self.shares_table else tables[first:last],
                self.state_starts[first:last],
                message[first:last],
                product,
                out,
            )
            return float(ratio), out

        cost = len(message) * tables[0].size
        ratios, products = zip(*map_lanes(len(message), cost, flood_blocks), strict=True)

        def multiply(first: int, last: int) -> None:
            for each in products[1:]:
                next_product[first:last] *= each[first:last]

        if len(products) > 1:
            map_lanes(len(next_product), cost, multiply)
        return float(max(ratios))

    def store_messages(self, message: np.ndarray, messages: np.ndarray, start: np.ndarray) -> None:
        """Write messages in lanes to the flat messages of all factors; the inverse of `to_lanes`."""
        width = self.first + self.second
        step = max(CELLS_PER_CHUNK // (width * LANES), 1)
        for block in range(0, len(message), step):
            factors = self.factors[block * LANES : (block + step) * LANES]
            rows = message[block : block + step].transpose(0, 2, 1).reshape(-1, width)
            messages[start[factors, None] + np.arange(width)] = rows[: len(factors)]


def _divide_by_table(scopes: Scopes, pairs: np.ndarray, members: np.ndarray) -> list[tuple[np.ndarray, bool]]:
    """Divide pairs of one shape into groups that share a table and the rest; return each group, and whether it shares one.

    Args:
        pairs: Factor indices of all pairs.
        members: Indices of the pairs of the shape in `pairs`.
    """
    if scopes.table_class is None:
        return [(members, False)]
    table_class = scopes.table_class[pairs[members]]
    order = np.argsort(table_class, kind="stable")
    shared, rest = [], []
    for group in np.split(members[order], np.flatnonzero(np.diff(table_class[order])) + 1):
        n_shared = len(group) // LANES * LANES if len(group) >= MIN_SHARING_PAIRS else 0
        shared.append(group[:n_shared])
        rest.append(group[n_shared:])
    remaining = np.sort(np.concatenate(rest))
    return [(group, True) for group in shared if len(group)] + ([(remaining, False)] if len(remaining) else [])


def _to_lanes(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows.reshape(-1, LANES, rows.shape[1]).transpose(0, 2, 1))
