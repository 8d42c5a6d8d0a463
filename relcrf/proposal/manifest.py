"""Manifests of proposals. A manifest renames columns of table files and defines queries that reshape tables."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from relcrf.data.dataset import quoted
from relcrf.language.keywords import is_name
from relcrf.model.spec import fold_name
from relcrf.printable import escape_unprintable
from relcrf.proposal.names import NamePool
from relcrf.proposal.profile import TableProfile


@dataclass
class ManifestBuilder:
    """A builder of a manifest.

    Args:
        folder: Folder of the table files; None if a manifest cannot be written because the tables are not files.
        policies: For tables and for `table.column` of references, the policies by name, as (value, comment).
        repeated_keys: The key columns of tables of which some rows repeat a key.
    """

    folder: Path | None
    files: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    queries: dict[str, tuple[str, str]] = field(default_factory=dict)
    open_tables: set[str] = field(default_factory=set)
    policies: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    repeated_keys: dict[str, str] = field(default_factory=dict)
    is_needed: bool = False
    names: NamePool = field(default_factory=NamePool)
    _entry_policies: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)

    def add_policy(self, owner: str, policy: str, value: str, comment: str) -> None:
        """Add a policy for the rows of a table or for a reference `table.column`; comments on one policy are joined."""
        _, *comments = self.policies.get(owner, {}).get(policy, (value,))
        self.policies.setdefault(owner, {})[policy] = (value, "; ".join([*comments, comment]))

    def can_query(self, *tables: TableProfile) -> bool:
        """Return True if the manifest can contain queries over these tables."""
        return self.folder is not None and all(Path(t.raw.location).parent == self.folder for t in tables)

    def add_file(self, table: TableProfile, name: str, columns: dict[str, str]) -> None:
        """Add a table file under its name in the model; `columns` maps names in the model to names in the file."""
        renamed = {new: old for new, old in columns.items() if new != old}
        is_same = fold_name(name) == fold_name(table.name)
        entry = table.name if is_same else name
        self.files[entry] = (Path(table.raw.location).name, renamed)
        self._entry_policies[entry] = self.policies.get(table.name, {})
        self.is_needed |= bool(renamed) or not is_same or bool(self._entry_policies[entry])

    def query_source(self, table: TableProfile) -> str:
        """Return the FROM item by which queries read a table; the table's name stays free for the result of a query.

        Policies do not apply to the rows that queries read, so the FROM item selects the first row of each key itself.
        """
        file = Path(table.raw.location).name
        source = next((n for n, (f, columns) in self.files.items() if f == file and not columns), None)
        if source is None or source == table.name:
            source = next((n for n, (f, _) in self.files.items() if f == file and n != table.name), None)
        if source is None:
            source = self.names.reserve(f"{table.name}_rows")
            self.files[source] = (file, {})
        if table.name not in self.repeated_keys:
            return quoted(source)
        key = f"trim(CAST({quoted(self.repeated_keys[table.name])} AS VARCHAR))"
        return f"(FROM {quoted(source)} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY rowid) = 1)"

    def add_query(self, name: str, sql: str, comment: str, reference: str = "") -> None:
        """Add a table that is defined by a query, with the policies for a reference `table.column` that it contains."""
        self.queries[name] = (sql, comment)
        self._entry_policies[name] = self.policies.get(reference, {})
        self.files.pop(name, None)
        self.is_needed = True

    def to_toml(self, model: str) -> str:
        """Return the manifest as TOML."""
        lines = [
            f"# {Path(model).stem}.toml: the tables of {model} in the shape that the model needs. Written by relcrf new."
        ]
        for name, (file, columns) in self.files.items():
            lines += ["", f"[tables.{_toml_key(name)}]", f"file = {_toml_text(file)}"]
            if columns:
                pairs = ", ".join(f"{_toml_key(new)} = {_toml_text(old)}" for new, old in columns.items())
                lines.append(f"columns = {{ {pairs} }}")
            lines += self._policy_lines(name)
            lines += ["open = true"] * (name in self.open_tables)
        for name, (sql, comment) in self.queries.items():
            lines += ["", f"# {comment}", f"[tables.{_toml_key(name)}]", f"sql = {_toml_text(sql)}"]
            lines += self._policy_lines(name)
            lines += ["open = true"] * (name in self.open_tables)
        return "\n".join(lines) + "\n"

    def _policy_lines(self, entry: str) -> list[str]:
        policies = self._entry_policies.get(entry, {})
        return [f'{name} = "{value}"  # {escape_unprintable(comment)}' for name, (value, comment) in policies.items()]


def _toml_key(name: str) -> str:
    return name if is_name(name) else _toml_text(name)


def _toml_text(value: str) -> str:
    """Return a TOML string. All JSON escapes are valid in TOML, and DEL is the only further character to escape."""
    if "\n" in value and "'''" not in value and all(c.isprintable() or c == "\n" for c in value):
        return f"'''\n{value}'''"
    return json.dumps(value, ensure_ascii=True)
