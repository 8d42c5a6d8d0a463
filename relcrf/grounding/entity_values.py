"""Values that are computed for all entities of a type at once: features, aggregates of bags and vectors, `tfidf(...)` etc.

The values are computed by sparse matrix products and stored in a table, which the plans of templates read like a bag or a
column of the entity type (`value_names.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

import numpy as np
from scipy.sparse import csr_array

from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.data.names import bag_table, relation_table
from relcrf.errors import BudgetError, DataError, Diagnostic, Span
from relcrf.grounding.collect import MAX_FEATURE, overflow_error
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.estimate import check_budget, estimate_size
from relcrf.grounding.lower import LoweringContext, lower_pairs, lower_values
from relcrf.grounding.number_bases import evaluate_basis, fit_basis
from relcrf.grounding.pair_aggregates import PairAggregate
from relcrf.grounding.plan import Plan
from relcrf.grounding.propagation import (
    Values,
    divide_by_norm,
    inverse_document_frequencies,
    max_entries,
    mean_and_deviation,
    multiply,
    multiply_by_idf,
    propagation_matrix,
)
from relcrf.grounding.value_names import component_names, feature_value, find_values, statistics_name
from relcrf.language.render import render_expression
from relcrf.model import expressions as e
from relcrf.model.functions import TABLE_STATISTICS
from relcrf.model.learned import used_learned_features
from relcrf.model.nodes import children, walk
from relcrf.model.spec import Feature, FeaturePropagation, LearnedDefinition, ModelSpec, Parameter, Template
from relcrf.model.types import Bag, Vector
from relcrf.model.typing import NameScope

MAX_KEPT_BYTES = 64_000_000
"""Maximum size of the numbers and pairs that a dataset keeps, in bytes."""

MAX_PAIR_ROWS = 5_000_000
"""Maximum number of rows from which aggregates are computed by pairs of entities; these rows take 80 MB."""

Kept = TypeVar("Kept", bound="np.ndarray | csr_array | None")

FeaturesOfTemplate: TypeAlias = tuple[Template, tuple[e.Expression, ...]]
"""A template with the features of the template or of its gate."""


def features_of_templates(spec: ModelSpec) -> list[FeaturesOfTemplate]:
    """Return the templates with their features, and the templates with gates with the features of their gates."""
    by_name = {template.name: template for template in spec.templates}
    gates = [(by_name[gate.template], gate.by) for gate in spec.gates if gate.template in by_name]
    return [*((template, template.by) for template in spec.templates), *gates]


def find_computed_values(
    spec: ModelSpec, template: Template, by: Iterable[e.Expression]
) -> Iterator[tuple[NameScope, e.Expression]]:
    """Yield the outermost expressions in features whose values are computed for all entities, with their scopes."""
    scope = NameScope(spec, template.parameters, template.where)
    for feature in by:
        yield from _find_computed(scope, feature)


def _find_computed(scope: NameScope, node: e.Expression) -> Iterator[tuple[NameScope, e.Expression]]:
    if scope.is_computed(node):
        yield scope, node
        return
    inner = scope.aggregate_scope(node) if isinstance(node, e.Aggregate) else scope
    for child in children(node):
        yield from _find_computed(inner, child)


def create_value_tables(
    bound: BoundModel, context: LoweringContext, features: Sequence[FeaturesOfTemplate], budget: int
) -> None:
    """Create the tables of all computed values in the features of templates, unless the tables exist already.

    Raises:
        BudgetError: if the number of entries of a bag, or the number of pairs of an aggregate, exceeds the budget.
    """
    for template, by in features:
        for scope, node in find_computed_values(context.spec, template, by):
            ValueComputer(bound, context, f"template '{template.name}'", template.span, budget).create_table(
                scope, node
            )


def has_statistics(spec: ModelSpec, features: Iterable[FeaturesOfTemplate]) -> bool:
    """Return True if features depend on document frequencies, means, deviations or quantiles."""
    pending: list[e.Expression] = [feature for _, by in features for feature in by]
    while pending:
        for node in walk(pending.pop()):
            if isinstance(node, e.FunctionCall) and node.name in TABLE_STATISTICS:
                return True
            if isinstance(node, e.Atom) and (feature := spec.feature(node.relation)) is not None:
                pending.append(feature_value(feature))
    return False


@dataclass(frozen=True)
class ValueComputer:
    """A computer of values for all entities of a type.

    Args:
        owner: the declaration that contains the values, such as `template 'word'`, for error messages.
        span: the location of the declaration.
        budget: maximum number of entries of a bag or of pairs of an aggregate.
    """

    bound: BoundModel
    context: LoweringContext
    owner: str
    span: Span | None
    budget: int

    def create_table(self, scope: NameScope, node: e.Expression) -> None:
        """Compute the values of an expression and create their table, unless it exists already."""
        name, table = find_values(node, scope)
        if table in self.bound.external_tables:
            return
        values = self.compute(scope, node, name)
        n = values.shape[0]
        if isinstance(scope.type_of(node), Bag):
            entries = csr_array(values)
            entries.sum_duplicates()
            entries.eliminate_zeros()
            vid = np.repeat(np.arange(n, dtype=np.int32), np.diff(entries.indptr))
            columns = {"vid": vid, "code": entries.indices.astype(np.int32), "count": entries.data.astype(np.float32)}
        else:
            assert isinstance(values, np.ndarray)
            if _is_standardised(scope.spec, node):
                values = np.where(np.isnan(values), 0.0, values)
            columns = {"vid": np.arange(n, dtype=np.int32)}
            # DuckDB reads a NaN of a registered array as null.
            columns |= {f"v{d}": np.ascontiguousarray(values[:, d]) for d in range(values.shape[1])}
        self.bound.register_columns(table, columns)
        if used_learned_features(scope.spec, [node]):
            self.bound.learned_names.add(table)

    def compute(self, scope: NameScope, node: e.Expression, name: str) -> Values:
        """Return the values of an expression for all entities to which `name` may refer."""
        entity, kind = scope.type_names[name], scope.type_of(node)
        match node:
            case e.Attribute(_, attribute) if isinstance(kind, Bag):
                return self._bag(entity, attribute, kind)
            case e.Attribute(_, attribute) if isinstance(kind, Vector):
                return self.bound.vectors(entity, attribute).astype(np.float64)
            case e.FunctionCall(_, (argument, *_)) if scope.is_computed(node):
                return self._apply(scope, node, self.compute(scope, argument, name))
            case e.Atom(relation) if (feature := scope.spec.feature(relation)) is not None:
                return self._feature(feature)
            case e.Aggregate() if scope.is_computed(node):
                return self._aggregate(scope, node, name)
        return self._numbers(scope, node, name)

    def _bag(self, entity: str, attribute: str, kind: Bag) -> csr_array:
        bag = self.bound.external_tables[bag_table(entity, attribute)]
        shape = (self.bound.sizes[entity], len(self.bound.domains[kind.domain]))
        counts = np.asarray(bag["count"], dtype=np.float64)
        return csr_array((counts, (np.asarray(bag["vid"]), np.asarray(bag["code"]))), shape=shape)

    def _numbers(self, scope: NameScope, node: e.Expression, name: str) -> np.ndarray:
        """Return the numbers of an expression; the dataset keeps them for other models with the same coded tables."""
        computed_parts = [*_find_computed(scope, node)]
        for inner_scope, computed in computed_parts:
            self.create_table(inner_scope, computed)
        if (
            computed_parts
            or not self.bound.is_fixed
            or self.bound.given_statistics
            or used_learned_features(scope.spec, [node])
        ):
            return self._query_numbers(scope, node, name)
        key = ("numbers", name, scope.type_names[name], render_expression(node))
        return self._keep(key, lambda: self._compute_numbers(scope, node, name)).copy()

    def _keep(self, key: tuple[str, ...], compute: Callable[[], Kept]) -> Kept:
        """Return the result of a function of the coded tables; the dataset keeps it for other models with the same tables."""
        kept = self.bound.dataset.computed_values
        key = (self.bound.coding, *key)
        if key not in kept:
            computed = compute()
            if _n_bytes(computed) + sum(map(_n_bytes, kept.values())) > MAX_KEPT_BYTES:
                return computed
            kept[key] = computed
        return cast(Kept, kept[key])

    def _compute_numbers(self, scope: NameScope, node: e.Expression, name: str) -> np.ndarray:
        aggregate = PairAggregate.from_node(node, name, scope)
        if aggregate is None:
            return self._query_numbers(scope, node, name)
        path, other = aggregate.path, aggregate.other
        key = ("pairs", name, scope.type_names[name], other, render_expression(path))
        pairs = self._keep(key, lambda: self._few_pairs(scope, path, name, other))
        if pairs is None:
            return self._query_numbers(scope, node, name)
        inner = scope.aggregate_scope(aggregate.node)
        matches = self._matches(aggregate.condition, Parameter(other, inner.type_names[other]))
        if aggregate.term is None:
            values = matches.astype(np.float64)
        else:
            values = np.where(matches, np.asarray(self.compute(inner, aggregate.term, other))[:, 0], np.nan)
        return self._checked(aggregate.aggregate(pairs, values)[:, None], node)

    def _matches(self, condition: e.Expression | None, parameter: Parameter) -> np.ndarray:
        """Return a mask of the entities that satisfy a condition, shape (n_entities,); all entities without a condition."""
        n = self.bound.sizes[parameter.type_name]
        if condition is None:
            return np.ones(n, dtype=bool)
        out = np.zeros(n, dtype=bool)
        plan = lower_values(e.Number(1), parameter, self.context, where=condition)
        for batch in DuckDbEngine(self.bound.cursor).rows(plan):
            out[batch["vid"]] = True
        return out

    def _query_numbers(self, scope: NameScope, node: e.Expression, name: str) -> np.ndarray:
        parameter = Parameter(name, scope.type_names[name])
        out = np.full((self.bound.sizes[parameter.type_name], 1), np.nan)
        for batch in DuckDbEngine(self.bound.cursor).rows(lower_values(node, parameter, self.context)):
            out[batch["vid"], 0] = batch["value"]
        return self._checked(out, node)

    def _checked(self, numbers: np.ndarray, node: e.Expression) -> np.ndarray:
        """Return the numbers of an expression.

        Raises:
            DataError: if a number is too large.
        """
        if (np.abs(numbers) > MAX_FEATURE).any():
            raise overflow_error(render_expression(node), self.owner)
        return numbers

    def _apply(self, scope: NameScope, node: e.FunctionCall, values: Values) -> Values:
        """Apply a function to the values; use the statistics of the training data if the model is trained."""
        if node.name == "normalise":
            return divide_by_norm(values)
        name = statistics_name(node, scope)
        statistics = self.bound.statistics
        if used_learned_features(scope.spec, [node]):
            self.bound.learned_names.add(name)
        if node.name == "tfidf":
            counts = csr_array(values)  # `multiply` returns a dense matrix if the bags have many values
            return multiply_by_idf(counts, statistics.setdefault(name, inverse_document_frequencies(counts)))
        assert isinstance(values, np.ndarray)
        if node.name in ("quantiles", "spline"):
            (numbers,) = values.T
            size = len(component_names(node, scope, self.bound.vector_lengths, self.bound.domains))
            fitted = statistics.setdefault(name, fit_basis(node.name, numbers, size))
            return evaluate_basis(node.name, numbers, fitted)
        known = statistics.setdefault(name, mean_and_deviation(values).ravel())
        if known.size != 2 * values.shape[1]:
            sizes = f"{values.shape[1]} components in these data but had {known.size // 2} in training"
            message = f"'{render_expression(node)}' has {sizes}"
            raise DataError(Diagnostic("E224", message, hint="use vectors of the same length in all data of a model"))
        mean, deviation = known.reshape(2, -1)
        return np.asarray((values - mean) / deviation)

    def _feature(self, feature: Feature) -> Values:
        (parameter,) = feature.parameters
        scope = NameScope(self.context.spec, feature.parameters, None)
        definition = feature.definition
        if isinstance(definition, LearnedDefinition):
            return self._learned_values(feature, scope)
        if not isinstance(definition, FeaturePropagation):
            return self.compute(scope, definition, parameter.name)
        values = self.compute(scope, definition.operand, parameter.name)
        table = quoted(relation_table(definition.relation))
        links = self.bound.connection.execute(f"SELECT a0, a1 FROM {table}").fetchnumpy()
        a, b = (np.asarray(links[column], dtype=np.int64) for column in ("a0", "a1"))
        step = propagation_matrix(values.shape[0], a, b, definition.normalisation)
        if isinstance(values, np.ndarray):
            values = np.where(np.isnan(values), 0.0, values)
        for _ in range(definition.hops):
            values = self._multiply(step, values, feature.name)
        return values

    def _learned_values(self, feature: Feature, scope: NameScope) -> np.ndarray:
        """Return the values of a learned feature; zeros until they are learned (see `grounding/learned_values.py`)."""
        if feature.name in self.bound.learned_values:
            return self.bound.learned_values[feature.name]
        (parameter,) = feature.parameters
        node = e.Atom(feature.name, (e.Name(parameter.name),))
        is_vector = isinstance(scope.type_of(node), Vector)
        bound = self.bound
        width = len(component_names(node, scope, bound.vector_lengths, bound.domains)) if is_vector else 1
        return np.zeros((bound.sizes[parameter.type_name], width))

    def _aggregate(self, scope: NameScope, node: e.Aggregate, name: str) -> Values:
        (term,) = node.terms
        inner = scope.aggregate_scope(node)
        (other,) = e.names_in(term) & set(inner.type_names)
        pairs = self.count_pairs(scope, node, name, other)
        values = self.compute(inner, term, other)
        if node.function == "mean":
            count = np.maximum(np.asarray(pairs.sum(axis=1)).ravel(), 1.0)
            pairs = csr_array(
                (pairs.data / np.repeat(count, np.diff(pairs.indptr)), pairs.indices, pairs.indptr), pairs.shape
            )
        return self._multiply(pairs, values, render_expression(node))

    def count_pairs(self, scope: NameScope, node: e.Aggregate, name: str, other: str) -> csr_array:
        """Return the number of combinations of local names of an aggregate for each pair of entities.

        Args:
            name: the outer name, whose entities are the rows.
            other: a local name, whose entities are the columns.

        Raises:
            BudgetError: if the number of combinations exceeds the budget.
        """
        plan, shape = self._pair_plan(scope, node, name, other)
        check_budget(DegreeCache(self.bound), plan, self.budget, render_expression(node), node.span)
        return self._pairs(plan, shape)

    def _few_pairs(self, scope: NameScope, node: e.Aggregate, name: str, other: str) -> csr_array | None:
        """Return the result of `count_pairs`; None if there are more than `MAX_PAIR_ROWS` combinations."""
        plan, shape = self._pair_plan(scope, node, name, other)
        is_large = estimate_size(DegreeCache(self.bound), plan).join_rows > MAX_PAIR_ROWS
        return None if is_large else self._pairs(plan, shape)

    def _pair_plan(self, scope: NameScope, node: e.Aggregate, name: str, other: str) -> tuple[Plan, tuple[int, int]]:
        """Return the plan of the combinations of local names, and the numbers of entities of both names."""
        parameter, other_type = Parameter(name, scope.type_names[name]), scope.aggregate_scope(node).type_names[other]
        shape = (self.bound.sizes[parameter.type_name], self.bound.sizes[other_type])
        return lower_pairs(node, parameter, other, self.context), shape

    def _pairs(self, plan: Plan, shape: tuple[int, int]) -> csr_array:
        """Return the number of rows of a plan for each pair of entities."""
        batches = list(DuckDbEngine(self.bound.cursor).rows(plan))
        vid, other = (
            np.concatenate([np.empty(0, dtype=np.int64), *(batch[output] for batch in batches)])
            for output in ("vid", "other")
        )
        pairs = csr_array((np.ones(len(vid)), (vid, other)), shape=shape)
        pairs.sum_duplicates()
        return pairs

    def _multiply(self, step: csr_array, values: Values, name: str) -> Values:
        n_entries = 0 if isinstance(values, np.ndarray) else max_entries(step, values)
        if n_entries > self.budget:
            message = f"'{name}' would have up to {n_entries:,} values, more than the budget of {self.budget:,}"
            hint = "use fewer hops or a relation with fewer tuples, or raise the budget with --budget"
            raise BudgetError(Diagnostic("E320", message, self.span, hint))
        return multiply(step, values)


def _is_standardised(spec: ModelSpec, node: e.Expression) -> bool:
    """Return True if a value is the result of `standardise`, also as a feature, in which missing numbers are 0."""
    if isinstance(node, e.Atom) and (feature := spec.feature(node.relation)) is not None:
        return not isinstance(feature.definition, LearnedDefinition) and _is_standardised(spec, feature_value(feature))
    return isinstance(node, e.FunctionCall) and node.name == "standardise"


def _n_bytes(values: np.ndarray | csr_array | None) -> int:
    if values is None or isinstance(values, np.ndarray):
        return 0 if values is None else values.nbytes
    return sum(each.nbytes for each in (values.data, values.indices, values.indptr))
