"""Learning and inference over shards: the same backends, on pieces of a graph that an executor deals to workers."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from relcrf.backends.base import AbstractBackend, InferenceResult, Problem, SharedVector
from relcrf.columns.offsets import offsets
from relcrf.errors import Diagnostic, UsageError
from relcrf.execution.base import AbstractExecutor
from relcrf.graph.reduction import Role
from relcrf.graph.shards import SHARD_FACTORS, cut_into_shards, load_shard
from relcrf.inference.result import Verdict

T = TypeVar("T")

RESULT_FILES = ("answered", "marginals", "map_states", "edges")
"""Files with the answers for a shard."""

BYTES_PER_FACTOR = 300
"""What a factor takes while its shard is at work, about: its edge, its terms and its tables."""


@dataclass(frozen=True)
class ShardedProblem(Problem):
    """A problem whose components are in shards. Sums are the same bits whatever the executor.

    Args:
        shards: folders. folder: theirs, which every worker can read and write.
        max_loaded: shards that a worker may hold at work at a time.
    """

    is_sharded: ClassVar[bool] = True
    shards: Sequence[Path] = ()
    executor: AbstractExecutor = field(kw_only=True)
    folder: Path = field(kw_only=True)
    max_loaded: int = field(kw_only=True, default=1)

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
    """Cuts a problem into shards.

    Args:
        folder: empty; for a cluster, one that all its machines share.
        memory: bytes that a worker may take, about.
    """
    size = min(SHARD_FACTORS, max(1, memory // (8 * BYTES_PER_FACTOR)))
    shards = cut_into_shards(problem.graph, problem.roles, problem.states, folder, size, on_progress)
    n_factors = sum(group.n_factors for group in problem.graph.groups)
    held = max(size, n_factors // max(len(shards), 1)) * BYTES_PER_FACTOR
    keep = max(1, memory // held)
    return ShardedProblem(
        problem.graph, problem.roles, problem.states, shards=shards, executor=executor, folder=folder, max_loaded=keep
    )


def infer_shards(
    problem: ShardedProblem, backend: AbstractBackend, vectors: Mapping[str, np.ndarray]
) -> InferenceResult:
    """The answers of a backend for every shard, put together.

    Raises:
        UsageError: where the backend needs the graph in one piece.
    """
    require_shardable(backend)
    shared = {name: problem.share_vector(vector) for name, vector in sorted(vectors.items())}
    answers = problem.executor.map(partial(_infer_shard, backend=backend, vectors=shared), problem.shards)
    variables = np.flatnonzero(problem.roles == Role.FREE)
    state_start = offsets(problem.graph.cardinality[variables])
    marginals, states = np.empty(int(state_start[-1])), np.empty(len(variables), dtype=np.int32)
    edges = []
    for path in problem.shards:
        found = {name: np.load(path / f"{name}.npy", allow_pickle=False) for name in RESULT_FILES}
        place = np.searchsorted(variables, found["answered"])
        sizes = problem.graph.cardinality[found["answered"]]
        start = np.repeat(state_start[place] - offsets(sizes)[:-1], sizes)
        marginals[start + np.arange(len(start))] = found["marginals"]
        states[place] = found["map_states"]
        edges.append(found["edges"])
    verdicts = [verdict for _, verdict in answers]
    verdict = next((v for v in verdicts if not v.is_good), next(iter(verdicts), Verdict("exact")))
    log_partition = float(sum(value for value, _ in answers))
    joined = np.concatenate(edges) if edges else np.empty((0, 2), dtype=np.int32)
    return InferenceResult(variables, state_start, marginals, states, joined, log_partition, verdict)


def require_shardable(backend: AbstractBackend) -> None:
    """Raises UsageError where the backend needs the graph in one piece."""
    if backend.unshardable_reason:
        message = f"backend '{backend.name}' needs the graph in one piece, and it is taken in pieces: {backend.unshardable_reason}"
        raise UsageError(
            Diagnostic("E309", message, hint="give more --memory, and no --workers; or change the setting")
        )


def unload_shards() -> None:
    """Forgets the shards that this process has at work."""
    _loaded_shards.clear()


_loaded_shards: OrderedDict[Path, Problem] = OrderedDict()
"""The shards that this process has at work, the latest used last."""


def _call_on_shard(shard: Path, function: Callable[[Problem], T], max_loaded: int) -> T:
    """Return what a function returns for a shard, which stays at work until `max_loaded` others have been."""
    piece = _loaded_shards.pop(shard, None)
    if piece is None:
        while len(_loaded_shards) >= max_loaded:
            _loaded_shards.popitem(last=False)
        loaded = load_shard(shard)
        piece = Problem(loaded.graph, loaded.roles, loaded.states)
    _loaded_shards[shard] = piece
    return function(piece)


def _infer_shard(shard: Path, backend: AbstractBackend, vectors: Mapping[str, SharedVector]) -> tuple[float, Verdict]:
    """Write the answers for a shard beside it; what travels back is the log partition and the verdict."""
    loaded = load_shard(shard)
    piece = Problem(loaded.graph, loaded.roles, loaded.states)
    found = backend.infer(piece, {name: vector.load() for name, vector in vectors.items()})
    variables = loaded.variables
    arrays = (variables[found.variables], found.marginals, found.map_states, variables[found.edges])
    for name, array in zip(RESULT_FILES, arrays, strict=True):
        partial_file = shard / f".{name}.{os.getpid()}.npy"
        np.save(partial_file, array, allow_pickle=False)
        os.replace(partial_file, shard / f"{name}.npy")
    return found.log_partition, found.verdict
