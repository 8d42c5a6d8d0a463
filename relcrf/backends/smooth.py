"""Correct & Smooth: predictions of backend `local`, corrected and smoothed along links.

Source: Huang, He, Singh, Lim & Benson (2021), Combining label propagation and simple models out-performs graph neural
networks, sections 2.2 and 2.3. Deviations: the base model is multinomial logistic regression; the settings are chosen
by the log-likelihood of held-out labels; the probabilities receive additive smoothing; a fixed scale multiplies the same
propagated residuals as the automatic scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.base import FitResult, Monitor, Problem
from relcrf.backends.exact import UnaryLikelihoodSpec
from relcrf.backends.inference_result import run_inference
from relcrf.backends.inference_task import InferenceTask
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend
from relcrf.backends.local import LocalBackend
from relcrf.backends.propagation import (
    SELECTION_TOLERANCE,
    AbstractPropagationBackend,
    ClassFrequencies,
    Correction,
    DomainLinks,
    DomainPropagation,
    LinkedProblem,
    PropagationFold,
    SettingScores,
    clamped_labels,
    hold_out,
    training_labels,
)
from relcrf.graph.reduction import Role
from relcrf.inference.label_propagation import TOLERANCE, PropagatedValues, propagate

ALPHA_GRID = (0.1, 0.5, 0.8, 0.9, 0.95, 0.99)
"""Values of `alpha_correct` and of `alpha_smooth` for the choice by held-out labels; 0.1 changes the predictions little."""

ALPHA_SETTINGS = ("alpha_correct", "alpha_smooth")
"""The settings that weight the links."""

DEFAULT_ALPHA = 0.8
"""Value of these settings if there are too few labels for a choice."""

SMOOTHING_GRID = tuple(np.geomspace(1e-3, 1.0, 7).tolist())
"""Values of `smoothing` for scores whose sum is 1. Smaller values could be chosen only by a few held-out labels that
happen to be predicted correctly."""

MAX_AUTOMATIC_SCALE = 1000.0
"""Maximum factor of propagated residuals. It prevents that rounding errors are enlarged far from all labels; the factor
is 1 beyond it, as in the authors' program."""


@dataclass(frozen=True)
class SmoothBackend(AbstractPropagationBackend, AbstractLikelihoodBackend):
    """Correct & Smooth (Huang et al. 2021): logistic regression, corrected and smoothed along links.

    Backend `local` predicts every variable from its features. The errors of these predictions at labelled variables are
    propagated along links and subtracted (correct); then the labels and the corrected predictions are propagated
    (smooth). Two variables of a domain are linked if a factor contains both.

    Args:
        l2, unary_l2, max_iterations, tolerance, optimiser: Settings of `local`.
        alpha_correct: Weight of the links in the first step, below 1. 0 selects a value by held-out labels.
        alpha_smooth: Weight of the links in the second step, below 1. 0 selects a value by held-out labels.
        scale: Factor of the propagated errors. 0 scales the error of each variable to the mean error of the labels.

    Raises:
        UsageError: If `alpha_correct` or `alpha_smooth` is 1 or more.
    """

    name: ClassVar[str] = "smooth"
    learning_arrays: ClassVar[tuple[float, float]] = (2, 0.5)
    inference_arrays: ClassVar[tuple[float, float]] = (11, 1)
    can_sum_out: ClassVar[bool] = False
    smoothing_grid: ClassVar[tuple[float, ...]] = SMOOTHING_GRID
    alpha_correct: float = 0.0
    alpha_smooth: float = 0.0
    scale: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_below_1("alpha_correct", "alpha_smooth")

    @cached_property
    def base(self) -> LocalBackend:
        """The backend of the base predictions."""
        return replace(self.as_backend(LocalBackend), seed=self.seed)

    def fit_labels(self, problem: Problem, monitor: Monitor) -> FitResult:
        self._require_supported(problem)
        base = self.base.fit_labels(problem, monitor)
        labels = training_labels(problem)
        frequencies = ClassFrequencies.from_labels(problem, labels)
        linked = LinkedProblem.build(problem, self.name, with_unlabelled=True)
        settings: dict[str, Any] = {name: getattr(self, name) or DEFAULT_ALPHA for name in ALPHA_SETTINGS}
        settings |= asdict(self.calibration)
        found: dict[str, Any] = {}
        if linked.n_links and not all(getattr(self, name) for name in settings):
            held_out = [
                HeldOutPredictions(each, self._base_probabilities(linked, each, base))
                for each in hold_out(problem, self.seed)
            ]
            if held_out:
                settings, found = self._choose(linked, held_out, frequencies)
        summary = {**base.summary, "links": linked.n_links, **found, **settings}
        vectors = {**base.vectors, "class_frequencies": frequencies.vector}
        return replace(base, vectors=vectors, summary=summary, settings=settings)

    def _base_probabilities(
        self, linked: LinkedProblem, held_out: PropagationFold, base: FitResult
    ) -> list[np.ndarray]:
        """Return the base predictions of a model that is trained without the held-out labels."""
        fit = base if held_out.problem is linked.problem else self.base.fit_labels(held_out.problem, Monitor())
        return self.base_probabilities(linked, fit.vectors)

    def base_probabilities(self, linked: LinkedProblem, vectors: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return, for each domain, the predictions of `local` for all variables, shape (n, n_states)."""
        result = run_inference(self.base_task(linked, vectors))
        out = []
        for links in linked.domains:
            start = result.state_start[np.searchsorted(result.variables, links.variables)]
            out.append(result.marginals[start[:, None] + np.arange(links.n_states)])
        return out

    def base_task(self, linked: LinkedProblem, vectors: Mapping[str, np.ndarray]) -> InferenceTask:
        """Return the inference task in which `local` predicts all variables."""
        in_use = np.zeros(linked.problem.graph.n_variables, dtype=bool)
        for links in linked.domains:
            in_use[links.variables] = True
        roles = np.where(in_use, Role.FREE, Role.ABSENT).astype(np.int8)
        unlabelled = replace(linked.problem, roles=roles, states=np.full_like(linked.problem.states, -1))
        (task,) = self.base.inference_tasks(unlabelled, dict(vectors))
        return task

    def _choose(
        self, linked: LinkedProblem, held_out: Sequence[HeldOutPredictions], frequencies: ClassFrequencies
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings with the largest held-out log-likelihood, and a summary of their scores.

        `alpha_correct` is chosen for the corrected predictions, and then `alpha_smooth` for the result of both steps.
        """
        corrections, results = (SettingScores(self._calibrations(), frequencies) for _ in range(2))
        for each in held_out:
            for links, base in zip(linked.domains, each.base, strict=True):
                for alpha in self._grid("alpha_correct", ALPHA_GRID):
                    corrected = self.correct(links, base, each.labels.sources, alpha, SELECTION_TOLERANCE).corrected
                    corrections.add(alpha, links, normalise_rows(corrected), each.labels.targets)
        alpha_correct, _ = corrections.best()
        for each in held_out:
            for links, base in zip(linked.domains, each.base, strict=True):
                correction = self.correct(links, base, each.labels.sources, alpha_correct, SELECTION_TOLERANCE)
                corrected = correction.corrected
                for alpha in self._grid("alpha_smooth", ALPHA_GRID):
                    smoothed = smooth(links, corrected, each.labels.sources, alpha, SELECTION_TOLERANCE).values
                    results.add(alpha, links, normalise_rows(smoothed), each.labels.targets)
        alpha_smooth, calibration = best = results.best()
        settings = {"alpha_correct": alpha_correct, "alpha_smooth": alpha_smooth, **asdict(calibration)}
        return settings, results.summary(best)

    def correct(
        self, links: DomainLinks, base: np.ndarray, labels: np.ndarray, alpha: float, tolerance: float = TOLERANCE
    ) -> Correction:
        """Return the base predictions and their propagated errors.

        Args:
            labels: Label of each variable of the graph, shape (n_variables,); -1 for variables without a label.
        """
        labelled = labels[links.variables] >= 0
        errors = np.where(labelled[:, None], links.one_hot(labels) - base, 0.0)
        propagated = propagate(links.normalised, alpha, errors, tolerance)
        if self.scale:
            return Correction(base, propagated, np.full((len(base), 1), self.scale))
        norm = np.abs(propagated.values).sum(axis=1, keepdims=True)
        mean_error = np.abs(errors[labelled]).sum() / max(np.count_nonzero(labelled), 1)
        factor = np.divide(mean_error, norm, out=np.ones_like(norm), where=norm > mean_error / MAX_AUTOMATIC_SCALE)
        return Correction(base, propagated, factor)

    def propagations(
        self, linked: LinkedProblem, vectors: Mapping[str, np.ndarray], tolerance: float = TOLERANCE
    ) -> Iterator[DomainPropagation]:
        frequencies = ClassFrequencies.from_vector(linked.problem, vectors["class_frequencies"])
        labels = clamped_labels(linked.problem)
        for links, base in zip(linked.domains, self.base_probabilities(linked, vectors), strict=True):
            correction = self.correct(links, base, labels, self.alpha_correct or DEFAULT_ALPHA, tolerance)
            smoothed = smooth(links, correction.corrected, labels, self.alpha_smooth or DEFAULT_ALPHA, tolerance)
            scores = normalise_rows(smoothed.values)
            found = self.calibration.probabilities(scores, frequencies.by_domain[links.number], links.is_linked)
            yield DomainPropagation(links, found, smoothed, correction)

    def training_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> UnaryLikelihoodSpec:
        return self.base.training_likelihood(problem, vectors)


@dataclass(frozen=True, eq=False)
class HeldOutPredictions:
    """Held-out labels, and the base predictions without them.

    Args:
        base: For each domain, the predictions of all variables, shape (n, n_states).
    """

    labels: PropagationFold
    base: Sequence[np.ndarray]


def smooth(
    links: DomainLinks, corrected: np.ndarray, labels: np.ndarray, alpha: float, tolerance: float = TOLERANCE
) -> PropagatedValues:
    """Propagate the labels and, at variables without a label, the corrected predictions."""
    labelled = labels[links.variables] >= 0
    return propagate(links.normalised, alpha, np.where(labelled[:, None], links.one_hot(labels), corrected), tolerance)


def normalise_rows(values: np.ndarray) -> np.ndarray:
    """Return the rows with negative entries replaced by 0, divided by their sums; uniform rows if no entry is positive."""
    clipped = np.maximum(values, 0.0)
    sums = clipped.sum(axis=1, keepdims=True)
    return np.asarray(np.where(sums > 0.0, clipped / np.maximum(sums, 1e-300), 1.0 / values.shape[1]))
