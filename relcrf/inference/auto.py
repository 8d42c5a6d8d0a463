"""Automatic choice of an inference method for each connected component: an exact one wherever the memory limit allows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from relcrf.gpu.device import DEVICES
from relcrf.graph.scope_components import ComponentSubset, extract_components, label_scope_components
from relcrf.graph.scopes import Potentials, Scopes, SharedPotentials
from relcrf.inference.approximate import QUICK_ITERATIONS, STRONG_DAMPING, Approximation
from relcrf.inference.forest import ForestInference
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.result import (
    AbstractInference,
    MapStates,
    Marginals,
    Observer,
    PartitionFunction,
    ignore_progress,
    worst_verdict,
)
from relcrf.settings import setting_names


class MethodAssignment(NamedTuple):
    """Components that are inferred by the same method."""

    subset: ComponentSubset
    method: AbstractInference


@dataclass(frozen=True)
class Auto(AbstractInference):
    """Inference that chooses a method for each connected component.

    Trees use `ForestInference`, components with small cliques use `JunctionTree`, and the other components `Approximation`.

    The junction tree is used for components in ascending order of the number of cells, as long as the totals are within the
    limits.

    Args:
        memory: Limit of all messages of the junction trees, in bytes.
        max_cells: Maximum number of cells of all cliques; 2**25 cells take less than a second.
        damping, tolerance, max_iterations: Settings of belief propagation.
        bound_cells: Maximum number of cells of a table of `MiniBucket`; 0 omits this method.
        restarts: Number of additional propagations from random messages.
        sweeps: Number of sweeps of Gibbs sampling if propagation does not converge; 0 for none.
        rounds: Maximum number of rounds of the search for most probable states; 0 for none.
        seed: Seed of the messages, of Gibbs sampling and of the search.
        device: Device of belief propagation, `cpu` or `gpu`; the other methods run on the CPU.
        anytime: Whether Ctrl-C and time limits during exact inference yield the result of a few rounds of propagation, instead of
            an exception.
        observe: Callback that receives the verdicts of iterative methods during the run.
    """

    scopes: Scopes
    memory: int = 1 << 28
    max_cells: int = 1 << 25
    damping: float = 0.0
    tolerance: float = 1e-6
    max_iterations: int = 1000
    bound_cells: int = 0
    restarts: int = 0
    sweeps: int = 0
    rounds: int = 7
    seed: int = 0
    device: str = "cpu"
    anytime: bool = False
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
            assignments.append(MethodAssignment(trees, ForestInference(trees.scopes)))
        if is_tree.all():
            return assignments
        others = extract_components(self.scopes, ~is_tree)
        method = JunctionTree(others.scopes, self.memory, self.max_cells)
        affordable = _affordable_mask(method)
        if affordable.all():
            return [*assignments, MethodAssignment(others, method)]
        is_affordable = np.zeros(self.scopes.n_nodes, dtype=bool)
        is_affordable[others.nodes] = affordable
        if affordable.any():
            small = extract_components(self.scopes, is_affordable)
            assignments.append(MethodAssignment(small, JunctionTree(small.scopes, self.memory, self.max_cells)))
        rest = extract_components(self.scopes, ~is_tree & ~is_affordable)
        names = set(setting_names(Approximation)) - {"scopes"}
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        return [*assignments, MethodAssignment(rest, Approximation(rest.scopes, **settings))]

    @property
    def n_exact_nodes(self) -> int:
        """Return the number of nodes in components that are inferred exactly."""
        exact = (ForestInference, JunctionTree)
        return sum(each.subset.scopes.n_nodes for each in self.assignments if isinstance(each.method, exact))

    def marginals(self, potentials: Potentials) -> Marginals:
        return self.shared_marginals(SharedPotentials.from_potentials(self.scopes, potentials))

    def node_marginals(self, potentials: Potentials) -> Marginals:
        return self.shared_marginals(SharedPotentials.from_potentials(self.scopes, potentials), with_factors=False)

    def shared_marginals(self, potentials: SharedPotentials, with_factors: bool = True) -> Marginals:
        try:
            return self._shared_marginals(potentials, with_factors)
        except KeyboardInterrupt:
            if not self.anytime:
                raise
            return self._quick_result(potentials, with_factors)

    def _quick_result(self, potentials: SharedPotentials, with_factors: bool) -> Marginals:
        """Return the result of a few rounds of propagation."""
        method = Approximation(self.scopes, damping=STRONG_DAMPING, max_iterations=QUICK_ITERATIONS)
        found = method.shared_marginals(potentials, with_factors)
        return replace(found, verdict=replace(found.verdict, status="interrupted"))

    def _shared_marginals(self, potentials: SharedPotentials, with_factors: bool) -> Marginals:
        nodes, factors = np.empty(len(potentials.nodes)), np.zeros(len(potentials.tables) if with_factors else 0)
        parts = []
        for subset, method in self.assignments:
            found = method.shared_marginals(subset.shared_potentials(potentials), with_factors)
            nodes[subset.node_cells] = found.nodes
            if with_factors:
                factors[subset.factor_cells if potentials.table is None else slice(None)] += found.factors
            parts.append(found.partition)
            if found.log_partition == -np.inf:
                nodes[:], factors[:] = np.nan, np.nan
                break
            if self.anytime and found.verdict.status == "interrupted" and len(parts) < len(self.assignments):
                raise KeyboardInterrupt
        total = _add_partitions(parts)
        return Marginals(total.log_partition, nodes, factors, total.verdict, total.lower, total.upper)

    def partition(self, potentials: Potentials) -> PartitionFunction:
        parts = []
        try:
            for subset, method in self.assignments:
                parts.append(method.partition(subset.potentials(potentials)))
                if parts[-1].log_partition == -np.inf:
                    break
        except KeyboardInterrupt:
            if not self.anytime:
                raise
            whole = SharedPotentials.from_potentials(self.scopes, potentials)
            return self._quick_result(whole, with_factors=False).partition
        return _add_partitions(parts)

    def map_states(self, potentials: Potentials) -> MapStates:
        try:
            return self._map_states(potentials)
        except KeyboardInterrupt:
            if not self.anytime:
                raise
            found = Approximation(self.scopes, max_iterations=QUICK_ITERATIONS, rounds=0).map_states(potentials)
            return replace(found, verdict=replace(found.verdict, status="interrupted"))

    def _map_states(self, potentials: Potentials) -> MapStates:
        states = np.empty(self.scopes.n_nodes, dtype=np.int32)
        score, bound, verdicts = 0.0, 0.0, []
        for subset, method in self.assignments:
            best = method.map_states(subset.potentials(potentials))
            states[subset.nodes] = best.states
            score, bound = score + best.score, bound + best.bound
            verdicts.append(best.verdict)
        return MapStates(score, states, bound, worst_verdict(verdicts))


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


def _add_partitions(parts: list[PartitionFunction]) -> PartitionFunction:
    """Return the log partition function of a graph from those of its components."""
    if parts and parts[-1].log_partition == -np.inf:  # one impossible component makes all joint states impossible
        return parts[-1]
    total, lower, upper = (
        float(sum(getattr(part, name) for part in parts)) for name in ("log_partition", "lower", "upper")
    )
    return PartitionFunction(total, worst_verdict([part.verdict for part in parts]), lower, upper)
