"""Features that are learned from labels: the values of a classifier or regressor for each entity."""

from __future__ import annotations

from collections.abc import Iterable

from relcrf.model import expressions as e
from relcrf.model.nodes import walk
from relcrf.model.spec import Feature, LearnedDefinition, ModelSpec


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
