"""What the names of a model stand for, and where each of them is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum


class Namespace(Enum):
    """Names of different spaces may be the same and have nothing to do with each other."""

    NAME = "domains, entities and relations"
    WEIGHTS = "templates and rules, and the weights that they share"
    ATTRIBUTE = "attributes of one entity or relation"
    BINDER = "names for things and values in one declaration"
    VALUE = "values of one domain"


@dataclass(frozen=True, slots=True)
class Symbol:
    """Something that has a name.

    Args:
        owner: the entity or relation of an attribute, the domain of a value, the text (by name) of a binder.
        scope: of a binder, the offset where its declaration, or the aggregate that it is only known in, begins.
    """

    namespace: Namespace
    name: str
    owner: str = ""
    scope: int = -1


@dataclass(frozen=True, slots=True)
class Binder:
    """What is known of a binder.

    Args:
        role: `binder`, `argument` (of a relation), or `name` (which only `where` or a rule speaks of).
        declaration: the name of the declaration that it belongs to.
    """

    sort: str
    role: str
    declaration: str


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A symbol in a text, from offset `start` to `stop`.

    Args:
        source: the name of the text: the model's, or that of a file which it includes.
    """

    symbol: Symbol
    source: str
    start: int
    stop: int
    is_declaration: bool = False


class SymbolIndex:
    """All occurrences of all symbols of a model and what it includes.

    A name that nothing declares, such as the `p` of `where Link(p, a)`, is declared where it stands first.
    """

    def __init__(self, occurrences: Iterable[Occurrence], binders: dict[Symbol, Binder]) -> None:
        self.binders = binders
        places: dict[tuple[str, int], Occurrence] = {}
        for occurrence in occurrences:
            places.setdefault((occurrence.source, occurrence.start), occurrence)
        self._by_symbol: dict[Symbol, list[Occurrence]] = {}
        for _, occurrence in sorted(places.items()):
            self._by_symbol.setdefault(occurrence.symbol, []).append(occurrence)
        for symbol, found in self._by_symbol.items():
            if symbol.namespace is Namespace.BINDER and not any(o.is_declaration for o in found):
                found[0] = replace(found[0], is_declaration=True)
        self._by_source: dict[str, list[Occurrence]] = {}
        for occurrence in sorted((o for found in self._by_symbol.values() for o in found), key=lambda o: o.start):
            self._by_source.setdefault(occurrence.source, []).append(occurrence)

    @property
    def symbols(self) -> Iterable[Symbol]:
        """All symbols that occur."""
        return self._by_symbol.keys()

    def occurrence_at(self, source: str, offset: int) -> Occurrence | None:
        """The occurrence that a cursor touches; of two the one to its right."""
        found = self._by_source.get(source, [])
        last = bisect_right(found, offset, key=lambda o: o.start) - 1
        return found[last] if last >= 0 and offset <= found[last].stop else None

    def occurrences(self, symbol: Symbol) -> list[Occurrence]:
        """All occurrences of a symbol, by text and place."""
        return self._by_symbol.get(symbol, [])

    def declarations(self, symbol: Symbol) -> list[Occurrence]:
        """Where a symbol is declared: once, unless the model has that mistake."""
        return [o for o in self.occurrences(symbol) if o.is_declaration]

    def occurrences_in(self, source: str, start: int, stop: int) -> list[Occurrence]:
        """The occurrences in a part of a text."""
        return [o for o in self._by_source.get(source, []) if start <= o.start < stop]
