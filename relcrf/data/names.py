"""Names of tables and columns: those that raw ones may have, and those that coded ones get, where no two share a name."""

from __future__ import annotations

import re
from collections.abc import Collection

from relcrf.model.spec import AttributeDeclaration, Entity, ModelSpec, RandomRelation, fold_name
from relcrf.model.types import Bag, DomainType


class NamedColumns:
    """A raw table whose columns are found by name, regardless of case and underscores."""

    columns: Collection[str]

    def column(self, name: str) -> str | None:
        """Return the column of that name."""
        return next((c for c in self.columns if fold_name(c) == fold_name(name)), None)

    def first_column(self, *names: str) -> str | None:
        """Return the first of these columns that the table has."""
        return next(filter(None, map(self.column, names)), None)

    def bag_columns(self, entity: Entity, attribute: AttributeDeclaration) -> tuple[str, str] | None:
        """Return the columns of the entities and of the values of a bag; None where their names do not tell them."""
        owner, value = self.first_column(entity.name, entity.key), self.first_column(*bag_value_names(attribute))
        return None if owner is None or value is None or owner == value else (owner, value)

    def state_column(self, relation: RandomRelation, arguments: Collection[str | None]) -> str | None:
        """Return the column with the values of a random relation, which is not one of its arguments."""
        named = (self.column(name) for name in state_column_names(relation))
        return next((column for column in named if column is not None and column not in arguments), None)


def vector_column_pattern(attribute: str) -> re.Pattern[str]:
    """Return the pattern of the columns `pixels_0, pixels_1, ...` of a vector, which has their numbers."""
    return re.compile(rf"{re.escape(attribute)}_?(\d+)", re.IGNORECASE)


def bag_table_names(entity: Entity, attribute: AttributeDeclaration) -> tuple[str, ...]:
    """Return the names that the table of a bag may have."""
    return tuple(f"{entity.name}_{name}" for name in bag_value_names(attribute))


def bag_value_names(attribute: AttributeDeclaration) -> tuple[str, ...]:
    """Return the names that the column with the values of a bag may have."""
    assert isinstance(attribute.type, Bag)
    return attribute.name, attribute.name.removesuffix("s"), attribute.type.domain


def state_column_names(relation: RandomRelation) -> tuple[str, ...]:
    """Return the names that the column with the values of a random relation may have."""
    domain = (relation.type.domain,) if isinstance(relation.type, DomainType) else ()
    return "value", relation.name, *domain


def entity_table(entity: str) -> str:
    """Columns `vid`, `key`, and one for each attribute."""
    return f"ent.{entity}"


def relation_table(relation: str) -> str:
    """Columns `a0`, `a1`, ... for the arguments, and one for each attribute; of random relations `vid` and `state`.

    Derived relations as well.
    """
    return f"rel.{relation}"


def listed_table(relation: str) -> str:
    """The tuples of a random relation that the data lists: `a0`, `a1`, ..., `state`."""
    return f"lst.{relation}"


def bag_table(entity: str, attribute: str) -> str:
    """Columns `vid`, `code`, `count`."""
    return f"bag.{entity}.{attribute}"


def domain_table(domain: str) -> str:
    """Columns `code`, `value`: the dictionary of a domain."""
    return f"dom.{domain}"


def sort_table(spec: ModelSpec, sort: str) -> tuple[str, str, str]:
    """Return the table of all things of an entity or values of a domain, and its columns of numbers and of texts."""
    is_entity = spec.entity(sort) is not None
    return (entity_table(sort), "vid", "key") if is_entity else (domain_table(sort), "code", "value")


def attribute_column(attribute: str) -> str:
    """The column of an attribute, apart from `vid`, `key` and the arguments."""
    return f"x.{attribute}"


ARGUMENT_COLUMN = re.compile(r"a\d+")
"""Names of the columns of a relation's arguments, which miss no value."""

PLUGIN_PREFIX = "plugin_"


def plugin_function_name(name: str) -> str:
    """The function of another package that the language calls by a name; no operator or built-in function is called so."""
    return PLUGIN_PREFIX + name
