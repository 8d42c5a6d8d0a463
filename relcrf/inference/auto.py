"""Exact wherever that is affordable: each component by the method that suits it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from relcrf.graph.parts import ScopesPart, component_of, part
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.dual_decomposition import DualDecomposition
from relcrf.inference.forest import ForestInference
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Observer, Verdict, silent

STATUSES = ("exact", "converged", "not converged", "interrupted", "diverged")
"""The better first."""


class Share(NamedTuple):
    """Components that go by the same methods, of which one gives marginals and one the best states."""

    part: ScopesPart
    sums: AbstractInference
    maxima: AbstractInference


@dataclass(frozen=True)
class Auto(AbstractInference):
    """Trees by `ForestInference`, components with small cliques by `JunctionTree`; what is left, its marginals by loopy
    belief propagation and its best states by dual decomposition, which tells how far from the best they can be.

    Components are taken into the junction tree from the cheapest on, as long as all together stay within the memory.

    Args:
        memory: bytes that the clique tables may take together.
        damping: of belief propagation.
        tolerance, max_iterations: of belief propagation and of dual decomposition.
        observe: sees these two at work.
    """

    scopes: Scopes
    memory: int = 1 << 28
    damping: float = 0.0
    tolerance: float = 1e-6
    max_iterations: int = 1000
    observe: Observer = silent

    @cached_property
    def shares(self) -> list[Share]:
        """Which components go by which methods; together they are the whole graph."""
        component = component_of(self.scopes)
        is_tree = _trees(self.scopes, component)
        found: list[Share] = []
        if is_tree.any():
            trees = part(self.scopes, is_tree)
            found.append(_alike(trees, ForestInference(trees.scopes)))
        if is_tree.all():
            return found
        others = part(self.scopes, ~is_tree)
        method = JunctionTree(others.scopes, self.memory)
        within = _within(method)
        if within.all():
            return [*found, _alike(others, method)]
        is_within = np.zeros(self.scopes.n_nodes, dtype=bool)
        is_within[others.nodes] = within
        if within.any():
            small = part(self.scopes, is_within)
            found.append(_alike(small, JunctionTree(small.scopes, self.memory)))
        rest = part(self.scopes, ~is_tree & ~is_within)
        settings: dict[str, Any] = {
            "tolerance": self.tolerance,
            "max_iterations": self.max_iterations,
            "observe": self.observe,
        }
        sums = BeliefPropagation(rest.scopes, damping=self.damping, **settings)
        return [*found, Share(rest, sums, DualDecomposition(rest.scopes, **settings))]

    @property
    def exact_nodes(self) -> int:
        """How many nodes are in components that are inferred exactly."""
        exact = (ForestInference, JunctionTree)
        return sum(share.part.scopes.n_nodes for share in self.shares if isinstance(share.sums, exact))

    def marginals(self, potentials: Potentials) -> Marginals:
        nodes, factors = np.empty(len(potentials.nodes)), np.empty(len(potentials.factors))
        total, verdicts = 0.0, []
        for some, method, _ in self.shares:
            found = method.marginals(some.potentials(potentials))
            nodes[some.node_cells], factors[some.factor_cells] = found.nodes, found.factors
            total += found.log_partition
            verdicts.append(found.verdict)
        if total == -np.inf:
            nodes[:], factors[:] = np.nan, np.nan
        return Marginals(total, nodes, factors, _worst(verdicts))

    def map_states(self, potentials: Potentials) -> MapStates:
        states = np.empty(self.scopes.n_nodes, dtype=np.int32)
        score, bound, verdicts = 0.0, 0.0, []
        for some, _, method in self.shares:
            found = method.map_states(some.potentials(potentials))
            states[some.nodes] = found.states
            score, bound = score + found.score, bound + found.bound
            verdicts.append(found.verdict)
        return MapStates(score, states, bound, _worst(verdicts))


def _alike(some: ScopesPart, method: AbstractInference) -> Share:
    return Share(some, method, method)


def _trees(scopes: Scopes, component: np.ndarray) -> np.ndarray:
    """Whether each node's component is a tree of pairs: it has one factor fewer than nodes, and each is over two."""
    label = component[scopes.node[scopes.start[:-1]]]
    n_factors = np.bincount(label, minlength=scopes.n_nodes)
    n_larger = np.bincount(label[scopes.arity > 2], minlength=scopes.n_nodes)
    n_nodes = np.bincount(component, minlength=scopes.n_nodes)
    is_tree = (n_factors == n_nodes - 1) & (n_larger == 0)
    return np.asarray(is_tree[component])


def _within(method: JunctionTree) -> np.ndarray:
    """Whether each node is in a component that is within the memory together with all that cost less."""
    tree = method.cliques
    lowest = np.flatnonzero(tree.component == np.arange(len(tree.component)))
    cheap = lowest[np.argsort(tree.needed[lowest], kind="stable")]
    affordable = cheap[np.cumsum(tree.needed[cheap]) <= method.memory]
    return np.isin(tree.component, affordable)


def _worst(verdicts: list[Verdict]) -> Verdict:
    if not verdicts:
        return Verdict("exact")
    status = max((v.status for v in verdicts), key=STATUSES.index)
    return Verdict(status, max(v.iterations for v in verdicts), max(v.residual for v in verdicts))
