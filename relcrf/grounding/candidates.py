"""The candidates of a model on its tables: for each of their literals or terms its cells, and what the keys mean.

A literal or term is grounded as a template of its own, with all names that are no keys of another. So a space costs its sides and
not its pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from relcrf.data.bound import Bound, telling_failures
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.candidates import KeyRelation, PairSpace, Side, TableSpace
from relcrf.graph.triples import Parent, Space, TripleSpace
from relcrf.grounding.blocks import BlockMaker, GroundBlock, TemplateInfo
from relcrf.grounding.collect import collect
from relcrf.grounding.degrees import Degrees
from relcrf.grounding.derive import facts_of
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.estimate import DEFAULT_BUDGET, require
from relcrf.grounding.keys import CodedKeys, KeyDictionary, code_keys
from relcrf.grounding.lower import LoweredTemplate, lower_template
from relcrf.grounding.patterns import pattern_names, state_patterns
from relcrf.grounding.split import MOST_LITERALS, CandidateSplit, parents_of, split_candidates
from relcrf.grounding.variables import VariableBlock
from relcrf.kernels.distinct import MOST_NUMBERS, distinct
from relcrf.model.spec import OpenDomain
from relcrf.model.typing import Scope

MOST_STATES = 4096
"""Joint states of a table of candidates: 64 of each of two terms."""

Cells = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Of one side: combined codes of the keys, of the samples, the variables, and the literal's truth in each state, which is 1.0 in
all states of a table's term."""


@dataclass(frozen=True)
class CandidateSpace:
    """A space of pairs, or of triples as pairs of a composite and a literal, with the meaning of its keys.

    Args:
        patterns: how each of `pairs.patterns` is spelt.
        numbers: for each side the combined codes of its keys, shape (n_keys,).
        coded: for each side, what the codes of its own keys stand for.
    """

    split: CandidateSplit
    pairs: Space
    patterns: tuple[str, ...]
    numbers: tuple[np.ndarray, ...]
    coded: tuple[CodedKeys, ...]

    def spelt(self, side: int) -> list[tuple[str, ...]]:
        """The texts of the keys of a side."""
        return self.coded[side].spelt(self.numbers[side])

    def known(self, side: int) -> dict[tuple[str, ...], int]:
        """The keys of a side by their texts."""
        return {text: key for key, text in enumerate(self.spelt(side))}

    def texts(self, pairs: np.ndarray) -> tuple[tuple[str, ...], ...]:
        """The keys of some pairs, shape (n, 2), in the order of `per`."""
        spelt = [
            coded.spelt(numbers[keys])
            for coded, numbers, keys in zip(self.coded, self.numbers, self.pairs.keys(pairs).T, strict=True)
        ]
        return tuple(
            tuple(sides[side][place] for side, place in self.split.places) for sides in zip(*spelt, strict=True)
        )

    def found(self, texts: Sequence[tuple[str, ...]]) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of some keys, shape (n, 2), and which of the texts these are, shape (n,); others are not in the data."""
        where = [self.known(side) for side in range(len(self.coded))]
        keys, kept = [], []
        for number, text in enumerate(texts):
            own = [[""] * n_keys for n_keys in self.split.keys]
            for (side, place), part in zip(self.split.places, text, strict=True):
                own[side][place] = part
            key = [known.get(tuple(part)) for known, part in zip(where, own, strict=True)]
            if None not in key:
                keys.append(key)
                kept.append(number)
        found = np.array(keys, dtype=np.int64).reshape(-1, len(self.coded))
        return self.pairs.numbered(found), np.array(kept, dtype=np.int64)

    def block(self, keys: tuple[tuple[str, ...], ...], group_block: int = 0) -> GroundBlock:
        """The factors of some keys as a block of the graph."""
        pairs, kept = self.found(keys)
        # The keys that the data does not have keep their places among the weights.
        group = self.pairs.group(pairs, kept, len(keys), group_block)
        name = self.pairs.name
        info = TemplateInfo(name, ("1",), self.patterns, KeyDictionary(None, keys), group.n_factors)
        return GroundBlock(self.pairs.weights(len(keys)), info, (group,), (name,), {name: group.n_factors})


@telling_failures
def ground_candidates(
    bound: Bound, variables: Sequence[VariableBlock], budget: int = DEFAULT_BUDGET
) -> tuple[CandidateSpace, ...]:
    """The spaces of all candidates of a model, whose random relations have been made.

    Raises:
        BudgetError: where a side has more cells than the budget.
        UsageError: where candidates are neither pairs or triples of literals nor pairs of terms, or triples have no pairs to
            grow from.
    """
    facts = facts_of(bound)
    templates = [t for t in facts.spec.templates if t.is_candidate]
    splits = [split_candidates(t, Scope(facts.spec, t.parameters, t.where)) for t in templates]
    parents = [parents_of(split, splits) if len(split.sides) == MOST_LITERALS else [] for split in splits]
    spaces = [_ground(bound, split, variables, budget) for split in splits]
    return tuple(_grown(space, found, spaces) for space, found in zip(spaces, parents, strict=True))


def _grown(
    space: CandidateSpace, found: Sequence[tuple[int, tuple[int, int]]], spaces: Sequence[CandidateSpace]
) -> CandidateSpace:
    """A space with the spaces of pairs that it grows from, if it does; see `parents_of`."""
    if not isinstance(space.pairs, TripleSpace):
        return space
    parents = []
    for number, places in found:
        first, second = (
            np.array([numbers.get(text, -1) for text in spaces[number].spelt(side)], dtype=np.int64)
            for side, numbers in enumerate(space.known(place) for place in places)
        )
        parents.append(Parent(number, places, (first, second)))
    return replace(space, pairs=replace(space.pairs, parents=tuple(parents)))


def _ground(bound: Bound, split: CandidateSplit, variables: Sequence[VariableBlock], budget: int) -> CandidateSpace:
    facts, degrees = facts_of(bound), Degrees(bound)
    maker = BlockMaker(bound, DuckDbEngine(bound.cursor), variables)
    cells: list[Cells] = []
    own_keys = []
    for template, n_keys in zip(split.sides, split.keys, strict=True):
        lowered = lower_template(template, facts)
        size = require(degrees, lowered.plan, budget, split.template.name, template.span)
        coded = code_keys(bound, lowered)
        if coded.limit >= MOST_NUMBERS:
            raise _too_many(split)
        own = replace(coded, texts=coded.texts[:n_keys])
        n_samples = coded.limit // max(own.limit, 1)
        found = list(collect(maker.engine, bound, coded, maker.places(lowered), size.rows, bound.dataset.storage))
        number = _joined([rows.key for rows, _ in found if rows.key is not None]).astype(np.int64)
        variable = _joined([rows.scope[0] for rows, _ in found])
        key, sample = np.divmod(number, max(n_samples, 1))
        cells.append((key, sample, variable, _truth(split, lowered, maker)))
        own_keys.append(own)
    if len(cells) == MOST_LITERALS:
        cells = _meeting(cells)
    relations = {pair: _tightened(split, pair, cells) for pair in split.relations}
    samples = distinct(np.concatenate([distinct(sample) for _, sample, _, _ in cells]))
    numbers, sides = [], []
    for k, ((key, sample, variable, truth), own) in enumerate(zip(cells, own_keys, strict=True)):
        tied = any(k in pair for pair, relation in relations.items() if relation != KeyRelation.ANY)
        # Sides that are tied have all values of the sort, in its order.
        codes = _in_order(own, split.sort, bound) if tied and len(own.texts) == 1 else distinct(key)
        order = np.argsort(codes)
        place = order[np.searchsorted(codes, key, sorter=order)] if len(codes) else key
        sides.append(Side.of(len(codes), place, np.searchsorted(samples, sample), variable, truth))
        numbers.append(codes)
    if math.prod(side.n_keys for side in sides) >= MOST_NUMBERS:
        raise _too_many(split)
    name, l1, l2 = split.template.name, split.template.options.l1, split.template.options.l2
    whole = lower_template(split.template, facts)
    values = maker.values(whole)
    patterns = pattern_names(whole, values)
    space: Space
    if len(sides) == MOST_LITERALS:
        first, second, third = sides
        space = TripleSpace(name, first, second, third, relations, len(samples), l1=l1, l2=l2)
    else:
        first, second = sides
        space = PairSpace(name, first, second, relations[0, 1], len(samples), l1, l2)
        if split.is_table:
            space = TableSpace(**vars(space), table=_table(whole, values))
    return CandidateSpace(split, space, patterns, tuple(numbers), tuple(own_keys))


def _table(whole: LoweredTemplate, values: list[tuple[str, ...]]) -> np.ndarray:
    """The patterns of a table, shape (n_joint_states, n_weights).

    Raises:
        UsageError: where it has more states than an edge can have.
    """
    states = math.prod(map(len, values))
    if states > MOST_STATES:
        message = (
            f"the tables of candidates '{whole.template.name}' have {states:,} states, and {MOST_STATES:,} are the most"
        )
        raise UsageError(Diagnostic("E321", message, whole.template.span, "use literals, such as a.x == b.x and ..."))
    tied = state_patterns(whole, values, {})
    return np.eye(states) if tied is None else tied


def _truth(split: CandidateSplit, lowered: LoweredTemplate, maker: BlockMaker) -> np.ndarray:
    """Of a literal in each state, shape (n_states,)."""
    values = maker.values(lowered)
    if split.is_table:
        return np.ones(len(values[0]))
    truth = state_patterns(lowered, values, {})
    assert truth is not None, "a literal is a formula"
    return truth[:, 0]


def _meeting(cells: Sequence[Cells]) -> list[Cells]:
    """The cells whose samples all sides have: what two literals say where the third is never asked for does not matter."""
    met = reduce(_common, [distinct(sample) for _, sample, _, _ in cells])
    kept = [np.isin(sample, met) for _, sample, _, _ in cells]
    return [
        (key[at], sample[at], variable[at], truth)
        for (key, sample, variable, truth), at in zip(cells, kept, strict=True)
    ]


def _too_many(split: CandidateSplit) -> UsageError:
    message = f"candidates '{split.template.name}' have more keys and samples than can be numbered"
    return UsageError(Diagnostic("E391", message, split.template.span, "give them fewer names"))


def _tightened(split: CandidateSplit, pair: tuple[int, int], cells: Sequence[Cells]) -> KeyRelation:
    """A pair of keys whose literals speak of one variable is no pair: such keys must be of one sort, and distinct."""
    if split.relations[pair] != KeyRelation.ANY:
        return split.relations[pair]
    both = [cells[side] for side in pair]
    n_variables = 1 + max(int(variable.max(initial=0)) for _, _, variable, _ in both)
    first, second = (distinct(sample * n_variables + variable) for _, sample, variable, _ in both)
    if not _common(first, second).size:
        return KeyRelation.ANY
    if all(np.array_equal(a, b) for a, b in zip(*both, strict=True)):
        return KeyRelation.DISTINCT
    message = f"candidates '{split.template.name}' pair literals that may speak of the same variable"
    raise UsageError(Diagnostic("E391", message, split.template.span, "tie the keys with < or != in 'where'"))


def _common(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The numbers that are in both of two ascending arrays without repeats."""
    return np.intersect1d(first, second, assume_unique=True)


def _in_order(own: CodedKeys, sort: str, bound: Bound) -> np.ndarray:
    """The codes of a sort in the order of `<`: texts of open domains are compared as such, all else as it is listed."""
    (texts,) = own.texts
    if isinstance(bound.spec.domain(sort), OpenDomain):
        return np.array(sorted(range(len(texts)), key=lambda code: texts[code]), dtype=np.int64)
    return np.arange(len(texts))


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int32), *parts])
