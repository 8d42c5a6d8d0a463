"""The language server: handlers of protocol requests over standard input and output."""

from __future__ import annotations

import asyncio
import logging
import sys
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from relcrf import __version__
from relcrf.editor.bounded_input import BoundedInput
from relcrf.editor.completion import TRIGGER_CHARACTERS, CompletionCandidate, complete
from relcrf.editor.diagnostics import LocatedDiagnostic, RelatedNote, error_page_path, locate_diagnostics
from relcrf.editor.document import Document
from relcrf.editor.hover import hover
from relcrf.editor.outline import OutlineEntry, outline
from relcrf.editor.positions import PositionMap
from relcrf.editor.quick_fixes import FIX_ALL, QUICK_FIX, QuickFix, quick_fixes
from relcrf.editor.rename import RenameError, find_renameable, require_available_name
from relcrf.editor.symbols import Occurrence
from relcrf.editor.workspace import Workspace
from relcrf.errors import ModelError
from relcrf.language.format import format_text

CHECK_DELAY = 0.15
"""Delay in seconds between the last keystroke and the check of the text."""

MAX_CHARACTERS = 100_000
"""Maximum length of a text that is analysed; a longer one would block the editor for seconds at every change."""

_log = logging.getLogger(__name__)


class RequestFailure(JsonRpcException):
    """The error response for a valid request that cannot be fulfilled, such as an impossible rename."""

    CODE = types.LSPErrorCodes.RequestFailed


class RcrfServer(LanguageServer):
    """A language server for models.

    Clients send the full text with every change, because models are small and full texts cannot get out of sync.
    """

    def __init__(self) -> None:
        super().__init__("relcrf", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.project = Workspace()
        self.is_shut_down = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def report_server_error(self, error: Exception, source: object) -> None:
        """Log an internal error instead of showing a message, which could appear at every keystroke."""
        if not isinstance(error, RequestFailure):
            _log.error("%s: %s", type(error).__name__, error)

    def supports(self, capability: str) -> bool:
        """Return True if the client has a capability, given as a dotted path."""
        return bool(get_capability(self.client_capabilities, capability, False))

    # Documents

    def update_document(self, uri: str) -> Document:
        """Store the editor's current text of a document, or an empty text if it is too long."""
        path = to_fs_path(uri)
        text = "" if self._is_too_long(uri) else self.workspace.get_text_document(uri).source
        return self.project.open_document(uri, text, Path(path) if path else None)

    def _is_too_long(self, uri: str) -> bool:
        return len(self.workspace.get_text_document(uri).source) > MAX_CHARACTERS

    def document(self, uri: str) -> Document:
        """Return an open document, or the file on disk if it is not open."""
        path = to_fs_path(uri)
        document = self.project.open_documents.get(uri) or (self.project.load_from_disk(Path(path)) if path else None)
        return document or Document("", Path(path) if path else None)

    def schedule_check(self, uri: str) -> None:
        """Check a document after a pause in typing."""
        self._cancel_timer(uri)
        self._timers[uri] = asyncio.get_running_loop().call_later(CHECK_DELAY, self.check_now, uri)

    def check_now(self, uri: str) -> None:
        """Check a document and publish its diagnostics."""
        self._cancel_timer(uri)
        document = self.project.open_documents.get(uri)
        if document is None:
            return
        version = self.workspace.get_text_document(uri).version
        diagnostics = [self._to_lsp_diagnostic(document, located) for located in locate_diagnostics(document)]
        if self._is_too_long(uri):
            message = f"models of more than {MAX_CHARACTERS:,} characters are not analysed here; run 'relcrf check'"
            top = types.Range(types.Position(0, 0), types.Position(0, 0))
            diagnostics = [types.Diagnostic(top, message, types.DiagnosticSeverity.Information, source="relcrf")]
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics, version))

    def close_document(self, uri: str) -> None:
        """Remove a document and clear its diagnostics."""
        self._cancel_timer(uri)
        self.project.open_documents.pop(uri, None)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def _cancel_timer(self, uri: str) -> None:
        if uri in self._timers:
            self._timers.pop(uri).cancel()

    # Positions

    def position_map(self, text: str) -> PositionMap:
        return _cached_position_map(text, str(self.workspace.position_encoding or "utf-16"))

    def offset(self, document: Document, position: types.Position) -> int:
        return self.position_map(document.text.text).offset(position.line, position.character)

    def range(self, text: str, start: int, stop: int) -> types.Range:
        positions = self.position_map(text)
        return types.Range(types.Position(*positions.position(start)), types.Position(*positions.position(stop)))

    def file_uri(self, path: Path | None, document: Document) -> str:
        """Return the URI of a file, or of the document if `path` is None; for an open file, return the editor's URI."""
        for uri, opened in self.project.open_documents.items():
            if opened is document if path is None else opened.path == path:
                return uri
        return str(from_fs_path(str(path)))

    def location(self, document: Document, item: Occurrence | RelatedNote) -> types.Location:
        """Return the location of a range in a document or in a file that it includes."""
        uri = self.file_uri(document.source_path(item.source), document)
        return types.Location(uri, self.range(document.texts[item.source].text, item.start, item.stop))

    # Conversion to protocol types

    def _to_lsp_diagnostic(self, document: Document, located: LocatedDiagnostic) -> types.Diagnostic:
        related = [
            types.DiagnosticRelatedInformation(self.location(document, related), related.message)
            for related in located.related
        ]
        message = located.message
        if not self.supports("text_document.publish_diagnostics.related_information"):
            message = "\n".join([message, *dict.fromkeys(f"note: {r.message}" for r in located.related)])
            related = []
        is_error, code = located.diagnostic.is_error, located.diagnostic.code
        page = error_page_path(code)
        href = from_fs_path(str(page)) if page is not None else None
        return types.Diagnostic(
            range=self.range(document.text.text, located.start, located.stop),
            message=message,
            severity=types.DiagnosticSeverity.Error if is_error else types.DiagnosticSeverity.Warning,
            code=code,
            code_description=types.CodeDescription(href) if href else None,
            source="relcrf",
            related_information=related or None,
        )

    def to_completion_item(
        self, document: Document, item: CompletionCandidate, start: int, stop: int, order: int
    ) -> types.CompletionItem:
        """Convert a completion candidate."""
        has_snippets = self.supports("text_document.completion.completion_item.snippet_support")
        is_snippet = bool(item.snippet) and has_snippets
        text = item.snippet if is_snippet else item.label
        return types.CompletionItem(
            label=item.label,
            kind=types.CompletionItemKind[item.kind],
            detail=item.detail or None,
            documentation=self.markup(item.documentation) if item.documentation else None,
            # Editors sort candidates by this string.
            sort_text=f"{order:04d}",
            insert_text_format=types.InsertTextFormat.Snippet if is_snippet else types.InsertTextFormat.PlainText,
            text_edit=types.TextEdit(self.range(document.text.text, start, stop), text),
        )

    def to_code_action(self, document: Document, fix: QuickFix) -> types.CodeAction:
        """Convert a quick fix."""
        text = document.text.text
        edits = [types.TextEdit(self.range(text, c.start, c.stop), c.text) for c in fix.changes]
        return types.CodeAction(
            title=fix.title,
            kind=fix.kind,
            diagnostics=[self._to_lsp_diagnostic(document, fix.diagnostic)] if fix.diagnostic is not None else None,
            edit=types.WorkspaceEdit({self.file_uri(document.path, document): edits}),
            is_preferred=fix.is_preferred,
        )

    def markup(self, text: str) -> types.MarkupContent:
        return types.MarkupContent(types.MarkupKind.Markdown, text)

    def to_document_symbol(self, document: Document, entry: OutlineEntry) -> types.DocumentSymbol:
        """Convert an entry of the outline."""
        text = document.text.text
        return types.DocumentSymbol(
            name=entry.name,
            detail=entry.detail,
            kind=types.SymbolKind[entry.kind],
            range=self.range(text, entry.start, entry.stop),
            selection_range=self.range(text, entry.name_start, entry.name_stop),
            children=[self.to_document_symbol(document, child) for child in entry.children],
        )


@lru_cache(maxsize=32)
def _cached_position_map(text: str, encoding: str) -> PositionMap:
    return PositionMap(text, encoding)


server = RcrfServer()


# Lifecycle


@server.feature(types.INITIALIZED)
def on_initialized(ls: RcrfServer, params: types.InitializedParams) -> None:
    """Read the workspace folders, and register for notifications about changed files."""
    _update_roots(ls)
    if ls.supports("workspace.did_change_watched_files.dynamic_registration"):
        watched = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher("**/*.rcrf")])
        method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        ls.client_register_capability(
            types.RegistrationParams([types.Registration("models", method, watched)]), lambda _: None
        )


@server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
def on_folders_changed(ls: RcrfServer, params: types.DidChangeWorkspaceFoldersParams) -> None:
    _update_roots(ls)


def _update_roots(ls: RcrfServer) -> None:
    uris = [folder.uri for folder in ls.workspace.folders.values()] or [ls.workspace.root_uri or ""]
    paths = [to_fs_path(uri) for uri in uris if uri]
    ls.project.roots = [Path(path) for path in paths if path]


@server.feature(types.SHUTDOWN)
def on_shutdown(ls: RcrfServer, params: None) -> None:
    ls.is_shut_down = True


# Text synchronisation


@server.feature(types.TEXT_DOCUMENT_DID_OPEN)
def on_open(ls: RcrfServer, params: types.DidOpenTextDocumentParams) -> None:
    ls.update_document(params.text_document.uri)
    ls.check_now(params.text_document.uri)


@server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
def on_change(ls: RcrfServer, params: types.DidChangeTextDocumentParams) -> None:
    ls.update_document(params.text_document.uri)
    ls.schedule_check(params.text_document.uri)


@server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
def on_close(ls: RcrfServer, params: types.DidCloseTextDocumentParams) -> None:
    ls.close_document(params.text_document.uri)


@server.feature(types.TEXT_DOCUMENT_DID_SAVE)
def on_save(ls: RcrfServer, params: types.DidSaveTextDocumentParams) -> None:
    _reload_documents(ls)


@server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
def on_files_changed(ls: RcrfServer, params: types.DidChangeWatchedFilesParams) -> None:
    _reload_documents(ls)


def _reload_documents(ls: RcrfServer) -> None:
    for uri in ls.project.reload_documents_with_includes():
        ls.schedule_check(uri)


# Requests


@server.feature(types.TEXT_DOCUMENT_HOVER)
def on_hover(ls: RcrfServer, params: types.HoverParams) -> types.Hover | None:
    document = ls.document(params.text_document.uri)
    found = hover(document, ls.offset(document, params.position), ls.project.roots)
    if found is None:
        return None
    return types.Hover(ls.markup(found.text), ls.range(document.text.text, found.start, found.stop))


@server.feature(types.TEXT_DOCUMENT_DEFINITION)
def on_definition(ls: RcrfServer, params: types.DefinitionParams) -> list[types.Location] | None:
    """Return the declarations of a name, or the file of an `include`."""
    document = ls.document(params.text_document.uri)
    offset = ls.offset(document, params.position)
    found = document.index.occurrence_at(document.name, offset)
    if found is None:
        path, top = document.included_path_at(offset), types.Position(0, 0)
        return [types.Location(ls.file_uri(path, document), types.Range(top, top))] if path is not None else None
    return [ls.location(document, occurrence) for occurrence in document.index.declarations(found.symbol)]


@server.feature(types.TEXT_DOCUMENT_REFERENCES)
def on_references(ls: RcrfServer, params: types.ReferenceParams) -> list[types.Location] | None:
    document = ls.document(params.text_document.uri)
    found = document.index.occurrence_at(document.name, ls.offset(document, params.position))
    if found is None:
        return None
    every = ls.project.occurrences(document, found.symbol)
    return [ls.location(d, o) for d, o in every if params.context.include_declaration or not o.is_declaration]


@server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
def on_prepare_rename(ls: RcrfServer, params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder:
    document = ls.document(params.text_document.uri)
    try:
        found = find_renameable(document, ls.offset(document, params.position))
    except RenameError as error:
        raise RequestFailure(str(error)) from None
    return types.PrepareRenamePlaceholder(ls.range(document.text.text, found.start, found.stop), found.symbol.name)


@server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
def on_rename(ls: RcrfServer, params: types.RenameParams) -> types.WorkspaceEdit:
    document = ls.document(params.text_document.uri)
    try:
        found = find_renameable(document, ls.offset(document, params.position))
        every = ls.project.occurrences(document, found.symbol)
        for other in {id(other): other for other, _ in every}.values():
            require_available_name(other, found.symbol, params.new_name)
        for other, occurrence in every:
            if not ls.project.is_current(other, occurrence.source):
                raise RenameError(f"'{occurrence.source}' has unsaved changes; save the file first")
    except RenameError as error:
        raise RequestFailure(str(error)) from None
    changes: dict[str, list[types.TextEdit]] = {}
    for other, occurrence in every:
        location = ls.location(other, occurrence)
        changes.setdefault(location.uri, []).append(types.TextEdit(location.range, params.new_name))
    return types.WorkspaceEdit(changes)


@server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=list(TRIGGER_CHARACTERS)))
def on_completion(ls: RcrfServer, params: types.CompletionParams) -> types.CompletionList | None:
    document = ls.document(params.text_document.uri)
    is_space = params.context is not None and params.context.trigger_character == " "
    found = complete(document, ls.offset(document, params.position), after_space=is_space)
    if found is None:
        return None
    items = [ls.to_completion_item(document, item, found.start, found.stop, k) for k, item in enumerate(found.items)]
    return types.CompletionList(is_incomplete=False, items=items)


@server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[QUICK_FIX, FIX_ALL]))
def on_code_action(ls: RcrfServer, params: types.CodeActionParams) -> list[types.CodeAction]:
    """Return the quick fixes in a range, of the requested kinds and their subkinds."""
    document = ls.document(params.text_document.uri)
    start, stop = ls.offset(document, params.range.start), ls.offset(document, params.range.end)
    kinds = params.context.only or [QUICK_FIX, FIX_ALL]
    fixes = quick_fixes(document, start, stop)
    return [
        ls.to_code_action(document, fix) for fix in fixes if f"{fix.kind}.".startswith(tuple(k + "." for k in kinds))
    ]


@server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
def on_document_symbol(ls: RcrfServer, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
    document = ls.document(params.text_document.uri)
    return [ls.to_document_symbol(document, heading) for heading in outline(document)]


@server.feature(types.TEXT_DOCUMENT_FORMATTING)
def on_formatting(ls: RcrfServer, params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
    """Return the edits that format the text; None if the text has a syntax error, which a diagnostic reports."""
    document = ls.document(params.text_document.uri)
    text = document.text.text
    try:
        formatted = format_text(text)
    except ModelError:
        return None
    if "\r\n" in text:
        formatted = formatted.replace("\n", "\r\n")
    after = formatted.splitlines(keepends=True)
    before = text.splitlines(keepends=True)
    starts = [0, *accumulate(len(line) for line in before)]
    changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [
        types.TextEdit(ls.range(text, starts[i], starts[j]), "".join(after[k:m]))
        for change, i, j, k, m in changes
        if change != "equal"
    ]


def _is_not_request_failure(record: logging.LogRecord) -> bool:
    """Return False for request failures; the editor displays these, so the error log omits them."""
    return record.exc_info is None or not isinstance(record.exc_info[1], RequestFailure)


def main() -> None:
    """Serve one editor until it disconnects; exit with 0 after a shutdown request, otherwise with 1 (see the protocol)."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    logging.getLogger("pygls.protocol.json_rpc").addFilter(_is_not_request_failure)
    server.start_io(BoundedInput(sys.stdin.buffer))  # type: ignore[arg-type]
    raise SystemExit(0 if server.is_shut_down else 1)
