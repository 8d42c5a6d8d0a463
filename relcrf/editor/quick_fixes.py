"""Quick fixes: changes of a text that fix one or all of its diagnostics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from relcrf.editor.diagnostics import LocatedDiagnostic, locate_diagnostics
from relcrf.editor.document import Document
from relcrf.errors import MissingDeclaration, NameReplacement, Span
from relcrf.language.render import render_value
from relcrf.language.tokens import DeclarationTokens, Token
from relcrf.model.spec import fold_name

QUICK_FIX = "quickfix"
"""Kind of the code actions for the diagnostics at the cursor."""

FIX_ALL = "source.fixAll.relcrf"
"""Kind of the code action that an editor can apply when it saves a file."""

_DECLARATION_ORDER = ("include", "domain", "entity")
"""Keywords of the first declarations of a model; a new declaration follows those with its keyword or an earlier one."""


@dataclass(frozen=True)
class TextChange:
    """The replacement of the characters from offset `start` to `stop`."""

    start: int
    stop: int
    text: str


@dataclass(frozen=True)
class QuickFix:
    """A change of a text that fixes diagnostics.

    Args:
        diagnostic: The fixed diagnostic; None if the change fixes all diagnostics of one sort.
        kind: The kind of the code action in the protocol.
        is_preferred: Whether the fix is the most probable one of its diagnostic.
    """

    title: str
    changes: tuple[TextChange, ...]
    diagnostic: LocatedDiagnostic | None = None
    kind: str = QUICK_FIX
    is_preferred: bool = False


def quick_fixes(document: Document, start: int, stop: int) -> Iterator[QuickFix]:
    """Yield the fixes of the diagnostics in a range, then those of the whole text."""
    diagnostics = list(locate_diagnostics(document))
    found = [
        fix
        for located in diagnostics
        if located.start <= stop and start <= located.stop
        for fix in _fixes_of_diagnostic(document, located)
    ]
    yield from found
    misspelt = [(located, fix) for located in diagnostics for fix in _name_replacements(document, located)]
    changes = _replace_names(document, misspelt)
    if len(misspelt) > 1 and any(fix.diagnostic == located for fix in found for located, _ in misspelt):
        yield QuickFix("Change all misspelt names", changes)
    certain = [(located, fix) for located, fix in misspelt if _differs_only_in_case(located, fix)]
    if certain:
        yield QuickFix("Correct the case of all names", _replace_names(document, certain), kind=FIX_ALL)


def _fixes_of_diagnostic(document: Document, located: LocatedDiagnostic) -> Iterator[QuickFix]:
    """Yield the fixes of a diagnostic, the most probable one first; none if the error is in an included file."""
    for fix in _name_replacements(document, located):
        changes = _replace_name(document, located, fix)
        yield QuickFix(f"Change to '{fix.replacement}'", changes[:1], located, is_preferred=True)
        if len(changes) > 1:
            yield QuickFix(f"Change all {len(changes)} '{fix.name}' to '{fix.replacement}'", changes, located)
    missing = [fix.text for fix in _fixes_here(document, located) if isinstance(fix, MissingDeclaration)]
    for declaration in missing:
        change = _insert_declaration(document, declaration)
        is_only = len(located.diagnostic.fixes) == 1
        yield QuickFix(f"Declare {declaration}", (change,), located, is_preferred=is_only)


def _fixes_here(document: Document, located: LocatedDiagnostic) -> tuple[NameReplacement | MissingDeclaration, ...]:
    """Return the fixes of a diagnostic of this text; none if the error is in an included file."""
    span = located.diagnostic.location
    return located.diagnostic.fixes if isinstance(span, Span) and span.source.name == document.name else ()


def _name_replacements(document: Document, located: LocatedDiagnostic) -> list[NameReplacement]:
    """Return the replacements of names that a diagnostic proposes, if the text contains the names."""
    fixes = (fix for fix in _fixes_here(document, located) if isinstance(fix, NameReplacement))
    return [fix for fix in fixes if _replace_name(document, located, fix)]


def _differs_only_in_case(located: LocatedDiagnostic, fix: NameReplacement) -> bool:
    """Return True if names differ only in case and underscores, so that they cannot be two names; values can."""
    return located.diagnostic.code not in ("E105", "W207") and fold_name(fix.name) == fold_name(fix.replacement)


def _replace_names(
    document: Document, replacements: Iterable[tuple[LocatedDiagnostic, NameReplacement]]
) -> tuple[TextChange, ...]:
    """Return the changes of several diagnostics, at most one at each offset."""
    changes = (change for located, fix in replacements for change in _replace_name(document, located, fix))
    return tuple({change.start: change for change in changes}.values())


def _replace_name(document: Document, located: LocatedDiagnostic, fix: NameReplacement) -> tuple[TextChange, ...]:
    """Return the change at a diagnostic, and then those of the other occurrences if the name is not declared."""
    declaration = document.text.declaration_at(located.start)
    changes = list(_replace_tokens(declaration.tokens if declaration is not None else (), fix))
    if not changes:
        return ()
    inside = [change for change in changes if located.start <= change.start < located.stop]
    if inside:  # the range of E101 is `p.name`, the range of E102 is `name(p)`
        first = inside[-1 if located.diagnostic.code == "E101" else 0]
    else:
        first = min(changes, key=lambda change: abs(change.start - located.start))
    symbol = next((o.symbol for o in [document.index.occurrence_at(document.name, first.start)] if o), None)
    if symbol is None or symbol.name != fix.name or document.index.declarations(symbol):
        return (first,)
    occurrences = [o for o in document.index.occurrences(symbol) if o.source == document.name]
    tokens = (token for o in occurrences for token in document.text.tokens_between(o.start, o.stop))
    return (first, *(change for change in _replace_tokens(tokens, fix) if change != first))


def _replace_tokens(tokens: Iterable[Token], fix: NameReplacement) -> Iterator[TextChange]:
    """Yield the changes of the tokens that are the misspelt name, or a string with it or with a path to it."""
    quoted, replacement = (json.dumps(text, ensure_ascii=False)[1:] for text in (fix.name, fix.replacement))
    for token in tokens:
        if token.text == fix.name:
            yield TextChange(token.start, token.stop, render_value(fix.replacement))
        elif token.terminal == "STRING" and token.text.endswith((f'"{quoted}', f"/{quoted}")):
            yield TextChange(token.stop - len(quoted), token.stop, replacement)


def _insert_declaration(document: Document, declaration: str) -> TextChange:
    """Return the insertion of a declaration after the last similar one; if there is none, before the first one."""
    text, declarations = document.text.text, document.text.declarations
    newline = "\r\n" if "\r\n" in text else "\n"
    keyword = declaration.split()[0]
    for word in reversed(_DECLARATION_ORDER[: _DECLARATION_ORDER.index(keyword) + 1]):
        last = max((k for k, d in enumerate(declarations) if d.keyword == word), default=None)
        if last is None:
            continue
        start, stop = declarations[last].start, declarations[last].stop
        is_separate = word != keyword or "\n" in text[start:stop]
        inserted = newline * (1 + is_separate) + declaration
        rest_of_line = re.compile(r"[ \t]*(#[^\r\n]*)?(?=[\r\n]|\Z)").match(text, stop)
        if rest_of_line is not None:
            return TextChange(rest_of_line.end(), rest_of_line.end(), inserted)
        return TextChange(stop, declarations[last + 1].start, inserted + newline)
    start = _start_with_comments(text, declarations[0])
    return TextChange(start, start, declaration + 2 * newline)


def _start_with_comments(text: str, declaration: DeclarationTokens) -> int:
    """Return the start of the line of a declaration, or of the comments in the lines directly before it."""
    start = text.rfind("\n", 0, declaration.start) + 1
    while start and text[text.rfind("\n", 0, start - 1) + 1 : start].lstrip(" \t\ufeff").startswith("#"):
        start = text.rfind("\n", 0, start - 1) + 1
    return start or int(text.startswith("\ufeff"))
