"""The backend `auto`, which chooses another backend and its settings by the likelihood of held-out labels."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.base import AbstractBackend, AbstractLikelihoodSpec, FitResult, Monitor, Problem
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend
from relcrf.backends.propagation import AbstractPropagationBackend
from relcrf.backends.pseudo import PseudoBackend
from relcrf.backends.registry import make_backend
from relcrf.backends.weight_priors import agreement_patterns
from relcrf.errors import Diagnostic, RelcrfError, UsageError
from relcrf.evaluation.calibration import SCALES, scale_weights
from relcrf.evaluation.holdout_folds import automatic_folds
from relcrf.evaluation.predictions import FoldPrediction
from relcrf.evaluation.runner import predict_fold
from relcrf.evaluation.splits import Fold, labelled_in_problem
from relcrf.evaluation.tempering import MIN_TEMPERATURE, TemperedLabels, temper
from relcrf.graph.adjacency import iter_expanded_scopes
from relcrf.graph.reduction import Role

UNARY_STRENGTHS = (0.03, 0.003, 0.01, 0.1, 0.001, 0.3, 1.0)
"""Values of `unary_l2`, the most useful first. The strength is relative to the squared norm of the features: with 20 labels
a class, 0.01 is best for normalised words; with 60 % of 2,708 labels, 0.1."""

AGREEMENTS = (0.15, 0.3, 0.6, 1.0)
"""Values of `agreement` if few labels are linked. A link between equal labels is more probable by the factor exp(value)."""

PRIOR_L2 = 30.0
"""Value of `l2` with which weights stay near `agreement` if few labels are linked."""

LOWER_THRESHOLD = 0.7
"""The second value of `threshold`. Below 0.7, the targets of the first round are too often wrong."""

FEW_LABELS = 500
"""Number of labels below which several folds are held out, and each fit takes little time."""

FEW_LINKS = 300
"""Number of factors between labels below which the weights of agreement need a prior."""

MAX_SMALL_SIZE = 3_000_000
"""Number of numbers in the ground graph up to which settings are varied; above it, only default settings are compared."""

TOLERANCE = 1e-3
"""Setting `tolerance` of the candidates. Predictions with the default tolerance differ less than those of two folds."""

MAX_DENSE_CELLS = 1_000_000
"""Number of cells of pairwise tables up to which `dense` is tried; its training needs belief propagation in each step."""

MIN_STANDARD_ERRORS = 1.0
"""Minimum gain of propagation, and of self-training, over other candidates, in standard errors of the paired difference."""

MIN_STANDARD_ERRORS_WITHOUT_EVIDENCE, MIN_GAIN_WITHOUT_EVIDENCE = 2.0, 0.002
"""Minimum gain over a candidate that uses relations, in standard errors and in nats, if the predicted graph has no labels."""

EFFORTS = {"quick": 1, "normal": 2, "thorough": 3}
"""Levels of the setting `effort`."""


@dataclass(frozen=True)
class AutoBackend(AbstractBackend):
    """The backend and the settings with the largest likelihood of held-out labels.

    Training holds out labels in the way in which labels are missing: the validation labels if there are any; whole
    connected components if the unlabelled variables are in other components than the labels; otherwise random labels. It
    trains each candidate without these labels, scores its predictions, and trains the best candidate with all labels. The
    weights are scaled so that the predictions of held-out labels are calibrated.

    The candidates are `local` with several penalties, then backends that use relations with the best of these penalties,
    then, if few labels are linked, priors of the agreement of linked variables, and then self-training on unlabelled
    variables. A large graph permits fewer candidates; see `MAX_SMALL_SIZE`. The result is a run of the chosen backend.

    Args:
        effort: Number of candidates: `quick`, `normal` or `thorough`.
        seed: Seed of the held-out labels.

    Raises:
        UsageError: If `effort` has an unknown value.
    """

    name: ClassVar[str] = "auto"
    uses_candidates: ClassVar[bool] = True
    effort: str = "normal"
    seed: int = 0

    def __post_init__(self) -> None:
        self._require_one_of("effort", tuple(EFFORTS))

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        if problem.is_sharded:
            return _train_default(problem, monitor, "the graph exceeds the memory limit")
        labelled = labelled_in_problem(problem)
        if (problem.roles == Role.FREE).sum() > labelled.sum():
            return _train_default(problem, monitor, "latent attributes have no labels to hold out")
        is_large, effort = _is_large(problem), EFFORTS[self.effort]
        if is_large and problem.validation is None and not problem.unlabelled.any():
            everything = Fold.from_test("training labels", labelled, whole=True)
            return _Search(problem, problem, [everything], effort, monitor, is_large=True, in_sample=True).run()
        try:
            scored_problem, folds = automatic_folds(problem, FEW_LABELS, self.seed, thorough=self.effort == "thorough")
        except RelcrfError as error:
            return _train_default(problem, monitor, error.diagnostics[0].message)
        return _Search(problem, scored_problem, folds, effort, monitor, is_large=is_large).run()

    def joint_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> AbstractLikelihoodSpec:
        message = "backend 'auto' has no distribution before training has chosen a backend"
        raise UsageError(Diagnostic("E368", message, hint="use the backend that the run names"))


def _is_large(problem: Problem) -> bool:
    groups = problem.graph.groups
    return sum(group.nbytes // 8 + group.n_factors * group.n_joint_states for group in groups) > MAX_SMALL_SIZE


def _train_default(problem: Problem, monitor: Monitor, reason: str) -> FitResult:
    """Train a backend that needs no choice, and state the reason in the summary."""
    is_pairwise = all(len(group.scope) <= 2 for group in problem.graph.groups) or problem.latent.any()
    system = make_backend("ess" if is_pairwise else "pseudo")
    learned = system.fit(problem, monitor)
    return replace(learned, system=system, summary={"chosen_without_comparison": reason, **learned.summary})


@dataclass(frozen=True, eq=False)
class BackendTrial:
    """One candidate and its predictions of the held-out labels.

    Args:
        fits: The learned vectors of each fold.
        labels: The log-probabilities of the held-out labels; None if the candidate rejects the problem.
        seconds: CPU seconds of learning and inference.
        reason: Why the candidate rejects the problem.
    """

    system: AbstractBackend
    fits: tuple[FitResult, ...] = ()
    labels: TemperedLabels | None = None
    accuracy: float = float("nan")
    seconds: float = 0.0
    reason: str = ""

    @property
    def score(self) -> float:
        """The calibrated log-likelihood per held-out label, in nats; -inf if it is undefined."""
        return -np.inf if self.labels is None else float(np.nan_to_num(self.labels.mean, nan=-np.inf))

    def is_better_than(self, other: BackendTrial, standard_errors: float = 0.0, min_gain: float = 0.0) -> bool:
        """Return True if the gain over another trial exceeds `min_gain` and that many standard errors of the gain."""
        if self.labels is None or other.labels is None or not np.isfinite(self.score) or not np.isfinite(other.score):
            return self.score > other.score
        gain = self.labels.log_probabilities - other.labels.log_probabilities
        return bool(gain.mean() > max(standard_errors * gain.std() / np.sqrt(len(gain)), min_gain))

    def row(self) -> dict[str, Any]:
        """Return the trial as a table row."""
        return {
            "backend": self.system.name,
            "settings": describe_settings(self.system),
            "log_likelihood": self.score,
            "accuracy": self.accuracy,
            "seconds": self.seconds,
            **({"rejected": self.reason} if self.reason else {}),
        }


def describe_settings(system: AbstractBackend) -> str:
    """Return the settings that differ from the defaults, as text."""
    default = type(system)()
    changed = [each.name for each in fields(system) if getattr(system, each.name) != getattr(default, each.name)]
    values = {name: getattr(system, name) for name in changed}
    return " ".join(f"{n}={v:g}" if isinstance(v, float) else f"{n}={v}" for n, v in values.items())


def _with_settings(system: AbstractBackend, **settings: Any) -> AbstractBackend:
    """Return a backend with other values of the settings that it has."""
    return replace(system, **{name: value for name, value in settings.items() if name in vars(system)})


@dataclass(frozen=True, eq=False)
class _Search:
    """The search for the best candidate.

    Args:
        problem: The training problem.
        scored_problem: The problem whose labels include the held-out labels.
        is_large: Whether only default settings are compared.
        in_sample: Whether candidates are trained with all labels, and predict the same labels together. In a large graph
            without unlabelled variables, the labels far outnumber the weights, and holding out variables would remove a
            large part of the links.
    """

    problem: Problem
    scored_problem: Problem
    folds: Sequence[Fold]
    effort: int
    monitor: Monitor
    is_large: bool
    in_sample: bool = False

    @cached_property
    def _trials(self) -> list[BackendTrial]:
        return []

    def run(self) -> FitResult:
        """Compare the candidates, and train the best one with all labels."""
        local = best = self._best_local()
        if self._is_relational:
            best = self._best_relational(best)
        if self._may_use_unlabelled:
            best = self._best_self_training(best)
        # Without validation labels, a backend that also chooses settings makes the same choice as in the comparison.
        unreserved = replace(self.problem, validation=None)
        if best.labels is None:
            return _train_default(unreserved, self.monitor, best.reason)
        learned = best.fits[0] if self.in_sample else best.system.fit(unreserved, self.monitor)
        if not self.is_large:
            self.monitor.start_phase("calibrating")
            learned = self._calibrate(best, learned)
        summary: dict[str, Any] = {
            "held_out_labels": len(best.labels.log_probabilities),
            "calibrated_log_likelihood": best.score,
        }
        if local.labels is not None:
            gain = best.labels.log_probabilities - local.labels.log_probabilities
            summary["gain_over_local"] = float(gain.mean())
            summary["standard_error_of_gain"] = float(gain.std() / np.sqrt(len(gain)))
        rows = tuple(trial.row() for trial in self._trials)
        return replace(learned, system=best.system, trials=rows, summary={**summary, **learned.summary})

    def _best_local(self) -> BackendTrial:
        """Return the best trial of backend `local`, with several penalties unless the graph is large."""
        local = make_backend("local")
        if self.is_large:
            return self._try(local)
        strengths = UNARY_STRENGTHS[: 3 if self.effort == 1 else None]
        trials = [self._try(_with_settings(local, unary_l2=strength)) for strength in strengths]
        return max(trials, key=lambda trial: trial.score)

    def _best_relational(self, local: BackendTrial) -> BackendTrial:
        """Return the best trial of `local` and of the backends that use relations."""
        penalty = {} if self.is_large else {"unary_l2": local.system.unary_l2}  # type: ignore[attr-defined]
        best = self._better(local, self._try_penalties(make_backend("ess"), penalty))
        penalty = {name: getattr(best.system, name) for name in penalty}
        if not self.is_large:
            ess = max((t for t in self._trials if t.system.name == "ess"), key=lambda trial: trial.score)
            best = self._better(best, self._try(_with_settings(ess.system, edges="all", inference="trw")))
        for name, settings in self._relational_candidates():
            trial = self._try(_with_settings(make_backend(name), **penalty, **settings))
            if name == "trmrf" and trial.reason:  # the candidates are edges, not conjunctions of literals
                trial = self._try(make_backend("grafting"))
            best = self._better(best, trial)
        if not self.is_large and self._n_linked_labels < FEW_LINKS and self._has_agreement_template:
            system = _with_settings(make_backend("pseudo", inference="bp", l2=PRIOR_L2), **penalty)
            for agreement in AGREEMENTS:
                best = self._better(best, self._try(_with_settings(system, agreement=agreement)))
        return best

    def _try_penalties(self, system: AbstractBackend, penalty: Mapping[str, float]) -> BackendTrial:
        """Return the best trial of a backend with its default penalty, that of `local`, a smaller and a larger one."""
        best = self._try(system)
        factors = (1.0, 1 / 3, 3.0) if self.effort > 1 else (1.0,)
        for factor in factors if penalty else ():
            changed = {name: factor * value for name, value in penalty.items()}
            best = self._better(best, self._try(_with_settings(system, **changed)), MIN_STANDARD_ERRORS)
        return best

    def _relational_candidates(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the names and settings of further backends that use relations."""
        candidates: list[tuple[str, dict[str, Any]]] = [("pseudo", {"inference": "bp"})]
        if not (self.is_large or self.folds[0].whole_components):
            candidates += [("propagate", {}), ("smooth", {})]
        if self.effort > 2 and self._n_pair_cells <= MAX_DENSE_CELLS:
            candidates.append(("dense", {}))
        if self.problem.candidates:
            candidates.append(("trmrf", {}))
        return candidates

    @property
    def _may_use_unlabelled(self) -> bool:
        n_absent, n_labels = int(self.problem.unlabelled.sum()), int(self._labelled.sum())
        return not self.is_large and n_absent > n_labels

    def _best_self_training(self, best: BackendTrial) -> BackendTrial:
        """Return the best trial with and without self-training of the best trials of a few backends."""
        by_backend: dict[str, BackendTrial] = {}
        for trial in sorted(self._trials, key=lambda trial: trial.score):
            by_backend[trial.system.name] = trial
        supervised = [
            trial
            for trial in by_backend.values()
            if isinstance(trial.system, AbstractLikelihoodBackend) and trial.labels
        ]
        chosen = sorted(supervised, key=lambda trial: -trial.score)[: self.effort]
        if not chosen:
            return best
        trials = [self._try(_with_settings(each.system, unlabelled="em")) for each in chosen]
        # `self` also learns the weights of relations again; only the training of `pseudo` is quick enough.
        trials += [
            self._try(replace(each.system, unlabelled="self"))
            for each in chosen
            if isinstance(each.system, PseudoBackend)
        ]
        first = max(trials, key=lambda trial: trial.score)
        lower = self._try(_with_settings(first.system, threshold=LOWER_THRESHOLD))
        found = max(first, lower, key=lambda trial: trial.score)
        return found if found.is_better_than(best, MIN_STANDARD_ERRORS) else best

    def _try(self, system: AbstractBackend) -> BackendTrial:
        """Train a candidate on each fold, and score its predictions of the held-out labels."""
        predictions: list[FoldPrediction] = []
        fits: list[FitResult] = []
        self.monitor.start_phase(f"trying {system.name} {describe_settings(system)}")
        started = time.process_time()
        try:
            for fold in self.folds:
                predicted, learned = self._predict(fold, system)
                predictions.append(predicted)
                fits.append(learned)
            labels = temper(predictions)
        except RelcrfError as error:
            trial = BackendTrial(system, reason=error.diagnostics[0].message)
        else:
            n = [len(predicted.truth) for predicted in predictions]
            accuracy = np.average([predicted.score().accuracy for predicted in predictions], weights=n)
            trial = BackendTrial(system, tuple(fits), labels, float(accuracy), time.process_time() - started)
        self._trials.append(trial)
        return trial

    def _predict(self, fold: Fold, system: AbstractBackend) -> tuple[FoldPrediction, FitResult]:
        """Train a candidate without the labels of a fold, or with them if `in_sample`, and predict them."""
        if not self.in_sample:
            if isinstance(system, AbstractLikelihoodBackend):
                system = replace(system, tolerance=max(TOLERANCE, system.tolerance))
            return predict_fold(self.scored_problem, fold, system)
        learned = system.fit(self.problem, Monitor())
        query = self.problem.with_candidates(learned.chosen_candidates)
        inferred = learned.configure(system).infer(query, learned.vectors)
        return FoldPrediction.from_inferred(fold, inferred, self.problem.states, converged=learned.converged), learned

    def _better(
        self, first: BackendTrial, second: BackendTrial, standard_errors: float = MIN_STANDARD_ERRORS_WITHOUT_EVIDENCE
    ) -> BackendTrial:
        """Return the second trial if it is better, and else the first, which is simpler.

        The predictions of propagation cannot be explained by factors, so that they must be better by a standard error.
        Without labelled neighbours, inference on cycles can find another fixed point in other data than in these, so that
        a candidate must clearly be better than one that uses relations.

        Args:
            standard_errors: Minimum gain in standard errors if the predicted graph has no labels.
        """
        fold = self.folds[0]
        if isinstance(second.system, AbstractPropagationBackend):
            limits = (MIN_STANDARD_ERRORS, 0.0)
        elif first.system.name == "local" or (fold.has_evidence and not fold.whole_components):
            limits = (0.0, 0.0)
        else:
            limits = (standard_errors, MIN_GAIN_WITHOUT_EVIDENCE)
        return second if second.is_better_than(first, *limits) else first

    def _calibrate(self, best: BackendTrial, learned: FitResult) -> FitResult:
        """Multiply the weights by the scale with the largest likelihood of the held-out labels."""
        assert best.labels is not None
        if "sharpness" in learned.settings:  # the exponent of propagated scores is an inverse temperature
            sharpness = learned.settings["sharpness"] / best.labels.temperature
            calibrated = {"sharpness": sharpness}
            return replace(
                learned, settings={**learned.settings, **calibrated}, summary={**learned.summary, **calibrated}
            )
        if "weights" not in learned.vectors:
            return learned
        scores: dict[int, float] = {}
        index = unscaled = int(np.argmin(np.abs(SCALES - 1.0)))
        index = int(np.argmin(np.abs(np.log(SCALES * best.labels.temperature))))
        while True:
            for k in {unscaled, index - 1, index, index + 1} - scores.keys():
                is_valid = 0 <= k < len(SCALES) and SCALES[k] <= 1.0 / MIN_TEMPERATURE
                scores[k] = self._score_scale(best, float(SCALES[k])) if is_valid else -np.inf
            found = max(scores, key=lambda k: scores[k])
            if found in (index, unscaled):
                break
            index = found
        scale = float(SCALES[found])
        vectors = scale_weights(self.problem.with_candidates(learned.chosen_candidates), learned.vectors, scale)
        return replace(learned, vectors=vectors, summary={**learned.summary, "calibration": scale}, moments=None)

    def _score_scale(self, best: BackendTrial, scale: float) -> float:
        """Return the log-likelihood of the held-out labels if all weights are multiplied by a scale."""
        total = 0.0
        for fold, learned in zip(self.folds, best.fits, strict=True):
            query = fold.query_problem(self.scored_problem).with_candidates(learned.chosen_candidates)
            inferred = learned.configure(best.system).infer(query, scale_weights(query, learned.vectors, scale))
            predicted = FoldPrediction.from_inferred(fold, inferred, self.scored_problem.states)
            total += fold.n_test * predicted.score().log_likelihood
        return float(np.nan_to_num(total, nan=-np.inf))

    @cached_property
    def _labelled(self) -> np.ndarray:
        return labelled_in_problem(self.problem)

    @cached_property
    def _is_relational(self) -> bool:
        return bool(self.problem.candidates) or any(len(group.scope) > 1 for group in self.problem.graph.groups)

    @cached_property
    def _n_pair_cells(self) -> int:
        return sum(g.n_factors * g.n_joint_states for g in self.problem.graph.groups if len(g.scope) > 1)

    @cached_property
    def _n_linked_labels(self) -> int:
        """The number of factors between at least two labelled variables."""
        count = 0
        for group in self.problem.graph.groups:
            if len(group.scope) > 1:
                for scope in iter_expanded_scopes(group):
                    count += int((sum(self._labelled[variables].astype(int) for variables in scope) > 1).sum())
        return count

    @cached_property
    def _has_agreement_template(self) -> bool:
        graph = self.problem.graph
        by_block = ([g for g in graph.groups if g.block == k] for k in range(len(graph.layout.blocks)))
        return any(groups and agreement_patterns(graph, groups) is not None for groups in by_block)
