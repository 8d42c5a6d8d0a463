"""Encoding of keys as integers, and the dictionary that maps these integers to texts.

A *key* is a combination of values of the items in a template's `per`; each key has separate weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relcrf.columns.texts import MAX_HELD_TEXTS, TextRows
from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.data.names import mark_capitals
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding import sql
from relcrf.grounding.group_builder import DenseKeyMap
from relcrf.grounding.key_terms import KeyColumn
from relcrf.grounding.lower import LoweredTemplate
from relcrf.grounding.plan import Lookup, Plan, Term, find_outer_columns
from relcrf.kernels.distinct import MAX_COMBINED_KEYS
from relcrf.model.types import BOOL_VALUES, Bool, DomainType, EntityType

MAX_EXACT_INTEGER = 2**53
"""Integers that expressions compute are doubles, which are exact up to this absolute value."""


@dataclass(frozen=True)
class KeyDictionary:
    """A dictionary of the keys of a weight block.

    Args:
        domain: the domain if the only item of `per` is a domain value (the codes are then the keys), otherwise None.
        values: for each key, one text for each item of `per`.
    """

    domain: str | None
    values: Sequence[tuple[str, ...]]

    def as_dict(self) -> dict[str, Any]:
        """Return the keys as plain data for JSON."""
        return {"domain": self.domain, "values": tuple(self.values)}


@dataclass(frozen=True)
class CodedKeys:
    """The keys of one template as integer codes.

    Args:
        lowered: the template, with a plan that returns the items of `per` as codes.
        texts: for each item of `per`, the text of each code.
        has_fixed_keys: True if the only item of `per` is a domain value, an entity, a truth value or a bin. Every code is then a
            key, even if no binding has it; otherwise, only the combinations of codes that occur are keys.
    """

    lowered: LoweredTemplate
    texts: tuple[Sequence[str], ...]
    has_fixed_keys: bool

    @property
    def n_combinations(self) -> int:
        """The number of combinations of codes, an exclusive upper bound of the results of `combine_codes`."""
        return math.prod(len(text) for text in self.texts)

    def check_combination_count(self) -> None:
        """Raise UsageError unless the number of combinations is below `MAX_COMBINED_KEYS`."""
        if self.n_combinations >= MAX_COMBINED_KEYS:
            template = self.lowered.template
            message = f"the keys in 'per' of '{template.name}' have too many combinations: {self.n_combinations:.1e}"
            hint = "remove a name from 'per', or combine two names into one column of the data"
            notes = (f"the keys have {' x '.join(f'{len(text):,}' for text in self.texts)} values",)
            raise UsageError(Diagnostic("E420", message, template.span, hint, notes))

    def combine_codes(self, codes: Sequence[np.ndarray]) -> np.ndarray | None:
        """Combine the codes of all items of `per` into one integer per binding, shape (n,); return None without items."""
        if not codes:
            return None
        out = codes[0]
        for code, text in zip(codes[1:], self.texts[1:], strict=True):
            out = out.astype(np.int64) * len(text) + code
        return out

    def decode_combined(self, combined: np.ndarray) -> TextRows:
        """Return, for each combined code, the texts of the items of `per`."""
        codes: list[np.ndarray] = []
        remainder = combined.astype(np.int64)
        for text in reversed(self.texts):
            remainder, code = np.divmod(remainder, max(len(text), 1))
            codes.insert(0, code.astype(np.int32))
        return TextRows(self.texts, codes)


def fixed_key_values(bound: BoundModel, key: KeyColumn) -> Sequence[str] | None:
    """Return the texts of an item's codes if the codes are fixed (domain, entity, truth value or bin), else None."""
    if key.labels:
        return key.labels
    if isinstance(key.value_type, DomainType):
        return bound.domains[key.value_type.domain]
    if isinstance(key.value_type, EntityType):
        return bound.key_texts(key.value_type.entity)
    if isinstance(key.value_type, Bool):
        return BOOL_VALUES
    return None


def encode_keys(bound: BoundModel, lowered: LoweredTemplate) -> CodedKeys:
    """Replace the items of `per` in a plan by codes; for an item without fixed values, create a table of the codes."""
    texts, outputs, has_fixed_values = [], list(lowered.plan.outputs), True
    for key in lowered.keys:
        key_texts = fixed_key_values(bound, key)
        if key_texts is None:
            has_fixed_values = False
            index = next(k for k, (name, _, _) in enumerate(outputs) if name == key.output)
            _, term, kind = outputs[index]
            table = f"key.{mark_capitals(lowered.template.name)}.{key.output}"
            key_texts = _create_code_table(bound, lowered.plan, term, kind, table)
            outputs[index] = (key.output, Lookup(table, "code", "value", term), "integer")
        texts.append(key_texts)
    if not has_fixed_values:
        lowered = replace(lowered, plan=replace(lowered.plan, outputs=tuple(outputs)))
    return CodedKeys(lowered, tuple(texts), len(lowered.keys) == 1 and has_fixed_values)


def _create_code_table(bound: BoundModel, plan: Plan, term: Term, kind: str, table: str) -> Sequence[str]:
    """Create a table with a code for each value of a term, in ascending order of the values; return their texts."""
    aliases = {column.alias for column in find_outer_columns(term)}
    if len(aliases) == 1:  # the values depend on a single table, whose rows are fewer than the bindings
        plan = Plan(tuple(scan for scan in plan.scans if scan.alias in aliases))
    bound.connection.execute(sql.create_codes(plan, term, table))
    text = "CAST(value AS VARCHAR)"
    if kind == "double":  # integers that a function computes
        text = f"CASE WHEN abs(value) < {MAX_EXACT_INTEGER} THEN CAST(CAST(value AS BIGINT) AS VARCHAR) ELSE {text} END"
    return bound.read_texts(f"SELECT {text} FROM {quoted(table)} ORDER BY code")


def build_key_dictionary(
    coded_keys: Sequence[CodedKeys], seen_keys: Sequence[np.ndarray]
) -> tuple[KeyDictionary | None, list[DenseKeyMap | None]]:
    """Build the key dictionary of templates that share weights, and for each template the map from codes to key indices.

    Args:
        seen_keys: for each template, the distinct combined codes in the bindings, ascending; unused for fixed keys.

    Returns:
        The dictionary (None without keys) and a list with the map of each template (None if codes are key indices).
    """
    first = coded_keys[0]
    if not first.texts:
        return None, [None] * len(coded_keys)
    if first.has_fixed_keys and all(m.has_fixed_keys and m.texts == first.texts for m in coded_keys):
        kind = first.lowered.keys[0].value_type
        domain = kind.domain if isinstance(kind, DomainType) else None
        return KeyDictionary(domain, _hold(TextRows(first.texts))), [None] * len(coded_keys)
    if len(coded_keys) == 1:  # different codes have different texts
        keys = seen_keys[0]
        dense_map = DenseKeyMap(keys, np.arange(len(keys), dtype=np.int32))
        return KeyDictionary(None, _hold(first.decode_combined(keys))), [dense_map]
    dense_of_text: dict[tuple[str, ...], int] = {}
    key_maps: list[DenseKeyMap | None] = []
    for member, keys in zip(coded_keys, seen_keys, strict=True):
        # A template with fixed keys contributes all of these keys, including keys without a binding.
        keys = np.arange(len(member.texts[0])) if member.has_fixed_keys else keys
        dense = np.array(
            [dense_of_text.setdefault(text, len(dense_of_text)) for text in member.decode_combined(keys)],
            dtype=np.int32,
        )
        key_maps.append(DenseKeyMap(keys, dense))
    return KeyDictionary(None, tuple(dense_of_text)), key_maps


def _hold(rows: TextRows) -> Sequence[tuple[str, ...]]:
    """Return rows as a tuple unless there are many."""
    return tuple(rows) if len(rows) <= MAX_HELD_TEXTS else rows


def count_keys(bound: BoundModel, lowered: Sequence[LoweredTemplate]) -> int:
    """Return the number of keys of the weight block that some templates share."""
    if not lowered[0].keys:
        return 1
    key_values = [fixed_key_values(bound, key) for key in lowered[0].keys]
    if len(key_values) == 1 and key_values[0] is not None:
        return len(key_values[0])
    keys_seen: set[tuple[object, ...]] = set()
    for template in lowered:
        names = [key.output for key in template.keys]
        if len(lowered) == 1:
            ((n,),) = bound.connection.execute(sql.count_distinct(template.plan, names)).fetchall()
            return int(n)
        keys_seen.update(bound.connection.execute(sql.distinct(template.plan, names)).fetchall())
    return len(keys_seen)
