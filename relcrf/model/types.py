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


@dataclass(frozen=True, slots=True)
class Real:
    def __str__(self) -> str:
        return "real"


@dataclass(frozen=True, slots=True)
class Integer:
    def __str__(self) -> str:
        return "integer"


@dataclass(frozen=True, slots=True)
class Bool:
    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True)
class String:
    def __str__(self) -> str:
        return "string"


@dataclass(frozen=True, slots=True)
class Date:
    def __str__(self) -> str:
        return "date"


@dataclass(frozen=True, slots=True)
class Vector:
    """Real numbers of one length, the same for every thing; the length is the data's."""

    def __str__(self) -> str:
        return "vector"


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
