"""The backend `auto`, which chooses another backend and its settings by the likelihood of held-out labels."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.base import AbstractBackend, AbstractLikelihoodSpec, FitResult, Monitor, Problem
from relcrf.backends.ess import EssBackend
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend
from relcrf.backends.memory_needs import problem_memory
from relcrf.backends.registry import make_backend
from relcrf.backends.weight_priors import agreement_settings
from relcrf.errors import Diagnostic, RelcrfError, UsageError
from relcrf.evaluation.calibration import scale_weights
from relcrf.evaluation.holdout_folds import automatic_folds
from relcrf.evaluation.prediction_sets import collect_calibration_labels
from relcrf.evaluation.predictions import FoldPrediction
from relcrf.evaluation.splits import Fold, labelled_in_problem
from relcrf.evaluation.tempering import TemperedLabels, apply_temperature, temper
from relcrf.execution.blas_threads import SingleThreadedBlas
from relcrf.execution.memory import memory_exhausted_error, require_memory
from relcrf.graph.labelled_factors import labelled_neighbours
from relcrf.graph.reduction import Role

UNARY_STRENGTHS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Values of `unary_l2`. The strength is relative to the squared norm of the features: with 20 labels a class, 0.01 is best
for normalised words; with 60 % of 2,708 labels, 0.1."""

FIRST_STRENGTH = UNARY_STRENGTHS.index(0.03)
"""Index of the value of `unary_l2` that is tried first."""

LOWER_THRESHOLD = 0.7
"""The second value of `threshold`, for `effort=thorough`."""

TARGET_FRACTION = 0.5
"""Value of `fraction` of self-training. With 2 to 5 labels a class, hardly any prediction exceeds a threshold."""

FEW_LABELS = 500
"""Number of labels below which several folds are held out, and each fit takes little time."""

FEW_LINKS = 600
"""Number of links between labels, in both directions, below which the weights of agreement need a prior."""

MAX_SMALL_SIZE = 3_000_000
"""Number of numbers in the ground graph up to which settings are varied; above it, only default settings are compared."""

TOLERANCE = 1e-3
"""Setting `tolerance` of the candidates. Predictions with the default tolerance differ less than those of two folds."""

MAX_DENSE_CELLS = 1_000_000
"""Number of cells of pairwise tables up to which `dense` is tried; its training needs belief propagation in each step."""

MIN_STANDARD_ERRORS = 1.0
"""Minimum gain of self-training over other candidates, in standard errors of the paired difference."""

MIN_STANDARD_ERRORS_WITHOUT_EVIDENCE, MIN_GAIN_WITHOUT_EVIDENCE = 2.0, 0.002
"""Minimum gain over a candidate that uses relations, in standard errors and in nats, if the predicted graph has no labels."""

MIN_CALIBRATION_GAIN, MIN_TOTAL_GAIN = 0.01, 2.0
"""Minimum gain of the best temperature from which a large graph is calibrated, which takes two more inferences: in nats per
held-out label, and in nats of all of them. The latter gain occurs by chance in 5 % of the cases (likelihood-ratio test)."""

HOPELESS_STANDARD_ERRORS = 3.0
"""Loss to another candidate, in standard errors on the folds so far, from which the remaining folds are not tried."""

ALL_EDGES_METHODS = ("trw", "bp")
"""Values of `inference` of `ess` on all edges that are compared with inference on its structure."""

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
    variables. On graphs of more than 3 million numbers, fewer candidates are tried. The result is a run of the chosen backend.

    Args:
        effort: Number of candidates: `quick`, `normal` or `thorough`.
        seed: Seed of the held-out labels.

    Raises:
        UsageError: If `effort` has an unknown value.
    """

    name: ClassVar[str] = "auto"
    learning_arrays: ClassVar[tuple[float, float]] = (6, 6)
    inference_arrays: ClassVar[tuple[float, float]] = (10, 10)
    uses_candidates: ClassVar[bool] = True
    effort: str = "normal"
    seed: int = 0

    def __post_init__(self) -> None:
        self._require_one_of("effort", tuple(EFFORTS))

    @SingleThreadedBlas()
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
        predictions: The predictions of each fold.
        labels: The log-probabilities of the held-out labels; None if not all of them were predicted.
        seconds: CPU seconds of learning and inference.
        reason: Why not all labels were predicted.
    """

    system: AbstractBackend
    fits: tuple[FitResult, ...] = ()
    predictions: tuple[FoldPrediction, ...] = ()
    labels: TemperedLabels | None = None
    accuracy: float = float("nan")
    seconds: float = 0.0
    reason: str = ""

    @property
    def score(self) -> float:
        """The calibrated log-likelihood per held-out label, in nats; -inf if it is undefined."""
        return -np.inf if self.labels is None else float(np.nan_to_num(self.labels.mean, nan=-np.inf))

    @property
    def is_miscalibrated(self) -> bool:
        """True if the best temperature gains much."""
        if self.labels is None:
            return False
        gain = self.score - self.labels.untempered_mean
        return gain > max(MIN_CALIBRATION_GAIN, MIN_TOTAL_GAIN / len(self.labels.log_probabilities))

    def is_better_than(self, other: BackendTrial, standard_errors: float = 0.0, min_gain: float = 0.0) -> bool:
        """Return True if the gain over another trial exceeds `min_gain` and that many standard errors of the gain."""
        if self.labels is None or other.labels is None or not np.isfinite(self.score) or not np.isfinite(other.score):
            return self.score > other.score
        gain = self.labels.log_probabilities - other.labels.log_probabilities
        return bool(gain.mean() > max(standard_errors * gain.std() / np.sqrt(len(gain)), min_gain))

    def exceeds(self, predictions: Sequence[FoldPrediction]) -> bool:
        """Return True if this trial is clearly better than predictions of the first folds by another candidate."""
        known = self.predictions[: len(predictions)]
        if not known:
            return False
        loss = temper(known).log_probabilities - temper(predictions).log_probabilities
        return bool(loss.mean() > HOPELESS_STANDARD_ERRORS * loss.std() / np.sqrt(len(loss)))

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


def _with_inference(learned: FitResult, system: AbstractBackend) -> FitResult:
    """Return the result of training with the settings `edges` and `inference` of another backend."""
    chosen = {"edges": getattr(system, "edges", ""), "inference": getattr(system, "inference", "")}
    return replace(learned, settings={**learned.settings, **chosen})


def _with_settings(system: AbstractBackend, **settings: Any) -> AbstractBackend:
    """Return a backend with other values of the settings that it has."""
    names = {each.name for each in fields(system)}
    return replace(system, **{name: value for name, value in settings.items() if name in names})


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
        if self._has_relations:
            best = self._best_relational(best)
        if self.problem.candidates:
            best = self._best_with_candidates(best)
        if self._may_use_unlabelled:
            best = self._best_self_training(best)
        # Without validation labels, a backend that also chooses settings makes the same choice as in the comparison.
        unreserved = replace(self.problem, validation=None)
        if best.labels is None:
            return _train_default(unreserved, self.monitor, best.reason)
        learned = best.fits[0] if self.in_sample else best.system.fit(unreserved, self.monitor)
        # With a part of the evidence, held-out labels are more difficult or easier than the missing ones.
        is_representative = self.folds[0].evidence is None or not self.folds[0].has_evidence
        predictions = best.predictions
        if is_representative and not self.in_sample and (not self.is_large or best.is_miscalibrated):
            self.monitor.start_phase("calibrating")
            learned, predictions = self._calibrate(best, learned)
        if not self.in_sample:
            predicted = [(one.variables, one.label_probabilities) for one in predictions]
            learned = replace(
                learned, calibration_labels=collect_calibration_labels(self.scored_problem, self.folds, predicted)
            )
        summary: dict[str, Any] = {
            "compared_training_labels" if self.in_sample else "held_out_labels": len(best.labels.log_probabilities),
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
        if self.effort == 1 or self._labelled.sum() >= FEW_LABELS:
            return self._climb(local, FIRST_STRENGTH, 1 if self.effort == 1 else len(UNARY_STRENGTHS))
        # With few labels, the likelihood varies at random between strengths, so that a climb stops too early.
        best = self._try(_with_settings(local, unary_l2=UNARY_STRENGTHS[FIRST_STRENGTH]))
        for k, strength in enumerate(UNARY_STRENGTHS):
            if k != FIRST_STRENGTH and best.labels:
                best = self._better(best, self._try(_with_settings(local, unary_l2=strength)))
        return best

    def _climb(self, system: AbstractBackend, index: int, max_steps: int) -> BackendTrial:
        """Return the best trial of a backend over `unary_l2`: the strength changes in steps while the trials improve.

        Args:
            index: Index of the first value in `UNARY_STRENGTHS`.
            max_steps: Maximum number of steps in each direction.
        """
        best = self._try(_with_settings(system, unary_l2=UNARY_STRENGTHS[index]))
        for direction in (-1, 1):
            stop = index + direction * (max_steps + 1)
            for k in range(index + direction, stop, direction):
                if not 0 <= k < len(UNARY_STRENGTHS) or not best.labels:
                    break
                trial = self._try(_with_settings(system, unary_l2=UNARY_STRENGTHS[k]))
                if self._better(best, trial, MIN_STANDARD_ERRORS) is best:
                    break
                best = trial
            if best.system.unary_l2 != UNARY_STRENGTHS[index]:  # type: ignore[attr-defined]
                break
        return best

    def _best_relational(self, local: BackendTrial) -> BackendTrial:
        """Return the best trial of `local` and of the backends that use relations."""
        # Without known labels, propagation may assign one class to nearly all variables of another graph, even if it does not
        # do so here.
        pseudo = make_backend("pseudo", inference="bp", balanced=self._lacks_evidence)
        if self.is_large:
            return self._best_of_two(local, self._try(make_backend("ess")), self._try(pseudo))
        # Relations explain a part of the labels, so that the best penalty of features may differ from that of `local`.
        # It is determined with `pseudo`, whose training is quickest, unless inference on larger factors is slow.
        index = UNARY_STRENGTHS.index(local.system.unary_l2)  # type: ignore[attr-defined]
        if self._is_pairwise:
            peer = self._climb(pseudo, index, self.effort - 1)
        else:
            peer = self._try(_with_settings(pseudo, unary_l2=UNARY_STRENGTHS[index]), rival=local)
        penalty: dict[str, Any] = {"unary_l2": peer.system.unary_l2}  # type: ignore[attr-defined]
        best = self._best_of_two(local, self._best_ess(penalty), peer)
        if not self.folds[0].whole_components:
            best = self._better(best, self._try(make_backend("propagate")))
            best = self._better(best, self._best_smooth(best, index))
        for name, settings in self._dense_candidates():
            system = _with_settings(make_backend(name), **penalty, **settings)
            best = self._better(best, self._try(system, rival=best))
        if self._n_linked_labels < FEW_LINKS:
            labels = np.where(self._labelled, self.problem.states, -1)
            for prior in agreement_settings(self.problem.graph, labels):
                best = self._better(best, self._try(_with_settings(pseudo, **penalty, **prior)))
        return best

    def _best_of_two(self, local: BackendTrial, ess: BackendTrial, peer: BackendTrial) -> BackendTrial:
        """Return the best of `local`, `ess` and `pseudo`; the first one that is not clearly worse than the next ones.

        Without known labels, `ess` on all edges comes after balanced propagation of `pseudo`, which is more robust.
        """
        edges = ess.fits[0].settings.get("edges", getattr(ess.system, "edges", "")) if ess.fits else ""
        first, second = (peer, ess) if self._lacks_evidence and edges == "all" else (ess, peer)
        return self._better(self._better(local, first), second)

    def _best_ess(self, settings: Mapping[str, Any]) -> BackendTrial:
        """Return the best trial of `ess` over the methods of inference, which use the same weights."""
        best = tree = self._try(_with_settings(make_backend("ess", edges="tree", inference="exact"), **settings))
        for method in ALL_EDGES_METHODS if tree.labels else ():
            system = _with_settings(tree.system, edges="all", inference=method)
            best = self._better(best, self._try(system, tree.fits))
        return best

    def _best_smooth(self, best: BackendTrial, index: int) -> BackendTrial:
        """Return the best trial of `smooth`, with several penalties if the first trial is better than `best`.

        Args:
            index: Index of the best penalty of `local`, which makes the predictions that `smooth` corrects.
        """
        smooth = make_backend("smooth")
        trial = self._try(_with_settings(smooth, unary_l2=UNARY_STRENGTHS[index]))
        for k in (index - 1, index + 1):
            if self.effort > 1 and 0 <= k < len(UNARY_STRENGTHS) and self._better(best, trial) is trial:
                trial = self._better(trial, self._try(_with_settings(smooth, unary_l2=UNARY_STRENGTHS[k])))
        return trial

    def _dense_candidates(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the name and settings of `dense`, as far as its training is quick or necessary."""
        candidates: list[tuple[str, dict[str, Any]]] = []
        if self._n_pair_cells <= MAX_DENSE_CELLS and not self._is_pairwise:  # `ess` rejects larger factors
            candidates.append(("dense", {"objective": "piecewise"}))
        if self._n_pair_cells <= MAX_DENSE_CELLS and self.effort > 2:
            candidates.append(("dense", {}))
        return candidates

    def _best_with_candidates(self, best: BackendTrial) -> BackendTrial:
        """Return the best trial with and without a backend that learns which candidate factors to use."""
        trial = self._try(make_backend("trmrf"))
        if trial.reason:  # the candidates are edges, not conjunctions of literals
            trial = self._try(make_backend("grafting"))
        return self._better(best, trial)

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
        bases = sorted(supervised, key=lambda trial: -trial.score)[: self.effort]
        trials = [trial for base in bases for trial in self._self_training_trials(base)]
        found = max(trials, key=lambda trial: trial.score, default=best)
        return found if found.is_better_than(best, MIN_STANDARD_ERRORS) else best

    def _self_training_trials(self, base: BackendTrial) -> Iterator[BackendTrial]:
        """Yield trials of self-training of one backend."""
        system = base.system
        first = self._try(_with_settings(system, unlabelled="em"), rival=base)
        yield first
        if self.effort > 2:
            yield self._try(_with_settings(system, unlabelled="em", threshold=LOWER_THRESHOLD), rival=base)
        if self.effort > 2 or not first.is_better_than(base, MIN_STANDARD_ERRORS):
            yield self._try(_with_settings(system, unlabelled="em", fraction=TARGET_FRACTION), rival=base)
        # With the pseudo-likelihood, `self` overstates the agreement of linked variables most.
        if isinstance(system, EssBackend):
            yield self._try(_with_settings(system, unlabelled="self", fraction=TARGET_FRACTION), rival=base)

    def _try(
        self, system: AbstractBackend, fits: Sequence[FitResult] = (), rival: BackendTrial | None = None
    ) -> BackendTrial:
        """Train a candidate on each fold, and score its predictions of the held-out labels.

        Args:
            fits: Results of another candidate whose training is the same. If there are any, this candidate only predicts.
            rival: A trial; if the candidate clearly loses to it on the first folds, the remaining folds are not tried.
        """
        predictions: list[FoldPrediction] = []
        found: list[FitResult] = []
        self.monitor.start_phase(f"trying {system.name} {describe_settings(system)}")
        started, reason = time.process_time(), ""
        try:
            needed = problem_memory(self.problem, system, learning=True)
            require_memory(needed, f"backend '{system.name}'", self.problem.memory_limit)
            for number, fold in enumerate(self.folds):
                if rival is not None and predictions and rival.exceeds(predictions):
                    reason = f"clearly worse than '{rival.system.name}' in {number} of {len(self.folds)} folds"
                    break
                if fits:
                    learned = _with_inference(fits[number], system)
                else:
                    learned = self._learn(fold, system, found[0].settings if found else {})
                predictions.append(self._predict(fold, system, learned, learned.vectors))
                found.append(learned)
        except RelcrfError as error:
            reason = error.diagnostics[0].message
        except MemoryError as error:
            reason = memory_exhausted_error(error).diagnostics[0].message
        seconds = time.process_time() - started
        if reason:
            trial = BackendTrial(system, seconds=seconds, reason=reason)
        else:
            n = [len(predicted.truth) for predicted in predictions]
            accuracy = np.average([predicted.score().accuracy for predicted in predictions], weights=n)
            labels = temper(predictions)
            trial = BackendTrial(system, tuple(found), tuple(predictions), labels, float(accuracy), seconds)
        self._trials.append(trial)
        return trial

    def _learn(self, fold: Fold, system: AbstractBackend, chosen: Mapping[str, Any]) -> FitResult:
        """Train a candidate without the labels of a fold, or with them if `in_sample`.

        Args:
            chosen: Settings that the training on the first fold has chosen; the other folds use the same values.
        """
        system = _with_settings(system, **chosen)
        if self.in_sample:
            return system.fit(self.problem, Monitor())
        if isinstance(system, AbstractLikelihoodBackend):
            system = replace(system, tolerance=max(TOLERANCE, system.tolerance))
        learned = system.fit(fold.learning_problem(self.scored_problem), Monitor())
        return replace(learned, settings={**chosen, **learned.settings})

    def _predict(
        self, fold: Fold, system: AbstractBackend, learned: FitResult, vectors: dict[str, np.ndarray]
    ) -> FoldPrediction:
        """Predict the labels of a fold with the given vectors."""
        query = self.problem if self.in_sample else fold.query_problem(self.scored_problem)
        query = query.with_candidates(learned.chosen_candidates)
        inferred = learned.configure(system).infer(query, vectors)
        return FoldPrediction.from_inferred(fold, inferred, self.scored_problem.states, converged=learned.converged)

    def _better(
        self, first: BackendTrial, second: BackendTrial, standard_errors: float = MIN_STANDARD_ERRORS_WITHOUT_EVIDENCE
    ) -> BackendTrial:
        """Return the second trial if it is better, and else the first, which is simpler.

        Without labelled neighbours, inference on cycles can find another fixed point in other data than in these, so that
        a candidate must clearly be better than one that uses relations.

        Args:
            standard_errors: Minimum gain in standard errors if the predicted graph has no labels.
        """
        if first.system.name == "local" or not self._lacks_evidence:
            limits = (0.0, 0.0)
        else:
            limits = (standard_errors, MIN_GAIN_WITHOUT_EVIDENCE)
        return second if second.is_better_than(first, *limits) else first

    def _calibrate(self, best: BackendTrial, learned: FitResult) -> tuple[FitResult, tuple[FoldPrediction, ...]]:
        """Multiply the weights by the scale with the largest likelihood of the held-out labels.

        Returns:
            The calibrated result of training, and its predictions of the held-out labels.
        """
        assert best.labels is not None
        if "sharpness" in learned.settings:  # the exponent of propagated scores is an inverse temperature
            sharpness = learned.settings["sharpness"] / best.labels.temperature
            changed = {"sharpness": sharpness}
            learned = replace(learned, settings={**learned.settings, **changed}, summary={**learned.summary, **changed})
            return learned, tuple(apply_temperature(one, best.labels.temperature) for one in best.predictions)
        if "weights" not in learned.vectors:
            return learned, best.predictions
        # A scale of the weights changes marginals of connected variables by more than a temperature changes them.
        scales = {best.labels.temperature**-exponent for exponent in (0.5, 1.0)}
        scaled = {1.0: best.predictions} | {scale: self._predict_scaled(best, scale) for scale in scales}
        scores = {each: temper(predictions).untempered_mean for each, predictions in scaled.items()}
        scale = max(scores, key=lambda each: scores[each])
        vectors = scale_weights(self.problem.with_candidates(learned.chosen_candidates), learned.vectors, scale)
        summary = {**learned.summary, "calibration": scale}
        return replace(learned, vectors=vectors, summary=summary, moments=None), scaled[scale]

    def _predict_scaled(self, best: BackendTrial, scale: float) -> tuple[FoldPrediction, ...]:
        """Predict the held-out labels with all weights multiplied by a scale."""
        predictions = []
        for fold, learned in zip(self.folds, best.fits, strict=True):
            query = fold.query_problem(self.scored_problem).with_candidates(learned.chosen_candidates)
            vectors = scale_weights(query, learned.vectors, scale)
            predictions.append(self._predict(fold, best.system, learned, vectors))
        return tuple(predictions)

    @cached_property
    def _lacks_evidence(self) -> bool:
        """Whether no label is known in the part of the graph that is predicted."""
        return not self.folds[0].has_evidence or self.folds[0].whole_components

    @cached_property
    def _labelled(self) -> np.ndarray:
        return labelled_in_problem(self.problem)

    @cached_property
    def _has_relations(self) -> bool:
        return any(len(group.scope) > 1 for group in self.problem.graph.groups)

    @cached_property
    def _is_pairwise(self) -> bool:
        return all(len(group.scope) <= 2 for group in self.problem.graph.groups)

    @cached_property
    def _n_pair_cells(self) -> int:
        return sum(g.n_factors * g.n_joint_states for g in self.problem.graph.groups if len(g.scope) > 1)

    @cached_property
    def _n_linked_labels(self) -> int:
        """The number of pairs of labelled variables with a common factor; it counts both directions."""
        return int(labelled_neighbours(self.problem.graph, self._labelled)[0][self._labelled].sum())
