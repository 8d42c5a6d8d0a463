"""Diagrams of proposed schemas in the terminal: entity types joined by relations, as lines of text."""

from __future__ import annotations

from relcrf.proposal.schema import ProposedRelation, ProposedSchema, RelationArgument

MAX_NAME = 28
"""Maximum number of characters of a name; longer names are shortened."""


def schema_lines(schema: ProposedSchema, width: int) -> list[str]:
    """Return a line for each relation, such as `Page 1 ─── n Link (720) n ─── 1 Page`, and for each other entity type.

    `n` at a relation: an entity may occur in several tuples.

    Args:
        width: Maximum number of characters of a line; arguments beyond it are only counted.
    """
    lines = []
    for relation in schema.relations:
        ends = [
            f"{_shorten(argument.type_name)} 1 ─── {cardinality(argument, relation)} "
            for argument in relation.arguments[:1]
        ]
        line = f"{''.join(ends)}{_shorten(relation.name)} ({relation.rows:,})"
        others = [
            f" {cardinality(argument, relation)} ─── 1 {_shorten(argument.type_name)}"
            for argument in relation.arguments[1:]
        ]
        n_shown = len(others)
        while n_shown and len(_join_ends(line, others, n_shown)) > width:
            n_shown -= 1
        lines.append(_join_ends(line, others, n_shown))
    related = {argument.type_name for relation in schema.relations for argument in relation.arguments}
    lines += [f"{_shorten(e.name)} ({e.size:,}), without relations" for e in schema.entities if e.name not in related]
    return lines


def _join_ends(line: str, others: list[str], n_shown: int) -> str:
    more = f" and {len(others) - n_shown} more" if n_shown < len(others) else ""
    return f"{line}{','.join(others[:n_shown])}{more}"


def cardinality(argument: RelationArgument, relation: ProposedRelation) -> str:
    """Return `1` if an entity occurs in at most one tuple of the relation as this argument, and `n` otherwise."""
    return "1" if argument.distinct == relation.rows else "n"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"
