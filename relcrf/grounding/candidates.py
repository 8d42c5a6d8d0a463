"""Grounding of candidate declarations into spaces of candidate factors.

A declaration has two or three literals, or two random terms (also called literals here). Each literal is grounded as a
separate template, over all names except the keys of the other literals. A *key* of a literal is a combination of values of
the literal's names in `per`; a *sample* is a combination of values of the names that all literals share. For each key and
sample, a literal has at most one *cell*, which contains a variable. A *side* is the set of cells of a literal. A *space*
contains all combinations of one key from each side. Only the cells are stored, so the cost of a space does not depend on
the number of combinations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations

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
from relcrf.model.types import DomainType
from relcrf.model.typing import NameScope

MAX_TABLE_STATES = 4096
"""Maximum number of joint states of a candidate table: 64 states for each of two terms."""

UnsortedCells = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Cells of one literal: three arrays with the key code, the sample code and the variable of each cell; and an array with
the truth value of the literal in each state of a variable (1.0 in all states for a term of a table)."""


@dataclass(frozen=True)
class CandidateSpace:
    """A space of candidate pairs or triples, with the texts of the keys.

    Args:
        pairs: the candidates; a triple is a pair of a composite literal (two literals) and the third literal.
        patterns: text of each of `pairs.patterns`.
        key_codes: for each literal, the code of each key (one integer per combination of values), shape (n_keys,).
        coded_keys: for each literal, the texts of the codes.
    """

    split: CandidateSplit
    pairs: PairOrTripleSpace
    patterns: tuple[str, ...]
    key_codes: tuple[np.ndarray, ...]
    coded_keys: tuple[CodedKeys, ...]

    def key_texts(self, side: int) -> list[tuple[str, ...]]:
        """Return the texts of each key of a literal."""
        return list(self.coded_keys[side].decode_combined(self.key_codes[side]))

    def keys_by_text(self, side: int) -> dict[tuple[str, ...], int]:
        """Return the index of each key of a literal, by the texts of the key."""
        return {text: key for key, text in enumerate(self.key_texts(side))}

    def pair_texts(self, pairs: np.ndarray) -> tuple[tuple[str, ...], ...]:
        """Return the key texts of each pair in `pairs`, shape (n, 2); the texts are in the order of `per`."""
        texts_by_side = [
            coded.decode_combined(key_codes[keys])
            for coded, key_codes, keys in zip(
                self.coded_keys, self.key_codes, self.pairs.decode_keys(pairs).T, strict=True
            )
        ]
        return tuple(
            tuple(texts[side][index] for side, index in self.split.key_locations)
            for texts in zip(*texts_by_side, strict=True)
        )

    def find_pairs(self, texts: Sequence[tuple[str, ...]]) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs with the given key texts, shape (n, 2), and the index in `texts` of each pair, shape (n,).

        A combination of key texts is skipped if one of the keys is not in the data.
        """
        keys_of_sides = [self.keys_by_text(side) for side in range(len(self.coded_keys))]
        keys, found_texts = [], []
        for text_index, text in enumerate(texts):
            side_texts = [[""] * n_keys for n_keys in self.split.n_own_keys]
            for (side, index), part in zip(self.split.key_locations, text, strict=True):
                side_texts[side][index] = part
            key = [side_keys.get(tuple(part)) for side_keys, part in zip(keys_of_sides, side_texts, strict=True)]
            if None not in key:
                keys.append(key)
                found_texts.append(text_index)
        key_array = np.array(keys, dtype=np.int64).reshape(-1, len(self.coded_keys))
        return self.pairs.encode_keys(key_array), np.array(found_texts, dtype=np.int64)

    def make_block(self, keys: tuple[tuple[str, ...], ...], block_index: int = 0) -> GroundBlock:
        """Return the factors of some candidates, given by their key texts, as a block of the graph."""
        pairs, key_indices = self.find_pairs(keys)
        # Candidates with keys that are not in the data also have weights in the block.
        group = self.pairs.build_factor_group(pairs, key_indices, len(keys), block_index)
        name = self.pairs.name
        info = TemplateInfo(name, ("1",), self.patterns, KeyDictionary(None, keys), group.n_factors)
        return GroundBlock(self.pairs.build_weight_block(len(keys)), info, (group,), (name,), {name: group.n_factors})


@reraises_plugin_errors
def ground_candidates(
    bound: BoundModel, variables: Sequence[VariableBlock], budget: int = DEFAULT_BUDGET
) -> tuple[CandidateSpace, ...]:
    """Ground the candidate declarations of a model; the tables of the model's random relations must exist.

    Raises:
        BudgetError: if a literal has more cells than the budget.
        UsageError: if a declaration does not have two or three literals or two terms, or if no pairs are declared over
            two literals of a declaration of triples.
    """
    context = make_lowering_context(bound)
    templates = [t for t in context.spec.templates if t.is_candidate]
    splits = [split_candidates(t, NameScope(context.spec, t.parameters, t.where)) for t in templates]
    parents = [find_parents(split, splits) if len(split.literal_templates) == MAX_LITERALS else [] for split in splits]
    spaces = [_ground_space(bound, split, variables, budget) for split in splits]
    return tuple(
        _attach_parents(space, parent_slots, spaces) for space, parent_slots in zip(spaces, parents, strict=True)
    )


def _attach_parents(
    space: CandidateSpace, parent_slots: Sequence[tuple[int, tuple[int, int]]], spaces: Sequence[CandidateSpace]
) -> CandidateSpace:
    """Return a space of triples with the spaces of pairs that the triples extend; return other spaces unchanged."""
    if not isinstance(space.pairs, TripleSpace):
        return space
    parents = []
    for space_index, sides in parent_slots:
        first, second = (
            np.array([triple_keys.get(text, -1) for text in spaces[space_index].key_texts(side)], dtype=np.int64)
            for side, triple_keys in enumerate(space.keys_by_text(triple_side) for triple_side in sides)
        )
        parents.append(ParentSpace(space_index, sides, (first, second)))
    return replace(space, pairs=replace(space.pairs, parents=tuple(parents)))


def _ground_space(
    bound: BoundModel, split: CandidateSplit, variables: Sequence[VariableBlock], budget: int
) -> CandidateSpace:
    context, degrees = make_lowering_context(bound), DegreeCache(bound)
    grounder = BlockGrounder(bound, DuckDbEngine(bound.cursor), variables)
    cells: list[UnsortedCells] = []
    own_keys = []
    for template, n_keys in zip(split.literal_templates, split.n_own_keys, strict=True):
        lowered = lower_template(template, context)
        size = check_budget(degrees, lowered.plan, budget, split.template.name, template.span)
        coded_keys = encode_keys(bound, lowered)
        if coded_keys.n_combinations >= MAX_COMBINED_KEYS:
            raise _too_many_keys_error(split)
        own_coded = replace(coded_keys, texts=coded_keys.texts[:n_keys])
        n_samples = coded_keys.n_combinations // max(own_coded.n_combinations, 1)
        batches = list(
            collect_bindings(
                grounder.engine,
                bound,
                coded_keys,
                grounder.variable_ranges(lowered),
                size.join_rows,
                bound.dataset.storage,
            )
        )
        combined = _concatenate([rows.key for rows, _ in batches if rows.key is not None]).astype(np.int64)
        variable = _concatenate([rows.scope[0] for rows, _ in batches])
        key, sample = np.divmod(combined, max(n_samples, 1))
        cells.append((key, sample, variable, _literal_truth(split, lowered, grounder)))
        own_keys.append(own_coded)
    if len(cells) == MAX_LITERALS:
        cells = _filter_common_samples(cells)
    relations = _key_relations(split, cells)
    samples = distinct(np.concatenate([distinct(sample) for _, sample, _, _ in cells]))
    keys = [_order_keys(split, k, own_keys[k], cells[k][0], relations, bound) for k in range(len(cells))]
    cells = [
        (side_keys.find(key), np.searchsorted(samples, sample), variable, truth)
        for side_keys, (key, sample, variable, truth) in zip(keys, cells, strict=True)
    ]
    cells = _remove_shared_samples(split, cells, keys, relations)
    key_codes = [side_keys.codes for side_keys in keys]
    sides = [
        CandidateSide.from_cells(len(codes), *side_cells) for codes, side_cells in zip(key_codes, cells, strict=True)
    ]
    if math.prod(side.n_keys for side in sides) >= MAX_COMBINED_KEYS:
        raise _too_many_keys_error(split)
    name, l1, l2 = split.template.name, split.template.options.l1, split.template.options.l2
    lowered_table = lower_template(split.template, context)
    values = grounder.term_values(lowered_table)
    patterns = pattern_names(lowered_table, values)
    space: PairOrTripleSpace
    if len(sides) == MAX_LITERALS:
        first, second, third = sides
        space = TripleSpace(name, first, second, third, relations, len(samples), l1=l1, l2=l2)
    else:
        first, second = sides
        comparison = split.comparisons.get((0, 1))
        ranks = None if comparison is None or comparison.is_plain else (keys[0].ranks, keys[1].ranks)
        space = PairSpace(name, first, second, relations[0, 1], len(samples), l1, l2, ranks)
        if split.is_table:
            space = TableSpace(**vars(space), table=_table_patterns(lowered_table, values))
    return CandidateSpace(split, space, patterns, tuple(key_codes), tuple(own_keys))


def _table_patterns(lowered: LoweredTemplate, values: Sequence[Sequence[str]]) -> np.ndarray:
    """Return the patterns of a table, shape (n_joint_states, n_weights).

    Raises:
        UsageError: if the table has more than `MAX_TABLE_STATES` joint states.
    """
    states = math.prod(map(len, values))
    if states > MAX_TABLE_STATES:
        name = lowered.template.name
        message = f"the tables of candidates '{name}' have {states:,} states; the maximum is {MAX_TABLE_STATES:,}"
        hint = "use literals in 'over' instead, such as a.x == b.x and ..."
        raise UsageError(Diagnostic("E321", message, lowered.template.span, hint))
    patterns = state_patterns(lowered, values, {})
    return np.eye(states) if patterns is None else patterns


def _literal_truth(split: CandidateSplit, lowered: LoweredTemplate, grounder: BlockGrounder) -> np.ndarray:
    """Return the truth value of a literal in each state of its variable, shape (n_states,); 1.0 for a term of a table."""
    values = grounder.term_values(lowered)
    if split.is_table:
        return np.ones(len(values[0]))
    truth = state_patterns(lowered, values, {})
    assert truth is not None, "a literal is a formula"
    return truth[:, 0]


def _filter_common_samples(cells: Sequence[UnsortedCells]) -> list[UnsortedCells]:
    """Return the cells of the samples in which all literals have a cell."""
    common = reduce(_intersect_sorted, [distinct(sample) for _, sample, _, _ in cells])
    masks = [np.isin(sample, common) for _, sample, _, _ in cells]
    return [
        (key[mask], sample[mask], variable[mask], truth)
        for (key, sample, variable, truth), mask in zip(cells, masks, strict=True)
    ]


def _too_many_keys_error(split: CandidateSplit) -> UsageError:
    message = f"candidates '{split.template.name}' have too many combinations of keys and samples"
    return UsageError(Diagnostic("E391", message, split.template.span, "reduce the number of names in the declaration"))


def _key_relations(split: CandidateSplit, cells: Sequence[UnsortedCells]) -> dict[tuple[int, int], KeyRelation]:
    """Return the relation of each pair of literals: the declared one, else DISTINCT if both have equal cells, else ANY."""
    out = {}
    for first, second in combinations(range(len(cells)), 2):
        comparison = split.comparisons.get((first, second))
        has_equal_cells = bool(len(cells[first][0])) and all(map(np.array_equal, cells[first], cells[second]))
        inferred = KeyRelation.DISTINCT if has_equal_cells else KeyRelation.ANY
        out[first, second] = inferred if comparison is None else comparison.relation
    if len(cells) == MAX_LITERALS and out[0, 1] == out[1, 2] == KeyRelation.ASCENDING:
        out[0, 2] = KeyRelation.ASCENDING
    return out


@dataclass(frozen=True)
class _SideKeys:
    """The keys of one literal.

    Args:
        codes: code of each key, shape (n_keys,).
        ranks: rank of each key in comparisons, ascending, shape (n_keys,).
    """

    codes: np.ndarray
    ranks: np.ndarray

    def find(self, codes: np.ndarray) -> np.ndarray:
        """Return the index of the key with each of the given codes, shape (n,)."""
        if not len(self.codes):
            return codes
        order = np.argsort(self.codes)
        return np.asarray(order[np.searchsorted(self.codes, codes, sorter=order)])


def _order_keys(
    split: CandidateSplit,
    side: int,
    own_coded: CodedKeys,
    cell_codes: np.ndarray,
    relations: Mapping[tuple[int, int], KeyRelation],
    bound: BoundModel,
) -> _SideKeys:
    """Return the keys of a literal, in the order of the name that is compared with a name of another literal's key.

    If the literal has a single key and it is compared, all values of the key type are keys. Otherwise, the keys are the
    codes of the literal's cells.
    """
    is_compared = any(side in pair for pair, relation in relations.items() if relation != KeyRelation.ANY)
    has_all_values = is_compared and len(own_coded.texts) == 1
    codes = _order_codes(own_coded, 0, bound) if has_all_values else distinct(cell_codes)
    for pair, comparison in split.comparisons.items():
        if side in pair and not comparison.is_plain:
            number = pair.index(side)
            rank_of_value = np.argsort(_order_codes(own_coded, comparison.indices[number], bound))
            sizes = [len(texts) for texts in own_coded.texts]
            ranks = rank_of_value[np.unravel_index(codes, sizes)[comparison.indices[number]]]
            order = np.lexsort((codes, ranks))
            # `first <= second` is equivalent to `first < second + 1`.
            return _SideKeys(codes[order], ranks[order] + int(number == 1 and comparison.allows_equal))
    return _SideKeys(codes, np.arange(len(codes)))


def _remove_shared_samples(
    split: CandidateSplit,
    cells: Sequence[UnsortedCells],
    keys: Sequence[_SideKeys],
    relations: Mapping[tuple[int, int], KeyRelation],
) -> list[UnsortedCells]:
    """Return the cells without the samples in which both literals have the same variables.

    An example is `holds(x, y, r) and holds(y, x, s)` with the keys r and s in the samples with x == y.

    Raises:
        UsageError: if a candidate contains a variable twice in another sample, or if no samples are left.
    """
    n_variables = 1 + max(int(variable.max(initial=0)) for _, _, variable, _ in cells)
    excluded = [np.empty(0, dtype=np.int64)]
    for (i, j), relation in relations.items():
        comparison = split.comparisons.get((i, j))
        if relation != KeyRelation.ANY and (comparison is None or comparison.is_plain):
            continue  # a variable has one key, and a key cannot be paired with itself
        both = [(key, sample, sample * n_variables + variable) for key, sample, variable, _ in (cells[i], cells[j])]
        _, first, second = np.intersect1d(both[0][2], both[1][2], assume_unique=True, return_indices=True)
        repeated = relation.allows(keys[i].ranks[both[0][0][first]], keys[j].ranks[both[1][0][second]])
        shared = both[0][1][first]
        samples = distinct(shared[repeated])
        if any(np.isin(sample, samples).sum() != np.isin(shared, samples).sum() for _, sample, _ in both):
            raise _shared_variable_error(split)
        excluded.append(samples)
    excluded_samples = np.concatenate(excluded)
    if not len(excluded_samples):
        return list(cells)
    masks = [~np.isin(sample, excluded_samples) for _, sample, _, _ in cells]
    if not all(mask.any() for mask in masks):
        raise _shared_variable_error(split)
    return [
        (key[mask], sample[mask], variable[mask], truth)
        for (key, sample, variable, truth), mask in zip(cells, masks, strict=True)
    ]


def _shared_variable_error(split: CandidateSplit) -> UsageError:
    message = f"two literals of the candidates '{split.template.name}' may refer to the same variable"
    return UsageError(Diagnostic("E391", message, split.template.span, "compare the keys with < or != in 'where'"))


def _intersect_sorted(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the intersection of two ascending arrays without duplicates."""
    return np.intersect1d(first, second, assume_unique=True)


def _order_codes(own_coded: CodedKeys, index: int, bound: BoundModel) -> np.ndarray:
    """Return the codes of a name of a key in the order of `<`: by text for an open domain, otherwise as declared."""
    texts, value_type = own_coded.texts[index], own_coded.lowered.keys[index].value_type
    if isinstance(value_type, DomainType) and isinstance(bound.spec.domain(value_type.domain), OpenDomain):
        return np.array(sorted(range(len(texts)), key=lambda code: texts[code]), dtype=np.int64)
    return np.arange(len(texts))


def _concatenate(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int32), *parts])
