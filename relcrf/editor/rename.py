"""New names for what a model declares: which are allowed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relcrf.editor.document import Document
from relcrf.editor.symbols import Namespace, Occurrence, Symbol
from relcrf.language.keywords import KEYWORDS, is_name, is_reserved
from relcrf.model.rules import all_templates
from relcrf.model.spec import AnyRelation, Domain, Entity, Relation, fold_name


class RenameError(Exception):
    """An attempt to rename what cannot be renamed, or to an invalid name."""


def find_renameable(document: Document, offset: int) -> Occurrence:
    """Return the occurrence at an offset, if it can be renamed.

    Raises:
        RenameError: where it cannot.
    """
    found = document.index.occurrence_at(document.name, offset)
    if found is None:
        raise RenameError("there is no name here that the model declares")
    symbol = found.symbol
    if symbol.namespace is Namespace.VALUE:
        raise RenameError(f"'{symbol.name}' is a value as it stands in the data")
    if symbol.namespace is not Namespace.WEIGHTS and not document.index.declarations(symbol):
        raise RenameError(f"nothing declares '{symbol.name}'")
    return found


def require_available_name(document: Document, symbol: Symbol, name: str) -> None:
    """Refuses a new name that the language or the model does not leave free.

    Raises:
        RenameError: saying what stands in the way.
    """
    if not is_name(name):
        raise RenameError(f"'{name}' is no name: names have letters, digits and '_', and begin with no digit")
    # Attributes may be called as functions and types are (`length`, `date`), and so may templates.
    if name in KEYWORDS or (symbol.namespace not in (Namespace.ATTRIBUTE, Namespace.WEIGHTS) and is_reserved(name)):
        raise RenameError(f"'{name}' is a word of the language and cannot be a name")
    if name == symbol.name:
        return
    if name in _taken_names(document, symbol):
        raise RenameError(f"'{name}' is taken already")
    alike = next((other for other in _competing_columns(document, symbol) if fold_name(other) == fold_name(name)), None)
    if alike is not None:
        raise RenameError(f"'{name}' is taken already, by '{alike}': tables do not tell them apart")


def _taken_names(document: Document, symbol: Symbol) -> set[str]:
    """The names that would be confused with a symbol's."""
    beside = (s for s in document.index.symbols if replace(s, name="") == replace(symbol, name=""))
    declared = {s.name for s in beside if document.index.declarations(s)}
    if symbol.namespace is Namespace.WEIGHTS:
        return declared | {name for t in all_templates(document.spec) for name in (t.name, t.weights)}
    return declared if symbol.namespace is not Namespace.BINDER else set(_bare_names(document, symbol))


def _bare_names(document: Document, symbol: Symbol) -> Iterator[str]:
    """The binders and values of the declarations that speak of a binder: all names with nothing around them."""
    for occurrence in document.index.occurrences(symbol):
        declared = document.texts[occurrence.source].declaration_at(occurrence.start)
        for k, token in enumerate(declared.tokens if declared is not None else ()):
            texts = declared.texts if declared is not None else ()
            if token.kind == "name" and texts[k - 1 : k] != (".",) and texts[k + 1 : k + 2] != ("(",):
                yield token.text


def _competing_columns(document: Document, symbol: Symbol) -> Iterator[str]:
    """The names of other tables, or of other columns of the same table."""
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
