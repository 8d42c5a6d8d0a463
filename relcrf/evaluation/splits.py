"""Which variables are held out: by a column of their things' tables, by a hash of their keys, by links, by time, at random."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from relcrf.data.splits import (
    HIDDEN,
    ColumnSplit,
    DrawnSplit,
    FoldSplit,
    GroupSplit,
    HideSplit,
    Protocol,
    ShareSplit,
    TimeSplit,
    read_split,
)
from relcrf.errors import DataError, Diagnostic, UsageError, listing, suggestion
from relcrf.evaluation.partitions import NOWHERE, balanced, hidden_share, periods, snowball, stratified
from relcrf.graph.adjacency import neighbours
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock, argument_codes
from relcrf.kernels.distinct import distinct, numbered


@dataclass(frozen=True)
class Split:
    """The variables of a ground graph, divided into folds.

    Args:
        name: of what divides them: a column, or `fold`, or `part`.
        fold: of each variable, an index into `values`, shape (n_variables,); -1 of one that is never held out.
        values: the names of the folds: of a column its distinct values, sorted; else `1`, `2`, ... as far as something
            is in them, or `hidden`, `rest`; of times the first and the last of each period.
        ordered: folds are periods one after the other: what is later than the one that is held out is not known yet.
    """

    name: str
    fold: np.ndarray
    values: tuple[str, ...]
    ordered: bool = False

    def held_out(self, values: list[str]) -> np.ndarray:
        """Which variables are in the folds of these values, shape (n_variables,), bool.

        Raises:
            UsageError: for a value that the split does not have.
        """
        for value in values:
            if value not in self.values:
                hint = suggestion(value, self.values) or f"it has {listing(self.values)}"
                raise UsageError(Diagnostic("E340", f"the split by '{self.name}' has no value '{value}'", hint=hint))
        return np.isin(self.fold, [self.values.index(v) for v in values])


@dataclass(frozen=True)
class Round:
    """What one part of a cross-validation holds out.

    Args:
        held: labelled variables that are asked for, shape (n_variables,), bool.
        unused: variables that are not there at all: those of a later time, shape (n_variables,), bool.
    """

    name: str
    held: np.ndarray
    unused: np.ndarray


def rounds_of(grounding: Grounding, plan: Protocol, repeats: int = 1) -> tuple[Round, ...]:
    """Each fold in turn that has labels, of each of so many divisions by consecutive seeds; or what the plan holds out.

    Raises:
        DataError, UsageError: see `split_by`; where there is nothing random to repeat, or too little is labelled.
    """
    found: list[Round] = []
    labelled = (grounding.states >= 0) & ~grounding.latent
    for repeat in range(repeats):
        if repeat:
            plan = _reseeded(plan)
        split = split_by(grounding, plan)
        for value in plan.hold or split.values[int(split.ordered) :]:
            number = split.values.index(value) if value in split.values else NOWHERE
            held = labelled & split.held_out([value])
            unused = (split.fold > number) if split.ordered else np.zeros(len(labelled), dtype=bool)
            if held.any() and not (labelled & ~held & ~unused).any():
                message = f"with '{value}' held out there is no label to learn from"
                raise DataError(Diagnostic("E226", message, hint="take another --split, or label more things"))
            if held.any():
                name = f"{repeat + 1}.{value}" if repeats > 1 else value
                found.append(Round(name, held, unused))
    if not found:
        message = f"{int(labelled.sum())} labels are too few to hold some of them out by this split"
        raise DataError(Diagnostic("E226", message, hint="take another --split, or label more things"))
    return tuple(found)


def _reseeded(plan: Protocol) -> Protocol:
    """The same division with the next seed."""
    if isinstance(plan, ColumnSplit | TimeSplit) or (isinstance(plan, GroupSplit) and plan.folds is None):
        message = f"the split '{plan}' is the same every time, and there is nothing to repeat"
        raise UsageError(Diagnostic("E352", message, hint="leave --repeats out"))
    return replace(plan, seed=plan.seed + 1)


def split_by(grounding: Grounding, plan: Protocol | str) -> Split:
    """The split of a ground graph.

    Args:
        plan: or its text, as `--split` takes it.

    Raises:
        DataError: where the table of an entity with something random about it does not have the column; where a column of
            times holds something else; or where there are fewer components, values or labels than folds.
        UsageError: where the text is no plan, or it names what is not predicted.
    """
    plan = read_split(plan) if isinstance(plan, str) else plan
    match plan:
        case ColumnSplit(column):
            parts = [_column(grounding, block, column) for block in grounding.blocks]
            values, fold = np.unique(np.concatenate(parts).astype(str), return_inverse=True)
            return Split(str(plan), fold, tuple(values.tolist()))
        case FoldSplit(folds, seed):
            # What is predicted about one thing stays together: the owner's name is hashed, and no attribute.
            hashes = [_hashes(grounding, block, f"{seed}\0{block.owner}") for block in grounding.blocks]
            number = (np.concatenate(hashes) % np.uint64(folds)).astype(np.int64)
            names = tuple(str(number + 1) for number in distinct(number).tolist())
            return Split(str(plan), numbered(number), names)
        case HideSplit(share, seed):
            hashes = [_hashes(grounding, block, f"{seed}\0{block.name}") for block in grounding.blocks]
            rest = np.concatenate(hashes) >= np.uint64(share * 2**64)
            return Split(str(plan), rest.astype(np.int64), (HIDDEN, "rest"))
        case ShareSplit(share, of, seed):
            hidden = hidden_share(_strata(grounding, of), share, np.random.default_rng(seed))
            return Split(str(plan), np.where(hidden, 0, 1), (HIDDEN, "rest"))
        case DrawnSplit():
            return _drawn(grounding, plan)
        case GroupSplit(column, folds, seed):
            names, group = _groups(_column_of(grounding, column), grounding.blocks)
            if folds is None:
                return Split(str(plan), group, names)
            labelled = _labelled(grounding)
            _require_parts(folds, len(distinct(group[labelled & (group >= 0)])), f"values of '{column}' with labels")
            return _numbered(plan, balanced(group, labelled, folds, np.random.default_rng(seed)))
        case TimeSplit(column, folds):
            return _by_time(grounding, plan)


def _labelled(grounding: Grounding) -> np.ndarray:
    """What can be held out, shape (n_variables,), bool."""
    return np.asarray((grounding.states >= 0) & ~grounding.latent)


def _drawn(grounding: Grounding, plan: DrawnSplit) -> Split:
    labelled, rng = _labelled(grounding), np.random.default_rng(plan.seed)
    if plan.kind == "component":
        component = grounding.component
        _require_parts(plan.folds, len(distinct(component[labelled])), "connected components with labels")
        return _numbered(plan, balanced(component, labelled, plan.folds, rng))
    _require_parts(plan.folds, int(labelled.sum()), "labels")
    if plan.kind == "snowball":
        return _numbered(plan, snowball(neighbours(grounding.graph), labelled, plan.folds, rng))
    return _numbered(plan, stratified(_strata(grounding, None), plan.folds, rng))


def _numbered(plan: Protocol, fold: np.ndarray) -> Split:
    return Split(str(plan), fold, tuple(str(number + 1) for number in range(int(fold.max(initial=-1)) + 1)))


def _require_parts(folds: int, there: int, what: str) -> None:
    if there < folds:
        message = f"{folds} folds cannot be made of {there} {what}"
        fewer = "give fewer --folds" if there > 1 else "label more things"
        raise DataError(Diagnostic("E352", message, hint=f"{fewer}, or take another --split"))


def _strata(grounding: Grounding, of: str | None) -> np.ndarray:
    """A number for each attribute's state of labelled variables, shape (n_variables,); -1 of all others.

    Args:
        of: only this predicted attribute or relation.
    """
    names = [block.name for block in grounding.blocks if not block.is_latent]
    chosen = [block for block in grounding.blocks if of in (None, block.name, block.attribute) and not block.is_latent]
    if of is not None and len(chosen) != 1:
        hint = suggestion(of, names) or f"there is {listing(names)}"
        raise UsageError(Diagnostic("E310", f"no predicted attribute '{of}' whose labels could be hidden", hint=hint))
    out, before = np.full(len(grounding.states), -1), 0
    for block in chosen:
        own = slice(block.start, block.start + block.count)
        out[own] = np.where(grounding.states[own] >= 0, grounding.states[own] + before, -1)
        before += len(block.values)
    return out


def _column_of(grounding: Grounding, name: str) -> list[np.ndarray | None]:
    """For each block a column's texts; with an entity before it, `Page.university`, None for what is not about one."""
    entity, _, column = name.partition(".")
    if not column or grounding.spec.entity(entity) is None:
        return [_column(grounding, block, name) for block in grounding.blocks]
    found = [
        _entity_column(grounding, block, block.sorts.index(entity), column) if entity in block.sorts else None
        for block in grounding.blocks
    ]
    if all(texts is None for texts in found):
        message = f"nothing that is predicted is about {entity}, by whose '{column}' it is to be split"
        raise DataError(Diagnostic("E342", message, hint="name a column of a thing that something is predicted of"))
    return found


def _groups(texts: list[np.ndarray | None], blocks: tuple[VariableBlock, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    """The distinct texts, and which one each variable has, -1 for those without a column."""
    known = np.concatenate([part.astype(str) for part in texts if part is not None])
    values = np.unique(known)
    group = [
        np.full(block.count, NOWHERE) if part is None else np.searchsorted(values, part.astype(str))
        for block, part in zip(blocks, texts, strict=True)
    ]
    return tuple(values.tolist()), np.concatenate(group)


def _by_time(grounding: Grounding, plan: TimeSplit) -> Split:
    texts = _column_of(grounding, plan.column)
    values, group = _groups(texts, grounding.blocks)
    times = _times(values, plan.column)
    missing = np.full(1, np.nan if times.dtype == float else "NaT", dtype=times.dtype)
    of_variable = np.concatenate((times, missing))[group]
    labelled = _labelled(grounding) & (group >= 0)
    without = labelled & (of_variable != of_variable)
    if without.any():
        message = f"{int(without.sum()):,} labels have no time in '{plan.column}'"
        raise DataError(Diagnostic("E352", message, hint="give each labelled thing its time, or remove its label"))
    _require_parts(plan.folds + 1, len(np.unique(of_variable[labelled])), f"times in '{plan.column}' with labels")
    period = periods(of_variable, labelled, plan.folds + 1)
    order = np.argsort(times, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    names = []
    for number in range(int(period.max()) + 1):
        inside = place[group[labelled & (period == number)]]
        first, last = (values[order[edge]] for edge in (inside.min(), inside.max()))
        names.append(first if first == last else f"{first}..{last}")
    return Split(str(plan), period, tuple(names), ordered=True)


def _times(values: tuple[str, ...], column: str) -> np.ndarray:
    """Texts as numbers, or else as dates; missing where a text is empty."""
    for kind, missing in ((np.float64, "nan"), (np.dtype("datetime64[us]"), "NaT")):
        try:
            return np.array([value or missing for value in values]).astype(kind)
        except ValueError:
            continue
    message = f"column '{column}' holds neither numbers nor dates"
    hint = "write times as numbers, or as 2026-11-22 or 2026-11-22T13:00:00"
    raise DataError(Diagnostic("E352", message, hint=hint))


def _hashes(grounding: Grounding, block: VariableBlock, salt: str) -> np.ndarray:
    """A number for each variable of a block that depends on its keys and the salt alone, shape (n,), uint64."""
    start = blake2b(salt.encode(), digest_size=8)
    found = np.empty(block.count, dtype=np.uint64)
    for k, keys in enumerate(zip(*grounding.arguments(block), strict=True)):
        own = start.copy()
        own.update("".join(f"\0{len(key)}:{key}" for key in keys).encode())
        found[k] = int.from_bytes(own.digest(), "big")
    return found


def _column(grounding: Grounding, block: VariableBlock, column: str) -> np.ndarray:
    """The column's value for each variable of a block: the thing's; for a tuple, that of its first argument that has it."""
    bound = grounding.bound
    entities = [k for k, sort in enumerate(block.sorts) if grounding.spec.entity(sort)]
    if not entities:
        message = f"'{block.name}' is about no things, and cannot be split by a column of theirs"
        raise DataError(Diagnostic("E342", message, hint="give it an argument that is an entity, or split by folds=10"))
    having = [k for k in entities if bound.has_column(block.sorts[k], column)]
    return _entity_column(grounding, block, (having or entities)[0], column)


def _entity_column(grounding: Grounding, block: VariableBlock, argument: int, column: str) -> np.ndarray:
    """A column of the things that stand at one argument of a block, as text."""
    bound = grounding.bound
    return np.asarray(bound.raw_column(block.sorts[argument], column)[argument_codes(bound, block)[argument]])
