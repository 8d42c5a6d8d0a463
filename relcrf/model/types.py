"""Types of attributes and of expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class DomainType:
    """The type of the values of a domain; the name of an inline range is its text, `1..4`."""

    domain: str

    def __str__(self) -> str:
        return self.domain


@dataclass(frozen=True, slots=True)
class EntityType:
    """The type of the entities of one entity type."""

    entity: str

    def __str__(self) -> str:
        return self.entity


class _Scalar:
    """The base class of types whose name is the name of their class in lower case."""

    __slots__ = ()

    def __str__(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True, slots=True)
class Real(_Scalar):
    """A real number."""


@dataclass(frozen=True, slots=True)
class Integer(_Scalar):
    """An integer."""


@dataclass(frozen=True, slots=True)
class Bool(_Scalar):
    """A boolean."""


@dataclass(frozen=True, slots=True)
class String(_Scalar):
    """A string."""


@dataclass(frozen=True, slots=True)
class Date(_Scalar):
    """A calendar date."""


@dataclass(frozen=True, slots=True)
class Time(_Scalar):
    """A time of day, stored as an integer: microseconds since midnight."""


@dataclass(frozen=True, slots=True)
class Datetime(_Scalar):
    """A moment, stored as an integer: microseconds since 1970-01-01 UTC."""


@dataclass(frozen=True, slots=True)
class Vector(_Scalar):
    """A vector of real numbers; its length is the same for all entities, and is determined by the data."""


@dataclass(frozen=True, slots=True)
class Bag:
    """A multiset of values of a domain."""

    domain: str

    def __str__(self) -> str:
        return f"bag of {self.domain}"


BOOL_VALUES = ("false", "true")
"""Values of a Boolean variable, in the order of its states."""

AttributeType: TypeAlias = DomainType | Real | Integer | Bool | String | Date | Time | Datetime | Vector | Bag
"""The types of attributes."""

ValueType: TypeAlias = AttributeType | EntityType
"""The types of expressions: the types of attributes, and entity types."""

SCALARS: dict[str, AttributeType] = {
    str(t): t for t in (Real(), Integer(), Bool(), String(), Date(), Time(), Datetime(), Vector())
}
"""The built-in attribute types by name."""
