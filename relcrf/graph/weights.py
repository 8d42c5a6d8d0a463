"""Where each template's weights stand in the one weight vector, and how each is penalised."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class WeightBlock:
    """The weights of one template, as a matrix of shape (n_features, n_patterns).

    Args:
        name: of the template.
        initial: where learning starts: all weights, or each pattern, of length n_patterns.
        fixed: learning leaves the block alone.
        l1, l2: strengths of the penalties; None leaves them to the backend's settings.
    """

    name: str
    n_features: int
    n_patterns: int
    initial: float | tuple[float, ...] = 0.0
    fixed: bool = False
    l1: float | None = None
    l2: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.initial, list):  # files have no tuples
            object.__setattr__(self, "initial", tuple(self.initial))

    @property
    def size(self) -> int:
        return self.n_features * self.n_patterns


@dataclass(frozen=True)
class WeightLayout:
    """The blocks one after the other."""

    blocks: tuple[WeightBlock, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        starts = [0]
        for block in self.blocks:
            starts.append(starts[-1] + block.size)
        return tuple(starts)

    @property
    def size(self) -> int:
        return self.starts[-1]

    def matrix(self, vector: np.ndarray, block: int) -> np.ndarray:
        """The block's weights in a vector of shape (size,): a view of shape (n_features, n_patterns)."""
        part = vector[self.starts[block] : self.starts[block + 1]]
        return part.reshape(self.blocks[block].n_features, self.blocks[block].n_patterns)

    def initial(self) -> np.ndarray:
        """Where learning starts, shape (size,)."""
        starts = [np.broadcast_to(b.initial, (b.n_features, b.n_patterns)).ravel() for b in self.blocks]
        return np.concatenate([np.empty(0), *starts])

    def l1(self, default: float) -> np.ndarray:
        """The L1 strength of each weight, shape (size,)."""
        return self._repeat_per_block([default if block.l1 is None else block.l1 for block in self.blocks])

    def l2(self, default: float) -> np.ndarray:
        """The L2 strength of each weight, shape (size,)."""
        return self._repeat_per_block([default if block.l2 is None else block.l2 for block in self.blocks])

    def learnable_mask(self) -> np.ndarray:
        """Which weights learning may move, shape (size,), bool."""
        return self._repeat_per_block([float(not block.fixed) for block in self.blocks]).astype(bool)

    def _repeat_per_block(self, values: list[float]) -> np.ndarray:
        sizes = [block.size for block in self.blocks]
        return np.repeat(np.asarray(values, dtype=np.float64), sizes)
