"""Copies of some factors of a ground graph, e.g. of the factors that learning reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from relcrf.columns.storage import ColumnBuilder, Storage
from relcrf.graph.components import iter_scope_chunks
from relcrf.graph.factor_graph import FactorGraph, FactorGroup, RepeatedScope
from relcrf.graph.features import AbstractFeatures, Tiled
from relcrf.graph.reduction import Role

MAX_USED_FRACTION = 0.75
"""Maximum fraction of used factors for which `select_used_factors` copies a group; a copy of almost all factors saves nothing."""

FACTORS_PER_CHUNK = 1 << 14
"""Number of factors that are copied at a time; the features of 2**14 bags of 100 words take 6 MiB."""


class SelectedFactors:
    """A copy of some factors of one group, in their order.

    Args:
        storage: The store of the columns, which are created when the first factor is added.
        name: Prefix of the names of the columns.
    """

    def __init__(self, group: FactorGroup, storage: Storage, name: str) -> None:
        self._group, self._storage, self._name = group, storage, name
        self._columns: dict[str, ColumnBuilder] = {}
        self._n_rows = 0

    def _append(self, name: str, values: np.ndarray) -> None:
        if name not in self._columns:
            width = values.shape[1] if values.ndim == 2 else 0
            self._columns[name] = self._storage.column(values.dtype, width, f"{self._name}.{name}")
        self._columns[name].append(values)

    def add_rows(self, rows: np.ndarray) -> None:
        """Append row indices of a `RepeatedScope`."""
        self._append("rows", rows)
        self._n_rows += len(rows)

    def add_factors(self, scope: Sequence[np.ndarray], features: AbstractFeatures, chosen: np.ndarray) -> None:
        """Append the chosen factors of a chunk of the group."""
        self._n_rows += len(chosen)
        for k, variables in enumerate(scope):
            self._append(f"scope{k}", variables[chosen])
        for name, column in features.take(chosen).columns().items():
            self._append(name, column)

    def finish(self) -> FactorGroup | None:
        """Return the group of the added factors; None if no factor was added."""
        if not self._columns:
            return None
        group = self._group
        columns = {name: column.finish() for name, column in self._columns.items()}
        if isinstance(group.scope, RepeatedScope):
            assert isinstance(group.features, Tiled)
            repeated = replace(group.scope, rows=columns["rows"])
            return replace(group, scope=repeated, features=replace(group.features, times=self._n_rows))
        scope = tuple(columns.pop(f"scope{k}") for k in range(len(group.scope)))
        return replace(group, scope=scope, features=group.features.from_columns(self._n_rows, columns))


def select_used_factors(graph: FactorGraph, roles: np.ndarray) -> FactorGraph:
    """Return the graph without the factors that learning never reads: those with an absent or without a free variable.

    The other factors are copied. Of a group in files, the used rows would otherwise take as much memory as all rows, because
    they share pages with the unused ones, and each reduction of the graph would read all factors. A group with few unused
    factors, or with repeated features, does not change.

    Args:
        roles: A `Role` for each variable, shape (n_variables,), int8.
    """
    groups = tuple(_select_used(group, roles) for group in graph.groups)
    is_changed = any(new is not old for new, old in zip(groups, graph.groups, strict=True))
    return replace(graph, groups=groups) if is_changed else graph


def _select_used(group: FactorGroup, roles: np.ndarray) -> FactorGroup:
    if isinstance(group.features, Tiled):
        return group
    used = np.concatenate([np.zeros(0, dtype=bool), *(_is_used(scope, roles) for scope in iter_scope_chunks(group))])
    if np.count_nonzero(used) >= MAX_USED_FRACTION * group.n_factors:
        return group
    selected = SelectedFactors(group, Storage(Path(), sys.maxsize), "")  # in memory
    start = 0
    for scope in iter_scope_chunks(group, FACTORS_PER_CHUNK):
        stop = start + len(scope[0])
        selected.add_factors(scope, group.features.take(slice(start, stop)), np.flatnonzero(used[start:stop]))
        start = stop
    found = selected.finish()
    assert found is not None
    return found


def _is_used(scope: Sequence[np.ndarray], roles: np.ndarray) -> np.ndarray:
    """Return the mask of the factors with a free and without an absent variable."""
    of_scope = [roles[variable] for variable in scope]
    is_present = np.logical_and.reduce([role != Role.ABSENT for role in of_scope])
    return np.asarray(is_present & np.logical_or.reduce([role == Role.FREE for role in of_scope]))
