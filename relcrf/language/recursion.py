"""Dependencies of derived relations, and validation of recursive relations.

The definition of a recursive relation must be monotone, so that a least fixed point exists. The relation may therefore
occur below `and`, `or` and `exists`, but not below `not`, `=>`, `<=>`, a comparison or another aggregate.
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
    """Return the relations that `start` uses directly or indirectly, each with its predecessor on a shortest path."""
    predecessors: dict[str, str] = {}
    queue = deque([start])
    while queue:
        current = queue.popleft()
        for name in sorted(uses.get(current, ())):
            if name not in predecessors:
                predecessors[name] = current
                queue.append(name)
    return predecessors


def find_cycle(start: str, uses: Mapping[str, set[str]]) -> list[str]:
    """Return a shortest dependency cycle as a path from a relation to itself; empty if there is none."""
    predecessors = _find_dependencies(start, uses)
    if start not in predecessors:
        return []
    path = [start, predecessors[start]]
    while path[-1] != start:
        path.append(predecessors[path[-1]])
    return path[::-1]


def dependency_layers(spec: ModelSpec) -> list[list[DerivedRelation]]:
    """Return the derived relations as layers in topological order; the relations of a cycle form one layer."""
    derived = {d.name: d for d in spec.derived_relations}
    uses = {name: _used_relations(d) & set(derived) for name, d in derived.items()}
    dependencies = {name: {name, *_find_dependencies(name, uses)} for name in derived}
    component = {
        name: tuple(sorted(other for other in dependencies[name] if name in dependencies[other])) for name in derived
    }
    sorter: TopologicalSorter[tuple[str, ...]] = TopologicalSorter()
    for name in derived:
        sorter.add(
            component[name], *(component[other] for other in sorted(uses[name]) if component[other] != component[name])
        )
    position = {name: k for k, name in enumerate(derived)}  # a layer keeps the order of the declarations
    return [
        [derived[name] for name in sorted(names, key=lambda name: position[name])] for names in sorter.static_order()
    ]


def _used_relations(derived: DerivedRelation) -> set[str]:
    if isinstance(derived.definition, NearestNeighbours):
        return set()
    return {node.relation for node in walk(derived.definition) if isinstance(node, Atom)}


def is_recursive(layer: list[DerivedRelation]) -> bool:
    """Return True if the relations of a layer depend on themselves."""
    return len(layer) > 1 or layer[0].name in _used_relations(layer[0])


def check_recursion(spec: ModelSpec) -> Iterator[Diagnostic]:
    """Report recursive relations that depend on their own negation or have no base case."""
    for layer in dependency_layers(spec):
        if not is_recursive(layer):
            continue
        names = {d.name for d in layer}
        is_reported = False
        for derived in layer:
            assert not isinstance(derived.definition, NearestNeighbours)
            for atom in _negative_atoms(derived.definition, is_positive=True):
                if atom.relation in names and not is_reported:
                    is_reported = True
                    uses = {d.name: _used_relations(d) & names for d in layer}
                    notes = (" -> ".join(find_cycle(derived.name, uses)),) if len(layer) > 1 else ()
                    message = f"'{derived.name}' uses '{atom.relation}' inside a negation, comparison or aggregate"
                    hint = "a recursive relation may use itself only inside 'and', 'or' and 'exists'"
                    yield Diagnostic("E131", message, atom.span, hint, notes)
        if not is_reported and not any(
            _has_base_case(d.definition, names) for d in layer if not isinstance(d.definition, NearestNeighbours)
        ):
            message = f"'{layer[0].name}' is derived only from itself and is always empty"
            hint = f"add a base case: where OTHER(a, b) or ({layer[0].name}(a, m) and OTHER(m, b))"
            yield Diagnostic("W205", message, layer[0].span, hint)


def _negative_atoms(node: Expression, *, is_positive: bool) -> Iterator[Atom]:
    """Yield the atoms below an operator other than the monotone operators `and`, `or` and `exists`."""
    if isinstance(node, Atom) and not is_positive:
        yield node
    is_monotone = isinstance(node, Connective) and node.operator in ("and", "or")
    is_monotone = is_monotone or (isinstance(node, Aggregate) and node.function == "exists")
    for child in children(node):
        yield from _negative_atoms(child, is_positive=is_positive and is_monotone)


def _has_base_case(node: Expression, names: set[str]) -> bool:
    """Return True if a condition can be true while all relations of the cycle are empty."""
    if isinstance(node, Atom):
        return node.relation not in names
    if isinstance(node, Connective) and node.operator in ("and", "or"):
        operands = (_has_base_case(node.left, names), _has_base_case(node.right, names))
        return all(operands) if node.operator == "and" else any(operands)
    if isinstance(node, Aggregate) and node.function == "exists":
        return _has_base_case(node.where, names)
    return True
