"""How two trained models differ: in settings, model, data, figures, weights and structure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from relcrf.backends.learned import LearnedModel
from relcrf.backends.weight_names import weights_at
from relcrf.language.render import model_text

Pair = tuple[Any, Any]
"""What the one has and what the other; None where it has nothing."""

Name = tuple[str, str, str, str]
"""Of a weight: template, key, feature, pattern."""


@dataclass(frozen=True)
class RunDifferences:
    """
    Args:
        settings, summary, bindings, values: what differs, by name: the backend and its settings; figures of the training; how
            often each template held; how many values each open domain has.
        model: lines of a unified diff of the texts; empty where they are equal.
        weights: those of both, those that differ most first: name, and both.
        only: names and weights that one alone has, the largest first.
        correlation: of the weights of both; nan where there are fewer than two.
        structure: Jaccard index of the chosen candidates: shared ones as a share of all; None where there are none.
    """

    settings: Mapping[str, Pair]
    summary: Mapping[str, Pair]
    bindings: Mapping[str, Pair]
    values: Mapping[str, Pair]
    model: tuple[str, ...]
    weights: tuple[tuple[Name, float, float], ...]
    only: tuple[tuple[tuple[Name, float], ...], tuple[tuple[Name, float], ...]]
    correlation: float
    structure: float | None


def differences(
    first: LearnedModel, second: LearnedModel, names: tuple[str, str] = ("first", "second")
) -> RunDifferences:
    """What is not the same in two models. `names` stand in the heads of the unified diff."""
    one, other = _weights(first), _weights(second)
    both = [(name, one[name], other[name]) for name in one.keys() & other.keys()]
    both.sort(key=lambda entry: (-abs(entry[1] - entry[2]), entry[0]))
    values = np.array([entry[1:] for entry in both]).reshape(-1, 2)
    varies = len(values) > 1 and bool((np.ptp(values, axis=0) > 0.0).all())
    lines = [model_text(learned.spec).splitlines() for learned in (first, second)]
    return RunDifferences(
        _unequal({"backend": first.backend, **first.settings}, {"backend": second.backend, **second.settings}),
        _unequal(first.summary, second.summary),
        _unequal({t.name: t.bindings for t in first.templates}, {t.name: t.bindings for t in second.templates}),
        _unequal(*({name: len(texts) for name, texts in each.vocabulary.items()} for each in (first, second))),
        tuple(difflib.unified_diff(lines[0], lines[1], *names, lineterm="")),
        tuple(both),
        (_without(one, other), _without(other, one)),
        float(np.corrcoef(values.T)[0, 1]) if varies else float("nan"),
        jaccard(_chosen(first), _chosen(second)),
    )


def jaccard(one: set[Any], other: set[Any]) -> float | None:
    """What two sets share of all that is in them; None where that is nothing."""
    return len(one & other) / len(one | other) if one | other else None


def _unequal(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Pair]:
    return {name: (one.get(name), other.get(name)) for name in {**one, **other} if one.get(name) != other.get(name)}


def _weights(learned: LearnedModel) -> dict[Name, float]:
    return {
        (template, key, feature, pattern): weight
        for template, key, feature, pattern, weight in weights_at(learned).rows()
    }


def _without(one: Mapping[Name, float], other: Mapping[Name, float]) -> tuple[tuple[Name, float], ...]:
    alone = [(name, value) for name, value in one.items() if name not in other]
    return tuple(sorted(alone, key=lambda entry: (-abs(entry[1]), entry[0])))


def _chosen(learned: LearnedModel) -> set[tuple[str, tuple[str, ...]]]:
    """The candidates in the model: template and key."""
    names = {t.name for t in learned.spec.templates if t.is_candidate}
    return {(t.name, key) for t in learned.templates if t.name in names and t.keys for key in t.keys.values}
