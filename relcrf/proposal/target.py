"""What a proposed model predicts: what the user names, or what tables most likely are there for."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.model.spec import fold_name
from relcrf.proposal.names import LABEL_COLUMNS
from relcrf.proposal.schema import ProposedAttribute, ProposedEntity, ProposedRelation, ProposedSchema

MAX_STATES = 200
"""Most values of what is predicted."""

MAX_TUPLES = 3_000_000
"""Most tuples of a relation that is predicted."""


@dataclass(frozen=True)
class PredictionTarget:
    """What is predicted: attributes of an entity, or a relation; and why."""

    reason: str
    entity: ProposedEntity | None = None
    attributes: tuple[ProposedAttribute, ...] = ()
    relation: ProposedRelation | None = None

    @property
    def name(self) -> str:
        """As `--predict` names it."""
        if self.relation is not None:
            return self.relation.name
        assert self.entity is not None
        return f"{self.entity.name}.{self.attributes[0].name}"


def choose_target(schema: ProposedSchema, requested: str | None) -> tuple[PredictionTarget, list[str]]:
    """What is predicted, and what else could be.

    Args:
        requested: `Table.column`, or `column` where one table has it, or the table of a relation; None where the tables say it.

    Raises:
        UsageError: where `requested` names nothing that can be predicted, or nothing can.
    """
    found = _rank_targets(schema)
    if requested is None:
        if not found:
            hint = "name a relation or a column with few values: --predict Table.column; there must be one"
            raise UsageError(
                Diagnostic("E369", "nothing in these tables looks like what could be predicted", hint=hint)
            )
        return found[0][1], [target.name for _, target in found[1:9]]
    table, _, column = requested.partition(".")
    named = [target for _, target in found if _matches_name(target, table, column)]
    alone = [target for _, target in found if not column and _has_column(target, table)]
    if named or len(alone) == 1:
        (target, *_) = named or alone
        return target, [other.name for _, other in found if other is not target][:8]
    known = [target.name for _, target in found]
    hint = suggestion(requested, known) or (f"it may be {listing(known)}" if known else "nothing here can be predicted")
    raise UsageError(Diagnostic("E373", f"'{requested}' is nothing that could be predicted", hint=hint))


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
    """All that could be predicted with how likely it is meant, likeliest first."""
    found: list[tuple[float, PredictionTarget]] = []
    parents = {x.sort for link in schema.relations for x in link.arguments[1:]} if schema.relations else set()
    children = {link.arguments[0].sort for link in schema.relations if len({x.sort for x in link.arguments}) > 1}
    for entity in schema.entities:
        labels = tuple(
            a for a in entity.attributes if a.type == "bool" and a.position_from_end == 0 and a.column[-1:].isdigit()
        )
        if len(labels) > 1:
            found.append((6.0, PredictionTarget(f"{len(labels)} columns of 0 and 1 with one name", entity, labels)))
        for attribute in entity.attributes:
            if attribute in labels and len(labels) > 1:
                continue
            score = _score_attribute(schema, entity, attribute)
            if score is not None:
                is_top = entity.name in parents and entity.name not in children
                score = score[0] + 2.0 * is_top, score[1]
                found.append((score[0], PredictionTarget(score[1], entity, (attribute,))))
    for link in schema.relations:
        size = prod(x.entity.size if x.entity else x.distinct for x in link.arguments)
        if not 1 < size <= MAX_TUPLES or (len(link.arguments) < 2 and link.value_column is None):
            continue
        if link.value_column is not None:
            found.append((5.5, PredictionTarget("its tuples have values", relation=link)))
        elif not any(x.entity is not None for x in link.arguments):
            continue
        else:
            of_things = all(x.entity is not None for x in link.arguments)
            found.append(
                (of_things + min(0.4, link.rows / size), PredictionTarget("which tuples it lists", relation=link))
            )
    return sorted(found, key=lambda f: (-f[0], f[1].name))


def _score_attribute(
    schema: ProposedSchema, entity: ProposedEntity, attribute: ProposedAttribute
) -> tuple[float, str] | None:
    few = attribute.type in ("enumeration", "bool") or (attribute.type == "open" and attribute.distinct <= MAX_STATES)
    if not few or (entity.sequence and attribute.name in entity.sequence):
        return None
    score, reasons = 1.5 + (attribute.type == "enumeration") * 0.5, [f"{attribute.distinct} values"]
    if attribute.column.lower() in LABEL_COLUMNS:
        score, reasons = score + 3, [*reasons, "called as labels are"]
    if attribute.missing:
        score, reasons = score + 3, [*reasons, f"missing for {attribute.missing:,} of {entity.size:,}"]
    if attribute.position_from_end == 0:
        score, reasons = score + 1, [*reasons, "the last column"]
    rich = bool(entity.bags or entity.sequence or any(a.type in ("vector", "bag") for a in entity.attributes))
    rich = rich or any(link.arguments_of(entity) for link in schema.relations)
    if rich:
        score, reasons = score + 1, [*reasons, f"there is evidence about each {entity.name}"]
    return score, ", ".join(reasons)
