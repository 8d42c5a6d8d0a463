"""Models with aggregates: the values of aggregates, their association with labels, and templates that contain them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import rankdata

from relcrf import api
from relcrf.data.bound_model import BoundModel
from relcrf.errors import RelcrfError
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.entity_values import ValueComputer
from relcrf.grounding.estimate import DEFAULT_BUDGET, estimate_size
from relcrf.grounding.learned_values import read_inputs
from relcrf.grounding.lower import lower_pairs, lower_values
from relcrf.grounding.plan import AggregateTerm, Plan
from relcrf.language.render import render_expression
from relcrf.model.expressions import Aggregate, Attribute, Expression, Name
from relcrf.model.learned import labelled_neighbours, learned_features
from relcrf.model.nodes import walk
from relcrf.model.spec import Feature, LearnedDefinition
from relcrf.model.typing import NameScope
from relcrf.proposal.aggregates import ProposedAggregate, enumerate_aggregates, enumerate_label_counts
from relcrf.proposal.draft import ModelDraft
from relcrf.proposal.schema import ProposedAttribute
from relcrf.proposal.templates import ProposedTemplate, binder_name

MAX_SELECTED = 24
"""Maximum number of aggregates of a model: those with the largest association with the training labels."""

MAX_ROWS = 5_000_000
"""Maximum number of rows over which an aggregate is computed; more rows take several seconds, whenever the model is ground."""

MAX_CATEGORIES = 100
"""Maximum number of values of an attribute that is an input of the classifier."""

MAX_MISSING = 0.9
"""Maximum fraction of entities for which an aggregate has no value."""

FORMS = {
    "linear": "a weight for each aggregate and label",
    "learned": "a classifier of the attributes and the aggregates",
}
"""The forms in which a model contains aggregates, with descriptions."""


@dataclass(frozen=True, eq=False)
class AggregateValues:
    """The values of aggregates for all predicted entities, shape (n_entities, n_aggregates); NaN if missing.

    Args:
        n_proposed: The number of enumerated aggregates, including those that are constant, repeated or too expensive.
        label_counts: Further inputs of a classifier: numbers of labels of linked entities, whose values depend on the labels
            that are known.
    """

    aggregates: tuple[ProposedAggregate, ...]
    values: np.ndarray
    n_proposed: int
    label_counts: tuple[ProposedAggregate, ...] = ()

    def associations(self, states: np.ndarray, train: np.ndarray) -> np.ndarray:
        """Return the association of each aggregate with the training labels, shape (n_aggregates,).

        It is the fraction of the variance of the ranks between labels: the statistic of Kruskal and Wallis, divided by the
        number of labels minus one. Missing values have the median rank.

        Args:
            states: The labels of the entities, shape (n_entities,).
            train: Mask of the training labels, shape (n_entities,).
        """
        labels, values = states[train], self.values[train]
        present = ~np.isnan(values)
        ranks = np.where(present, rankdata(values, axis=0, nan_policy="omit"), 0.0)
        ranks = np.where(present, ranks - ranks.sum(axis=0) / np.maximum(present.sum(axis=0), 1), 0.0)
        total = (ranks**2).sum(axis=0)
        between = sum(
            (ranks[labels == y].sum(axis=0) ** 2 / (labels == y).sum() for y in np.unique(labels)), np.zeros(1)
        )
        return np.asarray(between / np.where(total > 0, total, 1.0))

    def select(self, states: np.ndarray, train: np.ndarray) -> tuple[int, ...]:
        """Return the indices, ascending, of the aggregates with the largest association with the training labels."""
        strength = self.associations(states, train)
        best = np.argsort(-strength, kind="stable")[:MAX_SELECTED]
        return tuple(sorted(int(k) for k in best if strength[k] > 0))


def compute_aggregates(draft: ModelDraft, seconds: float) -> AggregateValues:
    """Return the proposed aggregates of a draft with their values; constant and repeated ones are omitted.

    Args:
        seconds: Time limit; aggregates after it are omitted.
    """
    started, proposed = time.perf_counter(), enumerate_aggregates(draft.analysis)
    kept: list[ProposedAggregate] = []
    columns: list[np.ndarray] = []
    seen: set[bytes] = set()
    label_counts: list[ProposedAggregate] = []
    target = draft.analysis.target
    if proposed and target.entity is not None:
        entity, x = target.entity.name, binder_name(target.entity.name)
        counts = enumerate_label_counts(draft.analysis)
        texts = ", ".join(each.text for each in (*proposed, *counts))
        declaration = (
            f"feature aggregates_({x}: {entity}) = classifier of {x}.{target.attributes[0].name} from {texts}\n"
        )
        (feature,) = learned_features(api.parse(f"{draft.text}\n{declaration}").spec)
        definition = feature.definition
        assert isinstance(definition, LearnedDefinition)
        bound = draft.grounding.bound
        context, degrees, reader = make_lowering_context(bound), DegreeCache(bound), _AggregateReader(bound, feature)
        for each, node in zip(proposed, definition.inputs, strict=False):
            if time.perf_counter() - started > seconds:
                break
            if _count_rows(lower_values(node, feature.parameters[0], context), degrees) > MAX_ROWS:
                continue
            try:
                column = reader.read(node)
            except RelcrfError:  # numbers that are too large
                continue
            fingerprint = _fingerprint(column)
            if fingerprint is not None and fingerprint not in seen:
                seen.add(fingerprint)
                kept.append(each)
                columns.append(column)
        scope = NameScope(draft.grounding.spec, feature.parameters, None)
        for each, node in zip(counts, definition.inputs[len(proposed) :], strict=True):
            if time.perf_counter() - started > seconds:
                break
            counted = labelled_neighbours(scope, definition, node)
            assert counted is not None and isinstance(counted.terms[0], Name)
            plan = lower_pairs(counted, feature.parameters[0], counted.terms[0].name, context)
            if estimate_size(degrees, plan).join_rows <= MAX_ROWS:
                (found,) = read_inputs(bound, replace(feature, definition=replace(definition, inputs=(node,))))
                if found.neighbours is not None and found.neighbours.pairs.nnz:
                    label_counts.append(each)
    values = np.stack(columns, axis=1) if columns else np.zeros((0, 0))
    return AggregateValues(tuple(kept), values, len(proposed), tuple(label_counts))


class _AggregateReader:
    """Computes aggregates as inputs of a learned feature; all aggregates over the same path read its pairs once."""

    def __init__(self, bound: BoundModel, feature: Feature) -> None:
        self.bound, self.feature = bound, feature
        context = make_lowering_context(bound)
        self.scope = NameScope(context.spec, feature.parameters, None)
        self.computer = ValueComputer(bound, context, f"feature '{feature.name}'", feature.span, DEFAULT_BUDGET)
        self.pairs: dict[tuple[str, str], csr_array] = {}

    def read(self, node: Expression) -> np.ndarray:
        """Return the value of an aggregate for each entity, shape (n_entities,); NaN if it has no value.

        Raises:
            RelcrfError: See `read_inputs`.
        """
        name = self.feature.parameters[0].name
        match node:
            case Aggregate("sum" | "mean" | "min" | "max", (Attribute(other, _),), where) if other != name:
                key = (render_expression(where), other)
                if key not in self.pairs:
                    self.pairs[key] = self.computer.count_pairs(self.scope, node, name, other)
                values = self.computer.compute(self.scope.aggregate_scope(node), node.terms[0], other)
                return aggregate_pairs(node.function, self.pairs[key], np.asarray(values)[:, 0])
        definition = self.feature.definition
        assert isinstance(definition, LearnedDefinition)
        (found,) = read_inputs(self.bound, replace(self.feature, definition=replace(definition, inputs=(node,))))
        return np.asarray(found.values, dtype=np.float64)[:, 0]


def aggregate_pairs(function: str, pairs: csr_array, values: np.ndarray) -> np.ndarray:
    """Return an aggregate of the known values of each row's columns, shape (n_rows,); NaN, or a sum of 0, if none is known.

    Args:
        function: `sum`, `mean`, `min` or `max`.
        pairs: The number of times that each value counts, shape (n_rows, n_values).
        values: shape (n_values,); NaN if missing.
    """
    n, known = pairs.shape[0], ~np.isnan(values[pairs.indices])
    row, weight = np.repeat(np.arange(n), np.diff(pairs.indptr))[known], pairs.data[known]
    each = values[pairs.indices[known]]
    count = np.bincount(row, weight, minlength=n)
    if function in ("sum", "mean"):
        out = np.bincount(row, weight * each, minlength=n) / (np.maximum(count, 1.0) if function == "mean" else 1.0)
    else:
        out = np.full(n, np.inf if function == "min" else -np.inf)
        (np.minimum if function == "min" else np.maximum).at(out, row, each)
    return np.where((count > 0) | (function == "sum"), out, np.nan)


def _count_rows(plan: Plan, degrees: DegreeCache) -> int:
    """Return an upper bound of the number of rows over which the aggregates of a plan of values are computed."""
    total = 0
    for term in walk(plan.outputs):
        if isinstance(term, AggregateTerm):
            rows = replace(
                plan,
                scans=(*plan.scans, *term.plan.scans),
                equalities=term.plan.equalities,
                filters=term.plan.filters,
                outputs=(),
            )
            total += estimate_size(degrees, rows).join_rows
    return total


def _fingerprint(column: np.ndarray) -> bytes | None:
    """Return bytes that are equal for columns that are multiples of each other; None if a column is constant or missing."""
    present = column[~np.isnan(column)]
    if len(present) < (1 - MAX_MISSING) * len(column) or not len(present) or present.min() == present.max():
        return None
    return np.asarray(np.round((column - present.mean()) / present.std(), 6) + 0.0).tobytes()


def templates_with(
    draft: ModelDraft, found: AggregateValues, selected: Sequence[int], form: str
) -> list[ProposedTemplate]:
    """Return the templates of a draft and a template with aggregates.

    The classifier of the form `learned` replaces the templates of evidence that it reads completely.

    Args:
        selected: Indices of the aggregates.
        form: One of `FORMS`.
    """
    target = draft.analysis.target
    assert target.entity is not None
    entity, label = target.entity, target.attributes[0].name
    x = binder_name(entity.name)
    aggregates = [found.aggregates[k] for k in selected]
    features = [f"# {each.comment}\nfeature {each.name}({x}: {entity.name}) = {each.text}" for each in aggregates]
    own = [each for each in entity.attributes if _is_input(each) and each not in target.attributes]
    covered: set[str] = set()
    if form == "linear":
        terms = []
        for each, k in zip(aggregates, selected, strict=True):
            term, column = f"{each.name}({x})", found.values[:, k]
            is_skewed = np.nanmin(column) >= 0 and np.nanmax(column) > 20
            terms.append(f"standardise({f'log1p({term})' if is_skewed else term})")
        comment = f"{label} depends on {len(aggregates)} aggregates: a weight for each aggregate and label"
    else:
        inputs = [f"{x}.{each.name}" for each in own] + [f"{each.name}({x})" for each in aggregates]
        inputs += [each.text for each in found.label_counts]
        features.append(
            f"# an estimator of scikit-learn, which is trained on the training labels\n"
            f"feature summary({x}: {entity.name}) = classifier of {x}.{label} from {', '.join(inputs)}"
        )
        terms = [f"summary({x})"]
        comment = f"{label} depends on a classifier of {len(own)} attributes and {len(aggregates)} aggregates"
        comment += ", and of the labels of linked entities" if found.label_counts else ""
        omitted = {each.column for k, each in enumerate(found.aggregates) if k not in selected}
        covered = {f"{entity.name}.{each.name}" for each in own} | {each.column for each in aggregates} - omitted - {""}
    text = f"template aggregates({x}: {entity.name})\n    over {x}.{label}\n    by {', '.join(terms)}"
    kept = [each for each in draft.templates if each.column not in covered]
    return [*kept, ProposedTemplate("aggregates", comment, "\n\n".join([*features, text]))]


def _is_input(attribute: ProposedAttribute) -> bool:
    """Return True if the classifier reads an attribute; the model keeps the templates of other attributes."""
    if attribute.is_discrete:
        return attribute.distinct <= MAX_CATEGORIES
    return attribute.type in ("integer", "real", "datetime")
