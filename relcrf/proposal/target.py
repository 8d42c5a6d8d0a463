"""Prediction targets of proposed models: the target that the user requests, or the most plausible target."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.model.spec import fold_name
from relcrf.proposal.names import LABEL_COLUMNS, PROPERTY_COLUMNS
from relcrf.proposal.profile import MIN_MISSING
from relcrf.proposal.schema import ProposedAttribute, ProposedEntity, ProposedRelation, ProposedSchema

MAX_STATES = 200
"""Maximum number of values of a predicted attribute."""

MAX_TUPLES = 3_000_000
"""Maximum number of possible tuples of a predicted relation."""


@dataclass(frozen=True)
class PredictionTarget:
    """A prediction target (attributes of an entity type, or a relation) with the reason for choosing it."""

    reason: str
    entity: ProposedEntity | None = None
    attributes: tuple[ProposedAttribute, ...] = ()
    relation: ProposedRelation | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the predicted relation or attributes."""
        if self.relation is not None:
            return (self.relation.name,)
        return tuple(f"{self.entity.name}.{attribute.name}" for attribute in self.attributes) if self.entity else ()

    @property
    def is_number(self) -> bool:
        """True if the target is an attribute whose values are numbers."""
        return any(attribute.is_number for attribute in self.attributes)

    @property
    def learner(self) -> str:
        """The kind of learned features of the target."""
        return "regressor" if self.is_number else "classifier"

    @property
    def name(self) -> str:
        """The name of the target, as `--predict` accepts it."""
        if self.relation is not None:
            return self.relation.name
        assert self.entity is not None
        return f"{self.entity.name}.{self.attributes[0].name}"

    @property
    def size(self) -> int:
        """The number of predicted variables."""
        if self.relation is not None:
            return prod(x.entity.size if x.entity else x.distinct for x in self.relation.arguments)
        assert self.entity is not None
        return self.entity.size * len(self.attributes)


def choose_target(schema: ProposedSchema, requested: str | None) -> tuple[PredictionTarget, list[str]]:
    """Return the prediction target, and the names of at most eight other possible targets.

    A number is a target only if it is requested.

    Args:
        requested: `Table.column`, `column` if only one table contains it, or the table of a relation; None to choose
            the most plausible target.

    Raises:
        UsageError: `requested` (E373), or every column and relation (E369), is unsuitable as a target. The notes state why
            `requested` is not an attribute.
    """
    ranked, numbers = _rank_targets(schema), _numbers(schema)
    if requested is None:
        if not ranked:
            hint = "add a relation or a column with few values, such as labels"
            if numbers:
                hint += f", or predict a number with --predict {numbers[0].name}"
            raise UsageError(Diagnostic("E369", "these tables have nothing that could be predicted", hint=hint))
        return ranked[0][1], [target.name for _, target in ranked[1:9]]
    table, _, column = requested.partition(".")
    by_name = [target for _, target in ranked if _matches_name(target, table, column)]
    by_column = [target for _, target in ranked if not column and _has_column(target, table)]
    matches = _matches_name if column else lambda target, name, _: _has_column(target, name)
    numbers = [target for target in numbers if matches(target, table, column)]
    if by_name or len(by_column + numbers) == 1:
        (target, *_) = by_name or by_column or numbers
        return target, [other.name for _, other in ranked if other is not target][:8]
    names = [target.name for _, target in ranked]
    hint = suggestion(requested, names) or (
        f"choose one of {listing(names)}" if names else "add a column with few values"
    )
    if numbers:
        hint = f"choose one of {listing([target.name for target in by_column + numbers])}"
    reasons = dict.fromkeys(
        f"{name}: {reason}"
        for name, reason in schema.excluded_columns
        if fold_name(requested) in (fold_name(name), fold_name(name.partition(".")[2]))
    )
    raise UsageError(Diagnostic("E373", f"'{requested}' cannot be predicted", hint=hint, notes=tuple(reasons)))


def _numbers(schema: ProposedSchema) -> list[PredictionTarget]:
    """Return a target for each number of an entity type."""
    return [
        PredictionTarget(f"a number with {attribute.distinct:,} values", entity, (attribute,))
        for entity in schema.entities
        for attribute in entity.attributes
        if attribute.is_number
    ]


def _matches_name(target: PredictionTarget, table: str, column: str) -> bool:
    if target.relation is not None:
        return fold_name(table) in (
            fold_name(target.relation.name),
            fold_name(target.relation.table),
        ) and not column.replace("value", "")
    assert target.entity is not None
    tables = {fold_name(target.entity.name), fold_name(target.entity.table)} | {
        fold_name(a.table) for a in target.attributes
    }
    return fold_name(table) in tables and _has_column(target, column)


def _has_column(target: PredictionTarget, column: str) -> bool:
    return fold_name(column) in {fold_name(n) for a in target.attributes for n in (a.name, a.column)}


def _rank_targets(schema: ProposedSchema) -> list[tuple[float, PredictionTarget]]:
    """Return a pair (plausibility score, target) for each possible target, in descending order of the score."""
    targets: list[tuple[float, PredictionTarget]] = []
    parents = (
        {x.type_name for relation in schema.relations for x in relation.arguments[1:]} if schema.relations else set()
    )
    children = {
        relation.arguments[0].type_name
        for relation in schema.relations
        if len({x.type_name for x in relation.arguments}) > 1
    }
    for entity in schema.entities:
        labels = tuple(
            a for a in entity.attributes if a.type == "bool" and a.position_from_end == 0 and a.column[-1:].isdigit()
        )
        if len(labels) > 1:
            targets.append((6.0, PredictionTarget(f"{len(labels)} binary columns with a common name", entity, labels)))
        for attribute in entity.attributes:
            if attribute in labels and len(labels) > 1:
                continue
            score = _score_attribute(schema, entity, attribute)
            if score is not None:
                is_top = entity.name in parents and entity.name not in children
                score = score[0] + 2.0 * is_top, score[1]
                targets.append((score[0], PredictionTarget(score[1], entity, (attribute,))))
    for relation in schema.relations:
        size = prod(x.entity.size if x.entity else x.distinct for x in relation.arguments)
        if not 1 < size <= MAX_TUPLES or (len(relation.arguments) < 2 and relation.value_column is None):
            continue
        if relation.value_column is not None:
            targets.append((5.5, PredictionTarget("its tuples have values", relation=relation)))
        elif not any(x.entity is not None for x in relation.arguments):
            continue
        else:
            has_only_entities = all(x.entity is not None for x in relation.arguments)
            targets.append(
                (
                    has_only_entities + min(0.4, relation.rows / size),
                    PredictionTarget("its tuples are listed in a table", relation=relation),
                )
            )
    return sorted(targets, key=lambda f: (-f[0], f[1].name))


def _score_attribute(
    schema: ProposedSchema, entity: ProposedEntity, attribute: ProposedAttribute
) -> tuple[float, str] | None:
    is_discrete = attribute.type in ("enumeration", "bool") or (
        attribute.type == "open" and attribute.distinct <= MAX_STATES
    )
    if not is_discrete or (entity.sequence and attribute.name in entity.sequence):
        return None
    score, reasons = 1.5 + (attribute.type == "enumeration") * 0.5, [f"{attribute.distinct} values"]
    if attribute.column.lower() in LABEL_COLUMNS:
        # Other columns are called `category` or `type` too, but hardly ever `label` or `target`.
        score += 3 if attribute.column.lower() in PROPERTY_COLUMNS else 6
        reasons.append("a name that is common for labels")
    if attribute.missing:
        score += 6 if attribute.missing >= MIN_MISSING * entity.size else 3
        reasons.append(f"missing for {attribute.missing:,} of {entity.size:,}")
    if attribute.position_from_end == 0:
        score, reasons = score + 1, [*reasons, "the last column"]
    has_evidence = bool(entity.bags or entity.sequence or any(a.type == "vector" for a in entity.attributes))
    has_evidence = has_evidence or any(relation.arguments_of(entity) for relation in schema.relations)
    if has_evidence:
        score, reasons = score + 1, [*reasons, f"each {entity.name} has evidence"]
    return score, ", ".join(reasons)
