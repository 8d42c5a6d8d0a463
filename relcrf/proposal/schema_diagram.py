"""Diagrams of proposed schemas: entity types joined by relations, as lines of text and as SVG."""

from __future__ import annotations

import html
import math

from relcrf.printable import escape_unprintable
from relcrf.proposal.schema import ProposedEntity, ProposedRelation, ProposedSchema, RelationArgument

BOX_WIDTH, LINE_HEIGHT, MAX_ATTRIBUTES = 190, 18, 8
"""Size of a box in the unit of the SVG, and the number of attributes that a box lists."""


def schema_lines(schema: ProposedSchema) -> list[str]:
    """Return a line for each relation, such as `Page 1 --- n Link (720) n --- 1 Page`, and for each other entity type.

    `n` at a relation: an entity may occur in several tuples.
    """
    lines = []
    for relation in schema.relations:
        ends = [
            f"{argument.type_name} 1 ─── {_cardinality(argument, relation)} " for argument in relation.arguments[:1]
        ]
        others = [
            f" {_cardinality(argument, relation)} ─── 1 {argument.type_name}" for argument in relation.arguments[1:]
        ]
        lines.append(f"{''.join(ends)}{relation.name} ({relation.rows:,}){','.join(others)}")
    related = {argument.type_name for relation in schema.relations for argument in relation.arguments}
    lines += [f"{e.name} ({e.size:,}), without relations" for e in schema.entities if e.name not in related]
    return lines


def _cardinality(argument: RelationArgument, relation: ProposedRelation) -> str:
    return "1" if argument.distinct == relation.rows else "n"


def schema_svg(schema: ProposedSchema) -> str:
    """Return an SVG element: a box for each entity type and domain, and a labelled line for each relation."""
    names = list(
        dict.fromkeys([e.name for e in schema.entities] + [a.type_name for r in schema.relations for a in r.arguments])
    )
    entities = {e.name: e for e in schema.entities}
    columns = max(1, math.ceil(math.sqrt(len(names))))
    height = LINE_HEIGHT * (MAX_ATTRIBUTES + 3)
    centres = {
        name: (40 + BOX_WIDTH / 2 + (k % columns) * (BOX_WIDTH + 170), 40 + height / 2 + (k // columns) * (height + 70))
        for k, name in enumerate(names)
    }
    parts = [_relation_svg(relation, k, centres, schema) for k, relation in enumerate(schema.relations)]
    parts += [_box_svg(name, entities.get(name), *centres[name]) for name in names]
    width, total = 80 + columns * (BOX_WIDTH + 170) - 170, 80 + math.ceil(len(names) / columns) * (height + 70) - 70
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {total:g}" role="img" '
        f'aria-label="diagram of the tables" font-size="13" fill="currentColor">{"".join(parts)}</svg>'
    )


def _relation_svg(
    relation: ProposedRelation, index: int, centres: dict[str, tuple[float, float]], schema: ProposedSchema
) -> str:
    """Return the line of a relation between the first two types, with its name; relations of one pair are spread."""
    types = [argument.type_name for argument in relation.arguments]
    (x, y), (u, v) = centres[types[0]], centres[types[min(1, len(types) - 1)]]
    same = [r for r in schema.relations[:index] if {a.type_name for a in r.arguments} == set(types)]
    offset = 16 * len(same)
    if (x, y) == (u, v):
        path = f"M {x + BOX_WIDTH / 2 - 30:g} {y - 60:g} c 70 -50 70 70 0 {40 + offset}"
        tx, ty = x + BOX_WIDTH / 2 + 6, y - 70 + offset
        anchor = "start"
    else:
        path, anchor = f"M {x:g} {y + offset:g} L {u:g} {v + offset:g}", "middle"
        tx, ty = (x + u) / 2, (y + v) / 2 - 5 + offset
    label = f"{relation.name} ({relation.rows:,})"
    return (
        f'<path d="{path}" fill="none" stroke="var(--first)" stroke-width="1.5"/>'
        f'<text x="{tx:g}" y="{ty:g}" text-anchor="{anchor}" font-size="11">{_text(label)}</text>'
    )


def _box_svg(name: str, entity: ProposedEntity | None, x: float, y: float) -> str:
    """Return the box of an entity type with its attributes, or of a domain if `entity` is None."""
    title = f"{name} ({entity.size:,})" if entity else f"{name}: values"
    lines = (
        [f"{a.name}: {a.type}" for a in entity.attributes] + [f"{b.name}: bag" for b in entity.bags] if entity else []
    )
    if len(lines) > MAX_ATTRIBUTES:
        lines = [*lines[: MAX_ATTRIBUTES - 1], f"{len(lines) - MAX_ATTRIBUTES + 1} more"]
    height = LINE_HEIGHT * (len(lines) + 1) + 10
    left, top = x - BOX_WIDTH / 2, y - height / 2
    rows = "".join(
        f'<text x="{left + 8:g}" y="{top + LINE_HEIGHT * (k + 2) + 4:g}">{_text(line)}</text>'
        for k, line in enumerate(lines)
    )
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{BOX_WIDTH}" height="{height}" rx="5" fill="var(--panel)" '
        f'stroke="var(--faint)"/><text x="{left + 8:g}" y="{top + LINE_HEIGHT:g}" font-weight="700">{_text(title)}</text>{rows}'
    )


def _text(text: str) -> str:
    shown = text if len(text) <= 28 else f"{text[:27]}…"
    return html.escape(escape_unprintable(shown))
