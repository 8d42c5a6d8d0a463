"""Diagnostics for editors; each is located at a range of the open text."""

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
    """A note on a range of a text, possibly of an included file."""

    message: str
    source: str
    start: int
    stop: int


@dataclass(frozen=True)
class LocatedDiagnostic:
    """A diagnostic at a range of the document.

    Args:
        message: The message with its hint, and with the file name if the error is in an included file.
    """

    diagnostic: Diagnostic
    start: int
    stop: int
    message: str
    related: tuple[RelatedNote, ...]


def locate_diagnostics(document: Document) -> Iterator[LocatedDiagnostic]:
    """Yield all diagnostics of a document. Diagnostics of an included file are located at the `include` of the file."""
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
    """Return the path of the page that explains a code; None if it is not installed."""
    try:
        return resource_path("docs/errors", f"{code}.md")
    except FileNotFoundError:
        return None


def _find_include(document: Document, source: str) -> tuple[int, int]:
    """Return the range of the `include` that names a file, or of the first `include` if the file is included indirectly."""
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
    """Yield the notes of a diagnostic. A note is located at the lines that it mentions, or else at the diagnostic."""
    for note in diagnostic.notes:
        reference = _LINE_REFERENCE.search(note)
        name = source if reference is None or reference["file"] is None else reference["file"]
        text = document.texts.get(name)
        if reference is None or text is None:
            yield RelatedNote(note, source, start, stop)
            continue
        for line in reference["lines"].split(", "):
            yield RelatedNote(note, name, *text.line_range(int(line)))
