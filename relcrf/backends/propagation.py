"""The parts shared by backends that propagate labels: links per domain, class frequencies and the choice of settings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from relcrf.backends.base import AbstractBackend, AbstractLikelihoodSpec, Problem, SharedVector
from relcrf.backends.inference_result import InferenceResult
from relcrf.backends.inference_task import InferenceTask
from relcrf.columns.offsets import offsets
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.folds import stratified_folds
from relcrf.graph.links import count_linking_pairs, link_matrix
from relcrf.graph.reduction import Role
from relcrf.inference.label_propagation import TOLERANCE, PropagatedValues, normalise_links
from relcrf.inference.result import Observer, Verdict, ignore_progress
from relcrf.learning.likelihood import AbstractLikelihood

MAX_LINKING_PAIRS = 1 << 28
"""Maximum number of pairs in factors; the links of 2**28 pairs take about 10 GiB."""

SMOOTHING_GRID = tuple(np.geomspace(1e-5, 1.0, 11).tolist())
"""Values of `smoothing` for scores that decrease with the distance from labels, two per decade."""

SHARPNESS_GRID = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
"""Values of `sharpness` for the choice by held-out labels. Propagated scores are flatter than probabilities, the more so
for large `alpha`; without an exponent, the log-likelihood would prefer values of `alpha` that are too small."""

DEFAULT_SHARPNESS, DEFAULT_SMOOTHING = 1.0, 0.01
"""Values of the settings if there are too few labels for a choice."""

SELECTION_TOLERANCE = 1e-4
"""Tolerance of propagation for the choice of settings; a smaller one does not change the choice, but takes longer."""

MIN_LABELS = 20
"""Minimum number of labels for a choice of settings; with fewer labels, the default values are used."""

HELD_OUT_FOLDS = 5
"""Number of folds of the training labels for the choice of settings."""

REPEATS = 2
"""Maximum number of repetitions of the folds of few labels."""

MIN_HELD_OUT_LABELS = 1000
"""Number of held-out labels after which no further fold is scored; the standard error of an accuracy is then below
0.016."""

UNSEEN_COUNT = 0.5
"""Count of a class without a training label, so that its probability is above 0."""


@dataclass(frozen=True, eq=False)
class DomainLinks:
    """The links between the variables of one domain.

    Args:
        number: Number of the domain.
        n_states: Number of states.
        variables: Indices of the variables of the domain that are in use, ascending, shape (n,).
        normalised: Normalised link matrix; see `normalise_links`, shape (n, n).
    """

    number: int
    n_states: int
    variables: np.ndarray
    normalised: csr_array

    @property
    def is_linked(self) -> np.ndarray:
        """A mask of the variables with links, shape (n,), bool."""
        return np.asarray(np.diff(self.normalised.indptr) > 0)

    def one_hot(self, labels: np.ndarray) -> np.ndarray:
        """Return a row per variable that is 1 at the label and 0 elsewhere; rows without a label are 0.

        Args:
            labels: Label of each variable of the graph, shape (n_variables,); -1 for variables without a label.
        """
        rows = np.flatnonzero(labels[self.variables] >= 0)
        out = np.zeros((len(self.variables), self.n_states))
        out[rows, labels[self.variables[rows]]] = 1.0
        return out


@dataclass(frozen=True, eq=False)
class LinkedProblem:
    """The links of a problem, by domain; absent variables can be included as unlabelled variables.

    Args:
        problem: The problem.
        n_links: Number of pairs of linked variables.
    """

    problem: Problem
    domains: tuple[DomainLinks, ...]
    n_links: int

    @classmethod
    def build(cls, problem: Problem, backend: str, *, with_unlabelled: bool = False) -> LinkedProblem:
        """Return the links of a problem.

        Raises:
            UsageError: If factors have more than `MAX_LINKING_PAIRS` pairs of variables.
        """
        graph = problem.graph
        if (n_pairs := count_linking_pairs(graph)) > MAX_LINKING_PAIRS:
            message = f"backend '{backend}' would need {n_pairs:,} links; the maximum is {MAX_LINKING_PAIRS:,}"
            hint = "narrow the 'where' of the largest template over several variables"
            raise UsageError(Diagnostic("E308", message, hint=hint))
        in_use = problem.roles != Role.ABSENT
        if with_unlabelled:
            in_use |= problem.unlabelled
        domains, links = graph.domains, link_matrix(graph, graph.domains, in_use)
        parts = []
        for number, n_states in enumerate(domains.sizes):
            variables = np.flatnonzero(in_use & (domains.number == number))
            if len(variables):
                own = links if len(variables) == graph.n_variables else links[variables][:, variables]
                parts.append(DomainLinks(number, n_states, variables, normalise_links(csr_array(own))))
        return cls(problem, tuple(parts), links.nnz // 2)


@dataclass(frozen=True, eq=False)
class ClassFrequencies:
    """The frequencies of the states of each domain among the training labels.

    Args:
        by_domain: Frequencies of the states, for each domain; they are positive and sum to 1.
    """

    by_domain: tuple[np.ndarray, ...]

    @classmethod
    def from_labels(cls, problem: Problem, labels: np.ndarray) -> ClassFrequencies:
        """Return the frequencies of the labels, shape (n_variables,); -1 for variables without a label."""
        domains = problem.graph.domains
        out = []
        for number, size in enumerate(domains.sizes):
            known = labels[(domains.number == number) & (labels >= 0)]
            counts = np.bincount(known, minlength=size).astype(np.float64)
            # Without any label, all states are equally likely.
            out.append(_normalise(np.where(counts > 0.0, counts, UNSEEN_COUNT if counts.any() else 1.0)))
        return cls(tuple(out))

    @classmethod
    def from_vector(cls, problem: Problem, vector: np.ndarray) -> ClassFrequencies:
        """Return the frequencies of a stored vector; states that are new in the data of the problem get a small one."""
        parts = np.split(vector, np.cumsum(problem.graph.domains.sizes)[:-1])
        return cls(tuple(_normalise(np.where(part > 0.0, part, (part[part > 0.0]).min(initial=1.0))) for part in parts))

    @property
    def vector(self) -> np.ndarray:
        """The concatenated frequencies of all domains."""
        return np.concatenate([np.empty(0), *self.by_domain])


def _normalise(values: np.ndarray) -> np.ndarray:
    return np.asarray(values / values.sum())


@dataclass(frozen=True, eq=False)
class PropagationFold:
    """Labels that are held out for the choice of settings.

    Args:
        problem: The training problem without the held-out labels.
        sources: Labels in use, shape (n_variables,); -1 for variables without a label or with a held-out label.
        targets: Held-out labels, shape (n_variables,); -1 for other variables.
    """

    problem: Problem
    sources: np.ndarray
    targets: np.ndarray


def training_labels(problem: Problem) -> np.ndarray:
    """Return the labels of targets and evidence, shape (n_variables,); -1 for other variables."""
    return np.where(problem.roles == Role.ABSENT, -1, problem.states)


def clamped_labels(problem: Problem) -> np.ndarray:
    """Return the labels of the clamped variables, shape (n_variables,); -1 for other variables."""
    return np.where(problem.roles == Role.CLAMPED, problem.states, -1)


def hold_out(problem: Problem, seed: int) -> Iterator[PropagationFold]:
    """Yield sets of held-out labels: the reserved labels (`Problem.validation`), or else stratified folds.

    Folds are repeated until `MIN_HELD_OUT_LABELS` labels have been held out, at most `REPEATS` times. With fewer than
    `MIN_LABELS` labelled targets, the result is empty.
    """
    labels = training_labels(problem)
    reserved = np.zeros_like(labels, dtype=bool)
    if problem.validation is not None:
        reserved = problem.validation & (problem.roles == Role.ABSENT) & (problem.states >= 0)
    if reserved.any():
        yield PropagationFold(problem, labels, np.where(reserved, problem.states, -1))
        return
    targets = np.where(problem.roles == Role.FREE, labels, -1)
    n_targets = int((targets >= 0).sum())
    n_held_out = 0
    for repeat, number in product(range(REPEATS), range(HELD_OUT_FOLDS)):
        if n_targets < MIN_LABELS or n_held_out >= MIN_HELD_OUT_LABELS:
            return
        fold = stratified_folds(targets, HELD_OUT_FOLDS, np.random.default_rng((seed, repeat)))
        held_out = fold == number
        roles = np.where(held_out, Role.ABSENT, problem.roles).astype(np.int8)
        n_held_out += int(held_out.sum())
        yield PropagationFold(
            replace(problem, roles=roles), np.where(held_out, -1, labels), np.where(held_out, labels, -1)
        )


@dataclass(frozen=True)
class ScoreCalibration:
    """The conversion of scores to probabilities.

    Args:
        sharpness: Exponent of the scores. The sum of the scores of a variable does not change.
        smoothing: This number times the class frequencies is added to the scores.
    """

    sharpness: float
    smoothing: float

    def probabilities(self, scores: np.ndarray, frequencies: np.ndarray, is_linked: np.ndarray) -> np.ndarray:
        """Return the probabilities of the states, shape (n, n_states), for scores of at least 0 of the same shape.

        Args:
            frequencies: Class frequencies, shape (n_states,).
            is_linked: Mask of the variables with links, shape (n,); `sharpness` does not apply to the others, whose
                scores are not the result of propagation.
        """
        return self.smooth(_sharpen(scores, self.sharpness, is_linked), frequencies)

    def smooth(self, sharpened: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
        """Return the probabilities of the states for sharpened scores, see `probabilities`."""
        smoothed = sharpened + self.smoothing * frequencies
        return np.asarray(smoothed / smoothed.sum(axis=1, keepdims=True))


def _sharpen(scores: np.ndarray, sharpness: float, is_linked: np.ndarray) -> np.ndarray:
    """Return the scores of the variables with links, raised to a power without a change of their sums, and the other scores."""
    if sharpness == 1.0:
        return scores
    powers = (scores / np.maximum(scores.max(axis=1, keepdims=True), 1e-300)) ** sharpness
    total = scores.sum(axis=1, keepdims=True)
    sharpened = powers * (total / np.maximum(powers.sum(axis=1, keepdims=True), 1e-300))
    return np.where(is_linked[:, None], sharpened, scores)


Choice = tuple[float, ScoreCalibration]
"""The value of a setting, and a calibration."""


@dataclass(frozen=True, eq=False)
class SettingScores:
    """The scores of the values of a setting, and of calibrations, on held-out labels.

    Args:
        calibrations: The calibrations to compare.
        frequencies: The frequencies of the classes.
        sums: Number of held-out labels, sum of their log probabilities, and number of correct predictions, by choice.
    """

    calibrations: Sequence[ScoreCalibration]
    frequencies: ClassFrequencies
    sums: dict[Choice, np.ndarray] = field(default_factory=dict)

    def add(self, value: float, links: DomainLinks, scores: np.ndarray, targets: np.ndarray) -> None:
        """Add the scores of the variables of one domain, shape (n, n_states), for one value of the setting.

        Args:
            targets: Held-out labels, shape (n_variables,); -1 for other variables.
        """
        labels = targets[links.variables]
        rows = np.flatnonzero(labels >= 0)
        scores, labels, is_linked = scores[rows], labels[rows], links.is_linked[rows]
        for sharpness, calibrations in groupby(self.calibrations, lambda calibration: calibration.sharpness):
            sharpened = _sharpen(scores, sharpness, is_linked)
            for calibration in calibrations:
                found = calibration.smooth(sharpened, self.frequencies.by_domain[links.number])
                log_likelihood = np.log(np.maximum(found[np.arange(len(rows)), labels], 1e-300)).sum()
                added = np.array([len(rows), log_likelihood, np.count_nonzero(found.argmax(axis=1) == labels)])
                self.sums[value, calibration] = self.sums.get((value, calibration), 0.0) + added

    def best(self) -> Choice:
        """Return the choice with the largest log-likelihood; the first in case of ties."""
        return max(self.sums, key=lambda choice: float(self.sums[choice][1]))

    def summary(self, choice: Choice) -> dict[str, float | int | str]:
        """Return the mean scores of a choice as summary values."""
        n, log_likelihood, correct = self.sums[choice].tolist()
        return {"held_out_log_likelihood": log_likelihood / max(n, 1), "held_out_accuracy": correct / max(n, 1)}


@dataclass(frozen=True, eq=False)
class Correction:
    """Base predictions, and the propagated errors that are added to them.

    Args:
        base: Base predictions, shape (n, n_states).
        errors: The propagated errors of the base predictions at labelled variables.
        factor: Factor of the propagated errors, shape (n, 1).
    """

    base: np.ndarray
    errors: PropagatedValues
    factor: np.ndarray

    @property
    def corrected(self) -> np.ndarray:
        """The corrected predictions; entries may be negative, shape (n, n_states)."""
        return np.asarray(self.base + self.factor * self.errors.values)


@dataclass(frozen=True, eq=False)
class DomainPropagation:
    """The propagation in one domain.

    Args:
        probabilities: Probabilities of the variables, shape (n, n_states).
        last: The propagation whose values are the scores; negative scores count as 0 in the probabilities.
        correction: The corrected base predictions, which `last` propagates; None if it propagates labels only.
    """

    links: DomainLinks
    probabilities: np.ndarray
    last: PropagatedValues
    correction: Correction | None = None


@dataclass(frozen=True)
class AbstractPropagationBackend(AbstractBackend):
    """A backend that propagates labels along links and has independent marginals.

    It uses neither weights nor states of factors over several variables, only the links of `graph.links`.

    Args:
        sharpness: Exponent of the scores; values above 1 yield probabilities closer to 0 and 1. 0 selects a value by
            held-out labels.
        smoothing: Strength of additive smoothing: this number times the class frequencies is added to the scores. 0
            selects a value by held-out labels.
        seed: Seed of the assignment of labels to folds.
    """

    smoothing_grid: ClassVar[tuple[float, ...]] = SMOOTHING_GRID
    """Values of `smoothing` for the choice by held-out labels."""
    sharpness: float = 0.0
    smoothing: float = 0.0
    seed: int = 0

    @property
    def unshardable_reason(self) -> str:
        return "labels are propagated along the links of the whole graph"

    @property
    def labels_separate(self) -> bool:
        return False

    @abstractmethod
    def propagations(
        self, linked: LinkedProblem, vectors: Mapping[str, np.ndarray], tolerance: float = TOLERANCE
    ) -> Iterator[DomainPropagation]:
        """Yield the propagation in each domain. Clamped variables are the labels; see `fit` for the vectors."""

    def base_task(self, linked: LinkedProblem, vectors: Mapping[str, np.ndarray]) -> InferenceTask | None:
        """Return the inference task of the base predictions; None if labels only are propagated."""
        return None

    def infer(
        self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = ignore_progress
    ) -> InferenceResult:
        self._require_unsharded(problem)
        variables = np.flatnonzero(problem.roles == Role.FREE)
        state_start = offsets(problem.graph.cardinality[variables])
        marginals = np.empty(int(state_start[-1]))
        verdict = Verdict("converged")
        for each in self.propagations(LinkedProblem.build(problem, self.name), vectors):
            links, last = each.links, each.last
            rows = np.flatnonzero(problem.roles[links.variables] == Role.FREE)
            start = state_start[np.searchsorted(variables, links.variables[rows])]
            marginals[start[:, None] + np.arange(links.n_states)] = each.probabilities[rows]
            status = last.verdict.status if verdict.is_good else verdict.status
            verdict = Verdict(status, verdict.iterations + last.iterations, max(verdict.residual, last.residual))
            observe(replace(verdict, status="running"))
        return InferenceResult(
            variables=variables,
            state_start=state_start,
            marginals=marginals,
            edges=np.empty((0, 2), dtype=np.int32),
            log_partition=float("nan"),
            verdict=verdict,
        )

    def joint_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> IndependentMarginalsSpec:
        others = {name: problem.share_vector(vector) for name, vector in vectors.items() if name != "weights"}
        return IndependentMarginalsSpec(self, tuple(others.items()))

    @property
    def calibration(self) -> ScoreCalibration:
        """The calibration of the settings, with default values instead of 0."""
        return ScoreCalibration(self.sharpness or DEFAULT_SHARPNESS, self.smoothing or DEFAULT_SMOOTHING)

    def _calibrations(self) -> list[ScoreCalibration]:
        """Return the calibrations that the settings allow."""
        grid = product(self._grid("sharpness", SHARPNESS_GRID), self._grid("smoothing", self.smoothing_grid))
        return [ScoreCalibration(*values) for values in grid]

    def _require_supported(self, problem: Problem) -> None:
        """Raise UsageError if the problem is sharded or has latent variables."""
        self._require_unsharded(problem)
        self._require_labels(problem, "it propagates labels, and they have none", "use --backend ess, local or dense")

    def _grid(self, setting: str, grid: Sequence[float]) -> Sequence[float]:
        """Return the value of a setting, or the grid for its choice if the setting is 0."""
        value = float(getattr(self, setting))
        return (value,) if value else grid


@dataclass(frozen=True)
class IndependentMarginalsSpec(AbstractLikelihoodSpec):
    """A specification of the likelihood of independent variables with the marginals that a backend infers.

    Args:
        vectors: The vectors of the backend, except the weights.
    """

    backend: AbstractBackend
    vectors: tuple[tuple[str, SharedVector], ...]

    def likelihood(self, problem: Problem) -> IndependentMarginals:
        vectors = {name: vector.load() for name, vector in self.vectors}
        states = problem.states[problem.roles == Role.FREE]
        return IndependentMarginals(
            lambda weights: self.backend.infer(problem, {**vectors, "weights": weights}), states
        )


@dataclass(frozen=True, eq=False)
class IndependentMarginals(AbstractLikelihood):
    """The negative log-likelihood of the labels under independent marginals; unlabelled variables are summed out.

    The gradient is not available and consists of NaN.

    Args:
        infer: Function that returns the result of inference for given weights.
        states: The labels of the free variables; -1 without a label.
    """

    infer: Callable[[np.ndarray], InferenceResult]
    states: np.ndarray

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        result = self.infer(weights)
        labelled = np.flatnonzero(self.states >= 0)
        probability = result.marginals[result.state_start[labelled] + self.states[labelled]]
        return float(-np.log(np.maximum(probability, 1e-300)).sum()), np.full(len(weights), np.nan)
