"""Diagrams of types and relations as SVG: types on the left and right, and the relations that link them between them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from relcrf.printable import escape_unprintable

BOX_WIDTH, GAP, LINE_HEIGHT, MARGIN = 240, 70, 18, 8
"""Width of a box, space for lines beside it, height of a line of text, and space around texts, in pixels."""

BOX_SPACE, LABEL_SPACE, LABEL_HEIGHT, LABEL_CHARACTER = 24, 12, 24, 7
"""Space between boxes and between labels of relations, and the height and the width per character of a label, in pixels."""

END_SPACE = 14
"""Minimum distance of lines at a box in pixels, so that the text at the end of each line is readable."""

MAX_LINES = 8
"""Maximum number of attributes, and of relations within a type, that a box lists."""

MAX_CHARACTERS, MAX_TITLE_CHARACTERS, MAX_END_CHARACTERS = 30, 27, 9
"""Number of characters that fit into a line and into the bold title of a box, and at an end of a line between boxes; longer
texts are shortened."""

N_SWEEPS = 4
"""Number of passes that reorder the columns to avoid crossings."""


DiagramLine = tuple[str, bool]
"""A line of text, and whether it names a target, which is highlighted."""


@dataclass(frozen=True)
class DiagramType:
    """An entity type or a domain.

    Args:
        lines: Its attributes.
        relations: The relations whose arguments all have this type; they are lines of text in the box of the type.
    """

    name: str
    title: str
    lines: tuple[DiagramLine, ...] = ()
    relations: tuple[DiagramLine, ...] = ()


@dataclass(frozen=True)
class DiagramRelation:
    """A relation that links several types.

    Args:
        label: The text of the relation, with its name.
        ends: For each argument, the name of its type and the text at the end of its line.
    """

    name: str
    label: str
    ends: tuple[tuple[str, str], ...]
    is_target: bool = False


@dataclass
class _TypeBox:
    """The box of a type.

    Args:
        lines: Lines of text below the title, as (text, style).
        n_inner: Number of the lines, at the end, that are relations within the type.
        n_ends: Number of lines that end at the box.
        top: Vertical position of the upper edge.
    """

    title: str
    lines: list[tuple[str, str]]
    n_inner: int
    n_ends: int
    top: float = 0.0

    @property
    def height(self) -> float:
        return max(LINE_HEIGHT * (len(self.lines) + 1) + MARGIN + 4, END_SPACE * (self.n_ends + 1))

    @property
    def centre(self) -> float:
        return self.top + self.height / 2


@dataclass
class _RelationLabel:
    """The label of a relation that links several types; `centre` is its vertical position."""

    relation: DiagramRelation
    centre: float = 0.0


def type_diagram(types: Sequence[DiagramType], relations: Sequence[DiagramRelation]) -> str:
    """Return an SVG element: a box for each type, and lines from each relation to the types of its arguments."""
    boxes = {each.name: _make_box(each, relations) for each in types}
    labels = [_RelationLabel(relation) for relation in relations]
    columns = _assign_columns(boxes, relations)
    _arrange(boxes, labels, columns)
    label_width = max((LABEL_CHARACTER * len(label.relation.label) + 2 * MARGIN for label in labels), default=0)
    middle = MARGIN + BOX_WIDTH + GAP if labels else 0
    right = middle + label_width + GAP if labels else BOX_WIDTH + GAP
    width = (right if columns[1] else MARGIN) + BOX_WIDTH + MARGIN
    height = 2 * MARGIN + max([box.top + box.height for box in boxes.values()], default=0)
    height = max([height, *(label.centre + LABEL_HEIGHT for label in labels)])
    parts = [_lines_svg(boxes, labels, columns, middle, label_width, right)]
    parts += [_label_svg(label, middle, label_width) for label in labels]
    parts += [_box_svg(boxes[name], x) for names, x in zip(columns, (MARGIN, right), strict=True) for name in names]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'style="max-width: {width:g}px; min-width: {min(width, 720):g}px" '
        f'aria-label="diagram of the entity types and relations" font-size="13" fill="currentColor">{"".join(parts)}</svg>'
    )


def _make_box(each: DiagramType, relations: Sequence[DiagramRelation]) -> _TypeBox:
    lines, inner = _mark(each.lines), _mark(each.relations)
    n_ends = sum(name == each.name for relation in relations for name, _ in relation.ends)
    return _TypeBox(each.title, lines + inner, len(inner), n_ends)


def _mark(lines: Sequence[DiagramLine]) -> list[tuple[str, str]]:
    """Return at most MAX_LINES lines (text, style)."""
    shown = lines if len(lines) <= MAX_LINES else lines[: MAX_LINES - 1]
    more = [(f"{len(lines) - len(shown):,} more", ' fill-opacity="0.7"')] if len(shown) < len(lines) else []
    return [(text, ' fill="var(--mark)" font-weight="700"' if is_target else "") for text, is_target in shown] + more


def _assign_columns(boxes: Mapping[str, _TypeBox], relations: Sequence[DiagramRelation]) -> tuple[list[str], list[str]]:
    """Distribute the types to a left and a right column, so that relations have types on both sides."""
    columns: tuple[list[str], list[str]] = ([], [])
    heights = [0.0, 0.0]
    for name in sorted(boxes, key=lambda name: -boxes[name].n_ends):
        neighbours = [
            {other for other, _ in relation.ends}
            for relation in relations
            if any(other == name for other, _ in relation.ends)
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
            (sum(boxes[name].centre for name, _ in label.relation.ends) / len(label.relation.ends), k)
            for k, label in enumerate(labels)
        ]
        _spread(wanted, labels, MARGIN + LABEL_HEIGHT / 2, MARGIN + total - LABEL_HEIGHT / 2)


def _mean_position(name: str, labels: Sequence[_RelationLabel]) -> float:
    """Return the mean vertical position of the relations of a type; types without such relations come last."""
    found = [label.centre for label in labels for other, _ in label.relation.ends if other == name]
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
    """Return a curve from each relation to the box of each argument, with the text of its end."""
    ends: dict[str, list[tuple[float, int, int]]] = {name: [] for name in boxes}
    for index, label in enumerate(labels):
        for k, (name, _) in enumerate(label.relation.ends):
            ends[name].append((label.centre, index, k))
    heights = {}
    for name, box in boxes.items():
        for rank, (_, index, k) in enumerate(sorted(ends[name])):
            heights[index, k] = box.top + box.height * (rank + 1) / (len(ends[name]) + 1)
    parts = []
    for index, label in enumerate(labels):
        for side, x, end in ((0, middle, MARGIN + BOX_WIDTH), (1, middle + label_width, right)):
            chosen = [k for k, (name, _) in enumerate(label.relation.ends) if name in columns[side]]
            for rank, k in enumerate(sorted(chosen, key=lambda k: heights[index, k])):
                y = label.centre - LABEL_HEIGHT / 2 + LABEL_HEIGHT * (rank + 1) / (len(chosen) + 1)
                parts.append(_line_svg(x, y, end, heights[index, k], label.relation.ends[k][1]))
    return "".join(parts)


def _line_svg(x: float, y: float, end_x: float, end_y: float, text: str) -> str:
    centre, is_left = (x + end_x) / 2, end_x < x
    path = f"M {x:g} {y:.1f} C {centre:g} {y:.1f} {centre:g} {end_y:.1f} {end_x:g} {end_y:.1f}"
    shown = shorten(text, MAX_END_CHARACTERS)
    text_x, anchor = (end_x + 5, "start") if is_left else (end_x - 5, "end")
    return (
        f'<path d="{path}" fill="none" stroke="var(--first)" stroke-width="1.5"/>'
        f'<text x="{text_x:g}" y="{end_y - 3:.1f}" text-anchor="{anchor}" font-size="11">'
        f"{_escape(shown)}{_tooltip(text, shown)}</text>"
    )


def _label_svg(label: _RelationLabel, x: float, width: float) -> str:
    top, relation = label.centre - LABEL_HEIGHT / 2, label.relation
    style = ' fill="var(--mark)" font-weight="700"' if relation.is_target else ""
    text = f"{_escape(relation.label)}{_tooltip(relation.name, relation.label)}"
    return (
        f'<g class="relation"><rect x="{x:g}" y="{top:.1f}" width="{width:g}" height="{LABEL_HEIGHT}" rx="12" '
        f'fill="var(--paper)" stroke="var(--first)"/><text x="{x + width / 2:g}" y="{label.centre + 4:.1f}" '
        f'text-anchor="middle" font-size="12"{style}>{text}</text></g>'
    )


def _box_svg(box: _TypeBox, x: float) -> str:
    """Return the box of a type; its content is a nested SVG element, which hides text that is wider than the box."""
    title = shorten(box.title, MAX_TITLE_CHARACTERS)
    rows = [
        f'<text x="{MARGIN}" y="{LINE_HEIGHT}" font-weight="700">{_escape(title)}{_tooltip(box.title, title)}</text>'
    ]
    for k, (line, style) in enumerate(box.lines):
        text = shorten(line, MAX_CHARACTERS)
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


def shorten(text: str, width: int) -> str:
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
