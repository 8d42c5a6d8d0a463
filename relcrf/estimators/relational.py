"""A relational model as an estimator of scikit-learn: tables in, frames out; or keys of things in, labels out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from relcrf import api
from relcrf.api import Model
from relcrf.data.dataset import Dataset
from relcrf.data.frame import Frame
from relcrf.errors import DataError, Diagnostic, UsageError, listing, suggestion
from relcrf.grounding.derive import Progress
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.prediction import find_variable_block
from relcrf.progress_reporting import progress_monitor
from relcrf.proposal.draft import ModelDraft, propose_model

ESTIMATOR_PARAMETERS = ("model", "backend", "attribute", "tables")
"""Parameters of the estimator; all others are settings of the backend."""


class RelationalCRF(ClassifierMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """A relational model with a backend.

    Without `tables`, X is a whole dataset: a mapping of data frames, a folder or a `Dataset`; what it labels is learned from,
    what it leaves open is predicted, and y is not looked at. With `tables`, X are keys of things in them and y their labels,
    so that rows can be dealt as scikit-learn deals them (`cross_val_score`, `GridSearchCV`): the labels of all other things
    are hidden, whatever the tables say.

    Args:
        model: a `Model`, or the path of a `.rcrf` file; without one, the tables are looked at as `relcrf new` does, and a first
            model is proposed.
        backend: the system that learns.
        attribute: what is predicted, such as `Page.category`; needed where the model predicts several. A proposed model predicts
            this.
        tables: see above.
        settings: of the backend, such as `l2=0.5`.

    Attributes:
        model_: the model that was fitted, the given or the proposed one; it prints as its text.
        fit_: the trained model.
        classes_: the values of the attribute in their order as labels, where `tables` are given.
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str] | None = None,
        backend: str = "ess",
        *,
        attribute: str | None = None,
        tables: Any = None,
        **settings: Any,
    ) -> None:
        self.model = model
        self.backend = backend
        self.attribute = attribute
        self.tables = tables
        self.settings = settings

    # Parameters

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """With what a fit without a model has proposed."""
        own = str(super().__repr__(N_CHAR_MAX))
        proposal = getattr(self, "_proposal", None)
        return own if proposal is None else f"{own}: {proposal}"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters and settings by name."""
        return {**{name: getattr(self, name) for name in ESTIMATOR_PARAMETERS}, **self.settings}

    def set_params(self, **params: Any) -> RelationalCRF:
        """Changes parameters and settings; what a setting may be is said when the backend gets it."""
        for name, value in params.items():
            if name in ESTIMATOR_PARAMETERS:
                setattr(self, name, value)
            else:
                self.settings = {**self.settings, name: value}
        return self

    # Learning and predicting

    def fit(self, X: Any, y: Any = None) -> RelationalCRF:
        """Learns; see the class for X and y.

        Raises:
            ModelError, DataError, UsageError: as the model, the tables and the settings have mistakes.
        """
        with progress_monitor() as watch:
            grounding = self._ground(_to_dataset(X if self.tables is None else self.tables), watch.report_grounding)
        if self.tables is None:
            self.fit_ = api.fit(self.model_, grounding, self.backend, **self.settings)
            return self
        block = self._block(grounding)
        variables = _find_variables(grounding, block, X)
        if y is None or len(y) != len(variables):
            message = f"there are {len(variables):,} keys and {0 if y is None else len(y):,} labels"
            raise DataError(Diagnostic("E366", message, hint="give y a label for each key"))
        states = grounding.states.copy()
        states[block.start : block.start + block.count] = -1
        states[variables] = _label_codes(block, y)
        self._grounding, self._attribute = replace(grounding, states=states), block.name
        values = _convert_values(block.values, y)
        self._order = np.array(_sort_order(values.tolist()))
        self.classes_ = values[self._order]
        self.fit_ = api.fit(self.model_, self._grounding, self.backend, **self.settings)
        return self

    def predict(self, X: Any) -> Any:
        """The most probable values.

        Returns:
            with `tables`, the labels of the keys, shape (n,). Without, a frame of the kind of X with a row for each missing
            value, `key` and `value` called as in the model, and the `probability`; a mapping of these where several
            attributes are predicted and none is named.
        """
        check_is_fitted(self, "fit_")
        if self.tables is not None:
            return self.classes_[self.predict_proba(X).argmax(axis=1)]
        return self._predict_frames(X, with_each=False)

    def predict_proba(self, X: Any) -> Any:
        """As `predict`, with the probability of each value: an array of shape (n, n_classes), or frames with columns `p_...`."""
        check_is_fitted(self, "fit_")
        if self.tables is None:
            return self._predict_frames(X, with_each=True)
        grounding = self._grounding
        block = self._block(grounding)
        variables = _find_variables(grounding, block, X)
        hidden = np.zeros(grounding.graph.n_variables, dtype=bool)
        hidden[variables] = True
        found = api.predict(self.fit_, grounding, hidden=hidden)
        rows = np.searchsorted(found.variables(block.name), variables)
        return found.probabilities(block.name)[rows][:, self._order]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy: of the labels of keys; or, without `tables`, of all known labels of X, each attribute's hidden together."""
        check_is_fitted(self, "fit_")
        if self.tables is not None:
            return float(np.average(self.predict(X) == np.asarray(y), weights=sample_weight))
        grounding = self.fit_.ground(_to_dataset(X))
        found = api.predict(self.fit_, grounding, hidden=grounding.states >= 0)
        return found.score(self.attribute).accuracy

    def _predict_frames(self, X: Any, *, with_each: bool) -> Any:
        """Args: with_each: the probability of each value, too."""
        found = self.fit_.predict(_to_dataset(X))
        make = _frame_converter(X)
        names = found.attributes if self.attribute is None else [self.attribute]
        frames = {name: make(found.table(name, with_probabilities=with_each)) for name in names}
        return next(iter(frames.values())) if len(frames) == 1 else frames

    def _ground(self, data: Dataset, progress: Progress) -> Grounding:
        """The model on the tables; without a model, one that is proposed for them."""
        self._proposal: ModelDraft | None = None
        if self.model is None:
            self._proposal = propose_model(data, self.attribute, progress)
            self.model_ = self._proposal.model
            return self._proposal.grounding
        self.model_ = self.model if isinstance(self.model, Model) else api.load(self.model)
        return self.model_.ground(data, progress=progress)

    def _block(self, grounding: Grounding) -> VariableBlock:
        block = find_variable_block(grounding, self.attribute)
        if block.attribute is None:
            raise UsageError(
                Diagnostic("E310", f"'{block.name}' is not an attribute", hint="name an attribute of an entity")
            )
        return block


_FRAME_CONVERTERS: dict[str, Callable[[Frame], Any]] = {
    "pandas": Frame.to_pandas,
    "polars": Frame.to_polars,
    "pyarrow": Frame.to_arrow,
    "duckdb": Frame.to_arrow,
}
"""Functions that convert frames, by the package of the result."""


def _frame_converter(given: Any) -> Callable[[Frame], Any]:
    """Return the function that converts a frame to the kind of the first data frame among some tables, if there is one."""
    tables = given.values() if isinstance(given, Mapping) else ()
    packages = (type(table).__module__.partition(".")[0] for table in tables)
    return next((_FRAME_CONVERTERS[name] for name in packages if name in _FRAME_CONVERTERS), lambda frame: frame)


def _to_dataset(tables: Any) -> Dataset:
    return tables if isinstance(tables, Dataset) else Dataset(tables)


def _key_texts(X: Any, key: str) -> list[str]:
    """Keys as text: of a column of that name, or of the only column."""
    column = X[key] if hasattr(X, "columns") and key in X.columns else X
    cells = np.asarray(column, dtype=object)
    return [str(cell) for cell in (cells if cells.ndim == 1 else cells[:, 0]).tolist()]


def _find_variables(grounding: Grounding, block: VariableBlock, X: Any) -> np.ndarray:
    """The variables of some keys.

    Raises:
        DataError: for an unknown key.
    """
    (texts,) = grounding.argument_texts(block)
    message = f"there is no {block.owner} '{{}}' in the tables"
    found = _find_positions(
        _key_texts(X, block.argument_names[0]), texts.tolist(), message, "X are keys of things in `tables`"
    )
    return block.start + found


def _label_codes(block: VariableBlock, y: Any) -> np.ndarray:
    """The states of labels.

    Raises:
        DataError: for a label that the attribute does not have.
    """
    texts = [_label_text(label) for label in np.asarray(y).tolist()]
    message = f"'{{}}' is no value of {block.name}"
    return _find_positions(texts, block.values, message, f"it takes {listing(block.values)}").astype(np.int32)


def _find_positions(texts: Sequence[str], known: Sequence[str], message: str, hint: str) -> np.ndarray:
    """Return the position of each text among the known ones; the message has a field for the first unknown one."""
    position = {text: k for k, text in enumerate(known)}
    unknown = next((text for text in texts if text not in position), None)
    if unknown is not None:
        raise DataError(Diagnostic("E366", message.format(unknown), hint=suggestion(unknown, known) or hint))
    return np.array([position[text] for text in texts], dtype=np.int64)


def _label_text(label: Any) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)


def _convert_values(values: tuple[str, ...], y: Any) -> np.ndarray:
    """The values of an attribute in the type of the labels; those that this type does not have are texts among them."""
    labels = {_label_text(label): label for label in np.asarray(y).tolist()}
    kind = type(next(iter(labels.values()), ""))
    found = [labels[value] if value in labels else _convert_value(kind, value) for value in values]
    return np.array(found, dtype=None if len({type(value) for value in found}) == 1 else object)


def _sort_order(values: list[Any]) -> list[int]:
    """The order of values as scikit-learn has it; texts behind numbers."""
    return sorted(range(len(values)), key=lambda k: (isinstance(values[k], str), values[k]))


def _convert_value(kind: type, value: str) -> Any:
    if kind is bool:
        return value == "true"
    try:
        return kind(value)
    except ValueError:
        return value
