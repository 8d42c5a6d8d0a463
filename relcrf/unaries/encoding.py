"""Encoding of the inputs of learned features as the matrices that estimators of scikit-learn accept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix, hstack, issparse

from relcrf.errors import DataError, Diagnostic
from relcrf.grounding.learned_values import LearnedInput

Matrix: TypeAlias = "np.ndarray | csr_matrix"
"""A matrix with one row per entity; sparse only for linear estimators."""

MAX_CATEGORIES = 254
"""Maximum number of categories of a column in a table; further categories, the rarest, share one. Boosting has 255 bins."""

MIN_REPETITIONS = 5
"""Mean number of entities per distinct text above which a text is a category; other texts are bags of words."""

MAX_WORDS = 500
"""Maximum number of words of a text, the most frequent ones, that are columns of a table."""

N_COMPONENTS = 50
"""Number of columns to which a bag with more values is reduced for estimators of tables, by a truncated SVD. A bag with at
most so many values has a column of counts for each."""


@dataclass(frozen=True)
class Encoder:
    """An encoder of the inputs of one learned feature.

    Args:
        is_linear: whether the matrix is for linear estimators: scaled numbers, indicators of categories, and bags weighted by
            inverse document frequencies. Otherwise it is a table of numbers, NaN if missing, and ordinal categories.
        kinds: the kind of each input; a text that repeats often has the kind `label`.
        widths: number of columns of each input; values of bags that training did not see are ignored.
        scales: number by which each input is divided: for vectors the root mean square of the deviations of all components,
            which have a common unit, otherwise 1.
        transformers: a fitted transformer of scikit-learn for each input.
    """

    is_linear: bool
    kinds: tuple[str, ...]
    widths: tuple[int, ...]
    scales: tuple[float, ...]
    transformers: tuple[Any, ...]

    @classmethod
    def fit(cls, inputs: Sequence[LearnedInput], rows: np.ndarray, *, is_linear: bool) -> Encoder:
        """Return an encoder that is fitted to some entities.

        Raises:
            DataError: if a text has the same value for all entities (E438).
        """
        kinds = tuple(_encoded_kind(each, is_linear) for each in inputs)
        widths = tuple(1 if each.values.ndim == 1 else each.values.shape[1] for each in inputs)
        scales = tuple(_common_scale(each, rows) for each in inputs)
        unfitted = [
            _make_transformer(kind, min(width, len(rows)), is_linear) for kind, width in zip(kinds, widths, strict=True)
        ]
        encoder = cls(is_linear, kinds, widths, scales, tuple(unfitted))
        for transformer, values in zip(unfitted, encoder._select(inputs, rows), strict=True):
            transformer.fit(values)
        return encoder

    def transform(self, inputs: Sequence[LearnedInput], rows: np.ndarray) -> Matrix:
        """Return the matrix of some entities, shape (n_rows, n_columns)."""
        selected = self._select(inputs, rows)
        parts = [transformer.transform(values) for transformer, values in zip(self.transformers, selected, strict=True)]
        if any(issparse(part) for part in parts):
            return csr_matrix(hstack(parts, format="csr"))
        return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts], axis=1)

    def _select(self, inputs: Sequence[LearnedInput], rows: np.ndarray) -> Iterator[Any]:
        """Yield the values of some entities in the form that the transformer of each input accepts."""
        for each, kind, width, scale in zip(inputs, self.kinds, self.widths, self.scales, strict=True):
            values = each.values[rows]
            if kind in ("label", "text"):
                filled = np.array(["" if text is None else text for text in values.tolist()], dtype=object)
                yield filled[:, None] if kind == "label" else filled
            elif kind in ("bag", "weighted bag"):
                yield csr_matrix(values)[:, :width]
            elif issparse(values):
                yield csr_matrix(values)[:, :width].toarray()
            else:
                yield values if scale == 1.0 else values / scale

    @property
    def categorical_columns(self) -> list[bool]:
        """For each column of a table, whether it contains ordinal categories."""
        out: list[bool] = []
        for kind, width, transformer in zip(self.kinds, self.widths, self.transformers, strict=True):
            is_category = kind in ("category", "label")
            if kind == "text":
                width = len(transformer.vocabulary_)
            elif kind in ("bag", "weighted bag"):
                width = transformer[-1].n_components
            out += [is_category] * width
        return out


def is_large_bag(each: LearnedInput) -> bool:
    """Return True if an input is a bag with too many values for a table with a column for each."""
    return each.kind in ("bag", "weighted bag") and each.values.shape[1] > N_COMPONENTS


def _encoded_kind(each: LearnedInput, is_linear: bool) -> str:
    """Return the kind of an input, `label` for a text that repeats often, or `vector` for the counts of a small bag."""
    if each.kind in ("bag", "weighted bag") and not is_linear and not is_large_bag(each):
        return "vector"
    if each.kind != "text":
        return each.kind
    texts = [text for text in each.values.tolist() if text is not None]
    n_distinct = len(set(texts)) + (len(texts) < len(each.values))
    if n_distinct < 2:
        message = f"the input '{each.name}' of a learned feature has the same value for all entities"
        raise DataError(Diagnostic("E438", message, hint="remove it from the inputs, or check the column"))
    return "label" if n_distinct * MIN_REPETITIONS <= len(texts) else "text"


def _common_scale(each: LearnedInput, rows: np.ndarray) -> float:
    """Return the root mean square of the deviations of the components of a vector; 1 for other inputs and constants."""
    if each.kind != "vector":
        return 1.0
    variance = np.nanmean(np.nanvar(each.values[rows], axis=0))
    return float(np.sqrt(variance)) if variance > 0 else 1.0


def _make_transformer(kind: str, width: int, is_linear: bool) -> Any:
    """Return a new transformer of an input.

    Args:
        width: number of columns of the input, but at most the number of entities for the fit.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler

    if kind in ("number", "vector"):
        imputer = SimpleImputer(add_indicator=True, keep_empty_features=True)
        scaler = StandardScaler(with_std=kind == "number")
        return make_pipeline(imputer, scaler) if is_linear else FunctionTransformer()
    if kind in ("category", "label"):
        if is_linear:
            return OneHotEncoder(handle_unknown="ignore")
        return OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=np.nan, max_categories=MAX_CATEGORIES, dtype=np.float64
        )
    if kind == "text":
        # A word of a single text has a large weight in this text, but is not in the texts that are predicted.
        return TfidfVectorizer(token_pattern=r"[^\W_]+", min_df=2, max_features=None if is_linear else MAX_WORDS)
    weights = TfidfTransformer() if kind == "bag" else FunctionTransformer(accept_sparse=True)
    return (
        weights
        if is_linear
        else make_pipeline(weights, TruncatedSVD(max(1, min(N_COMPONENTS, width - 1)), random_state=0))
    )
