"""The layout of the weight vector: one block of weights per template, with penalty strengths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class WeightBlock:
    """The weights of one template: a matrix with a row per evidence feature and a column per state pattern.

    Args:
        name: Name of the template.
        initial: Initial value of all weights, a sequence of n_patterns initial values, one per pattern, or a sequence of
            n_features such sequences.
        fixed: If True, learning does not change the block.
        l1, l2: Strengths of the L1 and L2 penalties; None selects the strength in the backend's settings.
    """

    name: str
    n_features: int
    n_patterns: int
    initial: float | tuple[float, ...] | tuple[tuple[float, ...], ...] = 0.0
    fixed: bool = False
    l1: float | None = None
    l2: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.initial, list):  # JSON has no tuples
            values = [tuple(value) if isinstance(value, list) else value for value in self.initial]
            object.__setattr__(self, "initial", tuple(values))

    @property
    def size(self) -> int:
        return self.n_features * self.n_patterns


@dataclass(frozen=True)
class WeightLayout:
    """Weight blocks, concatenated into one vector."""

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
        """Return the weights of one block in a vector of all weights, as a view of shape (n_features, n_patterns)."""
        block_weights = vector[self.starts[block] : self.starts[block + 1]]
        return block_weights.reshape(self.blocks[block].n_features, self.blocks[block].n_patterns)

    def initial(self) -> np.ndarray:
        """Return the initial weights, shape (size,)."""
        initial_values = [np.broadcast_to(b.initial, (b.n_features, b.n_patterns)).ravel() for b in self.blocks]
        return np.concatenate([np.empty(0), *initial_values])

    def l1(self, default: float) -> np.ndarray:
        """Return the L1 strength of each weight, shape (size,)."""
        return self._repeat_per_block([default if block.l1 is None else block.l1 for block in self.blocks])

    def l2(self, default: float) -> np.ndarray:
        """Return the L2 strength of each weight, shape (size,)."""
        return self._repeat_per_block([default if block.l2 is None else block.l2 for block in self.blocks])

    def learnable_mask(self) -> np.ndarray:
        """Return a mask of the weights that learning may change, shape (size,), bool."""
        return self._repeat_per_block([float(not block.fixed) for block in self.blocks]).astype(bool)

    def _repeat_per_block(self, values: list[float]) -> np.ndarray:
        sizes = [block.size for block in self.blocks]
        return np.repeat(np.asarray(values, dtype=np.float64), sizes)
