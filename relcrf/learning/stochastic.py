"""Descent on small batches of examples, whose whole state can be saved, so that an interrupted run goes on bit for bit.

Sources: Adam is algorithm 1 of Kingma & Ba, Adam: a method for stochastic optimization (2015). Stochastic meta-descent is that of
Schraudolph, Local gain adaptation in stochastic gradient descent (1999), as Vishwanathan et al., Accelerated training of
conditional random fields with stochastic gradient methods (2006), equations 6 to 9, train CRFs by it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relcrf.learning.lbfgs import AbstractMinimiser, AnyState, Objective, OptimiserState

BatchObjective = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]
"""Value and gradient at a point of shape (n,), of the examples whose numbers are the second argument: a mean over them, to which
a penalty may be added whole."""

OptimiserMemory = tuple[np.ndarray, ...]
"""What a method carries from one batch to the next; arrays of shape (n,)."""

DIFFERENCE_STEP = float(np.cbrt(np.finfo(float).eps))
"""Of central differences: at this distance their truncation and their rounding are about equal."""


@dataclass(frozen=True)
class AbstractStochasticMethod(AbstractMinimiser[BatchObjective]):
    """Passes over all examples in batches; one pass is one iteration.

    Each pass has a shuffle of its own, which `seed` and its number tell. In its states, `value` and `gradient` are means over
    the pass, each batch at the point where it was met; `steps` is the method's memory.

    Args:
        n_examples: at least 1. batch_size: at least 1; the batches of a pass are as equal as can be, and none is larger.
        learning_rate: of the first step.
        cosine_decay: the rate falls to 0 at the end of the last pass, as a cosine.
        tolerance: converged when the largest component of a pass's mean gradient is below this share of the one at the start.
        max_iterations: passes; then the status is `not converged`.

    Raises:
        ValueError: for a number that is too small.
    """

    n_examples: int
    batch_size: int = 100
    learning_rate: float = 0.01
    cosine_decay: bool = True
    tolerance: float = 1e-4
    max_iterations: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.n_examples, self.batch_size) < 1 or self.learning_rate <= 0.0:
            raise ValueError("there must be an example, a batch size and a rate above 0")

    @abstractmethod
    def initial_memory(self, point: np.ndarray) -> OptimiserMemory:
        """What it carries to the first batch."""

    @abstractmethod
    def update(
        self, objective: Objective, point: np.ndarray, gradient: np.ndarray, memory: OptimiserMemory, t: int
    ) -> tuple[np.ndarray, OptimiserMemory, int]:
        """The next point, what is remembered there, and the evaluations that it has spent.

        Args:
            objective: of the batch. gradient: of the batch at the point.
            t: batches before this one, in all passes.
        """

    @property
    def n_batches(self) -> int:
        """Of a pass."""
        return -(-self.n_examples // self.batch_size)

    def batches(self, iteration: int) -> list[np.ndarray]:
        """The examples of each batch of a pass."""
        order = np.random.default_rng((self.seed, iteration)).permutation(self.n_examples)
        return np.array_split(order, self.n_batches)

    def rate_at(self, t: int) -> float:
        """Return the rate after `t` batches in all."""
        if not self.cosine_decay:
            return self.learning_rate
        return (
            0.5 * self.learning_rate * (1.0 + float(np.cos(np.pi * min(1.0, t / self.n_batches / self.max_iterations))))
        )

    def start(self, objective: BatchObjective, point: np.ndarray) -> OptimiserState:
        """The state before the first pass: value and gradient are those of all examples at the point."""
        value, gradient = 0.0, np.zeros(len(point))
        for batch in np.array_split(np.arange(self.n_examples), self.n_batches):
            part, slope = objective(point, batch)
            value += part * len(batch) / self.n_examples
            gradient += slope * (len(batch) / self.n_examples)
        norm = self.norm(point, gradient)
        return self.update_status(
            OptimiserState(
                point, value, gradient, norm, self.initial_memory(point), (), norm, evaluations=self.n_batches
            )
        )

    def step(self, objective: BatchObjective, state: AnyState) -> AnyState:
        """One pass.

        Where a value, a gradient or a weight is not finite, the status is `diverged`: point and memory are those before the
        pass, value and norm are what it met.
        """
        point, memory, evaluations = state.point, state.steps, state.evaluations
        value, gradient = 0.0, np.zeros(len(point))
        for k, batch in enumerate(self.batches(state.iteration)):

            def of_batch(at: np.ndarray, batch: np.ndarray = batch) -> tuple[float, np.ndarray]:
                return objective(at, batch)

            part, slope = of_batch(point)
            largest = float(np.abs(slope).max(initial=0.0))
            if not np.isfinite([part, largest]).all():
                return replace(state, value=part, gradient_norm=largest, evaluations=evaluations + 1, status="diverged")
            value += part * len(batch) / self.n_examples
            gradient += slope * (len(batch) / self.n_examples)
            with np.errstate(over="ignore", invalid="ignore"):
                point, memory, more = self.update(of_batch, point, slope, memory, state.iteration * self.n_batches + k)
            evaluations += 1 + more
            if not all(np.isfinite(array).all() for array in (point, *memory)):
                return replace(state, value=np.nan, evaluations=evaluations, status="diverged")
        state = replace(
            state,
            point=point,
            value=value,
            gradient=gradient,
            gradient_norm=self.norm(point, gradient),
            steps=memory,
            iteration=state.iteration + 1,
            evaluations=evaluations,
        )
        return self.update_status(state)


@dataclass(frozen=True)
class Adam(AbstractStochasticMethod):
    """Steps along the mean of recent gradients over the root of the mean of their squares, weight by weight.

    Its steps do not depend on the gradient's scale. It remembers both means, without the correction for their start at 0.

    Args:
        beta1, beta2: shares of the means that are kept from one batch to the next.
        epsilon: added to the root, so that weights without a gradient stay.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def initial_memory(self, point: np.ndarray) -> OptimiserMemory:
        return np.zeros(len(point)), np.zeros(len(point))

    def update(
        self, objective: Objective, point: np.ndarray, gradient: np.ndarray, memory: OptimiserMemory, t: int
    ) -> tuple[np.ndarray, OptimiserMemory, int]:
        first = self.beta1 * memory[0] + (1.0 - self.beta1) * gradient
        second = self.beta2 * memory[1] + (1.0 - self.beta2) * gradient**2
        root = np.sqrt(second / (1.0 - self.beta2 ** (t + 1))) + self.epsilon
        return point - self.rate_at(t) / (1.0 - self.beta1 ** (t + 1)) * first / root, (first, second), 0


@dataclass(frozen=True)
class MetaDescent(AbstractStochasticMethod):
    """Steps along the gradient, each weight at a gain of its own that is itself learned by gradient descent.

    `gain *= max(1/2, 1 - meta_rate g v)`, `w -= gain g`, `v = memory v - gain (g + memory H v)`, where v is how w depends on the
    logarithm of its gain. It remembers gains and v. The gains start at `rate`, and fall as it does besides. Unlike Adam's, both
    rates depend on the objective's scale.

    Each batch but the first takes two gradients more, see `curved`. One deviation: a gain grows to its double at most, since v is
    noise where the batch is small, or H is not positive.

    Args:
        meta_rate: of the gains.
        memory: how much of v is kept, at most 1.
    """

    learning_rate: float = 0.1
    meta_rate: float = 0.1
    memory: float = 0.99

    def initial_memory(self, point: np.ndarray) -> OptimiserMemory:
        return np.full(len(point), self.learning_rate), np.zeros(len(point))

    def update(
        self, objective: Objective, point: np.ndarray, gradient: np.ndarray, memory: OptimiserMemory, t: int
    ) -> tuple[np.ndarray, OptimiserMemory, int]:
        gain, v = memory
        gain = gain * np.clip(1.0 - self.meta_rate * gradient * v, 0.5, 2.0)
        now = gain * (self.rate_at(t) / self.learning_rate)
        more = 2 if v.any() else 0
        bend = hessian_vector_product(objective, point, v) if more else v
        return point - now * gradient, (gain, self.memory * v - now * (gradient + self.memory * bend)), more


def hessian_vector_product(objective: Objective, point: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The Hessian at a point times a vector v that is not 0, by central differences of the gradient; shape (n,).

    Twice the gradient, at points that are apart along v by `DIFFERENCE_STEP` of the point's scale: of a smooth function the relative
    error is about 1e-9.
    """
    distance = DIFFERENCE_STEP * max(1.0, float(np.abs(point).max())) / float(np.abs(v).max())
    ahead, behind = (objective(point + sign * distance * v)[1] for sign in (1.0, -1.0))
    return np.asarray((ahead - behind) / (2.0 * distance))
