"""The entities that the rows of tables mention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Entities:
    """The entities that the rows of the tables mention, one per row of the arrays.

    Args:
        kind: Index of the entity type in the model, shape (n,), int32.
        key: Text of the key, shape (n,), object.
        digest: Digest of the rows, shape (n,), uint64.
    """

    kind: np.ndarray
    key: np.ndarray
    digest: np.ndarray

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def empty(cls) -> Entities:
        """Return no entities."""
        return cls(np.empty(0, dtype=np.int32), np.empty(0, dtype=object), np.empty(0, dtype=np.uint64))

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The arrays in the order of the fields."""
        return self.kind, self.key, self.digest

    def take(self, selected: np.ndarray) -> Entities:
        """Return the entities in a mask, shape (n,), bool, or with the given indices."""
        return Entities(*(values[selected] for values in self.columns))

    def append(self, other: Entities) -> Entities:
        """Return these entities, followed by others."""
        pairs = zip(self.columns, other.columns, strict=True)
        return Entities(*(np.concatenate(pair) for pair in pairs))
