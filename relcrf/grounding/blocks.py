"""Blocks of the ground graph: the templates that share one set of weights, their factors, and what the weights mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.columns.growing import Storage
from relcrf.data.bound import Bound
from relcrf.errors import DataError, Diagnostic
from relcrf.graph.factor_graph import FactorGroup, RepeatedScope
from relcrf.graph.features import Tiled
from relcrf.graph.weights import WeightBlock
from relcrf.grounding.collect import collect
from relcrf.grounding.engines.base import AbstractEngine
from relcrf.grounding.groups import GrowingGroup, KeyPlaces
from relcrf.grounding.keys import CodedKeys, KeyDictionary, code_keys, dictionary_of
from relcrf.grounding.lower import LoweredTemplate
from relcrf.grounding.patterns import pattern_names, state_patterns
from relcrf.grounding.repeated import Repeated
from relcrf.grounding.variables import VariableBlock, values_of
from relcrf.model.expressions import Atom
from relcrf.model.spec import Options, Template

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
class Block:
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
class Task:
    """A template that is to be grounded.

    Args:
        repeated: where its factors are the same for every row of a table, that table; `lowered` is then one row of it.
        rows: how many rows its plan has at most, repetitions counted.
    """

    lowered: LoweredTemplate
    repeated: Repeated | None
    rows: int


@dataclass(frozen=True)
class BlockMaker:
    """Grounds the templates that share weights."""

    bound: Bound
    engine: AbstractEngine
    variables: Sequence[VariableBlock]
    progress: Callable[[str], None] = lambda text: None

    def make(self, name: str, tasks: Sequence[Task], storage: Storage) -> Block:
        """One block.

        Args:
            storage: of the columns that stay.
        """
        coded = [code_keys(self.bound, task.lowered) for task in tasks]
        growing = [
            _GrowingTemplate(self, task, one, storage, f"{k}")
            for k, (task, one) in enumerate(zip(tasks, coded, strict=True))
        ]
        for one in growing:
            one.run()
        keys, places = dictionary_of(coded, [one.came for one in growing])
        n_keys = len(keys.values) if keys else 1
        first = tasks[0].lowered
        for task in tasks:
            _require_width(task.lowered, first)
        groups, names = [], []
        for one, place_of in zip(growing, places, strict=True):
            for group in one.finish(n_keys, place_of):
                groups.append(group)
                names.append(one.lowered.template.name)
        patterns = pattern_names(first, self.values(first))
        features = first.feature_names or ("1",)
        bindings = {one.lowered.template.name: one.n_bindings for one in growing}
        info = TemplateInfo(name, features, patterns, keys, sum(bindings.values()))
        weights = _weight_block(name, [task.lowered for task in tasks], n_keys * len(features), len(patterns))
        return Block(weights, info, tuple(groups), tuple(names), bindings)

    def values(self, lowered: LoweredTemplate) -> list[tuple[str, ...]]:
        """The values of each random term."""
        return [values_of(self.bound, kind) for kind in lowered.kinds]

    def places(self, lowered: LoweredTemplate) -> list[tuple[int, int]]:
        """For each random term, the first variable of its block and how many there are."""
        found = []
        for term in lowered.terms:
            owner = (
                (term.relation, None) if isinstance(term, Atom) else (lowered.scope.sorts[term.binder], term.attribute)
            )
            block = next(b for b in self.variables if (b.owner, b.attribute) == owner)
            found.append((block.start, block.count))
        return found


class _GrowingTemplate:
    """The groups of one template in the making."""

    def __init__(self, maker: BlockMaker, task: Task, coded: CodedKeys, storage: Storage, name: str) -> None:
        self._maker, self._task, self._coded, self._storage, self._name = maker, task, coded, storage, name
        self.lowered = coded.lowered
        self._values = maker.values(self.lowered)
        self._cases: dict[tuple[int, ...], tuple[GrowingGroup | None, np.ndarray | None]] = {}
        self.n_bindings = 0
        self.came = np.empty(0, dtype=np.int64)
        """Distinct combined keys, ascending; only where not all are known before."""

    def run(self) -> None:
        """Grounds."""
        maker, task = self._maker, self._task
        places = maker.places(self.lowered)
        if task.repeated is not None:
            places = [(0, count) for count in task.repeated.counts]
        times = 1 if task.repeated is None else task.repeated.n_rows
        if not self.lowered.evidence:
            self._group(())  # so that a template without a binding has a group, too
        template = self.lowered.template.name
        maker.progress(template)
        # What is sorted need not stay in memory longer than that: it has the dataset's own storage.
        sorting = maker.bound.dataset.storage
        found = collect(
            maker.engine, maker.bound, self._coded, places, task.rows, sorting,
            lambda rows: maker.progress(f"{template}: {rows:,} rows"),
        )  # fmt: skip
        for bindings in found:
            self.n_bindings += len(bindings.rows) * times
            for case, rows in bindings.cases():
                group, _ = self._group(case)
                if group is not None:
                    if rows.key is not None and not self._coded.is_known:
                        self.came = np.union1d(self.came, rows.key)
                    group.add(rows)

    def _group(self, case: tuple[int, ...]) -> tuple[GrowingGroup | None, np.ndarray | None]:
        """The group of a case of the evidence; none where every state is the same to the formula: that is no factor."""
        if case not in self._cases:
            lowered = self.lowered
            parts = [node for node, _ in lowered.evidence]
            patterns = state_patterns(lowered, self._values, dict(zip(parts, case, strict=True)))
            if not lowered.is_table and patterns is not None and patterns.min() == patterns.max():
                self._cases[case] = (None, patterns)
            else:
                name = ".".join([self._name, *(str(code) for code in case)])
                key_type = np.int32 if self._coded.limit < 2**31 else np.int64
                self._cases[case] = (
                    GrowingGroup(
                        self._storage,
                        name,
                        len(lowered.variables),
                        has_key=bool(lowered.keys),
                        width=len(lowered.features),
                        key_type=key_type,
                    ),
                    patterns,
                )
        return self._cases[case]

    def finish(self, n_keys: int, place_of: KeyPlaces | None) -> list[FactorGroup]:
        """The groups, in the order of their cases."""
        cardinalities = tuple(len(v) for v in self._values)
        out = []
        for _, (group, patterns) in sorted(self._cases.items()):
            if group is None:
                continue
            columns, features = group.finish(n_keys, place_of)
            scope: Sequence[np.ndarray] = columns
            repeated = self._task.repeated
            if repeated is not None:
                rows = np.arange(repeated.n_rows, dtype=np.int32)
                starts = tuple(start for start, _ in self._maker.places(self.lowered))
                scope = RepeatedScope(rows, starts, repeated.strides, columns)
                features = Tiled(features, repeated.n_rows)
            out.append(FactorGroup(scope, cardinalities, features, patterns, 0))
        return out


def _require_width(one: LoweredTemplate, first: LoweredTemplate) -> None:
    if max(1, len(one.features)) != max(1, len(first.features)):
        message = f"'{one.template.name}' and '{first.template.name}' share weights, but not the number of features"
        hint = "the vectors in their 'by' have different lengths"
        raise DataError(Diagnostic("E224", message, one.template.span, hint))


def _weight_block(name: str, members: Sequence[LoweredTemplate], n_features: int, n_patterns: int) -> WeightBlock:
    """The weights that some templates share; only one of them gives the options."""
    templates: list[Template] = [one.template for one in members]
    if templates[0].is_hard:
        return WeightBlock(name, n_features, n_patterns, HARD, fixed=True)
    options = next((t.options for t in templates if t.options != Options(weights=t.options.weights)), Options())
    start = options.init or 0.0
    return WeightBlock(name, n_features, n_patterns, start, options.fixed, options.l1, options.l2)
