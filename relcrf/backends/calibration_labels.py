"""Calibration labels: labels that training held out, with their predicted probabilities, and prediction sets.

Source: Vovk, Gammerman & Shafer, Algorithmic learning in a random world (2005), for conformal prediction; Sadinle, Lei &
Wasserman, Least ambiguous set-valued classifiers with bounded error levels (2019), for the score 1 - P(label); Lee, Barber &
Willett, Distribution-free inference with hierarchical data (2023), for exchangeable groups of dependent labels; Huang, Jin,
Candes & Leskovec, Uncertainty quantification over graphs with conformalized graph neural networks (2023), for labels that are
held out at random from one graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relcrf.errors import Diagnostic, UsageError
from relcrf.json_values import from_json_value

ROUNDING = 1e-9
"""Tolerance of sums of weights: 9 labels of weight 1/10 reach a coverage of 0.9."""


@dataclass(frozen=True, eq=False)
class CalibrationLabels:
    """Held-out labels of the training data, with their predicted probabilities.

    Args:
        variables: The variable of each label in the ground graph of the training data, ascending, shape (n,).
        states: The state of each label, shape (n,), int.
        probabilities: The probability that was predicted for each label, shape (n,).
        groups: The group of each label, shape (n,), int. Groups are exchangeable; labels of one group may be dependent.
        unit: What a group is: `components` or `labels`.
        are_components_held_out: Whether all labels of a connected component were held out together.
    """

    variables: np.ndarray
    states: np.ndarray
    probabilities: np.ndarray
    groups: np.ndarray
    unit: str
    are_components_held_out: bool

    def select(self, selected: np.ndarray) -> CalibrationLabels:
        """Return the labels of a mask, shape (n,)."""
        return replace(
            self,
            variables=self.variables[selected],
            states=self.states[selected],
            probabilities=self.probabilities[selected],
            groups=self.groups[selected],
        )

    @property
    def note(self) -> str:
        """Return why the coverage is not guaranteed; empty if it is guaranteed for exchangeable groups."""
        if self.are_components_held_out and self.unit == "labels":
            return (
                "too few connected components have labels, so that single labels are treated as exchangeable; "
                "the coverage of new components may differ"
            )
        return ""

    def min_probability(self, coverage: float) -> float:
        """Return the smallest probability of a state in a prediction set.

        Each of K groups has the total weight 1 / (K + 1), which its labels share equally; the remaining weight belongs to
        the group of the predicted variable, whose label may have any probability. The result is the largest number such that
        labels with at least this probability have the total weight `coverage`, or 0 if there are too few groups for this.
        Then the set of a random variable of a new group contains its label with at least the probability `coverage`.

        Raises:
            UsageError: If `coverage` is not between 0 and 1 (E376).
        """
        require_coverage(coverage)
        if not len(self.groups):
            return 0.0
        _, group, sizes = np.unique(self.groups, return_inverse=True, return_counts=True)
        weights = 1.0 / ((len(sizes) + 1) * sizes[group])
        order = np.argsort(-self.probabilities, kind="stable")
        reached = np.flatnonzero(np.cumsum(weights[order]) >= coverage - ROUNDING)
        return float(self.probabilities[order[reached[0]]]) if len(reached) else 0.0

    def fill_nearby(self, nearby: np.ndarray, coverage: float) -> np.ndarray:
        """Return the smallest probabilities from the nearest labels with `min_probability` in place of nan, shape (n,)."""
        return np.where(np.isnan(nearby), self.min_probability(coverage), nearby)

    def min_probabilities(self, coverage: float, n_states: int) -> np.ndarray:
        """Return `min_probability` of the labels of each state, shape (n_states,); 0 for states with too few labels."""
        return np.array([self.select(self.states == state).min_probability(coverage) for state in range(n_states)])

    def prediction_sets(
        self,
        probabilities: np.ndarray,
        coverage: float,
        *,
        each_value: bool = False,
        nearby: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the prediction sets of variables: a mask of the states of each, shape (n, n_states).

        A set contains the states of at least `min_probability`, and always the most probable state.

        Args:
            probabilities: Marginals of the variables, shape (n, n_states).
            each_value: Whether the sets of the variables with each true state have the coverage, instead of all sets together.
                The smallest probability then depends on the state.
            nearby: The smallest probability of a state in the set of each variable, from its nearest labels, shape (n,); nan for
                `min_probability`. See `nearby_labels.nearby_min_probabilities`.
        """
        if nearby is not None:
            smallest = self.fill_nearby(nearby, coverage)[:, None]
        elif each_value:
            smallest = self.min_probabilities(coverage, probabilities.shape[1])
        else:
            smallest = np.array(self.min_probability(coverage))
        sets = probabilities >= smallest
        if len(sets):
            sets[np.arange(len(sets)), probabilities.argmax(axis=1)] = True
        return np.asarray(sets)


def labels_of_attribute(by_attribute: Mapping[str, CalibrationLabels], name: str) -> CalibrationLabels:
    """Return the calibration labels of an attribute.

    Raises:
        UsageError: If it has none (E375).
    """
    if name not in by_attribute:
        message = f"the run has no held-out labels of {name}, on which prediction sets are calibrated"
        hint = "train again with --calibrate 5, or with the default backend and enough labels"
        raise UsageError(Diagnostic("E375", message, hint=hint))
    return by_attribute[name]


def require_coverage(coverage: float) -> None:
    """Require a coverage between 0 and 1.

    Raises:
        UsageError: If it is not (E376).
    """
    if not 0.0 < coverage < 1.0:
        message = f"the coverage of prediction sets must be between 0 and 1, not {coverage:g}"
        raise UsageError(Diagnostic("E376", message, hint="use a coverage such as 0.9"))


def require_one_condition(*, each_value: bool, nearby: bool) -> None:
    """Require that sets are not calibrated on the labels of each value and on the nearest labels at the same time.

    Raises:
        UsageError: If they are (E376).
    """
    if each_value and nearby:
        message = "sets cannot be calibrated for each value and on the nearest labels at the same time"
        raise UsageError(Diagnostic("E376", message, hint="omit --each-value or --nearby"))


def calibration_sections(by_attribute: Mapping[str, CalibrationLabels]) -> list[dict[str, Any]]:
    """Return the JSON form of calibration labels except their numbers: one section per attribute."""
    return [
        {"attribute": name, "labels": len(one.variables), "unit": one.unit, "whole": one.are_components_held_out}
        for name, one in by_attribute.items()
    ]


def calibration_numbers(by_attribute: Mapping[str, CalibrationLabels]) -> np.ndarray:
    """Return the numbers of the labels of all sections: variables, states, probabilities and groups, shape (4, n)."""
    arrays = [(one.variables, one.states, one.probabilities, one.groups) for one in by_attribute.values()]
    return np.concatenate([np.array(each, dtype=np.float64) for each in arrays], axis=1)


def parse_calibration_labels(
    sections: Sequence[Mapping[str, Any]], numbers: np.ndarray
) -> dict[str, CalibrationLabels]:
    """Return calibration labels by attribute, from the results of `calibration_sections` and `calibration_numbers`.

    Raises:
        ValueError: If a number is not a variable, a state, a probability or a group.
    """
    integers, probabilities = numbers[[0, 1, 3]], numbers[2]
    are_integers = ((integers >= 0) & (integers < 2**53) & (integers == np.floor(integers))).all()
    if not are_integers or not ((probabilities >= 0.0) & (probabilities <= 1.0)).all():
        raise ValueError("the calibration labels contain invalid numbers")
    out, start = {}, 0
    for section in sections:
        stop = start + from_json_value(int, section["labels"])
        variables, states, groups = integers[:, start:stop].astype(np.int64)
        unit, is_whole = from_json_value(str, section["unit"]), from_json_value(bool, section["whole"])
        name = from_json_value(str, section["attribute"])
        out[name] = CalibrationLabels(variables, states, probabilities[start:stop], groups, unit, is_whole)
        start = stop
    return out
