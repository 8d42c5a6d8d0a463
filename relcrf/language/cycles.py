"""Derived relations that depend on themselves."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping


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
