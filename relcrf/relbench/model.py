"""The conversion of a RelBench task to a model and a manifest that reads the files of the dataset in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from relcrf.data.dataset import quoted
from relcrf.data.toml_text import render_tables, toml_value
from relcrf.files import atomic_path
from relcrf.language.format import format_text
from relcrf.language.keywords import RESERVED_FOR_ATTRIBUTES
from relcrf.proposal.names import NamePool, attribute_name, camel_case
from relcrf.relbench.files import RelBenchTable, read_database, read_task, task_error

DECAYS = (30, 365)
"""The times, in days, in which the weight of a row decays by a factor of e: a month and a year."""

MAX_CLASSES = 50
"""Maximum number of different integers that are classes; more are numbers."""

_NUMBERS = {"FLOAT": "real", "DOUBLE": "real"} | dict.fromkeys(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"), "integer"
)
"""The type of an attribute for each type of a numeric column."""


@dataclass(frozen=True)
class TaskModel:
    """The text of a model and of the manifest for `--data FOLDER --manifest FILE`."""

    text: str
    manifest: str

    def write(self, model: Path) -> None:
        """Write the model, and the manifest with the suffix `.toml`."""
        for path, text in ((model, self.text), (model.with_suffix(".toml"), self.manifest)):
            with atomic_path(path) as unfinished:
                unfinished.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class _EntityType:
    """An entity type of the model for a table of the database."""

    name: str
    key: str
    table: RelBenchTable
    attributes: Mapping[str, str]
    relations: Mapping[str, str]

    @property
    def numbers(self) -> list[str]:
        """The names of the numeric attributes."""
        return [self.attributes[c] for c, kind in self.table.values.items() if kind in _NUMBERS]

    @property
    def time(self) -> str | None:
        return None if self.table.time is None else self.attributes[self.table.time]


def convert_task(folder: Path, task: str) -> TaskModel:
    """Convert a task to a model with `as of`, and a manifest with the split of the task.

    Args:
        folder: the folder of a RelBench dataset.
        task: the name of a classification or regression task of this dataset.

    Raises:
        UsageError: if the files are not in the format of RelBench, or the task does not predict an attribute of entities.
    """
    with duckdb.connect() as connection:
        tables, parts = read_database(connection, folder), read_task(connection, folder, task)
        target_column, target_type = _find_target(connection, folder, task, parts)
    train, is_number = parts["train"], target_type == "real"
    (entity_column, entity_table), time = next(iter(train.foreign_keys.items())), train.time
    names = NamePool(["Task"])
    types = {name: _entity_type(table, names) for name, table in tables.items()}
    of = names.reserve("Of")
    own = NamePool(["id"])
    target, clock = (own.reserve(_safe_attribute(column)) for column in (target_column, time or ""))
    declarations = [
        f"entity Task {{ predict {target} : {target_type}  time {clock} : datetime }}",
        *(_declare(each) for each in types.values()),
        f"relation {of}(task: Task, subject: {types[entity_table].name})",
        *(
            f"relation {relation}(source: {each.name}, target: {types[each.table.foreign_keys[column]].name})"
            for each in types.values()
            for column, relation in each.relations.items()
        ),
        "\n".join(
            [
                f"feature score(p: Task) = {'regressor' if is_number else 'classifier'} of p.{target} from",
                ",\n".join(_inputs(types, entity_table, of, None if is_number else target, clock)),
                "using boosting as of p",
            ]
        ),
        f"template prior(p: Task) over p.{target}",
        f"template score(p: Task) over p.{target} by {'1, ' if is_number else ''}score(p)",
    ]
    return TaskModel(
        format_text("\n\n".join(declarations)),
        _manifest(types, parts, of, (entity_column, str(time), target_column), (target, clock), target_type == "bool"),
    )


def _find_target(
    connection: duckdb.DuckDBPyConnection, folder: Path, task: str, parts: Mapping[str, RelBenchTable]
) -> tuple[str, str]:
    """Return the target column of a task and the type of its values in the model."""
    train = parts["train"]
    columns = list(train.values)
    if train.time is None or len(train.foreign_keys) != 1 or len(columns) != 1:
        message = f"the task '{task}' does not predict one column of one entity at a time"
        raise task_error(message, "convert a classification or regression task, such as driver-dnf of rel-f1")
    (column,), kind = columns, train.values[columns[0]]
    query = f"SELECT count(DISTINCT {quoted(column)}), min({quoted(column)}), max({quoted(column)})"
    paths = [str(folder / part.path) for part in parts.values()]
    query += " FROM read_parquet(?, union_by_name = true)"
    ((n_values, low, high),) = connection.execute(query, [paths]).fetchall()
    if kind == "BOOLEAN" or (kind in _NUMBERS and n_values <= 2 and {low, high} <= {0, 1}):
        return column, "bool"
    if kind not in _NUMBERS:
        message = f"the target '{column}' of the task '{task}' is neither a class nor a number: its type is {kind}"
        raise task_error(message, "recommendation tasks are not supported; convert a classification or regression task")
    return column, f"{low}..{high}" if _NUMBERS[kind] == "integer" and n_values <= MAX_CLASSES else "real"


def _entity_type(table: RelBenchTable, names: NamePool) -> _EntityType:
    name = names.reserve(camel_case(table.name))
    pool = NamePool([table.key or ""])
    columns = [
        c for c, kind in table.columns.items() if c == table.time or (c in table.values and _attribute_type(kind))
    ]
    attributes = {column: pool.reserve(_safe_attribute(column)) for column in columns}
    relations = {column: names.reserve(name + camel_case(column)) for column in table.foreign_keys}
    return _EntityType(
        name, pool.reserve("row_id") if table.key is None else _safe_attribute(table.key), table, attributes, relations
    )


def _safe_attribute(column: str) -> str:
    name = attribute_name(column)
    return f"{name}_" if name in RESERVED_FOR_ATTRIBUTES else name


def _attribute_type(kind: str) -> str | None:
    """Return the type of the attribute for a column that the model declares: a number or a truth value, else None."""
    return "bool" if kind == "BOOLEAN" else _NUMBERS.get(kind)


def _declare(entity: _EntityType) -> str:
    rows = [
        f"time {name} : datetime"
        if column == entity.table.time
        else f"{name} : {_attribute_type(entity.table.columns[column])}"
        for column, name in entity.attributes.items()
    ]
    head = f"entity {entity.name}" + ("" if entity.key == "id" else f"({entity.key})")
    return f"{head} {{ {'  '.join(rows)} }}" if rows else head


def _inputs(
    types: Mapping[str, _EntityType], entity_table: str, of: str, target: str | None, clock: str
) -> Iterator[str]:
    """Yield numbers of the entity, of the rows that refer to it, and of its earlier labels, all as of the time of p.

    Args:
        target: the attribute of the labels; None for numbers, which are not counted.
    """
    for number in types[entity_table].numbers:
        yield f"mean {{ e.{number} where {of}(p, e) }}"
    for entity in types.values():
        for column, relation in entity.relations.items():
            if entity.table.foreign_keys[column] != entity_table:
                continue
            rows = f"{of}(p, e) and {relation}(r, e)"
            yield f"count {{ r where {rows} }}"
            for days in DECAYS if entity.time is not None else ():
                yield f"sum {{ exp(-(p.{clock} - r.{entity.time}) / {days * 86400}) where {rows} }}"
            for number in entity.numbers:
                yield f"mean {{ r.{number} where {rows} }}"
    same = f"{of}(p, e) and {of}(q, e)"
    yield f"count {{ q where {same} }}"
    if target is not None:
        yield f"mean {{ q.{target} where {same} }}"


def _manifest(
    types: Mapping[str, _EntityType],
    parts: Mapping[str, RelBenchTable],
    of: str,
    columns: tuple[str, str, str],
    names: tuple[str, str],
    is_bool: bool,
) -> str:
    """Return the manifest: the tables of the database, their foreign keys as relations, the task and its split.

    Args:
        columns: the columns of the task with the entity, the time and the target.
        names: the names of the attributes of the target and of the time.
        is_bool: whether the target is a truth value, which RelBench stores as 0 or 1.
    """
    tables: dict[str, dict[str, object]] = {}
    for each in types.values():
        renamed = {name: column for column, name in each.attributes.items() if name != column}
        source: dict[str, object] = {"file": each.table.path}
        if each.table.key is None:
            tables[f"file {each.name}"] = source
            source = {"sql": f"SELECT row_number() OVER () AS {each.key}, * FROM {quoted(f'file {each.name}')}"}
        elif each.table.key != each.key:
            renamed[each.key] = each.table.key
        tables[each.name] = source | ({"columns": renamed} if renamed else {})
        for column, relation in each.relations.items():
            referred = types[each.table.foreign_keys[column]].table
            # A foreign key with missing values is often stored as a real number.
            cast = f"CAST({quoted(column)} AS {referred.columns[str(referred.key)]})"
            sql = f"SELECT {quoted(each.table.key or each.key)} AS source, {cast} AS target FROM {quoted(each.name)}"
            tables[relation] = {"sql": f"{sql} WHERE {quoted(column)} IS NOT NULL", "orphans": "drop"}
    entity, time, label = map(quoted, columns)
    selects = []
    for part, table in parts.items():
        tables[f"file {part}"] = {"file": table.path}
        target = label if columns[2] in table.columns else "NULL"
        target = f"CAST({target} AS BOOLEAN)" if is_bool else target
        selects.append(
            f"SELECT {entity} AS subject, {time} AS clock, {target} AS label, '{part}' AS part FROM \"file {part}\""
        )
    union = " UNION ALL ".join(selects)
    tables["Task rows"] = {"sql": f"SELECT concat(subject, ' ', clock) AS id, * FROM ({union})"}
    task = f'SELECT id, label AS {quoted(names[0])}, clock AS {quoted(names[1])}, part FROM "Task rows"'
    tables["Task"] = {"sql": task}
    tables[of] = {"sql": 'SELECT id AS task, subject FROM "Task rows"', "orphans": "drop"}
    split = {"column": "part", "train": ["train"], "valid": ["val"], "test": ["test"]}
    lines = [f"{key} = {toml_value(value)}" for key, value in split.items()]
    return render_tables(tables) + "\n[split]\n" + "\n".join(lines) + "\n"
