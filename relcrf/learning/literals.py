"""Literals (conditions on the states of variables) of candidate factors, and expectations and scores of literals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.triples import PairOrTripleSpace
from relcrf.kernels import conditionals
from relcrf.kernels.distinct import distinct
from relcrf.kernels.threads import freeze


@dataclass(frozen=True)
class Literals:
    """All literals of some candidate spaces: each condition on each node of a graph and on each external variable.

    Each side of a candidate space is a table whose cells contain variables, with the same condition on each variable
    (see `graph/candidates.py`). External variables are not nodes of the graph; their indices follow those of the nodes.
    The literal of condition k and variable v has the index `k * n_variables + v`.

    Args:
        state_start: Offset of each node's first state in *flat tables*, which concatenate one number per state over all
            nodes; shape (n_nodes + 1,).
        truth_tables: For each condition, the truth value in each state of a variable.
        nodes: For each condition, the nodes in cells of the sides with this condition, ascending.
        external: For each condition, the external variables in these cells, as indices among the external variables,
            ascending.
        n_variables: The number of nodes and external variables.
        spaces: The spaces; the `variable` arrays of the sides contain indices of literals.
    """

    state_start: np.ndarray
    truth_tables: tuple[np.ndarray, ...]
    nodes: tuple[np.ndarray, ...]
    external: tuple[np.ndarray, ...]
    n_variables: int
    spaces: tuple[PairOrTripleSpace, ...]

    @classmethod
    def build(cls, graph: ReducedGraph, spaces: tuple[PairOrTripleSpace, ...], external: np.ndarray) -> Literals:
        """Return the literals of spaces; each variable is a node or an element of `external`, shape (n_external,)."""
        index_of = np.full(graph.graph.n_variables, -1, dtype=np.int32)
        variables = np.concatenate((graph.variables, external))
        index_of[variables] = np.arange(len(variables), dtype=np.int32)
        truth_tables: list[np.ndarray] = []
        used_variables: list[np.ndarray] = []
        numbered_spaces = []
        for space in spaces:
            numbered = []
            for side in space.sides:
                indices = index_of[side.variable]
                assert indices.min(initial=0) >= 0, "a cell refers to an unknown variable"
                literal = next(
                    (k for k, truth in enumerate(truth_tables) if np.array_equal(truth, side.truth)), len(truth_tables)
                )
                if literal == len(truth_tables):
                    truth_tables.append(side.truth)
                    used_variables.append(np.empty(0, dtype=np.int32))
                used_variables[literal] = distinct(np.concatenate((used_variables[literal], distinct(indices))))
                numbered.append(replace(side, variable=(indices + literal * len(variables)).astype(np.int32)))
            numbered_spaces.append(space.with_sides(numbered))
        return cls(
            freeze(graph.state_start, np.int64),
            tuple(freeze(truth, np.float64) for truth in truth_tables),
            tuple(freeze(indices[indices < graph.n_nodes], np.int32) for indices in used_variables),
            tuple(freeze(indices[indices >= graph.n_nodes] - graph.n_nodes, np.int32) for indices in used_variables),
            len(variables),
            tuple(numbered_spaces),
        )

    def of_nodes(self, cardinality: np.ndarray, nodes: Sequence[np.ndarray]) -> Literals:
        """Return the literals of some nodes, which are numbered from 0; without external variables and spaces.

        Args:
            cardinality: Number of states of each of these nodes.
            nodes: For each condition, the nodes in cells of the sides with this condition, ascending.
        """
        own = tuple(freeze(each, np.int32) for each in nodes)
        nothing = tuple(each[:0] for each in self.external)
        return Literals(freeze(offsets(cardinality), np.int64), self.truth_tables, own, nothing, len(cardinality), ())

    @property
    def n_nodes(self) -> int:
        return len(self.state_start) - 1

    @property
    def size(self) -> int:
        """Return the number of literals of all variables."""
        return len(self.truth_tables) * self.n_variables

    def expectations(self, tables: np.ndarray) -> np.ndarray:
        """Return the expectation of each literal under flat node tables, or 0 for external variables; shape (size,).

        The tables may contain values other than probabilities, for example residuals.
        """
        out, tables = np.zeros((len(self.truth_tables), self.n_variables)), freeze(tables, np.float64)
        for row, nodes, truth in zip(out, self.nodes, self.truth_tables, strict=True):
            conditionals.compute_expectations(nodes, self.state_start, truth, tables, row)
        return out.ravel()

    def external_expectations(self, state_start: np.ndarray, tables: np.ndarray) -> np.ndarray:
        """Return `expectations` for the flat tables of the external variables; 0 for literals of nodes."""
        out, start = np.zeros((len(self.truth_tables), self.n_variables)), freeze(state_start, np.int64)
        for row, variables, truth in zip(out, self.external, self.truth_tables, strict=True):
            conditionals.compute_expectations(variables, start, truth, freeze(tables, np.float64), row[self.n_nodes :])
        return out.ravel()

    def add_scores(self, scores: np.ndarray, tables: np.ndarray) -> None:
        """Add the score of each literal to the entries of flat node tables for the states that satisfy the literal."""
        rows = freeze(scores, np.float64).reshape(len(self.truth_tables), self.n_variables)
        for row, nodes, truth in zip(rows, self.nodes, self.truth_tables, strict=True):
            conditionals.add_literal_scores(nodes, self.state_start, truth, row, tables)
