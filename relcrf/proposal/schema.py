"""The schema of a proposed model: entity types, attributes, bags and relations, and the unused columns with reasons."""

from __future__ import annotations

from dataclasses import dataclass, field

from relcrf.proposal.profile import TableProfile


@dataclass(frozen=True)
class ProposedAttribute:
    """A proposed attribute of a table.

    Args:
        type: The type in the syntax of the language; `enumeration` and `open` are placeholders for domains to be declared.
        column: The column of the raw table, or the prefix of a vector's columns.
        values: Values of an enumeration.
        distinct: Number of distinct values.
        missing: Number of entities without a value.
        position_from_end: Position of the column counted from the last column of its table, from 0; labels are often last.
        low, high: Minimum and maximum of a numeric column.
    """

    name: str
    type: str
    table: str
    column: str
    values: tuple[str, ...] = ()
    distinct: int = 0
    missing: int = 0
    position_from_end: int = 1
    low: float = 0.0
    high: float = 0.0

    @property
    def is_discrete(self) -> bool:
        """True if each value can have separate weights."""
        return self.type in ("enumeration", "open", "bool")


@dataclass
class ProposedEntity:
    """A proposed entity type.

    Args:
        size: Number of entities.
        sequence: Names of the attributes for the sequence and for the position in it.
    """

    name: str
    key: str
    size: int
    reason: str
    table: str
    attributes: list[ProposedAttribute] = field(default_factory=list)
    bags: list[ProposedBag] = field(default_factory=list)
    sequence: tuple[str, str] | None = None
    split_column: str | None = None


@dataclass(frozen=True)
class ProposedBag:
    """A proposed bag: several values of a domain per entity; `distinct` counts the distinct values."""

    name: str
    domain: str
    distinct: int


@dataclass(frozen=True)
class RelationArgument:
    """An argument of a relation: of an entity type, or of a domain if `entity` is None.

    Args:
        column: The argument's column in the relation's table, as reshaped by the queries of the proposed manifest.
        distinct: Number of distinct values.
    """

    name: str
    type_name: str
    entity: ProposedEntity | None
    column: str
    distinct: int


@dataclass
class ProposedRelation:
    """A proposed relation.

    Args:
        rows: Number of rows of the table.
        reason: Why the table is proposed as a relation.
        value_column: The column with the truth value or the level (1 to `levels`) of each tuple; None if listed tuples are true.
        is_symmetric: True if the two arguments have the same entity type and the table contains each pair in both orders.
        is_irreflexive: True if the two arguments have the same entity type and no entity is paired with itself.
    """

    name: str
    arguments: list[RelationArgument]
    rows: int
    reason: str
    table: str
    attributes: list[ProposedAttribute] = field(default_factory=list)
    value_column: str | None = None
    levels: int = 0
    is_symmetric: bool = False
    is_irreflexive: bool = False
    profile: TableProfile | None = None

    def arguments_of(self, entity: ProposedEntity) -> list[RelationArgument]:
        """Return the arguments that have the given entity type."""
        return [a for a in self.arguments if a.entity is entity]

    def other_arguments(self, entity: ProposedEntity) -> list[RelationArgument]:
        """Return the arguments that do not have the given entity type."""
        return [a for a in self.arguments if a.entity is not entity]


@dataclass(frozen=True)
class TableFinding:
    """A finding for reports: a table, its role in the schema, its number of rows, and the reason for the role."""

    table: str
    role: str
    rows: int
    reason: str


@dataclass
class ProposedSchema:
    """The declarations inferred from tables."""

    entities: list[ProposedEntity] = field(default_factory=list)
    relations: list[ProposedRelation] = field(default_factory=list)
    domains: list[str] = field(default_factory=list)
    findings: list[TableFinding] = field(default_factory=list)
    excluded_columns: list[tuple[str, str]] = field(default_factory=list)
    """Columns (`table.column`) that the model does not use, with the reasons."""

    @property
    def names(self) -> list[str]:
        """The names of entity types, relations and domains."""
        return [e.name for e in self.entities] + [k.name for k in self.relations] + self.domains
