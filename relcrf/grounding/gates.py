"""The gates of a ground graph: the evidence features that the model gives them, and what their weights mean.

The features are grounded when a backend first reads them. The query of the template runs once more with the gate's features as
its last columns, so that they come in the order of the factors. They are a block like those of templates: features and a weight
block of one pattern, that the gate is open, in groups over no variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from relcrf.columns.storage import Storage
from relcrf.data.bound_model import BoundModel, reraises_plugin_errors
from relcrf.data.names import bag_table
from relcrf.graph.factor_graph import FactorGraph, FactorGroup, RepeatedScope
from relcrf.graph.features import AbstractFeatures, Dense, Ones, Sparse, Tiled
from relcrf.graph.gates import Gates, build_gates, has_keys
from relcrf.graph.weights import WeightBlock
from relcrf.grounding.block_cache import BlockCache, compute_cache_key
from relcrf.grounding.blocks import BlockGrounder, CaseBuilder, GroundBlock, GroundingTask, TemplateInfo
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.estimate import estimate_size
from relcrf.grounding.keys import KeyDictionary, encode_keys
from relcrf.grounding.lower import LoweredGate, LoweredTemplate, LoweringContext, lower_template
from relcrf.grounding.lowered_model import LoweredModel
from relcrf.grounding.row_repetition import reduce_to_one_row
from relcrf.grounding.variables import VariableBlock
from relcrf.model.spec import Gate, Template

OPEN_PATTERN = "open"
"""The pattern of a gate's weights."""

UNOBSERVED_STATUSES = ("asked", "hidden")
"""Statuses of variables that are not evidence."""

SHARED_KEY = "all keys"
"""The key of the weights that all keys share."""


@dataclass(frozen=True)
class GateGrounder:
    """Grounds the gates of one ground graph.

    Args:
        variables: the blocks of the graph's variables.
        cache: cached blocks, to read from and to add to.
        lowered_model: see `ground`.
    """

    bound: BoundModel
    variables: Sequence[VariableBlock]
    cache: BlockCache | None = None
    lowered_model: LoweredModel | None = None

    def ground(
        self, graph: FactorGraph, templates: Sequence[TemplateInfo], group_names: Sequence[str]
    ) -> tuple[Gates, tuple[TemplateInfo, ...]]:
        """Return gates on all factors over two variables, and what their weights mean, by the blocks of their layout.

        Gates have the features that the model gives them, or else the statuses of the two variables.

        Args:
            templates: one for each block of weights. group_names: the template of each group.

        Raises:
            DataError: where a feature is not finite, or a cached block is damaged.
        """
        by: dict[int, tuple[str, AbstractFeatures]] = {}
        infos: dict[str, TemplateInfo] = {}
        facts = self.lowered_model.context if self.lowered_model else make_lowering_context(self.bound)
        declared = {template.name: template for template in facts.spec.templates if not template.is_candidate}
        for gate in self.bound.spec.gates:
            pairs = {k: group for k, group in enumerate(graph.groups) if group_names[k] == gate.template}
            if gate.template in declared and pairs and all(len(group.scope) == 2 for group in pairs.values()):
                block = _ground_gate(self.bound, self, facts, declared[gate.template], gate, list(pairs.values()))
                infos[gate.template] = block.info
                for (k, group), own in zip(pairs.items(), block.groups, strict=True):
                    by[k] = gate.template, _reorder_features(own.features, group)
        gates = build_gates(graph, by)
        meanings = []
        for place, weights in enumerate(gates.layout.blocks):
            k = next(number for number, own in gates.groups.items() if own.block == place)
            info = infos[by[k][0]] if k in by else None
            template = templates[graph.groups[k].block]
            names = _status_names(self.variables, graph.groups[k]) if info is None else _feature_names(info)
            keys = _gate_keys(template) if has_keys(graph.groups[k]) else None
            grows = info is not None and info.keys is not None
            meanings.append(
                TemplateInfo(weights.name, ("base", *names), (OPEN_PATTERN,), keys, template.bindings, grows)
            )
        return gates, tuple(meanings)


@reraises_plugin_errors
def _ground_gate(
    bound: BoundModel,
    grounder: GateGrounder,
    context: LoweringContext,
    template: Template,
    gate: Gate,
    groups: Sequence[FactorGroup],
) -> GroundBlock:
    """Return the features of one gate, from the cache where it has them.

    Args:
        groups: those of the template.
    """
    saved = grounder.cache
    if saved is not None:
        name = compute_cache_key(bound, context.spec, [template], grounder.variables, gate)
        saved = None if bound.dataset.changed_files() else saved
    if saved is not None and (cached := saved.load(name, partial(_matches_groups, groups=groups))):
        return cached
    recipe = grounder.lowered_model
    task = recipe.gates[template.name] if recipe else _make_task(bound, context, template, gate, groups)
    make = partial(_ground_features, BlockGrounder(bound, DuckDbEngine(bound.cursor), grounder.variables), task)
    return make(bound.dataset.storage) if saved is None else saved.ground(name, make)


def _make_task(
    bound: BoundModel, context: LoweringContext, template: Template, gate: Gate, groups: Sequence[FactorGroup]
) -> GroundingTask:
    """Return a template with its gate, on one row of a table where its groups repeat for these rows."""
    lowered, repeated, scope = lower_template(template, context, gate), None, groups[0].scope
    if isinstance(scope, RepeatedScope):
        on_row, found = reduce_to_one_row(bound, context, lowered)
        if found is not None and (found.n_rows, found.strides) == (len(scope.rows), scope.strides):
            lowered, repeated = on_row, found
    return GroundingTask(lowered, repeated, estimate_size(DegreeCache(bound), lowered.plan).join_rows)


def _ground_features(grounder: BlockGrounder, task: GroundingTask, storage: Storage) -> GroundBlock:
    """Ground a gate's features, a group for each case of the evidence that is a factor."""
    lowered, gate = task.lowered, task.lowered.gate
    assert gate is not None, "a template without a gate"
    begin = partial(_GateFeatureBuilder, gate, _read_bag(grounder.bound, lowered, gate), storage)
    cases = CaseBuilder(grounder, task, encode_keys(grounder.bound, lowered), "gate", begin)
    for growing, rows in cases.ground():
        growing.add(rows.features, len(rows))
    features = [growing.finish() for growing, _ in cases.builders()]
    names, keys = gate.feature_names or ("1",), None
    if gate.bag is not None:
        keys = KeyDictionary(gate.domain, tuple((value,) for value in grounder.bound.domains[gate.domain]))
    name = lowered.template.name
    weights = WeightBlock(name, len(keys.values) if keys else len(names), 1)
    groups = tuple(FactorGroup((), (), one, None, 0) for one in features)
    return GroundBlock(
        weights,
        TemplateInfo(f"gate {name}", names, (OPEN_PATTERN,), keys, cases.n_bindings),
        groups,
        (name,) * len(groups),
        {},
    )


class _GateFeatureBuilder:
    """The features of the gates of one group in the making: columns of numbers, or the owners of bags."""

    def __init__(self, gate: LoweredGate, bag: Sparse | None, storage: Storage, name: str) -> None:
        self._bag, self._n_rows = bag, 0
        kind = np.float64 if bag is None else np.int32
        self._values = storage.column(kind, len(gate.outputs), name) if gate.outputs else None

    def add(self, columns: Sequence[np.ndarray], n_rows: int) -> None:
        """Add the gates of some bindings."""
        self._n_rows += n_rows
        if self._values is not None:
            self._values.append(np.column_stack(columns))

    def finish(self) -> AbstractFeatures:
        if self._values is None:
            return Ones(self._n_rows)
        values = self._values.finish()
        return Dense(values) if self._bag is None else self._bag.take(values[:, 0])


def _read_bag(bound: BoundModel, lowered: LoweredTemplate, gate: LoweredGate) -> Sparse | None:
    """Return the bag that is a gate's only feature, a row for each of its owners; None where the features are numbers."""
    if gate.bag is None:
        return None
    owner = lowered.scope.type_names[gate.bag.binder]
    bag = bound.external_tables[bag_table(owner, gate.bag.attribute)]
    start = np.searchsorted(bag["vid"], np.arange(bound.sizes[owner] + 1))
    return Sparse(start, bag["code"].view(), bag["count"].view(), len(bound.domains[gate.domain]))


def _matches_groups(block: GroundBlock, groups: Sequence[FactorGroup]) -> bool:
    """Return True if a block has a row of features for each factor of some groups, or for each of one row that they repeat."""
    if len(block.groups) != len(groups):
        return False
    for own, group in zip(block.groups, groups, strict=True):
        n_patterns = len(group.scope.offsets[0]) if isinstance(group.scope, RepeatedScope) else group.n_factors
        if own.features.n_rows not in (n_patterns, group.n_factors):
            return False
    return True


def _reorder_features(features: AbstractFeatures, group: FactorGroup) -> AbstractFeatures:
    """Return features in the order of a group's factors: those of one row repeat, those of all rows come sorted by variables."""
    if not isinstance(group.scope, RepeatedScope):
        return features
    if features.n_rows == len(group.scope.offsets[0]):
        return Tiled(features, len(group.scope.rows))
    first, second = group.scope
    place = np.empty(group.n_factors, dtype=np.int64)
    place[np.lexsort((second, first))] = np.arange(group.n_factors)
    return features.take(place)


def _gate_keys(template: TemplateInfo) -> KeyDictionary:
    """Return the keys of a template and the one that stands for all of them."""
    assert template.keys is not None, "factors with keys have a template with keys"
    # Its length is no key's, so that it can be none.
    is_single = bool(template.keys.values) and len(template.keys.values[0]) == 1
    return KeyDictionary(None, (*template.keys.values, (SHARED_KEY, "") if is_single else (SHARED_KEY,)))


def _feature_names(info: TemplateInfo) -> tuple[str, ...]:
    if info.keys is None:
        return info.features
    return tuple(f"{', '.join(key)} in {name}" for key in info.keys.values for name in info.features)


def _status_names(variables: Sequence[VariableBlock], group: FactorGroup) -> tuple[str, ...]:
    """Return the names of all pairs of statuses."""
    names: list[tuple[str, ...]] = []
    for place, k in zip(group.scope, group.cardinalities, strict=True):
        values = tuple(str(state) for state in range(k))
        if len(place):
            values = next(b.values for b in variables if b.start <= place[0] < b.start + b.count)
        names.append((*values, *UNOBSERVED_STATUSES))
    return tuple(f"{a}, {b}" for a in names[0] for b in names[1])
