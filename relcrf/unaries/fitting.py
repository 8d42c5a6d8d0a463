"""Training of learned features: out-of-fold scores of the training labels, and scores of a final estimator for the others.

An estimator knows the labels that it was trained on, so that its scores of these entities are overconfident. Therefore, the
score of an entity with a training label is computed by an estimator that was trained without its fold (stacking, Wolpert
1992). The folds resemble the entities without labels: they contain whole components of the graph if most of these entities
are in components without labels, or if all entities have labels and no component contains most of them. The scores are
calibrated by a temperature (Guo et al. 2017), which minimises the log loss of the out-of-fold scores.

Without `using`, the best linear model, the best boosting, and the average of both compete. With few labels, the choice
between two estimators is uncertain, and the average has a smaller error than either (Breiman 1996, Stacked regressions).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import scipy
from scipy.sparse import issparse
from threadpoolctl import threadpool_limits

from relcrf.errors import DataError, Diagnostic, RelcrfError, UsageError
from relcrf.graph.folds import are_in_other_components, balanced_folds, stratified_folds
from relcrf.grounding.learned_values import LearnedInput, LearnedTarget, with_known_labels
from relcrf.kernels.distinct import distinct
from relcrf.model.spec import Feature, LearnedDefinition
from relcrf.unaries.encoding import Encoder, Matrix, is_large_bag
from relcrf.unaries.estimators import SHORT_NAMES, EstimatorSpec, candidate_estimators, parse_estimator
from relcrf.unaries.neural_nets import seeded

N_FOLDS = 10
"""Number of folds; each out-of-fold score comes from an estimator that was trained on nine tenths of the labels."""

MAX_SINGLE_THREAD_LABELS = 5_000
"""Number of labels up to which estimators use one thread; with 150 labels, two threads on busy cores took 8 times longer."""

GIANT_FRACTION = 0.5
"""Fraction of the training labels in one component above which folds divide components."""

TEMPERATURE_LIMITS = (0.05, 20.0)
"""Range of the temperature by which log-probabilities are divided."""

MIN_SOFT_WEIGHT = 0.02
"""Minimum probability of a category that is a target of an unlabelled entity; each is a row of the training data."""

SoftTargets: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""A function that returns the probabilities of the categories of the entities without training labels, shape (n, n_categories),
given the training labels of the entities in a mask, shape (n_entities,)."""


@dataclass(frozen=True)
class FittedEstimator:
    """An estimator and the encoder of its inputs, both fitted to the same labels.

    Args:
        spec: the class of the estimator and its parameters.
        n_labels: the number of these labels.
    """

    spec: EstimatorSpec
    encoder: Encoder
    model: Any
    n_labels: int

    def predict(self, matrix: Matrix, kind: str, n_categories: int) -> np.ndarray:
        """Return predictions of a regressor, shape (n, 1), or log-probabilities, shape (n, n_categories).

        The probabilities are mixed with 1 / (n_labels + 1) of the uniform distribution, so that categories without training
        labels do not have probability 0.

        Args:
            matrix: the encoded inputs, shape (n, n_columns).
        """
        matrix = _dense_if_needed(self.model, matrix)
        if kind == "regressor":
            return np.asarray(self.model.predict(matrix), dtype=np.float64).reshape(-1, 1)
        if hasattr(self.model, "predict_proba"):
            known = np.asarray(self.model.predict_proba(matrix), dtype=np.float64)
        else:
            known = (self.model.predict(matrix)[:, None] == self.model.classes_[None, :]).astype(np.float64)
        probabilities = np.zeros((matrix.shape[0], n_categories))
        probabilities[:, self.model.classes_] = known
        share = 1.0 / (self.n_labels + 1)
        return np.log((1 - share) * probabilities + share / n_categories)


@dataclass(frozen=True)
class FittedFeature:
    """A trained learned feature.

    Args:
        name: the name of the feature in the model.
        kind: `classifier` or `regressor`.
        members: the estimators whose predictions or log-probabilities are averaged, fitted to all training labels.
        categories: the categories that a classifier scores; None for a regressor.
        is_vector: whether the feature has a value for each category; otherwise it is a number.
        temperature: the temperature of the log-probabilities; 1 for a regressor.
        summary: the numbers of labels and folds, and the out-of-fold errors, by name.
    """

    name: str
    kind: str
    members: tuple[FittedEstimator, ...]
    categories: tuple[str, ...] | None
    is_vector: bool
    temperature: float
    summary: dict[str, float | int | str]

    @property
    def out_of_fold_error(self) -> float:
        """The mean log loss of the out-of-fold predictions, or their mean squared error."""
        return float(self.summary["out_of_fold_loss"])

    def scores(self, inputs: Sequence[LearnedInput], n_categories: int) -> np.ndarray:
        """Return the values of the feature for all entities, shape (n_entities, n_components).

        Args:
            n_categories: number of categories of the target in the data, at least the number in training.
        """
        rows = np.arange(len(inputs[0].values) if inputs[0].values.ndim == 1 else inputs[0].values.shape[0])
        raw = [each.predict(each.encoder.transform(inputs, rows), self.kind, n_categories) for each in self.members]
        return self.to_values(np.mean(raw, axis=0))

    def to_values(self, raw: np.ndarray) -> np.ndarray:
        """Return the values of the feature: predictions, the log-odds of `true`, or centred log-probabilities.

        Args:
            raw: predictions, shape (n, 1), or log-probabilities, shape (n, n_categories).
        """
        if self.kind == "regressor":
            return raw
        scaled = raw / self.temperature
        if self.is_vector:
            return np.asarray(scaled - scaled.mean(axis=1, keepdims=True))
        return np.asarray(scaled[:, 1:] - scaled[:, :1])


def cross_fit(
    feature: Feature,
    inputs: Sequence[LearnedInput],
    target: LearnedTarget,
    labelled: np.ndarray,
    component: np.ndarray,
    seed: int,
    soft_targets: SoftTargets | None = None,
) -> tuple[FittedFeature, np.ndarray]:
    """Train a learned feature on the labels of some entities; return it and the values of all entities.

    Args:
        labelled: mask of the entities with training labels, shape (n_entities,), bool.
        component: number of the component of each entity, shape (n_entities,).
        soft_targets: the probabilities of the categories of the other entities, as further targets.

    Raises:
        DataError: if there are too few labels or the estimator cannot be fitted (E439).
        UsageError: if the estimator is unknown or not installed (E437).
    """
    definition = feature.definition
    assert isinstance(definition, LearnedDefinition)
    rows, categories = np.flatnonzero(labelled), target.categories
    labels = target.values[rows]
    _require_labels(feature, definition.kind, labels)
    fold, by_component = _assign_folds(labels, component, labelled, definition.kind, seed)
    n_categories = 0 if categories is None else len(categories)
    families = [
        [_Trial(feature, spec, definition.kind, n_categories, seed) for spec in family]
        for family in _candidates(definition, inputs)
    ]
    error = partial(_error, definition.kind, labels)
    fold_of = np.full(len(labelled), -1)
    fold_of[rows] = fold
    inputs = [each.without_pairs_in(fold_of) for each in inputs]
    with _limit_threads(len(rows)):
        trials = [trial for family in families for trial in family]
        predictions = _cross_fit(trials, inputs, target, labelled, fold, soft_targets)
        chosen, raw = _choose(families, predictions, error)
        inputs = with_known_labels(inputs, target, labelled, n_categories)
        targets = _Targets.collect(inputs, labelled, labelled, labels, soft_targets)
        members = tuple(trial.fit(targets) for trial in chosen)
    codes = labels.astype(np.int64)
    temperature = 1.0 if categories is None else _fit_temperature(raw, codes, _platt_smoothing(codes))
    summary: dict[str, float | int | str] = {
        "labels": len(rows),
        "folds": f"{int(fold.max()) + 1} of {'components' if by_component else 'labels'}",
        "estimator": " and ".join(str(each.spec) for each in members),
        "out_of_fold_loss": error(raw),
        "temperature": float(temperature),
    }
    if categories is not None:
        summary["out_of_fold_accuracy"] = float((raw.argmax(axis=1) == labels).mean())
    fitted = FittedFeature(feature.name, definition.kind, members, categories, target.is_vector, temperature, summary)
    out = fitted.scores(inputs, n_categories)
    out[rows] = fitted.to_values(raw)
    return fitted, out


def _cross_fit(
    trials: Sequence[_Trial],
    inputs: Sequence[LearnedInput],
    target: LearnedTarget,
    labelled: np.ndarray,
    fold: np.ndarray,
    soft_targets: SoftTargets | None,
) -> dict[_Trial, np.ndarray]:
    """Return the out-of-fold predictions of each estimator, see `FittedEstimator.predict`.

    Args:
        inputs: the inputs; those that count labels of neighbours contain no neighbours in the same fold.
        fold: the fold of each labelled entity, shape (n_labels,).
        target, labelled, soft_targets: see `cross_fit`.
    """
    rows = np.flatnonzero(labelled)
    labels = target.values[rows]
    out = {trial: np.empty((len(rows), max(1, trial.n_categories))) for trial in trials}
    for number in range(int(fold.max()) + 1):
        train, known = fold != number, np.zeros_like(labelled)
        known[rows[train]] = True
        given = with_known_labels(inputs, target, known, trials[0].n_categories)
        targets, held_out = _Targets.collect(given, labelled, known, labels[train], soft_targets), rows[~train]
        matrices: dict[bool, Matrix] = {}
        for trial in trials:
            fitted = trial.fit(targets)
            with trial.reported_errors("cannot predict"):
                if (is_linear := fitted.encoder.is_linear) not in matrices:
                    matrices[is_linear] = fitted.encoder.transform(given, held_out)
                out[trial][~train] = fitted.predict(matrices[is_linear], trial.kind, trial.n_categories)
    return out


def _choose(
    families: Sequence[Sequence[_Trial]],
    predictions: Mapping[_Trial, np.ndarray],
    error: Callable[[np.ndarray], float],
) -> tuple[tuple[_Trial, ...], np.ndarray]:
    """Return the best estimator of a family, or that of each family if their average is better; and its predictions.

    Args:
        predictions: the out-of-fold predictions of each estimator.
        error: a function that returns the error of predictions.
    """

    def error_of(choice: tuple[tuple[_Trial, ...], np.ndarray]) -> float:
        return error(choice[1])

    best = [min((((trial,), predictions[trial]) for trial in family), key=error_of) for family in families]
    average = (tuple(trial for trials, _ in best for trial in trials), np.mean([raw for _, raw in best], axis=0))
    return min([*best, average], key=error_of)


def _limit_threads(n_labels: int) -> AbstractContextManager[Any]:
    """Return a context in which estimators use one thread if there are few labels."""
    import sklearn.ensemble  # noqa: F401 - the limit applies to loaded libraries

    return threadpool_limits(1) if n_labels <= MAX_SINGLE_THREAD_LABELS else nullcontext()


def _require_labels(feature: Feature, kind: str, labels: np.ndarray) -> None:
    n_classes = len(distinct(labels))
    if len(labels) < 2 or (kind == "classifier" and n_classes < 2):
        found = f"{len(labels)} training labels" + (f" of {n_classes} classes" if kind == "classifier" else "")
        needed = "at least two classes" if kind == "classifier" else "at least two labels"
        message = f"the learned feature '{feature.name}' has {found}, but needs {needed}"
        raise DataError(Diagnostic("E439", message, feature.span, "label more entities, or remove the feature"))


def _candidates(definition: LearnedDefinition, inputs: Sequence[LearnedInput]) -> list[list[EstimatorSpec]]:
    """Return one or two families of estimators; the out-of-fold error chooses in each, and between them and their average."""
    kind = definition.kind
    if definition.estimator:
        spec = parse_estimator(definition.estimator, definition.span)
        if spec.name in SHORT_NAMES and not spec.parameters:
            return [candidate_estimators(spec.name, kind)]
        return [[spec]]
    linear = candidate_estimators("linear", kind)
    has_large_bag = any(map(is_large_bag, inputs))
    return [linear] if has_large_bag else [linear, candidate_estimators("boosting", kind)]


def _assign_folds(
    labels: np.ndarray, component: np.ndarray, labelled: np.ndarray, kind: str, seed: int
) -> tuple[np.ndarray, bool]:
    """Return the fold of each label, from 0, and whether the folds contain whole components.

    Args:
        component, labelled: see `cross_fit`.
    """
    rng = np.random.default_rng(seed)
    unit = np.unique(component[labelled], return_inverse=True)[1]
    n_folds = min(N_FOLDS, len(labels))
    sizes = np.bincount(unit)
    are_apart = labelled.all() or are_in_other_components(component, labelled, ~labelled)
    if are_apart and 1 < sizes.max() <= GIANT_FRACTION * len(labels):
        fold = balanced_folds(unit, np.ones(len(unit), dtype=bool), n_folds, rng)
        return np.unique(fold, return_inverse=True)[1], True
    stratum = labels.astype(np.int64) if kind == "classifier" else np.zeros(len(labels), dtype=np.int64)
    return stratified_folds(stratum, n_folds, rng), bool(sizes.max() == 1)


@dataclass(frozen=True)
class _Targets:
    """Entities and their targets: a category or number each, or several categories with weights.

    Args:
        rows: the entities, shape (n_rows,).
        index, values, weights: the position in `rows`, the category or number, and the weight of each target, shape
            (n_targets,); without weights, the targets are the labels of all rows.
        n_labels: the number of labels among the targets.
    """

    inputs: Sequence[LearnedInput]
    rows: np.ndarray
    index: np.ndarray
    values: np.ndarray
    weights: np.ndarray | None
    n_labels: int

    @classmethod
    def collect(
        cls,
        inputs: Sequence[LearnedInput],
        labelled: np.ndarray,
        known: np.ndarray,
        labels: np.ndarray,
        soft_targets: SoftTargets | None,
    ) -> _Targets:
        """Return the known labels and, for the entities that are not labelled, categories with their probabilities.

        Args:
            labels: the labels of the known entities.
        """
        rows, n = np.flatnonzero(known), len(labels)
        if soft_targets is None:
            return cls(inputs, rows, np.arange(n), labels, None, n)
        probabilities = soft_targets(known)
        entity, category = np.nonzero(probabilities >= MIN_SOFT_WEIGHT)
        return cls(
            inputs,
            np.concatenate((rows, np.flatnonzero(~labelled))),
            np.concatenate((np.arange(n), n + entity)),
            np.concatenate((labels, category)),
            np.concatenate((np.ones(n), probabilities[entity, category])),
            n,
        )

    @cached_property
    def linear(self) -> tuple[Encoder, Matrix]:
        """The fitted encoder, and the matrix of the targets for linear estimators, shape (n_targets, n_columns)."""
        return self._encode(is_linear=True)

    @cached_property
    def table(self) -> tuple[Encoder, Matrix]:
        """The fitted encoder, and the matrix of the targets for ensembles of trees, shape (n_targets, n_columns)."""
        return self._encode(is_linear=False)

    def _encode(self, is_linear: bool) -> tuple[Encoder, Matrix]:
        encoder = Encoder.fit(self.inputs, self.rows, is_linear=is_linear)
        matrix = encoder.transform(self.inputs, self.rows)
        return encoder, matrix if self.weights is None else matrix[self.index]


@dataclass(frozen=True, eq=False)
class _Trial:
    """An estimator that may be chosen."""

    feature: Feature
    spec: EstimatorSpec
    kind: str
    n_categories: int
    seed: int

    def fit(self, targets: _Targets) -> FittedEstimator:
        """Fit the estimator to the targets of some entities.

        Raises:
            UsageError: if the targets have weights, and the estimator does not accept weights (E437).
            DataError: if the estimator cannot be fitted (E439).
        """
        model = self.spec.build(self.kind, self.seed)
        values, weights = targets.values, {}
        if self.kind == "classifier":
            values = values.astype(np.int64)
            if len(distinct(values)) == 1:
                model = EstimatorSpec("DummyClassifier").build(
                    self.kind, self.seed
                )  # many classifiers need two classes
            elif (
                model.get_params(deep=False).get("early_stopping") == "auto"
                and np.bincount(values)[np.unique(values)].min() < 2
            ):
                model.set_params(early_stopping=False)  # boosting cannot divide the only label of a class
        if targets.weights is not None:
            if not accepts_weights(model):
                message = f"the estimator '{self.spec}' does not accept the weights of targets, which 'joint' needs"
                hint = "use 'linear' or 'boosting', or remove 'joint'"
                raise UsageError(Diagnostic("E437", message, self.feature.span, hint))
            weights = {"sample_weight": targets.weights}
        with self.reported_errors("cannot be fitted to these inputs"):
            encoder, matrix = targets.table if accepts_missing(model) else targets.linear
        if "categorical_features" in model.get_params(deep=False) and not encoder.is_linear:
            model.set_params(categorical_features=encoder.categorical_columns)
        with self.reported_errors("cannot be fitted"), warnings.catch_warnings(), seeded(model, self.seed):
            warnings.simplefilter("ignore")  # a worse fit has a worse out-of-fold loss, which is reported
            model.fit(_dense_if_needed(model, matrix), values, **weights)
        return FittedEstimator(self.spec, encoder, model, targets.n_labels)

    @contextmanager
    def reported_errors(self, problem: str) -> Iterator[None]:
        """Raise the exceptions of an estimator as DataError."""
        try:
            yield
        except RelcrfError:
            raise
        except Exception as error:  # an estimator may raise any exception
            message = f"the estimator '{self.spec}' of '{self.feature.name}' {problem}"
            hint = "choose another estimator after 'using', or other inputs"
            notes = (f"{type(error).__name__}: {error}",)
            raise DataError(Diagnostic("E439", message, self.feature.span, hint, notes)) from error


def accepts_missing(model: Any) -> bool:
    """Return True if an estimator accepts NaN; such estimators are ensembles of trees, which need no scaled inputs."""
    from sklearn.utils import get_tags

    return bool(get_tags(model).input_tags.allow_nan)


def accepts_weights(model: Any) -> bool:
    """Return True if the method `fit` of an estimator accepts weights of the targets."""
    from sklearn.utils.validation import has_fit_parameter

    return bool(has_fit_parameter(model, "sample_weight"))


def _dense_if_needed(model: Any, matrix: Any) -> Matrix:
    from sklearn.utils import get_tags

    return matrix.toarray() if issparse(matrix) and not get_tags(model).input_tags.sparse else matrix


def _error(kind: str, labels: np.ndarray, raw: np.ndarray) -> float:
    """Return the mean squared error of predictions, or the mean log loss of log-probabilities at the best temperature."""
    if kind == "regressor":
        return float(np.mean((raw[:, 0] - labels) ** 2))
    codes = labels.astype(np.int64)
    exact = np.zeros(len(codes))
    return _log_loss(raw, codes, _fit_temperature(raw, codes, exact), exact)


def _log_loss(log_probabilities: np.ndarray, codes: np.ndarray, temperature: float, smoothing: np.ndarray) -> float:
    """Return the mean log loss of scores that are divided by a temperature.

    Args:
        smoothing: probability of the other categories in the target of each label, shape (n,).
    """
    scaled = log_probabilities / temperature
    scaled = scaled - scaled.max(axis=1, keepdims=True)
    losses = np.log(np.exp(scaled).sum(axis=1, keepdims=True)) - scaled
    true_loss = losses[np.arange(len(codes)), codes]
    mean_other = (losses.sum(axis=1) - true_loss) / max(1, losses.shape[1] - 1)
    return float(np.mean((1 - smoothing) * true_loss + smoothing * mean_other))


def _fit_temperature(log_probabilities: np.ndarray, codes: np.ndarray, smoothing: np.ndarray) -> float:
    """Return the temperature in `TEMPERATURE_LIMITS` with the smallest log loss."""
    bounds = tuple(np.log(TEMPERATURE_LIMITS))
    found = scipy.optimize.minimize_scalar(
        lambda t: _log_loss(log_probabilities, codes, float(np.exp(t)), smoothing), bounds=bounds, method="bounded"
    )
    return float(np.exp(found.x))


def _platt_smoothing(codes: np.ndarray) -> np.ndarray:
    """Return 1 / (n + 2) for each label, where n is the number of labels of its category (Platt 1999).

    Without it, the temperature of a few labels that are all predicted correctly would be almost 0.
    """
    return np.asarray(1.0 / (np.bincount(codes)[codes] + 2.0))
