"""Features that are learned from labels: the values of a classifier or regressor for each entity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from relcrf.model import expressions as e
from relcrf.model.nodes import walk
from relcrf.model.spec import Feature, LearnedDefinition, ModelSpec
from relcrf.model.typing import NameScope


def learned_features(spec: ModelSpec) -> tuple[Feature, ...]:
    """Return the features of a model that are learned, in the order of the text."""
    return tuple(feature for feature in spec.features if isinstance(feature.definition, LearnedDefinition))


def used_learned_features(spec: ModelSpec, expressions: Iterable[e.Expression]) -> set[str]:
    """Return the names of the learned features on which expressions depend, directly or through other features."""
    used: set[str] = set()
    seen: set[str] = set()
    pending: list[object] = [*expressions]
    while pending:
        for node in walk(pending.pop()):
            feature = spec.feature(node.relation) if isinstance(node, e.Atom) else None
            if feature is None or feature.name in seen:
                continue
            seen.add(feature.name)
            if isinstance(feature.definition, LearnedDefinition):
                used.add(feature.name)
            else:
                pending.append(feature.definition)
    return used


def aggregated_label(scope: NameScope, node: e.Expression) -> e.Attribute | None:
    """Return q.x for `sum { q.x where C }` or `mean { q.x where C }` with a predicted attribute, else None.

    Args:
        scope: the scope outside the aggregate.
    """
    match node:
        case e.Aggregate("sum" | "mean", (e.Attribute() as term,)) if scope.aggregate_scope(node).is_random(term):
            return term
    return None


def labelled_neighbours(scope: NameScope, definition: LearnedDefinition, node: e.Expression) -> e.Aggregate | None:
    """Return `count { q where C }` if an input is `sum { q.x where C }` or `mean { q.x where C }`, else None.

    Here p.x is the predicted attribute that a classifier predicts: the input aggregates the labels of other entities of the
    type of p.

    Args:
        scope: the scope of the parameter of the feature.
    """
    label, target = aggregated_label(scope, node), definition.target
    if label is None or definition.kind != "classifier" or not isinstance(target, e.Attribute):
        return None
    assert isinstance(node, e.Aggregate)
    has_type = scope.aggregate_scope(node).type_names[label.binder] == scope.type_names.get(target.binder)
    if label.binder in scope.type_names or label.attribute != target.attribute or not has_type:
        return None
    return replace(node, function="count", terms=(e.Name(label.binder, span=label.span),))
