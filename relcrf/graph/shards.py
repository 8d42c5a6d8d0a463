"""A ground graph in pieces that do not depend on each other: cut between connected components, each piece a folder.

A shard is what travels: a path, and `load_shard`. It has all factors of its components with a free variable in them, and
copies of the clamped variables that these touch. Sums over components (a log-likelihood, its gradient) are sums over shards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from relcrf.columns.storage import ColumnBuilder, Storage
from relcrf.graph.components import iter_row_variables, iter_scope_chunks, label_components
from relcrf.graph.factor_files import ColumnWriter, read_group
from relcrf.graph.factor_graph import FactorGraph, FactorGroup, RepeatedScope
from relcrf.graph.features import AbstractFeatures, Tiled
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.kernels.distinct import distinct

SHARD_FACTORS = 1_000_000
MAX_SHARDS = 128
"""Each has a few open files while it is written."""


@dataclass(frozen=True)
class Shard:
    """A piece of a graph.

    Args:
        graph: its variables are numbered anew, in the same order.
        roles, states: of its variables, shape (n,).
        variables: their numbers in the whole graph, ascending, shape (n,), int32.
    """

    graph: FactorGraph
    roles: np.ndarray
    states: np.ndarray
    variables: np.ndarray


def cut_into_shards(
    graph: FactorGraph,
    roles: np.ndarray,
    states: np.ndarray,
    folder: Path,
    shard_factors: int = SHARD_FACTORS,
    on_progress: Callable[[str], None] = lambda text: None,
) -> list[Path]:
    """Cuts a graph into shards; what is held at a time is some arrays over the variables, and one shard.

    Args:
        roles: a `Role` for each variable, shape (n_variables,), int8. states: shape (n_variables,), int32.
        folder: empty, it gets a folder for each shard.
        shard_factors: factors that a shard should have. A component is not cut, so it may have more.

    Returns:
        The shards, ascending by the lowest variables of their components.
    """
    on_progress("finding components")
    parent = label_components(graph, roles)
    shard_of, n_shards = _assign_shards(graph, roles, parent, shard_factors)
    folders = [folder / f"shard{k:04d}" for k in range(n_shards)]
    for each in folders:
        each.mkdir()
    (folder / "layout.json").write_text(json.dumps([asdict(block) for block in graph.layout.blocks]))
    dealt = []
    for number, group in enumerate(graph.groups):
        on_progress(f"cutting {graph.layout.blocks[group.block].name}")
        dealt.append(_distribute_group(group, number, roles, shard_of, folders))
    on_progress("writing shards")
    free = np.flatnonzero(shard_of >= 0)
    free = free[np.argsort(shard_of[free], kind="stable")]
    bounds = np.searchsorted(shard_of[free], np.arange(n_shards + 1))
    for k, each in enumerate(folders):
        groups = [part for groups in dealt if (part := groups[k]) is not None]
        _write_shard(each, groups, free[bounds[k] : bounds[k + 1]], graph.cardinality, roles, states)
    return folders


def load_shard(folder: Path) -> Shard:
    """A shard from its folder.

    Raises:
        OSError, ValueError, KeyError: where its files are missing or damaged.
    """
    facts = json.loads((folder / "shard.json").read_text())
    blocks = json.loads((folder.parent / "layout.json").read_text())
    variables, cardinality, roles, states = (
        np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("variables", "cardinality", "roles", "states")
    )
    groups = []
    for described in facts["groups"]:
        group = read_group(folder, described)
        if isinstance(group.scope, RepeatedScope):
            # Structure that was repeated is expanded here, where it is small.
            scope = tuple(np.searchsorted(variables, place).astype(np.int32) for place in group.scope)
            group = replace(group, scope=scope)
        groups.append(group)
    layout = WeightLayout(tuple(WeightBlock(**block) for block in blocks))
    return Shard(FactorGraph(cardinality, tuple(groups), layout), roles, states, variables)


def _assign_shards(graph: FactorGraph, roles: np.ndarray, parent: np.ndarray, size: int) -> tuple[np.ndarray, int]:
    """The shard of each free variable, shape (n_variables,), int32, -1 for all others; and how many shards there are."""
    free = roles == Role.FREE
    load = np.zeros(graph.n_variables, dtype=np.int64)
    for group in graph.groups:
        each = len(group.scope.offsets[0]) if isinstance(group.scope, RepeatedScope) else 1
        for _, first in _iter_first_free(group, free):
            load += np.bincount(parent[first[first >= 0]], minlength=len(load)) * each
    size = max(size, int(load.sum()) // MAX_SHARDS + 1)
    roots = np.flatnonzero(free & (parent == np.arange(len(parent))))
    before = np.cumsum(load[roots]) - load[roots]
    _, numbers = np.unique(before // size, return_inverse=True)
    of_root = np.full(graph.n_variables, -1, dtype=np.int32)
    of_root[roots] = numbers
    return np.where(free, of_root[parent], -1).astype(np.int32), int(numbers.max(initial=-1)) + 1


def _iter_first_free(group: FactorGroup, free: np.ndarray) -> Iterator[tuple[list[np.ndarray], np.ndarray]]:
    """Yield some factors, or rows of repeated structure, after others: their variables, and the first free one of each or -1."""
    scope = group.scope
    parts = (
        (list(rows.T) for rows in iter_row_variables(scope))
        if isinstance(scope, RepeatedScope)
        else iter_scope_chunks(group)
    )
    for places in parts:
        first = np.full(len(places[0]), -1, dtype=np.int64)
        for place in reversed(places):
            first = np.where(free[place], place, first)
        yield places, first


def _distribute_group(
    group: FactorGroup, number: int, roles: np.ndarray, shard_of: np.ndarray, folders: Sequence[Path]
) -> list[FactorGroup | None]:
    """A group's factors in the folders of their shards, with the numbers of the whole graph; None for a shard without any."""
    growing = [_ShardGroupWriter(group, number, folder) for folder in folders]
    done = 0
    for scope, first in _iter_first_free(group, shard_of >= 0):
        part = slice(done, done + len(first))
        done = part.stop
        shard = np.where(first >= 0, shard_of[first], -1)
        if isinstance(group.scope, RepeatedScope):
            for k, chosen in _group_by_shard(shard):
                growing[k].add_rows(group.scope.rows[part][chosen])
            continue
        shard[np.logical_or.reduce([roles[place] == Role.ABSENT for place in scope])] = -1
        features = group.features.take(part)
        for k, chosen in _group_by_shard(shard):
            growing[k].add_factors(scope, features, chosen)
    return [each.finish() for each in growing]


def _group_by_shard(shard: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """For each shard that there is, the indices that have it, ascending."""
    order = np.argsort(shard, kind="stable")
    numbers, starts = np.unique(shard[order], return_index=True)
    parts = np.split(order, starts[1:])
    return [(int(k), part) for k, part in zip(numbers, parts, strict=True) if k >= 0]


class _ShardGroupWriter:
    """A group's factors in one shard, in the making. Its columns are made with the first factor."""

    def __init__(self, group: FactorGroup, number: int, folder: Path) -> None:
        self._group, self._number, self._storage = group, number, Storage(folder, 0)
        self._columns: dict[str, ColumnBuilder] = {}
        self._n_rows = 0

    def _append(self, name: str, values: np.ndarray) -> None:
        if name not in self._columns:
            width = values.shape[1] if values.ndim == 2 else 0
            self._columns[name] = self._storage.column(values.dtype, width, f"g{self._number}.{name}")
        self._columns[name].append(values)

    def add_rows(self, rows: np.ndarray) -> None:
        """Add rows of repeated structure."""
        self._append("rows", rows)
        self._n_rows += len(rows)

    def add_factors(self, scope: Sequence[np.ndarray], features: AbstractFeatures, chosen: np.ndarray) -> None:
        """Some factors of a part of the group."""
        self._n_rows += len(chosen)
        for k, place in enumerate(scope):
            self._append(f"scope{k}", place[chosen])
        for name, column in features.take(chosen).columns().items():
            self._append(name, column)

    def finish(self) -> FactorGroup | None:
        if not self._n_rows:
            return None
        group = self._group
        found = {name: column.finish() for name, column in self._columns.items()}
        if isinstance(group.scope, RepeatedScope):
            assert isinstance(group.features, Tiled)
            repeated = replace(group.scope, rows=found["rows"])
            return replace(group, scope=repeated, features=replace(group.features, times=self._n_rows))
        scope = tuple(found.pop(f"scope{k}") for k in range(len(group.scope)))
        return replace(group, scope=scope, features=group.features.from_columns(self._n_rows, found))


def _write_shard(
    folder: Path,
    groups: Sequence[FactorGroup],
    free: np.ndarray,
    cardinality: np.ndarray,
    roles: np.ndarray,
    states: np.ndarray,
) -> None:
    """Numbers the variables of a shard, and writes it."""
    seen = [free.astype(np.int32)]
    for group in groups:
        if isinstance(group.scope, RepeatedScope):
            seen += [distinct(variables) for variables in iter_row_variables(group.scope)]
        else:
            seen += [distinct(place) for place in group.scope]
    variables = distinct(np.concatenate(seen))
    columns = ColumnWriter(folder)
    described = []
    for group in groups:
        if not isinstance(group.scope, RepeatedScope):
            scope = tuple(np.searchsorted(variables, place).astype(np.int32) for place in group.scope)
            group = replace(group, scope=scope)
        described.append(columns.describe_group(group))
    columns.remove_unused()
    named = {"variables": variables, "cardinality": cardinality[variables], "roles": roles[variables]}
    for name, array in {**named, "states": states[variables]}.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    (folder / "shard.json").write_text(json.dumps({"groups": described}))
