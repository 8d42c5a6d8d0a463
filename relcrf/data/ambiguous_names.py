"""Ambiguous names: columns whose names differ only in case and underscores, which are ignored, and bags with two sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from relcrf.data.names import NamedColumns, bag_table_names, state_column_names
from relcrf.errors import DataLocation, Diagnostic
from relcrf.model.spec import Entity, ModelSpec, RandomRelation, Relation, fold_name
from relcrf.model.types import Bag

T = TypeVar("T", bound=NamedColumns)


def find_ambiguous_names(
    spec: ModelSpec, tables: Mapping[str, T], locate: Callable[[T], str], has_lists: Callable[[T, str], bool]
) -> Iterator[Diagnostic]:
    """Yield a problem for each declaration that could be read from two columns of a table, or from two tables (E205).

    Args:
        tables: Tables by folded name.
        locate: Function that returns the location of a table.
        has_lists: Function that returns True if a column of a table contains lists.
    """
    declared: Sequence[Entity | Relation | RandomRelation] = (*spec.entities, *spec.relations, *spec.random_relations)
    for owner in declared:
        table = tables.get(fold_name(owner.name))
        if table is None or len({*map(fold_name, table.columns)}) == len(table.columns):
            continue
        for name in _columns_of(owner):
            first, *others = [column for column in table.columns if fold_name(column) == name] or [""]
            if others:
                message = f"two columns of {locate(table)} have the name '{first}': '{first}' and '{others[0]}'"
                hint = "names are compared without case and underscores; rename a column"
                yield Diagnostic("E205", message, DataLocation(locate(table)), hint)
    taken = {fold_name(owner.name) for owner in declared}
    for entity in spec.entities:
        for attribute in entity.attributes:
            if not isinstance(attribute.type, Bag):
                continue
            names = dict.fromkeys(map(fold_name, bag_table_names(entity, attribute)))
            sources = [locate(tables[name]) for name in names if name in tables and name not in taken]
            own_table = tables.get(fold_name(entity.name))
            column = None if own_table is None else own_table.column(attribute.name)
            if own_table is not None and column is not None and has_lists(own_table, column):
                sources.insert(0, f"the column '{column}' of {locate(own_table)}")
            if len(sources) > 1:
                message = f"the bag {entity.name}.{attribute.name} has two sources: {sources[0]} and {sources[1]}"
                yield Diagnostic("E205", message, DataLocation(sources[1]), "remove or rename one of them")


def _columns_of(owner: Entity | Relation | RandomRelation) -> dict[str, None]:
    """Return the folded names of the columns from which a declaration is read."""
    match owner:
        case Entity():
            names = [owner.key, *(a.name for a in owner.attributes if not a.latent)]
        case Relation():
            names = [*(p.name for p in owner.parameters), *(a.name for a in owner.attributes)]
        case RandomRelation():
            names = [*(p.name for p in owner.parameters), *state_column_names(owner)]
    return dict.fromkeys(map(fold_name, names))
