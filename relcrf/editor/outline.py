"""The outline of a text: its declarations and attributes, for navigation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relcrf.editor.document import Document
from relcrf.language.tokens import DeclarationTokens

_SYMBOL_KINDS = {
    "domain": "Enum",
    "entity": "Class",
    "relation": "Interface",
    "predict": "Interface",
    "derive": "Interface",
    "feature": "Property",
    "template": "Function",
    "candidates": "Function",
    "rule": "Function",
    "gate": "Event",
    "include": "File",
}
_MAX_LABEL_LENGTH = 40
"""Maximum length of the label of an unnamed rule."""


@dataclass(frozen=True)
class OutlineEntry:
    """An entry of the outline: a declaration or an attribute.

    Args:
        kind: Name of a `SymbolKind` of the protocol.
        start, stop: Offsets at which the declaration starts and ends.
        name_start, name_stop: Offsets of the declared name.
    """

    name: str
    kind: str
    detail: str
    start: int
    stop: int
    name_start: int
    name_stop: int
    children: tuple[OutlineEntry, ...] = ()


def outline(document: Document) -> Iterator[OutlineEntry]:
    """Yield an entry for each declaration, also for incomplete ones, so that the outline is stable during typing."""
    for declaration in document.text.declarations:
        if declaration.keyword:
            yield _build_entry(declaration, document.text.text)


def _build_entry(declaration: DeclarationTokens, text: str) -> OutlineEntry:
    if declaration.name_index is not None:
        name = declaration.tokens[declaration.name_index]
        label = name.text
    else:
        name = declaration.tokens[0]
        label = " ".join(text[declaration.start : declaration.stop].split())
        label = label if len(label) <= _MAX_LABEL_LENGTH else label[:_MAX_LABEL_LENGTH] + "..."
    parameters = ", ".join(f"{p}: {type_name}" for p, (_, type_name) in declaration.parameters.items())
    word = "predict relation" if declaration.keyword == "predict" else declaration.keyword
    detail = f"{word}({parameters})" if parameters else word
    children = tuple(_attribute_entries(declaration))
    return OutlineEntry(
        label,
        _SYMBOL_KINDS[declaration.keyword],
        detail,
        declaration.start,
        declaration.stop,
        name.start,
        name.stop,
        children,
    )


def _attribute_entries(declaration: DeclarationTokens) -> Iterator[OutlineEntry]:
    firsts = set(declaration.attributes.values())
    for k, start in declaration.attributes.items():
        name, first = declaration.tokens[k], declaration.tokens[start]
        rest = range(k + 2, len(declaration.tokens))
        stop = next((j for j in rest if declaration.texts[j] in (",", "}") or j in firsts), len(declaration.tokens))
        kind = " ".join(declaration.texts[k + 2 : stop]).replace(" .. ", "..")
        role = f"{first.text} " if start < k else ""
        yield OutlineEntry(
            name.text, "Field", role + kind, first.start, declaration.tokens[stop - 1].stop, name.start, name.stop
        )
