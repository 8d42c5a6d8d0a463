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

from relcrf.data.bound_model import BoundModel, reraises_plugin_errors
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.candidates import CandidateSide, KeyRelation, PairSpace, TableSpace
from relcrf.graph.triples import PairOrTripleSpace, ParentSpace, TripleSpace
from relcrf.grounding.blocks import BlockGrounder, GroundBlock, TemplateInfo
from relcrf.grounding.candidate_split import MAX_LITERALS, CandidateSplit, find_parents, split_candidates
from relcrf.grounding.collect import collect_bindings
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.estimate import DEFAULT_BUDGET, check_budget
from relcrf.grounding.keys import CodedKeys, KeyDictionary, encode_keys
from relcrf.grounding.lower import LoweredTemplate, lower_template
from relcrf.grounding.patterns import pattern_names, state_patterns
from relcrf.grounding.variables import VariableBlock
from relcrf.kernels.distinct import MAX_COMBINED_KEYS, distinct
from relcrf.model.spec import OpenDomain
from relcrf.model.typing import NameScope

MAX_TABLE_STATES = 4096
"""Joint states of a table of candidates: 64 of each of two terms."""

UnsortedCells = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Of one side: combined codes of the keys, of the samples, the variables, and the literal's truth in each state, which is 1.0 in
all states of a table's term."""


@dataclass(frozen=True)
class CandidateSpace:
    """A space of pairs, or of triples as pairs of a composite and a literal, with the meaning of its keys.

    Args:
        patterns: how each of `pairs.patterns` is spelt.
        key_codes: for each side the combined codes of its keys, shape (n_keys,).
        coded_keys: for each side, what the codes of its own keys stand for.
    """

    split: CandidateSplit
    pairs: PairOrTripleSpace
    patterns: tuple[str, ...]
    key_codes: tuple[np.ndarray, ...]
    coded_keys: tuple[CodedKeys, ...]

    def key_texts(self, side: int) -> list[tuple[str, ...]]:
        """The texts of the keys of a side."""
        return self.coded_keys[side].decode_combined(self.key_codes[side])

    def keys_by_text(self, side: int) -> dict[tuple[str, ...], int]:
        """The keys of a side by their texts."""
        return {text: key for key, text in enumerate(self.key_texts(side))}

    def pair_texts(self, pairs: np.ndarray) -> tuple[tuple[str, ...], ...]:
        """The keys of some pairs, shape (n, 2), in the order of `per`."""
        spelt = [
            coded.decode_combined(numbers[keys])
            for coded, numbers, keys in zip(
                self.coded_keys, self.key_codes, self.pairs.decode_keys(pairs).T, strict=True
            )
        ]
        return tuple(
            tuple(sides[side][place] for side, place in self.split.key_locations) for sides in zip(*spelt, strict=True)
        )

    def find_pairs(self, texts: Sequence[tuple[str, ...]]) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of some keys, shape (n, 2), and which of the texts these are, shape (n,); others are not in the data."""
        where = [self.keys_by_text(side) for side in range(len(self.coded_keys))]
        keys, kept = [], []
        for number, text in enumerate(texts):
            own = [[""] * n_keys for n_keys in self.split.n_own_keys]
            for (side, place), part in zip(self.split.key_locations, text, strict=True):
                own[side][place] = part
            key = [known.get(tuple(part)) for known, part in zip(where, own, strict=True)]
            if None not in key:
                keys.append(key)
                kept.append(number)
        found = np.array(keys, dtype=np.int64).reshape(-1, len(self.coded_keys))
        return self.pairs.encode_keys(found), np.array(kept, dtype=np.int64)

    def make_block(self, keys: tuple[tuple[str, ...], ...], block_index: int = 0) -> GroundBlock:
        """The factors of some keys as a block of the graph."""
        pairs, kept = self.find_pairs(keys)
        # The keys that the data does not have keep their places among the weights.
        group = self.pairs.build_factor_group(pairs, kept, len(keys), block_index)
        name = self.pairs.name
        info = TemplateInfo(name, ("1",), self.patterns, KeyDictionary(None, keys), group.n_factors)
        return GroundBlock(self.pairs.build_weight_block(len(keys)), info, (group,), (name,), {name: group.n_factors})


@reraises_plugin_errors
def ground_candidates(
    bound: BoundModel, variables: Sequence[VariableBlock], budget: int = DEFAULT_BUDGET
) -> tuple[CandidateSpace, ...]:
    """The spaces of all candidates of a model, whose random relations have been made.

    Raises:
        BudgetError: where a side has more cells than the budget.
        UsageError: where candidates are neither pairs or triples of literals nor pairs of terms, or triples have no pairs to
            grow from.
    """
    facts = make_lowering_context(bound)
    templates = [t for t in facts.spec.templates if t.is_candidate]
    splits = [split_candidates(t, NameScope(facts.spec, t.parameters, t.where)) for t in templates]
    parents = [find_parents(split, splits) if len(split.literal_templates) == MAX_LITERALS else [] for split in splits]
    spaces = [_ground_space(bound, split, variables, budget) for split in splits]
    return tuple(_attach_parents(space, found, spaces) for space, found in zip(spaces, parents, strict=True))


def _attach_parents(
    space: CandidateSpace, parent_slots: Sequence[tuple[int, tuple[int, int]]], spaces: Sequence[CandidateSpace]
) -> CandidateSpace:
    """A space with the spaces of pairs that it grows from, if it does; see `find_parents`."""
    if not isinstance(space.pairs, TripleSpace):
        return space
    parents = []
    for number, places in parent_slots:
        first, second = (
            np.array([numbers.get(text, -1) for text in spaces[number].key_texts(side)], dtype=np.int64)
            for side, numbers in enumerate(space.keys_by_text(place) for place in places)
        )
        parents.append(ParentSpace(number, places, (first, second)))
    return replace(space, pairs=replace(space.pairs, parents=tuple(parents)))


def _ground_space(
    bound: BoundModel, split: CandidateSplit, variables: Sequence[VariableBlock], budget: int
) -> CandidateSpace:
    facts, degrees = make_lowering_context(bound), DegreeCache(bound)
    maker = BlockGrounder(bound, DuckDbEngine(bound.cursor), variables)
    cells: list[UnsortedCells] = []
    own_keys = []
    for template, n_keys in zip(split.literal_templates, split.n_own_keys, strict=True):
        lowered = lower_template(template, facts)
        size = check_budget(degrees, lowered.plan, budget, split.template.name, template.span)
        coded = encode_keys(bound, lowered)
        if coded.n_combinations >= MAX_COMBINED_KEYS:
            raise _too_many_keys_error(split)
        own = replace(coded, texts=coded.texts[:n_keys])
        n_samples = coded.n_combinations // max(own.n_combinations, 1)
        found = list(
            collect_bindings(
                maker.engine, bound, coded, maker.variable_ranges(lowered), size.join_rows, bound.dataset.storage
            )
        )
        number = _concatenate([rows.key for rows, _ in found if rows.key is not None]).astype(np.int64)
        variable = _concatenate([rows.scope[0] for rows, _ in found])
        key, sample = np.divmod(number, max(n_samples, 1))
        cells.append((key, sample, variable, _literal_truth(split, lowered, maker)))
        own_keys.append(own)
    if len(cells) == MAX_LITERALS:
        cells = _filter_common_samples(cells)
    relations = {pair: _infer_key_relation(split, pair, cells) for pair in split.key_relations}
    samples = distinct(np.concatenate([distinct(sample) for _, sample, _, _ in cells]))
    numbers, sides = [], []
    for k, ((key, sample, variable, truth), own) in enumerate(zip(cells, own_keys, strict=True)):
        tied = any(k in pair for pair, relation in relations.items() if relation != KeyRelation.ANY)
        # Sides that are tied have all values of the sort, in its order.
        codes = _order_codes(own, split.key_type_name, bound) if tied and len(own.texts) == 1 else distinct(key)
        order = np.argsort(codes)
        place = order[np.searchsorted(codes, key, sorter=order)] if len(codes) else key
        sides.append(CandidateSide.from_cells(len(codes), place, np.searchsorted(samples, sample), variable, truth))
        numbers.append(codes)
    if math.prod(side.n_keys for side in sides) >= MAX_COMBINED_KEYS:
        raise _too_many_keys_error(split)
    name, l1, l2 = split.template.name, split.template.options.l1, split.template.options.l2
    whole = lower_template(split.template, facts)
    values = maker.term_values(whole)
    patterns = pattern_names(whole, values)
    space: PairOrTripleSpace
    if len(sides) == MAX_LITERALS:
        first, second, third = sides
        space = TripleSpace(name, first, second, third, relations, len(samples), l1=l1, l2=l2)
    else:
        first, second = sides
        space = PairSpace(name, first, second, relations[0, 1], len(samples), l1, l2)
        if split.is_table:
            space = TableSpace(**vars(space), table=_table_patterns(whole, values))
    return CandidateSpace(split, space, patterns, tuple(numbers), tuple(own_keys))


def _table_patterns(lowered: LoweredTemplate, values: list[tuple[str, ...]]) -> np.ndarray:
    """The patterns of a table, shape (n_joint_states, n_weights).

    Raises:
        UsageError: where it has more states than an edge can have.
    """
    states = math.prod(map(len, values))
    if states > MAX_TABLE_STATES:
        message = f"the tables of candidates '{lowered.template.name}' have {states:,} states, and {MAX_TABLE_STATES:,} are the most"
        raise UsageError(Diagnostic("E321", message, lowered.template.span, "use literals, such as a.x == b.x and ..."))
    tied = state_patterns(lowered, values, {})
    return np.eye(states) if tied is None else tied


def _literal_truth(split: CandidateSplit, lowered: LoweredTemplate, grounder: BlockGrounder) -> np.ndarray:
    """Of a literal in each state, shape (n_states,)."""
    values = grounder.term_values(lowered)
    if split.is_table:
        return np.ones(len(values[0]))
    truth = state_patterns(lowered, values, {})
    assert truth is not None, "a literal is a formula"
    return truth[:, 0]


def _filter_common_samples(cells: Sequence[UnsortedCells]) -> list[UnsortedCells]:
    """The cells whose samples all sides have: what two literals say where the third is never asked for does not matter."""
    met = reduce(_intersect_sorted, [distinct(sample) for _, sample, _, _ in cells])
    kept = [np.isin(sample, met) for _, sample, _, _ in cells]
    return [
        (key[at], sample[at], variable[at], truth)
        for (key, sample, variable, truth), at in zip(cells, kept, strict=True)
    ]


def _too_many_keys_error(split: CandidateSplit) -> UsageError:
    message = f"candidates '{split.template.name}' have more keys and samples than can be numbered"
    return UsageError(Diagnostic("E391", message, split.template.span, "give them fewer names"))


def _infer_key_relation(split: CandidateSplit, pair: tuple[int, int], cells: Sequence[UnsortedCells]) -> KeyRelation:
    """A pair of keys whose literals speak of one variable is no pair: such keys must be of one sort, and distinct."""
    if split.key_relations[pair] != KeyRelation.ANY:
        return split.key_relations[pair]
    both = [cells[side] for side in pair]
    n_variables = 1 + max(int(variable.max(initial=0)) for _, _, variable, _ in both)
    first, second = (distinct(sample * n_variables + variable) for _, sample, variable, _ in both)
    if not _intersect_sorted(first, second).size:
        return KeyRelation.ANY
    if all(np.array_equal(a, b) for a, b in zip(*both, strict=True)):
        return KeyRelation.DISTINCT
    message = f"candidates '{split.template.name}' pair literals that may speak of the same variable"
    raise UsageError(Diagnostic("E391", message, split.template.span, "tie the keys with < or != in 'where'"))


def _intersect_sorted(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The numbers that are in both of two ascending arrays without repeats."""
    return np.intersect1d(first, second, assume_unique=True)


def _order_codes(coded_keys: CodedKeys, type_name: str, bound: BoundModel) -> np.ndarray:
    """The codes of a sort in the order of `<`: texts of open domains are compared as such, all else as it is listed."""
    (texts,) = coded_keys.texts
    if isinstance(bound.spec.domain(type_name), OpenDomain):
        return np.array(sorted(range(len(texts)), key=lambda code: texts[code]), dtype=np.int64)
    return np.arange(len(texts))


def _concatenate(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int32), *parts])
