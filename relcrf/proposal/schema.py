"""What a proposed model declares: entities with their attributes, relations, bags; and what it leaves out, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from relcrf.proposal.profile import TableProfile


@dataclass(frozen=True)
class ProposedAttribute:
    """An attribute that a table has.

    Args:
        type: as the language writes it; `enumeration` and `open` stand for domains that are not declared yet.
        column: of the raw table; the prefix of a vector's columns.
        values: of an enumeration. distinct: different values. missing: things without one.
        position_from_end: of its column in its table, from 0 for the last one: labels often are last.
        low, high: of numbers.
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
        """Whether weights may be separate for each value."""
        return self.type in ("enumeration", "open", "bool")


@dataclass
class ProposedEntity:
    """A kind of things. `size`: how many there are; `sequence`: attributes of the group and of the place in it."""

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
    """Many values of a domain for each entity, so many of them `distinct`."""

    name: str
    domain: str
    distinct: int


@dataclass(frozen=True)
class RelationArgument:
    """An argument of a relation: of an entity, or of a domain where `entity` is None.

    Args:
        column: of the relation's table, as the dataset that the model is grounded on has it.
        distinct: different values.
    """

    name: str
    sort: str
    entity: ProposedEntity | None
    column: str
    distinct: int


@dataclass
class ProposedRelation:
    """A relation.

    Args:
        rows: of its table. reason: why it is one.
        value_column: whether its table says of each tuple if it holds, or which of `levels` it has; None where it is listed or not.
        is_symmetric: of two arguments of one entity: whether each pair stands in both orders.
        is_irreflexive: of the first two arguments of one entity: whether no thing is linked with itself.
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
        """The arguments of an entity."""
        return [a for a in self.arguments if a.entity is entity]

    def other_arguments(self, entity: ProposedEntity) -> list[RelationArgument]:
        """The arguments of other sorts."""
        return [a for a in self.arguments if a.entity is not entity]


@dataclass(frozen=True)
class TableFinding:
    """What became of a table, for people: a table, what it is taken for, its rows, and the reasons."""

    table: str
    role: str
    rows: int
    reason: str


@dataclass
class ProposedSchema:
    """All that was found in some tables."""

    entities: list[ProposedEntity] = field(default_factory=list)
    relations: list[ProposedRelation] = field(default_factory=list)
    domains: list[str] = field(default_factory=list)
    findings: list[TableFinding] = field(default_factory=list)
    excluded_columns: list[tuple[str, str]] = field(default_factory=list)
    """Columns (`table.column`) that the model does without, and why."""

    @property
    def names(self) -> list[str]:
        """The names of entities, relations and domains."""
        return [e.name for e in self.entities] + [k.name for k in self.relations] + self.domains
