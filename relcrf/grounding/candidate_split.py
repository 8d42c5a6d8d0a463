"""Splitting of candidate declarations into templates, one for each literal or term of `over`.

A candidate declaration proposes a factor template for each combination of values of its *keys*, the names in `per`. Each key
occurs in one literal. A *sample* is a combination of values of all other names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.candidates import KeyRelation
from relcrf.language.render import render_expression
from relcrf.model import expressions as e
from relcrf.model.formula import evidence_parts
from relcrf.model.nodes import walk
from relcrf.model.spec import Template
from relcrf.model.typing import NameScope

MAX_LITERALS = 3
"""Maximum number of literals of a candidate declaration."""


@dataclass(frozen=True)
class KeyComparison:
    """A comparison of a key of one literal with a key of another literal.

    Args:
        relation: constraint on the two keys.
        allows_equal: True if the constraint is also satisfied by equal keys, as with `<=`.
        is_plain: True if the two literals have no other keys and equal keys do not satisfy the constraint.
        indices: index of each of the two keys among the keys of its literal.
        type_name: name of the type of both keys.
    """

    relation: KeyRelation
    allows_equal: bool
    is_plain: bool
    indices: tuple[int, int]
    type_name: str


@dataclass(frozen=True)
class CandidateSplit:
    """A candidate declaration, split into literals.

    Args:
        literal_templates: a template for each literal; `per` lists the keys of the literal, then the names of the sample.
        n_own_keys: number of keys of each literal.
        key_locations: for each key in `per`, the index of the literal, and the index of the key among the literal's keys.
        comparisons: comparisons of keys in `where`, by the indices of the two literals.
        is_table: True if `over` lists random terms, so that each joint state of the terms has a weight.
    """

    template: Template
    literal_templates: tuple[Template, ...]
    n_own_keys: tuple[int, ...]
    key_locations: tuple[tuple[int, int], ...]
    comparisons: Mapping[tuple[int, int], KeyComparison]
    is_table: bool

    def canonical_literals(self, indices: Sequence[int]) -> tuple[object, ...]:
        """Return some literals, given by index, in a canonical form that does not depend on the names of binders."""
        names: dict[str, str] = {}
        literals = [self.literal_templates[index].over[0] for index in indices]
        for k, index in enumerate(indices):
            for number, key in enumerate(self.literal_templates[index].per[: self.n_own_keys[index]]):
                assert isinstance(key, e.Name), "keys are names"
                names[key.name] = f"key {k}.{number}"
        for literal in literals:
            for name in _iter_names(literal):
                names.setdefault(name, f"name {len(names)}")
        type_names = {names[p.name]: p.type_name for p in self.template.parameters if p.name in names}
        return *(e.rename_names(literal, names) for literal in literals), tuple(sorted(type_names.items()))


def _iter_names(literal: e.Expression) -> Iterator[str]:
    """Yield the names in a literal, from left to right."""
    for node in walk(literal):
        if isinstance(node, e.Name):
            yield node.name
        elif isinstance(node, e.Attribute):
            yield node.binder


def split_candidates(template: Template, scope: NameScope) -> CandidateSplit:
    """Split a candidate declaration into its literals or terms.

    Raises:
        UsageError: unless `over` has two or three literals or two random terms, each with separate keys.
    """

    form = "write 'over A and B', or 'over A, B' for a table, with one random term in each and keys of A and B in 'per'"

    def problem(reason: str, hint: str = form) -> UsageError:
        message = f"invalid candidates '{template.name}': {reason}"
        return UsageError(Diagnostic("E391", message, template.span, hint))

    is_table = len(template.over) > 1
    literals = template.over if is_table else e.conjuncts(template.over[0])
    if len(literals) < 2:
        raise problem("'over' is not a conjunction or a list of two terms")
    if is_table and len(literals) > 2:
        raise problem(f"'over' lists {len(literals)} terms; the maximum is 2")
    if len(literals) > MAX_LITERALS:
        raise problem(f"'over' joins {len(literals)} literals; the maximum is {MAX_LITERALS}")
    if template.by:
        raise problem("candidates cannot have features in 'by'")
    for literal in literals:
        if len(scope.random_terms(literal)) != 1 or evidence_parts(literal, scope):
            raise problem(f"'{render_expression(literal)}' does not consist of one random term without evidence")
    operands = f"the {'two' if len(literals) == 2 else 'three'} {'terms' if is_table else 'literals'}"
    names_of_literals = [e.names_in(literal) for literal in literals]
    keys_of_literals: list[list[e.Expression]] = [[] for _ in literals]
    key_locations = []
    for key in template.per:
        owners = [k for k, names in enumerate(names_of_literals) if isinstance(key, e.Name) and key.name in names]
        if len(owners) != 1:
            raise problem(f"the key '{render_expression(key)}' is not a name in exactly one of {operands}")
        key_locations.append((owners[0], len(keys_of_literals[owners[0]])))
        keys_of_literals[owners[0]].append(key)
    if not all(keys_of_literals):
        raise problem(f"one of {operands} has no key in 'per'")
    key_names = [[key.name for key in literal_keys if isinstance(key, e.Name)] for literal_keys in keys_of_literals]
    type_names = {p.name: p.type_name for p in template.parameters}
    comparisons: dict[tuple[int, int], KeyComparison] = {}
    literal_conditions = []
    for condition in e.conjuncts(template.where):
        literal_indices = [k for k, names in enumerate(key_names) if e.names_in(condition) & {*names}]
        if len(literal_indices) < 2:
            literal_conditions.append((condition, literal_indices))
            continue
        first, second = literal_indices[:2]
        comparison = _match_comparison(condition, key_names[first], key_names[second], type_names)
        is_repeated = len(literal_indices) > 2 or (first, second) in comparisons
        if comparison is None or is_repeated or (len(literals) == MAX_LITERALS and not comparison.is_plain):
            reason = f"'{render_expression(condition)}' is not a supported condition between keys of {operands}"
            hint = "compare one key of each of two literals by <, <= or !=, once"
            if len(literals) == MAX_LITERALS:
                hint = "compare two keys by < or !=, if each literal has a single key"
            raise problem(reason, hint)
        comparisons[first, second] = comparison
    literal_templates = []
    for k, literal in enumerate(literals):
        others = {name for names in (*key_names[:k], *key_names[k + 1 :]) for name in names}
        parameters = tuple(p for p in template.parameters if p.name not in others)
        where = e.optional_conjunction([condition for condition, indices in literal_conditions if indices in ([], [k])])
        sample = tuple(e.Name(p.name) for p in parameters if p.name not in key_names[k])
        name = f"{template.name}.{k + 1}"
        literal_templates.append(
            Template(name, parameters, (literal,), where, (*keys_of_literals[k], *sample), span=template.span)
        )
    n_own_keys = tuple(map(len, keys_of_literals))
    templates = tuple(literal_templates)
    return CandidateSplit(template, templates, n_own_keys, tuple(key_locations), comparisons, is_table)


def _match_comparison(
    condition: e.Expression, first: Sequence[str], second: Sequence[str], type_names: Mapping[str, str]
) -> KeyComparison | None:
    """Return the comparison of a key in `first` with a key in `second` that a condition contains, or None."""
    if not isinstance(condition, e.Comparison):
        return None
    operator, left, right = condition.operator, condition.left, condition.right
    if not (isinstance(left, e.Name) and isinstance(right, e.Name)):
        return None
    names = (left.name, right.name)
    if operator in (">", ">="):
        operator, names = {">": "<", ">=": "<="}[operator], names[::-1]
    if operator == "!=" and names[0] in second:
        names = names[::-1]
    relation = {"<": KeyRelation.ASCENDING, "<=": KeyRelation.ASCENDING, "!=": KeyRelation.DISTINCT}.get(operator)
    if relation is None or names[0] not in first or names[1] not in second:
        return None
    indices, allows_equal = (first.index(names[0]), second.index(names[1])), operator == "<="
    is_plain = len(first) == len(second) == 1 and not allows_equal
    return KeyComparison(relation, allows_equal, is_plain, indices, type_names[names[0]])


def find_parents(split: CandidateSplit, splits: Sequence[CandidateSplit]) -> list[tuple[int, tuple[int, int]]]:
    """Return the declarations of candidate pairs over two of the three literals of a declaration of triples.

    Returns:
        For each declaration of pairs, the index in `splits`, and the indices of the two literals in the triple.

    Raises:
        UsageError: if no such pairs are declared.
    """
    parents = []
    for index, pairs in enumerate(splits):
        if len(pairs.literal_templates) == 2 and not pairs.is_table:
            pair_literals = pairs.canonical_literals((0, 1))
            sides = (pair for pair in permutations(range(3), 2) if split.canonical_literals(pair) == pair_literals)
            parents += [(index, pair) for pair in sides]
    if not parents:
        first, second, _ = (render_expression(side.over[0]) for side in split.literal_templates)
        message = f"no two literals of the triples '{split.template.name}' are declared as candidate pairs"
        hint = (
            f"triples grow from chosen pairs: declare candidates over two of the literals, such as {first} and {second}"
        )
        raise UsageError(Diagnostic("E393", message, split.template.span, hint))
    return parents
