"""Clusters of the records of a dataset, from the predicted probabilities of a relation of pairs of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.clustering.partition import DEFAULT_UNLISTED, METHODS, Clustering, cluster_records
from relcrf.data.bound_model import BoundModel
from relcrf.data.frame import Frame
from relcrf.errors import DataError, Diagnostic, UsageError, listing, suggestion
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock, read_argument_codes
from relcrf.kernels.distinct import number_rows
from relcrf.model.types import BOOL_VALUES
from relcrf.prediction import Prediction

ENTITY_COLUMN = "entity"
"""Column with the entity type of each record, if a relation joins two types; `distinct` accepts it as a source."""


@dataclass(frozen=True, eq=False)
class RecordClusters:
    """Clusters of records, with the keys of the records.

    Args:
        bound: The tables of the records.
        entity_types: The entity types of the records: one, or two if the relation joins records of two types. The records of
            the first type come first, in the order of their indices.
        clustering: The cluster of each record.
    """

    bound: BoundModel
    entity_types: tuple[str, ...]
    clustering: Clustering

    def __repr__(self) -> str:
        return f"RecordClusters({listing(self.entity_types)}; {self.clustering!r})"

    def table(self) -> Frame:
        """Return one row per record: its key and its cluster, and first its entity type if there are two."""
        return Frame(self._columns(()))

    def merged(self) -> Frame:
        """Return one row per cluster: the key of its first record, its cluster, its number of records, and merged values.

        A merged value is the most frequent value of a column among the records that have one; of equally frequent values,
        the one of the first record. The columns are those of the records' tables; if one of them is called `cluster` or
        `records`, the column of the clustering ends with an underscore.
        """
        _, first = np.unique(self.clustering.cluster, return_index=True)
        source = self._source_columns()
        listed = {name: values[first] for name, values in self._columns(source).items()}
        listed[_free_name("records", (*listed, *source))] = self.clustering.sizes
        for column in source:
            if column not in listed:
                texts = _column_texts(self.bound, self.entity_types, column)
                values = np.array([*dict.fromkeys(texts.tolist()), None], dtype=object)
                listed[column] = values[_most_frequent(self.clustering.cluster, _number_texts(texts))]
        return Frame(listed)

    def _columns(self, taken: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the columns of `table`; the columns beside the key have names that are not `taken`."""
        entities = [self.bound.spec.entity(name) for name in self.entity_types]
        key = next(entity.key for entity in entities if entity is not None)
        columns = {key: np.concatenate([self.bound.keys(name) for name in self.entity_types])}
        if len(self.entity_types) > 1:
            columns = {_free_name(ENTITY_COLUMN, (key, *taken)): _type_names(self.bound, self.entity_types), **columns}
        return {**columns, _free_name("cluster", (*columns, *taken)): self.clustering.cluster}

    def _source_columns(self) -> list[str]:
        """Return the columns of the records' tables without their keys, each once, in the order of the tables."""
        columns: dict[str, None] = {}
        for name in self.entity_types:
            table, entity = self.bound.find_table(name), self.bound.spec.entity(name)
            if table is not None and entity is not None:
                columns |= dict.fromkeys(c for c in table.columns if c != table.column(entity.key))
        return list(columns)

    def column_numbers(self, column: str) -> np.ndarray:
        """Return the number of each record's value in a column of its table, shape (n,), int64; -1 if it is missing.

        Raises:
            DataError: No table of the records has this column (E212).
        """
        return column_numbers(self.bound, self.entity_types, column)


def find_pair_relation(grounding: Grounding, relation: str | None) -> VariableBlock:
    """Return the block of a predicted Boolean relation of two entities; with None, of the only one.

    Raises:
        UsageError: The model has no such relation (E441), or the name is unknown or missing (E442).
    """
    entities = {entity.name for entity in grounding.spec.entities}
    blocks = {
        block.name: block
        for block in grounding.blocks
        if block.attribute is None
        and len(block.argument_types) == 2
        and entities.issuperset(block.argument_types)
        and tuple(block.values) == BOOL_VALUES
    }
    if not blocks:
        message = "the model predicts no relation of pairs of records"
        hint = "declare one, e.g. 'predict relation same(a: Record, b: Record) where ...', and train the model"
        raise UsageError(Diagnostic("E441", message, hint=hint))
    if relation is None and len(blocks) == 1:
        (relation,) = blocks
    if relation not in blocks:
        message = "several predicted relations join pairs of records, and none is named"
        if relation is not None:
            message = f"'{relation}' is not a predicted relation of pairs of records"
        hint = suggestion(relation or "", blocks) or f"choose one with --relation: {listing(blocks)}"
        raise UsageError(Diagnostic("E442", message, hint=hint))
    return blocks[relation]


def record_types(block: VariableBlock) -> tuple[str, ...]:
    """Return the entity types that a relation of pairs joins, each once."""
    return tuple(dict.fromkeys(block.argument_types))


def cluster_prediction(
    prediction: Prediction,
    relation: str | None = None,
    *,
    method: str = METHODS[0],
    threshold: float = 0.5,
    unlisted: float = DEFAULT_UNLISTED,
    distinct: str | None = None,
) -> RecordClusters:
    """Partition the records that a predicted relation joins; labels that are evidence have the probability 0 or 1.

    Args:
        relation: Name of a predicted Boolean relation of two entities, of one type or of two types; None for the only one.
        method, threshold, unlisted: See `cluster_records`, which also documents the errors.
        distinct: Column of the records' tables; two records with the same value never share a cluster, and missing values
            do not exclude each other. If the relation joins two types, the column `entity` contains the type.

    Raises:
        UsageError: There is no such relation (E441, E442), or an option is invalid.
        DataError: No table of the records has the column `distinct` (E212).
    """
    grounding = prediction.grounding
    block, bound = find_pair_relation(grounding, relation), grounding.bound
    types = record_types(block)
    source = None if distinct is None else column_numbers(bound, types, distinct)
    queried = prediction.variables(block.name) - block.start
    probability = grounding.states[block.start : block.start + block.count].astype(np.float64)
    probability[queried] = prediction.probabilities(block.name)[:, 1]
    first, second = (codes.astype(np.int64) for codes in read_argument_codes(bound, block))
    if len(types) > 1:
        second += bound.size(types[0])
    known = probability >= 0
    clustering = cluster_records(
        sum(map(bound.size, types)),
        first[known],
        second[known],
        probability[known],
        method=method,
        threshold=threshold,
        unlisted=unlisted,
        distinct=source,
    )
    return RecordClusters(bound, types, clustering)


def column_numbers(bound: BoundModel, entity_types: Sequence[str], column: str) -> np.ndarray:
    """Return the number of each record's value in a column, shape (n,), int64; see `RecordClusters.column_numbers`."""
    return _number_texts(_column_texts(bound, entity_types, column))


def _column_texts(bound: BoundModel, entity_types: Sequence[str], column: str) -> np.ndarray:
    """Return each record's value in a column as a text, empty if it is missing, shape (n,), dtype object.

    Raises:
        DataError: No table of the records has this column (E212).
    """
    parts: list[np.ndarray] = []
    errors: list[DataError] = []
    for name in entity_types:
        try:
            parts.append(bound.raw_column(name, column))
        except DataError as error:
            if any(diagnostic.code != "E212" for diagnostic in error.diagnostics):
                raise
            errors.append(error)
            parts.append(np.full(bound.size(name), "", dtype=object))
    if len(errors) == len(entity_types):
        if len(entity_types) > 1 and column == ENTITY_COLUMN:
            return _type_names(bound, entity_types)
        raise errors[0]
    return np.concatenate(parts)


def _free_name(name: str, taken: Sequence[str]) -> str:
    """Return the name of a column, with underscores at the end if it is taken."""
    while name in taken:
        name += "_"
    return name


def _most_frequent(cluster: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return the most frequent number of each cluster, shape (n_clusters,); -1 if all are negative, i.e. missing.

    Args:
        cluster, number: The cluster and the number of each record, shape (n,). Of equally frequent numbers, the one of the
            first record is returned.
    """
    known = np.flatnonzero(number >= 0)
    cluster_of, number = cluster[known], number[known]
    pair = number_rows(cluster_of, number)
    count = np.bincount(pair)
    first = np.empty(len(count), dtype=np.int64)
    first[pair[::-1]] = np.arange(len(pair))[::-1]
    order = np.lexsort((first, -count, cluster_of[first]))
    best = first[order[np.append(True, np.diff(cluster_of[first[order]]) != 0)[: len(order)]]]
    out = np.full(int(cluster.max(initial=-1)) + 1, -1)
    out[cluster_of[best]] = number[best]
    return out


def _type_names(bound: BoundModel, entity_types: Sequence[str]) -> np.ndarray:
    """Return the entity type of each record, shape (n,), dtype object."""
    return np.repeat(np.array(entity_types, dtype=object), [bound.size(name) for name in entity_types])


def _number_texts(texts: np.ndarray) -> np.ndarray:
    """Return the number of each text in the order of first occurrence, shape (n,), int64; -1 for an empty text."""
    texts = texts.tolist()
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    numbers[""] = -1
    return np.fromiter(map(numbers.__getitem__, texts), dtype=np.int64, count=len(texts))
