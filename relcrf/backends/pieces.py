"""Learning and inference in one piece or in shards, depending on the size of the problem."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from relcrf.backends.base import AbstractBackend, Inferred, Problem
from relcrf.backends.sharded import ShardedProblem, infer, release, shard
from relcrf.data.store import Store
from relcrf.execution import memory
from relcrf.execution.base import AbstractExecutor
from relcrf.execution.serial import SerialExecutor
from relcrf.inference.result import Observer, silent


@contextmanager
def in_pieces(
    store: Store | None, problem: Problem, executor: AbstractExecutor | None = None, vectors: int = memory.ASKING
) -> Iterator[ShardedProblem | None]:
    """Cut a problem into shards for as long as the context lasts; None where it is small and there is no executor.

    Args:
        store: Of the dataset: its memory limit, and the folder for the shards; None for one piece.
        vectors: The number of weight vectors that the work needs.

    Raises:
        UsageError: The problem needs more memory than is available.
    """
    if store is None:
        yield None
        return
    graph = problem.graph
    what = "learning" if vectors == memory.LEARNING else "inference"
    candidates = sum(space.nbytes for space in problem.candidates)
    memory.require(min(graph.nbytes, store.n_bytes) + candidates, graph.layout.size, vectors, what)
    if executor is None and graph.nbytes <= store.n_bytes:
        yield None
        return
    folder = store.folder()
    try:
        yield shard(problem, executor or SerialExecutor(), folder, store.n_bytes)
    finally:
        release()
        shutil.rmtree(folder, ignore_errors=True)


def infer_in_pieces(
    store: Store | None,
    problem: Problem,
    system: AbstractBackend,
    vectors: dict[str, np.ndarray],
    executor: AbstractExecutor | None = None,
    observe: Observer = silent,
) -> Inferred:
    """Infer on a problem, in shards where it is large.

    Args:
        observe: Receives the progress of an iterative method, where the problem is in one piece.
    """
    with in_pieces(store, problem, executor) as pieces:
        return infer(pieces, system, vectors) if pieces else system.infer(problem, vectors, observe)
