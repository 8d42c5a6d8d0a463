"""The keys of `per`: dense codes, and what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.data.bound import Bound
from relcrf.grounding import sql
from relcrf.grounding.lower import KeyColumn, LoweredTemplate
from relcrf.grounding.variables import BOOL_VALUES
from relcrf.model.types import Bool, DomainType, EntityType


@dataclass(frozen=True)
class KeyDictionary:
    """What the keys of a template's `per` stand for.

    Args:
        domain: where the only key is a value of a domain, that domain; its codes are the keys.
        values: texts of the keys, one tuple for each; as many columns as `per` has keys.
    """

    domain: str | None
    values: tuple[tuple[str, ...], ...]


def known_values(bound: Bound, key: KeyColumn) -> tuple[str, ...] | None:
    """The texts of a key's codes, where codes are known before the data is read."""
    if isinstance(key.kind, DomainType):
        return bound.domains[key.kind.domain]
    if isinstance(key.kind, EntityType):
        return tuple(str(k) for k in bound.keys(key.kind.entity))
    if isinstance(key.kind, Bool):
        return BOOL_VALUES
    return None


def count_keys(bound: Bound, lowered: Sequence[LoweredTemplate]) -> int:
    """How many keys the weights have that some templates share."""
    if not lowered[0].keys:
        return 1
    known = [known_values(bound, key) for key in lowered[0].keys]
    if len(known) == 1 and known[0] is not None:
        return len(known[0])
    distinct: set[tuple[object, ...]] = set()
    for one in lowered:
        names = [key.output for key in one.keys]
        if len(lowered) == 1:
            ((n,),) = bound.connection.execute(sql.count_distinct(one.plan, names)).fetchall()
            return int(n)
        distinct.update(bound.connection.execute(sql.distinct(one.plan, names)).fetchall())
    return len(distinct)


def encode_keys(
    bound: Bound, keys: tuple[KeyColumn, ...], columns: list[np.ndarray]
) -> tuple[np.ndarray | None, KeyDictionary | None]:
    """Dense codes of the key combinations, shape (n_bindings,), and what they stand for."""
    if not keys:
        return None, None
    codes, texts = [], []
    for key, column in zip(keys, columns, strict=True):
        known = known_values(bound, key)
        if known is None:
            distinct, column = np.unique(column.astype(str), return_inverse=True)
            known = tuple(distinct.tolist())
        codes.append(column)
        texts.append(known)
    if len(keys) == 1:
        kind = keys[0].kind
        domain = kind.domain if isinstance(kind, DomainType) else None
        return codes[0].astype(np.int32), KeyDictionary(domain, tuple((t,) for t in texts[0]))
    combined = codes[0].astype(np.int64)
    for code, text in zip(codes[1:], texts[1:], strict=True):
        # Numbered anew after each key, so that the product of the sizes cannot overflow.
        combined = np.unique(combined, return_inverse=True)[1] * len(text) + code
    _, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
    spelt = [[text[c] for c in code[first]] for code, text in zip(codes, texts, strict=True)]
    return inverse.astype(np.int32), KeyDictionary(None, tuple(zip(*spelt, strict=True)))


def unite(
    coded: Sequence[tuple[np.ndarray | None, KeyDictionary | None]],
) -> tuple[list[np.ndarray | None], KeyDictionary | None]:
    """The keys of several templates that share weights, in one dictionary."""
    first = coded[0][1]
    if first is None or all(keys == first for _, keys in coded):
        return [key for key, _ in coded], first
    place: dict[tuple[str, ...], int] = {}
    out: list[np.ndarray | None] = []
    for key, keys in coded:
        assert key is not None and keys is not None
        moved = np.array([place.setdefault(value, len(place)) for value in keys.values], dtype=np.int32)
        out.append(moved[key] if len(key) else key)
    return out, KeyDictionary(None, tuple(place))
