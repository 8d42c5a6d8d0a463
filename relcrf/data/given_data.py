"""Data as users pass them to Python functions: a dataset, tables by name, one table, a graph, a folder or a path."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.data.dataset import Dataset
from relcrf.data.manifest import DATABASE_KINDS, FILE_NAME, is_applicable
from relcrf.data.python_tables import is_graph
from relcrf.data.readers.base import StoredFormat
from relcrf.data.toml_text import render_tables
from relcrf.errors import DataError, Diagnostic, listing
from relcrf.model.spec import ModelSpec, fold_name
from relcrf.model.types import Bag

GivenData = Dataset | Mapping[str, Any] | str | os.PathLike[str] | Any
"""A `Dataset` or its source (see there), a NetworkX graph, or the data frame of a model that reads one table."""


def to_dataset(
    data: GivenData, spec: ModelSpec | None = None, mapping: str | None = None, formats: tuple[StoredFormat, ...] = ()
) -> Dataset:
    """Return the dataset of the data that a user passed; a `Dataset` is returned as `Dataset.with_formats` returns it.

    Args:
        spec: The model; required if the data may be a single data frame, which becomes the table of the only entity type.
        mapping: The text of the manifest of the training data (`Dataset.mapping`). It is applied to tables by name, and
            to folders and databases that need it; a note of the dataset reports this.
        formats: The formats of CSV columns of the training data (`Dataset.formats`).

    Raises:
        DataError: The data cannot be read, or are a single data frame and the model reads several tables (E203).
        UsageError: See `Dataset`.
    """
    if isinstance(data, Dataset):
        return data.with_formats(formats)
    if is_graph(data):
        return Dataset.from_networkx(data)
    if not isinstance(data, str | os.PathLike | Mapping):
        data = {_table_of_frame(data, spec): data}
    if mapping is None or not (isinstance(data, Mapping) or needs_mapping(data, mapping)):
        return Dataset(data, formats=formats)
    if isinstance(data, Mapping):
        mapping = _mapping_of_tables(mapping, data)
    dataset = Dataset.from_mapping(data, mapping, formats=formats)
    if not isinstance(data, Mapping):
        dataset.notes.append(f"the tables of '{data}' are read as those of the training data")
    return dataset


def needs_mapping(data: str | os.PathLike[str], mapping: str) -> bool:
    """Return True if a manifest of training data applies to a path or URL; not if a folder has a manifest of its own."""
    path = Path(data)
    return not os.path.lexists(path / FILE_NAME) and path.suffix != ".toml" and is_applicable(mapping, path)


def _mapping_of_tables(mapping: str, names: Iterable[str]) -> str | None:
    """Return a manifest for tables by name, which take the place of the files; None if none of them does.

    A table takes the place of the file, or of the table of a database, of the entry that has its name, or that reads a file or a
    table of its name.
    """
    given = {fold_name(name): name for name in names}
    entries = tomllib.loads(mapping)["tables"]
    is_found, has_files = False, False
    for name, entry in entries.items():
        kind = next((key for key in ("file", *DATABASE_KINDS) if key in entry), None)
        if kind is None:
            continue
        own_name = entry.get("table", name) if kind in DATABASE_KINDS else Path(entry[kind]).name.partition(".")[0]
        found = given.get(fold_name(name), given.get(fold_name(own_name)))
        for key in (kind, "csv", "schema"):
            entry.pop(key, None)
        entry["table"] = name if found is None else found
        is_found, has_files = is_found or found is not None, True
    return None if has_files and not is_found else render_tables(entries)


def _table_of_frame(frame: Any, spec: ModelSpec | None) -> str:
    """Return the name of the table for a single data frame.

    Raises:
        DataError: The model reads several tables, or the value is not a table (E203).
    """
    kind = type(frame).__name__
    is_table = any(hasattr(frame, name) for name in ("columns", "__arrow_c_stream__")) or isinstance(frame, np.ndarray)
    names = [] if spec is None else _table_names(spec)
    if is_table and len(names) == 1:
        return names[0]
    example = names[0] if names else "page"
    hint = f"pass tables by name, such as {{'{example}': frame}}, or a folder, a file or a relcrf.Dataset"
    message = f"the data have type {kind} and are not tables"
    if is_table and names:
        message = f"the data are a single {kind}, and the model reads several tables: {listing(names)}"
    raise DataError(Diagnostic("E203", message, hint=hint))


def _table_names(spec: ModelSpec) -> list[str]:
    """Return the names of the tables that a model reads."""
    names = [entity.name for entity in spec.entities]
    names += [f"{e.name}_{a.name}" for e in spec.entities for a in e.attributes if isinstance(a.type, Bag)]
    return [*names, *(r.name for r in spec.relations), *(r.name for r in spec.random_relations)]
