"""Serialisation of factor groups: `.npy` columns in a folder, and a JSON description."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.columns.storage import find_mapped_file, open_column
from relcrf.graph.factor_graph import FactorGroup, RepeatedScope
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Ones, Sparse, Tiled


class ColumnWriter:
    """A writer of columns to one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written_names: set[str] = set()

    def write(self, array: np.ndarray) -> str:
        """Write an array and return its file name; do not copy an array that is mapped from a file of the folder."""
        path = find_mapped_file(array)
        if path is None or path.parent != self.folder:
            path = self.folder / f"array{len(self.written_names)}.npy"
            np.save(path, np.asarray(array), allow_pickle=False)
        self.written_names.add(path.name)
        return path.name

    def describe_group(self, group: FactorGroup) -> dict[str, Any]:
        """Write the arrays of a group and return the JSON description of the group."""
        scope = group.scope
        out: dict[str, Any] = {
            "cardinalities": list(group.cardinalities),
            "features": self.describe_features(group.features),
            "patterns": None if group.patterns is None else self.write(group.patterns),
            "block": group.block,
            "needs_marginals": group.needs_marginals,
        }
        if isinstance(scope, RepeatedScope):
            offsets = [self.write(column) for column in scope.offsets]
            steps = {"starts": list(scope.starts), "strides": list(scope.strides)}
            out["repeated"] = {"rows": self.write(scope.rows), **steps, "offsets": offsets}
        else:
            out["scope"] = [self.write(column) for column in scope]
        return out

    def describe_features(self, features: AbstractFeatures) -> dict[str, Any]:
        """Write the arrays of a feature matrix and return the JSON description of the matrix."""
        description: dict[str, Any] = {"kind": type(features).__name__.lower()}
        for name, value in vars(features).items():
            if isinstance(value, AbstractFeatures):
                value = self.describe_features(value)
            description[name] = self.write(value) if isinstance(value, np.ndarray) else value
        return description

    def remove_unused(self) -> None:
        """Remove the `.npy` files that no description contains."""
        for path in self.folder.glob("*.npy"):
            if path.name not in self.written_names:
                path.unlink()


def read_group(folder: Path, description: Mapping[str, Any]) -> FactorGroup:
    """Read a group from its JSON description.

    Raises:
        OSError, ValueError, KeyError: If files are missing or damaged.
    """
    repeated = description.get("repeated")
    scope: Sequence[np.ndarray]
    if repeated:
        offsets = tuple(_read_column(folder, name) for name in repeated["offsets"])
        rows = _read_column(folder, repeated["rows"])
        scope = RepeatedScope(rows, tuple(repeated["starts"]), tuple(repeated["strides"]), offsets)
    else:
        scope = tuple(_read_column(folder, name) for name in description["scope"])
    patterns = None if description["patterns"] is None else _read_column(folder, description["patterns"])
    features = _read_features(folder, description["features"])
    group = FactorGroup(
        scope,
        tuple(description["cardinalities"]),
        features,
        patterns,
        description["block"],
        bool(description.get("needs_marginals", False)),
    )
    if not _is_consistent(group):
        raise ValueError("the columns of a factor group have inconsistent shapes or types")
    return group


def _is_consistent(group: FactorGroup) -> bool:
    """Return True if the columns of a group are consistent; kernels do not check bounds and would corrupt memory."""
    scope, features = group.scope, group.features
    tile = features.tile if isinstance(features, Tiled) else features
    columns = scope.offsets if isinstance(scope, RepeatedScope) else scope
    n_rows = tile.n_rows * (len(scope.rows) if isinstance(scope, RepeatedScope) else 1)
    checks = [len(columns) == len(group.cardinalities), n_rows == features.n_rows]
    checks += [column.dtype == np.int32 and column.shape == (tile.n_rows,) for column in columns]
    if isinstance(scope, RepeatedScope):
        checks += [
            scope.rows.dtype == np.int32,
            scope.rows.ndim == 1,
            len(scope.starts) == len(scope.strides) == len(scope),
        ]
    if group.patterns is not None:
        checks += [group.patterns.shape == (group.n_joint_states, group.n_patterns), group.patterns.dtype == np.float64]
    return all(checks) and _is_matrix(tile)


def _is_matrix(features: AbstractFeatures) -> bool:
    match features:
        case Ones(n_rows):
            return isinstance(n_rows, int) and n_rows >= 0
        case Dense(values):
            return values.ndim == 2 and values.dtype == np.float64
        case Keyed(key, values, n_keys):
            fits = key.ndim == 1 and key.dtype == np.int32 and values.ndim == 2
            fits = fits and values.dtype in (np.float32, np.float64)
            return fits and len(values) in (0, len(key)) and _is_in_range(key, n_keys)
        case Sparse(row_start, column, values, n_features):
            fits = row_start.ndim == column.ndim == 1 and row_start.dtype == np.int64 and column.dtype == np.int32
            fits = fits and values.dtype == np.float32 and len(values) in (0, len(column)) and len(row_start) > 0
            fits = fits and row_start[0] == 0 and row_start[-1] == len(column) and bool((np.diff(row_start) >= 0).all())
            return fits and _is_in_range(column, n_features)
    return False


def _is_in_range(column: np.ndarray, size: int) -> bool:
    return not len(column) or (int(column.min()) >= 0 and int(column.max()) < size)


def matches_cardinality(group: FactorGroup, cardinality: np.ndarray) -> bool:
    """Return True if all variables of a group exist and have the group's `cardinalities`.

    Args:
        cardinality: Cardinality of all variables, shape (n_variables,).
    """
    return all(
        _is_in_range(scope, len(cardinality)) and bool((cardinality[scope] == k).all())
        for scope, k in zip(group.scope, group.cardinalities, strict=True)
    )


def _read_features(folder: Path, description: Mapping[str, Any]) -> AbstractFeatures:
    match description["kind"]:
        case "ones":
            return Ones(description["n_rows"])
        case "dense":
            return Dense(_read_column(folder, description["values"]))
        case "keyed":
            return Keyed(
                _read_column(folder, description["key"]),
                _read_column(folder, description["values"]),
                description["n_keys"],
            )
        case "sparse":
            row_start, column, values = (
                _read_column(folder, description[name]) for name in ("row_start", "column", "values")
            )
            return Sparse(
                row_start, column, values.reshape(-1), description["n_features"]
            )  # the file stores one row per binding
        case "tiled":
            return Tiled(_read_features(folder, description["tile"]), description["times"])
    raise ValueError(f"unknown features '{description['kind']}'")


def _read_column(folder: Path, name: str) -> np.ndarray:
    path = folder / name
    if os.path.dirname(os.path.realpath(path)) != os.path.realpath(folder) or not path.is_file():
        raise ValueError(f"'{name}' is not a file of the folder")
    return open_column(path)
