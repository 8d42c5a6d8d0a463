"""The literals of candidate factors on the nodes of a reduced graph: their expectations, and what acts on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.graph.candidates import PairSpace, Side
from relcrf.graph.reduction import ReducedGraph


@dataclass(frozen=True)
class Literals:
    """Every literal of some spaces, on every node; `literal * n_nodes + node` is its number.

    Args:
        truths: of each literal in each state.
        nodes: of each literal those that some cell speaks of, ascending.
        cells: of each literal the flat states of these nodes, shape (n, n_states).
        sides: of each space; their `variable` is the number of a literal on a node.
        n_samples: of each space.
    """

    n_nodes: int
    truths: tuple[np.ndarray, ...]
    nodes: tuple[np.ndarray, ...]
    cells: tuple[np.ndarray, ...]
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
        cells = tuple(
            graph.state_start[at, None] + np.arange(len(truth)) for at, truth in zip(nodes, truths, strict=True)
        )
        n_samples = tuple(space.n_samples for space in spaces)
        return cls(graph.n_nodes, tuple(truths), tuple(nodes), cells, tuple(sides), n_samples)

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return len(self.truths) * self.n_nodes

    def expectations(self, tables: np.ndarray) -> np.ndarray:
        """Of each literal on each node under flat node tables of probabilities, or of anything else; shape (size,)."""
        out = np.zeros((len(self.truths), self.n_nodes))
        for row, nodes, cells, truth in zip(out, self.nodes, self.cells, self.truths, strict=True):
            row[nodes] = tables[cells] @ truth
        return out.ravel()

    def add(self, scores: np.ndarray, tables: np.ndarray) -> None:
        """Adds to flat node tables the scores of each literal where it holds."""
        for row, nodes, cells, truth in zip(
            scores.reshape(len(self.truths), self.n_nodes), self.nodes, self.cells, self.truths, strict=True
        ):
            tables[cells] += row[nodes, None] * truth
