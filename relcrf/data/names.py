"""What the coded tables and their columns are called. No two things of a model share a name, whatever the model calls them."""

from __future__ import annotations


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


def attribute_column(attribute: str) -> str:
    """The column of an attribute, apart from `vid`, `key` and the arguments."""
    return f"x.{attribute}"


FOREIGN = "plugin_"


def foreign_function(name: str) -> str:
    """The function of another package that the language calls by a name; no operator or built-in function is called so."""
    return FOREIGN + name
