"""Local evidence: the features of a variable's unary factors, and the inputs of the learned features of its value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from relcrf.columns.offsets import offsets
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Sparse
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.learned_values import read_inputs, read_target
from relcrf.kernels.distinct import distinct
from relcrf.model.learned import learned_features


@dataclass(frozen=True, eq=False)
class LocalEvidence:
    """The local evidence of all variables of a ground graph."""

    grounding: Grounding

    @cached_property
    def _signature_and_count(self) -> tuple[np.ndarray, np.ndarray]:
        blocks = self.grounding.blocks
        signature = np.repeat(np.arange(1, len(blocks) + 1), [b.count for b in blocks]).astype(np.uint64)
        count = np.zeros(len(signature), dtype=np.int64)
        for number, (variables, features) in enumerate(self._unary_features):
            for row_start, column, values in _nonzero_entries(features):
                numbers = values.astype(np.float64).view(np.uint64)
                hashed = mix_hash(mix_hash(column.astype(np.uint64), np.uint64(number)), numbers)
                total = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(hashed, dtype=np.uint64)))
                signature[variables] += total[row_start[1:]] - total[row_start[:-1]]
                count[variables] += np.diff(row_start)
        return signature, count

    @property
    def signature(self) -> np.ndarray:
        """A hash of the local evidence of each variable, shape (n_variables,), uint64."""
        return self._signature_and_count[0]

    @property
    def n_features(self) -> np.ndarray:
        """The number of nonzero features of each variable, without features that are always 1, shape (n_variables,)."""
        return self._signature_and_count[1]

    def value_matrix(self, variables: np.ndarray) -> csr_array:
        """Return the incidence matrix of the bag and category values of some variables, shape (n, n_values).

        Args:
            variables: Indices of variables, ascending.
        """
        rows, tokens = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint64)]
        for number, row_of_factor, features in self._unary_groups(variables):
            if isinstance(features, Dense):
                continue
            for row_start, column, values in _nonzero_entries(features):
                token = mix_hash(column.astype(np.uint64), np.uint64(number))
                if isinstance(features, Keyed):
                    token = mix_hash(token, values.astype(np.float64).view(np.uint64))
                row = np.repeat(row_of_factor, np.diff(row_start))
                rows.append(row[row >= 0])
                tokens.append(token[row >= 0])
        row, token = np.concatenate(rows), np.concatenate(tokens)
        tokens_present = distinct(token)
        matrix = csr_array(
            (np.ones(len(row), dtype=np.float32), (row, np.searchsorted(tokens_present, token))),
            shape=(len(variables), len(tokens_present)),
        )
        matrix.sum_duplicates()
        matrix.data[:] = 1.0
        return matrix

    def numeric_matrix(self, variables: np.ndarray) -> np.ndarray:
        """Return the standardised numeric features of some variables, shape (n, n_columns).

        Constant columns are omitted. If a variable has no factor of a template, the features of this template are 0
        before standardisation. For `variables` see `value_matrix`.
        """
        columns = [np.empty((len(variables), 0))]
        for _, row_of_factor, features in self._unary_groups(variables):
            if isinstance(features, Dense):
                table = np.zeros((len(variables), features.n_features))
                np.add.at(table, row_of_factor[row_of_factor >= 0], features.values[row_of_factor >= 0])
                columns.append(table)
        matrix = np.concatenate(columns, axis=1)
        matrix -= matrix.mean(axis=0) if len(matrix) else 0.0
        deviation = matrix.std(axis=0) if len(matrix) else np.zeros(matrix.shape[1])
        varying = deviation > 0.0
        return np.asarray(matrix[:, varying] / deviation[varying])

    @cached_property
    def _unary_features(self) -> list[tuple[np.ndarray, AbstractFeatures]]:
        """The variables and the features of each unary group and of each input of a learned feature."""
        grounding = self.grounding
        out = [
            (np.asarray(group.scope[0]), group.features) for group in grounding.graph.groups if len(group.scope) == 1
        ]
        for feature in learned_features(grounding.spec):
            target = read_target(grounding, feature)
            if target.first_variable is not None:
                variables = target.first_variable + np.arange(len(target.values))
                out += [
                    (variables, each.features()) for each in read_inputs(grounding.bound, feature, grounding.budget)
                ]
        return out

    def _unary_groups(self, variables: np.ndarray) -> Iterator[tuple[int, np.ndarray, AbstractFeatures]]:
        """Yield the features of some variables: a number, the row of each feature row in `variables` (or -1), features."""
        row = np.full(self.grounding.graph.n_variables, -1)
        row[variables] = np.arange(len(variables))
        for number, (described, features) in enumerate(self._unary_features):
            if (row[described] >= 0).any():
                yield number, row[described], features


def _nonzero_entries(features: AbstractFeatures) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return the nonzero entries as a list of one tuple (row offsets, columns, values); empty if all rows are equal."""
    match features:
        case Sparse(row_start, column, values, _):
            return [(np.asarray(row_start), column, values if len(values) else np.ones(len(column)))]
        case Dense(values):
            rows, columns = np.nonzero(values)
            start = offsets(np.bincount(rows, minlength=len(values)))
            return [(start, columns, values[rows, columns])]
        case Keyed(key, values, _):
            width = values.shape[1]
            entries = values.ravel() if len(values) else np.ones(len(key))
            columns = (key[:, None].astype(np.int64) * width + np.arange(width)).ravel()
            return [(np.arange(0, len(columns) + 1, width), columns, entries)]
    return []


def mix_hash(value: np.ndarray, salt: np.ndarray | np.uint64) -> np.ndarray:
    """Return a 64-bit hash of pairs of numbers: the finaliser of splitmix64 (Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        out = value * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019) * salt
        out = (out ^ (out >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        out = (out ^ (out >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(out ^ (out >> np.uint64(31)))
