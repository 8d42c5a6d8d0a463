"""The result of inference: marginals of the free variables, and a most probable joint state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from relcrf.backends.inference_task import InferenceTask
from relcrf.columns.offsets import offsets
from relcrf.graph.joint_marginals import joint_marginals
from relcrf.inference.coordinate_ascent import modes
from relcrf.inference.gaussian import NumberMarginals
from relcrf.inference.result import Verdict, worst_verdict
from relcrf.kernels.distinct import distinct_rows


class JointStates(NamedTuple):
    """A joint state of high probability: the state of each free variable, shape (n,), int32, and the verdict on the search."""

    states: np.ndarray
    verdict: Verdict


@dataclass(frozen=True)
class InferenceResult:
    """The result of inference for the free variables of a problem.

    Args:
        variables: The free variables, ascending, shape (n,).
        state_start: Start of each variable's states in `marginals`, shape (n + 1,).
        marginals: Marginal probabilities of the states of all variables, concatenated, shape (state_start[-1],).
        edges: Pairs of variables that inference treated as dependent, shape (m, 2).
        n_messages: Number of messages sent; None if the backend does not count messages.
        find_joint_states: Function that computes `joint_states`, which may take much longer than the marginals; None selects
            the most probable state of each variable.
        numbers: The marginals of the free numbers; None for a problem without numbers.
        joint_marginals: Flat joint marginals of the factors of the groups with `needs_marginals`, see `joint_marginals.py`.
    """

    variables: np.ndarray
    state_start: np.ndarray
    marginals: np.ndarray
    edges: np.ndarray
    log_partition: float
    verdict: Verdict
    n_messages: int | None = None
    find_joint_states: Callable[[], JointStates] | None = None
    numbers: NumberMarginals | None = None
    joint_marginals: np.ndarray = field(default_factory=lambda: np.empty(0))

    @cached_property
    def joint_states(self) -> JointStates:
        """A most probable joint state; computed when it is first read. Ctrl-C interrupts exact methods by KeyboardInterrupt."""
        if self.find_joint_states is None:
            return JointStates(self.modes(), self.verdict)
        return self.find_joint_states()

    @property
    def map_states(self) -> np.ndarray:
        """The states of `joint_states`, shape (n,), int32."""
        return self.joint_states.states

    def with_joint_states(self) -> InferenceResult:
        """Return the result with computed `joint_states`; after Ctrl-C, they are each variable's most probable state."""
        try:
            joint = self.joint_states
        except KeyboardInterrupt:
            joint = JointStates(self.modes(), Verdict("interrupted"))
        return replace(self, find_joint_states=lambda: joint)

    def modes(self) -> np.ndarray:
        """Return each variable's state with the largest marginal probability, shape (n,), int32."""
        return modes(self.marginals, self.state_start)

    def select_variables(self, selected: np.ndarray) -> InferenceResult:
        """Return the result for the variables in the mask `selected`, shape (n,), bool; all edges are retained."""
        sizes = np.diff(self.state_start)
        return replace(
            self,
            variables=self.variables[selected],
            state_start=offsets(sizes[selected]),
            marginals=self.marginals[np.repeat(selected, sizes)],
            find_joint_states=lambda: self.joint_states._replace(states=self.map_states[selected]),
        )


def run_inference(task: InferenceTask) -> InferenceResult:
    """Return marginals of the nodes that are not observed; the most probable joint state is computed when it is read."""
    graph = task.graph
    inference = task.method(graph.scopes)
    needs_factors = any(group.needs_marginals for group in graph.graph.groups)
    marginals = inference.marginals(task.potentials) if needs_factors else task.node_marginals(inference)
    unused = replace(task)  # without the potentials in memory

    def find_joint_states() -> JointStates:
        found = inference.map_states(unused.potentials)
        return JointStates(found.states, found.verdict)

    result = InferenceResult(
        variables=graph.variables,
        state_start=graph.state_start,
        marginals=marginals.nodes,
        edges=graph.variables[graph.edges],
        log_partition=marginals.log_partition,
        verdict=marginals.verdict,
        find_joint_states=None if marginals.verdict.status == "interrupted" else find_joint_states,
        joint_marginals=joint_marginals(graph, marginals.nodes, marginals.factors),
    )
    return result if task.observed_states is None else result.select_variables(task.observed_states < 0)


def average_results(results: Sequence[InferenceResult]) -> InferenceResult:
    """Return the result for the average of the distributions of several results.

    For two or more results, the log partition is NaN, and `joint_states` contains each variable's most probable state.
    """
    if len(results) == 1:
        return results[0]
    return replace(
        results[0],
        marginals=np.mean([result.marginals for result in results], axis=0),
        edges=distinct_rows(np.concatenate([result.edges for result in results])),
        log_partition=float("nan"),
        verdict=worst_verdict([result.verdict for result in results]),
        find_joint_states=None,
        joint_marginals=np.mean([result.joint_marginals for result in results], axis=0),
    )
