"""The joint states of the unknown discrete variables on which numbers depend, and the numbers' moments in these states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.numeric_graph import NumericGraph, NumericTargets, joint_states, numeric_slots
from relcrf.graph.reduction import Role
from relcrf.grounding.patterns import MAX_PATTERNS
from relcrf.kernels.distinct import distinct
from relcrf.learning.gaussian_likelihood import NumberWeights

MAX_NUMBER_STATES = MAX_PATTERNS
"""Maximum number of joint states of the unknown discrete variables of one number: that of the table of a template."""

MAX_STATES = 1 << 26
"""Maximum number of joint states of all numbers together; inference takes 115 to 170 bytes for each, i.e. up to 11 GB."""


@dataclass(frozen=True, eq=False)
class JointStates:
    """The joint states of the *parents* of each number, the unknown discrete variables on which it depends.

    The joint states of all numbers are concatenated; those of a number are in row-major order of its parents.

    Args:
        parents: The parents of each number, ascending, shape (n, max_parents); -1 after the last one.
        cardinality: Number of states of each parent, shape (n, max_parents); 1 after the last one.
    """

    parents: np.ndarray
    cardinality: np.ndarray

    @classmethod
    def build(
        cls, numeric: NumericGraph, targets: NumericTargets, number: np.ndarray, parent: np.ndarray
    ) -> JointStates:
        """Return the joint states of the numbers in `numeric`.

        Args:
            number, parent: Pairs of a number and its parent, see `find_parents`.

        Raises:
            UsageError: If the joint states are too many (E383).
        """
        row = np.full(targets.graph.n_variables, -1)
        row[numeric.variables] = np.arange(len(numeric.variables))
        chosen = row[number] >= 0
        row, parent = row[number[chosen]], parent[chosen]
        sizes = targets.graph.cardinality[parent].astype(np.int64)
        n = len(numeric.variables)
        _require_few_states(np.bincount(row, np.log(sizes), n), numeric, targets)
        counts = np.bincount(row, minlength=n)
        place = np.arange(len(row)) - offsets(counts)[row]
        shape = n, max(1, int(counts.max(initial=0)))
        parents, cardinality = np.full(shape, -1, dtype=np.int64), np.ones(shape, dtype=np.int64)
        parents[row, place], cardinality[row, place] = parent, sizes
        return cls(parents, cardinality)

    @cached_property
    def n_parents(self) -> np.ndarray:
        """The number of parents of each number, shape (n,)."""
        return np.asarray((self.parents >= 0).sum(axis=1))

    @cached_property
    def sizes(self) -> np.ndarray:
        """The number of joint states of each number, shape (n,); 1 without parents."""
        return np.asarray(self.cardinality.prod(axis=1))

    @cached_property
    def start(self) -> np.ndarray:
        """The first joint state of each number, shape (n + 1,)."""
        return offsets(self.sizes)

    @cached_property
    def row(self) -> np.ndarray:
        """The number of each joint state, shape (n_states,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def strides(self) -> np.ndarray:
        """The difference of the joint states with consecutive states of a parent, shape (n, max_parents)."""
        return np.asarray(self.sizes[:, None] // self.cardinality.cumprod(axis=1))

    def of_number(self, row: int) -> slice:
        """Return the joint states of one number."""
        return slice(int(self.start[row]), int(self.start[row + 1]))

    def of_numbers(self, rows: np.ndarray) -> np.ndarray:
        """Return the joint states of numbers with equally many, shape (n_rows, n_states)."""
        return np.asarray(self.start[rows][:, None] + np.arange(int(self.sizes[rows[0]])))

    def expect(self, probabilities: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the expectation of the values of the joint states of each number, shape (n,)."""
        return np.add.reduceat(probabilities * values, self.start[:-1]) if len(self.sizes) else np.empty(0)

    def shapes(self, chosen: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """Yield the numbers in a mask by the cardinalities of their parents, fewest parents first."""
        shapes, index = np.unique(
            np.column_stack((self.n_parents, self.cardinality))[chosen], axis=0, return_inverse=True
        )
        rows = np.flatnonzero(chosen)
        for k, (n_parents, *cardinalities) in enumerate(shapes.tolist()):
            yield tuple(cardinalities[:n_parents]), rows[index.ravel() == k]

    def of_factors(
        self, group: FactorGroup, factors: np.ndarray, rows: np.ndarray, states: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the joint state of factors in each joint state of their numbers.

        Args:
            factors, rows: Factors of the group, and the number of each, shape (n_factors,).
            states: State of each variable that is not a parent, shape (n_variables,).

        Returns:
            The position in `factors`, the joint state of the number, and the joint state of the factor; shape (n,) each.
        """
        sizes = self.sizes[rows]
        entry = np.repeat(np.arange(len(rows)), sizes)
        within = np.arange(len(entry)) - offsets(sizes)[entry]
        joint = np.zeros(len(entry), dtype=np.int64)
        for variables, cardinality, stride in zip(group.scope, group.cardinalities, group.strides, strict=True):
            if cardinality > 1:
                variable = np.asarray(variables)[factors]
                matches = self.parents[rows] == variable[:, None]
                step = self.strides[rows, matches.argmax(axis=1)][entry]
                joint += stride * np.where(
                    matches.any(axis=1)[entry], within // step % cardinality, states[variable][entry]
                )
        return entry, self.start[rows][entry] + within, joint


def find_parents(targets: NumericTargets, roles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct pairs of a number and a free discrete variable on which it depends, ascending, shape (n_pairs,) each.

    Variables with a single state do not count, nor do factors over absent variables.
    """
    n_variables = len(roles)
    keys = [np.empty(0, dtype=np.int64)]
    for group in targets.groups:
        slots = numeric_slots(targets.graph, group)
        if len(slots) == 1:
            number = group.scope[slots[0]].astype(np.int64)
            others = [np.asarray(v) for v, size in zip(group.scope, group.cardinalities, strict=True) if size > 1]
            present = np.logical_and.reduce([roles[v] != Role.ABSENT for v in (number, *others)])
            for variable in others:
                chosen = present & (roles[variable] == Role.FREE)
                keys.append(number[chosen] * n_variables + variable[chosen])
    number, parent = np.divmod(distinct(np.concatenate(keys)), n_variables)
    return number, parent


def state_moments(
    joint: JointStates,
    numeric: NumericGraph,
    targets: NumericTargets,
    weights: NumberWeights,
    roles: np.ndarray,
    states: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the deviation of each number without links in each of its joint states, shape (n_states,) each.

    Args:
        joint: The joint states of the numbers in `numeric`, which lacks the factors over their parents.
        states: State of each discrete variable, shape (n_variables,); -1 if it is unknown.
    """
    row = np.full(len(roles), -1)
    row[numeric.variables] = np.arange(len(numeric.variables))
    sums = [np.asarray(matrix @ weights.weights)[joint.row] for matrix in (numeric.mean, numeric.log_precision)]
    for group in targets.groups:
        slots = numeric_slots(targets.graph, group)
        if len(slots) == 2:
            continue
        rows = row[group.scope[slots[0]]]
        is_used = (rows >= 0) & (joint_states(group, states) < 0)
        for variables in group.scope:
            is_used &= roles[variables] != Role.ABSENT
        factors = np.flatnonzero(is_used)
        entry, cell, state = joint.of_factors(group, factors, rows[factors], states)
        position, feature, value = group.features.entries(factors[entry])
        matrix = targets.graph.layout.matrix(weights.weights, group.block)
        for k, total in enumerate(sums):
            amounts = value * matrix[feature, k * group.n_joint_states + state[position]]
            total += np.bincount(cell[position], amounts, len(total))
    attribute = numeric.attribute[joint.row]
    log_precision = weights.bounded_log_precision(attribute, sums[1])
    return weights.offset[attribute, 0] + sums[0], np.exp(-0.5 * log_precision)


def _require_few_states(log_sizes: np.ndarray, numeric: NumericGraph, targets: NumericTargets) -> None:
    """Raise UsageError if a number has too many joint states, or all numbers together (E383).

    Args:
        log_sizes: Logarithm of the number of joint states of each number, shape (n,).
    """
    largest = int(log_sizes.argmax()) if len(log_sizes) else 0
    hint = "provide some of the discrete values, or write templates over fewer of them"
    if log_sizes.max(initial=0.0) > np.log(MAX_NUMBER_STATES) + 1e-9:
        name = targets.names[numeric.attribute[largest]]
        message = (
            f"a number {name} depends on unknown discrete values with more than {MAX_NUMBER_STATES:,} joint states"
        )
        raise UsageError(Diagnostic("E383", message, hint=hint))
    if np.exp(log_sizes).sum() > MAX_STATES:
        message = f"the numbers depend on unknown discrete values with more than {MAX_STATES:,} joint states in total"
        raise UsageError(Diagnostic("E383", message, hint=hint))
