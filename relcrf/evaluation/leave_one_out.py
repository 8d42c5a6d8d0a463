"""Leave-one-out conditionals: the distribution of each labelled variable given all other labels.

If the neighbours of a variable are all labelled, the conditional follows from the factors of the variable alone, so that one
pass over the graph computes it for all such variables. Otherwise, the unlabelled neighbours must be summed out. The labels
are then left out in passes, and the labels of a pass are chosen in different components of the free variables, as far as
possible: in such a pass, the marginal of each left-out variable is its leave-one-out conditional.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array, diags_array, hstack

from relcrf.backends.automatic_sharding import infer_with_sharding
from relcrf.backends.base import AbstractBackend, Problem
from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.data.store import Store
from relcrf.graph.adjacency import adjacency_matrix
from relcrf.graph.components import iter_row_variables, label_components
from relcrf.graph.factor_graph import FactorGraph, RepeatedScope
from relcrf.graph.labelled_factors import labelled_neighbours
from relcrf.graph.reduction import ReducedGraph, Role
from relcrf.inference.forest import ForestInference
from relcrf.inference.result import Verdict, worst_verdict
from relcrf.kernels.distinct import number_rows

MAX_PASSES = 8
"""Maximum number of passes over the graph: with five folds, a pass leaves out at least a fortieth of the labels of a large
component. The number limits the time; its effect on the ranking has not been measured."""


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """The leave-one-out conditionals of some labelled variables.

    Args:
        variables: The variables, ascending, shape (n,).
        state_start: Offset of each variable's states in `probabilities`, shape (n + 1,).
        probabilities: The conditional probabilities of all states, concatenated.
        is_separate: Mask of the variables of which no other label was left out in the same component, shape (n,). The
            conditionals of other variables are approximations.
        n_passes: Number of passes in which labels with unlabelled neighbours were left out.
        verdict: The worst verdict of the passes.
    """

    variables: np.ndarray
    state_start: np.ndarray
    probabilities: np.ndarray
    is_separate: np.ndarray
    n_passes: int
    verdict: Verdict

    def probability(self, states: np.ndarray) -> np.ndarray:
        """Return the probability of a state of each variable, shape (n,)."""
        return np.asarray(self.probabilities[self.state_start[:-1] + states])


def leave_one_out(
    system: AbstractBackend,
    problem: Problem,
    vectors: dict[str, np.ndarray],
    targets: np.ndarray,
    *,
    store: Store | None = None,
    max_passes: int = MAX_PASSES,
    observe: Callable[[int, int], None] = lambda n_done, n_passes: None,
) -> LeaveOneOut:
    """Return the distribution of each target given all other observed variables.

    Args:
        problem: The problem with all labels: clamped variables are observed, and free variables are unlabelled.
        targets: Mask of the clamped variables to leave out, shape (n_variables,), bool.
        store: The store that defines the memory limit; a larger problem is split into shards. Default: no sharding.
        observe: Callback that receives the number of completed passes, and of all passes.

    Raises:
        KeyboardInterrupt: Ctrl-C interrupted the inference method, which then returns an unfinished result.
    """
    variables = np.flatnonzero(targets)
    state_start = offsets(problem.graph.cardinality[variables])
    probabilities, is_separate = np.empty(int(state_start[-1])), np.ones(len(variables), dtype=bool)

    def store_marginals(inferred_variables: np.ndarray, inferred_start: np.ndarray, marginals: np.ndarray) -> None:
        rows = np.searchsorted(variables, inferred_variables)
        probabilities[entries_of_runs(state_start, rows)] = marginals

    isolated = _isolated_graph(system, problem, targets)
    is_open = targets.copy()
    if isolated is not None and isolated.n_nodes:
        nodes = ForestInference(isolated.scopes).marginals(isolated.potentials(vectors["weights"])).nodes
        store_marginals(isolated.variables, isolated.state_start, nodes)
        is_open[isolated.variables] = False
    passes = assign_passes(problem if system.labels_separate else problem.unclamp(), is_open, max_passes)
    n_passes, verdict = int(passes.max(initial=-1)) + 1, Verdict("exact")
    for number in range(n_passes):
        observe(number, n_passes)
        left_out = passes == number
        query, component = _without_labels(problem, left_out, system)
        inferred = infer_with_sharding(store, query, system, vectors)
        inferred.verdict.raise_if_interrupted()
        selected = inferred.select_variables(left_out[inferred.variables])
        store_marginals(selected.variables, selected.state_start, selected.marginals)
        n_left_out = np.bincount(component[left_out], minlength=len(component))
        is_separate[np.searchsorted(variables, selected.variables)] = n_left_out[component[selected.variables]] == 1
        verdict = worst_verdict((verdict, inferred.verdict))
    return LeaveOneOut(variables, state_start, probabilities, is_separate, n_passes, verdict)


def _isolated_graph(system: AbstractBackend, problem: Problem, targets: np.ndarray) -> ReducedGraph | None:
    """Return the graph of the targets whose conditionals do not depend on unlabelled variables; None without such a graph."""
    observed = problem.roles == Role.CLAMPED
    roles = np.where(targets, Role.FREE, np.where(observed, Role.CLAMPED, Role.ABSENT)).astype(np.int8)
    graph = system.conditional_graph(replace(problem, roles=roles))
    if graph is None:
        return None
    present = problem.roles != Role.ABSENT
    n_observed, _ = labelled_neighbours(graph.graph, observed)
    n_present, _ = labelled_neighbours(graph.graph, present)
    is_closed = targets & (n_observed == n_present)
    if (is_closed == targets).all():
        return graph
    return system.conditional_graph(
        replace(problem, roles=np.where(targets & ~is_closed, Role.CLAMPED, roles).astype(np.int8))
    )


def _without_labels(problem: Problem, left_out: np.ndarray, system: AbstractBackend) -> tuple[Problem, np.ndarray]:
    """Return the problem in which some labels are left out, and the component of each variable, shape (n_variables,).

    Variables in components without left-out labels are absent if the backend infers components independently. All variables
    are one component if labels do not separate them.
    """
    roles = np.where(left_out, Role.FREE, problem.roles).astype(np.int8)
    component = label_components(problem.graph, roles)
    if not system.unshardable_reason:
        has_left_out = np.zeros(len(component), dtype=bool)
        has_left_out[component[left_out]] = True
        roles = np.where((roles == Role.FREE) & ~has_left_out[component], Role.ABSENT, roles).astype(np.int8)
    if not system.labels_separate:
        component = np.zeros_like(component)
    queries = None if problem.queries is None else problem.queries | left_out
    return replace(problem, roles=roles, queries=queries), component


def assign_passes(problem: Problem, targets: np.ndarray, max_passes: int) -> np.ndarray:
    """Return the pass in which each target is left out, shape (n_variables,); -1 for other variables.

    Two targets conflict if they are neighbours, have a common unlabelled neighbour, or have neighbours in the same component
    of unlabelled variables. A greedy colouring assigns each target to the first pass with the fewest conflicts. Conflicts
    in a component count less, the more targets it has, because large components may need more passes than the maximum.
    """
    passes = np.full(len(targets), -1)
    members = np.flatnonzero(targets)
    if not len(members):
        return passes
    joins, adds = _conflict_groups(problem, targets, members)
    counts = np.zeros((joins.shape[1], max_passes))
    for row, variable in enumerate(members.tolist()):
        start, stop = joins.indptr[row], joins.indptr[row + 1]
        number = int((joins.data[start:stop] @ counts[joins.indices[start:stop]]).argmin())
        counts[adds.indices[adds.indptr[row] : adds.indptr[row + 1]], number] += 1.0
        passes[variable] = number
    return passes


def _conflict_groups(problem: Problem, targets: np.ndarray, members: np.ndarray) -> tuple[csr_array, csr_array]:
    """Return the groups of variables in which targets conflict, as two sparse matrices of targets by groups.

    The groups are the targets themselves, unlabelled variables, components of unlabelled variables, and rows of repeated
    scopes. The entries of the first matrix are the weights of the conflicts of a target with the targets in a group; those
    of the second matrix are the groups to which a target belongs.
    """
    adjacency = adjacency_matrix(problem.graph)[members].astype(np.float64)
    free = problem.roles == Role.FREE
    neighbours, unlabelled = adjacency[:, members], adjacency[:, np.flatnonzero(free)]
    root = number_rows(label_components(problem.graph, problem.roles)[free])
    region_of = csr_array(
        (np.ones(len(root)), (np.arange(len(root)), root)), shape=(len(root), int(root.max(initial=-1)) + 1)
    )
    regions = csr_array(unlabelled @ region_of)
    regions.data[:] = 1.0
    sizes = np.asarray(regions.sum(axis=0)).ravel()
    weighted = regions @ diags_array(1.0 / (1.0 + sizes)) if regions.shape[1] else regions
    rows = _repeated_rows(problem.graph, members)
    itself = csr_array((np.ones(len(members)), (np.arange(len(members)),) * 2))
    joins = csr_array(hstack([neighbours, unlabelled, weighted, rows], format="csr"))
    adds = csr_array(hstack([itself, unlabelled, regions, rows], format="csr"))
    return joins, adds


def _repeated_rows(graph: FactorGraph, members: np.ndarray) -> csr_array:
    """Return the incidence matrix of some variables and the rows of repeated scopes, all of whose variables are neighbours."""
    position = np.full(graph.n_variables, -1)
    position[members] = np.arange(len(members))
    first, second, n_rows = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)], 0
    for group in graph.groups:
        if isinstance(group.scope, RepeatedScope) and len(group.scope) > 1:
            for variables in iter_row_variables(group.scope):
                row, column = np.nonzero(position[variables] >= 0)
                first.append(position[variables[row, column]])
                second.append(row + n_rows)
                n_rows += len(variables)
    rows, columns = np.concatenate(first), np.concatenate(second)
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(members), n_rows))
