"""Manifests of proposals. A manifest renames columns of table files and defines queries that reshape tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from relcrf.data.dataset import quoted
from relcrf.data.toml_text import toml_key, toml_value
from relcrf.model.spec import fold_name
from relcrf.printable import escape_unprintable
from relcrf.proposal.names import NamePool
from relcrf.proposal.profile import TableProfile


@dataclass(frozen=True)
class TableFile:
    """The file of a table in its folder, and the name of the table in this file; None if it is the only one.

    `name` is empty if the tables are not files of a folder.
    """

    name: str
    table: str | None

    @classmethod
    def of(cls, table: TableProfile) -> TableFile:
        """Return the file of a table."""
        return cls(table.raw.path.name, table.raw.inner_name)


@dataclass
class ManifestBuilder:
    """A builder of a manifest.

    Args:
        folder: Folder of the table files; None if the tables are not files of a folder.
        is_possible: Whether a manifest can be applied to the tables; not if they already have one.
        policies: For tables and for `table.column` of references, the policies by name, as (value, comment).
        repeated_keys: The key columns of tables of which some rows repeat a key.
        missing_texts: The texts of cells without a value.
        digits: The number of digits of codes whose leading zeros are missing, by column.
        formats: The formats of numbers and dates, by column.
    """

    folder: Path | None
    is_possible: bool = True
    files: dict[str, tuple[TableFile, dict[str, str]]] = field(default_factory=dict)
    queries: dict[str, tuple[str, str]] = field(default_factory=dict)
    open_tables: set[str] = field(default_factory=set)
    policies: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    repeated_keys: dict[str, str] = field(default_factory=dict)
    missing_texts: dict[TableFile, list[str] | dict[str, list[str]]] = field(default_factory=dict)
    digits: dict[TableFile, dict[str, int]] = field(default_factory=dict)
    formats: dict[TableFile, dict[str, str]] = field(default_factory=dict)
    elements: dict[str, tuple[TableProfile, tuple[str, str], str]] = field(default_factory=dict)
    """Tables of the elements of list columns, as triples (table of the lists, query before and after its rows, comment)."""
    words: dict[str, dict[str, str]] = field(default_factory=dict)
    """The columns of texts by the name of the column of their words, for each table by its folded name."""
    is_needed: bool = False
    names: NamePool = field(default_factory=NamePool)
    _sources: dict[TableFile, str] = field(default_factory=dict)
    """The names by which queries read files."""
    _entry_policies: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    _entry_keys: dict[str, str] = field(default_factory=dict)
    """The keys of entries whose duplicates are repaired before queries read the rows."""
    _query_columns: dict[str, dict[str, str]] = field(default_factory=dict)
    """For queries, the names of columns in the model and in the result of the query, if they differ."""
    _complete_queries: set[str] = field(default_factory=set)
    """The tables defined by queries whose results contain all columns of their file."""

    def add_policy(self, owner: str, policy: str, value: str, comment: str) -> None:
        """Add a policy for the rows of a table or for a reference `table.column`; comments on one policy are joined."""
        _, *comments = self.policies.get(owner, {}).get(policy, (value,))
        self.policies.setdefault(owner, {})[policy] = (value, "; ".join([*comments, comment]))

    def add_elements(self, name: str, table: TableProfile, query: tuple[str, str], comment: str) -> None:
        """Add a table of the elements of lists in another table, with the query before and after the rows of this table."""
        self.elements[name] = (table, query, comment)

    def can_query(self, *tables: TableProfile) -> bool:
        """Return True if the manifest can contain queries over these tables."""
        if self.folder is None:
            return self.is_possible
        return all(Path(t.raw.location).parent == self.folder for t in tables)

    def file_of(self, table: TableProfile) -> TableFile:
        """Return the file of a table, or its name if the tables are not files of a folder."""
        return TableFile("", table.name) if self.folder is None else TableFile.of(table)

    def add_file(self, table: TableProfile, name: str, columns: dict[str, str]) -> None:
        """Add a table file under its name in the model; `columns` maps names in the model to names in the file."""
        if table.name in self.elements:
            self.add_query(name, self._elements_sql(table), self.elements[table.name][2], table.name, columns=columns)
            return
        renamed = {new: old for new, old in columns.items() if new != old}
        is_same = fold_name(name) == fold_name(table.name)
        entry, file, policies = table.name if is_same else name, self.file_of(table), self.policies.get(table.name, {})
        self.files[entry], self._entry_policies[entry] = (file, renamed), policies
        is_converted = any(file in each for each in (self.missing_texts, self.formats, self.digits))
        self.is_needed |= bool(renamed or policies) or not is_same or is_converted

    def query_source(self, table: TableProfile) -> str:
        """Return the quoted name by which queries read a table; the table's name stays free for the result of a query.

        If rows repeat a key, queries read only the first row of each key: the result of a query may have any order.
        """
        if table.name in self.elements:
            return f"({self._elements_sql(table)})"
        file = self.file_of(table)
        if file not in self._sources:
            self._sources[file] = self.names.reserve(f"{table.name}_rows")
            self.files[self._sources[file]] = (file, {})
        source = self._sources[file]
        if table.name in self.repeated_keys:
            self._entry_keys[source] = self.repeated_keys[table.name]
            self._entry_policies.setdefault(source, {})["duplicates"] = self.policies[table.name]["duplicates"]
        return quoted(source)

    def _elements_sql(self, table: TableProfile) -> str:
        """Return the query that defines a table of the elements of lists."""
        owner, query, _ = self.elements[table.name]
        return self.query_source(owner).join(query)

    def add_query(
        self, name: str, sql: str, comment: str, *references: str, columns: dict[str, str] | None = None
    ) -> None:
        """Add a table that is defined by a query.

        Args:
            references: The references `table.column` in the query, whose policies apply to the result.
            columns: Names in the model of columns of the query.
        """
        self.queries[name] = (sql, comment)
        self._query_columns[name] = {new: old for new, old in (columns or {}).items() if new != old}
        self._entry_policies[name] = {k: v for r in references for k, v in self.policies.get(r, {}).items()}
        self.files.pop(name, None)
        self.is_needed = True

    def join_query(self, name: str, table: TableProfile | None, key: str, columns: str, rows: str) -> None:
        """Add columns of another query to the query that defines a table.

        Args:
            table: The table file that has the name if no query defines it.
            key: The key column of the table in the model.
            columns: The columns to add.
            rows: The other query, called `e` in `columns`. Its column `entity` contains values of the key.
        """
        renamed = self._query_columns.get(name, {})
        sql, comment = self.queries.get(name, ("", f"one row for each {name} entity"))
        policies = self._entry_policies.get(name, {})
        if not sql:
            assert table is not None
            # The other policies apply to the result, so that the repaired rows are counted.
            policies = {k: v for k, v in self.policies.get(table.name, {}).items() if k != "duplicates"}
            renamed = next((c for n, (_, c) in self.files.items() if fold_name(n) == fold_name(name)), {})
            sql = f"SELECT * FROM {self.query_source(table)}"
            self._complete_queries.add(name)
            self.files = {n: entry for n, entry in self.files.items() if fold_name(n) != fold_name(name)}
        join = f"LEFT JOIN (\n{rows}\n) AS e ON e.entity = h.{quoted(renamed.get(key, key))}"
        self.add_query(name, f"SELECT h.*, {columns}\nFROM (\n{sql}\n) AS h\n{join}", comment, columns=renamed)
        self._entry_policies[name] = policies

    def has_all_columns(self, name: str) -> bool:
        """Return True if a table of the model has all columns of its file."""
        return name not in self.queries or name in self._complete_queries

    def add_words(self, name: str, words: dict[str, str]) -> None:
        """Add columns of the words of texts to a table; `words` maps their names to the columns of the texts."""
        self.words[fold_name(name)] = words
        self.is_needed = True

    def to_toml(self, model: str) -> str:
        """Return the manifest as TOML."""
        path = escape_unprintable(model)
        lines = [
            f"# {Path(path).stem}.toml: the tables of {path} in the shape that the model needs. Written by relcrf new."
        ]
        for name, (file, columns) in self.files.items():
            lines += ["", f"[tables.{toml_key(name)}]"]
            lines += [f"file = {toml_value(file.name)}"] if file.name else []
            lines += [] if file.table is None else [f"table = {toml_value(file.table)}"]
            if columns:
                lines.append(f"columns = {toml_value(columns)}")
            if file in self.missing_texts:
                lines.append(f"missing = {toml_value(self.missing_texts[file])}")
            if file in self.formats:
                lines.append(f"formats = {toml_value(self.formats[file])}")
            if file in self.digits:
                lines.append(f"digits = {toml_value(self.digits[file])}")
            lines += self._words_lines(name)
            if name in self._entry_keys:
                lines.append(f"key = {toml_value(self._entry_keys[name])}")
            lines += self._policy_lines(name)
            lines += ["open = true"] * (name in self.open_tables)
        for name, (sql, comment) in self.queries.items():
            lines += ["", f"# {escape_unprintable(comment)}", f"[tables.{toml_key(name)}]", f"sql = {toml_value(sql)}"]
            if self._query_columns[name]:
                lines.append(f"columns = {toml_value(self._query_columns[name])}")
            lines += self._words_lines(name)
            lines += self._policy_lines(name)
            lines += ["open = true"] * (name in self.open_tables)
        return "\n".join(lines) + "\n"

    def _words_lines(self, entry: str) -> list[str]:
        words = self.words.get(fold_name(entry))
        return [f"words = {toml_value(words)}"] if words else []

    def _policy_lines(self, entry: str) -> list[str]:
        policies = self._entry_policies.get(entry, {})
        return [f'{name} = "{value}"  # {escape_unprintable(comment)}' for name, (value, comment) in policies.items()]
