"""Diagnostics as an editor shows them: every one at a place of the text that is open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relcrf.editor.document import Document
from relcrf.errors import Diagnostic, Span
from relcrf.model.spec import Include
from relcrf.resources import resource_path


@dataclass(frozen=True)
class RelatedNote:
    """A remark about a place, which may be in another file."""

    message: str
    source: str
    start: int
    stop: int


@dataclass(frozen=True)
class LocatedDiagnostic:
    """A diagnostic at offsets of the document.

    Args:
        message: with the hint, and the file where that is another one.
    """

    diagnostic: Diagnostic
    start: int
    stop: int
    message: str
    related: tuple[RelatedNote, ...]


def locate_diagnostics(document: Document) -> Iterator[LocatedDiagnostic]:
    """All diagnostics of a document. One about an included file stands at the `include` that leads there."""
    for diagnostic in document.diagnostics:
        span = diagnostic.location if isinstance(diagnostic.location, Span) else None
        source = span.source.name if span is not None and span.source.name in document.texts else document.name
        start, stop = document.texts[source].offsets(span) if span is not None else (0, 0)
        message = diagnostic.message + (f"\nhelp: {diagnostic.hint}" if diagnostic.hint else "")
        related = tuple(_locate_notes(document, diagnostic, source, start, stop))
        if source != document.name:
            related = (RelatedNote(diagnostic.message, source, start, stop), *related)
            message = f"in '{source}': {message}"
            start, stop = _find_include(document, source)
        yield LocatedDiagnostic(diagnostic, start, stop, message, related)


def error_page_path(code: str) -> Path | None:
    """Return the page that explains a code, where this installation has it."""
    try:
        return resource_path("docs/errors", f"{code}.md")
    except FileNotFoundError:
        return None


def _find_include(document: Document, source: str) -> tuple[int, int]:
    """The `include` of the document that leads to a file: the one that names it, else the first one."""
    includes = [d for _, d in document.parsed_declarations if isinstance(d, Include) and d.span is not None]
    target = document.source_path(source)
    exact = [d for d in includes if document.include_target(d) == target]
    for include in exact or includes:
        if include.span is not None:
            return document.text.offsets(include.span)
    return 0, 0


_LINE_REFERENCE = re.compile(r"\blines? (?P<lines>\d+(?:, \d+)*)(?: of (?P<file>[^,]+))?")


def _locate_notes(
    document: Document, diagnostic: Diagnostic, source: str, start: int, stop: int
) -> Iterator[RelatedNote]:
    """The notes, each at the line that it speaks of, and at the diagnostic's own place where it speaks of none."""
    for note in diagnostic.notes:
        found = _LINE_REFERENCE.search(note)
        where = source if found is None or found["file"] is None else found["file"]
        text = document.texts.get(where)
        if found is None or text is None:
            yield RelatedNote(note, source, start, stop)
            continue
        for line in found["lines"].split(", "):
            yield RelatedNote(note, where, *text.line_range(int(line)))
