"""The output of measures by group, by evaluate."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from relcrf.cli.output import print_note, print_wide_table
from relcrf.evaluation.group_measures import MAX_GROUPS, VariableGroups, measure_groups
from relcrf.evaluation.predictions import MAJORITY, Predictions


def _systems(predictions: Predictions) -> list[str]:
    return [name for name in predictions.systems if name != MAJORITY]


def groups_as_dict(predictions: Predictions, groups: VariableGroups) -> dict[str, Any]:
    """Return the measures of each group by attribute and system, as a JSON object."""
    return {
        attribute: {
            system: measure_groups(predictions, system, attribute, groups).to_dicts()
            for system in _systems(predictions)
        }
        for attribute in predictions.attributes
    }


def print_group_measures(predictions: Predictions, groups: VariableGroups) -> None:
    """Print accuracy and overconfidence of each group, for each attribute and system."""
    for attribute in predictions.attributes:
        for system in _systems(predictions):
            frame = measure_groups(predictions, system, attribute, groups)
            is_numeric = predictions.is_numeric(attribute)
            rows = [
                (
                    group,
                    f"{n:,}",
                    f"{first:.4g}" if is_numeric else f"{first:.4f}",
                    f"{second:.4g}" if is_numeric else f"{second:.4f}",
                    Text(
                        f"{gap:+.4g} [{low:+.3g}, {high:+.3g}]"
                        if is_numeric
                        else f"{gap:+.4f} [{low:+.3f}, {high:+.3f}]",
                        style="yellow" if low > 0.0 or high < 0.0 else "",
                    ),
                )
                for group, n, first, second, _, gap, low, high in frame.rows()
            ]
            columns = (
                (groups.column, "labels", "mae", "crps", "bias")
                if is_numeric
                else (groups.column, "labels", "accuracy", "log loss", "confidence - accuracy")
            )
            print_wide_table(f"{attribute}, {system}, by {groups.column}", columns, rows)
        if len(rows) == MAX_GROUPS:
            print_note(f"the {MAX_GROUPS} largest groups are printed")
    if any(not predictions.is_numeric(attribute) for attribute in predictions.attributes):
        print_note("confidence - accuracy: overconfident if positive; yellow if the 95 % bootstrap interval excludes 0")
    if any(map(predictions.is_numeric, predictions.attributes)):
        print_note("bias: mean of prediction - number; yellow if the 95 % bootstrap interval excludes 0")
