"""Exact wherever that is affordable: each component by the method that suits it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from relcrf.graph.scope_components import ComponentSubset, extract_components, label_scope_components
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.dual_decomposition import DualDecomposition
from relcrf.inference.forest import ForestInference
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Observer, Verdict, ignore_progress

STATUS_ORDER = ("exact", "converged", "not converged", "interrupted", "diverged")
"""The better first."""


class MethodAssignment(NamedTuple):
    """Components that go by the same methods, of which one gives marginals and one the best states."""

    subset: ComponentSubset
    marginal_method: AbstractInference
    map_method: AbstractInference


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
    observe: Observer = ignore_progress

    @cached_property
    def assignments(self) -> list[MethodAssignment]:
        """Which components go by which methods; together they are the whole graph."""
        component = label_scope_components(self.scopes)
        is_tree = _tree_mask(self.scopes, component)
        found: list[MethodAssignment] = []
        if is_tree.any():
            trees = extract_components(self.scopes, is_tree)
            found.append(_assign_method(trees, ForestInference(trees.scopes)))
        if is_tree.all():
            return found
        others = extract_components(self.scopes, ~is_tree)
        method = JunctionTree(others.scopes, self.memory)
        within = _affordable_mask(method)
        if within.all():
            return [*found, _assign_method(others, method)]
        is_within = np.zeros(self.scopes.n_nodes, dtype=bool)
        is_within[others.nodes] = within
        if within.any():
            small = extract_components(self.scopes, is_within)
            found.append(_assign_method(small, JunctionTree(small.scopes, self.memory)))
        rest = extract_components(self.scopes, ~is_tree & ~is_within)
        settings: dict[str, Any] = {
            "tolerance": self.tolerance,
            "max_iterations": self.max_iterations,
            "observe": self.observe,
        }
        sums = BeliefPropagation(rest.scopes, damping=self.damping, **settings)
        return [*found, MethodAssignment(rest, sums, DualDecomposition(rest.scopes, **settings))]

    @property
    def n_exact_nodes(self) -> int:
        """How many nodes are in components that are inferred exactly."""
        exact = (ForestInference, JunctionTree)
        return sum(
            share.subset.scopes.n_nodes for share in self.assignments if isinstance(share.marginal_method, exact)
        )

    def marginals(self, potentials: Potentials) -> Marginals:
        nodes, factors = np.empty(len(potentials.nodes)), np.empty(len(potentials.factors))
        total, verdicts = 0.0, []
        for some, method, _ in self.assignments:
            found = method.marginals(some.potentials(potentials))
            nodes[some.node_cells], factors[some.factor_cells] = found.nodes, found.factors
            total += found.log_partition
            verdicts.append(found.verdict)
        if total == -np.inf:
            nodes[:], factors[:] = np.nan, np.nan
        return Marginals(total, nodes, factors, _worst_verdict(verdicts))

    def map_states(self, potentials: Potentials) -> MapStates:
        states = np.empty(self.scopes.n_nodes, dtype=np.int32)
        score, bound, verdicts = 0.0, 0.0, []
        for some, _, method in self.assignments:
            found = method.map_states(some.potentials(potentials))
            states[some.nodes] = found.states
            score, bound = score + found.score, bound + found.bound
            verdicts.append(found.verdict)
        return MapStates(score, states, bound, _worst_verdict(verdicts))


def _assign_method(subset: ComponentSubset, method: AbstractInference) -> MethodAssignment:
    return MethodAssignment(subset, method, method)


def _tree_mask(scopes: Scopes, component: np.ndarray) -> np.ndarray:
    """Whether each node's component is a tree of pairs: it has one factor fewer than nodes, and each is over two."""
    label = component[scopes.node[scopes.start[:-1]]]
    n_factors = np.bincount(label, minlength=scopes.n_nodes)
    n_larger = np.bincount(label[scopes.arity > 2], minlength=scopes.n_nodes)
    n_nodes = np.bincount(component, minlength=scopes.n_nodes)
    is_tree = (n_factors == n_nodes - 1) & (n_larger == 0)
    return np.asarray(is_tree[component])


def _affordable_mask(method: JunctionTree) -> np.ndarray:
    """Whether each node is in a component that is within the memory together with all that cost less."""
    tree = method.clique_tree
    lowest = np.flatnonzero(tree.component == np.arange(len(tree.component)))
    cheap = lowest[np.argsort(tree.component_bytes[lowest], kind="stable")]
    affordable = cheap[np.cumsum(tree.component_bytes[cheap]) <= method.memory]
    return np.isin(tree.component, affordable)


def _worst_verdict(verdicts: list[Verdict]) -> Verdict:
    if not verdicts:
        return Verdict("exact")
    status = max((v.status for v in verdicts), key=STATUS_ORDER.index)
    return Verdict(status, max(v.iterations for v in verdicts), max(v.residual for v in verdicts))
