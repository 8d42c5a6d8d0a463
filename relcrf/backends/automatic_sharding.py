"""Learning and inference in memory or in shards, depending on the size of the problem."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from relcrf.backends.base import AbstractBackend, InferenceResult, Problem
from relcrf.backends.sharded import ShardedProblem, infer_shards, shard_problem, unload_shards
from relcrf.data.store import Store
from relcrf.execution import memory
from relcrf.execution.base import AbstractExecutor
from relcrf.execution.serial import SerialExecutor
from relcrf.inference.result import Observer, ignore_progress


@contextmanager
def shard_if_large(
    store: Store | None,
    problem: Problem,
    executor: AbstractExecutor | None = None,
    n_vectors: int = memory.INFERENCE_VECTORS,
) -> Iterator[ShardedProblem | None]:
    """Yield the sharded problem, or None for a small problem without an executor; the context deletes the shards.

    Args:
        store: The dataset's store; it defines the memory limit and creates the folder for the shards. None disables
            sharding.
        executor: Executor for the shards; if given, small problems are also split into shards.
        n_vectors: Number of weight vectors that are in memory at the same time; see `execution/memory.py`.

    Raises:
        UsageError: If the problem needs more memory than is available.
    """
    if store is None:
        yield None
        return
    graph = problem.graph
    purpose = "learning" if n_vectors == memory.LEARNING_VECTORS else "inference"
    candidates = sum(space.nbytes for space in problem.candidates)
    memory.require_memory(min(graph.nbytes, store.n_bytes) + candidates, graph.layout.size, n_vectors, purpose)
    if executor is None and graph.nbytes <= store.n_bytes:
        yield None
        return
    folder = store.new_folder()
    try:
        yield shard_problem(problem, executor or SerialExecutor(), folder, store.n_bytes)
    finally:
        unload_shards()
        shutil.rmtree(folder, ignore_errors=True)


def infer_with_sharding(
    store: Store | None,
    problem: Problem,
    backend: AbstractBackend,
    vectors: dict[str, np.ndarray],
    executor: AbstractExecutor | None = None,
    observe: Observer = ignore_progress,
) -> InferenceResult:
    """Run inference on a problem, in shards if it is large.

    Args:
        observe: Function that receives the progress of an iterative method if the problem is not sharded.
    """
    with shard_if_large(store, problem, executor) as sharded:
        return infer_shards(sharded, backend, vectors) if sharded else backend.infer(problem, vectors, observe)
