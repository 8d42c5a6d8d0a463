"""Symbols of a model, and an index of their occurrences."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum


class Namespace(Enum):
    """A namespace of symbols; equal names in different namespaces are different symbols."""

    NAME = "domains, entities and relations"
    WEIGHTS = "templates and rules, and the weights that they share"
    ATTRIBUTE = "attributes of one entity or relation"
    BINDER = "names of entities and values in one declaration"
    VALUE = "values of one domain"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named element of a model.

    Args:
        owner: Entity or relation of an attribute, domain of a value, or name of the text that contains a binder.
        scope: For a binder, the start offset of its scope, which is a declaration or an aggregate.
    """

    namespace: Namespace
    name: str
    owner: str = ""
    scope: int = -1


@dataclass(frozen=True, slots=True)
class Binder:
    """The type and role of a binder.

    Args:
        role: `binder`, `argument` (of a relation), or `name` (existentially quantified).
        declaration: Name of the declaration that contains the binder.
    """

    type_name: str
    role: str
    declaration: str


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence of a symbol in a text, from offset `start` to `stop`.

    Args:
        source: Name of the text, which is the model or an included file.
    """

    symbol: Symbol
    source: str
    start: int
    stop: int
    is_declaration: bool = False


class SymbolIndex:
    """An index of all symbol occurrences in a model and its included files.

    The declaration of an existential name, such as `p` in `where Link(p, a)`, is its first occurrence.
    """

    def __init__(self, occurrences: Iterable[Occurrence], binders: dict[Symbol, Binder]) -> None:
        self.binders = binders
        by_offset: dict[tuple[str, int], Occurrence] = {}
        for occurrence in occurrences:
            by_offset.setdefault((occurrence.source, occurrence.start), occurrence)
        self._by_symbol: dict[Symbol, list[Occurrence]] = {}
        for _, occurrence in sorted(by_offset.items()):
            self._by_symbol.setdefault(occurrence.symbol, []).append(occurrence)
        for symbol, found in self._by_symbol.items():
            if symbol.namespace is Namespace.BINDER and not any(o.is_declaration for o in found):
                found[0] = replace(found[0], is_declaration=True)
        self._by_source: dict[str, list[Occurrence]] = {}
        for occurrence in sorted((o for found in self._by_symbol.values() for o in found), key=lambda o: o.start):
            self._by_source.setdefault(occurrence.source, []).append(occurrence)

    @property
    def symbols(self) -> Iterable[Symbol]:
        """All symbols in the index."""
        return self._by_symbol.keys()

    def occurrence_at(self, source: str, offset: int) -> Occurrence | None:
        """Return the occurrence at a cursor position; between two adjacent occurrences, return the right occurrence."""
        found = self._by_source.get(source, [])
        last = bisect_right(found, offset, key=lambda o: o.start) - 1
        return found[last] if last >= 0 and offset <= found[last].stop else None

    def occurrences(self, symbol: Symbol) -> list[Occurrence]:
        """Return all occurrences of a symbol, sorted by text and offset."""
        return self._by_symbol.get(symbol, [])

    def declarations(self, symbol: Symbol) -> list[Occurrence]:
        """Return the declarations of a symbol; several only if the model has duplicate declarations."""
        return [o for o in self.occurrences(symbol) if o.is_declaration]

    def occurrences_in(self, source: str, start: int, stop: int) -> list[Occurrence]:
        """Return the occurrences in a range of a text."""
        return [o for o in self._by_source.get(source, []) if start <= o.start < stop]
