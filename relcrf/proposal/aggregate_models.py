"""Models with aggregates: the values of aggregates, their association with labels, and templates that contain them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from relcrf import api
from relcrf.errors import RelcrfError
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.entity_values import ValueComputer
from relcrf.grounding.estimate import DEFAULT_BUDGET, estimate_size
from relcrf.grounding.learned_values import read_inputs
from relcrf.grounding.lower import lower_pairs, lower_values
from relcrf.grounding.pair_aggregates import PairAggregate
from relcrf.grounding.plan import AggregateTerm, Plan
from relcrf.model.expressions import Expression, Name
from relcrf.model.learned import labelled_neighbours, learned_features
from relcrf.model.nodes import walk
from relcrf.model.spec import LearnedDefinition
from relcrf.model.typing import NameScope
from relcrf.proposal.aggregates import ProposedAggregate, enumerate_aggregates, enumerate_label_counts
from relcrf.proposal.draft import ModelDraft
from relcrf.proposal.schema import ProposedAttribute
from relcrf.proposal.templates import ProposedTemplate, binder_name, standardised_terms

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
    "learned": "a learned feature of the attributes and the aggregates",
}
"""The forms in which a model contains aggregates, with descriptions."""


@dataclass(frozen=True, eq=False)
class AggregateValues:
    """The values of aggregates for all predicted entities, shape (n_entities, n_aggregates); NaN if missing.

    Args:
        n_proposed: The number of enumerated aggregates, including those that are constant, repeated or too expensive.
        label_counts: Further inputs of a classifier: numbers of labels of linked entities, whose values depend on the labels
            that are known.
        is_number: Whether the target is a number.
    """

    aggregates: tuple[ProposedAggregate, ...]
    values: np.ndarray
    n_proposed: int
    label_counts: tuple[ProposedAggregate, ...] = ()
    is_number: bool = False

    def associations(self, labels: np.ndarray, train: np.ndarray) -> np.ndarray:
        """Return the association of each aggregate with the training labels, shape (n_aggregates,).

        It is the fraction of the variance of the ranks between labels: the statistic of Kruskal and Wallis, divided by the
        number of labels minus one. For a number, it is the squared rank correlation. Missing values have the median rank.

        Args:
            labels: The labels of the entities, states or numbers, shape (n_entities,).
            train: Mask of the training labels, shape (n_entities,).
        """
        labels, values = labels[train], self.values[train]
        present = ~np.isnan(values)
        ranks = np.where(present, scipy.stats.rankdata(values, axis=0, nan_policy="omit"), 0.0)
        ranks = np.where(present, ranks - ranks.sum(axis=0) / np.maximum(present.sum(axis=0), 1), 0.0)
        total = (ranks**2).sum(axis=0)
        if self.is_number:
            order = scipy.stats.rankdata(labels) - 0.5 * (len(labels) + 1)
            between = (order @ ranks) ** 2 / max(float(order @ order), 1.0)
        else:
            between = sum(
                (ranks[labels == y].sum(axis=0) ** 2 / (labels == y).sum() for y in np.unique(labels)), np.zeros(1)
            )
        return np.asarray(between / np.where(total > 0, total, 1.0))

    def select(self, labels: np.ndarray, train: np.ndarray) -> tuple[int, ...]:
        """Return the indices, ascending, of the aggregates with the largest association with the training labels."""
        strength = self.associations(labels, train)
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
            f"feature aggregates_({x}: {entity}) = {target.learner} of {x}.{target.attributes[0].name} from {texts}\n"
        )
        (feature,) = learned_features(api.parse(f"{draft.text}\n{declaration}").spec)
        definition = feature.definition
        assert isinstance(definition, LearnedDefinition)
        bound = draft.grounding.bound
        (parameter,) = feature.parameters
        context, degrees = make_lowering_context(bound), DegreeCache(bound)
        computer = ValueComputer(bound, context, f"feature '{feature.name}'", feature.span, DEFAULT_BUDGET)
        scope = NameScope(context.spec, feature.parameters, None)
        rows: dict[Expression, int] = {}
        for each, node in zip(proposed, definition.inputs, strict=False):
            if time.perf_counter() - started > seconds:
                break
            found = PairAggregate.from_node(node, parameter.name, scope)
            path = node if found is None else found.path
            if path not in rows:
                rows[path] = _count_rows(lower_values(path, parameter, context), degrees)
            if rows[path] > MAX_ROWS:
                continue
            try:
                column = np.asarray(computer.compute(scope, node, parameter.name))[:, 0]
            except RelcrfError:  # numbers that are too large
                continue
            fingerprint = _fingerprint(column)
            if fingerprint is not None and fingerprint not in seen:
                seen.add(fingerprint)
                kept.append(each)
                columns.append(column)
        for each, node in zip(counts, definition.inputs[len(proposed) :], strict=True):
            if time.perf_counter() - started > seconds:
                break
            counted = labelled_neighbours(scope, definition, node)
            assert counted is not None and isinstance(counted.terms[0], Name)
            plan = lower_pairs(counted, parameter, counted.terms[0].name, context)
            if estimate_size(degrees, plan).join_rows <= MAX_ROWS:
                (labels,) = read_inputs(bound, replace(feature, definition=replace(definition, inputs=(node,))))
                if labels.neighbours is not None and labels.neighbours.pairs.nnz:
                    label_counts.append(each)
    values = np.stack(columns, axis=1) if columns else np.zeros((0, 0))
    return AggregateValues(tuple(kept), values, len(proposed), tuple(label_counts), target.is_number)


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
    draft: ModelDraft, found: AggregateValues, selected: Sequence[int], form: str, estimator: str = ""
) -> list[ProposedTemplate]:
    """Return the templates of a draft and a template with aggregates.

    The classifier or regressor of the form `learned` replaces the templates of evidence that it reads completely.

    Args:
        selected: Indices of the aggregates.
        form: One of `FORMS`.
        estimator: The estimator of the form `learned`; empty to choose between estimators.
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
            terms.append(standardised_terms(term, np.nanmin(column), np.nanmax(column), target))
        comment = f"{label} depends on {len(aggregates)} aggregates: a weight for each aggregate and label"
    else:
        inputs = [f"{x}.{each.name}" for each in own] + [f"{each.name}({x})" for each in aggregates]
        inputs += [each.text for each in found.label_counts]
        features.append(
            f"# an estimator of scikit-learn, which is trained on the training labels\n"
            f"feature summary({x}: {entity.name}) = {target.learner} of {x}.{label} from {', '.join(inputs)}"
            + (f' using "{estimator}"' if estimator else "")
        )
        terms = [f"summary({x})"]
        comment = f"{label} depends on a {target.learner} of {len(own)} attributes and {len(aggregates)} aggregates"
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
