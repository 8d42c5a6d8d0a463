"""The literals of candidate factors on the nodes of a reduced graph: their expectations, and what acts on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.graph.candidates import PairSpace, Side
from relcrf.graph.reduction import ReducedGraph
from relcrf.kernels import conditionals
from relcrf.kernels.threads import frozen


@dataclass(frozen=True)
class Literals:
    """Every literal of some spaces, on every node; `literal * n_nodes + node` is its number.

    Args:
        truths: of each literal in each state.
        state_start: of the nodes' states in flat tables, shape (n_nodes + 1,).
        nodes: of each literal those that some cell speaks of, ascending.
        sides: of each space; their `variable` is the number of a literal on a node.
        n_samples: of each space.
    """

    state_start: np.ndarray
    truths: tuple[np.ndarray, ...]
    nodes: tuple[np.ndarray, ...]
    sides: tuple[tuple[Side, Side], ...]
    n_samples: tuple[int, ...]

    @classmethod
    def of(cls, graph: ReducedGraph, spaces: tuple[PairSpace, ...]) -> Literals:
        """The literals of spaces all of whose variables are nodes."""
        node_of = np.full(graph.graph.n_variables, -1, dtype=np.int32)
        node_of[graph.variables] = np.arange(graph.n_nodes, dtype=np.int32)
        truths: list[np.ndarray] = []
        nodes: list[np.ndarray] = []
        sides = []
        for space in spaces:
            numbered = []
            for side in (space.first, space.second):
                at = node_of[side.variable]
                assert at.min(initial=0) >= 0, "a cell speaks of a variable that is no node"
                literal = next((k for k, truth in enumerate(truths) if np.array_equal(truth, side.truth)), len(truths))
                if literal == len(truths):
                    truths.append(side.truth)
                    nodes.append(np.empty(0, dtype=np.int32))
                nodes[literal] = np.union1d(nodes[literal], at)
                numbered.append(replace(side, variable=(at + literal * graph.n_nodes).astype(np.int32)))
            sides.append((numbered[0], numbered[1]))
        n_samples = tuple(space.n_samples for space in spaces)
        start, places = frozen(graph.state_start, np.int64), tuple(frozen(at, np.int32) for at in nodes)
        return cls(start, tuple(frozen(t, np.float64) for t in truths), places, tuple(sides), n_samples)

    @property
    def n_nodes(self) -> int:
        return len(self.state_start) - 1

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return len(self.truths) * self.n_nodes

    def expectations(self, tables: np.ndarray) -> np.ndarray:
        """Of each literal on each node under flat node tables of probabilities, or of anything else; shape (size,)."""
        out, tables = np.zeros((len(self.truths), self.n_nodes)), frozen(tables, np.float64)
        for row, nodes, truth in zip(out, self.nodes, self.truths, strict=True):
            conditionals.expect_literal(nodes, self.state_start, truth, tables, row)
        return out.ravel()

    def add(self, scores: np.ndarray, tables: np.ndarray) -> None:
        """Adds to flat node tables the scores of each literal where it holds."""
        rows = frozen(scores, np.float64).reshape(len(self.truths), self.n_nodes)
        for row, nodes, truth in zip(rows, self.nodes, self.truths, strict=True):
            conditionals.add_literal(nodes, self.state_start, truth, row, tables)
