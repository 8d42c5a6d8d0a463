"""The text of a model in an editor, with the declarations, the diagnostics, and an index of the names."""

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
"""Name of a text that is not saved to a file."""


class Document:
    """A text of a model; the declarations, diagnostics and names are computed on first use.

    The text is read at every keystroke, so it may have any errors. If reading fails because of a bug in relcrf, the
    failure is logged, and the model is incomplete.

    Args:
        path: The file; None for an unsaved text, which cannot include files.
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
        """All errors and warnings, in text order."""
        try:
            found = check(self.spec, self.problems)
        except Exception:
            _log.exception("checking %s failed; this is a bug in relcrf", self.name)
            found = [_internal_error(self.text.source)]
        return sorted([*self.problems, *found], key=line_and_column)

    @cached_property
    def _sources(self) -> dict[str, Source]:
        """The sources of the included files that have declarations or syntax errors."""
        spans = [d.span for d in self.spec.included] + [p.location for p in self.problems]
        sources = (span.source for span in spans if isinstance(span, Span))
        return {source.name: source for source in sources if source.name != self.name}

    @cached_property
    def texts(self) -> Mapping[str, SourceText]:
        """The text of the model and the texts of the included files, by source name."""
        return {self.name: self.text, **{name: SourceText(source.text, name) for name, source in self._sources.items()}}

    def source_path(self, source: str) -> Path | None:
        """Return the file of a source."""
        if source == self.name or self.folder is None:
            return self.path
        return (self.folder / source).resolve()

    @cached_property
    def included_paths(self) -> frozenset[Path]:
        """All files that the model includes, directly or indirectly."""
        found = {path for name in self._sources if (path := self.source_path(name)) is not None}
        for declaration in (*self.spec.declarations, *self.spec.included):
            if isinstance(declaration, Include):
                path = self.include_target(declaration)
                found |= {path} if path is not None else set()
        return frozenset(found)

    def include_target(self, include: Include) -> Path | None:
        """Return the path that an `include` names, whether the file exists or not."""
        home = self.source_path(include.span.source.name) if include.span is not None else None
        try:
            return Path(os.path.realpath(home.parent / include.path)) if home is not None else None
        except ValueError:  # not a valid path
            return None

    @cached_property
    def index(self) -> SymbolIndex:
        """The index of all names in the model and its included files, including those in incomplete declarations."""
        binders: dict[Symbol, Binder] = {}
        found: list[Occurrence] = []
        try:
            for name, text in self.texts.items():
                for declaration in text.declarations:
                    found += PartialDeclaration(declaration, self.spec).occurrences(name, self.texts, binders)
        except Exception:
            _log.exception("indexing the names of %s failed; this is a bug in relcrf", self.name)
        return SymbolIndex(found, binders)

    @cached_property
    def parsed_declarations(self) -> tuple[tuple[DeclarationTokens, Declaration], ...]:
        """The declarations of this text that could be parsed, with their tokens."""
        found = []
        for declaration in self.spec.declarations:
            if declaration.span is not None:
                tokens = self.text.declaration_at(self.text.offsets(declaration.span)[0])
                if tokens is not None:
                    found.append((tokens, declaration))
        return tuple(found)

    def included_path_at(self, offset: int) -> Path | None:
        """Return the existing file that the `include` at an offset names; None if there is none."""
        for tokens, declaration in self.parsed_declarations:
            if isinstance(declaration, Include) and tokens.start <= offset <= tokens.stop:
                path = self.include_target(declaration)
                return path if path is not None and os.path.isfile(path) else None
        return None


def _internal_error(source: Source) -> Diagnostic:
    """Return the diagnostic for a failure of the parser or checker."""
    message = "relcrf failed on this model; this is a bug in relcrf, not an error in the model"
    return Diagnostic("E070", message, Span(source, 1, 1, 1, 2), "please report the model and the server's log")
