"""A scikit-learn classifier with one or several targets; the evidence selects the dependencies between the targets."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from relcrf.api import Model
from relcrf.backends.base import Monitor
from relcrf.backends.inference_result import InferenceResult
from relcrf.backends.registry import make_backend
from relcrf.columns.offsets import offsets
from relcrf.estimators.row_model import RowModel, build_relational_model


class ESSCRFClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """A CRF with evidence-specific structure (ESS-CRF): the evidence of a row selects a tree over the targets of the row.

    Learning and inference on the selected trees are exact. With one target the model is a logistic regression.

    Args:
        l2: strength of the penalty `l2 / 2 * w^2`, relative to the sum (not the mean) of the log-likelihoods; the intercepts of
            the targets are not penalised. With more than two classes, l2 equals 1 / C of `LogisticRegression`; with two
            classes, l2 equals 2 / C, because here each class has separate weights.
        evidence_on_pairs: whether factors over pairs of targets depend on the evidence. If not, each pair has one table for all
            rows, and the evidence influences the selected tree only through the factors of single targets.
        treewidth: treewidth of the graph over the targets; a graph of treewidth 1 is a tree.
        max_iter: maximum number of iterations of the optimiser in each of the two stages of learning.
        tol: relative tolerance; the optimiser stops when the gradient norm falls to this fraction of its initial value.

    Attributes:
        classes_: the classes of the target if y has shape (n,); a list with the classes of each target if y has shape (n, q).
        n_iter_: number of iterations of the optimiser in the longest stage of learning.
        vectors_: the weight vectors; see `backends.ess`.
    """

    def __init__(
        self,
        l2: float = 1.0,
        *,
        evidence_on_pairs: bool = True,
        treewidth: int = 1,
        max_iter: int = 1000,
        tol: float = 1e-5,
    ) -> None:
        self.l2 = l2
        self.evidence_on_pairs = evidence_on_pairs
        self.treewidth = treewidth
        self.max_iter = max_iter
        self.tol = tol

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any) -> ESSCRFClassifier:
        """Learn the weights.

        Args:
            X: evidence, shape (n, d).
            y: classes, shape (n,) or (n, q); the targets may have different types.
        """
        if hasattr(y, "isna") and y.ndim == 2:  # scikit-learn converts all columns beside pandas' categories to numbers
            y = y.astype(object).where(y.notna(), np.nan)
        X, y = validate_data(self, X, y, multi_output=True, dtype=np.float64)
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        columns = [_typed_column(column) for column in np.atleast_2d(y.T)]
        for column in columns:
            check_classification_targets(column)
        encoded = [np.unique(column, return_inverse=True) for column in columns]
        classes = [values for values, _ in encoded]
        self._classes, self._is_single = classes, y.ndim == 1
        self.classes_ = classes[0] if self._is_single else classes
        self._varying_targets = np.flatnonzero([len(values) > 1 for values in classes])
        self._row_model = RowModel(
            tuple(len(classes[k]) for k in self._varying_targets), X.shape[1], bool(self.evidence_on_pairs)
        )
        self.vectors_, self.n_iter_ = {}, 0
        if len(self._varying_targets):
            states = np.column_stack([encoded[k][1].reshape(-1) for k in self._varying_targets])
            learned = self._make_backend().fit(self._row_model.problem(X, states), Monitor())
            self.vectors_ = learned.vectors
            self.n_iter_ = max(state.iteration for _, state in learned.stages)
            if not learned.converged:
                warnings.warn("the optimiser did not converge; increase max_iter", ConvergenceWarning, stacklevel=2)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the jointly most probable classes of the targets of each row, shape (n,) or (n, q)."""
        inferred, n = self._infer(X)
        joint = np.zeros((n, len(self._classes)), dtype=np.int64)
        if inferred is not None:
            inferred.joint_states.verdict.raise_if_interrupted()
            joint[:, self._varying_targets] = inferred.map_states.reshape(n, -1)
        columns = [values[states] for values, states in zip(self._classes, joint.T, strict=True)]
        return columns[0] if self._is_single else np.column_stack(columns)

    def predict_proba(self, X: Any) -> np.ndarray | list[np.ndarray]:
        """Return the probability of each class, shape (n, n_classes); for several targets, a list of such arrays."""
        inferred, n = self._infer(X)
        probabilities = [np.ones((n, 1)) for _ in self._classes]
        if inferred is not None:
            flat = inferred.marginals.reshape(n, -1)
            starts = offsets(self._row_model.cardinalities)
            for target, start, stop in zip(self._varying_targets, starts[:-1], starts[1:], strict=True):
                probabilities[target] = flat[:, start:stop]
        return probabilities[0] if self._is_single else probabilities

    def predict_log_proba(self, X: Any) -> np.ndarray | list[np.ndarray]:
        """Return the logarithms of `predict_proba`."""
        probabilities = self.predict_proba(X)
        return [np.log(p) for p in probabilities] if isinstance(probabilities, list) else np.log(probabilities)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the fraction of rows whose predicted classes are all correct."""
        predicted = self.predict(X)
        is_correct = predicted == np.asarray(y).reshape(predicted.shape)
        rows = is_correct if is_correct.ndim == 1 else is_correct.all(axis=1)
        return float(np.average(rows, weights=sample_weight))

    @property
    def model_(self) -> Model:
        """The equivalent relational model: an entity type `Row` with a vector `x` and targets `t0`, `t1`, ..."""
        check_is_fitted(self)
        return build_relational_model(
            [self._classes[k] for k in self._varying_targets], evidence_on_pairs=bool(self.evidence_on_pairs)
        )

    def _make_backend(self) -> Any:
        return make_backend(
            "ess", l2=self.l2, treewidth=self.treewidth, max_iterations=self.max_iter, tolerance=self.tol
        )

    def _infer(self, X: Any) -> tuple[InferenceResult | None, int]:
        """Return the inference result (None if every target has only one class) and the number of rows."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        if not len(self._varying_targets):
            return None, len(X)
        return self._make_backend().infer(self._row_model.problem(X), self.vectors_), len(X)


def _typed_column(column: np.ndarray) -> np.ndarray:
    """Return a target of a data frame with texts and numbers, which is an array of objects, with the type of its numbers."""
    types = {type(value) for value in column} if column.dtype == object else set()
    return np.array(column.tolist()) if len(types) == 1 and types != {str} else column
