"""The weights of the largest magnitude, with their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.backends.learned import LearnedModel


@dataclass(frozen=True)
class NamedWeight:
    """One weight: of a pattern of states, times a feature, for a key ('' where there is none).

    Args:
        place: in the layout: its block, and the row and the column there.
    """

    value: float
    template: str
    key: str
    feature: str
    pattern: str
    place: tuple[int, int, int]


def strongest(learned: LearnedModel, blocks: Sequence[int], most: int) -> tuple[NamedWeight, ...]:
    """The largest weights of some blocks of the layout, the largest first; at most so many."""
    found = []
    for block in blocks:
        matrix = learned.layout.matrix(learned.vectors["weights"], block)
        found += [named(learned, block, place) for place in largest(matrix.ravel(), most)]
    return tuple(sorted(found, key=lambda weight: (-abs(weight.value), weight.place))[:most])


def named(learned: LearnedModel, block: int, place: int) -> NamedWeight:
    """A weight of a block, by its place there."""
    info, matrix = learned.templates[block], learned.layout.matrix(learned.vectors["weights"], block)
    feature, pattern = divmod(place, matrix.shape[1])
    key, name = info.feature_name(feature)
    value, where = float(matrix[feature, pattern]), (block, feature, pattern)
    return NamedWeight(value, info.name, ", ".join(key), name, info.patterns[pattern], where)


def largest(values: np.ndarray, most: int) -> list[int]:
    """Where the numbers of the largest magnitude are, at most so many, in no order."""
    size = np.abs(values)
    near = np.argpartition(-size, most - 1)[:most] if len(size) > most else np.arange(len(size))
    return [int(place) for place in near]
