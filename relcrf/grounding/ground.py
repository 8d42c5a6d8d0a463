"""Grounds a model on its bound tables: the mega-sample, and the way back from it to keys and templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from relcrf.data.binding import Bound
from relcrf.data.dataset import quoted
from relcrf.data.names import relation_table
from relcrf.errors import DataError, Diagnostic, UsageError
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Ones, Sparse
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.grounding import sql
from relcrf.grounding.estimate import DEFAULT_BUDGET, Size, measure, require
from relcrf.grounding.lower import Facts, KeyColumn, LoweredTemplate, lower_derived, lower_template
from relcrf.grounding.nearest import nearest_neighbours
from relcrf.grounding.patterns import is_table, state_patterns
from relcrf.language.render import expression
from relcrf.model.expressions import Atom, Attribute, Function, walk
from relcrf.model.spec import Derived, ModelSpec, Nearest
from relcrf.model.types import Bool, DomainType, EntityType

BOOL_VALUES = ("false", "true")


@dataclass(frozen=True)
class VariableBlock:
    """The variables of one predicted attribute: variable `start + vid` is the thing's."""

    entity: str
    attribute: str
    start: int
    count: int
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.entity}.{self.attribute}"


@dataclass(frozen=True)
class KeyDictionary:
    """What the keys of a template's `per` stand for.

    Args:
        domain: where the only key is a value of a domain, that domain; its codes are the keys.
        values: texts of the keys, one tuple for each; as many columns as `per` has keys.
    """

    domain: str | None
    values: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class TemplateInfo:
    """What the numbers of a template's group mean.

    Args:
        features: how each `by` feature is spelt; `1` for the constant.
        patterns: how each pattern is spelt.
        bindings: how many there are.
    """

    name: str
    features: tuple[str, ...]
    patterns: tuple[str, ...]
    keys: KeyDictionary | None
    bindings: int

    def feature_name(self, feature: int) -> tuple[tuple[str, ...], str]:
        """The key and the spelling of a feature of the group's matrix."""
        key, d = divmod(feature, len(self.features))
        return (self.keys.values[key] if self.keys else ()), self.features[d]


@dataclass(frozen=True)
class Grounding:
    """A ground graph with its way back.

    Args:
        states: of each variable in the data, shape (n_variables,), int32; -1 where missing.
        templates: one for each group of the graph.
        domains: the values of every domain, in the order of the codes.
    """

    spec: ModelSpec
    bound: Bound
    graph: FactorGraph
    blocks: tuple[VariableBlock, ...]
    states: np.ndarray
    templates: tuple[TemplateInfo, ...]
    domains: Mapping[str, tuple[str, ...]]

    def block_of(self, variable: int) -> VariableBlock:
        """The block that a variable belongs to."""
        return next(b for b in self.blocks if b.start <= variable < b.start + b.count)

    @cached_property
    def keys(self) -> dict[str, np.ndarray]:
        """The keys of every entity with a predicted attribute."""
        return {entity: self.bound.keys(entity) for entity in {b.entity for b in self.blocks}}

    def label(self, variable: int) -> str:
        """A variable as people name it: `Page(12).category`."""
        block = self.block_of(variable)
        return f"{block.entity}({self.keys[block.entity][variable - block.start]}).{block.attribute}"


@dataclass(frozen=True)
class TemplatePlan:
    """What a template will ground into; see `relcrf plan`."""

    name: str
    bindings: int
    factors: int
    weights: int
    bytes: int
    is_exact: bool


Progress = Callable[[str], None]


def facts_of(bound: Bound) -> Facts:
    return Facts(bound.spec, bound.domains, bound.vector_lengths)


def derive_all(bound: Bound, budget: int = DEFAULT_BUDGET, progress: Progress = lambda name: None) -> None:
    """Makes the tables of the derived relations, each after those that it reads.

    Raises:
        BudgetError: where one has more tuples than the budget.
    """
    facts = facts_of(bound)
    for derived in _in_order(bound.spec):
        progress(derived.name)
        if isinstance(derived.definition, Nearest):
            _derive_nearest(bound, derived, derived.definition)
            continue
        plan = lower_derived(derived, facts)
        require(measure(bound.connection, plan, budget), budget, derived.name, derived.span, plan)
        bound.connection.execute(sql.create(plan, relation_table(derived.name)))


def _in_order(spec: ModelSpec) -> list[Derived]:
    done: dict[str, Derived] = {}

    def visit(derived: Derived) -> None:
        if derived.name in done:
            return
        if not isinstance(derived.definition, Nearest):
            for node in walk(derived.definition):
                used = spec.relation(node.relation) if isinstance(node, Atom) else None
                if isinstance(used, Derived):
                    visit(used)
        done[derived.name] = derived

    for derived in spec.derived:
        visit(derived)
    return list(done.values())


def _derive_nearest(bound: Bound, derived: Derived, nearest: Nearest) -> None:
    assert isinstance(nearest.measure, Function)
    vector = nearest.measure.arguments[0]
    assert isinstance(vector, Attribute)
    vectors = bound.vectors(derived.parameters[0].sort, vector.attribute)
    a, b = nearest_neighbours(vectors, nearest.count, nearest.measure.name)
    bound.connection.register("neighbours", {"a0": a, "a1": b})
    table = quoted(relation_table(derived.name))
    bound.connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT a0, a1 FROM neighbours")
    bound.connection.unregister("neighbours")


def plan(bound: Bound, budget: int = DEFAULT_BUDGET) -> list[TemplatePlan]:
    """What each template will ground into, without grounding it. Derived relations must be there (`derive_all`).

    Templates over the budget are told with what is known, and not refused.
    """
    facts = facts_of(bound)
    out = []
    for template in bound.spec.templates:
        lowered = lower_template(template, facts)
        size = measure(bound.connection, lowered.plan, budget)
        out.append(_plan_one(bound, lowered, size))
    return out


def _plan_one(bound: Bound, lowered: LoweredTemplate, size: Size) -> TemplatePlan:
    n = size.bindings
    width = max(1, len(lowered.features))
    n_keys = _count_keys(bound, lowered) if size.is_exact else 0
    n_patterns = _n_joint_states(bound, lowered) if is_table(lowered.template.over) else 1
    n_bytes = 4 * len(lowered.variables) * n
    if len(lowered.variables) > 1:
        n_bytes += (4 * n if lowered.keys else 0) + 8 * len(lowered.features) * n
        factors = n
    else:
        ((factors,),) = bound.connection.execute(sql.count_distinct(lowered.plan, ["v0"])).fetchall() if n else ((0,),)
        n_bytes = _unary_bytes(n, int(factors), width, bool(lowered.keys), bool(lowered.features))
    return TemplatePlan(lowered.template.name, n, int(factors), n_keys * width * n_patterns, n_bytes, size.is_exact)


def _unary_bytes(n: int, variables: int, width: int, has_keys: bool, has_values: bool) -> int:
    """Bytes of a unary group of n bindings on so many variables; see `_unary_features`."""
    if n == variables:
        return 4 * variables + (4 * n if has_keys else 0) + (8 * n * width if has_values else 0)
    if not has_keys:
        return 4 * variables + 8 * variables * width
    return 4 * variables + 8 * (variables + 1) + (4 + (4 if has_values else 0)) * n * width


def _count_keys(bound: Bound, lowered: LoweredTemplate) -> int:
    if not lowered.keys:
        return 1
    known = [_known_values(bound, key) for key in lowered.keys]
    if len(known) == 1 and known[0] is not None:
        return len(known[0])
    names = [key.output for key in lowered.keys]
    ((n,),) = bound.connection.execute(sql.count_distinct(lowered.plan, names)).fetchall()
    return int(n)


def _values_of(bound: Bound, entity: str, attribute: str) -> tuple[str, ...]:
    declared = bound.spec.entity(entity)
    found = declared.attribute(attribute) if declared else None
    assert found is not None
    return BOOL_VALUES if isinstance(found.type, Bool) else bound.domains[getattr(found.type, "domain", "")]


def _n_joint_states(bound: Bound, lowered: LoweredTemplate) -> int:
    sizes = [len(_values_of(bound, lowered.scope.sorts[t.binder], t.attribute)) for t in lowered.terms]
    return int(np.prod(sizes))


def ground(bound: Bound, budget: int = DEFAULT_BUDGET, progress: Progress = lambda name: None) -> Grounding:
    """Grounds every template. Derived relations are made first.

    Raises:
        BudgetError: before anything large is made, where a template has more bindings than the budget.
        DataError: where a feature is not finite, or a predicted attribute has no values.
    """
    derive_all(bound, budget, progress)
    facts = facts_of(bound)
    lowered = [lower_template(template, facts) for template in bound.spec.templates]
    for one in lowered:
        size = measure(bound.connection, one.plan, budget)
        require(size, budget, one.template.name, one.template.span, one.plan)
    blocks = _variable_blocks(bound)
    start = {(b.entity, b.attribute): b.start for b in blocks}
    cardinality = np.repeat([len(b.values) for b in blocks], [b.count for b in blocks]).astype(np.int32)
    states = [bound.codes(b.entity, b.attribute) for b in blocks]
    groups, weights, infos = [], [], []
    for k, one in enumerate(lowered):
        progress(one.template.name)
        group, info = _ground_template(bound, one, k, start)
        groups.append(group)
        infos.append(info)
        options = one.template.options
        weights.append(
            WeightBlock(
                one.template.name,
                group.features.n_features,
                group.n_patterns,
                options.init or 0.0,
                options.fixed,
                options.l1,
                options.l2,
            )
        )
    graph = FactorGraph(cardinality, tuple(groups), WeightLayout(tuple(weights)))
    return Grounding(bound.spec, bound, graph, tuple(blocks), np.concatenate(states), tuple(infos), dict(bound.domains))


def _variable_blocks(bound: Bound) -> list[VariableBlock]:
    blocks, start = [], 0
    for entity in bound.spec.entities:
        for attribute in entity.attributes:
            if not attribute.predicted:
                continue
            values = _values_of(bound, entity.name, attribute.name)
            if not values:
                message = f"the domain of {entity.name}.{attribute.name} has no value in the data"
                raise DataError(
                    Diagnostic("E221", message, hint="label some things, or give the domain's values in the model")
                )
            blocks.append(VariableBlock(entity.name, attribute.name, start, bound.sizes[entity.name], values))
            start += bound.sizes[entity.name]
    return blocks


def _ground_template(
    bound: Bound, lowered: LoweredTemplate, block: int, start: Mapping[tuple[str, str], int]
) -> tuple[FactorGroup, TemplateInfo]:
    order = [*lowered.variables, *(key.output for key in lowered.keys), *lowered.features[:4]]
    found = bound.connection.execute(sql.fetch(lowered.plan, order)).fetchnumpy()
    bindings = len(found["v0"])
    sorts = lowered.scope.sorts
    scope = []
    for output, term in zip(lowered.variables, lowered.terms, strict=True):
        variable = _complete(found.pop(output)).astype(np.int32, copy=False)
        offset = start[sorts[term.binder], term.attribute]
        scope.append(variable + np.int32(offset) if offset else variable)
    # A missing feature is no evidence: 0, as if the thing were not there.
    columns = [np.ma.filled(np.ma.asarray(found.pop(name)).astype(np.float64), 0.0) for name in lowered.features]
    for name, column in zip(lowered.feature_names, columns, strict=True):
        if not np.isfinite(column).all():
            message = f"the feature '{name}' of template '{lowered.template.name}' is not finite for some bindings"
            hint = "guard the expression, for instance with log1p or least"
            raise DataError(Diagnostic("E222", message, hint=hint, notes=(f"{bindings:,} bindings",)))
    key, keys = _encode_keys(bound, lowered.keys, found)
    values = [_values_of(bound, sorts[t.binder], t.attribute) for t in lowered.terms]
    over = lowered.template.over
    patterns = state_patterns(over, lowered.scope, bound.spec, values)
    n_keys = len(keys.values) if keys else 0
    features: AbstractFeatures
    if len(scope) == 1:
        scope, features = _unary_features(scope[0], key, n_keys, columns)
    else:
        features = _features(len(scope[0]), key, n_keys, columns)
    cardinalities = tuple(len(v) for v in values)
    group = FactorGroup(tuple(scope), cardinalities, features, patterns, block)
    names = _pattern_names(lowered, values)
    info = TemplateInfo(lowered.template.name, lowered.feature_names or ("1",), names, keys, bindings)
    return group, info


def _complete(column: np.ndarray) -> np.ndarray:
    if isinstance(column, np.ma.MaskedArray):
        assert not column.mask.any(), "a scope or a key has a missing value"
        return np.asarray(column.data)
    return column


def _pattern_names(lowered: LoweredTemplate, values: list[tuple[str, ...]]) -> tuple[str, ...]:

    if not is_table(lowered.template.over):
        return (expression(lowered.template.over[0]),)
    if np.prod([float(len(v)) for v in values]) > 1_000_000:
        message = f"the table of template '{lowered.template.name}' has more than a million states"
        raise UsageError(Diagnostic("E321", message, hint="use a formula in 'over', such as a.x == b.x"))
    return tuple(", ".join(states) for states in product(*values))


def _known_values(bound: Bound, key: KeyColumn) -> tuple[str, ...] | None:
    """The texts of a key's codes, where codes are known before the data is read."""
    if isinstance(key.kind, DomainType):
        return bound.domains[key.kind.domain]
    if isinstance(key.kind, EntityType):
        return tuple(str(k) for k in bound.keys(key.kind.entity))
    if isinstance(key.kind, Bool):
        return BOOL_VALUES
    return None


def _encode_keys(
    bound: Bound, keys: tuple[KeyColumn, ...], found: dict[str, np.ndarray]
) -> tuple[np.ndarray | None, KeyDictionary | None]:
    """Dense codes of the key combinations, shape (n_bindings,), and what they stand for."""
    if not keys:
        return None, None
    codes, texts = [], []
    for key in keys:
        column = _complete(found.pop(key.output))
        known = _known_values(bound, key)
        if known is None:
            distinct, column = np.unique(column.astype(str), return_inverse=True)
            known = tuple(distinct.tolist())
        codes.append(column)
        texts.append(known)
    if len(keys) == 1:
        kind = keys[0].kind
        domain = kind.domain if isinstance(kind, DomainType) else None
        return codes[0].astype(np.int32), KeyDictionary(domain, tuple((t,) for t in texts[0]))
    combined = codes[0].astype(np.int64)
    for code, text in zip(codes[1:], texts[1:], strict=True):
        # Numbered anew after each key, so that the product of the sizes cannot overflow.
        combined = np.unique(combined, return_inverse=True)[1] * len(text) + code
    _, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
    columns = [[text[c] for c in code[first]] for code, text in zip(codes, texts, strict=True)]
    return inverse.astype(np.int32), KeyDictionary(None, tuple(zip(*columns, strict=True)))


def _features(n: int, key: np.ndarray | None, n_keys: int, columns: list[np.ndarray]) -> AbstractFeatures:
    """The features of factors that each have one row."""
    if key is None:
        return Dense(np.column_stack(columns)) if columns else Ones(n)
    return Keyed(key, np.column_stack(columns) if columns else np.empty((0, 1)), n_keys)


def _unary_features(
    variable: np.ndarray, key: np.ndarray | None, n_keys: int, columns: list[np.ndarray]
) -> tuple[list[np.ndarray], AbstractFeatures]:
    """One factor a variable: bindings that share it add up, since log potentials are linear in the features.

    `variable` is ascending. A bag of words becomes one sparse row a page.
    """
    is_first = np.ones(len(variable), dtype=bool)
    is_first[1:] = variable[1:] != variable[:-1]
    first = np.flatnonzero(is_first)
    if len(first) == len(variable):
        return [variable], _features(len(variable), key, n_keys, columns)
    distinct = np.ascontiguousarray(variable[first])
    if key is None:
        rows = np.column_stack(columns) if columns else np.ones((len(variable), 1))
        return [distinct], Dense(np.add.reduceat(rows, first, axis=0))
    row_start = np.append(first, len(variable)).astype(np.int64)
    if not columns:
        return [distinct], Sparse(row_start, key, np.empty(0, dtype=np.float32), n_keys)
    width = len(columns)
    column = (key[:, None] * np.int32(width) + np.arange(width, dtype=np.int32)).ravel()
    values = np.column_stack(columns).astype(np.float32).ravel()
    return [distinct], Sparse(row_start * width, column, values, n_keys * width)
