"""The open documents of an editor, and related models on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from relcrf.editor.document import Document
from relcrf.editor.symbols import Namespace, Occurrence, Symbol

MAX_FOLDERS = 2000
"""Maximum number of folders searched for models; bounds the time if the user opens a home directory by mistake."""

_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})


class Workspace:
    """The open documents by URI, and cached models on disk.

    Args:
        roots: Folders of the workspace.
    """

    def __init__(self) -> None:
        self.roots: list[Path] = []
        self.open_documents: dict[str, Document] = {}
        self._closed_documents: dict[Path, tuple[tuple[int, ...], Document]] = {}

    def open_document(self, uri: str, text: str, path: Path | None) -> Document:
        """Store the text of an open document."""
        self.open_documents[uri] = Document(text, path)
        return self.open_documents[uri]

    def reload_documents_with_includes(self) -> list[str]:
        """Reload the documents with an `include` after files have changed, and return the URIs of these documents."""
        including = [uri for uri, document in self.open_documents.items() if document.included_paths]
        for uri in including:
            document = self.open_documents[uri]
            self.open_documents[uri] = Document(document.text.text, document.path)
        return including

    def is_current(self, document: Document, source: str) -> bool:
        """Return True if a stored text equals the editor's text or, if the file is not open, the file on disk."""
        known, path = document.texts[source].text, document.source_path(source)
        opened = next((d for d in self.open_documents.values() if d.path == path), None)
        if opened is not None or path is None:
            return opened is None or _have_equal_lines(known, opened.text.text)
        try:
            return _have_equal_lines(known, path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError):
            return False

    def occurrences(self, document: Document, symbol: Symbol) -> list[tuple[Document, Occurrence]]:
        """Return the occurrences of a symbol in a document, included files, and models that share the declaration."""
        found = [(document, occurrence) for occurrence in document.index.occurrences(symbol)]
        if symbol.namespace is Namespace.BINDER:
            return found
        sites = _declaration_sites(document, symbol)
        seen = {_location(document, o) for _, o in found}
        paths = {path for path, _, _ in sites}
        for other in self._iterate_models(document):
            may_share = other.path in paths or ("include" in other.text.text and paths & other.included_paths)
            if other.path != document.path and may_share and sites & _declaration_sites(other, symbol):
                for o in other.index.occurrences(symbol):
                    if (location := _location(other, o)) not in seen:
                        seen.add(location)
                        found.append((other, o))
        return found

    def _iterate_models(self, document: Document) -> Iterator[Document]:
        """Yield all models that are open, in the workspace, or in the folder of a document and its subfolders."""
        opened = {d.path: d for d in self.open_documents.values() if d.path is not None}
        yield from opened.values()
        folders = [*self.roots, *([document.folder] if document.folder is not None else [])]
        for path in _find_models(folders):
            if path not in opened:
                found = self.load_from_disk(path)
                if found is not None:
                    yield found

    def load_from_disk(self, path: Path) -> Document | None:
        """Load a model, cached until the file or an included file changes; return None if the file cannot be read."""
        try:
            if path not in self._closed_documents or self._closed_documents[path][0] != _modification_times(
                self._closed_documents[path][1]
            ):
                found = Document(path.read_text(encoding="utf-8-sig"), path)
                self._closed_documents[path] = _modification_times(found), found
        except (OSError, ValueError):
            return None
        return self._closed_documents[path][1]


def _modification_times(document: Document) -> tuple[int, ...]:
    """Return the modification times of a model and its included files; 0 for missing files."""
    paths = sorted({*document.included_paths, *([document.path] if document.path is not None else [])})
    return tuple(os.stat(path).st_mtime_ns if path.is_file() else 0 for path in paths)


def _have_equal_lines(text: str, other: str) -> bool:
    """Return True if two texts are equal, or differ only in their line breaks (those of files are read as `\\n`)."""
    return text.replace("\r\n", "\n") == other.replace("\r\n", "\n")


def _location(document: Document, occurrence: Occurrence) -> tuple[Path | None, int, int]:
    """Return the file, line and column of an occurrence. Its offset depends on the line breaks; see `_have_equal_lines`."""
    span = document.texts[occurrence.source].span(occurrence.start, occurrence.stop)
    return document.source_path(occurrence.source), span.line, span.column


def _declaration_sites(document: Document, symbol: Symbol) -> set[tuple[Path | None, int, int]]:
    """Return the locations of the declarations of a symbol."""
    return {_location(document, o) for o in document.index.declarations(symbol)}


def _find_models(folders: list[Path]) -> Iterator[Path]:
    """Yield the models in some folders and their subfolders, without duplicates."""
    seen: set[Path] = set()
    n_remaining = MAX_FOLDERS
    for folder in folders:
        for parent, children, names in os.walk(folder):
            children[:] = sorted(c for c in children if not c.startswith(".") and c not in _SKIPPED)
            n_remaining -= 1
            if n_remaining < 0:
                return
            for name in sorted(names):
                path = Path(os.path.realpath(os.path.join(parent, name)))
                if name.endswith(".rcrf") and path not in seen and path.is_file():
                    seen.add(path)
                    yield path
