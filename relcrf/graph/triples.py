"""Spaces of candidate factors over three literals, which grow from chosen pairs of two of them.

Source: Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014),
equation 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.candidates import AbstractSpace, KeyRelation, PairSpace, Side, meeting


@dataclass(frozen=True)
class Composites:
    """Pairs of literals that act as one each, which holds in a sample where both do.

    Args:
        side: a key for each pair, and a cell for each sample in which both have one; its `variable` is a number of its own.
        cells: in the sides of the two literals, two arrays of shape (n_cells,).
        one, other: their variables, shape (n_cells,).
    """

    side: Side
    cells: tuple[np.ndarray, np.ndarray]
    one: np.ndarray
    other: np.ndarray

    @classmethod
    def of(cls, first: Side, second: Side, n_samples: int, pairs: np.ndarray, start: int = 0) -> Composites:
        """Of some pairs of keys, shape (n, 2), with numbers from `start` on."""
        rows, columns, place = meeting(first, second, n_samples, pairs)
        begin = offsets(np.bincount(place, minlength=len(pairs)))
        number = np.arange(start, start + len(place), dtype=np.int32)
        side = Side(begin, first.sample[rows], number, np.array([0.0, 1.0]))
        return cls(side, (rows, columns), first.variable[rows], second.variable[columns])

    def holds(self, holds: np.ndarray) -> np.ndarray:
        """Whether literals hold, and after them the composites of these: shape (n_literals + n_cells,)."""
        return np.concatenate((holds, holds[self.one] * holds[self.other]))

    def means(self, means: np.ndarray, changes: np.ndarray) -> np.ndarray:
        """As `holds`, where that of literals changes: the mean of before and after, as `means` of the literals are."""
        return np.concatenate(
            (means, means[self.one] * means[self.other] + 0.25 * changes[self.one] * changes[self.other])
        )

    def errors(self, errors: np.ndarray, holds: np.ndarray) -> np.ndarray:
        """The same of errors: a composite's is the derivative along its pair. With changes and `means` it is its change."""
        composite = errors[self.one] * holds[self.other] + holds[self.one] * errors[self.other]
        return np.concatenate((errors, composite))


@dataclass(frozen=True)
class Parent:
    """A space of pairs that triples grow from.

    Args:
        space: its number among all spaces.
        places: which sides of the triples its first and its second side are.
        keys: of these two, the key of the triples for each of its own; -1 where they have none.
    """

    space: int
    places: tuple[int, int]
    keys: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class TripleSpace(AbstractSpace):
    """Triples of keys (a, b, c) of three literals, numbered as the pairs (a * n_keys of b + b, c): of a composite and a literal.

    Args:
        relations: which keys may stand together, for the sides (0, 1), (0, 2) and (1, 2).
        parents: a triple is a candidate where one of them has chosen two of its literals.
    """

    name: str
    first: Side
    second: Side
    third: Side
    relations: Mapping[tuple[int, int], KeyRelation]
    n_samples: int
    parents: tuple[Parent, ...] = ()
    l1: float | None = None
    l2: float | None = None

    @property
    def sides(self) -> tuple[Side, Side, Side]:
        return self.first, self.second, self.third

    def keys(self, pairs: np.ndarray) -> np.ndarray:
        return np.column_stack((*np.divmod(pairs[:, 0], max(self.second.n_keys, 1)), pairs[:, 1]))

    def numbered(self, keys: np.ndarray) -> np.ndarray:
        return np.column_stack((keys[:, 0] * self.second.n_keys + keys[:, 1], keys[:, 2]))

    def composites(self, pairs: np.ndarray, start: int = 0) -> tuple[Composites, np.ndarray]:
        """The first two literals of some triples as one each, with numbers from `start` on; and the triples as keys of these and
        of the third side.
        """
        distinct, which = np.unique(pairs[:, 0], return_inverse=True)
        keys = np.column_stack(np.divmod(distinct, max(self.second.n_keys, 1)))
        made = Composites.of(self.first, self.second, self.n_samples, keys, start)
        return made, np.column_stack((which, pairs[:, 1]))

    def cells(self, pairs: np.ndarray) -> tuple[np.ndarray, ...]:
        made, keys = self.composites(pairs)
        rows, third, place = meeting(made.side, self.third, self.n_samples, keys)
        first, second = made.cells
        return first[rows], second[rows], third, place

    def placed(self, sides: Sequence[Side]) -> TripleSpace:
        first, second, third = sides
        return replace(self, first=first, second=second, third=third)

    def grown(self, left_out: int, chosen: Sequence[np.ndarray]) -> np.ndarray:
        """The pairs of keys of the two sides other than one that stand as chosen pairs, ascending, shape (n, 2).

        Args:
            chosen: of each space its chosen pairs, shape (n, 2).
        """
        one, other = (k for k in range(3) if k != left_out)
        found = [np.empty((0, 2), dtype=np.int64)]
        for parent in self.parents:
            if left_out not in parent.places:
                keys = [of[column] for of, column in zip(parent.keys, chosen[parent.space].T, strict=True)]
                found.append(np.column_stack(keys if parent.places == (one, other) else keys[::-1]))
        pairs = np.unique(np.concatenate(found), axis=0)
        allowed = (pairs >= 0).all(axis=1) & self.relations[one, other].allows(*pairs.T)
        return np.asarray(pairs[allowed])

    def limits(self, left_out: int, pairs: np.ndarray) -> np.ndarray:
        """The keys of a side that may stand with pairs of keys of the two others, as `top_products` takes them: between the
        first and the second number, other than the third and the fourth. Shape (n, 4).
        """
        others = [k for k in range(3) if k != left_out]
        out = np.tile([-1, self.sides[left_out].n_keys, -1, -1], (len(pairs), 1))
        for column, (place, keys) in enumerate(zip(others, pairs.T, strict=True)):
            match self.relations[min(place, left_out), max(place, left_out)]:
                case KeyRelation.ASCENDING if place < left_out:
                    out[:, 0] = np.maximum(out[:, 0], keys)
                case KeyRelation.ASCENDING:
                    out[:, 1] = np.minimum(out[:, 1], keys)
                case KeyRelation.DISTINCT:
                    out[:, 2 + column] = keys
        return out


Space = PairSpace | TripleSpace
"""Of candidates."""
