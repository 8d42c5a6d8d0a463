"""Diagrams of proposed schemas: entity types joined by relations, as lines of text and as SVG."""

from __future__ import annotations

import html
import math

from relcrf.printable import escape_unprintable
from relcrf.proposal.schema import ProposedEntity, ProposedRelation, ProposedSchema, RelationArgument

BOX_WIDTH, GAP, LINE_HEIGHT, MAX_ATTRIBUTES = 190, 170, 18, 8
"""Size of a box and the gap beside it in the unit of the SVG, and the number of attributes that a box lists."""

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
            f"{_shorten(argument.type_name)} 1 ─── {_cardinality(argument, relation)} "
            for argument in relation.arguments[:1]
        ]
        line = f"{''.join(ends)}{_shorten(relation.name)} ({relation.rows:,})"
        others = [
            f" {_cardinality(argument, relation)} ─── 1 {_shorten(argument.type_name)}"
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


def _cardinality(argument: RelationArgument, relation: ProposedRelation) -> str:
    return "1" if argument.distinct == relation.rows else "n"


def schema_svg(schema: ProposedSchema) -> str:
    """Return an SVG element: a box for each entity type and domain, and labelled lines for each relation.

    A relation of three or more arguments is a small circle that is joined to the box of each argument.
    """
    names = list(
        dict.fromkeys([e.name for e in schema.entities] + [a.type_name for r in schema.relations for a in r.arguments])
    )
    entities = {e.name: e for e in schema.entities}
    columns = max(1, math.ceil(math.sqrt(len(names))))
    height = LINE_HEIGHT * (MAX_ATTRIBUTES + 3)
    centres = {
        name: (40 + BOX_WIDTH / 2 + (k % columns) * (BOX_WIDTH + GAP), 40 + height / 2 + (k // columns) * (height + 70))
        for k, name in enumerate(names)
    }
    binary = [relation for relation in schema.relations if len(relation.arguments) < 3]
    larger = [relation for relation in schema.relations if len(relation.arguments) > 2]
    parts = [_binary_relation_svg(relation, binary[:k], centres) for k, relation in enumerate(binary)]
    parts += [_larger_relation_svg(relation, k, centres) for k, relation in enumerate(larger)]
    parts += [_box_svg(name, entities.get(name), *centres[name]) for name in names]
    width, total = 80 + columns * (BOX_WIDTH + GAP), 80 + math.ceil(len(names) / columns) * (height + 70) - 70
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {total:g}" role="img" '
        f'aria-label="diagram of the tables" font-size="13" fill="currentColor">{"".join(parts)}</svg>'
    )


def _binary_relation_svg(
    relation: ProposedRelation, earlier: list[ProposedRelation], centres: dict[str, tuple[float, float]]
) -> str:
    """Return the line of a relation between two types, with its name; relations of one pair are spread."""
    types = [argument.type_name for argument in relation.arguments]
    (x, y), (u, v) = centres[types[0]], centres[types[-1]]
    offset = 16 * len([r for r in earlier if {a.type_name for a in r.arguments} == set(types)])
    if (x, y) == (u, v):
        path = f"M {x + BOX_WIDTH / 2 - 30:g} {y - 60:g} c 70 -50 70 70 0 {40 + offset}"
        tx, ty = x + BOX_WIDTH / 2 + 6, y - 70 + offset
        anchor = "start"
    else:
        path, anchor = f"M {x:g} {y + offset:g} L {u:g} {v + offset:g}", "middle"
        tx, ty = (x + u) / 2, (y + v) / 2 - 5 + offset
    return _line_svg(path) + _label_svg(relation, tx, ty, anchor)


def _larger_relation_svg(relation: ProposedRelation, index: int, centres: dict[str, tuple[float, float]]) -> str:
    """Return a circle between two columns of boxes, the name of the relation, and a line to the type of each argument."""
    ends = [centres[argument.type_name] for argument in relation.arguments]
    step = BOX_WIDTH + GAP
    column = math.floor((sum(x for x, _ in ends) / len(ends) - 40 - BOX_WIDTH / 2) / step)
    x = 40 + BOX_WIDTH + GAP / 2 + column * step
    y = sum(y for _, y in ends) / len(ends) + 36 * (index % 5 - 2)
    lines = [
        _line_svg(f"M {x:g} {y:g} Q {(x + u) / 2:g} {(y + v) / 2 + 40 * ends[:k].count((u, v)):g} {u:g} {v:g}")
        for k, (u, v) in enumerate(ends)
    ]
    circle = f'<circle cx="{x:g}" cy="{y:g}" r="6" fill="var(--first)"/>'
    return f"{''.join(lines)}{circle}{_label_svg(relation, x, y - 12, 'middle')}"


def _line_svg(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="var(--first)" stroke-width="1.5"/>'


def _label_svg(relation: ProposedRelation, x: float, y: float, anchor: str) -> str:
    label = _text(f"{relation.name} ({relation.rows:,})")
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="11">{label}</text>'


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


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"


def _text(text: str) -> str:
    return html.escape(escape_unprintable(_shorten(text)))
