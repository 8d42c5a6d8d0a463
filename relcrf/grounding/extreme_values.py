"""Notes on extreme numbers in the data, such as 1e20 for a missing value."""

from __future__ import annotations

from relcrf.data.bound_model import BoundModel
from relcrf.data.coding import row_number_column, scan_with_row_numbers
from relcrf.data.names import attribute_column, entity_table, relation_table
from relcrf.data.raw_table import RawTable
from relcrf.data.store import quoted
from relcrf.graph.feature_scales import LIMIT_RATIO
from relcrf.model.spec import Entity, Relation
from relcrf.model.types import Integer, Real


def note_extreme_values(bound: BoundModel) -> None:
    """Add a note to a bound model for each column of numbers with values so extreme that learning may limit them.

    Such a value is at least `LIMIT_RATIO` times the median magnitude of the column's other values than 0.
    """
    declarations: tuple[Entity | Relation, ...] = (*bound.spec.entities, *bound.spec.relations)
    for declared in declarations:
        attributes = [a.name for a in declared.attributes if isinstance(a.type, Real | Integer)]
        table = bound.find_table(declared.name)
        for name in _suspicious_columns(bound, declared, attributes) if table is not None else ():
            column = table.column(name) if table is not None else None
            note = _note(bound, table, column) if table is not None and column is not None else None
            if note is not None and note not in bound.notes:
                bound.notes.append(note)


def _suspicious_columns(bound: BoundModel, declared: Entity | Relation, names: list[str]) -> list[str]:
    """Return the attributes whose maximum is far above the geometric mean, which is much faster than the median."""
    if not names:
        return []
    table = (entity_table if isinstance(declared, Entity) else relation_table)(declared.name)
    sizes = [f"abs({quoted(attribute_column(name))}::DOUBLE)" for name in names]
    columns = ", ".join(f"max({x}), exp(avg(ln(nullif({x}, 0))))" for x in sizes)
    values = bound.connection.execute(f"SELECT {columns} FROM {quoted(table)}").fetchone() or ()
    pairs = zip(names, values[::2], values[1::2], strict=True)
    return [name for name, largest, mean in pairs if largest and (not mean or largest > 1e3 * mean)]


def _note(bound: BoundModel, table: RawTable, column: str) -> str | None:
    size = f"abs(TRY_CAST(raw.{quoted(column)} AS DOUBLE))"
    ((median,),) = bound.connection.execute(
        f"SELECT median({size}) FROM {table.scan} AS raw WHERE {size} > 0"
    ).fetchall()
    if median is None:
        return None
    found = bound.connection.execute(
        f"SELECT raw.{row_number_column(table)}, CAST(raw.{quoted(column)} AS VARCHAR), count(*) OVER () "
        f"FROM {scan_with_row_numbers(table)} WHERE {size} >= '{LIMIT_RATIO * median!r}'::DOUBLE ORDER BY 1 LIMIT 1"
    ).fetchone()
    if found is None:
        return None
    row, text, count = found
    where = f"row {table.row_name(row)}, " if table.is_ordered else ""
    others = "" if count == 1 else ", as is another value" if count == 2 else f", as are {count - 1:,} other values"
    return (
        f"{table.location}: {where}column '{column}': {text} is extreme{others}: the median magnitude is {median:g}; "
        f"""if it stands for a missing value, declare missing = ["{text}"] in dataset.toml"""
    )
