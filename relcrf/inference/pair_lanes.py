"""The memory layout of pairwise factors for `kernels.pair_flooding`: `LANES` factors of equal shape are interleaved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from relcrf.graph.scopes import Scopes, SharedPotentials
from relcrf.inference.disjoint_ranges import disjoint_ranges
from relcrf.kernels import pair_flooding, threads
from relcrf.kernels.distinct import distinct_rows
from relcrf.kernels.pair_flooding import LANES
from relcrf.kernels.threads import map_lanes, map_ranges

CELLS_PER_CHUNK = 1 << 16
"""Number of cells that are exponentiated at a time; this number of cells fits into the cache of a core."""

MIN_SHARING_PAIRS = 1 << 12
"""Minimum number of pairs with equal tables for which a separate group is formed; each group has a cost per round."""


@dataclass(frozen=True)
class PairLanes:
    """The layout of pairwise factors (pairs) of one shape, i.e. with the same cardinalities of the first and the second node.

    A block contains `LANES` pairs. The last block is padded with uniform pairs; the states of their dummy nodes come last.
    Threads share the blocks of a large graph, in ranges that do not depend on the number of threads.

    Args:
        factors: Factor indices, shape (n_pairs,).
        first, second: Cardinalities of the first and the second node.
        is_agreement: True if the pairs are agreement factors; see `Scopes`.
        state_starts: Offsets of the states of each pair's nodes, shape (n_blocks, 2, LANES), int32.
        steps: Bounds of consecutive ranges of blocks, for each step of a round; the ranges of a step have no node in common.
        shares_table: True if all pairs have equal tables; the number of pairs is then a multiple of `LANES`.
    """

    factors: np.ndarray
    first: int
    second: int
    is_agreement: bool
    state_starts: np.ndarray
    steps: list[list[int]]
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
            for members_of_group, shares_table in _divide_by_table(scopes, pairs, members):
                order, steps = _share_between_threads(
                    ends[members_of_group], 2 if is_agreement else int(first * second)
                )
                group = members_of_group[order]
                start = np.full((-(-len(group) // LANES) * LANES, 2), scopes.state_start[-1], dtype=np.int32)
                start[: len(group)] = scopes.state_start[ends[group]]
                layout = int(first), int(second), bool(is_agreement), _to_lanes(start), steps, shares_table
                out.append(cls(pairs[group], *layout))
        return out

    def tables(self, potentials: SharedPotentials) -> tuple[np.ndarray, float]:
        """Return potentials in the linear domain with maximum 1 per pair, shape (n_blocks, n_cells, LANES).

        An agreement factor has two cells, one for equal and one for different states. Pairs that share a table have a single
        block. The second result is the sum over pairs of the largest log potential.
        """
        n_cells = 2 if self.is_agreement else self.first * self.second
        out = np.ones((1 if self.shares_table else len(self.state_starts), n_cells, LANES))
        step, log_scale = max(CELLS_PER_CHUNK // (n_cells * LANES), 1), 0.0
        for block in range(0, len(out), step):
            factors = self.factors[block * LANES : min(block + step, len(out)) * LANES]
            rows = np.zeros((len(out[block : block + step]) * LANES, n_cells))
            logs, first = rows[: len(factors)], potentials.first_cells(factors)
            if self.is_agreement:
                weight = potentials.tables[first]
                logs[:] = np.column_stack((weight, np.zeros_like(weight)))
            else:
                logs[:] = potentials.tables[first[:, None] + np.arange(n_cells)]
            top = logs.max(axis=1, keepdims=True)
            log_scale += float(top.sum())
            logs -= top
            np.exp(rows, out=rows)
            out[block : block + step] = rows.reshape(-1, LANES, n_cells).transpose(0, 2, 1)
        return out, log_scale * (len(self.state_starts) if self.shares_table else 1)

    def uniform_messages(self) -> np.ndarray:
        """Return messages of 1, shape (n_blocks, first + second, LANES)."""
        return np.ones((len(self.state_starts), self.first + self.second, LANES))

    def load_messages(self, message: np.ndarray, messages: np.ndarray, start: np.ndarray) -> None:
        """Overwrite messages in lanes by flat linear messages of all factors; the inverse of `store_messages`.

        Args:
            start: Offset of the messages of each factor.
        """
        width = self.first + self.second
        step = max(CELLS_PER_CHUNK // (width * LANES), 1)
        for block in range(0, len(message), step):
            factors = self.factors[block * LANES : (block + step) * LANES]
            rows = np.ones((len(message[block : block + step]) * LANES, width))
            rows[: len(factors)] = messages[start[factors, None] + np.arange(width)]
            message[block : block + step] = rows.reshape(-1, LANES, width).transpose(0, 2, 1)

    def appearance(self, appearance: np.ndarray) -> np.ndarray:
        """Return the appearance probabilities in lanes, shape (n_blocks, LANES); shape (0, LANES) if all are 1."""
        if (appearance == 1.0).all():
            return np.empty((0, LANES))
        out = np.ones(len(self.state_starts) * LANES)
        out[: len(self.factors)] = appearance[self.factors]
        return out.reshape(-1, LANES)

    def store_messages(self, message: np.ndarray, messages: np.ndarray, start: np.ndarray) -> None:
        """Write messages in lanes to the flat messages of all factors; the inverse of `load_messages`."""
        width = self.first + self.second
        step = max(CELLS_PER_CHUNK // (width * LANES), 1)
        for block in range(0, len(message), step):
            factors = self.factors[block * LANES : (block + step) * LANES]
            rows = message[block : block + step].transpose(0, 2, 1).reshape(-1, width)
            messages[start[factors, None] + np.arange(width)] = rows[: len(factors)]


class InitialMessages(NamedTuple):
    """Messages from which propagation starts.

    Args:
        messages: The messages of each layout, as in `LaneMessages`; float32, which halves the memory. The products of messages
            keep their rounding errors, about 1e-7 per message.
        product: Product of the messages to each state, shape (n_states,).
    """

    messages: list[np.ndarray]
    product: np.ndarray


@dataclass(frozen=True)
class LaneMessages:
    """The tables and the linear messages of the pairs of one layout.

    Args:
        lanes: The layout.
        tables, log_scale: See `PairLanes.tables`.
        message: The messages; see `kernels.pair_flooding.flood`.
        settings: `maximum`, `damping` and `appearance` of this kernel.
    """

    lanes: PairLanes
    tables: np.ndarray
    log_scale: float
    message: np.ndarray
    settings: tuple[bool, float, np.ndarray]

    @property
    def _cost(self) -> int:
        return len(self.message) * int(self.tables[0].size)

    def _block_arguments(self, first: int, last: int) -> tuple[np.ndarray, ...]:
        """Return the tables, offsets of states and messages of some blocks."""
        tables = self.tables if self.lanes.shares_table else self.tables[first:last]
        return tables, self.lanes.state_starts[first:last], self.message[first:last]

    def flood(self, product: np.ndarray, next_product: np.ndarray) -> float:
        """Run one round; see `kernels.pair_flooding.flood`.

        If `next_product` is `product`, each block reads the new messages of the earlier blocks of its range and of earlier
        steps.
        """
        lanes, (maximum, damping, appearance) = self.lanes, self.settings
        in_place = next_product is product

        def flood_blocks(first: int, last: int) -> float:
            shape = lanes.first, lanes.second, lanes.is_agreement
            settings = maximum, damping, appearance[first:last]
            of_blocks = self._block_arguments(first, last)
            return float(pair_flooding.flood(*shape, *settings, *of_blocks, product, next_product, in_place))

        return max(max(map_ranges(bounds, flood_blocks)) for bounds in lanes.steps)

    def multiply_messages(self, product: np.ndarray) -> None:
        """Multiply all messages, to the power of the appearance probabilities, into the node potentials `product`."""
        lanes, appearance = self.lanes, self.settings[2]
        for row in range(lanes.first + lanes.second):
            side, state = (0, row) if row < lanes.first else (1, row - lanes.first)
            message = self.message[:, row]
            factor = message**appearance if len(appearance) else message
            np.multiply.at(product, lanes.state_starts[:, side] + state, factor)

    def sum_beliefs(self, potentials: SharedPotentials, product: np.ndarray, out: np.ndarray) -> float:
        """Add the beliefs of the pairs to flat tables `out`, in the layout of `potentials.tables`, unless `out` is empty.

        Returns:
            The sum over pairs of the logarithm of the sum of potential * cavities, for products of the nodes that are given.
        """
        lanes = self.lanes
        is_separate = potentials.table is None
        has_one_table = lanes.shares_table and not is_separate
        start = potentials.first_cells(lanes.factors[: 1 if has_one_table else None])

        def sum_blocks(first: int, last: int) -> tuple[float, np.ndarray]:
            sums = out if is_separate else np.zeros_like(out)
            pairs = slice(first * LANES, min(last * LANES, len(lanes.factors)))
            tables, starts, message = self._block_arguments(first, last)
            shape = lanes.first, lanes.second, lanes.is_agreement
            of_pairs = start[:0] if not len(out) else start if has_one_table else start[pairs]
            n_pairs = pairs.stop - pairs.start
            return (
                pair_flooding.sum_beliefs(*shape, tables, starts, n_pairs, of_pairs, message, product, sums),
                sums,
            )

        values, sums = zip(*map_lanes(len(self.message), self._cost, sum_blocks), strict=True)
        if not is_separate:
            for each in sums:
                out += each
        return self.log_scale + float(sum(values))


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


def _share_between_threads(ends: np.ndarray, n_cells: int) -> tuple[np.ndarray, list[list[int]]]:
    """Return the order of pairs in blocks, and the steps of a round; see `PairLanes`.

    Args:
        ends: Nodes of each pair, shape (n_pairs, 2).
        n_cells: Number of cells of each table.
    """
    n_blocks = -(-len(ends) // LANES)
    if len(ends) * n_cells <= threads.MIN_PARALLEL_COST:
        return np.arange(len(ends)), [[0, n_blocks]]
    order, steps = disjoint_ranges(ends, LANES)
    n_shared = steps[-1][-1] if steps else 0
    return order, steps + [[n_shared, n_blocks]] * (n_shared < n_blocks)


def _to_lanes(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows.reshape(-1, LANES, rows.shape[1]).transpose(0, 2, 1))
