"""Learning and inference over shards: the same backends, on pieces of a graph that an executor deals to workers."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend, AbstractPart, AbstractSum, Inferred, Problem, Vector, require_joint
from relcrf.backends.registry import make
from relcrf.columns.offsets import offsets
from relcrf.errors import Diagnostic, UsageError
from relcrf.execution.base import AbstractExecutor
from relcrf.graph.reduction import Role
from relcrf.graph.shards import SHARD_FACTORS, cut, load_shard
from relcrf.inference.result import Verdict
from relcrf.learning.likelihood import AbstractLikelihood, curvature
from relcrf.learning.moments import label_moments
from relcrf.settings import names_of

FACTOR_BYTES = 300
"""What a factor takes while its shard is at work, about: its edge, its terms and its tables."""


@dataclass(frozen=True)
class ShardedProblem(Problem):
    """A problem whose components are in shards. Sums are the same bits whatever the executor.

    Args:
        shards: folders. folder: theirs, which every worker can read and write.
        keep: shards that a worker may hold at work at a time.
    """

    shards: Sequence[Path] = ()
    executor: AbstractExecutor = field(kw_only=True)
    folder: Path = field(kw_only=True)
    keep: int = field(kw_only=True, default=1)

    def sum_of(self, part: AbstractPart) -> AbstractSum:
        return _ShardedSum(self, part)

    def share(self, vector: np.ndarray) -> Vector:
        number = len(list(self.folder.glob("vector*.npy")))
        return Vector.of(vector, self.folder / f"vector{number}.npy")


def shard(
    problem: Problem,
    executor: AbstractExecutor,
    folder: Path,
    memory: int,
    watch: Callable[[str], None] = lambda text: None,
) -> ShardedProblem:
    """Cuts a problem into shards.

    Args:
        folder: empty; for a cluster, one that all its machines share.
        memory: bytes that a worker may take, about.
    """
    size = min(SHARD_FACTORS, max(1, memory // (8 * FACTOR_BYTES)))
    shards = cut(problem.graph, problem.roles, problem.states, folder, size, watch)
    n_factors = sum(group.n_factors for group in problem.graph.groups)
    held = max(size, n_factors // max(len(shards), 1)) * FACTOR_BYTES
    keep = max(1, memory // held)
    return ShardedProblem(
        problem.graph, problem.roles, problem.states, shards=shards, executor=executor, folder=folder, keep=keep
    )


def infer(problem: ShardedProblem, backend: AbstractBackend, vectors: Mapping[str, np.ndarray]) -> Inferred:
    """The answers of a backend for every shard, put together.

    Raises:
        UsageError: where the backend needs the graph in one piece.
    """
    require_pieces(backend)
    named = tuple(sorted((name, problem.share(vector)) for name, vector in vectors.items()))
    settings = {name: getattr(backend, name) for name in names_of(type(backend))}
    task = _Infer(backend.name, tuple(sorted(settings.items())), named)
    answers = problem.executor.map(task, problem.shards, np.empty(0))
    variables = np.flatnonzero(problem.roles == Role.FREE)
    state_start = offsets(problem.graph.cardinality[variables])
    marginals, states = np.empty(int(state_start[-1])), np.empty(len(variables), dtype=np.int32)
    edges = []
    for path in problem.shards:
        found = {name: np.load(path / f"{name}.npy", allow_pickle=False) for name in _Infer.FILES}
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
    return Inferred(variables, state_start, marginals, states, joined, log_partition, verdict)


def require_pieces(backend: AbstractBackend) -> None:
    """Raises UsageError where the backend needs the graph in one piece."""
    if backend.undivided:
        message = (
            f"backend '{backend.name}' needs the graph in one piece, and it is taken in pieces: {backend.undivided}"
        )
        raise UsageError(
            Diagnostic("E309", message, hint="give more --memory, and no --workers; or change the setting")
        )


def release() -> None:
    """Forgets the shards that this process has at work."""
    _at_work.clear()


@dataclass(frozen=True)
class _ShardedSum(AbstractSum):
    """A likelihood in pieces."""

    problem: ShardedProblem
    part: AbstractPart

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        problem = self.problem
        return problem.executor.map_reduce(_Evaluate(self.part, problem.keep), problem.shards, weights)

    def curvature(self) -> np.ndarray:
        problem = self.problem
        nothing = np.zeros(problem.graph.layout.size)
        return problem.executor.map_reduce(_Curvature(self.part, problem.keep), problem.shards, nothing)[1]

    def label_moments(self, weights: np.ndarray) -> np.ndarray:
        problem, task = self.problem, _LabelMoments(self.part, self.problem.keep)
        # A sum is as long as what is given for weights.
        return problem.executor.map_reduce(task, problem.shards, np.tile(weights, 2))[1]

    def sizes(self) -> tuple[int, int]:
        problem = self.problem
        found = problem.executor.map(_Sizes(self.part, problem.keep), problem.shards, np.empty(0))
        return sum(nodes for nodes, _ in found), sum(edges for _, edges in found)


_at_work: OrderedDict[tuple[AbstractPart, Path], AbstractLikelihood] = OrderedDict()
"""The likelihoods of shards that this process has made, the latest used last."""


def _likelihood(part: AbstractPart, path: Path, keep: int) -> AbstractLikelihood:
    known = _at_work.pop((part, path), None)
    if known is None:
        while len(_at_work) >= keep:
            _at_work.popitem(last=False)
        known = part.likelihood(_piece(path))
    _at_work[part, path] = known
    return known


def _piece(path: Path) -> Problem:
    loaded = load_shard(path)
    return Problem(loaded.graph, loaded.roles, loaded.states)


@dataclass(frozen=True)
class _Evaluate:
    """Value and gradient of a shard's likelihood."""

    part: AbstractPart
    keep: int

    def __call__(self, shard: Path, weights: np.ndarray) -> tuple[float, np.ndarray]:
        return _likelihood(self.part, shard, self.keep)(weights)


@dataclass(frozen=True)
class _Curvature:
    """The curvature of a shard's likelihood, in the place of a gradient."""

    part: AbstractPart
    keep: int

    def __call__(self, shard: Path, weights: np.ndarray) -> tuple[float, np.ndarray]:
        return 0.0, curvature(_likelihood(self.part, shard, self.keep).graph)


@dataclass(frozen=True)
class _LabelMoments:
    """The moments of a shard's labels, in the place of a gradient; the weights are given twice."""

    part: AbstractPart
    keep: int

    def __call__(self, shard: Path, weights: np.ndarray) -> tuple[float, np.ndarray]:
        likelihood = require_joint(_likelihood(self.part, shard, self.keep))
        return 0.0, label_moments(likelihood, weights[: len(weights) // 2])


@dataclass(frozen=True)
class _Sizes:
    """Numbers of nodes and of edges of a shard."""

    part: AbstractPart
    keep: int

    def __call__(self, shard: Path, weights: np.ndarray) -> tuple[int, int]:
        graph = _likelihood(self.part, shard, self.keep).graph
        return graph.n_nodes, graph.n_edges


@dataclass(frozen=True)
class _Infer:
    """Answers for a shard, written beside it; what travels back is the log partition and the verdict."""

    FILES = ("answered", "marginals", "map_states", "edges")

    backend: str
    settings: tuple[tuple[str, Any], ...]
    vectors: tuple[tuple[str, Vector], ...]

    def __call__(self, shard: Path, weights: np.ndarray) -> tuple[float, Verdict]:
        loaded = load_shard(shard)
        system = make(self.backend, **dict(self.settings))
        vectors = {name: vector.get() for name, vector in self.vectors}
        found = system.infer(Problem(loaded.graph, loaded.roles, loaded.states), vectors)
        variables = loaded.variables
        arrays = (variables[found.variables], found.marginals, found.map_states, variables[found.edges])
        for name, array in zip(self.FILES, arrays, strict=True):
            partial = shard / f".{name}.{os.getpid()}.npy"
            np.save(partial, array, allow_pickle=False)
            os.replace(partial, shard / f"{name}.npy")
        return found.log_partition, found.verdict
