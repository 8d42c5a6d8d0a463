"""Declarations of candidates taken apart into their literals or terms, each of which is grounded as a template of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.candidates import KeyRelation
from relcrf.language.render import render_expression
from relcrf.model import expressions as e
from relcrf.model.formula import evidence_parts
from relcrf.model.nodes import walk
from relcrf.model.spec import Template
from relcrf.model.typing import NameScope

MAX_LITERALS = 3


@dataclass(frozen=True)
class CandidateSplit:
    """Candidates, taken apart.

    Args:
        literal_templates: the two or three literals as templates; their `per` are the own keys, then the names of the sample.
        n_own_keys: for each side, how many own keys it has.
        key_locations: for each key of `per`, its side and its place there.
        key_relations: of each two sides, which keys may stand together.
        key_type_name: of the keys that relations compare.
        is_table: the sides are random terms, and each joint state of them has a weight.
    """

    template: Template
    literal_templates: tuple[Template, ...]
    n_own_keys: tuple[int, ...]
    key_locations: tuple[tuple[int, int], ...]
    key_relations: Mapping[tuple[int, int], KeyRelation]
    key_type_name: str
    is_table: bool

    def canonical_literals(self, indices: Sequence[int]) -> tuple[object, ...]:
        """Some of the literals, such that what equals this in another declaration has the same literals with the same keys,
        whatever its names are.
        """
        names: dict[str, str] = {}
        literals = [self.literal_templates[place].over[0] for place in indices]
        for k, place in enumerate(indices):
            for number, key in enumerate(self.literal_templates[place].per[: self.n_own_keys[place]]):
                assert isinstance(key, e.Name), "keys are names"
                names[key.name] = f"key {k}.{number}"
        for literal in literals:
            for name in _iter_names(literal):
                names.setdefault(name, f"name {len(names)}")
        sorts = {names[p.name]: p.type_name for p in self.template.parameters if p.name in names}
        return *(e.rename_names(literal, names) for literal in literals), tuple(sorted(sorts.items()))


def _iter_names(literal: e.Expression) -> Iterator[str]:
    """The names of a literal, from left to right."""
    for node in walk(literal):
        if isinstance(node, e.Name):
            yield node.name
        elif isinstance(node, e.Attribute):
            yield node.binder


def split_candidates(template: Template, scope: NameScope) -> CandidateSplit:
    """Candidates as two or three sides.

    Raises:
        UsageError: where they are neither two or three literals nor two random terms, with keys of their own.
    """

    def refused(why: str) -> UsageError:
        message = f"candidates '{template.name}' are no pairs of literals or terms: {why}"
        hint = "write over A and B, or over A, B for a table; one random term in each, per a name of A and a name of B"
        return UsageError(Diagnostic("E391", message, template.span, hint))

    is_table = len(template.over) > 1
    literals = template.over if is_table else e.conjuncts(template.over[0])
    if len(literals) < 2:
        raise refused("'over' is no conjunction")
    if is_table and len(literals) > 2:
        raise refused(f"'over' lists {len(literals)} of them, and a table is of two")
    if len(literals) > MAX_LITERALS:
        raise refused(f"'over' joins {len(literals)} of them, and {MAX_LITERALS} are the most")
    if template.by:
        raise refused("they have features in 'by'")
    for literal in literals:
        if len(scope.random_terms(literal)) != 1 or evidence_parts(literal, scope):
            raise refused(f"'{render_expression(literal)}' is not one random term without evidence")
    named = [e.names_in(literal) for literal in literals]
    sides: list[list[e.Expression]] = [[] for _ in literals]
    places = []
    for key in template.per:
        owners = [k for k, names in enumerate(named) if isinstance(key, e.Name) and key.name in names]
        if len(owners) != 1:
            raise refused(f"the key '{render_expression(key)}' is not a name of one of {_count_phrase(literals)}")
        places.append((owners[0], len(sides[owners[0]])))
        sides[owners[0]].append(key)
    if not all(sides):
        raise refused(f"one of {_count_phrase(literals)} has no key in 'per'")
    keys = [{key.name for key in side if isinstance(key, e.Name)} for side in sides]
    relations = dict.fromkeys(combinations(range(len(sides)), 2), KeyRelation.ANY)
    sort, shared = "", []
    for part in e.conjuncts(template.where):
        touched = [k for k, own in enumerate(keys) if e.names_in(part) & own]
        if len(touched) < 2:
            shared.append((part, touched))
            continue
        one, other = touched[:2]
        relation = _match_key_relation(part, keys[one], keys[other])
        if relation == KeyRelation.ANY or len(touched) > 2 or len(sides[one]) + len(sides[other]) > 2:
            raise refused(f"'{render_expression(part)}' ties the keys of {_count_phrase(literals)} to each other")
        relations[one, other] = relation
        sort = next(p.type_name for p in template.parameters if p.name in keys[one])
    if all(relations.get(pair) == KeyRelation.ASCENDING for pair in ((0, 1), (1, 2))):
        relations[0, 2] = KeyRelation.ASCENDING
    made = []
    for k, literal in enumerate(literals):
        others = set().union(*keys[:k], *keys[k + 1 :])
        own = tuple(p for p in template.parameters if p.name not in others)
        where = e.optional_conjunction([part for part, touched in shared if touched in ([], [k])])
        sample = tuple(e.Name(p.name) for p in own if p.name not in keys[k])
        name = f"{template.name}.{k + 1}"
        made.append(Template(name, own, (literal,), where, (*sides[k], *sample), span=template.span))
    return CandidateSplit(
        template, tuple(made), tuple(len(side) for side in sides), tuple(places), relations, sort, is_table
    )


def _count_phrase(literals: Sequence[e.Expression]) -> str:
    return "the two" if len(literals) == 2 else "the three"


def _match_key_relation(condition: e.Expression, first: set[str], second: set[str]) -> KeyRelation:
    """What a condition on a key of each of two sides says; `ANY` where it is another condition."""
    match condition:
        case e.Comparison("<", e.Name(a), e.Name(b)) if a in first and b in second:
            return KeyRelation.ASCENDING
        case e.Comparison(">", e.Name(a), e.Name(b)) if a in second and b in first:
            return KeyRelation.ASCENDING
        case e.Comparison("!=", e.Name(), e.Name()):
            return KeyRelation.DISTINCT
    return KeyRelation.ANY


def find_parents(split: CandidateSplit, splits: Sequence[CandidateSplit]) -> list[tuple[int, tuple[int, int]]]:
    """The declarations of pairs that two of three literals stand in: their places among all, and which sides the two are.

    Raises:
        UsageError: where there are none.
    """
    found = []
    for number, pairs in enumerate(splits):
        if len(pairs.literal_templates) == 2 and not pairs.is_table:
            wanted = pairs.canonical_literals((0, 1))
            found += [(number, at) for at in permutations(range(3), 2) if split.canonical_literals(at) == wanted]
    if not found:
        first, second, _ = (render_expression(side.over[0]) for side in split.literal_templates)
        message = f"candidates '{split.template.name}' are triples, and no two of their literals are declared as pairs"
        hint = f"triples grow from chosen pairs: declare candidates over two of the three, such as {first} and {second}"
        raise UsageError(Diagnostic("E393", message, split.template.span, hint))
    return found
