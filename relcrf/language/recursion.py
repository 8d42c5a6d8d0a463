"""Derived relations that depend on themselves: where that is sound, and where it is not.

A relation may be derived from itself where that only adds tuples, so that the smallest relation that fulfils all
conditions exists: under `and`, `or` and `exists`, but not under `not`, `=>`, `<=>`, a comparison or a figure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from relcrf.errors import Diagnostic
from relcrf.model.expressions import Aggregate, Atom, Connective, Expression
from relcrf.model.nodes import children, walk
from relcrf.model.spec import Derived, ModelSpec, Nearest


def cycle_through(start: str, uses: Mapping[str, set[str]]) -> list[str]:
    """A shortest way from a relation back to itself, along what each is derived from; empty where there is none."""
    came_from: dict[str, str] = {}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        for name in sorted(uses.get(at, ())):
            if name == start:
                way = [name, at]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if name not in came_from:
                came_from[name] = at
                queue.append(name)
    return []


def layers(spec: ModelSpec) -> list[list[Derived]]:
    """The derived relations in an order in which each comes after those that it uses; those of a cycle stand together.

    Source: Tarjan, Depth-first search and linear graph algorithms (1972), without recursion.
    """
    derived = {d.name: d for d in spec.derived}
    uses = {name: sorted(_atoms(d) & set(derived)) for name, d in derived.items()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    is_open: set[str] = set()
    found: list[list[Derived]] = []
    for root in derived:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        open_.append(root)
        is_open.add(root)
        work = [(root, iter(uses[root]))]
        while work:
            at, rest = work[-1]
            below = next(rest, None)
            if below is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == index[at]:
                    cut = len(open_) - 1 - open_[::-1].index(at)
                    found.append([derived[name] for name in open_[cut:]])
                    is_open.difference_update(open_[cut:])
                    del open_[cut:]
            elif below not in index:
                index[below] = low[below] = len(index)
                open_.append(below)
                is_open.add(below)
                work.append((below, iter(uses[below])))
            elif below in is_open:
                low[at] = min(low[at], index[below])
    return found


def _atoms(derived: Derived) -> set[str]:
    if isinstance(derived.definition, Nearest):
        return set()
    return {node.relation for node in walk(derived.definition) if isinstance(node, Atom)}


def is_recursive(layer: list[Derived]) -> bool:
    """Whether the relations of a layer depend on themselves."""
    return len(layer) > 1 or layer[0].name in _atoms(layer[0])


def unsound(spec: ModelSpec) -> Iterator[Diagnostic]:
    """Relations that are derived from their own absence, and those that never begin."""
    for layer in layers(spec):
        if not is_recursive(layer):
            continue
        names = {d.name for d in layer}
        broken = False
        for derived in layer:
            assert not isinstance(derived.definition, Nearest)
            for atom in _not_positive(derived.definition, is_positive=True):
                if atom.relation in names and not broken:
                    broken = True
                    uses = {d.name: _atoms(d) & names for d in layer}
                    notes = (" -> ".join(cycle_through(derived.name, uses)),) if len(layer) > 1 else ()
                    message = f"'{derived.name}' is derived from where '{atom.relation}' does not hold"
                    hint = "a relation may use itself under 'and', 'or' and 'exists' only"
                    yield Diagnostic("E131", message, atom.span, hint, notes)
        if not broken and not any(_begins(d.definition, names) for d in layer if not isinstance(d.definition, Nearest)):
            message = f"'{layer[0].name}' is derived from itself alone, and so is always empty"
            hint = f"say where it begins: where OTHER(a, b) or ({layer[0].name}(a, m) and OTHER(m, b))"
            yield Diagnostic("W205", message, layer[0].span, hint)


def _not_positive(node: Expression, *, is_positive: bool) -> Iterator[Atom]:
    """The atoms that stand where holding can make the whole not hold."""
    if isinstance(node, Atom) and not is_positive:
        yield node
    keeps = isinstance(node, Connective) and node.operator in ("and", "or")
    keeps = keeps or (isinstance(node, Aggregate) and node.function == "exists")
    for child in children(node):
        yield from _not_positive(child, is_positive=is_positive and keeps)


def _begins(node: Expression, names: set[str]) -> bool:
    """Whether a condition can hold while all relations of the cycle are empty."""
    if isinstance(node, Atom):
        return node.relation not in names
    if isinstance(node, Connective) and node.operator in ("and", "or"):
        sides = (_begins(node.left, names), _begins(node.right, names))
        return all(sides) if node.operator == "and" else any(sides)
    if isinstance(node, Aggregate) and node.function == "exists":
        return _begins(node.where, names)
    return True
