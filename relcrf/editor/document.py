"""A model's text as an editor holds it: parsed, checked, and with an index of its names."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from relcrf.editor.partial_declaration import PartialDeclaration
from relcrf.editor.symbols import Binder, Occurrence, Symbol, SymbolIndex
from relcrf.errors import Diagnostic, Source, Span
from relcrf.language.check import check, line_and_column
from relcrf.language.parse import parse_source
from relcrf.language.tokens import DeclarationTokens, SourceText
from relcrf.model.spec import Declaration, Include, ModelSpec

_log = logging.getLogger(__name__)

UNSAVED_NAME = "<model>"
"""The name of a text that is not a file."""


class Document:
    """A text, and what the language makes of it; worked out when it is first asked for.

    Any text is possible, since it is read at every keystroke. Where reading one hits a bug of ours, the log says so, and the
    editor shows a model of which less is known.

    Args:
        path: the file; None where it is none yet, and then it can include no other.
    """

    def __init__(self, text: str, path: Path | None) -> None:
        self.path = path.resolve() if path is not None else None
        self.name = str(self.path) if self.path is not None else UNSAVED_NAME
        self.text = SourceText(text, self.name)

    @property
    def folder(self) -> Path | None:
        return self.path.parent if self.path is not None else None

    @property
    def spec(self) -> ModelSpec:
        """The declarations that could be parsed."""
        return self._parsed[0]

    @property
    def problems(self) -> list[Diagnostic]:
        """The syntax errors of the declarations that could not be parsed."""
        return self._parsed[1]

    @cached_property
    def _parsed(self) -> tuple[ModelSpec, list[Diagnostic]]:
        try:
            return parse_source(self.text, self.folder)
        except Exception:
            _log.exception("reading %s failed; this is a bug in relcrf", self.name)
            return ModelSpec((), source=self.text.source), [_internal_error(self.text.source)]

    @cached_property
    def diagnostics(self) -> list[Diagnostic]:
        """All mistakes and doubts, in the order of the text."""
        try:
            found = check(self.spec, self.problems)
        except Exception:
            _log.exception("checking %s failed; this is a bug in relcrf", self.name)
            found = [_internal_error(self.text.source)]
        return sorted([*self.problems, *found], key=line_and_column)

    @cached_property
    def _sources(self) -> dict[str, Source]:
        """The texts of the files that the model includes, as far as they say anything."""
        spans = [d.span for d in self.spec.included] + [p.location for p in self.problems]
        sources = (span.source for span in spans if isinstance(span, Span))
        return {source.name: source for source in sources if source.name != self.name}

    @cached_property
    def texts(self) -> Mapping[str, SourceText]:
        """The model's text and those that it includes, by the names of their sources."""
        return {self.name: self.text, **{name: SourceText(source.text, name) for name, source in self._sources.items()}}

    def source_path(self, source: str) -> Path | None:
        """The file of a source."""
        if source == self.name or self.folder is None:
            return self.path
        return (self.folder / source).resolve()

    @cached_property
    def included_paths(self) -> frozenset[Path]:
        """All files that the model includes, itself or through others."""
        found = {path for name in self._sources if (path := self.source_path(name)) is not None}
        for declaration in (*self.spec.declarations, *self.spec.included):
            if isinstance(declaration, Include):
                path = self.include_target(declaration)
                found |= {path} if path is not None else set()
        return frozenset(found)

    def include_target(self, include: Include) -> Path | None:
        """The file that an `include` names, whether it is there or not."""
        home = self.source_path(include.span.source.name) if include.span is not None else None
        try:
            return Path(os.path.realpath(home.parent / include.path)) if home is not None else None
        except ValueError:  # no name of a file at all
            return None

    @cached_property
    def index(self) -> SymbolIndex:
        """All names of the model and what it includes; also those of declarations that are half typed."""
        binders: dict[Symbol, Binder] = {}
        found: list[Occurrence] = []
        try:
            for name, text in self.texts.items():
                for declaration in text.declarations:
                    found += PartialDeclaration(declaration, self.spec).occurrences(name, self.texts, binders)
        except Exception:
            _log.exception("looking up the names of %s failed; this is a bug in relcrf", self.name)
        return SymbolIndex(found, binders)

    @cached_property
    def parsed_declarations(self) -> tuple[tuple[DeclarationTokens, Declaration], ...]:
        """The declarations of this text that parse, each with its tokens."""
        found = []
        for declaration in self.spec.declarations:
            if declaration.span is not None:
                tokens = self.text.declaration_at(self.text.offsets(declaration.span)[0])
                if tokens is not None:
                    found.append((tokens, declaration))
        return tuple(found)

    def included_path_at(self, offset: int) -> Path | None:
        """The file that the `include` at an offset names."""
        for tokens, declaration in self.parsed_declarations:
            if isinstance(declaration, Include) and tokens.start <= offset <= tokens.stop:
                path = self.include_target(declaration)
                return path if path is not None and os.path.isfile(path) else None
        return None


def _internal_error(source: Source) -> Diagnostic:
    """Return a diagnostic for a failure of the checker itself, so that the editor can continue."""
    message = "relcrf failed on this model, which is a bug of relcrf and not a mistake of yours"
    return Diagnostic(
        "E070", message, Span(source, 1, 1, 1, 2), "please report the model and what the server's log says"
    )
