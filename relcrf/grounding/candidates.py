"""The candidates of a model on its tables: for each side of a pair its cells, and what the keys mean.

A side is grounded as a template of its own: its literal, with all names that are no keys of the other side. So a space costs its
sides and not its pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.data.bound import Bound
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.candidates import KeyRelation, PairSpace, Side
from relcrf.grounding.blocks import Block, BlockMaker, TemplateInfo
from relcrf.grounding.collect import collect
from relcrf.grounding.degrees import Degrees
from relcrf.grounding.derive import facts_of
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.estimate import DEFAULT_BUDGET, require
from relcrf.grounding.keys import CodedKeys, KeyDictionary, code_keys
from relcrf.grounding.lower import lower_template
from relcrf.grounding.patterns import state_patterns
from relcrf.grounding.variables import VariableBlock
from relcrf.language.render import expression
from relcrf.model.expressions import Comparison, Connective, Expression, Name, conjoined, conjuncts, names_in
from relcrf.model.formula import evidence_of
from relcrf.model.spec import OpenDomain, Template
from relcrf.model.typing import Scope

Cells = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Of one side: combined codes of the keys, of the samples, the variables, and the literal's truth in each state."""

MOST_NUMBERS = 1 << 62
"""Combinations of keys and samples that a number can tell apart."""


@dataclass(frozen=True)
class Split:
    """A template of candidates, taken apart.

    Args:
        sides: the two literals as templates; their `per` are the own keys, then the names of the sample.
        keys: for each side, how many own keys it has.
        places: for each key of `per`, its side and its place there.
        sort: of the keys that `relation` compares.
    """

    template: Template
    sides: tuple[Template, Template]
    keys: tuple[int, int]
    places: tuple[tuple[int, int], ...]
    relation: KeyRelation
    sort: str


@dataclass(frozen=True)
class CandidateSpace:
    """A space of pairs with the meaning of its keys.

    Args:
        numbers: for each side the combined codes of its keys, shape (n_keys,).
        coded: for each side, what the codes of its own keys stand for.
    """

    split: Split
    pairs: PairSpace
    numbers: tuple[np.ndarray, np.ndarray]
    coded: tuple[CodedKeys, CodedKeys]

    def texts(self, pairs: np.ndarray) -> tuple[tuple[str, ...], ...]:
        """The keys of some pairs, shape (n, 2), in the order of `per`."""
        spelt = [
            coded.spelt(numbers[pairs[:, k]])
            for k, (coded, numbers) in enumerate(zip(self.coded, self.numbers, strict=True))
        ]
        return tuple(
            tuple(sides[side][place] for side, place in self.split.places) for sides in zip(*spelt, strict=True)
        )

    def found(self, texts: Sequence[tuple[str, ...]]) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of some keys, shape (n, 2), and which of the texts these are, shape (n,); others are not in the data."""
        where = [
            {text: number for number, text in enumerate(coded.spelt(numbers))}
            for coded, numbers in zip(self.coded, self.numbers, strict=True)
        ]
        pairs, kept = [], []
        for number, text in enumerate(texts):
            own: tuple[list[str], list[str]] = ([""] * self.split.keys[0], [""] * self.split.keys[1])
            for (side, place), part in zip(self.split.places, text, strict=True):
                own[side][place] = part
            pair = [known.get(tuple(part)) for known, part in zip(where, own, strict=True)]
            if None not in pair:
                pairs.append(pair)
                kept.append(number)
        return np.array(pairs, dtype=np.int64).reshape(-1, 2), np.array(kept, dtype=np.int64)

    def block(self, keys: tuple[tuple[str, ...], ...], group_block: int = 0) -> Block:
        """The factors of some keys as a block of the graph."""
        pairs, kept = self.found(keys)
        # The keys that the data does not have keep their places among the weights.
        group = self.pairs.group(pairs, kept, len(keys), group_block)
        template = self.split.template
        info = TemplateInfo(
            template.name, ("1",), (expression(template.over[0]),), KeyDictionary(None, keys), group.n_factors
        )
        return Block(self.pairs.weights(len(keys)), info, (group,), (template.name,), {template.name: group.n_factors})


def split_candidates(template: Template, scope: Scope) -> Split:
    """A template of candidates as two sides.

    Raises:
        UsageError: where it is no pair of literals with keys of their own.
    """

    def refused(why: str) -> UsageError:
        message = f"candidates '{template.name}' are no pairs of literals: {why}"
        hint = "write over A and B, one random term in each, per a name of A and a name of B"
        return UsageError(Diagnostic("E391", message, template.span, hint))

    formula = template.over[0]
    if len(template.over) != 1 or not (isinstance(formula, Connective) and formula.operator == "and"):
        raise refused("'over' is no conjunction")
    if template.by:
        raise refused("they have features in 'by'")
    literals = (formula.left, formula.right)
    for literal in literals:
        if len(scope.random_terms(literal)) != 1 or evidence_of(literal, scope):
            raise refused(f"'{expression(literal)}' is not one random term without evidence")
    named = [names_in(literal) for literal in literals]
    sides: list[list[Expression]] = [[], []]
    places = []
    for key in template.per:
        owners = [k for k in (0, 1) if isinstance(key, Name) and key.name in named[k]]
        if len(owners) != 1:
            raise refused(f"the key '{expression(key)}' is not a name of one of the two")
        places.append((owners[0], len(sides[owners[0]])))
        sides[owners[0]].append(key)
    if not all(sides):
        raise refused("one of the two has no key in 'per'")
    keys = [{key.name for key in side if isinstance(key, Name)} for side in sides]
    relation, sort, shared = KeyRelation.ANY, "", []
    for part in conjuncts(template.where):
        touched = [bool(names_in(part) & own) for own in keys]
        if not all(touched):
            shared.append((part, touched))
            continue
        relation = _relation(part, keys)
        if relation == KeyRelation.ANY or len(template.per) != 2:
            raise refused(f"'{expression(part)}' ties the keys of the two to each other")
        sort = next(p.sort for p in template.parameters if p.name in keys[0])
    made = []
    for k, literal in enumerate(literals):
        own = [p for p in template.parameters if p.name not in keys[1 - k]]
        where = conjoined([part for part, touched in shared if not touched[1 - k]])
        sample = tuple(Name(p.name) for p in own if p.name not in keys[k])
        made.append(
            Template(
                f"{template.name}.{k + 1}", tuple(own), (literal,), where, (*sides[k], *sample), span=template.span
            )
        )
    return Split(template, (made[0], made[1]), (len(sides[0]), len(sides[1])), tuple(places), relation, sort)


def _relation(part: Expression, keys: Sequence[set[str]]) -> KeyRelation:
    """What a condition on one key of each side says; `ANY` where it is another condition."""
    match part:
        case Comparison("<", Name(a), Name(b)) if a in keys[0] and b in keys[1]:
            return KeyRelation.ASCENDING
        case Comparison(">", Name(a), Name(b)) if a in keys[1] and b in keys[0]:
            return KeyRelation.ASCENDING
        case Comparison("!=", Name(), Name()):
            return KeyRelation.DISTINCT
    return KeyRelation.ANY


def ground_candidates(
    bound: Bound, variables: Sequence[VariableBlock], budget: int = DEFAULT_BUDGET
) -> tuple[CandidateSpace, ...]:
    """The spaces of all candidates of a model, whose random relations have been made.

    Raises:
        BudgetError: where a side has more cells than the budget.
        UsageError: where candidates are no pairs of literals.
    """
    facts = facts_of(bound)
    templates = [t for t in facts.spec.templates if t.is_candidate]
    return tuple(
        _ground(bound, split_candidates(t, Scope(facts.spec, t.parameters, t.where)), variables, budget)
        for t in templates
    )


def _ground(bound: Bound, split: Split, variables: Sequence[VariableBlock], budget: int) -> CandidateSpace:
    facts, degrees = facts_of(bound), Degrees(bound)
    maker = BlockMaker(bound, DuckDbEngine(bound.cursor), variables)
    cells: list[Cells] = []
    own_keys = []
    for template, n_keys in zip(split.sides, split.keys, strict=True):
        lowered = lower_template(template, facts)
        size = require(degrees, lowered.plan, budget, split.template.name, template.span)
        coded = code_keys(bound, lowered)
        if coded.limit >= MOST_NUMBERS:
            message = f"candidates '{split.template.name}' have more keys and samples than can be numbered"
            raise UsageError(Diagnostic("E391", message, template.span, "give them fewer names"))
        own = replace(coded, texts=coded.texts[:n_keys])
        n_samples = coded.limit // max(own.limit, 1)
        found = list(collect(maker.engine, bound, coded, maker.places(lowered), size.rows, bound.dataset.storage))
        number = _joined([part.rows.key for part in found if part.rows.key is not None]).astype(np.int64)
        variable = _joined([part.rows.scope[0] for part in found])
        truth = state_patterns(lowered, maker.values(lowered), {})
        assert truth is not None, "a literal is a formula"
        key, sample = np.divmod(number, max(n_samples, 1))
        cells.append((key, sample, variable, truth[:, 0]))
        own_keys.append(own)
    relation = _tightened(split, cells)
    samples = np.unique(np.concatenate([sample for _, sample, _, _ in cells]))
    numbers: list[np.ndarray] = []
    if relation == KeyRelation.ANY:
        numbers = [np.unique(key) for key, _, _, _ in cells]
    else:  # both sides have all values of the sort, in its order
        numbers = [_in_order(own_keys[0], split.sort, bound)] * 2
    sides = []
    for (key, sample, variable, truth), codes in zip(cells, numbers, strict=True):
        order = np.argsort(codes)
        place = order[np.searchsorted(codes, key, sorter=order)] if len(codes) else key
        sides.append(Side.of(len(codes), place, np.searchsorted(samples, sample), variable, truth))
    options = split.template.options
    pairs = PairSpace(split.template.name, sides[0], sides[1], relation, len(samples), options.l1, options.l2)
    return CandidateSpace(split, pairs, (numbers[0], numbers[1]), (own_keys[0], own_keys[1]))


def _tightened(split: Split, cells: Sequence[Cells]) -> KeyRelation:
    """A pair of keys whose literals speak of one variable is no pair: such keys must be of one sort, and distinct."""
    n_variables = 1 + max(int(variable.max(initial=0)) for _, _, variable, _ in cells)
    numbers = [sample * n_variables + variable for _, sample, variable, _ in cells]
    if split.relation != KeyRelation.ANY or not np.intersect1d(numbers[0], numbers[1]).size:
        return split.relation
    if all(np.array_equal(a, b) for a, b in zip(*cells, strict=True)):
        return KeyRelation.DISTINCT
    message = f"candidates '{split.template.name}' pair literals that may speak of the same variable"
    raise UsageError(Diagnostic("E391", message, split.template.span, "tie the keys with < or != in 'where'"))


def _in_order(own: CodedKeys, sort: str, bound: Bound) -> np.ndarray:
    """The codes of a sort in the order of `<`: texts of open domains are compared as such, all else as it is listed."""
    (texts,) = own.texts
    if isinstance(bound.spec.domain(sort), OpenDomain):
        return np.array(sorted(range(len(texts)), key=lambda code: texts[code]), dtype=np.int64)
    return np.arange(len(texts))


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int32), *parts])
