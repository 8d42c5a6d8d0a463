"""What every executor does with shards, and what is asked of the work.

A shard is a folder that the worker opens itself: what travels is its path, the weights, and the answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from relcrf.execution.summation import Node, joined, total

Result_co = TypeVar("Result_co", covariant=True)
T = TypeVar("T")


class Task(Protocol[Result_co]):
    """Work on one shard: picklable, and importable by name where it is to run, so no lambda and nothing of `__main__`.

    The weights are read only, of shape (n_weights,) and type float64. A task may keep what it has loaded in a cache of its
    module: an executor gives the same shards to the same worker where it can.
    """

    def __call__(self, shard: Path, weights: np.ndarray) -> Result_co: ...


class Work(Protocol[T]):
    """Work on a run of consecutive shards, of which the first stands at position `start` of all."""

    def __call__(self, start: int, shards: Sequence[Path], weights: np.ndarray) -> list[T]: ...


class AbstractExecutor(ABC):
    """Does a task on every shard, somewhere. Use it as a context manager, or `close` it.

    A task's exception comes back as itself, with a note that names the shard.
    """

    def map_reduce(
        self, task: Task[tuple[float, np.ndarray]], shards: Sequence[Path], weights: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """The sum of a value and its gradient over the shards: the same bits for every executor and number of workers.

        Args:
            task: gives a value and a gradient of the shape of the weights, which it does not change afterwards.
            weights: shape (n_weights,), float64.

        Returns:
            Value and gradient, shape (n_weights,). Zeros where there is no shard.
        """
        return total(self._spread(_Sums(task), shards, weights), len(weights))

    def map(self, task: Task[T], shards: Sequence[Path], weights: np.ndarray) -> list[T]:
        """The task's results in the order of the shards; they are pickled, so small ones, such as a file's name."""
        return list(self._spread(_Results(task), shards, weights))

    @abstractmethod
    def _spread(self, work: Work[T], shards: Sequence[Path], weights: np.ndarray) -> Iterator[T]:
        """Does the work on consecutive runs of shards, of any lengths; the answers in the order of the shards."""

    def close(self) -> None:
        """Ends what the executor has started. The default is for those that start nothing."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def consecutive(n_shards: int, n_workers: int) -> list[range]:
    """Positions for each worker, as even as can be; fewer runs than workers where there are fewer shards."""
    n_runs = min(n_shards, n_workers)
    return [range(k * n_shards // n_runs, (k + 1) * n_shards // n_runs) for k in range(n_runs)]


@dataclass(frozen=True)
class _Results(Generic[T]):
    """The work of `map`."""

    task: Task[T]

    def __call__(self, start: int, shards: Sequence[Path], weights: np.ndarray) -> list[T]:
        return list(_results(self.task, shards, weights))


@dataclass(frozen=True)
class _Sums:
    """The work of `map_reduce`."""

    task: Task[tuple[float, np.ndarray]]

    def __call__(self, start: int, shards: Sequence[Path], weights: np.ndarray) -> list[Node]:
        results = enumerate(_results(self.task, shards, weights), start)
        return joined(_leaf(position, *result, weights) for position, result in results)


def _leaf(position: int, value: float, gradient: np.ndarray, weights: np.ndarray) -> Node:
    if gradient.shape != weights.shape:
        raise ValueError(f"the gradient has shape {gradient.shape}, and the weights {weights.shape}")
    return Node(position, 1, value, gradient)


def _results(task: Task[T], shards: Sequence[Path], weights: np.ndarray) -> Iterator[T]:
    for shard in shards:
        with _Naming(shard):
            result = task(shard, weights)
        yield result


@dataclass(frozen=True)
class _Naming:
    """Adds the shard to what is raised within."""

    shard: Path

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"in shard {self.shard}")
