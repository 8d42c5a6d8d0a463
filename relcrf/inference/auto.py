"""Automatic choice of an inference method for each connected component: an exact one wherever the memory limit allows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from relcrf.gpu.device import DEVICES
from relcrf.graph.scope_components import ComponentSubset, extract_components, label_scope_components
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.dual_decomposition import DualDecomposition
from relcrf.inference.forest import ForestInference
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Observer, Verdict, ignore_progress

STATUS_ORDER = ("exact", "converged", "not converged", "interrupted", "diverged")
"""Statuses of verdicts from best to worst; the status of a graph is the worst status of the components."""


class MethodAssignment(NamedTuple):
    """Components that are inferred by the same methods, one for marginals and one for most probable states."""

    subset: ComponentSubset
    marginal_method: AbstractInference
    map_method: AbstractInference


@dataclass(frozen=True)
class Auto(AbstractInference):
    """Inference that chooses a method for each connected component.

    Trees use `ForestInference`, and components with small cliques use `JunctionTree`. For the other components, loopy belief
    propagation computes marginals; dual decomposition computes most probable states and an upper bound of the best score.

    The junction tree is used for components in ascending order of the number of cells, as long as the totals are within the
    limits.

    Args:
        memory: Limit of all messages of the junction trees, in bytes.
        max_cells: Maximum number of cells of all cliques; 2**25 cells take less than a second.
        damping: Damping of belief propagation.
        tolerance, max_iterations: Stopping criteria of belief propagation and dual decomposition.
        device: Device of belief propagation, `cpu` or `gpu`; the other methods run on the CPU.
        observe: Callback that receives the verdicts of these two methods during the run.
    """

    scopes: Scopes
    memory: int = 1 << 28
    max_cells: int = 1 << 25
    damping: float = 0.0
    tolerance: float = 1e-6
    max_iterations: int = 1000
    device: str = "cpu"
    observe: Observer = ignore_progress

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ValueError(f"unknown device {self.device!r}; use cpu or gpu")

    @cached_property
    def assignments(self) -> list[MethodAssignment]:
        """Return groups of components, each with inference methods; together the groups cover the graph."""
        component = label_scope_components(self.scopes)
        is_tree = _tree_mask(self.scopes, component)
        assignments: list[MethodAssignment] = []
        if is_tree.any():
            trees = extract_components(self.scopes, is_tree)
            assignments.append(_assign_method(trees, ForestInference(trees.scopes)))
        if is_tree.all():
            return assignments
        others = extract_components(self.scopes, ~is_tree)
        method = JunctionTree(others.scopes, self.memory, self.max_cells)
        affordable = _affordable_mask(method)
        if affordable.all():
            return [*assignments, _assign_method(others, method)]
        is_affordable = np.zeros(self.scopes.n_nodes, dtype=bool)
        is_affordable[others.nodes] = affordable
        if affordable.any():
            small = extract_components(self.scopes, is_affordable)
            assignments.append(_assign_method(small, JunctionTree(small.scopes, self.memory, self.max_cells)))
        rest = extract_components(self.scopes, ~is_tree & ~is_affordable)
        settings: dict[str, Any] = {
            "tolerance": self.tolerance,
            "max_iterations": self.max_iterations,
            "observe": self.observe,
        }
        propagation = BeliefPropagation(rest.scopes, damping=self.damping, device=self.device, **settings)
        return [*assignments, MethodAssignment(rest, propagation, DualDecomposition(rest.scopes, **settings))]

    @property
    def n_exact_nodes(self) -> int:
        """Return the number of nodes in components that are inferred exactly."""
        exact = (ForestInference, JunctionTree)
        return sum(each.subset.scopes.n_nodes for each in self.assignments if isinstance(each.marginal_method, exact))

    def marginals(self, potentials: Potentials) -> Marginals:
        nodes, factors = np.empty(len(potentials.nodes)), np.empty(len(potentials.factors))
        total, verdicts = 0.0, []
        for subset, method, _ in self.assignments:
            marginals = method.marginals(subset.potentials(potentials))
            nodes[subset.node_cells], factors[subset.factor_cells] = marginals.nodes, marginals.factors
            total += marginals.log_partition
            verdicts.append(marginals.verdict)
        if total == -np.inf:
            nodes[:], factors[:] = np.nan, np.nan
        return Marginals(total, nodes, factors, _worst_verdict(verdicts))

    def map_states(self, potentials: Potentials) -> MapStates:
        states = np.empty(self.scopes.n_nodes, dtype=np.int32)
        score, bound, verdicts = 0.0, 0.0, []
        for subset, _, method in self.assignments:
            best = method.map_states(subset.potentials(potentials))
            states[subset.nodes] = best.states
            score, bound = score + best.score, bound + best.bound
            verdicts.append(best.verdict)
        return MapStates(score, states, bound, _worst_verdict(verdicts))


def _assign_method(subset: ComponentSubset, method: AbstractInference) -> MethodAssignment:
    return MethodAssignment(subset, method, method)


def _tree_mask(scopes: Scopes, component: np.ndarray) -> np.ndarray:
    """Return a mask of the nodes whose component is a tree.

    In a tree, all factors are pairwise, and the number of factors is one less than the number of nodes.
    """
    label = component[scopes.node[scopes.start[:-1]]]
    n_factors = np.bincount(label, minlength=scopes.n_nodes)
    n_larger = np.bincount(label[scopes.arity > 2], minlength=scopes.n_nodes)
    n_nodes = np.bincount(component, minlength=scopes.n_nodes)
    is_tree = (n_factors == n_nodes - 1) & (n_larger == 0)
    return np.asarray(is_tree[component])


def _affordable_mask(method: JunctionTree) -> np.ndarray:
    """Return a mask of the nodes whose component is within the limits together with all cheaper components."""
    tree = method.clique_tree
    roots = np.flatnonzero(tree.component == np.arange(len(tree.component)))
    by_cost = roots[np.argsort(tree.component_cells[roots], kind="stable")]
    is_affordable = np.cumsum(tree.component_cells[by_cost]) <= method.max_cells
    affordable = by_cost[is_affordable & (np.cumsum(tree.component_bytes[by_cost]) <= method.memory)]
    return np.isin(tree.component, affordable)


def _worst_verdict(verdicts: list[Verdict]) -> Verdict:
    if not verdicts:
        return Verdict("exact")
    status = max((v.status for v in verdicts), key=STATUS_ORDER.index)
    return Verdict(status, max(v.iterations for v in verdicts), max(v.residual for v in verdicts))
