"""Label propagation: the classes of labelled variables spread along links; the baseline of all relational models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.base import FitResult, Monitor, Problem
from relcrf.backends.propagation import (
    SELECTION_TOLERANCE,
    AbstractPropagationBackend,
    ClassFrequencies,
    DomainPropagation,
    LinkedProblem,
    SettingScores,
    clamped_labels,
    hold_out,
    training_labels,
)
from relcrf.inference.label_propagation import TOLERANCE, propagate

ALPHA_GRID = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Values of `alpha` for the choice by held-out labels."""

DEFAULT_ALPHA = 0.9
"""Value of `alpha` if there are too few labels for a choice."""


@dataclass(frozen=True)
class PropagateBackend(AbstractPropagationBackend):
    """Label propagation, without weights and features (Zhou et al. 2004, learning with local and global consistency).

    Two variables of a domain are linked if a factor contains both. The score of a class is the sum over all walks along
    links from labelled variables of this class; the weight of a walk decreases with its length and with the degrees of
    its variables. Variables that no label reaches receive the class frequencies of the training labels.

    Args:
        alpha: Weight of the links, below 1; larger values propagate labels further. 0 selects a value by held-out
            labels.

    Raises:
        UsageError: If `alpha` is 1 or more.
    """

    name: ClassVar[str] = "propagate"
    learning_arrays: ClassVar[tuple[float, float]] = (1, 0.5)
    inference_arrays: ClassVar[tuple[float, float]] = (6, 0.5)
    alpha: float = 0.0

    def __post_init__(self) -> None:
        self._require_below_1("alpha")

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        self._require_supported(problem)
        labels = training_labels(problem)
        frequencies = ClassFrequencies.from_labels(problem, labels)
        linked = LinkedProblem.build(problem, self.name, with_unlabelled=True)
        settings: dict[str, Any] = {"alpha": self.alpha or DEFAULT_ALPHA, **asdict(self.calibration)}
        summary: dict[str, Any] = {"variables": int((labels >= 0).sum()), "links": linked.n_links}
        scores = SettingScores(self._calibrations(), frequencies)
        if linked.n_links and not all(getattr(self, name) for name in settings):
            for held_out in hold_out(problem, self.seed):
                for links in linked.domains:
                    sources = links.one_hot(held_out.sources)
                    for alpha in self._grid("alpha", ALPHA_GRID):
                        propagated = propagate(links.normalised, alpha, sources, SELECTION_TOLERANCE).values
                        scores.add(alpha, links, np.maximum(propagated, 0.0), held_out.targets)
        if scores.sums:
            alpha, calibration = best = scores.best()
            settings, summary = {"alpha": alpha, **asdict(calibration)}, {**summary, **scores.summary(best)}
        vectors = {"weights": problem.graph.layout.initial(), "class_frequencies": frequencies.vector}
        return FitResult(vectors, summary={**summary, **settings}, settings=settings)

    def propagations(
        self, linked: LinkedProblem, vectors: Mapping[str, np.ndarray], tolerance: float = TOLERANCE
    ) -> Iterator[DomainPropagation]:
        frequencies = ClassFrequencies.from_vector(linked.problem, vectors["class_frequencies"])
        labels = clamped_labels(linked.problem)
        for links in linked.domains:
            propagated = propagate(links.normalised, self.alpha or DEFAULT_ALPHA, links.one_hot(labels), tolerance)
            scores = np.maximum(propagated.values, 0.0)
            found = self.calibration.probabilities(scores, frequencies.by_domain[links.number], links.is_linked)
            yield DomainPropagation(links, found, propagated)
