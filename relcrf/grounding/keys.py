"""The keys of `per` as whole numbers, and what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding import sql
from relcrf.grounding.group_builder import DenseKeyMap
from relcrf.grounding.lower import KeyColumn, LoweredTemplate
from relcrf.grounding.plan import Column, IsNotNull, Lookup, Plan
from relcrf.grounding.variables import BOOL_VALUES
from relcrf.kernels.distinct import MAX_COMBINED_KEYS
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

    def as_plain(self) -> dict[str, Any]:
        """Return the keys as JSON has them."""
        return {"domain": self.domain, "values": self.values}


@dataclass(frozen=True)
class CodedKeys:
    """The keys of one template as codes.

    Args:
        lowered: the template, all outputs for its keys being codes.
        texts: for each key, what its codes stand for.
        has_fixed_keys: the only key is a domain's value, a thing or a truth value: every code is a key, whether a binding has it
            or not. Of other keys only those that come are.
    """

    lowered: LoweredTemplate
    texts: tuple[tuple[str, ...], ...]
    has_fixed_keys: bool

    @property
    def n_combinations(self) -> int:
        """More than any code of `combined`."""
        return int(np.prod([float(len(text)) for text in self.texts]))

    def check_combination_count(self) -> None:
        """
        Raises:
            UsageError: where a number cannot tell all combinations of keys apart.
        """
        if self.n_combinations >= MAX_COMBINED_KEYS:
            template = self.lowered.template
            message = f"'per' of '{template.name}' has too many keys at once: {self.n_combinations:.1e} combinations cannot be numbered"
            hint = "leave a name out of 'per', or put two into one column of the data"
            notes = (f"the keys have {' x '.join(f'{len(text):,}' for text in self.texts)} values",)
            raise UsageError(Diagnostic("E420", message, template.span, hint, notes))

    def combine_codes(self, codes: Sequence[np.ndarray]) -> np.ndarray | None:
        """One number for each combination of codes, shape (n,); None without keys."""
        if not codes:
            return None
        out = codes[0]
        for code, text in zip(codes[1:], self.texts[1:], strict=True):
            out = out.astype(np.int64) * len(text) + code
        return out

    def decode_combined(self, combined: np.ndarray) -> list[tuple[str, ...]]:
        """The texts of combined codes."""
        columns: list[list[str]] = []
        left = combined.astype(np.int64)
        for text in reversed(self.texts):
            left, code = np.divmod(left, max(len(text), 1))
            columns.insert(0, [text[c] for c in code])
        return list(zip(*columns, strict=True))


def fixed_key_values(bound: BoundModel, key: KeyColumn) -> tuple[str, ...] | None:
    """The texts of a key's codes, where codes are known before the data is read."""
    if isinstance(key.value_type, DomainType):
        return bound.domains[key.value_type.domain]
    if isinstance(key.value_type, EntityType):
        return tuple(str(k) for k in bound.keys(key.value_type.entity))
    if isinstance(key.value_type, Bool):
        return BOOL_VALUES
    return None


def encode_keys(bound: BoundModel, lowered: LoweredTemplate) -> CodedKeys:
    """A template whose keys are all codes; plain values get a dictionary of their own, a table of `code` and `value`."""
    texts, outputs = [], list(lowered.plan.outputs)
    for key in lowered.keys:
        known = fixed_key_values(bound, key)
        if known is None:
            place = next(k for k, (name, _, _) in enumerate(outputs) if name == key.output)
            column = outputs[place][1]
            assert isinstance(column, Column), "a key is a name or an attribute"
            table = f"key.{lowered.template.name}.{key.output}"
            known = _create_code_table(bound, lowered.plan, column, table)
            outputs[place] = (key.output, Lookup(table, "code", "value", column), "integer")
        texts.append(known)
    plan = replace(lowered.plan, outputs=tuple(outputs))
    is_known = len(lowered.keys) == 1 and fixed_key_values(bound, lowered.keys[0]) is not None
    return CodedKeys(replace(lowered, plan=plan), tuple(texts), is_known)


def _create_code_table(bound: BoundModel, plan: Plan, column: Column, table: str) -> tuple[str, ...]:
    """A table of the values of a column, each with a code in the order of the values' texts."""
    scan = next(s for s in plan.scans if s.alias == column.alias)
    values = Plan((scan,), filters=(IsNotNull(column),), bindings=(("value", column),))
    bound.connection.execute(sql.create(values, table))
    coded = "(row_number() OVER (ORDER BY CAST(a0 AS VARCHAR)) - 1)::INTEGER AS code, a0 AS value"
    bound.connection.execute(f"CREATE OR REPLACE TABLE {quoted(table)} AS SELECT {coded} FROM {quoted(table)}")
    found = bound.connection.execute(f"SELECT CAST(value AS VARCHAR) FROM {quoted(table)} ORDER BY code").fetchall()
    return tuple(str(text) for (text,) in found)


def build_key_dictionary(
    coded_keys: Sequence[CodedKeys], seen_keys: Sequence[np.ndarray]
) -> tuple[KeyDictionary | None, list[DenseKeyMap | None]]:
    """One dictionary for the templates that share weights, and how the keys of each become dense; None: they are.

    Args:
        seen_keys: for each template the distinct combined keys of its bindings, ascending; not read where all are known.
    """
    first = coded_keys[0]
    if not first.texts:
        return None, [None] * len(coded_keys)
    if first.has_fixed_keys and all(m.has_fixed_keys and m.texts == first.texts for m in coded_keys):
        kind = first.lowered.keys[0].value_type
        domain = kind.domain if isinstance(kind, DomainType) else None
        return KeyDictionary(domain, tuple((text,) for text in first.texts[0])), [None] * len(coded_keys)
    place: dict[tuple[str, ...], int] = {}
    places: list[DenseKeyMap | None] = []
    for member, keys in zip(coded_keys, seen_keys, strict=True):
        # A template whose keys are known brings all of them, seen or not.
        keys = np.arange(len(member.texts[0])) if member.has_fixed_keys else keys
        dense = np.array([place.setdefault(text, len(place)) for text in member.decode_combined(keys)], dtype=np.int32)
        places.append(DenseKeyMap(keys, dense))
    return KeyDictionary(None, tuple(place)), places


def count_keys(bound: BoundModel, lowered: Sequence[LoweredTemplate]) -> int:
    """How many keys the weights have that some templates share."""
    if not lowered[0].keys:
        return 1
    known = [fixed_key_values(bound, key) for key in lowered[0].keys]
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
