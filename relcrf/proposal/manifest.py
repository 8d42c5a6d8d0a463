"""The manifest of a proposal, where tables need another shape or another name of a column than their files have."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from relcrf.data.dataset import quoted
from relcrf.language.words import is_name
from relcrf.model.spec import folded
from relcrf.proposal.names import Names
from relcrf.proposal.profile import Profile


@dataclass
class Shaping:
    """The tables of a manifest in the making.

    Args:
        folder: of the files. None where no manifest can be written: files alone can be named in one.
    """

    folder: Path | None
    files: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    queries: dict[str, tuple[str, str]] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
    is_needed: bool = False
    names: Names = field(default_factory=Names)

    def can_shape(self, *tables: Profile) -> bool:
        """Whether queries over these tables can be written."""
        return self.folder is not None and all(Path(t.raw.place).parent == self.folder for t in tables)

    def take(self, table: Profile, name: str, columns: dict[str, str]) -> None:
        """A table as it is, under the model's name, with other names for some columns: the model's = the file's."""
        renamed = {new: old for new, old in columns.items() if new != old}
        is_same = folded(name) == folded(table.name)
        self.files[table.name if is_same else name] = (Path(table.raw.place).name, renamed)
        self.is_needed |= bool(renamed) or not is_same

    def rows_of(self, table: Profile) -> str:
        """The name of a table's rows in queries, where the name itself may be that of a query's result."""
        file = Path(table.raw.place).name
        known = next((n for n, (f, columns) in self.files.items() if f == file and not columns), None)
        if known is None or known == table.name:
            known = next((n for n, (f, _) in self.files.items() if f == file and n != table.name), None)
        if known is None:
            known = self.names.free(f"{table.name}_rows")
            self.files[known] = (file, {})
        return quoted(known)

    def query(self, name: str, sql: str, comment: str) -> None:
        """A table that a query makes."""
        self.queries[name] = (sql, comment)
        self.files.pop(name, None)
        self.is_needed = True

    def text(self, model: str) -> str:
        """The manifest as TOML."""
        out = [
            f"# {Path(model).stem}.toml: the tables of {model} in the shape that the model wants. Written by relcrf new."
        ]
        for name, (file, columns) in self.files.items():
            out += ["", f"[tables.{_key(name)}]", f"file = {_text(file)}"]
            if columns:
                pairs = ", ".join(f"{_key(new)} = {_text(old)}" for new, old in columns.items())
                out.append(f"columns = {{ {pairs} }}")
            out += ["open = true"] * (name in self.opened)
        for name, (sql, comment) in self.queries.items():
            out += ["", f"# {comment}", f"[tables.{_key(name)}]", f"sql = {_text(sql)}"]
            out += ["open = true"] * (name in self.opened)
        return "\n".join(out) + "\n"


def _key(name: str) -> str:
    return name if is_name(name) else _text(name)


def _text(value: str) -> str:
    """A TOML text; JSON's escapes are TOML's, but for DEL."""
    if "\n" in value and "'''" not in value and all(c.isprintable() or c == "\n" for c in value):
        return f"'''\n{value}'''"
    return json.dumps(value, ensure_ascii=True)
