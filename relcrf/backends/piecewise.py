"""Piecewise training: unary weights, then the weights of larger factors, then a scale of each from held-out labels.

Pseudo-likelihood conditions on the neighbours' labels, which prediction does not have, and thus overestimates the
weights of transitivity and similar rules. Here, the scales are chosen by the same inference as in prediction.

Source: Sutton & McCallum, Piecewise training for undirected models (2005); the scales are not in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from relcrf.backends.base import AbstractLikelihoodSpec, FitResult, Monitor, Problem
from relcrf.backends.exact import UnaryLikelihoodSpec
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend
from relcrf.backends.weight_priors import unary_blocks
from relcrf.backends.whole_graph import WholeGraphSpec
from relcrf.errors import DataError, Diagnostic
from relcrf.graph.components import label_components
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.folds import balanced_folds
from relcrf.graph.reduction import Role
from relcrf.graph.scopes import Potentials
from relcrf.graph.weights import WeightLayout
from relcrf.inference.result import AbstractInference
from relcrf.learning.lbfgs import OptimiserState
from relcrf.learning.piecewise import PiecewiseLikelihood

SCALES = tuple(2.0**k for k in range(-10, 1))
"""Scales above 0 in the order of evaluation. A variable in 1,000 factors that agree needs about a thousandth of the
weight that each factor alone would need."""

UNARY_SCALES = (1.0, 0.75, 0.5)
"""Scales of the unary weights in the order of evaluation. Together with other factors, the unary weights that are best
for independent variables often give overconfident predictions."""

LOCAL_SCALES = (1.0, 0.0)
"""Scales of unary and of larger factors with which the model is that of backend `local`."""

HELD_OUT_SETTINGS = (("tolerance", 1e-4),)
"""Settings of inference for the choice of the scales. Neighbouring scales differ by far more than this tolerance."""

MAX_COMPONENT_FRACTION = 1 / 2
"""Maximum fraction of the labels in one component; above it, variables are held out instead of whole components."""


@dataclass(frozen=True)
class PiecewiseSpec(AbstractLikelihoodSpec):
    """A specification of the piecewise likelihood; see `PiecewiseLikelihood`."""

    whole: WholeGraphSpec

    def likelihood(self, problem: Problem) -> PiecewiseLikelihood:
        graph = self.whole.graph(problem)
        return PiecewiseLikelihood(graph, problem.states[graph.variables])


class PieceWeights(NamedTuple):
    """Vectors of weights that are 0 outside of their blocks; the model has the sum of the vectors, two of them scaled.

    Args:
        constant: The weights of `fixed` blocks, which are not scaled.
        unary: The learned weights of blocks that a unary factor uses.
        larger: The learned weights of the other blocks.
    """

    constant: np.ndarray
    unary: np.ndarray
    larger: np.ndarray


@dataclass(frozen=True)
class PiecewiseTraining:
    """Piecewise training with the optimiser of a backend and with the inference method of prediction.

    A block of weights that some unary factor uses is learned in the first stage, and is constant in the second stage.

    Args:
        backend: The backend whose settings the optimisations use.
        whole: The specification of inference for the choice of the scales.
        folds: Number of folds of the labels. Each fold is predicted by weights that the other folds determine.
        seed: Seed of the assignment of labels to folds.
    """

    backend: AbstractLikelihoodBackend
    whole: WholeGraphSpec
    folds: int
    seed: int

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        """Learn the weights.

        Raises:
            DataError: If there are fewer labels than folds (E226).
        """
        weights, stages = self._learn(problem, "", None, monitor)
        held_out = []
        for number, test in enumerate(self._folds(problem), 1):
            train = replace(problem, roles=np.where(test, Role.ABSENT, problem.roles).astype(np.int8))
            fold_weights, _ = self._learn(train, f"_{number}", weights.larger, monitor)
            evidence = np.where((problem.roles == Role.FREE) & ~test, Role.CLAMPED, problem.roles)
            query = replace(problem, roles=evidence.astype(np.int8))
            held_out.append(HeldOutFold.build(query, replace(self.whole, settings=HELD_OUT_SETTINGS), fold_weights))
        n_labels = int((problem.roles == Role.FREE).sum())
        scales, losses = choose_scales(lambda *scales: sum(fold.loss(*scales) for fold in held_out))
        return FitResult(
            {"weights": weights.constant + scales[0] * weights.unary + scales[1] * weights.larger},
            stages,
            {
                "variables": n_labels,
                "unary_scale": scales[0],
                "scale": scales[1],
                "held_out_local": -losses[LOCAL_SCALES] / n_labels,
                "held_out": -losses[scales] / n_labels,
            },
        )

    def _learn(
        self, problem: Problem, suffix: str, start: np.ndarray | None, monitor: Monitor
    ) -> tuple[PieceWeights, tuple[tuple[str, OptimiserState], ...]]:
        """Return the weights and the stages; the optimisation of the weights of larger factors begins at `start`."""
        layout, maximise = problem.graph.layout, self.backend.maximise
        spec = UnaryLikelihoodSpec(self.backend.name)
        unary = maximise(f"unary{suffix}", problem.total_likelihood(spec), layout.initial, monitor)
        graph = _without_unary_blocks(problem.graph)
        is_larger, is_learned = graph.layout.learnable_mask(), layout.learnable_mask()
        base = np.where(is_larger, 0.0, unary.point)
        likelihood = replace(problem, graph=graph).total_likelihood(PiecewiseSpec(self.whole))
        factors = maximise(f"factors{suffix}", likelihood, lambda: base if start is None else base + start, monitor)
        weights = PieceWeights(
            np.where(is_learned, 0.0, base), np.where(is_learned, base, 0.0), np.where(is_larger, factors.point, 0.0)
        )
        return weights, ((f"unary{suffix}", unary), (f"factors{suffix}", factors))

    def _folds(self, problem: Problem) -> list[np.ndarray]:
        """Return the mask of the labels of each fold; components are not divided if the largest is small enough."""
        free = problem.roles == Role.FREE
        component = label_components(problem.graph, problem.roles)
        sizes = np.bincount(component[free])
        if sizes.max() > MAX_COMPONENT_FRACTION * free.sum() or np.count_nonzero(sizes) < self.folds:
            component = np.arange(len(free))
        if len(np.unique(component[free])) < self.folds:
            message = f"too few labels for {self.folds} folds: {int(free.sum())}"
            raise DataError(Diagnostic("E226", message, hint="label more entities, or use another objective"))
        fold = balanced_folds(component, free, self.folds, np.random.default_rng(self.seed))
        return [free & (fold == number) for number in range(self.folds)]


def _without_unary_blocks(graph: FactorGraph) -> FactorGraph:
    """Return the graph with constant weights in each block that a unary factor uses."""
    unary = unary_blocks(graph)
    blocks = enumerate(graph.layout.blocks)
    layout = WeightLayout(tuple(replace(b, fixed=True) if k in unary else b for k, b in blocks))
    return replace(graph, layout=layout)


@dataclass(frozen=True, eq=False)
class HeldOutFold:
    """Inference of held-out labels under scaled potentials.

    Args:
        potentials: The potentials of each vector of `PieceWeights`.
        labels: Cell of each node's label in flat node tables, shape (n_nodes,).
    """

    method: AbstractInference
    potentials: tuple[Potentials, ...]
    labels: np.ndarray

    @classmethod
    def build(cls, query: Problem, whole: WholeGraphSpec, weights: PieceWeights) -> HeldOutFold:
        """Return the fold of the free variables of a problem."""
        graph = whole.graph(query).with_agreements()
        labels = graph.state_start[:-1] + query.states[graph.variables]
        return cls(whole.method(graph.scopes), tuple(graph.potentials(vector) for vector in weights), labels)

    def loss(self, unary_scale: float, scale: float) -> float:
        """Return the sum of the negative logarithms of the labels' marginal probabilities; NaN if inference diverges."""
        tables = (a + unary_scale * b + scale * c for a, b, c in zip(*self.potentials, strict=True))
        found = self.method.marginals(Potentials(*tables))
        found.verdict.raise_if_interrupted()
        probabilities = found.nodes[self.labels]
        return float(-np.log(np.maximum(probabilities, np.finfo(float).tiny)).sum())


def choose_scales(
    loss: Callable[[float, float], float],
) -> tuple[tuple[float, float], dict[tuple[float, float], float]]:
    """Return the best scales of unary and of larger factors, and the losses of all evaluated scales.

    With smaller unary scales, the best scale of larger factors is usually larger, so the search continues from the best
    scale so far. It ends at the first increase of the loss, because inference with the largest scales is the slowest.
    """
    best, losses = LOCAL_SCALES, {LOCAL_SCALES: loss(*LOCAL_SCALES)}
    for unary_scale in UNARY_SCALES:
        found: tuple[float, float] | None = None
        for scale in SCALES[SCALES.index(best[1]) if best[1] else 0 :]:
            losses[unary_scale, scale] = loss(unary_scale, scale)
            if found and not losses[unary_scale, scale] < losses[found]:
                break
            found = unary_scale, scale
        assert found is not None
        if not losses[found] < losses[best]:
            break
        best = found
    return best, losses
