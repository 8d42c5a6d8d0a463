"""Blocks of the ground graph: the templates that share one set of weights, their factors, and what the weights mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from relcrf.grounding.patterns import pattern_names, state_patterns
from relcrf.grounding.row_repetition import RowRepetition
from relcrf.grounding.variables import VariableBlock, domain_values, find_block
from relcrf.kernels.distinct import distinct
from relcrf.model.formula import initial_values_error
from relcrf.model.spec import Template, WeightOptions

T = TypeVar("T")

HARD_WEIGHT = 1000.0
"""The price of failing a hard formula, in nats: e to the power -1000 is no probability that a computer can hold."""


@dataclass(frozen=True)
class TemplateInfo:
    """What the numbers of a weight block mean.

    Args:
        name: of the weights: the template's, unless templates share them by another name.
        features: how each `by` feature is spelt; `1` for the constant.
        patterns: how each pattern is spelt.
        bindings: of all templates that use the weights.
        is_extensible: whether other data may have features beyond these.
    """

    name: str
    features: tuple[str, ...]
    patterns: tuple[str, ...]
    keys: KeyDictionary | None
    bindings: int
    is_extensible: bool = field(default=False, compare=False)

    def as_plain(self) -> dict[str, Any]:
        """Return all but the keys as JSON has it."""
        names = {"name": self.name, "features": self.features, "patterns": self.patterns}
        return {**names, "bindings": self.bindings}

    def feature_name(self, feature: int) -> tuple[tuple[str, ...], str]:
        """The key and the spelling of a feature of the group's matrix."""
        key, d = divmod(feature, len(self.features))
        return (self.keys.values[key] if self.keys else ()), self.features[d]


@dataclass(frozen=True)
class GroundBlock:
    """A block of weights and the factors that use it.

    Args:
        groups: their `block` is 0; the graph that takes them says which it is.
        group_names: the template of each group.
        bindings: of each template, by name.
    """

    weights: WeightBlock
    info: TemplateInfo
    groups: tuple[FactorGroup, ...]
    group_names: tuple[str, ...]
    bindings: Mapping[str, int]


@dataclass(frozen=True)
class GroundingTask:
    """A template that is to be grounded.

    Args:
        repetition: where its factors are the same for every row of a table, that table; `lowered` is then one row of it.
        max_rows: how many rows its plan has at most, repetitions counted.
    """

    lowered: LoweredTemplate
    repetition: RowRepetition | None
    max_rows: int


@dataclass(frozen=True)
class BlockGrounder:
    """Grounds the templates that share weights."""

    bound: BoundModel
    engine: AbstractEngine
    variables: Sequence[VariableBlock]
    progress: Callable[[str], None] = lambda text: None

    def ground(self, name: str, tasks: Sequence[GroundingTask], storage: Storage) -> GroundBlock:
        """One block.

        Args:
            storage: of the columns that stay.
        """
        coded = [encode_keys(self.bound, task.lowered) for task in tasks]
        growing = [
            _TemplateGrounder(self, task, one, storage, f"{k}")
            for k, (task, one) in enumerate(zip(tasks, coded, strict=True))
        ]
        for one in growing:
            one.ground()
        keys, places = build_key_dictionary(coded, [one.seen_keys for one in growing])
        n_keys = len(keys.values) if keys else 1
        first = tasks[0].lowered
        for task in tasks:
            _check_feature_count(task.lowered, first)
        groups, names = [], []
        for one, place_of in zip(growing, places, strict=True):
            for group in one.finish(n_keys, place_of):
                groups.append(group)
                names.append(one.lowered.template.name)
        patterns = pattern_names(first, self.term_values(first))
        features = first.feature_names or ("1",)
        bindings = {one.lowered.template.name: one.n_bindings for one in growing}
        info = TemplateInfo(name, features, patterns, keys, sum(bindings.values()))
        weights = _make_weight_block(name, [task.lowered for task in tasks], n_keys * len(features), len(patterns))
        return GroundBlock(weights, info, tuple(groups), tuple(names), bindings)

    def term_values(self, lowered: LoweredTemplate) -> list[tuple[str, ...]]:
        """The values of each random term."""
        return [domain_values(self.bound, kind) for kind in lowered.term_types]

    def variable_ranges(self, lowered: LoweredTemplate) -> list[tuple[int, int]]:
        """For each random term, the first variable of its block and how many there are."""
        blocks = [find_block(term, lowered.scope, self.variables) for term in lowered.terms]
        return [(block.start, block.count) for block in blocks]


class CaseBuilder(Generic[T]):
    """What grows from the bindings of one template: one for each case of the evidence that does not decide the formula.

    Args:
        coded: the keys of `task.lowered`.
        name: of the files.
        begin: makes what grows from the bindings of a case, for files of a name.
    """

    def __init__(
        self,
        grounder: BlockGrounder,
        task: GroundingTask,
        coded_keys: CodedKeys,
        name: str,
        make_builder: Callable[[str], T],
    ) -> None:
        self._grounder, self._task, self._coded_keys, self._name, self._make_builder = (
            grounder,
            task,
            coded_keys,
            name,
            make_builder,
        )
        self._cases: dict[tuple[int, ...], tuple[T, np.ndarray | None] | None] = {}
        """With the state patterns; None where every state is the same to the formula: that is no factor."""
        self.n_bindings = 0

    def ground(self) -> Iterator[tuple[T, SortedBindings]]:
        """Ground; yield the bindings in parts, each with what grows from it.

        Raises:
            UsageError: where there are too many combinations of keys.
        """
        maker, coded, lowered = self._grounder, self._coded_keys, self._coded_keys.lowered
        if not lowered.evidence:
            self._get_case(())  # so that a template without a binding has a group, too
        coded.check_combination_count()
        places = maker.variable_ranges(lowered)
        if self._task.repetition is not None:
            places = [(0, count) for count in self._task.repetition.offset_limits]
        template = lowered.template.name
        maker.progress(template)
        # What is sorted need not stay in memory longer than that: it has the dataset's own storage.
        found = collect_bindings(
            maker.engine, maker.bound, coded, places, self._task.max_rows, maker.bound.dataset.storage,
            lambda rows: maker.progress(f"{template}: {rows:,} rows"),
        )  # fmt: skip
        for evidence, rows in (case for part in found for case in split_by_evidence(*part)):
            self.n_bindings += len(rows)
            case = self._get_case(evidence)
            if case is not None:
                yield case[0], rows

    def builders(self) -> list[tuple[T, np.ndarray | None]]:
        """Return what has grown, with the state patterns of each, in the order of the cases."""
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
    """The groups of one template in the making."""

    def __init__(
        self, grounder: BlockGrounder, task: GroundingTask, coded_keys: CodedKeys, storage: Storage, name: str
    ) -> None:
        self._grounder, self._task, self._coded_keys = grounder, task, coded_keys
        self.lowered = coded_keys.lowered
        self._cases = CaseBuilder(grounder, task, coded_keys, name, partial(_make_group_builder, coded_keys, storage))
        self.seen_keys = np.empty(0, dtype=np.int64)
        """Distinct combined keys, ascending; only where not all are known before."""

    @property
    def n_bindings(self) -> int:
        return self._cases.n_bindings * (1 if self._task.repetition is None else self._task.repetition.n_rows)

    def ground(self) -> None:
        """Ground. For errors see `CaseBuilder.rows`."""
        for group, rows in self._cases.ground():
            if rows.key is not None and not self._coded_keys.has_fixed_keys:
                self.seen_keys = distinct(np.concatenate((self.seen_keys, distinct(rows.key))))
            group.add(rows)

    def finish(self, n_keys: int, dense_keys: DenseKeyMap | None) -> list[FactorGroup]:
        """The groups, in the order of their cases."""
        cardinalities = tuple(len(v) for v in self._grounder.term_values(self.lowered))
        out = []
        for group, patterns in self._cases.builders():
            columns, features = group.finish(n_keys, dense_keys)
            scope: Sequence[np.ndarray] = columns
            repeated = self._task.repetition
            if repeated is not None:
                rows = np.arange(repeated.n_rows, dtype=np.int32)
                starts = tuple(start for start, _ in self._grounder.variable_ranges(self.lowered))
                scope = RepeatedScope(rows, starts, repeated.strides, columns)
                features = Tiled(features, repeated.n_rows)
            out.append(FactorGroup(scope, cardinalities, features, patterns, 0))
        return out


def _make_group_builder(coded_keys: CodedKeys, storage: Storage, name: str) -> GroupBuilder:
    lowered, key_type = coded_keys.lowered, np.int32 if coded_keys.n_combinations < 2**31 else np.int64
    arity, width, has_key = len(lowered.variables), len(lowered.features), bool(lowered.keys)
    return GroupBuilder(storage, name, arity, has_key=has_key, width=width, key_type=key_type)


def _check_feature_count(lowered: LoweredTemplate, first: LoweredTemplate) -> None:
    if max(1, len(lowered.features)) != max(1, len(first.features)):
        message = f"'{lowered.template.name}' and '{first.template.name}' share weights, but not the number of features"
        hint = "the vectors in their 'by' have different lengths"
        raise DataError(Diagnostic("E224", message, lowered.template.span, hint))


def _make_weight_block(name: str, members: Sequence[LoweredTemplate], n_features: int, n_patterns: int) -> WeightBlock:
    """The weights that some templates share; only one of them gives the options."""
    templates: list[Template] = [one.template for one in members]
    if templates[0].is_hard:
        return WeightBlock(name, n_features, n_patterns, HARD_WEIGHT, fixed=True)
    options = next(
        (t.options for t in templates if t.options != WeightOptions(weights=t.options.weights)), WeightOptions()
    )
    if len(options.initial_values) > 1 and len(options.initial_values) != n_patterns:
        raise UsageError(initial_values_error(next(t for t in templates if t.options is options), n_patterns))
    return WeightBlock(name, n_features, n_patterns, options.init or 0.0, options.fixed, options.l1, options.l2)
