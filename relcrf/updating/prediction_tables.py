"""Tables of the predictions in the state of a run, in the form and order of `relcrf predict`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from relcrf.data.frame import Frame
from relcrf.model.spec import ModelSpec
from relcrf.prediction import prediction_table
from relcrf.updating.state import ComponentState


def prediction_tables(spec: ModelSpec, state: ComponentState, key_names: Mapping[str, str]) -> dict[str, Frame]:
    """Return the predictions of each attribute as `Prediction.table` does, sorted by the key."""
    tables = {}
    for each in state.predicted:
        owner, _, attribute = each.name.partition(".")
        rows = np.flatnonzero(np.isfinite(each.numbers[:, 0]))
        keys = state.entities.key[rows]
        same_type = [entity.name for entity in spec.entities].index(owner) == state.entities.kind
        order = _key_order(keys, state.entities.key[same_type])
        rows = rows[order]
        numbers = each.numbers[rows]
        tables[each.name] = prediction_table(
            {key_names[owner]: keys[order]}, attribute, each.values, numbers[:, :-1], numbers[:, -1].astype(np.int64)
        )
    return tables


def _key_order(keys: np.ndarray, all_keys: np.ndarray) -> np.ndarray:
    """Return the order of some keys of a type in the tables: numeric if all keys of the type are integers."""
    try:
        numbers = all_keys.astype(np.int64)
    except (ValueError, OverflowError):
        return np.argsort(keys, kind="stable")
    if [*map(str, numbers.tolist())] != all_keys.tolist():
        return np.argsort(keys, kind="stable")
    return np.argsort(keys.astype(np.int64), kind="stable")
