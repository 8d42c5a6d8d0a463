"""The schema of a proposed model: entity types, attributes, bags and relations, and the columns that are not used."""

from __future__ import annotations

from dataclasses import dataclass, field

from relcrf.data.dataset import quoted
from relcrf.proposal.entity_candidates import EntityCandidate
from relcrf.proposal.profile import TableProfile


@dataclass(frozen=True)
class ProposedAttribute:
    """A proposed attribute of a table.

    Args:
        type: A type of the language, or `enumeration` or `open` for an enumerated or open domain that must be declared.
        column: The column of the raw table, or the prefix of a vector's columns.
        values: Values of an enumeration, or of the components of a vector if they are 0 and 1.
        distinct: Number of distinct values.
        missing: Number of entities without a value.
        position_from_end: Number of columns of the table after this column (labels are often in the last column).
        low, high: Minimum and maximum of a numeric column.
        scan: A DuckDB table expression with `column`; empty for a vector.
        key: The column of `scan` that identifies the entities; None if each row is an entity without a key.
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
    scan: str = ""
    key: str | None = None

    @property
    def is_number(self) -> bool:
        """True if the values are numbers."""
        return self.type in ("integer", "real")

    @property
    def is_discrete(self) -> bool:
        """True if the number of values is finite, so that each value can have separate weights."""
        return self.type in ("enumeration", "open", "bool")


@dataclass
class ProposedEntity:
    """A proposed entity type.

    Args:
        size: Number of entities.
        sequence: Names of the attributes that contain the sequence and the position of an entity; None if unordered.
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
    """A proposed bag: several values of a domain per entity.

    Args:
        distinct: The number of distinct values.
        is_text: Whether the values are the words of a text.
    """

    name: str
    domain: str
    distinct: int
    is_text: bool = False


@dataclass(frozen=True)
class RelationArgument:
    """An argument of a relation. The type of the argument is an entity type, or a domain if `entity` is None.

    Args:
        column: The argument's column in the relation's table, which the queries of the manifest may have reshaped.
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
        value_column: The column of the raw table with the value of each tuple: a truth value, or a level from 1 to
            `levels`. None if listed tuples are true.
        is_symmetric: True if two arguments have the same entity type and at least 98 % of pairs occur in both orders.
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
    """The role of a table in the schema, with the number of rows and the reason, for reports."""

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
    """Columns that the model does not use, as pairs (`table.column`, reason)."""
    types: dict[int, ProposedEntity] = field(default_factory=dict)
    """The type for each candidate, by `id(candidate)`; an empty key marks a domain."""
    candidates: list[EntityCandidate] = field(default_factory=list)
    """The keys and references of all tables, including those that the model does not use."""
    warnings: list[str] = field(default_factory=list)
    """Warnings on what the model assumes, such as that no row is later than a prediction."""

    @property
    def names(self) -> list[str]:
        """The names of entity types, relations and domains."""
        return [e.name for e in self.entities] + [k.name for k in self.relations] + self.domains


def detect_symmetry(relation: ProposedRelation) -> None:
    """Set whether a relation is symmetric and whether it is irreflexive."""
    if len(relation.arguments) < 2 or relation.profile is None or relation.arguments[0].entity is None:
        return
    ends = [x for x in relation.arguments if x.entity and len(relation.arguments_of(x.entity)) == 2]
    if len(ends) != 2:
        return
    a, b = (quoted(x.column) for x in ends)
    others = "".join(f" AND t.{quoted(x.column)} = s.{quoted(x.column)}" for x in relation.arguments if x not in ends)
    table = relation.profile
    n_loops = table.query_number(f"SELECT count(*) FROM this WHERE {a} = {b}")
    n_reversed = table.query_number(
        f"SELECT count(*) FROM this AS t WHERE t.{a} <> t.{b} AND EXISTS "
        f"(SELECT 1 FROM this AS s WHERE s.{a} = t.{b} AND s.{b} = t.{a}{others})"
    )
    relation.is_symmetric = n_reversed >= 0.98 * (table.rows - n_loops) > 0
    relation.is_irreflexive = n_loops == 0
