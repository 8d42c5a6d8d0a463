"""Learning and inference in memory or in shards, depending on the size of the problem."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from relcrf.backends.base import AbstractBackend, FitResult, Monitor, Problem
from relcrf.backends.inference_result import InferenceResult
from relcrf.backends.memory_needs import problem_memory, shared_memory
from relcrf.backends.number_inference import infer_with_numbers
from relcrf.backends.numeric_targets import fit_with_numbers
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
    backend: AbstractBackend,
    executor: AbstractExecutor | None = None,
    *,
    learning: bool = False,
) -> Iterator[ShardedProblem | None]:
    """Yield the sharded problem, or None for a small problem without an executor; the context deletes the shards.

    Args:
        store: The dataset's store; it defines the memory limit and creates the folder for the shards. None disables
            sharding.
        executor: Executor for the shards; if given, small problems are also split into shards.
        learning: Whether the backend learns from the problem; else it infers.

    Raises:
        UsageError: If the problem needs more memory than is available, or than the limit allows (E435).
    """
    if store is None:
        yield None
        return
    store.release_buffers()
    graph, limit, purpose = problem.graph, store.working_bytes, "learning" if learning else "inference"
    uses = problem_memory(problem, backend, learning=learning)
    is_small = graph.nbytes <= store.n_bytes and (
        limit is None or memory.total_bytes(uses) <= max(limit, memory.MIN_LIMIT)
    )
    if executor is None and is_small:
        memory.require_memory(uses, purpose)
        yield None
        return
    # A backend that needs the whole graph raises an error later, which would not name the memory.
    if executor is None and graph.nbytes <= store.n_bytes and backend.unshardable_reason:
        memory.require_memory(uses, purpose, limit)
    loaded = memory.MemoryUse("shards in memory", min(memory.total_bytes(uses), store.n_bytes // 2))
    loaded_here = (loaded,) if executor is None else ()
    parts = sorted((*shared_memory(problem, learning=learning), *loaded_here), key=lambda use: -use.n_bytes)
    memory.require_memory(parts, purpose, limit)
    folder = store.new_folder()
    try:
        sharded = shard_problem(problem, executor or SerialExecutor(), folder, store.n_bytes)
        largest = memory.MemoryUse("the largest set of connected variables", sharded.largest_shard_bytes)
        if executor is None:  # else other processes, perhaps of other machines, load the shards
            memory.require_memory((largest,), purpose, limit)
        yield sharded
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

    def infer(discrete: Problem, with_vectors: dict[str, np.ndarray]) -> InferenceResult:
        with shard_if_large(store, discrete, backend, executor) as sharded:
            if sharded:
                return infer_shards(sharded, backend, with_vectors)
            return backend.infer(discrete, with_vectors, observe)

    return infer(problem, vectors) if problem.numbers is None else infer_with_numbers(problem, vectors, infer)


def fit_with_sharding(
    store: Store | None,
    problem: Problem,
    backend: AbstractBackend,
    monitor: Monitor,
    executor: AbstractExecutor | None = None,
    finish: Callable[[Problem, FitResult], FitResult] = lambda problem, learned: learned,
    numbers: AbstractBackend | None = None,
) -> FitResult:
    """Train a backend on a problem, in shards if it is large, and learn the distribution of its numbers.

    Args:
        numbers: Backend that learns the numbers. Default: `backend`.
        finish: Function that changes the result for the discrete variables, given their problem.
    """

    def fit(discrete: Problem) -> FitResult:
        with shard_if_large(store, discrete, backend, executor, learning=True) as sharded:
            learned = backend.fit(sharded or discrete, monitor)
        return finish(discrete, learned)

    return fit(problem) if problem.numbers is None else fit_with_numbers(problem, numbers or backend, fit, monitor)
