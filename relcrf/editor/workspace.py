"""The documents that an editor has open, and the files that belong together with them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from relcrf.editor.document import Document
from relcrf.editor.symbols import Namespace, Occurrence, Symbol

MAX_FOLDERS = 2000
"""Folders of the workspace in which models are looked for, so that a home directory opened by mistake costs no minutes."""

_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})


class Workspace:
    """Open documents by their URIs, and models on disk.

    Args:
        roots: the folders of the workspace.
    """

    def __init__(self) -> None:
        self.roots: list[Path] = []
        self.open_documents: dict[str, Document] = {}
        self._closed_documents: dict[Path, tuple[tuple[int, ...], Document]] = {}

    def open_document(self, uri: str, text: str, path: Path | None) -> Document:
        """Takes the text of a document that is open."""
        self.open_documents[uri] = Document(text, path)
        return self.open_documents[uri]

    def reload_including(self) -> list[str]:
        """Reads again what documents include, after files have changed; returns the documents with an `include`."""
        including = [uri for uri, document in self.open_documents.items() if document.included_paths]
        for uri in including:
            document = self.open_documents[uri]
            self.open_documents[uri] = Document(document.text.text, document.path)
        return including

    def is_current(self, document: Document, source: str) -> bool:
        """Return whether a text of a model is still what the editor or, of a file that is not open, the disk has."""
        known, path = document.texts[source].text, document.source_path(source)
        opened = next((d for d in self.open_documents.values() if d.path == path), None)
        if opened is not None or path is None:
            return opened is None or known == opened.text.text
        try:
            return known == path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return False

    def occurrences(self, document: Document, symbol: Symbol) -> list[tuple[Document, Occurrence]]:
        """Return where a symbol occurs: in the document, in what it includes, and in the other models that include the same."""
        found = [(document, occurrence) for occurrence in document.index.occurrences(symbol)]
        if symbol.namespace is Namespace.BINDER:
            return found
        homes = _declaration_sites(document, symbol)
        seen = {(document.source_path(o.source), o.start) for _, o in found}
        paths = {path for path, _ in homes}
        for other in self._iterate_models(document):
            is_near = other.path in paths or ("include" in other.text.text and paths & other.included_paths)
            if other.path != document.path and is_near and homes & _declaration_sites(other, symbol):
                for o in other.index.occurrences(symbol):
                    if (place := (other.source_path(o.source), o.start)) not in seen:
                        seen.add(place)
                        found.append((other, o))
        return found

    def _iterate_models(self, document: Document) -> Iterator[Document]:
        """All models that are open, in the workspace, or beside a document and below."""
        opened = {d.path: d for d in self.open_documents.values() if d.path is not None}
        yield from opened.values()
        folders = [*self.roots, *([document.folder] if document.folder is not None else [])]
        for path in _find_models(folders):
            if path not in opened:
                found = self.load_from_disk(path)
                if found is not None:
                    yield found

    def load_from_disk(self, path: Path) -> Document | None:
        """A model as the disk has it, read anew when it or what it includes has changed; None where it cannot be read."""
        try:
            if path not in self._closed_documents or self._closed_documents[path][0] != _modification_times(
                self._closed_documents[path][1]
            ):
                found = Document(path.read_text(encoding="utf-8"), path)
                self._closed_documents[path] = _modification_times(found), found
        except (OSError, ValueError):
            return None
        return self._closed_documents[path][1]


def _modification_times(document: Document) -> tuple[int, ...]:
    """When a model and the files that it includes were changed last; 0 for those that are not there."""
    paths = sorted({*document.included_paths, *([document.path] if document.path is not None else [])})
    return tuple(os.stat(path).st_mtime_ns if path.is_file() else 0 for path in paths)


def _declaration_sites(document: Document, symbol: Symbol) -> set[tuple[Path | None, int]]:
    """The files and offsets where a symbol is declared."""
    return {(document.source_path(o.source), o.start) for o in document.index.declarations(symbol)}


def _find_models(folders: list[Path]) -> Iterator[Path]:
    """The models in some folders and below, each once."""
    seen: set[Path] = set()
    left = MAX_FOLDERS
    for folder in folders:
        for parent, children, names in os.walk(folder):
            children[:] = sorted(c for c in children if not c.startswith(".") and c not in _SKIPPED)
            left -= 1
            if left < 0:
                return
            for name in sorted(names):
                path = Path(os.path.realpath(os.path.join(parent, name)))
                if name.endswith(".rcrf") and path not in seen and path.is_file():
                    seen.add(path)
                    yield path
