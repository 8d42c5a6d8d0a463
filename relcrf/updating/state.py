"""The state of a run folder from which the next update detects changes: digests of the rows, and the predictions.

A run folder that `relcrf update` wrote contains `update.json`. If later updates can skip unchanged components, it also contains
`entities.parquet`, with the digests and the component of each entity, and `predicted_K.npy`, with the predictions of the k-th
predicted attribute in the order of the entities. `segment_entities.npy` and `segment_totals.npy` contain the cells of the
segments of Parquet tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import numpy as np

from relcrf.backends.damaged_files import damaged_file_error
from relcrf.backends.provenance import TrainingProtocol
from relcrf.backends.run_folder import contained_path
from relcrf.columns.storage import READ_ERRORS, open_column
from relcrf.data.dataset import Dataset
from relcrf.data.frame import Frame
from relcrf.files import write_array, write_text
from relcrf.inference.result import Verdict
from relcrf.json_values import from_json_value
from relcrf.updating.entities import Entities
from relcrf.updating.entity_rows import KnownRows
from relcrf.updating.segments import Segment, parse_segments, segment_arrays
from relcrf.updating.training_digests import Range

FORMAT_VERSION = 1
"""Version of the files; the state of another version is not used."""

STATE, ENTITIES = "update.json", "entities.parquet"
SEGMENT_ENTITIES, SEGMENT_TOTALS = "segment_entities.npy", "segment_totals.npy"


@dataclass(frozen=True)
class PredictedAttribute:
    """The predictions of an attribute for the entities of a state.

    Args:
        values: Values of the attribute, in the order of its states.
        numbers: The probability of each value, and the index of the value in the most probable joint state; shape
            (n_entities, n_values + 1). NaN for entities of other types, and for those with a label.
    """

    name: str
    values: tuple[str, ...]
    numbers: np.ndarray


@dataclass(frozen=True)
class UpdateInputs:
    """The inputs of the digests and predictions of a state, besides the rows of the entities.

    Args:
        duckdb: Version of DuckDB, on which the hashes depend.
        shared: See `EntityRows.shared_inputs`.
        row_counts: Number of rows of each table.
        ranges: Magnitudes of the features; see `training_digests`.
        verdict: Convergence status of the predictions.
    """

    duckdb: str
    shared: Mapping[str, str]
    row_counts: Mapping[str, int]
    ranges: Mapping[str, Range]
    verdict: Verdict


@dataclass(frozen=True)
class ComponentState:
    """The entities of the tables with their components, and the predictions.

    Args:
        component: Number of each entity's connected component, shape (n,), int32.
        training: Training digest of each entity, shape (n,), uint64; see `training_digests`.
        predicted: The predicted attributes, in the order of the model.
        segments: See `EntityRows.segments`.
    """

    inputs: UpdateInputs
    entities: Entities
    component: np.ndarray
    training: np.ndarray
    predicted: tuple[PredictedAttribute, ...]
    segments: Mapping[str, Sequence[Segment]]

    @property
    def rows(self) -> KnownRows:
        """The rows with which an update compares its tables."""
        return KnownRows(self.entities, self.component, self.inputs.shared, self.segments)


@dataclass(frozen=True)
class UpdateState:
    """The state of a run for the next update.

    Args:
        protocol: The protocol of the training run, which updates repeat.
        reason: Why the state has no components; empty if it has.
        components: None if an update of the run has to ground and infer everything.
    """

    protocol: TrainingProtocol
    reason: str
    components: ComponentState | None

    def write(self, folder: Path) -> None:
        """Write the files of the state to an unfinished run folder."""
        plain = {"format": FORMAT_VERSION, "protocol": asdict(self.protocol), "reason": self.reason}
        if self.components is not None:
            state = self.components
            plain["inputs"] = asdict(state.inputs)
            plain["predicted"] = [[attribute.name, attribute.values] for attribute in state.predicted]
            entities = state.entities
            columns = {"kind": entities.kind, "key": entities.key, "digest": entities.digest}
            Frame({**columns, "component": state.component, "training": state.training}).write(
                folder / ENTITIES, sync=False
            )
            for k, attribute in enumerate(state.predicted):
                write_array(folder / _predicted_name(k), attribute.numbers, sync=False)
            if state.segments:
                plain["segments"], *arrays = segment_arrays(state.segments)
                for name, array in zip((SEGMENT_ENTITIES, SEGMENT_TOTALS), arrays, strict=True):
                    write_array(folder / name, array, sync=False)
        write_text(folder / STATE, json.dumps(plain, indent=1, ensure_ascii=False), sync=False)


def read_state(run: Path) -> UpdateState | None:
    """Read the state of a run folder; None if no update wrote the run, or an update of another version did.

    Raises:
        DataError: A file is damaged.
    """
    path = contained_path(run, STATE)
    if not path.exists():
        return None
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        if plain["format"] != FORMAT_VERSION:
            return None
        protocol: TrainingProtocol = from_json_value(TrainingProtocol, plain["protocol"])
        components = None
        if "inputs" in plain:
            inputs: UpdateInputs = from_json_value(UpdateInputs, plain["inputs"])
            components = _read_components(run, inputs, plain["predicted"], plain.get("segments", {}))
        return UpdateState(protocol, str(plain["reason"]), components)
    except READ_ERRORS as error:
        raise damaged_file_error(path, error) from None


def _read_components(
    run: Path,
    inputs: UpdateInputs,
    predicted: list[tuple[str, list[str]]],
    plain_segments: Mapping[str, list[tuple[list[str], list[int]]]],
) -> ComponentState:
    dataset = Dataset(contained_path(run, ENTITIES))
    table = dataset.find_table("entities")
    assert table is not None
    names = "kind, key, digest, component, training"
    rows = dataset.connection.execute(f"SELECT {names} FROM {table.scan}").fetchnumpy()
    key = np.asarray(rows["key"], dtype=object)
    attributes = []
    for k, (name, values) in enumerate(predicted):
        numbers = np.array(open_column(contained_path(run, _predicted_name(k))))
        if numbers.shape != (len(key), len(values) + 1) or numbers.dtype != np.float64:
            raise ValueError(f"{_predicted_name(k)} does not fit {ENTITIES}")
        attributes.append(PredictedAttribute(str(name), tuple(map(str, values)), numbers))
    entities = Entities(rows["kind"].astype(np.int32), key, rows["digest"].astype(np.uint64))
    component, training = rows["component"].astype(np.int32), rows["training"].astype(np.uint64)
    segments: dict[str, tuple[Segment, ...]] = {}
    if plain_segments:
        arrays = [open_column(contained_path(run, name)) for name in (SEGMENT_ENTITIES, SEGMENT_TOTALS)]
        segments = parse_segments(plain_segments, arrays[0], arrays[1], len(entities))
    return ComponentState(inputs, entities, component, training, tuple(attributes), segments)


def _predicted_name(k: int) -> str:
    return f"predicted_{k}.npy"


def duckdb_version() -> str:
    """Return the version of DuckDB."""
    return duckdb.__version__
