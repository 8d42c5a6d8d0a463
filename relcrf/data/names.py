"""Names of tables and columns: names accepted in raw tables, and unique names in coded tables (indices of values)."""

from __future__ import annotations

import re
from collections.abc import Collection

from relcrf.model.spec import AttributeDeclaration, Entity, ModelSpec, RandomRelation, fold_name
from relcrf.model.types import Bag, DomainType


class NamedColumns:
    """The base class of tables whose columns are found by name: an equal name, or one that differs in case and underscores."""

    columns: Collection[str]

    def column(self, name: str) -> str | None:
        """Return the column with this name; None if there is none."""
        if name in self.columns:
            return name
        return next((c for c in self.columns if fold_name(c) == fold_name(name)), None)

    def first_column(self, *names: str) -> str | None:
        """Return the first existing column among `names`; None if there is none."""
        return next(filter(None, map(self.column, names)), None)

    def bag_columns(self, entity: Entity, attribute: AttributeDeclaration) -> tuple[str, str] | None:
        """Return the entity column and the value column of a bag; None unless both have an accepted name."""
        owner, value = self.first_column(entity.name, entity.key), self.first_column(*bag_value_names(attribute))
        return None if owner is None or value is None or owner == value else (owner, value)

    def state_column(self, relation: RandomRelation, arguments: Collection[str | None]) -> str | None:
        """Return the column with the values of a random relation, excluding argument columns; None if there is none."""
        named = (self.column(name) for name in state_column_names(relation))
        return next((column for column in named if column is not None and column not in arguments), None)


def vector_column_pattern(attribute: str) -> re.Pattern[str]:
    """Return the regular expression of a vector's column names, e.g. `pixels_0`; its only group matches the number."""
    return re.compile(rf"{re.escape(attribute)}_?(\d+)", re.IGNORECASE)


def bag_table_names(entity: Entity, attribute: AttributeDeclaration) -> tuple[str, ...]:
    """Return the accepted names of the table of a bag."""
    return tuple(f"{entity.name}_{name}" for name in bag_value_names(attribute))


def bag_value_names(attribute: AttributeDeclaration) -> tuple[str, ...]:
    """Return the accepted names of the column with the values of a bag."""
    assert isinstance(attribute.type, Bag)
    return attribute.name, attribute.name.removesuffix("s"), attribute.type.domain


def state_column_names(relation: RandomRelation) -> tuple[str, ...]:
    """Return the accepted names of the column with the values of a random relation."""
    domain = (relation.type.domain,) if isinstance(relation.type, DomainType) else ()
    return "value", relation.name, *domain


def repaired_table(table: str) -> str:
    """Return the name of the copy of a raw table to which the policies of the manifest were applied."""
    return f"row.{table}"


def entity_table(entity: str) -> str:
    """Return the name of an entity type's coded table; its columns are `vid` (index), `key`, and one per attribute."""
    return f"ent.{entity}"


def relation_table(relation: str) -> str:
    """Return the name of the coded table of a relation, which may be derived or random.

    Its columns are `a0`, `a1`, ... (arguments), and one per attribute or, for a random relation, `vid` and `state`.
    """
    return f"rel.{relation}"


def listed_table(relation: str) -> str:
    """Return the name of the table of a random relation's tuples in the data; columns: `a0`, `a1`, ..., `state`."""
    return f"lst.{relation}"


def bag_table(entity: str, attribute: str) -> str:
    """Return the name of the table of a bag; its columns are `vid`, `code`, `count`."""
    return f"bag.{entity}.{attribute}"


def value_table(entity: str, expression: str) -> str:
    """Return the name of the table of an expression's values, which are computed for all entities of a type.

    The columns of a bag are `vid`, `code`, `count`; of a number or a vector, `vid`, `v0`, `v1`, ... for every entity.
    """
    return f"{VALUE_PREFIX}{entity}.{expression}"


VALUE_PREFIX = "val."


def token_table(similarity: str, entity: str, attribute: str) -> str:
    """Return the name of the table of the tokens of texts; its columns are `vid`, `code` (of the token), `weight`."""
    return f"tok.{similarity}.{entity}.{attribute}"


def text_table(similarity: str, entity: str, attribute: str) -> str:
    """Return the name of the table of the texts that are not missing; its columns are `vid`, `size`."""
    return f"txt.{similarity}.{entity}.{attribute}"


def mark_capitals(text: str) -> str:
    """Return a part of a table's name with marked capitals; texts that differ only in case name one table in DuckDB."""
    return re.sub("[A-Z]", r"^\g<0>", text)


def domain_table(domain: str) -> str:
    """Return the name of the table of a domain; its columns are `code`, `value`."""
    return f"dom.{domain}"


def domain_type(domain: str) -> str:
    """Return the name of the DuckDB type whose values are those of a domain, in the order of the codes."""
    return f"type.{domain}"


def type_table(spec: ModelSpec, type_name: str) -> tuple[str, str, str]:
    """Return the coded table of an entity type or domain, its column of indices, and its column of keys or values."""
    is_entity = spec.entity(type_name) is not None
    return (entity_table(type_name), "vid", "key") if is_entity else (domain_table(type_name), "code", "value")


def attribute_column(attribute: str) -> str:
    """Return the column of an attribute, prefixed to differ from `vid`, `key` and the arguments."""
    return f"x.{attribute}"


ARGUMENT_COLUMN = re.compile(r"a\d+")
"""Pattern of the names of argument columns; an argument column has no missing values."""

PLUGIN_PREFIX = "plugin_"


def plugin_function_name(name: str) -> str:
    """Return the SQL name of a plugin function, prefixed to differ from all operators and built-in functions."""
    return PLUGIN_PREFIX + name
