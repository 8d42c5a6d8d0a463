"""Validation of renames of declared names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relcrf.editor.document import Document
from relcrf.editor.symbols import Namespace, Occurrence, Symbol
from relcrf.language.keywords import RESERVED, is_name, is_reserved
from relcrf.model.rules import all_templates
from relcrf.model.spec import AnyRelation, Domain, Entity, Relation, fold_name


class RenameError(Exception):
    """An invalid rename: the symbol cannot be renamed, or the new name is invalid."""


def find_renameable(document: Document, offset: int) -> Occurrence:
    """Return the occurrence of a renameable symbol at an offset.

    Raises:
        RenameError: There is no such symbol.
    """
    found = document.index.occurrence_at(document.name, offset)
    if found is None:
        raise RenameError("no declared name at this position")
    symbol = found.symbol
    if symbol.namespace is Namespace.VALUE:
        raise RenameError(f"'{symbol.name}' is a value in the data and cannot be renamed")
    if symbol.namespace is not Namespace.WEIGHTS and not document.index.declarations(symbol):
        raise RenameError(f"'{symbol.name}' is not declared")
    return found


def require_available_name(document: Document, symbol: Symbol, name: str) -> None:
    """Validate a new name for a symbol.

    Raises:
        RenameError: The name is invalid, reserved or already used.
    """
    if not is_name(name):
        raise RenameError(
            f"invalid name '{name}': names consist of letters, digits and '_', and do not start with a digit"
        )
    # Attributes and templates may have the names of functions and types (`length`, `date`).
    if name in RESERVED or (symbol.namespace not in (Namespace.ATTRIBUTE, Namespace.WEIGHTS) and is_reserved(name)):
        raise RenameError(f"'{name}' is a reserved word of the language")
    if name == symbol.name:
        return
    if name in _taken_names(document, symbol):
        raise RenameError(f"'{name}' is already used")
    conflict = next(
        (other for other in _competing_columns(document, symbol) if fold_name(other) == fold_name(name)), None
    )
    if conflict is not None:
        raise RenameError(f"'{name}' conflicts with '{conflict}': table and column names ignore case and '_'")


def _taken_names(document: Document, symbol: Symbol) -> set[str]:
    """Return the names that are already used in the namespace of a symbol."""
    siblings = (s for s in document.index.symbols if replace(s, name="") == replace(symbol, name=""))
    declared = {s.name for s in siblings if document.index.declarations(s)}
    if symbol.namespace is Namespace.WEIGHTS:
        return declared | {name for t in all_templates(document.spec) for name in (t.name, t.weights)}
    return declared if symbol.namespace is not Namespace.BINDER else set(_bare_names(document, symbol))


def _bare_names(document: Document, symbol: Symbol) -> Iterator[str]:
    """Yield the names of binders and values in the declarations where a binder occurs."""
    for occurrence in document.index.occurrences(symbol):
        declared = document.texts[occurrence.source].declaration_at(occurrence.start)
        for k, token in enumerate(declared.tokens if declared is not None else ()):
            texts = declared.texts if declared is not None else ()
            if token.kind == "name" and texts[k - 1 : k] != (".",) and texts[k + 1 : k + 2] != ("(",):
                yield token.text


def _competing_columns(document: Document, symbol: Symbol) -> Iterator[str]:
    """Yield the names of the other tables or, if the symbol is a column, of the other columns of the table."""
    spec = document.spec
    if symbol.namespace is Namespace.NAME:
        is_domain = spec.domain(symbol.name) is not None
        kinds = Domain if is_domain else Entity | AnyRelation
        yield from (d.name for d in spec.all_declarations if isinstance(d, kinds) and d.name != symbol.name)
    owner = symbol.owner
    if symbol.namespace is Namespace.BINDER:
        binder = document.index.binders.get(symbol)
        owner = binder.declaration if binder is not None and binder.role == "argument" else ""
    declared = spec.entity(owner) or spec.relation(owner)
    if isinstance(declared, Entity | Relation):
        yield from (a.name for a in declared.attributes if a.name != symbol.name)
    if isinstance(declared, Relation):
        yield from (p.name for p in declared.parameters if p.name != symbol.name)
