"""Shards of a ground graph: disjoint sets of connected components, each stored in a folder.

Workers receive the path of a shard and call `load_shard`. A shard contains all factors over free variables of its
components, and copies of the clamped variables of these factors. A log-likelihood and its gradient are sums over
components, and therefore sums over shards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from relcrf.columns.storage import Storage
from relcrf.graph.components import iter_row_variables, iter_scope_chunks, label_components
from relcrf.graph.factor_files import ColumnWriter, read_group
from relcrf.graph.factor_graph import FactorGraph, FactorGroup, RepeatedScope
from relcrf.graph.factor_selection import SelectedFactors
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.kernels.distinct import distinct

SHARD_FACTORS = 1_000_000
"""Default number of factors per shard."""

STATES_PER_FACTOR = 8
"""Number of joint states from which a factor counts as several factors, because its arrays are larger than the factor."""

MAX_SHARDS = 128
"""Maximum number of shards, because each shard has a few open files while it is written."""


@dataclass(frozen=True)
class Shard:
    """Some connected components of a ground graph.

    Args:
        graph: Graph of the components; variables are renumbered in their original order.
        roles, states: Role and state of each variable of the shard, shape (n,).
        variables: Index of each variable of the shard in the original graph, ascending, shape (n,), int32.
    """

    graph: FactorGraph
    roles: np.ndarray
    states: np.ndarray
    variables: np.ndarray


def factor_load(group: FactorGroup) -> int:
    """Return the number of factors with a few joint states that need as much memory as one factor of a group."""
    return 1 if group.is_agreement else 1 + group.n_joint_states // STATES_PER_FACTOR


def cut_into_shards(
    graph: FactorGraph,
    roles: np.ndarray,
    states: np.ndarray,
    folder: Path,
    shard_factors: int = SHARD_FACTORS,
    on_progress: Callable[[str], None] = lambda text: None,
) -> list[Path]:
    """Partition a graph into shards. Peak memory is a few arrays of shape (n_variables,) and one shard.

    Args:
        roles: A `Role` for each variable, shape (n_variables,), int8.
        states: State of each variable, shape (n_variables,), int32.
        folder: Empty folder, in which one folder per shard is created.
        shard_factors: Target number of factors per shard, with large factors counted several times (`factor_load`). A
            component is never divided, so a shard may have more factors.
        on_progress: Function that is called with a description of each step.

    Returns:
        The folder of each shard, in ascending order of the lowest free variable in the shard.
    """
    on_progress("computing connected components")
    parent = label_components(graph, roles)
    shard_of, n_shards = _assign_shards(graph, roles, parent, shard_factors)
    folders = [folder / f"shard{k:04d}" for k in range(n_shards)]
    for shard_folder in folders:
        shard_folder.mkdir()
    (folder / "layout.json").write_text(json.dumps([asdict(block) for block in graph.layout.blocks]))
    shard_groups = []
    for number, group in enumerate(graph.groups):
        on_progress(f"cutting {graph.layout.blocks[group.block].name}")
        shard_groups.append(_distribute_group(group, number, roles, shard_of, folders))
    on_progress("writing shards")
    free = np.flatnonzero(shard_of >= 0)
    free = free[np.argsort(shard_of[free], kind="stable")]
    bounds = np.searchsorted(shard_of[free], np.arange(n_shards + 1))
    for k, shard_folder in enumerate(folders):
        groups = [group_in_shard for groups in shard_groups if (group_in_shard := groups[k]) is not None]
        _write_shard(shard_folder, groups, free[bounds[k] : bounds[k + 1]], graph.cardinality, roles, states)
    return folders


def read_load(folder: Path) -> int:
    """Return the number of factors of a shard, with large factors counted several times (`factor_load`)."""
    return int(json.loads((folder / "shard.json").read_text())["load"])


def load_shard(folder: Path) -> Shard:
    """Load a shard from its folder.

    Raises:
        OSError, ValueError, KeyError: If files of the shard are missing or damaged.
    """
    description = json.loads((folder / "shard.json").read_text())
    blocks = json.loads((folder.parent / "layout.json").read_text())
    variables, cardinality, roles, states = (
        np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("variables", "cardinality", "roles", "states")
    )
    groups = []
    for group_description in description["groups"]:
        group = read_group(folder, group_description)
        if isinstance(group.scope, RepeatedScope):
            # Expand the `RepeatedScope`; in a single shard, it is small.
            scope = tuple(np.searchsorted(variables, column).astype(np.int32) for column in group.scope)
            group = replace(group, scope=scope)
        groups.append(group)
    layout = WeightLayout(tuple(WeightBlock(**block) for block in blocks))
    return Shard(FactorGraph(cardinality, tuple(groups), layout), roles, states, variables)


def _assign_shards(graph: FactorGraph, roles: np.ndarray, parent: np.ndarray, size: int) -> tuple[np.ndarray, int]:
    """Return the shard of each variable (-1 if not free), shape (n_variables,), int32, and the number of shards."""
    free = roles == Role.FREE
    load = np.zeros(graph.n_variables, dtype=np.int64)
    for group in graph.groups:
        factors_per_row = len(group.scope.offsets[0]) if isinstance(group.scope, RepeatedScope) else 1
        row_load = factors_per_row * factor_load(group)
        for _, first in _iter_first_free(group, free):
            load += np.bincount(parent[first[first >= 0]], minlength=len(load)) * row_load
    size = max(size, int(load.sum()) // MAX_SHARDS + 1)
    roots = np.flatnonzero(free & (parent == np.arange(len(parent))))
    load_before = np.cumsum(load[roots]) - load[roots]
    _, shards = np.unique(load_before // size, return_inverse=True)
    root_shard = np.full(graph.n_variables, -1, dtype=np.int32)
    root_shard[roots] = shards
    return np.where(free, root_shard[parent], -1).astype(np.int32), int(shards.max(initial=-1)) + 1


def _iter_first_free(group: FactorGroup, free: np.ndarray) -> Iterator[tuple[list[np.ndarray], np.ndarray]]:
    """Yield chunks of factors (or of `RepeatedScope` rows): variables, and the first free variable of each, or -1."""
    scope = group.scope
    chunks = (
        (list(rows.T) for rows in iter_row_variables(scope))
        if isinstance(scope, RepeatedScope)
        else iter_scope_chunks(group)
    )
    for columns in chunks:
        first = np.full(len(columns[0]), -1, dtype=np.int64)
        for column in reversed(columns):
            first = np.where(free[column], column, first)
        yield columns, first


def _distribute_group(
    group: FactorGroup, number: int, roles: np.ndarray, shard_of: np.ndarray, folders: Sequence[Path]
) -> list[FactorGroup | None]:
    """Write a group's factors to shard folders; return the written group (not renumbered) of each shard, or None."""
    writers = [SelectedFactors(group, Storage(folder, 0), f"g{number}") for folder in folders]
    n_done = 0
    for scope, first in _iter_first_free(group, shard_of >= 0):
        chunk = slice(n_done, n_done + len(first))
        n_done = chunk.stop
        shard = np.where(first >= 0, shard_of[first], -1)
        if isinstance(group.scope, RepeatedScope):
            for k, chosen in _group_by_shard(shard):
                writers[k].add_rows(group.scope.rows[chunk][chosen])
            continue
        shard[np.logical_or.reduce([roles[variables] == Role.ABSENT for variables in scope])] = -1
        features = group.features.take(chunk)
        for k, chosen in _group_by_shard(shard):
            writers[k].add_factors(scope, features, chosen)
    return [writer.finish() for writer in writers]


def _group_by_shard(shard: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return tuples (shard, ascending indices of the shard's items); items with shard -1 are omitted."""
    order = np.argsort(shard, kind="stable")
    numbers, starts = np.unique(shard[order], return_index=True)
    index_sets = np.split(order, starts[1:])
    return [(int(k), indices) for k, indices in zip(numbers, index_sets, strict=True) if k >= 0]


def _write_shard(
    folder: Path,
    groups: Sequence[FactorGroup],
    free: np.ndarray,
    cardinality: np.ndarray,
    roles: np.ndarray,
    states: np.ndarray,
) -> None:
    """Renumber the variables of a shard and write it to its folder."""
    occurring = [free.astype(np.int32)]
    for group in groups:
        if isinstance(group.scope, RepeatedScope):
            occurring += [distinct(variables) for variables in iter_row_variables(group.scope)]
        else:
            occurring += [distinct(column) for column in group.scope]
    variables = distinct(np.concatenate(occurring))
    writer = ColumnWriter(folder)
    descriptions = []
    for group in groups:
        if not isinstance(group.scope, RepeatedScope):
            scope = tuple(np.searchsorted(variables, column).astype(np.int32) for column in group.scope)
            group = replace(group, scope=scope)
        descriptions.append(writer.describe_group(group))
    writer.remove_unused()
    arrays = {"variables": variables, "cardinality": cardinality[variables], "roles": roles[variables]}
    for name, array in {**arrays, "states": states[variables]}.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    load = sum(group.n_factors * factor_load(group) for group in groups)
    (folder / "shard.json").write_text(json.dumps({"groups": descriptions, "load": load}))
