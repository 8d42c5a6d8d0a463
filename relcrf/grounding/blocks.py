"""Blocks of the ground graph: the templates that share one set of weights, their factors, and what the weights mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relcrf.columns.growing import Storage
from relcrf.data.bound import Bound
from relcrf.errors import DataError, Diagnostic, UsageError
from relcrf.graph.factor_graph import FactorGroup, RepeatedScope
from relcrf.graph.features import Tiled
from relcrf.graph.weights import WeightBlock
from relcrf.grounding.collect import collect
from relcrf.grounding.engines.base import AbstractEngine
from relcrf.grounding.groups import GrowingGroup, KeyPlaces, Rows
from relcrf.grounding.keys import CodedKeys, KeyDictionary, code_keys, dictionary_of, texts_of
from relcrf.grounding.lower import LoweredTemplate
from relcrf.grounding.patterns import pattern_names, state_patterns
from relcrf.grounding.repeated import Repeated
from relcrf.grounding.variables import VariableBlock, values_of
from relcrf.kernels.distinct import distinct
from relcrf.model.expressions import Atom
from relcrf.model.formula import wrong_starts
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
        grows: whether other data may have features beyond these.
    """

    name: str
    features: tuple[str, ...]
    patterns: tuple[str, ...]
    keys: KeyDictionary | None
    bindings: int
    grows: bool = field(default=False, compare=False)

    def as_plain(self) -> dict[str, Any]:
        """Return all but the keys as JSON has it."""
        names = {"name": self.name, "features": self.features, "patterns": self.patterns}
        return {**names, "bindings": self.bindings}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any], keys: Mapping[str, Any] | None) -> TemplateInfo:
        """Return what `as_plain` returned it of, with keys in their plain form.

        Raises:
            TypeError: where a text or a number is something else.
        """
        return cls(
            plain["name"],
            texts_of(plain["features"]),
            texts_of(plain["patterns"]),
            None if keys is None else KeyDictionary.of_plain(keys),
            whole_number_of(plain["bindings"]),
        )

    def feature_name(self, feature: int) -> tuple[tuple[str, ...], str]:
        """The key and the spelling of a feature of the group's matrix."""
        key, d = divmod(feature, len(self.features))
        return (self.keys.values[key] if self.keys else ()), self.features[d]


def whole_number_of(value: Any) -> int:
    """Return a whole number that a file has.

    Raises:
        TypeError: where it is something else, such as a truth value.
    """
    if type(value) is not int:
        raise TypeError(f"{value!r} instead of a whole number")
    return value


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

    def make(self, name: str, tasks: Sequence[GroundingTask], storage: Storage) -> GroundBlock:
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
        return GroundBlock(weights, info, tuple(groups), tuple(names), bindings)

    def cases(self, task: GroundingTask, coded: CodedKeys) -> Iterator[tuple[tuple[int, ...], Rows]]:
        """Yield the bindings of a template in parts, each of one case of the evidence.

        Args:
            coded: the keys of `task.lowered`.

        Raises:
            UsageError: where there are too many combinations of keys.
        """
        coded.require_countable()
        places = self.places(coded.lowered)
        if task.repeated is not None:
            places = [(0, count) for count in task.repeated.counts]
        template = coded.lowered.template.name
        self.progress(template)
        # What is sorted need not stay in memory longer than that: it has the dataset's own storage.
        sorting = self.bound.dataset.storage
        found = collect(
            self.engine, self.bound, coded, places, task.rows, sorting,
            lambda rows: self.progress(f"{template}: {rows:,} rows"),
        )  # fmt: skip
        for bindings in found:
            yield from bindings.cases()

    def patterns(self, lowered: LoweredTemplate, evidence: tuple[int, ...]) -> tuple[np.ndarray | None, bool]:
        """Return the state patterns in a case of the evidence, and whether every state is the same to the formula there."""
        parts = [node for node, _ in lowered.evidence]
        patterns = state_patterns(lowered, self.values(lowered), dict(zip(parts, evidence, strict=True)))
        return patterns, not lowered.is_table and patterns is not None and bool(patterns.min() == patterns.max())

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


@dataclass(frozen=True)
class _Case:
    """A group of one template in the making."""

    group: GrowingGroup
    patterns: np.ndarray | None


class _GrowingTemplate:
    """The groups of one template in the making."""

    def __init__(self, maker: BlockMaker, task: GroundingTask, coded: CodedKeys, storage: Storage, name: str) -> None:
        self._maker, self._task, self._coded, self._storage, self._name = maker, task, coded, storage, name
        self.lowered = coded.lowered
        self._cases: dict[tuple[int, ...], _Case | None] = {}
        """None where every state is the same to the formula: that is no factor."""
        self.n_bindings = 0
        self.came = np.empty(0, dtype=np.int64)
        """Distinct combined keys, ascending; only where not all are known before."""

    def run(self) -> None:
        """Grounds. For errors see `BlockMaker.cases`."""
        times = 1 if self._task.repeated is None else self._task.repeated.n_rows
        if not self.lowered.evidence:
            self._case(())  # so that a template without a binding has a group, too
        for evidence, rows in self._maker.cases(self._task, self._coded):
            self.n_bindings += len(rows) * times
            case = self._case(evidence)
            if case is not None:
                if rows.key is not None and not self._coded.is_known:
                    self.came = distinct(np.concatenate((self.came, distinct(rows.key))))
                case.group.add(rows)

    def _case(self, evidence: tuple[int, ...]) -> _Case | None:
        """What grows from the bindings of a case of the evidence."""
        if evidence not in self._cases:
            patterns, is_decided = self._maker.patterns(self.lowered, evidence)
            self._cases[evidence] = None if is_decided else self._new_case(evidence, patterns)
        return self._cases[evidence]

    def _new_case(self, evidence: tuple[int, ...], patterns: np.ndarray | None) -> _Case:
        lowered, storage, arity = self.lowered, self._storage, len(self.lowered.variables)
        name = ".".join([self._name, *(str(code) for code in evidence)])
        key_type = np.int32 if self._coded.limit < 2**31 else np.int64
        width = len(lowered.features)
        group = GrowingGroup(storage, name, arity, has_key=bool(lowered.keys), width=width, key_type=key_type)
        return _Case(group, patterns)

    def finish(self, n_keys: int, place_of: KeyPlaces | None) -> list[FactorGroup]:
        """The groups, in the order of their cases."""
        cardinalities = tuple(len(v) for v in self._maker.values(self.lowered))
        out = []
        for _, case in sorted(self._cases.items()):
            if case is None:
                continue
            columns, features = case.group.finish(n_keys, place_of)
            scope: Sequence[np.ndarray] = columns
            repeated = self._task.repeated
            if repeated is not None:
                rows = np.arange(repeated.n_rows, dtype=np.int32)
                starts = tuple(start for start, _ in self._maker.places(self.lowered))
                scope = RepeatedScope(rows, starts, repeated.strides, columns)
                features = Tiled(features, repeated.n_rows)
            out.append(FactorGroup(scope, cardinalities, features, case.patterns, 0))
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
    if len(options.starts) > 1 and len(options.starts) != n_patterns:
        raise UsageError(wrong_starts(next(t for t in templates if t.options is options), n_patterns))
    return WeightBlock(name, n_features, n_patterns, options.init or 0.0, options.fixed, options.l1, options.l2)
