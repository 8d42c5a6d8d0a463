"""Traversal of trees of frozen data classes: expressions, declarations and relational plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def _compared_fields(kind: type) -> tuple[str, ...]:
    """Return the names of the fields that comparisons of a data class use; the span is not one of them."""
    return tuple(field.name for field in fields(kind) if field.compare) if is_dataclass(kind) else ()


def _fields_of_node(node: Any) -> tuple[str, ...]:
    kind: type = type(node)
    return _compared_fields(kind)


def children(node: Any) -> Iterator[Any]:
    """Yield the child nodes of a node or a tuple, from left to right; nested tuples are flattened."""
    for part in node if isinstance(node, tuple) else [getattr(node, name) for name in _fields_of_node(node)]:
        if isinstance(part, tuple):
            yield from children(part)
        elif _fields_of_node(part):
            yield part


def walk(node: Any, descend: Callable[[Any], bool] = lambda node: True) -> Iterator[Any]:
    """Yield a node and its descendants in preorder.

    Args:
        descend: function of a node that returns True if the descendants of the node are to be visited.
    """
    yield node
    if descend(node):
        for child in children(node):
            yield from walk(child, descend)


def map_children(node: T, function: Callable[[Any], Any]) -> T:
    """Return a node or tuple with a function applied to each child or item; return any other value unchanged."""
    if isinstance(node, tuple):
        return tuple(map(function, node))  # type: ignore[return-value]
    fields = _fields_of_node(node)
    return replace(node, **{name: function(getattr(node, name)) for name in fields}) if fields else node  # type: ignore[type-var]
