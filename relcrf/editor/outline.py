"""The declarations of a text, as a list to navigate by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relcrf.editor.document import Document
from relcrf.language.tokens import DeclarationTokens

_KINDS = {
    "domain": "Enum",
    "entity": "Class",
    "relation": "Interface",
    "predict": "Interface",
    "derive": "Interface",
    "template": "Function",
    "candidates": "Function",
    "rule": "Function",
    "gate": "Event",
    "include": "File",
}
_MAX_LABEL = 40
"""Characters of a rule without a name."""


@dataclass(frozen=True)
class Heading:
    """A declaration or an attribute.

    Args:
        kind: as the protocol's `SymbolKind` calls it.
        start, stop: all of it. name_start, name_stop: its name.
    """

    name: str
    kind: str
    detail: str
    start: int
    stop: int
    name_start: int
    name_stop: int
    children: tuple[Heading, ...] = ()


def outline(document: Document) -> Iterator[Heading]:
    """The declarations in the order of the text. Half typed ones are there, too: a list that jumps helps nobody."""
    for head in document.text.declarations:
        if head.keyword:
            yield _heading(head, document.text.text)


def _heading(head: DeclarationTokens, text: str) -> Heading:
    if head.name_index is not None:
        name = head.tokens[head.name_index]
        label = name.text
    else:
        name = head.tokens[0]
        label = " ".join(text[head.start : head.stop].split())
        label = label if len(label) <= _MAX_LABEL else label[:_MAX_LABEL] + "..."
    parameters = ", ".join(f"{p}: {sort}" for p, (_, sort) in head.parameters.items())
    word = "predict relation" if head.keyword == "predict" else head.keyword
    detail = f"{word}({parameters})" if parameters else word
    children = tuple(_attributes(head))
    return Heading(label, _KINDS[head.keyword], detail, head.start, head.stop, name.start, name.stop, children)


def _attributes(head: DeclarationTokens) -> Iterator[Heading]:
    firsts = set(head.attributes.values())
    for k, start in head.attributes.items():
        name, first = head.tokens[k], head.tokens[start]
        rest = range(k + 2, len(head.tokens))
        stop = next((j for j in rest if head.texts[j] in (",", "}") or j in firsts), len(head.tokens))
        kind = " ".join(head.texts[k + 2 : stop]).replace(" .. ", "..")
        role = f"{first.text} " if start < k else ""
        yield Heading(name.text, "Field", role + kind, first.start, head.tokens[stop - 1].stop, name.start, name.stop)
