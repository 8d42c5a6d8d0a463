"""Derived relations that depend on themselves: where that is sound, and where it is not.

A relation may be derived from itself where that only adds tuples, so that the smallest relation that fulfils all
conditions exists: under `and`, `or` and `exists`, but not under `not`, `=>`, `<=>`, a comparison or a figure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter

from relcrf.errors import Diagnostic
from relcrf.model.expressions import Aggregate, Atom, Connective, Expression
from relcrf.model.nodes import children, walk
from relcrf.model.spec import DerivedRelation, ModelSpec, NearestNeighbours


def _find_dependencies(start: str, uses: Mapping[str, set[str]]) -> dict[str, str]:
    """Return what a relation is derived from, directly or not; each with the one before it on a shortest path."""
    came_from: dict[str, str] = {}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        for name in sorted(uses.get(at, ())):
            if name not in came_from:
                came_from[name] = at
                queue.append(name)
    return came_from


def find_cycle(start: str, uses: Mapping[str, set[str]]) -> list[str]:
    """Return a shortest path from a relation back to itself, along what each is derived from; empty where there is none."""
    came_from = _find_dependencies(start, uses)
    if start not in came_from:
        return []
    path = [start, came_from[start]]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]


def dependency_layers(spec: ModelSpec) -> list[list[DerivedRelation]]:
    """Return the derived relations in an order in which each comes after those that it uses, those of a cycle together."""
    derived = {d.name: d for d in spec.derived_relations}
    uses = {name: _used_relations(d) & set(derived) for name, d in derived.items()}
    below = {name: {name, *_find_dependencies(name, uses)} for name in derived}
    cycle = {name: tuple(sorted(other for other in below[name] if name in below[other])) for name in derived}
    sorter: TopologicalSorter[tuple[str, ...]] = TopologicalSorter()
    for name in derived:
        sorter.add(cycle[name], *(cycle[other] for other in sorted(uses[name]) if cycle[other] != cycle[name]))
    place = {name: k for k, name in enumerate(derived)}  # a cycle begins with its first declaration
    return [[derived[name] for name in sorted(names, key=lambda name: place[name])] for names in sorter.static_order()]


def _used_relations(derived: DerivedRelation) -> set[str]:
    if isinstance(derived.definition, NearestNeighbours):
        return set()
    return {node.relation for node in walk(derived.definition) if isinstance(node, Atom)}


def is_recursive(layer: list[DerivedRelation]) -> bool:
    """Whether the relations of a layer depend on themselves."""
    return len(layer) > 1 or layer[0].name in _used_relations(layer[0])


def check_recursion(spec: ModelSpec) -> Iterator[Diagnostic]:
    """Relations that are derived from their own absence, and those that never begin."""
    for layer in dependency_layers(spec):
        if not is_recursive(layer):
            continue
        names = {d.name for d in layer}
        broken = False
        for derived in layer:
            assert not isinstance(derived.definition, NearestNeighbours)
            for atom in _negative_atoms(derived.definition, is_positive=True):
                if atom.relation in names and not broken:
                    broken = True
                    uses = {d.name: _used_relations(d) & names for d in layer}
                    notes = (" -> ".join(find_cycle(derived.name, uses)),) if len(layer) > 1 else ()
                    message = f"'{derived.name}' is derived from where '{atom.relation}' does not hold"
                    hint = "a relation may use itself under 'and', 'or' and 'exists' only"
                    yield Diagnostic("E131", message, atom.span, hint, notes)
        if not broken and not any(
            _has_base_case(d.definition, names) for d in layer if not isinstance(d.definition, NearestNeighbours)
        ):
            message = f"'{layer[0].name}' is derived from itself alone, and so is always empty"
            hint = f"say where it begins: where OTHER(a, b) or ({layer[0].name}(a, m) and OTHER(m, b))"
            yield Diagnostic("W205", message, layer[0].span, hint)


def _negative_atoms(node: Expression, *, is_positive: bool) -> Iterator[Atom]:
    """The atoms that stand where holding can make the whole not hold."""
    if isinstance(node, Atom) and not is_positive:
        yield node
    keeps = isinstance(node, Connective) and node.operator in ("and", "or")
    keeps = keeps or (isinstance(node, Aggregate) and node.function == "exists")
    for child in children(node):
        yield from _negative_atoms(child, is_positive=is_positive and keeps)


def _has_base_case(node: Expression, names: set[str]) -> bool:
    """Whether a condition can hold while all relations of the cycle are empty."""
    if isinstance(node, Atom):
        return node.relation not in names
    if isinstance(node, Connective) and node.operator in ("and", "or"):
        sides = (_has_base_case(node.left, names), _has_base_case(node.right, names))
        return all(sides) if node.operator == "and" else any(sides)
    if isinstance(node, Aggregate) and node.function == "exists":
        return _has_base_case(node.where, names)
    return True
