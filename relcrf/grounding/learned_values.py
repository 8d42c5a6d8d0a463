"""Learned features in grounding: their inputs, and the factors of the templates that depend on their values.

The values of a learned feature depend on the training labels. Templates with learned features are first ground with zeros;
when the values are known, `with_learned_values` grounds these templates again.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from relcrf.grounding.variables import BOOL_VALUES, find_block
from relcrf.language.render import render_expression
from relcrf.model import expressions as e
from relcrf.model.learned import used_learned_features
from relcrf.model.spec import Feature, LearnedDefinition, Parameter, RangeDomain, Template
from relcrf.model.types import Bag, Date, DomainType, String, ValueType, Vector
from relcrf.model.typing import NameScope


@dataclass(frozen=True)
class LearnedInput:
    """The values of an input of a learned feature for all entities.

    Args:
        name: the text of the input in the model.
        kind: `number` or `vector` (NaN is a missing number), `category` (codes; NaN if missing), `text` (texts; None if
            missing), `bag` (the counts of an attribute) or `weighted bag` (a computed bag).
        values: shape (n_entities, n_columns); for texts shape (n_entities,), dtype object; sparse for bags.
    """

    name: str
    kind: str
    values: np.ndarray | csr_array

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
    definition = feature.definition
    assert isinstance(definition, LearnedDefinition)
    context = make_lowering_context(bound)
    computer = ValueComputer(bound, context, f"feature '{feature.name}'", feature.span, budget)
    (parameter,) = feature.parameters
    scope = NameScope(context.spec, feature.parameters, None)
    inputs = []
    for node in definition.inputs:
        kind = _input_kind(scope, node)
        values: np.ndarray | csr_array
        if kind in ("category", "text") or isinstance(scope.type_of(node), Date):
            values = _read_column(bound, context, node, parameter, scope.type_of(node))
        else:
            values = computer.compute(scope, node, parameter.name)
        inputs.append(LearnedInput(render_expression(node), kind, values))
    return tuple(inputs)


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


def with_learned_values(
    grounding: Grounding, values: Mapping[str, np.ndarray], budget: int = DEFAULT_BUDGET
) -> Grounding:
    """Return the ground graph with other values of the learned features.

    Args:
        values: values of each learned feature, by its name, shape (n_entities, n_components).

    Raises:
        BudgetError, DataError: see `ground`.
    """
    with grounding.bound.dataset.store.reraise_plugin_errors():
        return _ground_again(grounding, values, budget)


def _ground_again(grounding: Grounding, values: Mapping[str, np.ndarray], budget: int) -> Grounding:
    bound = grounding.bound
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
