"""The entities of tables with their indices in a ground graph of the same tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from relcrf.grounding.grounding import Grounding
from relcrf.model.spec import ModelSpec
from relcrf.prediction import Prediction
from relcrf.updating.entities import Entities
from relcrf.updating.entity_rows import EntityRows


@dataclass(frozen=True)
class NumberedEntities:
    """Entities with the indices that they have in a ground graph.

    Args:
        indices: Index of each entity within its type in the ground graph, by entity type; -1 for entities that are only
            mentioned, and for other types. Shape (n_entities,) each.
        component: Number of the component of each entity, shape (n_entities,), int32.
    """

    entities: Entities
    indices: Mapping[str, np.ndarray] = field(default_factory=dict)
    component: np.ndarray = field(default_factory=partial(np.empty, 0, dtype=np.int32))

    @classmethod
    def from_rows(cls, spec: ModelSpec, rows: EntityRows, grounding: Grounding) -> NumberedEntities:
        """Find the entities of the rows in a ground graph of the same rows."""
        entities = rows.entities()
        indices = {}
        for kind, entity in enumerate(spec.entities):
            known = {key: index for index, key in enumerate(grounding.bound.keys(entity.name))}
            found = np.full(len(entities), -1)
            mine = entities.kind == kind
            found[mine] = [known.get(key, -1) for key in entities.key[mine]]
            indices[entity.name] = found
        return cls(entities, indices, rows.components(entities))

    def entity_numbers(self, by_entity: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the digest of each entity from arrays in the order of the ground graph, shape (n_entities,), uint64."""
        out = np.zeros(len(self.entities), dtype=np.uint64)
        for name, values in by_entity.items():
            rows = np.flatnonzero(self.indices[name] >= 0)
            out[rows] = values[self.indices[name][rows]]
        return out

    def predictions(self, prediction: Prediction) -> dict[str, np.ndarray]:
        """Return the `numbers` of each `PredictedAttribute`, by name."""
        out = {}
        for name in prediction.attributes:
            block = prediction.block(name)
            numbers = np.full((block.count, len(block.values) + 1), np.nan)
            rows = prediction.variables(name) - block.start
            numbers[rows, :-1] = prediction.probabilities(name)
            numbers[rows, -1] = prediction.inferred.map_states[block.index_slice(prediction.inferred.variables)]
            out[name] = np.full((len(self.entities), numbers.shape[1]), np.nan)
            found = np.flatnonzero(self.indices[block.owner] >= 0)
            out[name][found] = numbers[self.indices[block.owner][found]]
        return out


def equal_training(
    known: Entities, training: np.ndarray, selected: np.ndarray, entities: Entities, new_training: np.ndarray
) -> bool:
    """Return True if the entities with labels, and their training digests, are the same as the selected known ones."""

    def labelled(some: Entities, digests: np.ndarray, chosen: np.ndarray) -> dict[tuple[int, str], int]:
        rows = np.flatnonzero(chosen & (digests > 0))
        pairs = zip(some.kind[rows].tolist(), some.key[rows].tolist(), strict=True)
        return dict(zip(pairs, digests[rows].tolist(), strict=True))

    everything = np.ones(len(entities), dtype=bool)
    return labelled(known, training, selected) == labelled(entities, new_training, everything)
