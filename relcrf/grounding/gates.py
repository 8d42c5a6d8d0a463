"""Grounding of gates: the evidence features of each gate, and the meaning of the gate weights.

A *gate* belongs to a factor over two variables. The weights of the gate determine the probability that the factor is used
(the gate is open). The features of gates are grounded when a backend first reads them: the plan of the template runs again
with the features as last columns, so that the features have the order of the factors. The result is a `GroundBlock`. Its
weight block has a single pattern (the gate is open), and its factor groups have no variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from relcrf.columns.storage import Storage
from relcrf.data.bound_model import BoundModel, reraises_plugin_errors
from relcrf.graph.factor_graph import FactorGraph, FactorGroup, RepeatedScope
from relcrf.graph.features import AbstractFeatures, Dense, Ones, Sparse, Tiled
from relcrf.graph.gates import Gates, build_gates, has_keys
from relcrf.graph.weights import WeightBlock
from relcrf.grounding.block_cache import BlockCache, compute_cache_key
from relcrf.grounding.blocks import BlockGrounder, CaseBuilder, GroundBlock, GroundingTask, TemplateInfo
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.entity_values import create_value_tables, has_statistics
from relcrf.grounding.estimate import estimate_size
from relcrf.grounding.keys import KeyDictionary, encode_keys
from relcrf.grounding.lower import LoweredGate, LoweringContext, lower_template
from relcrf.grounding.lowered_model import LoweredModel
from relcrf.grounding.row_repetition import reduce_to_one_row
from relcrf.grounding.variables import VariableBlock
from relcrf.model.spec import Gate, Template

OPEN_PATTERN = "open"
"""Text of the only pattern of a gate's weights: the gate is open."""

UNOBSERVED_STATUSES = ("query", "hidden")
"""Statuses of unobserved variables; the status of an observed variable is its value."""

SHARED_KEY = "all keys"
"""Text of the additional key that represents the weights shared by all keys."""


@dataclass(frozen=True)
class GateGrounder:
    """A grounder of the gates of one ground graph.

    Args:
        variables: blocks of the graph's variables.
        budget: maximum number of entries of a bag or of pairs of an aggregate.
        cache: cache of ground blocks; new blocks are added to it.
        lowered_model: the model's templates and gates, already lowered to relational plans, or None.
    """

    bound: BoundModel
    variables: Sequence[VariableBlock]
    budget: int
    cache: BlockCache | None = None
    lowered_model: LoweredModel | None = None

    def ground(
        self, graph: FactorGraph, templates: Sequence[TemplateInfo], group_names: Sequence[str]
    ) -> tuple[Gates, tuple[TemplateInfo, ...]]:
        """Return the gates of all factors over two variables, and the meaning of each block of gate weights.

        If the model declares no features for a gate, the features are the pairs of statuses of the two variables.

        Args:
            templates: description of each block of template weights.
            group_names: name of the template of each group.

        Raises:
            BudgetError: if an aggregate or a bag exceeds the budget.
            DataError: if a feature is not finite, or a cached block is damaged.
        """
        gate_features: dict[int, tuple[str, AbstractFeatures]] = {}
        infos: dict[str, TemplateInfo] = {}
        context = self.lowered_model.context if self.lowered_model else make_lowering_context(self.bound)
        declared = {template.name: template for template in context.spec.templates if not template.is_candidate}
        for gate in context.spec.gates:
            template_groups = {k: group for k, group in enumerate(graph.groups) if group_names[k] == gate.template}
            if (
                gate.template in declared
                and template_groups
                and all(len(group.scope) == 2 for group in template_groups.values())
            ):
                block = _ground_gate(
                    self.bound, self, context, declared[gate.template], gate, list(template_groups.values())
                )
                infos[gate.template] = block.info
                for (k, group), gate_group in zip(template_groups.items(), block.groups, strict=True):
                    gate_features[k] = gate.template, _reorder_features(gate_group.features, group)
        gates = build_gates(graph, gate_features)
        gate_infos = []
        for block_index, weights in enumerate(gates.layout.blocks):
            k = next(group_index for group_index, gate_group in gates.groups.items() if gate_group.block == block_index)
            info = infos[gate_features[k][0]] if k in gate_features else None
            template = templates[graph.groups[k].block]
            names = _status_names(self.variables, graph.groups[k]) if info is None else _feature_names(info)
            keys = _gate_keys(template) if has_keys(graph.groups[k]) else None
            is_extensible = info is not None and info.keys is not None
            gate_infos.append(
                TemplateInfo(weights.name, ("base", *names), (OPEN_PATTERN,), keys, template.bindings, is_extensible)
            )
        return gates, tuple(gate_infos)


@reraises_plugin_errors
def _ground_gate(
    bound: BoundModel,
    grounder: GateGrounder,
    context: LoweringContext,
    template: Template,
    gate: Gate,
    groups: Sequence[FactorGroup],
) -> GroundBlock:
    """Return the block with the features of one gate, from the cache if possible.

    Args:
        groups: factor groups of the template.
    """
    cache, features = grounder.cache, [(template, (*template.by, *gate.by))]
    if has_statistics(context.spec, features):
        create_value_tables(bound, context, features, grounder.budget)
    if cache is not None:
        name = compute_cache_key(bound, context.spec, [template], grounder.variables, gate)
        cache = None if bound.dataset.changed_files() else cache
    if cache is not None and (cached := cache.load(name, partial(_matches_groups, groups=groups))):
        return cached
    lowered_model = grounder.lowered_model
    create_value_tables(bound, context, features, grounder.budget)
    task = lowered_model.gates[template.name] if lowered_model else _make_task(bound, context, template, gate, groups)
    ground_block = partial(_ground_features, BlockGrounder(bound, DuckDbEngine(bound.cursor), grounder.variables), task)
    return ground_block(bound.dataset.storage) if cache is None else cache.ground(name, ground_block)


def _make_task(
    bound: BoundModel, context: LoweringContext, template: Template, gate: Gate, groups: Sequence[FactorGroup]
) -> GroundingTask:
    """Return the task of grounding a template with its gate, for one table row if the groups repeat for every row."""
    lowered, repetition, scope = lower_template(template, context, gate), None, groups[0].scope
    if isinstance(scope, RepeatedScope):
        row_lowered, row_repetition = reduce_to_one_row(bound, context, lowered)
        if row_repetition is not None and (row_repetition.n_rows, row_repetition.strides) == (
            len(scope.rows),
            scope.strides,
        ):
            lowered, repetition = row_lowered, row_repetition
    return GroundingTask(lowered, repetition, estimate_size(DegreeCache(bound), lowered.plan).join_rows)


def _ground_features(grounder: BlockGrounder, task: GroundingTask, storage: Storage) -> GroundBlock:
    """Ground the features of a gate into one group for each case of the template's evidence, see `CaseBuilder`."""
    lowered, gate = task.lowered, task.lowered.gate
    assert gate is not None, "the template has no gate"
    make_builder = partial(_GateFeatureBuilder, gate, _read_bag(grounder.bound, gate), storage)
    case_builder = CaseBuilder(grounder, task, encode_keys(grounder.bound, lowered), "gate", make_builder)
    for builder, rows in case_builder.ground():
        builder.add(rows.features, len(rows))
    features = [builder.finish() for builder, _ in case_builder.builders()]
    names, keys = gate.feature_names or ("1",), None
    if gate.bag_table:
        keys = KeyDictionary(gate.domain, tuple((value,) for value in grounder.bound.domains[gate.domain]))
    name = lowered.template.name
    weights = WeightBlock(name, len(keys.values) if keys else len(names), 1)
    groups = tuple(FactorGroup((), (), block_features, None, 0) for block_features in features)
    return GroundBlock(
        weights,
        TemplateInfo(f"gate {name}", names, (OPEN_PATTERN,), keys, case_builder.n_bindings),
        groups,
        (name,) * len(groups),
        {},
    )


class _GateFeatureBuilder:
    """A builder of the gate features of one group: columns of numbers, or the indices of the entities that own bags."""

    def __init__(self, gate: LoweredGate, bag: Sparse | None, storage: Storage, name: str) -> None:
        self._bag, self._n_rows = bag, 0
        kind = np.float64 if bag is None else np.int32
        self._values = storage.column(kind, len(gate.outputs), name) if gate.outputs else None

    def add(self, columns: Sequence[np.ndarray], n_rows: int) -> None:
        """Add the gate features of some bindings."""
        self._n_rows += n_rows
        if self._values is not None:
            self._values.append(np.column_stack(columns))

    def finish(self) -> AbstractFeatures:
        if self._values is None:
            return Ones(self._n_rows)
        values = self._values.finish()
        return Dense(values) if self._bag is None else self._bag.take(values[:, 0])


def _read_bag(bound: BoundModel, gate: LoweredGate) -> Sparse | None:
    """Return the bag that is the only feature of a gate, with a row for each entity; None if the gate has no bag."""
    if not gate.bag_table:
        return None
    bag = bound.external_tables[gate.bag_table]
    start = np.searchsorted(bag["vid"], np.arange(bound.sizes[gate.owner] + 1))
    return Sparse(start, bag["code"].view(), bag["count"].view(), len(bound.domains[gate.domain]))


def _matches_groups(block: GroundBlock, groups: Sequence[FactorGroup]) -> bool:
    """Return True if a block has a feature row for each factor; in a repeated group, the factors of one row suffice."""
    if len(block.groups) != len(groups):
        return False
    for gate_group, group in zip(block.groups, groups, strict=True):
        n_patterns = len(group.scope.offsets[0]) if isinstance(group.scope, RepeatedScope) else group.n_factors
        if gate_group.features.n_rows not in (n_patterns, group.n_factors):
            return False
    return True


def _reorder_features(features: AbstractFeatures, group: FactorGroup) -> AbstractFeatures:
    """Return features in the order of a group's factors; if the group repeats for every row, tile or permute them."""
    if not isinstance(group.scope, RepeatedScope):
        return features
    if features.n_rows == len(group.scope.offsets[0]):
        return Tiled(features, len(group.scope.rows))
    first, second = group.scope
    inverse = np.empty(group.n_factors, dtype=np.int64)
    inverse[np.lexsort((second, first))] = np.arange(group.n_factors)
    return features.take(inverse)


def _gate_keys(template: TemplateInfo) -> KeyDictionary:
    """Return the keys of a template, followed by the key of the shared weights."""
    assert template.keys is not None, "the template of factors with keys has keys"
    # The tuple of the shared key has another length than the tuples of all other keys, so that it differs from them.
    is_single = bool(template.keys.values) and len(template.keys.values[0]) == 1
    return KeyDictionary(None, (*template.keys.values, (SHARED_KEY, "") if is_single else (SHARED_KEY,)))


def _feature_names(info: TemplateInfo) -> tuple[str, ...]:
    if info.keys is None:
        return info.features
    return tuple(f"{', '.join(key)} in {name}" for key in info.keys.values for name in info.features)


def _status_names(variables: Sequence[VariableBlock], group: FactorGroup) -> tuple[str, ...]:
    """Return the names of all pairs of statuses of the two variables of a factor."""
    names: list[tuple[str, ...]] = []
    for variables_of_slot, k in zip(group.scope, group.cardinalities, strict=True):
        values: Sequence[str] = tuple(str(state) for state in range(k))
        if len(variables_of_slot):
            values = next(b.values for b in variables if b.start <= variables_of_slot[0] < b.start + b.count)
        names.append((*values, *UNOBSERVED_STATUSES))
    return tuple(f"{a}, {b}" for a in names[0] for b in names[1])
