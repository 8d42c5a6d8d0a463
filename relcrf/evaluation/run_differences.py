"""Differences between two trained models: settings, model, data, metrics, weights and structure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.weight_names import NAME_COLUMNS, weight_table
from relcrf.data.frame import Frame
from relcrf.language.render import model_text

Pair = tuple[Any, Any]
"""The values of the first and of the second model; None if a model does not have the value."""

_NAME: dict[str, type] = dict.fromkeys(NAME_COLUMNS, object)


@dataclass(frozen=True)
class RunDifferences:
    """The differences between two trained models.

    Args:
        settings: The backend and the settings that differ, by name.
        summary: The entries of the training summary that differ, by name.
        bindings: The numbers of bindings that differ, by template.
        vocabulary_sizes: The numbers of values that differ, by open domain, and of tokens, by text similarity.
        model: The lines of a unified diff of the model texts; empty if they are equal.
        weights: One row per weight that both models have, by descending absolute difference. The columns are
            `NAME_COLUMNS`, and `first` and `second`: the weight in each model.
        unique_weights: For each model, one row per weight that the other model does not have, by descending magnitude.
            The columns are `NAME_COLUMNS` and `weight`.
        correlation: The correlation of the weights that both models have; nan if there are fewer than two such weights
            or if they are constant.
        candidate_jaccard: The Jaccard index of the two sets of chosen candidates; None if both are empty.
    """

    settings: Mapping[str, Pair]
    summary: Mapping[str, Pair]
    bindings: Mapping[str, Pair]
    vocabulary_sizes: Mapping[str, Pair]
    model: tuple[str, ...]
    weights: Frame
    unique_weights: tuple[Frame, Frame]
    correlation: float
    candidate_jaccard: float | None


def compare_runs(
    first: LearnedModel, second: LearnedModel, names: tuple[str, str] = ("first", "second")
) -> RunDifferences:
    """Compare two models; `names` are the headers of the unified diff."""
    first_weights, second_weights = (
        {row[:4]: row[4] for row in weight_table(learned).rows()} for learned in (first, second)
    )
    both = [(*name, first_weights[name], second_weights[name]) for name in first_weights.keys() & second_weights.keys()]
    both.sort(key=lambda row: (-abs(row[4] - row[5]), row))
    weights = Frame.from_rows({**_NAME, "first": float, "second": float}, both)
    values = np.column_stack((weights["first"], weights["second"]))
    varies = len(values) > 1 and bool((np.ptp(values, axis=0) > 0.0).all())
    lines = [model_text(learned.spec).splitlines() for learned in (first, second)]
    return RunDifferences(
        _unequal_values({"backend": first.backend, **first.settings}, {"backend": second.backend, **second.settings}),
        _unequal_values(first.summary, second.summary),
        _unequal_values({t.name: t.bindings for t in first.templates}, {t.name: t.bindings for t in second.templates}),
        _unequal_values(*({name: len(texts) for name, texts in each.vocabulary.items()} for each in (first, second))),
        tuple(difflib.unified_diff(lines[0], lines[1], *names, lineterm="")),
        weights,
        (_weights_only_in(first_weights, second_weights), _weights_only_in(second_weights, first_weights)),
        float(np.corrcoef(values.T)[0, 1]) if varies else float("nan"),
        jaccard(_chosen_candidates(first), _chosen_candidates(second)),
    )


def jaccard(one: set[Any], other: set[Any]) -> float | None:
    """Return the Jaccard index of two sets, or None if both are empty."""
    return len(one & other) / len(one | other) if one | other else None


def _unequal_values(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Pair]:
    return {name: (one.get(name), other.get(name)) for name in {**one, **other} if one.get(name) != other.get(name)}


def _weights_only_in(one: Mapping[tuple[Any, ...], float], other: Mapping[tuple[Any, ...], float]) -> Frame:
    alone = [(*name, value) for name, value in one.items() if name not in other]
    return Frame.from_rows({**_NAME, "weight": float}, sorted(alone, key=lambda row: (-abs(row[4]), row)))


def _chosen_candidates(learned: LearnedModel) -> set[tuple[str, tuple[str, ...]]]:
    """Return the chosen candidates of a model as tuples (template name, key)."""
    names = {t.name for t in learned.spec.templates if t.is_candidate}
    return {(t.name, key) for t in learned.templates if t.name in names and t.keys for key in t.keys.values}
