"""The rivals of few_labels.py in plain NumPy and SciPy: methods of semi-supervised node classification on words and links.

Each rival learns from the training labels and selects its settings from a small grid by its accuracy on the validation
labels; ties are broken by the lower log loss. Nothing else uses the validation labels, except early stopping of the networks.
The probabilities are not calibrated. The networks are differentiated by hand; tests/benchmarks/test_few_label_rivals.py compares
the gradients with finite differences.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

MIN_PROBABILITY = 1e-7
"""Lower bound of the probabilities, for a finite log loss; float32 does not represent smaller differences from 1."""
Candidate = tuple[dict[str, Any], np.ndarray]
"""Settings, and the probabilities that result from them, shape (n_nodes, n_classes)."""


@dataclass(frozen=True)
class NodeTask:
    """A graph whose nodes have words and, if they are in the training or validation set, a known class.

    Args:
        words: Word counts of each node, shape (n_nodes, n_words).
        links: Symmetric adjacency matrix of zeros and ones with an empty diagonal, shape (n_nodes, n_nodes).
        label: Class of each node, from 0, shape (n_nodes,); -1 for nodes outside `train` and `valid`.
        train: Indices of the nodes with training labels.
        valid: Indices of the nodes with validation labels.
    """

    words: sp.csr_matrix
    links: sp.csr_matrix
    label: np.ndarray
    n_classes: int
    train: np.ndarray
    valid: np.ndarray

    @cached_property
    def train_targets(self) -> np.ndarray:
        """One row per node: the indicator of its class for training nodes, zeros for others."""
        targets = np.zeros((len(self.label), self.n_classes))
        targets[self.train, self.label[self.train]] = 1.0
        return targets


@dataclass(frozen=True)
class Effort:
    """Limits of the costly rivals, for quick runs.

    Args:
        max_settings: Maximum number of settings of a network, and of numbers of hops of SGC, to select from.
        max_epochs: Maximum number of epochs of each training run of a network.
    """

    max_settings: int = 100
    max_epochs: int = 1000


@dataclass(frozen=True)
class RivalResult:
    """The probabilities of all nodes, shape (n_nodes, n_classes), and the selected settings."""

    probabilities: np.ndarray
    chosen: dict[str, Any]


def normalise_rows(table: np.ndarray) -> np.ndarray:
    """Return the table with rows that sum to 1 and entries of at least `MIN_PROBABILITY`."""
    table = np.maximum(np.asarray(table, dtype=np.float64), 0.0)
    table = np.maximum(table / np.maximum(table.sum(axis=1, keepdims=True), 1e-300), MIN_PROBABILITY)
    return table / table.sum(axis=1, keepdims=True)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return probabilities that are proportional to exp(scores) in each row."""
    table = np.exp(scores - scores.max(axis=1, keepdims=True))
    return table / table.sum(axis=1, keepdims=True)


def accuracy_and_loss(table: np.ndarray, label: np.ndarray) -> tuple[float, float]:
    """Return the accuracy and the mean log loss of probabilities, shape (n, n_classes)."""
    truth = np.maximum(table[np.arange(len(label)), label], MIN_PROBABILITY)
    return float((table.argmax(axis=1) == label).mean()), float(-np.log(truth).mean())


def select(task: NodeTask, candidates: Iterable[Candidate]) -> RivalResult:
    """Return the candidate with the best accuracy on the validation labels; ties are broken by the lower log loss."""

    def rank(candidate: Candidate) -> tuple[float, float]:
        accuracy, loss = accuracy_and_loss(candidate[1][task.valid], task.label[task.valid])
        return -accuracy, loss

    settings, table = min(candidates, key=rank)
    return RivalResult(normalise_rows(table), settings)


def product(**choices: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield all combinations of settings."""
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def scale_rows(matrix: sp.csr_matrix, order: int) -> sp.csr_matrix:
    """Return the matrix with rows of L1 or L2 norm 1; empty rows remain empty."""
    norm = sp.linalg.norm(matrix, ord=order, axis=1)
    return sp.csr_matrix(sp.diags(1.0 / np.where(norm > 0, norm, 1.0)) @ matrix)


def normalised_adjacency(links: sp.csr_matrix, *, self_loops: bool) -> sp.csr_matrix:
    """Return D^-1/2 A D^-1/2 with the degrees D of A; rows of isolated nodes are empty."""
    if self_loops:
        links = links + sp.identity(links.shape[0])
    degree = np.asarray(links.sum(axis=1)).ravel()
    root = sp.diags(1.0 / np.sqrt(np.where(degree > 0, degree, 1.0)))
    return sp.csr_matrix(root @ links @ root)


class LogisticRegression:
    """Multinomial logistic regression with an unpenalised bias; its loss is the sum over the training nodes.

    Args:
        features: Features of all nodes, shape (n_nodes, n_features).
    """

    def __init__(self, task: NodeTask, features: sp.csr_matrix) -> None:
        self.features, self.targets = features, task.train_targets[task.train]
        known = features[task.train]
        self.used = np.flatnonzero(known.getnnz(axis=0))  # the weights of other features are 0
        known = known[:, self.used]
        self.known = known.astype(np.float32)
        if known.nnz > 0.05 * np.prod(known.shape):  # a dense product is faster
            self.known = self.known.toarray()
        self.point = np.zeros((len(self.used) + 1) * task.n_classes)

    def probabilities(self, l2: float) -> np.ndarray:
        """Learn with the penalty `l2 / 2 * w^2`, starting at the weights of the previous call."""
        n_classes = self.targets.shape[1]

        def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
            weights = point.reshape(-1, n_classes)
            scores = self.known @ weights[:-1].astype(np.float32) + weights[-1]
            table = softmax(scores)
            difference = table - self.targets
            gradient = np.concatenate(
                (self.known.T @ difference.astype(np.float32) + l2 * weights[:-1], [difference.sum(axis=0)])
            )
            likelihood = np.log(np.maximum((table * self.targets).sum(axis=1), 1e-300)).sum()
            return float(0.5 * l2 * (weights[:-1] ** 2).sum() - likelihood), gradient.ravel()

        options = {"maxiter": 300, "ftol": 1e-7, "gtol": 1e-4}
        self.point = minimize(loss, self.point, jac=True, method="L-BFGS-B", options=options).x
        weights = self.point.reshape(-1, n_classes)
        return softmax(self.features[:, self.used] @ weights[:-1] + weights[-1])


L2 = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""Penalties of logistic regression and SGC."""


def logistic(task: NodeTask, seed: int, effort: Effort) -> RivalResult:
    """Classify by logistic regression on the words, in rows of length 1."""
    model = LogisticRegression(task, scale_rows(task.words, 2))
    return select(task, (({"l2": l2}, model.probabilities(l2)) for l2 in L2))


def sgc(task: NodeTask, seed: int, effort: Effort) -> RivalResult:
    """Classify by logistic regression on words that are averaged over neighbourhoods.

    Source: Wu et al. (2019), Simplifying graph convolutional networks. The rows of words have length 1, and L-BFGS
    replaces Adam.
    """

    def candidates() -> Iterator[Candidate]:
        operator = normalised_adjacency(task.links, self_loops=True)
        for hops in (2, 3, 1, 4)[: effort.max_settings]:
            features = scale_rows(task.words, 2)
            for _ in range(hops):
                features = operator @ features
            model = LogisticRegression(task, features)
            for l2 in L2[2:]:
                yield {"hops": hops, "l2": l2}, model.probabilities(l2)

    return select(task, candidates())


def spread(operator: sp.csr_matrix, start: np.ndarray, alpha: float, steps: int) -> np.ndarray:
    """Return the result of `steps` iterations of F = alpha S F + (1 - alpha) F_0 from F = F_0."""
    found = start
    for _ in range(steps):
        found = alpha * (operator @ found) + (1.0 - alpha) * start
    return found


def propagation(task: NodeTask, seed: int, effort: Effort) -> RivalResult:
    """Classify by label propagation, without words.

    A multiple of the class frequencies of the training labels, which decides for nodes that no label reaches, is added to the
    scores before they are normalised to probabilities.

    Source: Zhou et al. (2004), Learning with local and global consistency.
    """
    operator = normalised_adjacency(task.links, self_loops=False)
    prior = task.train_targets.sum(axis=0) / len(task.train)

    def candidates() -> Iterator[Candidate]:
        for alpha in (0.5, 0.8, 0.9, 0.95, 0.99):
            scores = spread(operator, task.train_targets, alpha, 200)
            mean = scores.sum(axis=1).mean()
            for smoothing in (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3):
                yield {"alpha": alpha, "smoothing": smoothing}, normalise_rows(scores + smoothing * mean * prior)

    return select(task, candidates())


def correct_smooth(task: NodeTask, seed: int, effort: Effort) -> RivalResult:
    """Correct and smooth the probabilities of logistic regression or of a perceptron on the words.

    Source: Huang et al. (2021), Combining label propagation and simple models out-performs graph neural networks: both
    corrections (`autoscale`, and diffusion from the fixed residuals of the training nodes) and smoothing, with 50 iterations.
    Fixed diffusion uses alpha S instead of D^-1 A and a scale. Validation labels are not propagated.
    """
    operator, targets = normalised_adjacency(task.links, self_loops=False), task.train_targets
    known = np.zeros((len(targets), 1), dtype=bool)
    known[task.train] = True

    def correct(base: np.ndarray, alpha: float, scaling: str) -> np.ndarray:
        residual = np.where(known, targets - base, 0.0)
        if scaling == "autoscale":
            error = spread(operator, residual, alpha, 50)
            total = np.abs(error).sum(axis=1, keepdims=True)
            sigma = np.abs(residual).sum() / len(task.train)
            error *= np.where(total > 1e-12, sigma / np.maximum(total, 1e-12), 0.0)
        else:
            error = residual
            for _ in range(50):  # diffusion with a fixed residual at the training nodes
                error = np.where(known, residual, alpha * (operator @ error))
        return base + error

    def candidates() -> Iterator[Candidate]:
        model = LogisticRegression(task, scale_rows(task.words, 2))
        bases = {f"l2={l2:g}": model.probabilities(l2) for l2 in L2[1:-2]}
        perceptron = PropagatedPerceptron(task, hidden=64, alpha=1.0, weight_decay=5e-3, steps=0)
        bases["perceptron"] = train_network(perceptron, task, np.random.default_rng(seed), max_epochs=effort.max_epochs)
        for name, base in bases.items():
            for setting in product(alpha_correct=(0.5, 0.8, 0.95), scaling=("autoscale", "fixed")):
                corrected = np.where(known, targets, correct(base, *setting.values()))
                for alpha in (0.5, 0.8, 0.9, 0.95):
                    smooth = normalise_rows(spread(operator, corrected, alpha, 50))
                    yield {"base": name, **setting, "alpha_smooth": alpha}, smooth

    return select(task, candidates())


class AbstractNetwork(ABC):
    """A network with two layers of weights and hand-written derivatives, in single precision.

    Args:
        hidden: Number of hidden units.
        dropout: Probability with which dropout sets an input or hidden unit to 0 in training.
        weight_decay: Strength of the penalty `weight_decay / 2 * w^2` on the weights of the first layer.
    """

    def __init__(
        self,
        task: NodeTask,
        hidden: int,
        weight_decay: float,
        dropout: float = 0.5,
        dtype: type[np.floating[Any]] = np.float32,
    ) -> None:
        self.words = scale_rows(task.words, 1).astype(dtype)
        self.shapes = ((task.words.shape[1], hidden), (hidden,), (hidden, task.n_classes), (task.n_classes,))
        self.weight_decay, self.dropout, self.dtype = weight_decay, dropout, dtype

    @abstractmethod
    def forward(
        self, parameters: list[np.ndarray], rng: np.random.Generator | None
    ) -> tuple[np.ndarray, Callable[[np.ndarray], list[np.ndarray]]]:
        """Compute the scores of all nodes, and the function from their gradient to the gradients of the parameters.

        Args:
            rng: Generator of the dropout masks; None for no dropout.
        """

    def initial(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw initial weights (Glorot & Bengio 2010); biases are 0."""
        bounds = [np.sqrt(6.0 / sum(shape)) if len(shape) == 2 else 0.0 for shape in self.shapes]
        pairs = zip(bounds, self.shapes, strict=True)
        return [rng.uniform(-bound, bound, size=shape).astype(self.dtype) for bound, shape in pairs]

    def mask(self, shape: int | tuple[int, ...], rng: np.random.Generator | None) -> np.ndarray | float:
        """Draw a dropout mask, with expectation 1."""
        if rng is None or not self.dropout:
            return 1.0
        return (rng.random(shape, dtype=np.float32) >= self.dropout).astype(self.dtype) / self.dtype(1.0 - self.dropout)

    def dropped(self, matrix: sp.csr_matrix, rng: np.random.Generator | None) -> sp.csr_matrix:
        """Return the matrix after dropout of its non-zero entries."""
        if rng is None or not self.dropout:
            return matrix
        data = matrix.data * self.mask(len(matrix.data), rng)
        return sp.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape, copy=False)

    def loss(
        self, parameters: list[np.ndarray], task: NodeTask, rng: np.random.Generator | None
    ) -> tuple[float, list[np.ndarray]]:
        """Return the mean log loss of the training labels plus the penalty, and its gradients."""
        scores, backward = self.forward(parameters, rng)
        label, n = task.label[task.train], len(task.train)
        table = softmax(scores[task.train])
        truth = table[np.arange(n), label]
        table[np.arange(n), label] -= 1.0
        gradient = np.zeros_like(scores)
        gradient[task.train] = table / n
        gradients = backward(gradient)
        gradients[0] = gradients[0] + self.dtype(self.weight_decay) * parameters[0]
        penalty = 0.5 * self.weight_decay * float((parameters[0] ** 2).sum())
        return float(-np.log(np.maximum(truth, 1e-30)).mean()) + penalty, gradients


class GraphConvolution(AbstractNetwork):
    """A graph convolutional network with two layers, softmax(S relu(S X W_1) W_2).

    Source: Kipf & Welling (2017), Semi-supervised classification with graph convolutional networks, equation (9), with biases.
    """

    def __init__(self, task: NodeTask, hidden: int, weight_decay: float, **options: Any) -> None:
        super().__init__(task, hidden, weight_decay, **options)
        self.operator = normalised_adjacency(task.links, self_loops=True).astype(self.dtype)

    def forward(
        self, parameters: list[np.ndarray], rng: np.random.Generator | None
    ) -> tuple[np.ndarray, Callable[[np.ndarray], list[np.ndarray]]]:
        first, bias, second, last_bias = parameters
        words = self.dropped(self.words, rng)
        before = self.operator @ (words @ first) + bias
        mask = self.mask(before.shape, rng)
        hidden = np.maximum(before, 0.0) * mask
        scores = self.operator @ (hidden @ second) + last_bias

        def backward(gradient: np.ndarray) -> list[np.ndarray]:
            through = self.operator @ gradient  # the operator is symmetric
            inner = (through @ second.T) * mask * (before > 0)
            return [words.T @ (self.operator @ inner), inner.sum(axis=0), hidden.T @ through, gradient.sum(axis=0)]

        return scores, backward


class PropagatedPerceptron(AbstractNetwork):
    """A perceptron on the words whose scores are propagated by personalised PageRank (APPNP).

    Source: Gasteiger et al. (2019), Predict then propagate, equation (4), with dropout of the entries of S in each step.

    Args:
        alpha: Teleport probability.
        steps: Number of steps; 0 leaves the perceptron.
    """

    def __init__(
        self, task: NodeTask, hidden: int, weight_decay: float, alpha: float, steps: int = 10, **options: Any
    ) -> None:
        super().__init__(task, hidden, weight_decay, **options)
        self.operator = normalised_adjacency(task.links, self_loops=True).astype(self.dtype)
        self.alpha, self.steps = self.dtype(alpha), steps

    def forward(
        self, parameters: list[np.ndarray], rng: np.random.Generator | None
    ) -> tuple[np.ndarray, Callable[[np.ndarray], list[np.ndarray]]]:
        first, bias, second, last_bias = parameters
        words = self.dropped(self.words, rng)
        before = words @ first + bias
        mask = self.mask(before.shape, rng)
        hidden = np.maximum(before, 0.0) * mask
        local = hidden @ second + last_bias
        operators = [self.dropped(self.operator, rng) for _ in range(self.steps)]
        scores, keep = local, self.dtype(1.0) - self.alpha
        for operator in operators:
            scores = keep * (operator @ scores) + self.alpha * local

        def backward(gradient: np.ndarray) -> list[np.ndarray]:
            total = np.zeros_like(gradient)
            for operator in reversed(operators):
                total += self.alpha * gradient
                gradient = keep * (operator.T @ gradient)
            total += gradient
            inner = (total @ second.T) * mask * (before > 0)
            return [words.T @ inner, inner.sum(axis=0), hidden.T @ total, total.sum(axis=0)]

        return scores, backward


@dataclass
class Adam:
    """The optimiser of Kingma & Ba (2015), with its usual constants."""

    parameters: list[np.ndarray]
    rate: float = 0.01
    count: int = 0

    def __post_init__(self) -> None:
        self.mean = [np.zeros_like(p) for p in self.parameters]
        self.square = [np.zeros_like(p) for p in self.parameters]

    def step(self, gradients: list[np.ndarray]) -> None:
        """Update the parameters in place."""
        self.count += 1
        rate = self.rate * np.sqrt(1.0 - 0.999**self.count) / (1.0 - 0.9**self.count)
        for point, gradient, mean, square in zip(self.parameters, gradients, self.mean, self.square, strict=True):
            mean += np.float32(0.1) * (gradient - mean)
            square += np.float32(0.001) * (gradient * gradient - square)
            point -= np.float32(rate) * mean / (np.sqrt(square) + np.float32(1e-8))


def train_network(
    network: AbstractNetwork,
    task: NodeTask,
    rng: np.random.Generator,
    *,
    max_epochs: int,
    patience: int = 100,
) -> np.ndarray:
    """Train with early stopping, and return the probabilities of all nodes.

    Training stops after `patience` epochs without an improvement of the accuracy or of the log loss on the validation labels.
    The result is that of the epoch with the best accuracy, with the lower log loss among equals (Gasteiger et al. 2019).
    """
    parameters = network.initial(rng)
    optimiser = Adam(parameters)
    label = task.label[task.valid]
    best, found = (-1.0, -np.inf), np.empty(0)
    lowest, waited = np.inf, 0
    for _ in range(max_epochs):
        optimiser.step(network.loss(parameters, task, rng)[1])
        scores = network.forward(parameters, None)[0]
        accuracy, loss = accuracy_and_loss(softmax(scores[task.valid]), label)
        waited = 0 if accuracy > best[0] or loss < lowest else waited + 1
        lowest = min(lowest, loss)
        if (accuracy, -loss) > best:
            best, found = (accuracy, -loss), scores
        if waited == patience:
            break
    return softmax(found.astype(np.float64))


def select_network(
    network: type[AbstractNetwork], task: NodeTask, seed: int, effort: Effort, **choices: Iterable[Any]
) -> RivalResult:
    """Train a network with each combination of settings, and select one."""
    rng = np.random.default_rng(seed)

    def candidates() -> Iterator[Candidate]:
        for settings in itertools.islice(product(**choices), effort.max_settings):
            yield settings, train_network(network(task, **settings), task, rng, max_epochs=effort.max_epochs)

    return select(task, candidates())


def gcn(task: NodeTask, seed: int, effort: Effort) -> RivalResult:
    """Classify by a graph convolutional network; see `GraphConvolution`."""
    return select_network(GraphConvolution, task, seed, effort, hidden=(64, 16), weight_decay=(5e-4, 5e-3))


def appnp(task: NodeTask, seed: int, effort: Effort) -> RivalResult:
    """Classify by predictions that personalised PageRank propagates; see `PropagatedPerceptron`."""
    grid = {"hidden": (64,), "weight_decay": (5e-4, 5e-3), "alpha": (0.1, 0.2, 0.5)}
    return select_network(PropagatedPerceptron, task, seed, effort, **grid)


RIVALS: Mapping[str, Callable[[NodeTask, int, Effort], RivalResult]] = {
    "logistic": logistic,
    "propagation": propagation,
    "sgc": sgc,
    "correct_smooth": correct_smooth,
    "appnp": appnp,
    "gcn": gcn,
}
"""The rivals by name; the arguments are the task, a seed and the effort."""
