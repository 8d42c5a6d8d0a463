"""The manifest of a proposal, where tables need another shape or another name of a column than their files have."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from relcrf.data.dataset import quoted
from relcrf.language.keywords import is_name
from relcrf.model.spec import fold_name
from relcrf.proposal.names import NamePool
from relcrf.proposal.profile import TableProfile


@dataclass
class ManifestBuilder:
    """The tables of a manifest in the making.

    Args:
        folder: of the files. None where no manifest can be written: files alone can be named in one.
    """

    folder: Path | None
    files: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    queries: dict[str, tuple[str, str]] = field(default_factory=dict)
    open_tables: set[str] = field(default_factory=set)
    is_needed: bool = False
    names: NamePool = field(default_factory=NamePool)

    def can_query(self, *tables: TableProfile) -> bool:
        """Whether queries over these tables can be written."""
        return self.folder is not None and all(Path(t.raw.location).parent == self.folder for t in tables)

    def add_file(self, table: TableProfile, name: str, columns: dict[str, str]) -> None:
        """A table as it is, under the model's name, with other names for some columns: the model's = the file's."""
        renamed = {new: old for new, old in columns.items() if new != old}
        is_same = fold_name(name) == fold_name(table.name)
        self.files[table.name if is_same else name] = (Path(table.raw.location).name, renamed)
        self.is_needed |= bool(renamed) or not is_same

    def query_source(self, table: TableProfile) -> str:
        """The name of a table's rows in queries, where the name itself may be that of a query's result."""
        file = Path(table.raw.location).name
        known = next((n for n, (f, columns) in self.files.items() if f == file and not columns), None)
        if known is None or known == table.name:
            known = next((n for n, (f, _) in self.files.items() if f == file and n != table.name), None)
        if known is None:
            known = self.names.reserve(f"{table.name}_rows")
            self.files[known] = (file, {})
        return quoted(known)

    def add_query(self, name: str, sql: str, comment: str) -> None:
        """A table that a query makes."""
        self.queries[name] = (sql, comment)
        self.files.pop(name, None)
        self.is_needed = True

    def to_toml(self, model: str) -> str:
        """The manifest as TOML."""
        out = [
            f"# {Path(model).stem}.toml: the tables of {model} in the shape that the model wants. Written by relcrf new."
        ]
        for name, (file, columns) in self.files.items():
            out += ["", f"[tables.{_toml_key(name)}]", f"file = {_toml_text(file)}"]
            if columns:
                pairs = ", ".join(f"{_toml_key(new)} = {_toml_text(old)}" for new, old in columns.items())
                out.append(f"columns = {{ {pairs} }}")
            out += ["open = true"] * (name in self.open_tables)
        for name, (sql, comment) in self.queries.items():
            out += ["", f"# {comment}", f"[tables.{_toml_key(name)}]", f"sql = {_toml_text(sql)}"]
            out += ["open = true"] * (name in self.open_tables)
        return "\n".join(out) + "\n"


def _toml_key(name: str) -> str:
    return name if is_name(name) else _toml_text(name)


def _toml_text(value: str) -> str:
    """A TOML text; JSON's escapes are TOML's, but for DEL."""
    if "\n" in value and "'''" not in value and all(c.isprintable() or c == "\n" for c in value):
        return f"'''\n{value}'''"
    return json.dumps(value, ensure_ascii=True)
