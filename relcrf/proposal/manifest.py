"""Manifests of proposals. A manifest renames columns of table files and defines queries that reshape tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from relcrf.data.dataset import quoted
from relcrf.data.toml_text import toml_key, toml_value
from relcrf.model.spec import fold_name
from relcrf.proposal.names import NamePool
from relcrf.proposal.profile import TableProfile


@dataclass(frozen=True)
class TableFile:
    """The file of a table in its folder, and the name of the table in this file; None if it is the only one."""

    name: str
    table: str | None

    @classmethod
    def of(cls, table: TableProfile) -> TableFile:
        """Return the file of a table."""
        location, inner = table.raw.location, table.raw.inner_name
        path = location if inner is None else location.removesuffix(f"'{inner}'").rpartition(", ")[0]
        return cls(Path(path).name, inner)


@dataclass
class ManifestBuilder:
    """A builder of a manifest.

    Args:
        folder: Folder of the table files; None if a manifest cannot be written because the tables are not files.
    """

    folder: Path | None
    files: dict[str, tuple[TableFile, dict[str, str]]] = field(default_factory=dict)
    queries: dict[str, tuple[str, str]] = field(default_factory=dict)
    open_tables: set[str] = field(default_factory=set)
    is_needed: bool = False
    names: NamePool = field(default_factory=NamePool)

    def can_query(self, *tables: TableProfile) -> bool:
        """Return True if the manifest can contain queries over these tables."""
        return self.folder is not None and all(Path(t.raw.location).parent == self.folder for t in tables)

    def add_file(self, table: TableProfile, name: str, columns: dict[str, str]) -> None:
        """Add a table file under its name in the model; `columns` maps names in the model to names in the file."""
        renamed = {new: old for new, old in columns.items() if new != old}
        is_same = fold_name(name) == fold_name(table.name)
        self.files[table.name if is_same else name] = (TableFile.of(table), renamed)
        self.is_needed |= bool(renamed) or not is_same

    def query_source(self, table: TableProfile) -> str:
        """Return a quoted name by which queries read a table; the table's name stays free for the result of a query."""
        file = TableFile.of(table)
        source = next((n for n, (f, columns) in self.files.items() if f == file and not columns), None)
        if source is None or source == table.name:
            source = next((n for n, (f, _) in self.files.items() if f == file and n != table.name), None)
        if source is None:
            source = self.names.reserve(f"{table.name}_rows")
            self.files[source] = (file, {})
        return quoted(source)

    def add_query(self, name: str, sql: str, comment: str) -> None:
        """Add a table that is defined by a query."""
        self.queries[name] = (sql, comment)
        self.files.pop(name, None)
        self.is_needed = True

    def to_toml(self, model: str) -> str:
        """Return the manifest as TOML."""
        lines = [
            f"# {Path(model).stem}.toml: the tables of {model} in the shape that the model needs. Written by relcrf new."
        ]
        for name, (file, columns) in self.files.items():
            lines += ["", f"[tables.{toml_key(name)}]", f"file = {toml_value(file.name)}"]
            lines += [] if file.table is None else [f"table = {toml_value(file.table)}"]
            if columns:
                lines.append(f"columns = {toml_value(columns)}")
            lines += ["open = true"] * (name in self.open_tables)
        for name, (sql, comment) in self.queries.items():
            lines += ["", f"# {comment}", f"[tables.{toml_key(name)}]", f"sql = {toml_value(sql)}"]
            lines += ["open = true"] * (name in self.open_tables)
        return "\n".join(lines) + "\n"
