"""Pictures of proposed schemas as SVG: entity types on the left and right, and the relations that link them between them."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from unicodedata import east_asian_width

from relcrf.printable import escape_unprintable
from relcrf.proposal.schema import ProposedEntity, ProposedRelation, ProposedSchema, RelationArgument
from relcrf.proposal.schema_diagram import cardinality

BOX_WIDTH, GAP, LINE_HEIGHT, MARGIN = 240, 70, 18, 8
"""Width of a box, space for lines beside it, height of a line of text, and space around texts, in pixels."""

BOX_SPACE, LABEL_SPACE, LABEL_HEIGHT, LABEL_CHARACTER = 24, 12, 24, 7
"""Space between boxes and between labels of relations, and the height and the width per character of a label, in pixels."""

END_SPACE = 14
"""Minimum distance of lines at a box in pixels, so that the text at the end of each line is readable."""

MAX_LINES = 8
"""Maximum number of attributes, and of relations within a type, that a box lists."""

MAX_CHARACTERS, MAX_TITLE_CHARACTERS = 30, 27
"""Number of characters that fit into a line and into the bold title of a box; longer texts are shortened."""

N_SWEEPS = 4
"""Number of passes that reorder the columns to avoid crossings."""


@dataclass
class _TypeBox:
    """A box for an entity type or a domain.

    Args:
        lines: Lines of text below the title, as (text, style).
        n_inner: Number of the lines, at the end, that are relations within the type.
        ends: Vertical positions of its relations, for the lines that end at the box.
        top: Vertical position of the upper edge.
    """

    title: str
    lines: list[tuple[str, str]]
    n_inner: int
    n_ends: int
    top: float = 0.0
    ends: list[float] = field(default_factory=list)

    @property
    def height(self) -> float:
        return max(LINE_HEIGHT * (len(self.lines) + 1) + MARGIN + 4, END_SPACE * (self.n_ends + 1))

    @property
    def centre(self) -> float:
        return self.top + self.height / 2


@dataclass
class _RelationLabel:
    """The label of a relation that links several types; `centre` is its vertical position."""

    relation: ProposedRelation
    centre: float = 0.0

    @property
    def text(self) -> str:
        return f"{_shorten(self.relation.name, MAX_CHARACTERS)} ({self.relation.rows:,})"


def schema_svg(schema: ProposedSchema, predicted: Collection[str] = ()) -> str:
    """Return an SVG element: a box for each entity type and domain, and lines from each relation to its types.

    A relation whose arguments have one type is a line of text in the box of the type.

    Args:
        predicted: The targets, each an `Entity.attribute` or a relation, which are highlighted.
    """
    linking = [r for r in schema.relations if len({a.type_name for a in r.arguments}) > 1]
    boxes = _make_boxes(schema, linking, predicted)
    labels = [_RelationLabel(relation) for relation in linking]
    columns = _assign_columns(boxes, linking)
    _arrange(boxes, labels, columns)
    label_width = max((LABEL_CHARACTER * len(label.text) + 2 * MARGIN for label in labels), default=0)
    middle = MARGIN + BOX_WIDTH + GAP if labels else 0
    right = middle + label_width + GAP if labels else BOX_WIDTH + GAP
    width = (right if columns[1] else MARGIN) + BOX_WIDTH + MARGIN
    height = 2 * MARGIN + max([box.top + box.height for box in boxes.values()], default=0)
    height = max([height, *(label.centre + LABEL_HEIGHT for label in labels)])
    parts = [_lines_svg(boxes, labels, columns, middle, label_width, right)]
    parts += [_label_svg(label, middle, label_width, label.relation.name in predicted) for label in labels]
    parts += [_box_svg(boxes[name], x) for names, x in zip(columns, (MARGIN, right), strict=True) for name in names]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'style="max-width: {width:g}px; min-width: {min(width, 720):g}px" '
        f'aria-label="diagram of the entity types and relations" font-size="13" fill="currentColor">{"".join(parts)}</svg>'
    )


def _make_boxes(
    schema: ProposedSchema, linking: Sequence[ProposedRelation], predicted: Collection[str]
) -> dict[str, _TypeBox]:
    """Return the boxes of the entity types and domains by name."""
    names = [e.name for e in schema.entities] + [a.type_name for r in schema.relations for a in r.arguments]
    entities = {e.name: e for e in schema.entities}
    boxes = {}
    for name in dict.fromkeys(names):
        inner = [r for r in schema.relations if {a.type_name for a in r.arguments} == {name}]
        relations = [(f"{'↻' if len(r.arguments) > 1 else '•'} {r.name} ({r.rows:,})", r.name) for r in inner]
        lines = _mark(_attributes(entities.get(name), predicted), predicted)
        inner_lines = _mark(relations, predicted)
        entity = entities.get(name)
        title = f"{_shorten(name, MAX_TITLE_CHARACTERS - 9)} ({entity.size:,})" if entity else f"{name}: values"
        n_ends = sum(argument.type_name == name for relation in linking for argument in relation.arguments)
        boxes[name] = _TypeBox(title, lines + inner_lines, len(inner_lines), n_ends)
    return boxes


def _attributes(entity: ProposedEntity | None, predicted: Collection[str]) -> list[tuple[str, str]]:
    """Return a text for each attribute of an entity type, with the attribute's name; targets are the first ones."""
    if entity is None:
        return []
    attributes = [(f"{a.name}: {a.type}", f"{entity.name}.{a.name}") for a in entity.attributes]
    attributes += [(f"{b.name}: bag of {b.domain}", f"{entity.name}.{b.name}") for b in entity.bags]
    return sorted(attributes, key=lambda line: line[1] not in predicted)


def _mark(lines: Sequence[tuple[str, str]], predicted: Collection[str]) -> list[tuple[str, str]]:
    """Return at most MAX_LINES lines (text, style), from texts with the names of what they describe."""
    shown = lines if len(lines) <= MAX_LINES else lines[: MAX_LINES - 1]
    more = [(f"{len(lines) - len(shown):,} more", ' fill-opacity="0.7"')] if len(shown) < len(lines) else []
    target = ' fill="var(--mark)" font-weight="700"'
    return [(text, target if name in predicted else "") for text, name in shown] + more


def _assign_columns(boxes: Mapping[str, _TypeBox], linking: Sequence[ProposedRelation]) -> tuple[list[str], list[str]]:
    """Distribute the types to a left and a right column, so that relations have types on both sides."""
    columns: tuple[list[str], list[str]] = ([], [])
    heights = [0.0, 0.0]
    for name in sorted(boxes, key=lambda name: -boxes[name].n_ends):
        neighbours = [
            {argument.type_name for argument in relation.arguments}
            for relation in linking
            if any(argument.type_name == name for argument in relation.arguments)
        ]
        n_left, n_right = (sum(len(types.intersection(column)) for types in neighbours) for column in columns)
        side = int(n_left > n_right or (n_left == n_right and heights[0] > heights[1]))
        columns[side].append(name)
        heights[side] += boxes[name].height + BOX_SPACE
    return columns


def _arrange(boxes: Mapping[str, _TypeBox], labels: list[_RelationLabel], columns: tuple[list[str], list[str]]) -> None:
    """Set the vertical positions of boxes and labels; sort them by the mean position of what they are linked to."""
    heights = [sum(boxes[name].height + BOX_SPACE for name in column) - BOX_SPACE for column in columns]
    total = max([*heights, len(labels) * (LABEL_HEIGHT + LABEL_SPACE) - LABEL_SPACE])
    for sweep in range(N_SWEEPS):
        for column, height in zip(columns, heights, strict=True):
            if sweep:
                column.sort(key=lambda name: _mean_position(name, labels))
            top = MARGIN + (total - height) / 2
            for name in column:
                boxes[name].top = top
                top += boxes[name].height + BOX_SPACE
        wanted = [
            (sum(boxes[a.type_name].centre for a in label.relation.arguments) / len(label.relation.arguments), k)
            for k, label in enumerate(labels)
        ]
        _spread(wanted, labels, MARGIN + LABEL_HEIGHT / 2, MARGIN + total - LABEL_HEIGHT / 2)


def _mean_position(name: str, labels: Sequence[_RelationLabel]) -> float:
    """Return the mean vertical position of the relations of a type; types without such relations come last."""
    found = [x.centre for x in labels for argument in x.relation.arguments if argument.type_name == name]
    return sum(found) / len(found) if found else float("inf")


def _spread(wanted: Sequence[tuple[float, int]], labels: Sequence[_RelationLabel], low: float, high: float) -> None:
    """Place labels near the wanted positions, as pairs (position, index), without overlaps between two limits."""
    step, order = LABEL_HEIGHT + LABEL_SPACE, sorted(wanted)
    for rank, (position, k) in enumerate(order):
        above = labels[order[rank - 1][1]].centre + step if rank else low
        labels[k].centre = max(position, above)
    limit = high
    for _, k in reversed(order):
        labels[k].centre = min(labels[k].centre, limit)
        limit = labels[k].centre - step


def _lines_svg(
    boxes: Mapping[str, _TypeBox],
    labels: Sequence[_RelationLabel],
    columns: tuple[list[str], list[str]],
    middle: float,
    label_width: float,
    right: float,
) -> str:
    """Return a curve from each relation to the box of each argument, with the cardinality at its end."""
    ends: dict[str, list[tuple[float, int, int]]] = {name: [] for name in boxes}
    for index, label in enumerate(labels):
        for k, argument in enumerate(label.relation.arguments):
            ends[argument.type_name].append((label.centre, index, k))
    heights = {}
    for name, box in boxes.items():
        for rank, (_, index, k) in enumerate(sorted(ends[name])):
            heights[index, k] = box.top + box.height * (rank + 1) / (len(ends[name]) + 1)
    parts = []
    for index, label in enumerate(labels):
        arguments = label.relation.arguments
        for side, x, end in ((0, middle, MARGIN + BOX_WIDTH), (1, middle + label_width, right)):
            chosen = [k for k, a in enumerate(arguments) if a.type_name in columns[side]]
            for rank, k in enumerate(sorted(chosen, key=lambda k: heights[index, k])):
                y = label.centre - LABEL_HEIGHT / 2 + LABEL_HEIGHT * (rank + 1) / (len(chosen) + 1)
                parts.append(_line_svg(x, y, end, heights[index, k], arguments[k], label.relation))
    return "".join(parts)


def _line_svg(
    x: float, y: float, end_x: float, end_y: float, argument: RelationArgument, relation: ProposedRelation
) -> str:
    centre, is_left = (x + end_x) / 2, end_x < x
    path = f"M {x:g} {y:.1f} C {centre:g} {y:.1f} {centre:g} {end_y:.1f} {end_x:g} {end_y:.1f}"
    text_x, anchor = (end_x + 5, "start") if is_left else (end_x - 5, "end")
    return (
        f'<path d="{path}" fill="none" stroke="var(--first)" stroke-width="1.5"/>'
        f'<text x="{text_x:g}" y="{end_y - 3:.1f}" text-anchor="{anchor}" font-size="11">{cardinality(argument, relation)}</text>'
    )


def _label_svg(label: _RelationLabel, x: float, width: float, is_target: bool) -> str:
    top, style = label.centre - LABEL_HEIGHT / 2, ' fill="var(--mark)" font-weight="700"' if is_target else ""
    return (
        f'<g class="relation"><rect x="{x:g}" y="{top:.1f}" width="{width:g}" height="{LABEL_HEIGHT}" rx="12" '
        f'fill="var(--paper)" stroke="var(--first)"/><text x="{x + width / 2:g}" y="{label.centre + 4:.1f}" '
        f'text-anchor="middle" font-size="12"{style}>{_escape(label.text)}{_tooltip(label.relation.name, label.text)}</text></g>'
    )


def _box_svg(box: _TypeBox, x: float) -> str:
    """Return the box of a type; its content is a nested SVG element, which hides text that is wider than the box."""
    title = _shorten(box.title, MAX_TITLE_CHARACTERS)
    rows = [
        f'<text x="{MARGIN}" y="{LINE_HEIGHT}" font-weight="700">{_escape(title)}{_tooltip(box.title, title)}</text>'
    ]
    for k, (line, style) in enumerate(box.lines):
        text = _shorten(line, MAX_CHARACTERS)
        y = LINE_HEIGHT * (k + 2) + 4
        rows.append(f'<text x="{MARGIN}" y="{y}"{style}>{_escape(text)}{_tooltip(line, text)}</text>')
    if box.n_inner:
        y = LINE_HEIGHT * (len(box.lines) - box.n_inner + 1) + 8
        rows.append(f'<path d="M 0 {y} H {BOX_WIDTH}" stroke="var(--grid)"/>')
    return (
        f'<g class="box"><rect x="{x:g}" y="{box.top:.1f}" width="{BOX_WIDTH}" height="{box.height:.1f}" rx="5" '
        f'fill="var(--panel)" stroke="var(--faint)"/><svg x="{x:g}" y="{box.top:.1f}" width="{BOX_WIDTH}" '
        f'height="{box.height:.1f}" style="width: {BOX_WIDTH}px; height: {box.height:.1f}px">{"".join(rows)}</svg></g>'
    )


def _shorten(text: str, width: int) -> str:
    """Return a text, shortened to a number of narrow characters; a wide character counts twice."""
    if _width(text) <= width:
        return text
    while _width(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def _width(characters: Iterable[str]) -> int:
    return sum(1 + (east_asian_width(character) in "WF") for character in characters)


def _tooltip(whole: str, shown: str) -> str:
    """Return a title element with the whole text, if it is shortened."""
    return "" if whole in shown else f"<title>{_escape(whole)}</title>"


def _escape(text: str) -> str:
    return html.escape(escape_unprintable(text))
