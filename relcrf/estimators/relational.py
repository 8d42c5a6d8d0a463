"""Scikit-learn estimators for relational models; they predict data frames for tables, or labels for keys of entities."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from relcrf import api
from relcrf.api import Model
from relcrf.backends.registry import DEFAULT_BACKEND
from relcrf.data.column_texts import column_texts
from relcrf.data.frame import Frame
from relcrf.data.given_data import to_dataset
from relcrf.errors import DataError, Diagnostic, UsageError, listing, suggestion
from relcrf.grounding.derive import Progress
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.model.types import BOOL_VALUES
from relcrf.prediction import Prediction, find_variable_block
from relcrf.progress_reporting import progress_monitor
from relcrf.proposal.draft import propose_model

ESTIMATOR_PARAMETERS = ("model", "backend", "attribute", "tables")
"""Names of the estimator's parameters; all other parameters are settings of the backend."""


class AbstractRelationalEstimator(BaseEstimator, ABC):  # type: ignore[misc, unused-ignore]
    """The parameters, the ground graph and the pickling of `RelationalCRF` and `RelationalCRFRegressor`."""

    predicts_numbers: ClassVar[bool]
    """Whether the attribute is a number."""

    settings: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        model: Model | str | os.PathLike[str] | None = None,
        backend: str = DEFAULT_BACKEND,
        *,
        attribute: str | None = None,
        tables: Any = None,
        **settings: Any,
    ) -> None:
        self.model = model
        self.backend = backend
        self.attribute = attribute
        self.tables = tables
        if settings:  # scikit-learn permits no other attribute after `__init__` than the parameters
            self.settings = settings

    # Parameters

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the representation, followed by the proposed model if `fit` has proposed one."""
        text = str(super().__repr__(N_CHAR_MAX))
        proposal = getattr(self, "_proposal", "")
        return f"{text}: {proposal}" if proposal else text

    def _with_table_inputs(self, tags: Any) -> Any:
        """Return scikit-learn's tags of the estimator; X contains tables, or keys of entities."""
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = tags.input_tags.string = tags.input_tags.dict = True
        tags.target_tags.required = self.tables is not None
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the ground graph, which has a connection to a database and is built again."""
        return {name: value for name, value in super().__getstate__().items() if name != "_grounding"}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters and settings by name."""
        return {**{name: getattr(self, name) for name in ESTIMATOR_PARAMETERS}, **self.settings}

    def set_params(self, **params: Any) -> Self:
        """Change parameters and settings; settings are validated by `fit`."""
        for name, value in params.items():
            if name in ESTIMATOR_PARAMETERS:
                setattr(self, name, value)
            else:
                self.settings = {**self.settings, name: value}
        return self

    # Learning and predicting

    def _learn(self, X: Any, y: Any) -> Self:
        """Learn the weights; see `fit`."""
        with progress_monitor() as watch:
            if self.tables is None:
                grounding = self._ground(X, watch.report_grounding)
            else:
                grounding = self._ground(self.tables, watch.report_grounding, lambda g: self._with_labels(g, X, y))
        if self.tables is None:
            tables = grounding.bound.dataset.tables.values()
            self.feature_names_in_ = np.array([f"{t.name}.{c}" for t in tables for c in t.columns], dtype=object)
            self.fit_ = api.fit(self.model_, grounding, self.backend, **self.settings)
            return self
        self._grounding = self._with_labels(grounding, X, y)
        self._states, self._numbers = self._grounding.states, self._grounding.given_numbers
        block = self._block(grounding)
        self._attribute = block.name
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array([_key_column(X, block.argument_names[0])], dtype=object)
        self.fit_ = api.fit(self.model_, self._grounding, self.backend, **self.settings)
        return self

    def _with_labels(self, grounding: Grounding, X: Any, y: Any) -> Grounding:
        """Return the ground graph without other labels of the attribute than those of the keys `X`.

        Raises:
            DataError: if `y` does not contain a label for each key, a label is not a value of the attribute, or a key has
                different labels.
        """
        block = self._block(grounding)
        variables = _find_variables(grounding, block, X)
        labels = _label_array(y, len(variables))
        found, numbers = self._read_labels(block, labels)
        _require_equal_labels(grounding, variables, found if numbers is None else numbers)
        states = grounding.states.copy()
        states[block.start : block.start + block.count] = -1
        states[variables] = found
        given = None
        if numbers is not None:
            given = grounding.numbers.copy()
            given[block.start : block.start + block.count] = np.nan
            given[variables] = numbers
        return replace(grounding, states=states, given_numbers=given)

    @abstractmethod
    def _read_labels(self, block: VariableBlock, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the states of labels, shape (n,), and their numbers if the attribute is a number.

        Raises:
            DataError: if a label is not a value of the attribute.
        """

    def _predict_keys(self, X: Any) -> tuple[Prediction, str, np.ndarray]:
        """Return the prediction without the labels of the keys, the attribute, and the row of each key in the prediction."""
        grounding = self._training_grounding()
        block = self._block(grounding)
        variables = _find_variables(grounding, block, X)
        hidden = np.zeros(grounding.graph.n_variables, dtype=bool)
        hidden[variables] = True
        prediction = api.predict(self.fit_, grounding, hidden=hidden)
        return prediction, block.name, np.searchsorted(prediction.variables(block.name), variables)

    def _predict_frames(self, X: Any, *, with_probabilities: bool) -> Any:
        """Return frames of predictions.

        Args:
            with_probabilities: whether the frames contain the probability of each value.
        """
        prediction = self.fit_.predict(X)
        make = _frame_converter(X, getattr(self, "_sklearn_output_config", {}).get("transform"))
        names = prediction.attributes if self.attribute is None else [self.attribute]
        frames = {name: make(prediction.table(name, with_probabilities=with_probabilities)) for name in names}
        return next(iter(frames.values())) if len(frames) == 1 else frames

    def _ground(
        self,
        tables: Any,
        progress: Progress,
        with_known_labels: Callable[[Grounding], Grounding] = lambda grounding: grounding,
    ) -> Grounding:
        """Ground the model on the tables; without a model, propose one first, in which no other labels are used."""
        self._proposal = ""
        if self.model is None:
            draft = propose_model(tables, self.attribute, progress, with_known_labels)
            self._proposal, self.model_ = str(draft), draft.model
            return draft.grounding
        self.model_ = self.model if isinstance(self.model, Model) else api.load(self.model)
        return self.model_.ground(tables, progress=progress)

    def _training_grounding(self) -> Grounding:
        """Return the ground graph of `tables` with the labels of the last `fit`; after unpickling, it is built again.

        Raises:
            DataError: if the tables have changed.
        """
        if "_grounding" not in self.__dict__:
            grounding = self.fit_.ground(to_dataset(self.tables, self.model_.spec, self.fit_.learned.mapping))
            if len(grounding.states) != len(self._states):
                message = (
                    f"the tables have {len(grounding.states):,} variables and had {len(self._states):,} in training"
                )
                raise DataError(Diagnostic("E366", message, hint="fit the estimator again"))
            self._grounding = replace(grounding, states=self._states, given_numbers=self._numbers)
        return self._grounding

    def _block(self, grounding: Grounding) -> VariableBlock:
        block = find_variable_block(grounding, self.attribute)
        if block.is_numeric != self.predicts_numbers:
            message = f"'{block.name}' is {'' if block.is_numeric else 'not '}a number"
            other = "RelationalCRFRegressor" if block.is_numeric else "RelationalCRF"
            raise UsageError(Diagnostic("E379", message, hint=f"use {other}, or name another attribute"))
        if block.attribute is None:
            raise UsageError(
                Diagnostic("E310", f"'{block.name}' is not an attribute", hint="name an attribute of an entity")
            )
        return block


class RelationalCRF(ClassifierMixin, TransformerMixin, AbstractRelationalEstimator):  # type: ignore[misc, unused-ignore]
    """An estimator that trains a relational model with a backend.

    Without `tables`, X is a whole dataset: a mapping of data frames, a folder or a `Dataset`. `fit` learns from the labels
    in X and ignores y; `predict` predicts the missing values in X. With `tables`, X contains keys of entities in these
    tables, and y contains the labels of these entities, so that scikit-learn can split the entities (`cross_val_score`,
    `GridSearchCV`). The labels of other entities are not used.

    Fitted estimators can be pickled. They contain the model as the files of a run folder, and `tables` as the path of the
    tables or as data frames.

    Args:
        model: a `Model`, or the path of a `.rcrf` file; with None, a model is proposed for the tables, as by `relcrf new`.
        backend: name of the backend; `auto` compares the other backends on held-out labels, and chooses the settings, so
            that settings need the name of another backend.
        attribute: name of the predicted attribute, such as `Page.category`; required if the model predicts several
            attributes. A proposed model predicts this attribute.
        tables: dataset with the entities whose keys are in X, or None.
        settings: settings of the backend, such as `l2=0.5`.

    Attributes:
        model_: the given or proposed `Model`; `str(model_)` returns the text of the model.
        fit_: the result of `relcrf.fit`: the model with learned weights.
        classes_: the values of the attribute, sorted as scikit-learn sorts labels; only with `tables`.
        feature_names_in_: the columns of the tables, as `table.column`; with `tables`, the column with the keys if X in `fit`
            is a data frame.
    """

    predicts_numbers = False

    def __sklearn_tags__(self) -> Any:
        return self._with_table_inputs(super().__sklearn_tags__())

    def fit(self, X: Any, y: Any = None) -> RelationalCRF:
        """Learn the weights; see the class for X and y.

        Raises:
            ModelError: if the model has errors.
            DataError: if the tables have errors, a key or label is unknown, or X and y differ in length.
            UsageError: if a parameter or setting is invalid.
        """
        return self._learn(X, y)

    def _read_labels(self, block: VariableBlock, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        texts = _label_texts(block, y)
        states = _label_codes(block, texts)
        values = _convert_values(block.values, texts, y.tolist())
        self._order = np.array(_sort_order(values.tolist()))
        self.classes_ = values[self._order]
        return states, None

    def predict(self, X: Any) -> Any:
        """Return the most probable values.

        Returns:
            With `tables`, the label of each key, shape (n,). Otherwise, a data frame of the same library as X with one row
            for each missing value. Its columns are the key and the value, named as in the model, and `probability`. If the
            model predicts several attributes and `attribute` is None, a mapping of such data frames by attribute.
        """
        check_is_fitted(self, "fit_")
        if self.tables is not None:
            return self.classes_[self.predict_proba(X).argmax(axis=1)]
        return self._predict_frames(X, with_probabilities=False)

    def predict_proba(self, X: Any) -> Any:
        """Return probabilities, shape (n, n_classes); without `tables`, the data frames of `predict` plus columns `p_...`."""
        check_is_fitted(self, "fit_")
        if self.tables is None:
            return self._predict_frames(X, with_probabilities=True)
        prediction, attribute, rows = self._predict_keys(X)
        return prediction.probabilities(attribute)[rows][:, self._order]

    def transform(self, X: Any) -> Any:
        """Return the probabilities of `predict_proba` as features for the next step of a pipeline.

        Raises:
            UsageError: the estimator has no `tables`, so that X does not have a row for each entity.
        """
        if self.tables is None:
            message = "probabilities as features need an estimator with 'tables'"
            raise UsageError(Diagnostic("E366", message, hint="pass tables=..., and keys of entities as X"))
        return self.predict_proba(X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the name of each probability, such as `Page.category=course`, shape (n_classes,)."""
        check_is_fitted(self, "classes_")
        return np.array([f"{self._attribute}={value}" for value in self.classes_], dtype=object)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy for the keys in X or, without `tables`, for all observed labels of X.

        Without `tables`, all of these labels are hidden during prediction.

        Raises:
            DataError: if a key or label is unknown, or X and y differ in length.
            UsageError: `sample_weight` is passed without `tables`.
        """
        check_is_fitted(self, "fit_")
        if self.tables is not None:
            states = self._order[self.predict_proba(X).argmax(axis=1)]
            block = self._block(self._training_grounding())
            labels = _label_codes(block, _label_texts(block, _label_array(y, len(states))))
            return float(np.average(states == labels, weights=sample_weight))
        _require_no_weights(sample_weight)
        grounding = self.fit_.ground(X)
        prediction = api.predict(self.fit_, grounding, hidden=grounding.states >= 0)
        return prediction.score(self.attribute).accuracy


class RelationalCRFRegressor(RegressorMixin, AbstractRelationalEstimator):  # type: ignore[misc, unused-ignore]
    """An estimator that trains a relational model of a number with a backend.

    X, y, the parameters and the attributes are those of `RelationalCRF`, without `classes_`. A model is proposed only if
    `attribute` names the number.
    """

    predicts_numbers = True

    def __sklearn_tags__(self) -> Any:
        return self._with_table_inputs(super().__sklearn_tags__())

    def fit(self, X: Any, y: Any = None) -> RelationalCRFRegressor:
        """Learn the weights; see the class for X and y.

        Raises:
            ModelError: if the model has errors.
            DataError: if the tables have errors, a key is unknown, a label is not a number, or X and y differ in length.
            UsageError: if a parameter or setting is invalid, or the attribute is not a number.
        """
        return self._learn(X, y)

    def _read_labels(self, block: VariableBlock, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        try:
            numbers = y.astype(np.float64)
        except (TypeError, ValueError):
            numbers = np.array([np.nan])
        if y.dtype.kind in "mM" or not np.isfinite(numbers).all():  # NumPy converts times to microseconds
            message = f"a label of {block.name} is not a finite number"
            raise DataError(Diagnostic("E366", message, hint="pass one number for each key"))
        return np.zeros(len(numbers), dtype=np.int32), numbers

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the expected values.

        Args:
            return_std: whether to return the standard deviations, too; only with `tables`.

        Returns:
            With `tables`, the expected value of each key, shape (n,). Otherwise, a data frame of the same library as X with one
            row for each missing value; see `Prediction.table`.
        """
        check_is_fitted(self, "fit_")
        if self.tables is None:
            return self._predict_frames(X, with_probabilities=False)
        prediction, attribute, rows = self._predict_keys(X)
        means = prediction.means(attribute)[rows]
        return (means, prediction.deviations(attribute)[rows]) if return_std else means

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R2 for the keys in X or, without `tables`, for all observed numbers of X.

        Without `tables`, all observed values are hidden during prediction.

        Raises:
            UsageError: `sample_weight` is passed without `tables`.
        """
        check_is_fitted(self, "fit_")
        if self.tables is not None:
            return float(super().score(X, y, sample_weight))
        _require_no_weights(sample_weight)
        grounding = self.fit_.ground(X)
        block = self._block(grounding)
        prediction = api.predict(self.fit_, grounding, hidden=grounding.states >= 0)
        variables = prediction.variables(block.name)
        observed = grounding.states[variables] >= 0
        return float(r2_score(grounding.numbers[variables[observed]], prediction.means(block.name)[observed]))


_FRAME_CONVERTERS: dict[str, Callable[[Frame], Any]] = {
    "pandas": Frame.to_pandas,
    "polars": Frame.to_polars,
    "pyarrow": Frame.to_arrow,
    "duckdb": Frame.to_arrow,
}
"""Methods that convert a `Frame` to a data frame of another library, by the package of the input tables."""


def _frame_converter(data: Any, library: str | None) -> Callable[[Frame], Any]:
    """Return the function that converts a `Frame` to a library.

    Args:
        library: The library that `set_output` chose; if None or `default`, that of the first data frame in `data`, if any.

    Raises:
        UsageError: The library is unknown.
    """
    if library is not None and library != "default":
        if library not in _FRAME_CONVERTERS:
            message = f"the output of `set_output` cannot be '{library}'"
            raise UsageError(Diagnostic("E305", message, hint=f"use one of {listing(['default', *_FRAME_CONVERTERS])}"))
        return _FRAME_CONVERTERS[library]
    tables = data.values() if isinstance(data, Mapping) else (data,)
    packages = (type(table).__module__.partition(".")[0] for table in tables)
    return next((_FRAME_CONVERTERS[name] for name in packages if name in _FRAME_CONVERTERS), lambda frame: frame)


def _key_column(X: Any, key: str) -> Any:
    """Return the name of the column with the keys: `key`, or the first column."""
    return key if key in X.columns else X.columns[0]


def _key_texts(X: Any, key: str, known: Collection[str]) -> list[str]:
    """Return the keys as strings, from the column named `key` or from the only column.

    Raises:
        DataError: if X is a single value, or has an unsupported type.
    """
    column = X[_key_column(X, key)] if hasattr(X, "columns") else X
    cells = np.asarray(column, dtype=object)
    if not cells.ndim:
        message = f"X has type {type(X).__name__} and is not a list of keys"
        raise DataError(Diagnostic("E366", message, hint="pass a list, an array or a data frame with the key column"))
    return _known_texts("X", column if cells.ndim == 1 else cells[:, 0], known)


def _known_texts(name: str, cells: Any, known: Collection[str]) -> list[str]:
    """Return the text of each cell that is in `known`: that of Python, or else that of tables, such as `2` for 2.0.

    Args:
        name: Name of the cells in messages.

    Raises:
        DataError: if the cells have an unsupported type.
    """
    known = set(known)
    texts = [str(cell) for cell in np.asarray(cells, dtype=object).tolist()]
    if known.issuperset(texts):
        return texts
    in_table = column_texts(name, cells)
    return [text if text in known else other or text for text, other in zip(texts, in_table, strict=True)]


def _find_variables(grounding: Grounding, block: VariableBlock, X: Any) -> np.ndarray:
    """Return the index of the variable of each key's entity.

    Raises:
        DataError: if a key is unknown.
    """
    known = grounding.argument_texts(block)[0].tolist()
    message = f"unknown key '{{}}' of {block.owner}"
    texts = _key_texts(X, block.argument_names[0], known)
    indices = _find_positions(texts, known, message, "X contains keys of entities in `tables`")
    return block.start + indices


def _require_no_weights(sample_weight: Any) -> None:
    """Require that `score` has no weights of samples, which belong to keys.

    Raises:
        UsageError: if there are weights.
    """
    if sample_weight is not None:
        message = "weights of samples need an estimator with 'tables'"
        raise UsageError(Diagnostic("E366", message, hint="pass tables=..., and keys of entities as X"))


def _label_array(y: Any, n_keys: int) -> np.ndarray:
    """Return the labels as an array of shape (n_keys,).

    Raises:
        DataError: if `y` does not contain a label for each key.
    """
    labels = np.asarray([] if y is None else y)
    if labels.dtype.kind == "M":
        labels = labels.astype("datetime64[us]")  # `tolist` returns integers for nanoseconds
    if labels.shape != (n_keys,):
        found = f"{len(labels):,} labels" if labels.ndim == 1 else f"the shape {labels.shape}"
        raise DataError(
            Diagnostic("E366", f"X has {n_keys:,} keys and y has {found}", hint="pass one label for each key")
        )
    return labels


def _require_equal_labels(grounding: Grounding, variables: np.ndarray, labels: np.ndarray) -> None:
    """Require that a key that occurs several times, as in a bootstrap sample, has the same label each time.

    Raises:
        DataError: if a key has different labels.
    """
    _, first, inverse = np.unique(variables, return_index=True, return_inverse=True)
    if (different := np.flatnonzero(labels != labels[first[inverse]])).size:
        (name,) = grounding.variable_names(variables[different[:1]])
        message = f"X contains the key of {name} more than once, with different labels"
        raise DataError(Diagnostic("E366", message, hint="pass one label for each entity"))


def _label_texts(block: VariableBlock, y: np.ndarray) -> list[str]:
    """Return the value of the attribute that each label denotes; 0 and 1 may be truth values.

    Raises:
        DataError: if the labels have an unsupported type.
    """
    texts = _known_texts("y", y, block.values)
    if tuple(block.values) != BOOL_VALUES:
        return texts
    return [BOOL_VALUES[int(text)] if text in ("0", "1") else text for text in texts]


def _label_codes(block: VariableBlock, texts: Sequence[str]) -> np.ndarray:
    """Return the state index of each label.

    Raises:
        DataError: if a label is not a value of the attribute.
    """
    message = f"'{{}}' is not a value of {block.name}"
    return _find_positions(texts, block.values, message, f"the values are {listing(block.values)}").astype(np.int32)


def _find_positions(texts: Sequence[str], values: Sequence[str], message: str, hint: str) -> np.ndarray:
    """Return the index of each text in the sequence `values`.

    Raises:
        DataError: if a text is unknown; `message` has a placeholder for the first such text.
    """
    position = {text: k for k, text in enumerate(values)}
    unknown = next((text for text in texts if text not in position), None)
    if unknown is not None:
        raise DataError(Diagnostic("E366", message.format(unknown), hint=suggestion(unknown, values) or hint))
    return np.array([position[text] for text in texts], dtype=np.int64)


def _convert_values(values: Sequence[str], texts: Sequence[str], y: Sequence[Any]) -> np.ndarray:
    """Convert the values of an attribute to the type of the labels; values that cannot be converted remain strings.

    Args:
        texts: The value that each label in `y` denotes.
    """
    labels = dict(zip(texts, y, strict=True))
    kind = type(next(iter(labels.values()), ""))
    converted = [labels[value] if value in labels else _convert_value(kind, value) for value in values]
    return np.array(converted, dtype=None if len({type(value) for value in converted}) == 1 else object)


def _sort_order(values: list[Any]) -> list[int]:
    """Return the indices that sort values as scikit-learn does, with strings after numbers."""
    return sorted(range(len(values)), key=lambda k: (isinstance(values[k], str), values[k]))


def _convert_value(kind: type, value: str) -> Any:
    if value in BOOL_VALUES and issubclass(kind, int | float):
        return kind(value == "true")
    try:
        return kind(value)
    except (TypeError, ValueError):  # e.g. a date is not made from a text
        return value
