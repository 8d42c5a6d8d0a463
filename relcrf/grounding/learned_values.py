"""Learned features in grounding: their inputs, and the factors of the templates that depend on their values.

The values of a learned feature depend on the training labels. Templates with learned features are first ground with zeros;
when the values are known, `with_learned_values` grounds these templates again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from relcrf.columns.offsets import offsets
from relcrf.data.bound_model import BoundModel, reraises_plugin_errors
from relcrf.graph.features import AbstractFeatures, Dense, Sparse
from relcrf.grounding.blocks import BlockGrounder
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.entity_values import ValueComputer, create_value_tables
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.ground import make_task
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.lower import LoweringContext, lower_values
from relcrf.grounding.text_rows import split_tokens
from relcrf.grounding.variables import find_block
from relcrf.language.render import render_expression
from relcrf.model import expressions as e
from relcrf.model.as_of import restrict
from relcrf.model.learned import labelled_neighbours, used_learned_features
from relcrf.model.spec import Feature, LearnedDefinition, Parameter, RangeDomain, Template
from relcrf.model.types import BOOL_VALUES, Bag, Date, DomainType, String, ValueType, Vector
from relcrf.model.typing import NameScope


@dataclass(frozen=True, eq=False)
class LabelledNeighbours:
    """The neighbours of entities whose labels are counted: the input `sum { q.x where C }` of a classifier of p.x.

    Args:
        pairs: the number of combinations of local names that satisfy C for each p and q, shape (n_entities, n_entities).
        is_mean: whether the counts are divided by their sum.
    """

    pairs: csr_array
    is_mean: bool

    def without_pairs_in(self, fold: np.ndarray) -> LabelledNeighbours:
        """Return the neighbours of each entity in other folds; -1 denotes no fold, shape (n_entities,)."""
        pairs = self.pairs.tocoo()
        first, second = pairs.coords
        kept = (fold[first] != fold[second]) | (fold[first] < 0)
        return replace(self, pairs=csr_array((pairs.data[kept], (first[kept], second[kept])), shape=pairs.shape))

    def count(self, codes: np.ndarray, n_categories: int) -> np.ndarray:
        """Return the number or fraction of the neighbours with each label, shape (n_entities, n_categories).

        Args:
            codes: the label of each entity; -1 if it is unknown, shape (n_entities,).
        """
        known = np.flatnonzero((codes >= 0) & (codes < n_categories))
        shape = (len(codes), n_categories)
        labels = csr_array((np.ones(len(known)), (known, codes[known])), shape=shape)
        counts = (self.pairs @ labels).toarray()
        return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0) if self.is_mean else counts)


@dataclass(frozen=True)
class LearnedInput:
    """The values of an input of a learned feature for all entities.

    Args:
        name: the text of the input in the model.
        kind: `number` or `vector` (NaN is a missing number), `category` (codes; NaN if missing), `text` (texts; None if
            missing), `bag` (the counts of an attribute) or `weighted bag` (a computed bag).
        values: shape (n_entities, n_columns); for texts shape (n_entities,), dtype object; sparse for bags.
        neighbours: the neighbours whose labels the input counts; its values have no columns before `with_labels`.
    """

    name: str
    kind: str
    values: np.ndarray | csr_array
    neighbours: LabelledNeighbours | None = None

    def with_labels(self, codes: np.ndarray, n_categories: int) -> LearnedInput:
        """Return the input with the counts of the labels of neighbours; see `LabelledNeighbours.count`."""
        if self.neighbours is None:
            return self
        return replace(self, values=self.neighbours.count(codes, n_categories))

    def without_pairs_in(self, fold: np.ndarray) -> LearnedInput:
        """Return the input without neighbours in the same fold; see `LabelledNeighbours.without_pairs_in`."""
        if self.neighbours is None:
            return self
        return replace(self, neighbours=self.neighbours.without_pairs_in(fold))

    def features(self) -> AbstractFeatures:
        """Return the values as features; a category and each word of a text is a feature, a missing number is 0."""
        match self.kind:
            case "number" | "vector":
                return Dense(np.nan_to_num(self.values))
            case "category":
                known = ~np.isnan(self.values[:, 0])
                column, length = self.values[known, 0].astype(np.int64), known.astype(np.int64)
            case "text":
                words = [sorted(set(split_tokens(text or ""))) for text in self.values.tolist()]
                length = np.array([len(each) for each in words])
                column = np.unique([word for each in words for word in each], return_inverse=True)[1]
            case _:
                counts = csr_array(self.values)
                return Sparse(counts.indptr, counts.indices, counts.data, counts.shape[1])
        return Sparse(offsets(length), column, np.empty(0), int(column.max(initial=-1)) + 1)


@reraises_plugin_errors
def read_inputs(bound: BoundModel, feature: Feature, budget: int = DEFAULT_BUDGET) -> tuple[LearnedInput, ...]:
    """Compute the inputs of a learned feature for all entities of its type.

    Raises:
        BudgetError: if the number of entries of a bag, or the number of pairs of an aggregate, exceeds the budget.
        DataError: if a number is above 1e300.
    """
    definition = restrict(bound.spec, feature).definition
    assert isinstance(definition, LearnedDefinition)
    context = make_lowering_context(bound)
    computer = ValueComputer(bound, context, f"feature '{feature.name}'", feature.span, budget)
    (parameter,) = feature.parameters
    scope = NameScope(context.spec, feature.parameters, None)
    inputs: list[LearnedInput] = []
    for node in definition.inputs:
        if (counted := labelled_neighbours(scope, definition, node)) is not None:
            inputs.append(_read_neighbours(computer, scope, node, counted))
            continue
        kind = _input_kind(scope, node)
        values: np.ndarray | csr_array
        if kind in ("category", "text") or isinstance(scope.type_of(node), Date):
            values = _read_column(bound, context, node, parameter, scope.type_of(node))
        else:
            values = computer.compute(scope, node, parameter.name)
        inputs.append(LearnedInput(render_expression(node), kind, values))
    return tuple(inputs)


def _read_neighbours(
    computer: ValueComputer, scope: NameScope, node: e.Expression, counted: e.Aggregate
) -> LearnedInput:
    """Return an input that counts the labels of other entities; see `labelled_neighbours`."""
    (name,), (term,) = scope.type_names, counted.terms
    assert isinstance(term, e.Name) and isinstance(node, e.Aggregate)
    pairs = computer.count_pairs(scope, counted, name, term.name)
    n = pairs.shape[0]
    # The label of an entity is not an input of its own prediction.
    neighbours = LabelledNeighbours(pairs, node.function == "mean").without_pairs_in(np.arange(n))
    return LearnedInput(render_expression(node), "vector", np.empty((n, 0)), neighbours)


def _input_kind(scope: NameScope, node: e.Expression) -> str:
    match scope.type_of(node):
        case Bag():
            return "bag" if isinstance(node, e.Attribute) else "weighted bag"
        case String():
            return "text"
        case Vector():
            return "vector"
        case Date():
            return "number"
        case DomainType(name) if not isinstance(scope.spec.domain(name), RangeDomain):
            return "category"
    return "number"


def _read_column(
    bound: BoundModel, context: LoweringContext, node: e.Expression, parameter: Parameter, kind: ValueType
) -> np.ndarray:
    """Return a text, the code of a category, or a date in days from 1970-01-01 for each entity; see `LearnedInput`."""
    is_text = isinstance(kind, String)
    n = bound.sizes[parameter.type_name]
    out = np.full(n, None, dtype=object) if is_text else np.full(n, np.nan)
    plan = lower_values(node, parameter, context, "text" if isinstance(kind, String | Date) else "double")
    for batch in DuckDbEngine(bound.cursor).rows(plan):
        values = batch["value"]
        out[batch["vid"]] = values.astype("datetime64[D]").astype(np.int64) if isinstance(kind, Date) else values
    return out if is_text else out[:, None]


@dataclass(frozen=True)
class LearnedTarget:
    """The target of a learned feature for all entities.

    Args:
        values: the code of the category or the number; NaN if it is missing, shape (n_entities,).
        categories: the categories by code; None for a regressor.
        is_vector: whether the feature has a value for each category; otherwise it is a number.
        first_variable: the index of the variable of the first entity; None if the target is evidence.
    """

    values: np.ndarray
    categories: tuple[str, ...] | None
    is_vector: bool
    first_variable: int | None


def with_known_labels(
    inputs: Sequence[LearnedInput], target: LearnedTarget, known: np.ndarray, n_categories: int
) -> list[LearnedInput]:
    """Return the inputs of a learned feature with the counts of the labels of neighbours.

    Args:
        known: mask of the entities whose labels are counted, shape (n_entities,), bool.
        n_categories: number of categories of the target in training.
    """
    if all(each.neighbours is None for each in inputs):
        return list(inputs)
    codes = np.where(known & ~np.isnan(target.values), target.values, -1.0).astype(np.int64)
    return [each.with_labels(codes, n_categories) for each in inputs]


def read_target(grounding: Grounding, feature: Feature) -> LearnedTarget:
    """Read the target of a learned feature; the values include all labels, also those that must not be used."""
    bound, definition = grounding.bound, feature.definition
    assert isinstance(definition, LearnedDefinition) and isinstance(definition.target, e.Attribute)
    context = make_lowering_context(bound)
    (parameter,) = feature.parameters
    scope = NameScope(context.spec, feature.parameters, None)
    kind = scope.type_of(definition.target)
    domain = context.spec.domain(kind.domain) if isinstance(kind, DomainType) else None
    low = float(domain.low) if isinstance(domain, RangeDomain) else 0.0
    first = None
    if scope.is_random(definition.target):
        block = find_block(definition.target, scope, grounding.blocks)
        first = block.start
        states = grounding.states[first : first + block.count]
        values = np.where(states >= 0, states + low, np.nan)
        if block.is_numeric:
            values = grounding.numbers[first : first + block.count]
    else:
        values = _read_column(bound, context, definition.target, parameter, kind)[:, 0]
    values = values - low if definition.kind == "classifier" else values
    categories = None
    if definition.kind == "classifier":
        categories = tuple(context.domains[kind.domain]) if isinstance(kind, DomainType) else BOOL_VALUES
    is_vector = categories is not None and isinstance(kind, DomainType)
    return LearnedTarget(values, categories, is_vector, first)


def weights_with_learned_features(grounding: Grounding) -> dict[str, list[Template]]:
    """Return the templates of each set of weights of which some template depends on a learned feature."""
    spec = make_lowering_context(grounding.bound).spec
    groups: dict[str, list[Template]] = {}
    for template in spec.templates:
        if not template.is_candidate:
            groups.setdefault(template.weights, []).append(template)
    return {
        name: templates
        for name, templates in groups.items()
        if any(used_learned_features(spec, template.by) for template in templates)
    }


def with_learned_values(grounding: Grounding, values: Mapping[str, np.ndarray]) -> Grounding:
    """Return the ground graph with other values of the learned features.

    Args:
        values: values of each learned feature, by its name, shape (n_entities, n_components).

    Raises:
        BudgetError, DataError: see `ground`.
    """
    with grounding.bound.dataset.store.reraise_plugin_errors():
        return _ground_again(grounding, values)


def _ground_again(grounding: Grounding, values: Mapping[str, np.ndarray]) -> Grounding:
    bound, budget = grounding.bound, grounding.budget
    bound.set_learned_values(values)
    context, degrees = make_lowering_context(bound), DegreeCache(bound)
    grounder = BlockGrounder(bound, DuckDbEngine(bound.cursor), grounding.blocks)
    names = [info.name for info in grounding.templates]
    groups, group_names = list(grounding.graph.groups), list(grounding.group_names)
    for name, templates in weights_with_learned_features(grounding).items():
        create_value_tables(bound, context, [(template, template.by) for template in templates], budget)
        tasks = [make_task(degrees, context, template, budget) for template in templates]
        block, number = grounder.ground(name, tasks, bound.dataset.storage), names.index(name)
        assert block.weights.size == grounding.graph.layout.blocks[number].size
        positions = [k for k, group in enumerate(groups) if group.block == number]
        for position, group in zip(positions, block.groups, strict=True):
            groups[position] = replace(group, block=number)
    graph = replace(grounding.graph, groups=tuple(groups))
    return replace(grounding, graph=graph, group_names=tuple(group_names))
