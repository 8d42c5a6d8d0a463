"""Types of attributes and of expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class DomainType:
    """A value of a named domain; an integer range without a name is called as it is written: `1..4`."""

    domain: str

    def __str__(self) -> str:
        return self.domain


@dataclass(frozen=True, slots=True)
class EntityType:
    """A thing of a named entity type."""

    entity: str

    def __str__(self) -> str:
        return self.entity


class _Scalar:
    """A type that one word names: that of its class."""

    __slots__ = ()

    def __str__(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True, slots=True)
class Real(_Scalar):
    """A real number."""


@dataclass(frozen=True, slots=True)
class Integer(_Scalar):
    """A whole number."""


@dataclass(frozen=True, slots=True)
class Bool(_Scalar):
    """A truth value."""


@dataclass(frozen=True, slots=True)
class String(_Scalar):
    """A text."""


@dataclass(frozen=True, slots=True)
class Date(_Scalar):
    """A day."""


@dataclass(frozen=True, slots=True)
class Vector(_Scalar):
    """Real numbers of one length, the same for every entity; the data determine the length."""


@dataclass(frozen=True, slots=True)
class Bag:
    """Many values of a domain, each with a count."""

    domain: str

    def __str__(self) -> str:
        return f"bag of {self.domain}"


AttributeType: TypeAlias = DomainType | Real | Integer | Bool | String | Date | Vector | Bag
"""What an attribute can hold."""

ValueType: TypeAlias = AttributeType | EntityType
"""What an expression can be: an attribute's type, or a thing."""

SCALARS: dict[str, AttributeType] = {str(t): t for t in (Real(), Integer(), Bool(), String(), Date(), Vector())}
"""The attribute types that are named by one word."""
