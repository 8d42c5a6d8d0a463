"""Grounds a model on its bound tables: the mega-sample, and the way back from it to keys and templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.data.bound import Bound
from relcrf.errors import DataError, Diagnostic, listing
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.grounding import sql
from relcrf.grounding.derive import Progress, derive_all, facts_of
from relcrf.grounding.estimate import DEFAULT_BUDGET, measure, require
from relcrf.grounding.keys import KeyDictionary, encode_keys, unite
from relcrf.grounding.lower import Facts, LoweredTemplate, lower_template
from relcrf.grounding.patterns import pattern_names, state_patterns
from relcrf.grounding.rows import features_of
from relcrf.grounding.variables import (
    VariableBlock,
    argument_texts,
    make_random_relations,
    states_of,
    values_of,
    variable_blocks,
)
from relcrf.model.expressions import Atom, Attribute
from relcrf.model.rules import all_templates
from relcrf.model.spec import ModelSpec, Options, Template

HARD = 1000.0
"""The price of failing a hard formula, in nats: e to the power -1000 is no probability that a computer can hold."""


@dataclass(frozen=True)
class TemplateInfo:
    """What the numbers of a weight block mean.

    Args:
        name: of the weights: the template's, unless templates share them by another name.
        features: how each `by` feature is spelt; `1` for the constant.
        patterns: how each pattern is spelt.
        bindings: of all templates that use the weights.
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
        templates: one for each block of weights.
        group_names: the template of each group of the graph. One whose formula looks at evidence has a group for each
            case of the evidence that does not decide the formula, so perhaps none.
        bindings: of each template, by name.
        domains: the values of every domain, in the order of the codes.
    """

    spec: ModelSpec
    bound: Bound
    graph: FactorGraph
    blocks: tuple[VariableBlock, ...]
    states: np.ndarray
    templates: tuple[TemplateInfo, ...]
    group_names: tuple[str, ...]
    bindings: Mapping[str, int]
    domains: Mapping[str, tuple[str, ...]]

    def block_of(self, variable: int) -> VariableBlock:
        """The block that a variable belongs to."""
        return next(b for b in self.blocks if b.start <= variable < b.start + b.count)

    @cached_property
    def latent(self) -> np.ndarray:
        """Which variables are never observed, shape (n_variables,), bool."""
        return np.repeat([b.is_latent for b in self.blocks], [b.count for b in self.blocks]).astype(bool)

    @cached_property
    def _arguments(self) -> dict[str, list[np.ndarray]]:
        return {}

    def arguments(self, block: VariableBlock) -> list[np.ndarray]:
        """The keys and values that tell a block's variables apart, as text: a column for each of `block.sorts`."""
        if block.name not in self._arguments:
            self._arguments[block.name] = argument_texts(self.bound, block)
        return self._arguments[block.name]

    def label(self, variable: int) -> str:
        """A variable as people name it: `Page(12).category`, `Smokes(anna)`."""
        block = self.block_of(variable)
        return block.spell(tuple(str(column[variable - block.start]) for column in self.arguments(block)))


def prepare(bound: Bound, budget: int = DEFAULT_BUDGET, progress: Progress = lambda name: None) -> None:
    """Makes the tables of the derived and random relations.

    Raises:
        BudgetError: where one has more tuples than the budget.
    """
    derive_all(bound, budget, progress)
    make_random_relations(bound, facts_of(bound), budget)


def ground(bound: Bound, budget: int = DEFAULT_BUDGET, progress: Progress = lambda name: None) -> Grounding:
    """Grounds every template, but no candidates. Derived and random relations are made first.

    Raises:
        BudgetError: before anything large is made, where a template has more bindings than the budget.
        DataError: where a feature is not finite, or a random attribute has no values.
    """
    prepare(bound, budget, progress)
    _note_left_out(bound)
    facts = facts_of(bound)
    templates = [t for t in facts.spec.templates if not t.is_candidate]
    lowered = [lower_template(template, facts) for template in templates]
    for one in lowered:
        size = measure(bound.connection, one.plan, budget)
        require(size, budget, one.template.name, one.template.span, one.plan)
    blocks = variable_blocks(bound)
    cardinality = np.repeat([len(b.values) for b in blocks], [b.count for b in blocks]).astype(np.int32)
    states = [states_of(bound, block) for block in blocks]
    sharing: dict[str, list[LoweredTemplate]] = {}
    for one in lowered:
        sharing.setdefault(one.template.weights, []).append(one)
    made = _Made(bound, facts, {(b.owner, b.attribute): b.start for b in blocks})
    for name, members in sharing.items():
        made.add(name, members, progress)
    graph = FactorGraph(cardinality, tuple(made.groups), WeightLayout(tuple(made.weights)))
    return Grounding(
        bound.spec,
        bound,
        graph,
        tuple(blocks),
        np.concatenate(states) if states else np.empty(0, dtype=np.int32),
        tuple(made.infos),
        tuple(made.names),
        made.bindings,
        dict(bound.domains),
    )


def _note_left_out(bound: Bound) -> None:
    """Tells what the model says and the graph does not hold."""
    candidates = [t.name for t in bound.spec.templates if t.is_candidate]
    gates = [g.template for g in bound.spec.gates]
    lasso = [t.name for t in all_templates(bound.spec) if t.options.l1]
    reasons = (
        (candidates, "candidates", "left out, for they are a structure learner's"),
        (gates, "gates of", "left out, for no backend of this version has gates"),
        (lasso, "l1 of", "not applied, for no backend of this version has it"),
    )
    for names, what, why in reasons:
        text = f"{what} {listing(names)}: {why}"
        if names and text not in bound.notes:
            bound.notes.append(text)


@dataclass(frozen=True)
class _Rows:
    """The bindings of one template.

    Args:
        scope: variables, a column for each place.
        evidence: truths and codes of the formula's evidence, a column for each part; -1 where missing.
        columns: features.
    """

    scope: list[np.ndarray]
    evidence: list[np.ndarray]
    key: np.ndarray | None
    keys: KeyDictionary | None
    columns: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.scope[0])


class _Made:
    """Groups and blocks of weights in the making."""

    def __init__(self, bound: Bound, facts: Facts, start: Mapping[tuple[str, str | None], int]) -> None:
        self.bound, self.facts, self.start = bound, facts, start
        self.groups: list[FactorGroup] = []
        self.names: list[str] = []
        self.weights: list[WeightBlock] = []
        self.infos: list[TemplateInfo] = []
        self.bindings: dict[str, int] = {}

    def add(self, name: str, members: Sequence[LoweredTemplate], progress: Progress) -> None:
        """The templates that share one block of weights."""
        fetched = []
        for one in members:
            progress(one.template.name)
            fetched.append(self._fetch(one))
        codes, keys = unite([(rows.key, rows.keys) for rows in fetched])
        n_keys = len(keys.values) if keys else 0
        first = members[0]
        patterns = pattern_names(first, self._values(first))
        features = first.feature_names or ("1",)
        for one, rows, key in zip(members, fetched, codes, strict=True):
            self._check_width(one, first)
            self.bindings[one.template.name] = len(rows)
            self._groups(one, rows, key, n_keys)
        self.infos.append(TemplateInfo(name, features, patterns, keys, sum(len(rows) for rows in fetched)))
        self.weights.append(_weight_block(name, members, (n_keys if keys else 1) * len(features), len(patterns)))

    def _check_width(self, one: LoweredTemplate, first: LoweredTemplate) -> None:
        if max(1, len(one.features)) != max(1, len(first.features)):
            message = f"'{one.template.name}' and '{first.template.name}' share weights, but not the number of features"
            hint = "the vectors in their 'by' have different lengths"
            raise DataError(Diagnostic("E224", message, one.template.span, hint))

    def _values(self, lowered: LoweredTemplate) -> list[tuple[str, ...]]:
        return [values_of(self.bound, kind) for kind in lowered.kinds]

    def _groups(self, lowered: LoweredTemplate, rows: _Rows, key: np.ndarray | None, n_keys: int) -> None:
        """A group for each case of the evidence in the formula; where every state is the same to it, it is no factor."""
        values = self._values(lowered)
        parts = [node for node, _ in lowered.evidence]
        for case, chosen in _cases(rows):
            patterns = state_patterns(lowered, values, dict(zip(parts, case, strict=True)))
            if not lowered.is_table and patterns is not None and patterns.min() == patterns.max():
                continue
            columns = [column[chosen] for column in rows.columns]
            scope, features = features_of(
                [v[chosen] for v in rows.scope], key if key is None else key[chosen], n_keys, columns
            )
            cardinalities = tuple(len(v) for v in values)
            self.groups.append(FactorGroup(tuple(scope), cardinalities, features, patterns, len(self.infos)))
            self.names.append(lowered.template.name)

    def _fetch(self, lowered: LoweredTemplate) -> _Rows:
        order = [*lowered.variables, *(key.output for key in lowered.keys), *lowered.features[:4]]
        found = self.bound.connection.execute(sql.fetch(lowered.plan, order)).fetchnumpy()
        bindings = len(found["v0"])
        scope = []
        for output, term in zip(lowered.variables, lowered.terms, strict=True):
            variable = _complete(found.pop(output)).astype(np.int32, copy=False)
            offset = self._offset(lowered, term)
            scope.append(variable + np.int32(offset) if offset else variable)
        evidence = [_filled(found.pop(name), -1).astype(np.int32) for _, name in lowered.evidence]
        # A missing feature is no evidence: 0, as if the thing were not there.
        columns = [_filled(found.pop(name).astype(np.float64), 0.0) for name in lowered.features]
        for name, column in zip(lowered.feature_names, columns, strict=True):
            if not np.isfinite(column).all():
                message = f"the feature '{name}' of template '{lowered.template.name}' is not finite for some bindings"
                hint = "guard the expression, for instance with log1p or least"
                raise DataError(Diagnostic("E222", message, hint=hint, notes=(f"{bindings:,} bindings",)))
        key, keys = encode_keys(self.bound, lowered.keys, [_complete(found.pop(k.output)) for k in lowered.keys])
        return _Rows(scope, evidence, key, keys, columns)

    def _offset(self, lowered: LoweredTemplate, term: Attribute | Atom) -> int:
        """The first variable of the block that a term's variables are in."""
        if isinstance(term, Atom):
            return self.start[term.relation, None]
        return self.start[lowered.scope.sorts[term.binder], term.attribute]


def _cases(rows: _Rows) -> list[tuple[tuple[int, ...], slice | np.ndarray]]:
    """The combinations of evidence that there are, and the bindings of each, in order."""
    if not rows.evidence:
        return [((), slice(None))]
    if not len(rows):
        return []
    table = np.column_stack(rows.evidence)
    distinct, inverse = np.unique(table, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    return [(tuple(int(v) for v in case), np.flatnonzero(inverse == k)) for k, case in enumerate(distinct)]


def _weight_block(name: str, members: Sequence[LoweredTemplate], n_features: int, n_patterns: int) -> WeightBlock:
    """The weights that some templates share; only one of them gives the options."""
    templates: list[Template] = [one.template for one in members]
    if templates[0].is_hard:
        return WeightBlock(name, n_features, n_patterns, HARD, fixed=True)
    options = next((t.options for t in templates if t.options != Options(weights=t.options.weights)), Options())
    start = options.init or 0.0
    return WeightBlock(name, n_features, n_patterns, start, options.fixed, options.l1, options.l2)


def _complete(column: np.ndarray) -> np.ndarray:
    if isinstance(column, np.ma.MaskedArray):
        assert not column.mask.any(), "a scope or a key has a missing value"
        return np.asarray(column.data)
    return column


def _filled(column: np.ndarray, value: float) -> np.ndarray:
    return np.asarray(np.ma.filled(np.ma.asarray(column), value))
