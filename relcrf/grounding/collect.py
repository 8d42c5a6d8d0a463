"""Collection of a template's bindings: an engine runs the plan, and the resulting rows are sorted bucket by bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from relcrf.columns.bucket_sort import BucketSort, DoubleField, Field, FloatField, IntegerField, chunk_sorted_batches
from relcrf.columns.storage import Storage, read_rows
from relcrf.data.bound_model import BoundModel
from relcrf.errors import DataError, Diagnostic
from relcrf.grounding.engines.base import AbstractEngine
from relcrf.grounding.group_builder import SortedBindings
from relcrf.grounding.keys import CodedKeys
from relcrf.grounding.lower import LoweredTemplate
from relcrf.grounding.plan import Column, Plan
from relcrf.grounding.variables import domain_values
from relcrf.model.types import Bool

MAX_REPEATED_ROWS = 300_000_000
"""Maximum number of rows from which duplicates are removed by sorting; for more rows, the engine runs DISTINCT."""

CHUNK_ROWS = 1 << 18
"""Number of rows of a column that are read at a time."""

MAX_FEATURE = 1e300
"""Maximum magnitude of a feature, so that its product with a weight of ordinary size is finite."""


def split_by_evidence(
    rows: SortedBindings, evidence: Sequence[np.ndarray]
) -> Iterator[tuple[tuple[int, ...], SortedBindings]]:
    """Yield each combination of evidence values that occurs, in lexicographic order, with the bindings that have it."""
    if not evidence:
        yield (), rows
        return
    cases, inverse = np.unique(np.column_stack(evidence), axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    for k, case in enumerate(cases):
        yield tuple(int(v) for v in case), rows.take(np.flatnonzero(inverse == k))


def collect_bindings(
    engine: AbstractEngine,
    bound: BoundModel,
    coded_keys: CodedKeys,
    variable_ranges: Sequence[tuple[int, int]],
    max_rows: int,
    storage: Storage,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> Iterator[tuple[SortedBindings, list[np.ndarray]]]:
    """Yield all distinct bindings of a template in sorted batches, in an order that does not depend on the engine.

    Each batch is a pair: the bindings, and a list with one column for each subexpression of the formula that depends on
    evidence. A column contains truth values or value codes, -1 if missing. If the template was lowered with a gate, the
    bindings have the same order as without the gate, and the features are the features of the gate.

    Args:
        variable_ranges: for each slot of the scope, the first variable and the number of variables.
        max_rows: upper bound of the number of rows that the plan returns, including duplicates.
        on_progress: function that receives the number of rows read so far.

    Raises:
        DataError: if a feature is not finite.
    """
    lowered, plan = coded_keys.lowered, coded_keys.lowered.plan
    hidden_binders = _hidden_binders(lowered) if plan.is_distinct else []
    if plan.is_distinct:
        extra = tuple((f"b{k}", column, "integer") for k, (_, column) in enumerate(hidden_binders))
        plan = replace(plan, outputs=(*plan.outputs, *extra), is_distinct=max_rows > MAX_REPEATED_ROWS)
    fields = _make_fields(
        bound, coded_keys, [count for _, count in variable_ranges], [type_name for type_name, _ in hidden_binders]
    )
    bag = _read_bag_columns(bound, lowered.plan)
    if bag is not None:
        buckets = chunk_sorted_batches(_iter_chunks(bag), fields)
    else:
        sorter = BucketSort(fields, max_rows, storage, is_unique=lowered.plan.is_distinct)
        for batch in engine.rows(plan):
            sorter.add(batch)
            on_progress(sorter.n_added)
        buckets = sorter.buckets()
    for bucket in buckets:
        scope = [
            bucket[name] + np.int32(start) if start else bucket[name]
            for name, (start, _) in zip(lowered.variables, variable_ranges, strict=True)
        ]
        owner, gate = f"template '{lowered.template.name}'", lowered.gate
        names, outputs = lowered.feature_names, lowered.features
        if gate is not None:
            owner, names, outputs = f"the gate of '{lowered.template.name}'", gate.feature_names, gate.outputs
        features = [bucket[name] for name in outputs]
        _check_finite(names, features, owner)
        key = coded_keys.combine_codes([bucket[k.output] for k in lowered.keys])
        yield SortedBindings(scope, key, features), [bucket[name] for _, name in lowered.evidence]


def is_bag_scan(plan: Plan) -> bool:
    """Return True if a plan only reads the table (entity, value, count) of one bag; the rows are already sorted."""
    if len(plan.scans) != 1 or plan.filters or plan.equalities or plan.is_distinct:
        return False
    names = [term.name if isinstance(term, Column) else "" for _, term, _ in plan.outputs]
    return names[:2] == ["vid", "code"] and set(names) <= {"vid", "code", "count"}


def _read_bag_columns(bound: BoundModel, plan: Plan) -> dict[str, np.ndarray] | None:
    """Return the output columns of a plan that only reads one bag outside DuckDB; None for other plans."""
    if not is_bag_scan(plan) or plan.scans[0].table not in bound.external_tables:
        return None
    columns = bound.external_tables[plan.scans[0].table]
    return {output: columns[term.name] for output, term, _ in plan.outputs if isinstance(term, Column)}


def _iter_chunks(columns: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    rows = len(next(iter(columns.values())))
    for start in range(0, rows, CHUNK_ROWS):
        yield {name: read_rows(column, start, start + CHUNK_ROWS) for name, column in columns.items()}


def _hidden_binders(lowered: LoweredTemplate) -> list[tuple[str, Column]]:
    """Return the type names and columns of the binders that no output contains; outputs of the gate are disregarded."""
    gate_outputs = () if lowered.gate is None else lowered.gate.outputs
    output_terms = {term for name, term, _ in lowered.plan.outputs if name not in gate_outputs}
    type_names = {p.name: p.type_name for p in lowered.template.parameters}
    return [(type_names[name], column) for name, column in lowered.plan.bindings if column not in output_terms]


def _make_fields(bound: BoundModel, coded_keys: CodedKeys, counts: Sequence[int], hidden: Sequence[str]) -> list[Field]:
    lowered = coded_keys.lowered
    fields: list[Field] = [IntegerField(name, 0, count) for name, count in zip(lowered.variables, counts, strict=True)]
    fields += [
        IntegerField(key.output, 0, len(texts)) for key, texts in zip(lowered.keys, coded_keys.texts, strict=True)
    ]
    for subexpression, name in lowered.evidence:
        kind = lowered.scope.type_of(subexpression)
        fields.append(IntegerField(name, -1, 2 if isinstance(kind, Bool) else len(domain_values(bound, kind))))
    fields += [FloatField(name) if lowered.keys else DoubleField(name) for name in lowered.features]
    fields += [IntegerField(f"b{k}", 0, bound.size(type_name)) for k, type_name in enumerate(hidden)]
    # The gate's fields are last, so that they do not change the order of the factors.
    if lowered.gate is not None and lowered.gate.bag_table:
        size = bound.sizes[lowered.gate.owner]
        fields += [IntegerField(name, 0, size) for name in lowered.gate.outputs]
    elif lowered.gate is not None:
        fields += [DoubleField(name) for name in lowered.gate.outputs]
    return fields


def overflow_error(name: str, owner: str) -> DataError:
    """Return the error for a feature above `MAX_FEATURE` or with a NaN (E222).

    Args:
        owner: The template or the gate, for the message.
    """
    message = f"the feature '{name}' of {owner} is infinite or above {MAX_FEATURE:g} for some bindings"
    hint = "bound the expression, for instance with log1p or least; 'relcrf check' shows extreme values in the tables"
    return DataError(Diagnostic("E222", message, hint=hint))


def _check_finite(names: Sequence[str], features: Sequence[np.ndarray], owner: str) -> None:
    for name, column in zip(names, features, strict=True):
        if not max(float(column.max(initial=0.0)), -float(column.min(initial=0.0))) <= MAX_FEATURE:
            raise overflow_error(name, owner)
