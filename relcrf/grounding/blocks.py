"""Blocks of the ground graph. Each block contains weights and the factors of all templates that share these weights.

A template has the clauses `over` (random terms or a formula), `by` (features) and `per` (keys, which have separate weights).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from relcrf.columns.storage import Storage
from relcrf.data.bound_model import BoundModel
from relcrf.errors import DataError, Diagnostic, UsageError
from relcrf.graph.factor_graph import FactorGroup, RepeatedScope
from relcrf.graph.features import Tiled
from relcrf.graph.weights import WeightBlock
from relcrf.grounding.collect import collect_bindings, split_by_evidence
from relcrf.grounding.engines.base import AbstractEngine
from relcrf.grounding.group_builder import DenseKeyMap, GroupBuilder, SortedBindings
from relcrf.grounding.keys import CodedKeys, KeyDictionary, build_key_dictionary, encode_keys
from relcrf.grounding.lower import LoweredTemplate
from relcrf.grounding.patterns import count_numbers, pattern_names, require_pattern_memory, state_patterns
from relcrf.grounding.row_repetition import RowRepetition
from relcrf.grounding.value_names import component_names
from relcrf.grounding.variables import VariableBlock, domain_values, find_block
from relcrf.kernels.distinct import distinct
from relcrf.model.expressions import Atom, Attribute, Expression, Name
from relcrf.model.formula import initial_values_error
from relcrf.model.spec import LearnedDefinition, Template, WeightOptions
from relcrf.model.types import Bool, Vector

T = TypeVar("T")

INITIAL_LOG_PAIR_WEIGHT = -2.0
"""Initial logarithm of the weights of two numbers: a weak coupling, with a correlation of 0.1 between two numbers. From a weight
near 0, whose gradient is as small as the weight itself, learning would not start."""

HARD_WEIGHT = 1000.0
"""Cost of violating a hard formula, in nats; exp(-1000) underflows to 0 in double precision."""


@dataclass(frozen=True)
class TemplateInfo:
    """The meaning of the weights of a block.

    Args:
        name: name of the weights: the name of the template, or the name under which several templates share the weights.
        features: text of each feature of `by`; `1` for the constant.
        patterns: text of each state pattern (the joint states to which a weight applies).
        keys: dictionary of the keys; None without keys.
        bindings: total number of bindings of all templates that use the weights.
        is_extensible: True if other data may have features that are not in `features`.
    """

    name: str
    features: tuple[str, ...]
    patterns: tuple[str, ...]
    keys: KeyDictionary | None
    bindings: int
    is_extensible: bool = field(default=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields except the keys as plain data for JSON."""
        names = {"name": self.name, "features": self.features, "patterns": self.patterns}
        return {**names, "bindings": self.bindings}

    def feature_name(self, feature: int) -> tuple[tuple[str, ...], str]:
        """Return the key and the feature text for a column of the feature matrix."""
        key, d = divmod(feature, len(self.features))
        return (self.keys.values[key] if self.keys else ()), self.features[d]


@dataclass(frozen=True)
class GroundBlock:
    """A weight block and the factors that use it.

    Args:
        groups: factor groups; `FactorGroup.block` is 0 until a graph sets it to the index of this block.
        group_names: name of the template of each group.
        bindings: number of bindings of each template, by the name of the template.
    """

    weights: WeightBlock
    info: TemplateInfo
    groups: tuple[FactorGroup, ...]
    group_names: tuple[str, ...]
    bindings: Mapping[str, int]


@dataclass(frozen=True)
class GroundingTask:
    """A template to be grounded.

    Args:
        lowered: the template with its relational plan; if `repetition` is given, the plan is restricted to one row.
        repetition: the repetition of the factors for each row of a table if all rows have the same factors, else None.
        max_rows: upper bound of the number of rows that the plan returns, including duplicates.
    """

    lowered: LoweredTemplate
    repetition: RowRepetition | None
    max_rows: int


@dataclass(frozen=True)
class BlockGrounder:
    """A grounder of the templates that share weights."""

    bound: BoundModel
    engine: AbstractEngine
    variables: Sequence[VariableBlock]
    progress: Callable[[str], None] = lambda text: None

    def ground(self, name: str, tasks: Sequence[GroundingTask], storage: Storage) -> GroundBlock:
        """Ground the templates that share the weights `name`; write the columns of the block to `storage`."""
        coded_keys = [encode_keys(self.bound, task.lowered) for task in tasks]
        grounders = [
            _TemplateGrounder(self, task, grounder, storage, f"{k}")
            for k, (task, grounder) in enumerate(zip(tasks, coded_keys, strict=True))
        ]
        for grounder in grounders:
            grounder.ground()
        keys, key_maps = build_key_dictionary(coded_keys, [grounder.seen_keys for grounder in grounders])
        n_keys = len(keys.values) if keys else 1
        first = tasks[0].lowered
        for task in tasks:
            _check_feature_count(task.lowered, first)
        groups, names = [], []
        for grounder, dense_keys in zip(grounders, key_maps, strict=True):
            for group in grounder.finish(n_keys, dense_keys):
                groups.append(group)
                names.append(grounder.lowered.template.name)
        patterns = pattern_names(first, self.term_values(first))
        features = first.feature_names or ("1",)
        bindings = {grounder.lowered.template.name: grounder.n_bindings for grounder in grounders}
        info = TemplateInfo(name, features, patterns, keys, sum(bindings.values()))
        weights = _make_weight_block(name, [task.lowered for task in tasks], features, n_keys, len(patterns))
        if len(tasks) == n_keys == 1 and first.template.options.init is None and not first.template.is_hard:
            weights = _with_score_weights(weights, score_weights(self.bound, first))
        return GroundBlock(weights, info, tuple(groups), tuple(names), bindings)

    def term_values(self, lowered: LoweredTemplate) -> list[Sequence[str]]:
        """Return the possible values of each random term."""
        return [domain_values(self.bound, kind) for kind in lowered.term_types]

    def variable_ranges(self, lowered: LoweredTemplate) -> list[tuple[int, int]]:
        """Return the index of the first variable and the number of variables for each random term."""
        blocks = [find_block(term, lowered.scope, self.variables) for term in lowered.terms]
        return [(block.start, block.count) for block in blocks]


class CaseBuilder(Generic[T]):
    """A grounder of one template. It distributes the bindings to builders, one for each case.

    A *case* is an assignment of evidence that leaves the truth value of a formula open. A binding whose evidence is not a
    case has no factor.

    Args:
        coded_keys: the keys of `task.lowered` as integers.
        name: prefix of file names.
        make_builder: function that returns the builder of a case, given the prefix of the builder's file names.
    """

    def __init__(
        self,
        grounder: BlockGrounder,
        task: GroundingTask,
        coded_keys: CodedKeys,
        name: str,
        make_builder: Callable[[str], T],
    ) -> None:
        self._grounder, self._task, self._coded_keys = grounder, task, coded_keys
        self._name, self._make_builder = name, make_builder
        self._cases: dict[tuple[int, ...], tuple[T, np.ndarray | None] | None] = {}
        """Builder and state patterns by evidence values; None if the evidence determines the truth of the formula."""
        self.n_bindings = 0

    def ground(self) -> Iterator[tuple[T, SortedBindings]]:
        """Ground the template; yield batches of bindings, each with the builder of its case.

        Raises:
            UsageError: if there are too many combinations of keys.
        """
        grounder, coded_keys, lowered = self._grounder, self._coded_keys, self._coded_keys.lowered
        store = grounder.bound.dataset.store
        require_pattern_memory(lowered, grounder.term_values(lowered), store.working_bytes)
        if not lowered.evidence:
            self._get_case(())  # creates a group even if the template has no bindings
        coded_keys.check_combination_count()
        variable_ranges = grounder.variable_ranges(lowered)
        if self._task.repetition is not None:
            variable_ranges = [(0, count) for count in self._task.repetition.offset_limits]
        template = lowered.template.name
        grounder.progress(template)
        # The unsorted rows are temporary, so they are in the storage of the dataset instead of the storage of the block.
        batches = collect_bindings(
            grounder.engine, grounder.bound, coded_keys, variable_ranges, self._task.max_rows, grounder.bound.dataset.storage,
            lambda rows: grounder.progress(f"{template}: {rows:,} rows"),
        )  # fmt: skip
        for evidence, rows in (case for batch in batches for case in split_by_evidence(*batch)):
            self.n_bindings += len(rows)
            case = self._get_case(evidence)
            if case is not None:
                yield case[0], rows

    def builders(self) -> list[tuple[T, np.ndarray | None]]:
        """Return the builders with their state patterns, in ascending order of the evidence values."""
        return [case for _, case in sorted(self._cases.items(), key=lambda item: item[0]) if case is not None]

    def _get_case(self, evidence: tuple[int, ...]) -> tuple[T, np.ndarray | None] | None:
        if evidence not in self._cases:
            lowered = self._coded_keys.lowered
            values = dict(zip((node for node, _ in lowered.evidence), evidence, strict=True))
            patterns = state_patterns(lowered, self._grounder.term_values(lowered), values)
            is_decided = not lowered.is_table and patterns is not None and bool(patterns.min() == patterns.max())
            name = ".".join([self._name, *map(str, evidence)])
            self._cases[evidence] = None if is_decided else (self._make_builder(name), patterns)
        return self._cases[evidence]


class _TemplateGrounder:
    """A grounder of one template into factor groups, one for each case; see `CaseBuilder`."""

    def __init__(
        self, grounder: BlockGrounder, task: GroundingTask, coded_keys: CodedKeys, storage: Storage, name: str
    ) -> None:
        self._grounder, self._task, self._coded_keys = grounder, task, coded_keys
        self.lowered = coded_keys.lowered
        self._cases = CaseBuilder(grounder, task, coded_keys, name, partial(_make_group_builder, coded_keys, storage))
        self.seen_keys = np.empty(0, dtype=np.int64)
        """Distinct key codes of the bindings (one integer per combination), ascending; empty if the keys are fixed."""

    @property
    def n_bindings(self) -> int:
        return self._cases.n_bindings * (1 if self._task.repetition is None else self._task.repetition.n_rows)

    def ground(self) -> None:
        """Ground the template. Raises the same errors as `CaseBuilder.ground`."""
        pending, n_pending = [self.seen_keys], 0
        for group, rows in self._cases.ground():
            if rows.key is not None and not self._coded_keys.has_fixed_keys:
                pending.append(distinct(rows.key))
                n_pending += len(pending[-1])
                if n_pending > len(pending[0]):  # a merge per batch would take quadratic time
                    pending, n_pending = [distinct(np.concatenate(pending))], 0
            group.add(rows)
        self.seen_keys = distinct(np.concatenate(pending))

    def finish(self, n_keys: int, dense_keys: DenseKeyMap | None) -> list[FactorGroup]:
        """Return the factor groups, one for each case, in ascending order of the evidence values."""
        cardinalities = tuple(len(v) for v in self._grounder.term_values(self.lowered))
        factor_groups = []
        for group, patterns in self._cases.builders():
            columns, features = group.finish(n_keys, dense_keys)
            scope: Sequence[np.ndarray] = columns
            repetition = self._task.repetition
            if repetition is not None:
                rows = np.arange(repetition.n_rows, dtype=np.int32)
                starts = tuple(start for start, _ in self._grounder.variable_ranges(self.lowered))
                scope = RepeatedScope(rows, starts, repetition.strides, columns)
                features = Tiled(features, repetition.n_rows)
            factor_groups.append(FactorGroup(scope, cardinalities, features, patterns, 0))
        return factor_groups


def _make_group_builder(coded_keys: CodedKeys, storage: Storage, name: str) -> GroupBuilder:
    lowered, key_type = coded_keys.lowered, np.int32 if coded_keys.n_combinations < 2**31 else np.int64
    arity, width, has_key = len(lowered.variables), len(lowered.features), bool(lowered.keys)
    return GroupBuilder(storage, name, arity, has_key=has_key, width=width, key_type=key_type)


def _check_feature_count(lowered: LoweredTemplate, first: LoweredTemplate) -> None:
    if max(1, len(lowered.features)) != max(1, len(first.features)):
        message = f"'{lowered.template.name}' and '{first.template.name}' share weights but have different numbers of features"
        hint = "use vectors of equal length in 'by', or separate weights"
        raise DataError(Diagnostic("E224", message, lowered.template.span, hint))


SCORE_L2 = 100.0
"""L2 strength of the weights of calibrated scores, relative to `score_weights`: a prior deviation of 0.1. With few labels,
free weights would undo the calibration (matrix scaling in Guo et al. 2017); many labels outweigh the prior."""


def _with_score_weights(block: WeightBlock, initial: float | tuple[tuple[float, ...], ...]) -> WeightBlock:
    if not initial:
        return block
    return replace(block, initial=initial, l2=SCORE_L2 if block.l2 is None else block.l2)


def score_weights(bound: BoundModel, lowered: LoweredTemplate) -> float | tuple[tuple[float, ...], ...]:
    """Return the initial weights with which a template predicts an attribute as the classifiers in its `by` do.

    The values of a classifier are centred log-probabilities or, for an attribute of type bool, the log-odds of `true`. The
    product of the returned weights, shape (n_features, n_patterns), and these values is a log potential with the
    probabilities of the classifier. The weights of other features are 0.

    Returns:
        0 if no feature in `by` is a classifier of the attribute in `over`.
    """
    scope, spec, rows = lowered.scope, lowered.scope.spec, []
    term = lowered.terms[0]
    if not lowered.is_table or len(lowered.terms) > 1 or not isinstance(term, Attribute):
        return 0.0
    is_bool = isinstance(lowered.term_types[0], Bool)
    identity = np.array([[-0.5, 0.5]]) if is_bool else np.eye(len(domain_values(bound, lowered.term_types[0])))
    for item in lowered.template.by:
        feature = spec.feature(item.relation) if isinstance(item, Atom) else None
        definition = None if feature is None else feature.definition
        is_vector = isinstance(scope.type_of(item), Vector)
        width = len(component_names(item, scope, bound.vector_lengths, bound.domains)) if is_vector else 1
        if isinstance(definition, LearnedDefinition) and _is_score(term, item, definition):
            rows.append(identity)
        else:
            rows.append(np.zeros((width, identity.shape[1])))
    weights = np.concatenate(rows) if rows else np.zeros((1, 1))
    return tuple(map(tuple, weights.tolist())) if weights.any() else 0.0


def _is_score(term: Attribute, item: Expression, definition: LearnedDefinition) -> bool:
    """Return True if a feature is a classifier of the attribute of the same entity."""
    return (
        definition.kind == "classifier"
        and isinstance(item, Atom)
        and item.arguments == (Name(term.binder),)
        and isinstance(definition.target, Attribute)
        and definition.target.attribute == term.attribute
    )


def _initial_pair_weights(features: Sequence[str], n_keys: int) -> float | tuple[tuple[float, ...], ...]:
    """Return the initial weights of a template over two numbers: 0 except for constants, so that units do not matter."""
    initial = [INITIAL_LOG_PAIR_WEIGHT if feature == "1" else 0.0 for feature in features]
    if len(set(initial)) == 1:
        return initial[0]
    return tuple((value, value) for value in initial) * n_keys


def _make_weight_block(
    name: str, lowered_templates: Sequence[LoweredTemplate], features: Sequence[str], n_keys: int, n_patterns: int
) -> WeightBlock:
    """Return the weight block that some templates share, with the options of the first template that has options."""
    n_features = n_keys * len(features)
    templates: list[Template] = [lowered.template for lowered in lowered_templates]
    if templates[0].is_hard:
        return WeightBlock(name, n_features, n_patterns, HARD_WEIGHT, fixed=True)
    options = next(
        (t.options for t in templates if t.options != WeightOptions(weights=t.options.weights)), WeightOptions()
    )
    if len(options.initial_values) > 1 and len(options.initial_values) != n_patterns:
        raise UsageError(initial_values_error(next(t for t in templates if t.options is options), n_patterns))
    default = _initial_pair_weights(features, n_keys) if count_numbers(lowered_templates[0]) == 2 else 0.0
    initial = default if options.init is None else options.init
    return WeightBlock(name, n_features, n_patterns, initial, options.fixed, options.l1, options.l2)
