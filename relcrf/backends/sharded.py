"""Learning and inference over shards, i.e. parts of a graph that an executor distributes to workers."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from relcrf.backends.base import AbstractBackend, Problem, SharedVector
from relcrf.backends.inference_result import InferenceResult, JointStates
from relcrf.columns.offsets import offsets
from relcrf.errors import Diagnostic, UsageError
from relcrf.execution.base import AbstractExecutor
from relcrf.graph.reduction import Role
from relcrf.graph.shards import SHARD_FACTORS, cut_into_shards, load_shard, read_load
from relcrf.inference.result import Verdict, worst_verdict

T = TypeVar("T")

RESULT_FILES = ("result_variables", "marginals", "map_states", "edges", "joint_marginals")
"""Names of the files with the inference results of a shard."""

BYTES_PER_FACTOR = 300
"""Approximate memory per factor of a loaded shard, in bytes: the edge, terms and tables of the factor."""


@dataclass(frozen=True)
class ShardedProblem(Problem):
    """A problem whose connected components are stored in shards. Sums over shards are bitwise equal for all executors.

    Args:
        shards: Folders of the shards.
        folder: The parent folder of the shards, which every worker can read and write.
        max_loaded: Maximum number of shards that a worker keeps loaded.
        largest_shard_bytes: Approximate memory of the largest shard in bytes.
    """

    is_sharded: ClassVar[bool] = True
    shards: Sequence[Path] = ()
    executor: AbstractExecutor = field(kw_only=True)
    folder: Path = field(kw_only=True)
    max_loaded: int = field(kw_only=True, default=1)
    largest_shard_bytes: int = field(kw_only=True, default=0)

    def map_reduce(self, function: Callable[[Problem], T]) -> T:
        if not self.shards:
            return function(Problem(self.graph, np.full_like(self.roles, Role.ABSENT), self.states))
        return self.executor.map_reduce(
            partial(_call_on_shard, function=function, max_loaded=self.max_loaded), self.shards
        )

    def share_vector(self, vector: np.ndarray) -> SharedVector:
        number = len(list(self.folder.glob("vector*.npy")))
        return SharedVector.from_values(vector, self.folder / f"vector{number}.npy")


def shard_problem(
    problem: Problem,
    executor: AbstractExecutor,
    folder: Path,
    memory: int,
    on_progress: Callable[[str], None] = lambda text: None,
) -> ShardedProblem:
    """Split a problem into shards.

    Args:
        folder: An empty folder; on a cluster, all machines must share this folder.
        memory: Approximate memory limit of a worker in bytes.
    """
    size = min(SHARD_FACTORS, max(1, memory // (8 * BYTES_PER_FACTOR)))
    shards = cut_into_shards(problem.graph, problem.roles, problem.states, folder, size, on_progress)
    loads = [read_load(shard) for shard in shards]
    shard_bytes = max(size, sum(loads) // max(len(loads), 1)) * BYTES_PER_FACTOR
    max_loaded = max(1, memory // shard_bytes)
    return ShardedProblem(
        problem.graph,
        problem.roles,
        problem.states,
        shards=shards,
        executor=executor,
        folder=folder,
        max_loaded=max_loaded,
        largest_shard_bytes=BYTES_PER_FACTOR * max(loads, default=0),
    )


def infer_shards(
    problem: ShardedProblem, backend: AbstractBackend, vectors: Mapping[str, np.ndarray]
) -> InferenceResult:
    """Run inference on every shard and merge the results.

    Raises:
        UsageError: If the backend does not support shards.
    """
    require_shardable(backend)
    shared = {name: problem.share_vector(vector) for name, vector in sorted(vectors.items())}
    results = problem.executor.map(partial(_infer_shard, backend=backend, vectors=shared), problem.shards)
    variables = np.flatnonzero(problem.roles == Role.FREE)
    state_start = offsets(problem.graph.cardinality[variables])
    marginals, states = np.empty(int(state_start[-1])), np.empty(len(variables), dtype=np.int32)
    edges = []
    groups = [group for group in problem.graph.groups if group.needs_marginals]
    tables = [np.empty((group.n_factors, group.n_joint_states)) for group in groups]
    for path in problem.shards:
        arrays = {name: np.load(path / f"{name}.npy", allow_pickle=False) for name in RESULT_FILES}
        positions = np.searchsorted(variables, arrays["result_variables"])
        sizes = problem.graph.cardinality[arrays["result_variables"]]
        start = np.repeat(state_start[positions] - offsets(sizes)[:-1], sizes)
        marginals[start + np.arange(len(start))] = arrays["marginals"]
        states[positions] = arrays["map_states"]
        edges.append(arrays["edges"])
        first = 0
        for group, table in zip(groups, tables, strict=True):
            in_shard = np.isin(group.scope[0], arrays["result_variables"])
            last = first + int(in_shard.sum()) * group.n_joint_states
            table[in_shard] = arrays["joint_marginals"][first:last].reshape(-1, group.n_joint_states)
            first = last
    verdict = worst_verdict([verdict for _, verdict, _ in results])
    joint_verdict = worst_verdict([verdict for _, _, verdict in results])
    log_partition = float(sum(value for value, _, _ in results))
    all_edges = np.concatenate(edges) if edges else np.empty((0, 2), dtype=np.int32)
    return InferenceResult(
        variables,
        state_start,
        marginals,
        all_edges,
        log_partition,
        verdict,
        find_joint_states=lambda: JointStates(states, joint_verdict),
        joint_marginals=np.concatenate([np.empty(0), *(table.ravel() for table in tables)]),
    )


def require_shardable(backend: AbstractBackend) -> None:
    """Raise UsageError if the backend does not support shards."""
    if reason := backend.unshardable_reason:
        message = (
            f"the graph is split into shards, but backend '{backend.name}' needs the whole graph, because {reason}"
        )
        raise UsageError(Diagnostic("E309", message, hint="raise --memory and omit --workers"))


def unload_shards() -> None:
    """Unload all shards that this process has loaded."""
    _loaded_shards.clear()


_loaded_shards: OrderedDict[Path, Problem] = OrderedDict()
"""The loaded shards of this process, least recently used first."""


def _call_on_shard(shard: Path, function: Callable[[Problem], T], max_loaded: int) -> T:
    """Apply a function to a shard; the shard stays loaded until `max_loaded` other shards have been used."""
    problem = _loaded_shards.pop(shard, None)
    if problem is None:
        while len(_loaded_shards) >= max_loaded:
            _loaded_shards.popitem(last=False)
        loaded = load_shard(shard)
        problem = Problem(loaded.graph, loaded.roles, loaded.states)
    _loaded_shards[shard] = problem
    return function(problem)


def _infer_shard(
    shard: Path, backend: AbstractBackend, vectors: Mapping[str, SharedVector]
) -> tuple[float, Verdict, Verdict]:
    """Write the results of a shard to its folder; return the log partition, and the verdicts on marginals and joint states."""
    loaded = load_shard(shard)
    problem = Problem(loaded.graph, loaded.roles, loaded.states)
    result = backend.infer(problem, {name: vector.load() for name, vector in vectors.items()})
    variables = loaded.variables
    arrays = (
        variables[result.variables],
        result.marginals,
        result.map_states,
        variables[result.edges],
        result.joint_marginals,
    )
    for name, array in zip(RESULT_FILES, arrays, strict=True):
        partial_file = shard / f".{name}.{os.getpid()}.npy"
        np.save(partial_file, array, allow_pickle=False)
        os.replace(partial_file, shard / f"{name}.npy")
    return result.log_partition, result.verdict, result.joint_states.verdict
