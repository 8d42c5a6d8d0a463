"""Predictions: marginals of the query variables of a dataset, as tables and scores."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from relcrf.backends.calibration_labels import (
    CalibrationLabels,
    labels_of_attribute,
    require_coverage,
    require_one_condition,
)
from relcrf.backends.inference_result import InferenceResult
from relcrf.backends.nearby_labels import nearby_min_probabilities, require_labels_in_data
from relcrf.data.frame import Frame, frame_of
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.evaluation.measures import Score, score
from relcrf.evaluation.number_measures import ScoredNumbers
from relcrf.graph.adjacency import adjacency_matrix
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.inference.gaussian import NumberMarginals
from relcrf.inference.result import Verdict

DEFAULT_COVERAGE = 0.9
"""Probability of the intervals of numbers in a table."""


def find_variable_block(grounding: Grounding, attribute: str | None) -> VariableBlock:
    """Return the variable block of a random attribute or relation; with None, of the only one that is not latent.

    Raises:
        UsageError: If the name is unknown or ambiguous.
    """
    names = [block.name for block in grounding.blocks if not block.is_latent]
    if attribute is None and len(names) == 1:
        (attribute,) = names
    matches = [b for b in grounding.blocks if attribute in (b.name, b.attribute)]
    if len(matches) != 1:
        message = (
            "several attributes are predicted"
            if attribute is None
            else f"{'ambiguous' if matches else 'unknown'} predicted attribute '{attribute}'"
        )
        hint = suggestion(attribute or "", names) or f"choose one of: {listing(names)}"
        raise UsageError(Diagnostic("E310", message, hint=hint))
    return matches[0]


def prediction_table(
    arguments: Mapping[str, np.ndarray],
    attribute: str,
    values: Sequence[str],
    probabilities: np.ndarray,
    map_states: np.ndarray,
    sets: np.ndarray | None = None,
    *,
    with_probabilities: bool = True,
) -> Frame:
    """Return a table of predictions; for the columns see `Prediction.table`.

    Args:
        arguments: Columns of the entity's key or of the tuple's arguments, by name, shape (n,) each.
        attribute: Name of the column of the most probable value.
        probabilities: Probability of each value, shape (n, n_values).
        map_states: State of each variable in the most probable joint state, shape (n,).
        sets: Mask of the values in each prediction set, shape (n, n_values); None for no such column.
    """
    names = np.asarray(values, dtype=object)
    n = len(probabilities)
    best = probabilities.argmax(axis=1) if n else np.empty(0, dtype=np.int64)
    columns = [*arguments.items(), (attribute, names[best]), ("probability", probabilities[np.arange(n), best])]
    if sets is not None:
        by_probability = np.argsort(-probabilities, axis=1, kind="stable")
        joined = [", ".join(names[row[mask[row]]]) for row, mask in zip(by_probability, sets, strict=True)]
        columns.append(("set", np.array(joined, dtype=object)))
    columns.append(("joint", names[map_states]))
    if with_probabilities and len(values) <= 50:
        columns += [(f"p_{value}", probabilities[:, k]) for k, value in enumerate(values)]
    return frame_of(columns)


@dataclass(frozen=True, repr=False)
class Prediction:
    """Marginals of the query variables. Notebooks display a prediction as tables with bars for probabilities.

    Args:
        unseen_keys: Number of keys that have no learned weights, by template.
        seconds: Inference time.
        calibration: The held-out labels of the run on which prediction sets are calibrated, by attribute or relation.
    """

    grounding: Grounding
    inferred: InferenceResult
    unseen_keys: Mapping[str, int]
    seconds: float = field(default=0.0, compare=False)
    calibration: Mapping[str, CalibrationLabels] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        counts = listing(f"{len(self.variables(name)):,} query variables of {name}" for name in self.attributes)
        return f"Prediction({counts}; {self.inferred.verdict})"

    def _repr_html_(self) -> str:
        frames = {name: self.table(name) for name in self.attributes}
        tables = (f"<p>{html.escape(name)}</p>{frame.to_html(bars=frame.columns)}" for name, frame in frames.items())
        has_joint = any("joint" in frame.columns for frame in frames.values())
        doubt = f"; column 'joint': {self.joint_verdict}" if has_joint and not self.joint_verdict.is_good else ""
        return f"<p>{html.escape(repr(self) + doubt)}</p>" + "".join(tables)

    @cached_property
    def attributes(self) -> list[str]:
        """The names of the predicted attributes (`Entity.attribute`) and relations, without latent attributes."""
        return [block.name for block in self.grounding.blocks if not block.is_latent]

    def block(self, attribute: str | None) -> VariableBlock:
        """Return the variable block of an attribute or relation; see `find_variable_block`.

        Raises:
            UsageError: If the name is unknown or ambiguous.
        """
        return find_variable_block(self.grounding, attribute)

    def _discrete_block(self, attribute: str | None) -> VariableBlock:
        block = self.block(attribute)
        if block.is_numeric:
            message = f"'{block.name}' is a number, which has no values with probabilities"
            raise UsageError(Diagnostic("E379", message, hint="read its 'means', 'deviations' or 'intervals'"))
        return block

    @property
    def verdict(self) -> Verdict:
        """The convergence status of inference, which shows how reliable the probabilities are."""
        return self.inferred.verdict

    @property
    def joint_verdict(self) -> Verdict:
        """The convergence status of the search for the column `joint`; the search runs when the verdict is first read."""
        return self.inferred.joint_states.verdict

    def with_joint_states(self) -> Prediction:
        """Return the prediction with the column `joint`; after Ctrl-C, it contains each variable's most probable value."""
        return replace(self, inferred=self.inferred.with_joint_states())

    def _nodes(self, block: VariableBlock) -> np.ndarray:
        variables = self.inferred.variables
        start, stop = np.searchsorted(variables, (block.start, block.start + block.count))
        return np.arange(start, stop)

    def variables(self, attribute: str | None = None) -> np.ndarray:
        """Return the query variables of an attribute, ascending."""
        block = self.block(attribute)
        return self._numbers(block).variables if block.is_numeric else self.inferred.variables[self._nodes(block)]

    def _numbers(self, block: VariableBlock) -> NumberMarginals:
        if not block.is_numeric or self.inferred.numbers is None:
            message = f"'{block.name}' is not a number"
            raise UsageError(Diagnostic("E379", message, hint="read its 'probabilities'"))
        mask = np.zeros(len(self.grounding.states), dtype=bool)
        mask[block.start : block.start + block.count] = True
        return self.inferred.numbers.select(mask)

    def means(self, attribute: str | None = None) -> np.ndarray:
        """Return the expected values of the query variables of an attribute that is a number, shape (n,)."""
        return self._numbers(self.block(attribute)).means

    def deviations(self, attribute: str | None = None) -> np.ndarray:
        """Return the standard deviations of the query variables of an attribute that is a number, shape (n,)."""
        return self._numbers(self.block(attribute)).deviations

    def intervals(
        self, attribute: str | None = None, coverage: float = 0.9, *, nearby: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper limits of intervals of the query variables of a number, shape (n,) each.

        If the run has held-out numbers of the attribute, the intervals contain the true number with at least the probability
        `coverage` as those of `sets` do; otherwise, if the model is right.

        Args:
            nearby: See `sets`.

        Raises:
            UsageError: The attribute is not a number (E379), or the coverage is not between 0 and 1 (E376). For
                `nearby`, see `sets`.
        """
        require_coverage(coverage)
        block = self.block(attribute)
        labels, numbers = self.calibration.get(block.name), self._numbers(block)
        if nearby:
            labels = self.calibration_labels(attribute)
            return numbers.intervals(labels.fill_nearby(self.nearby_min_probabilities(attribute, coverage), coverage))
        return numbers.intervals(1.0 - coverage if labels is None else labels.min_probability(coverage))

    def probabilities(self, attribute: str | None = None) -> np.ndarray:
        """Return the marginals of the query variables of an attribute, shape (n, n_values)."""
        block = self._discrete_block(attribute)
        starts = self.inferred.state_start[self._nodes(block)]
        return np.asarray(self.inferred.marginals[starts[:, None] + np.arange(len(block.values))])

    def calibration_labels(self, attribute: str | None = None) -> CalibrationLabels:
        """Return the held-out labels on which the prediction sets of an attribute are calibrated.

        Raises:
            UsageError: If the name is unknown or ambiguous, or the run has no held-out labels (E375).
        """
        return labels_of_attribute(self.calibration, self.block(attribute).name)

    @cached_property
    def _nearby_by_request(self) -> dict[tuple[str, float], np.ndarray]:
        """The results of `nearby_min_probabilities`, which take seconds on large graphs, by attribute and coverage."""
        return {}

    def nearby_min_probabilities(self, attribute: str | None = None, coverage: float = 0.9) -> np.ndarray:
        """Return the smallest probability in the set of each query variable, from the nearest held-out labels, shape (n,).

        The result is nan for variables with too few labels near; see `nearby_labels.nearby_min_probabilities`.

        Raises:
            UsageError: See `sets`.
        """
        request = self.block(attribute).name, coverage
        if request not in self._nearby_by_request:
            labels, adjacency = self.calibration_labels(attribute), adjacency_matrix(self.grounding.graph)
            require_labels_in_data(labels, self.grounding.states)
            found = nearby_min_probabilities(labels, adjacency, self.variables(attribute), coverage)
            self._nearby_by_request[request] = found
        return self._nearby_by_request[request]

    def sets(
        self,
        attribute: str | None = None,
        *,
        coverage: float = 0.9,
        each_value: bool = False,
        nearby: bool = False,
    ) -> np.ndarray:
        """Return the prediction sets of the query variables: a mask of the states of each, shape (n, n_values).

        A set contains the true value with at least the probability `coverage`, if the query variables and the held-out labels
        of the training run are exchangeable; see `backends.calibration_labels.CalibrationLabels`.

        Args:
            each_value: Whether this holds for the variables with each true value, instead of all variables together.
            nearby: Whether the set of each variable is calibrated on the held-out labels that are nearest in the ground graph, so
                that this holds approximately in each part of the graph; see `nearby_labels.nearby_min_probabilities`.

        Raises:
            UsageError: See `calibration_labels`; the coverage is not between 0 and 1, or `each_value` and `nearby` are set
                (E376). With `nearby`, the data do not contain the held-out labels, or none is near (E375).
        """
        require_one_condition(each_value=each_value, nearby=nearby)
        probabilities = self.probabilities(attribute)
        labels = self.calibration_labels(attribute)
        near = self.nearby_min_probabilities(attribute, coverage) if nearby else None
        return labels.prediction_sets(probabilities, coverage, each_value=each_value, nearby=near)

    def table(
        self,
        attribute: str | None = None,
        *,
        with_probabilities: bool = True,
        coverage: float | None = None,
        each_value: bool = False,
        nearby: bool = False,
    ) -> Frame:
        """Return one row per query variable.

        The columns are the entity's key or the tuple's arguments, the most probable value, the probability of this
        value, the values of the prediction set, the value in the most probable joint state, and the probability of each
        value (for at most 50 values). Those of a number are the keys, the expected value, the standard deviation, and the
        limits of an interval (see `intervals`).

        Args:
            with_probabilities: Whether to include the probability of each value.
            coverage, each_value, nearby: See `sets`; without a coverage, the column of the sets is omitted. The default coverage
                of the intervals of numbers is 0.9.
        """
        block = self.block(attribute)
        queried = self.variables(attribute) - block.start
        texts = self.grounding.argument_texts(block)
        arguments = {name: column[queried] for name, column in zip(block.argument_names, texts, strict=True)}
        name = block.attribute or "value"
        if block.is_numeric:
            numbers = self._numbers(block)
            low, high = self.intervals(attribute, DEFAULT_COVERAGE if coverage is None else coverage, nearby=nearby)
            figures = ((name, numbers.means), ("deviation", numbers.deviations), ("low", low), ("high", high))
            return frame_of((*arguments.items(), *figures))
        return prediction_table(
            arguments,
            name,
            block.values,
            self.probabilities(attribute),
            self.inferred.map_states[self._nodes(block)],
            None if coverage is None else self.sets(attribute, coverage=coverage, each_value=each_value, nearby=nearby),
            with_probabilities=with_probabilities,
        )

    def score(self, attribute: str | None = None, *, subset: np.ndarray | None = None) -> Score:
        """Score the predictions against the labels of the data; the log-likelihood of a number is that of its density.

        Args:
            subset: Mask of the variables to score, shape (n_variables,), bool; None selects all query variables with a
                label.
        """
        variables = self.variables(attribute)
        truth = self.grounding.states[variables]
        scored = truth >= 0
        if subset is not None:
            scored &= subset[variables]
        if (block := self.block(attribute)).is_numeric:
            numbers = self._numbers(block)
            truth = self.grounding.numbers[variables]
            return ScoredNumbers(numbers.means[scored], numbers.deviations[scored], truth[scored]).score()
        return score(self.probabilities(attribute)[scored], truth[scored])
