"""Mini-batch gradient methods with serialisable states, so that interrupted runs resume with bitwise identical results.

Sources: for Adam, Kingma & Ba, Adam: a method for stochastic optimization (2015), algorithm 1; for stochastic
meta-descent, Schraudolph, Local gain adaptation in stochastic gradient descent (1999), and Vishwanathan et al.,
Accelerated training of conditional random fields with stochastic gradient methods (2006), equations 6 to 9.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relcrf.learning.hessian_products import hessian_vector_product
from relcrf.learning.lbfgs import AbstractMinimiser, AnyState, Objective, OptimiserState

BatchObjective = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]
"""A function of a point, shape (n,), and of the indices of a batch's examples; it returns a value and a gradient.

Value and gradient are means over the batch; a penalty, if any, is added to each batch in full.
"""

OptimiserMemory = tuple[np.ndarray, ...]
"""The arrays of shape (n,) that a method passes from one batch to the next."""


@dataclass(frozen=True)
class AbstractStochasticMethod(AbstractMinimiser[BatchObjective]):
    """A minimiser that processes all examples in batches; one pass over the examples is one iteration.

    Each pass shuffles the examples with a random generator seeded by `seed` and the index of the pass. In the optimiser
    states, `value` and `gradient` are means over all batches of the pass, each evaluated before the step for this
    batch; `steps` contains the method's memory.

    Args:
        n_examples: Number of examples, at least 1.
        batch_size: Maximum size of a batch, at least 1; the batches of a pass have nearly equal sizes.
        learning_rate: Learning rate of the first step.
        cosine_decay: Whether to reduce the learning rate along a cosine, to 0 at the end of the last pass.
        tolerance: The run converges when the norm of a pass's mean gradient is at most this fraction of the norm before
            the first pass.
        max_iterations: Maximum number of passes, after which the status is `not converged`.

    Raises:
        ValueError: If `n_examples` or `batch_size` is less than 1, or `learning_rate` is not positive.
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
            raise ValueError("n_examples, batch_size and learning_rate must be positive")

    @abstractmethod
    def initial_memory(self, point: np.ndarray) -> OptimiserMemory:
        """Return the memory before the first batch."""

    @abstractmethod
    def update(
        self, objective: Objective, point: np.ndarray, gradient: np.ndarray, memory: OptimiserMemory, t: int
    ) -> tuple[np.ndarray, OptimiserMemory, int]:
        """Return the next point, the memory at this point, and the number of additional evaluations.

        Args:
            objective: The objective of the batch.
            gradient: The gradient of the batch at the point.
            t: Number of batches processed before this one in all passes.
        """

    @property
    def n_batches(self) -> int:
        """The number of batches of a pass."""
        return -(-self.n_examples // self.batch_size)

    def batches(self, iteration: int) -> list[np.ndarray]:
        """Return the indices of the examples in each batch of a pass."""
        order = np.random.default_rng((self.seed, iteration)).permutation(self.n_examples)
        return np.array_split(order, self.n_batches)

    def rate_at(self, t: int) -> float:
        """Return the learning rate after a total of `t` batches."""
        if not self.cosine_decay:
            return self.learning_rate
        return (
            0.5 * self.learning_rate * (1.0 + float(np.cos(np.pi * min(1.0, t / self.n_batches / self.max_iterations))))
        )

    def start(self, objective: BatchObjective, point: np.ndarray) -> OptimiserState:
        """Return the state before the first pass, with the value and gradient over all examples at the point."""
        value, gradient = 0.0, np.zeros(len(point))
        for batch in np.array_split(np.arange(self.n_examples), self.n_batches):
            loss, slope = objective(point, batch)
            value += loss * len(batch) / self.n_examples
            gradient += slope * (len(batch) / self.n_examples)
        norm = self.norm(point, gradient)
        return self.update_status(
            OptimiserState(
                point, value, gradient, norm, self.initial_memory(point), (), norm, evaluations=self.n_batches
            )
        )

    def step(self, objective: BatchObjective, state: AnyState) -> AnyState:
        """Run one pass.

        If a value, a gradient, a weight or the memory is not finite, the status is `diverged`, and point and memory are
        those before the pass. Value and norm are then those of the failing batch; if both are finite, the value is NaN.
        """
        point, memory, evaluations = state.point, state.steps, state.evaluations
        value, gradient = 0.0, np.zeros(len(point))
        for k, batch in enumerate(self.batches(state.iteration)):

            def batch_objective(weights: np.ndarray, batch: np.ndarray = batch) -> tuple[float, np.ndarray]:
                return objective(weights, batch)

            loss, slope = batch_objective(point)
            largest = float(np.abs(slope).max(initial=0.0))
            if not np.isfinite([loss, largest]).all():
                return replace(state, value=loss, gradient_norm=largest, evaluations=evaluations + 1, status="diverged")
            value += loss * len(batch) / self.n_examples
            gradient += slope * (len(batch) / self.n_examples)
            with np.errstate(over="ignore", invalid="ignore"):
                point, memory, extra = self.update(
                    batch_objective, point, slope, memory, state.iteration * self.n_batches + k
                )
            evaluations += 1 + extra
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
    """Adam: steps proportional to the running mean of gradients divided by the root of the mean of squared gradients.

    The steps do not depend on the scale of the gradient. The memory contains the two means without bias correction.

    Args:
        beta1, beta2: Decay rates of the mean gradient and of the mean squared gradient.
        epsilon: Number added to the square root, so that a weight does not change while its gradients are 0.
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
    """Stochastic meta-descent: gradient descent with a learning rate (gain) per weight that is also learned.

    A batch with gradient g and Hessian H changes a weight w, its gain, and the derivative v of w with respect to the
    logarithm of the gain: `gain *= max(1/2, 1 - meta_rate g v)`, `w -= gain g`, `v = decay v - gain (g + decay H v)`,
    where decay is `memory_decay`. The memory consists of the gains and v. The gains start at `learning_rate`; the step
    `gain g` is also multiplied by the factor of the cosine decay. Unlike in Adam, the best `learning_rate` and
    `meta_rate` depend on the scale of the objective.

    Each batch except the first needs two additional gradients (see `hessian_vector_product`). There is one deviation
    from the source: a gain at most doubles per step, because v is noisy if the batch is small or H is not positive
    definite.

    Args:
        meta_rate: Learning rate of the gains.
        memory_decay: Fraction of v that is retained at each step, at most 1.
    """

    learning_rate: float = 0.1
    meta_rate: float = 0.1
    memory_decay: float = 0.99

    def initial_memory(self, point: np.ndarray) -> OptimiserMemory:
        return np.full(len(point), self.learning_rate), np.zeros(len(point))

    def update(
        self, objective: Objective, point: np.ndarray, gradient: np.ndarray, memory: OptimiserMemory, t: int
    ) -> tuple[np.ndarray, OptimiserMemory, int]:
        gain, v = memory
        gain = gain * np.clip(1.0 - self.meta_rate * gradient * v, 0.5, 2.0)
        current_gain = gain * (self.rate_at(t) / self.learning_rate)
        n_gradients = 2 if v.any() else 0
        curvature = hessian_vector_product(objective, point, v) if n_gradients else v
        return (
            point - current_gain * gradient,
            (gain, self.memory_decay * v - current_gain * (gradient + self.memory_decay * curvature)),
            n_gradients,
        )
