"""Folds: the variables that a split plan holds out, on a ground graph or among the labels of a training problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from relcrf.backends.base import Problem
from relcrf.data.split_plan import ALL_ATTRIBUTES, DEFAULT_FOLDS, HIDDEN_FOLD, SplitPlan, parse_split
from relcrf.errors import DataError, Diagnostic, UsageError, listing, suggestion
from relcrf.evaluation.partitions import (
    NO_FOLD,
    balanced_folds,
    snowball_folds,
    stratified_folds,
    stratified_sample,
    time_periods,
)
from relcrf.graph.adjacency import adjacency_matrix
from relcrf.graph.components import label_components
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock, read_argument_codes
from relcrf.kernels.distinct import distinct, number_rows

MAX_COMPONENT_FRACTION = 1 / 20
"""Maximum fraction of the labels in one component for whole components to be held out: rows that nothing joins, and not one
graph with singleton components."""


@dataclass(frozen=True, eq=False)
class Fold:
    """Labels that are held out together.

    Args:
        test: The labelled variables that are predicted, shape (n_variables,), bool.
        excluded: Variables that are absent from learning and prediction, such as those of a later period, shape
            (n_variables,), bool.
        whole_components: Whether the test labels are whole components of a training problem.
    """

    name: str
    test: np.ndarray
    excluded: np.ndarray
    whole_components: bool = False

    @classmethod
    def from_test(cls, name: str, test: np.ndarray, *, whole: bool = False) -> Fold:
        """Return a fold that excludes nothing."""
        return cls(name, test, np.zeros_like(test), whole)

    @property
    def n_test(self) -> int:
        """The number of test labels."""
        return int(self.test.sum())

    def train_mask(self, labelled: np.ndarray) -> np.ndarray:
        """Return the labelled variables that are learned from, shape (n_variables,), bool."""
        return np.asarray(labelled & ~self.test & ~self.excluded)

    def learning_problem(self, problem: Problem) -> Problem:
        """Return the training problem without the test labels."""
        return replace(problem, roles=_mark_absent(problem.roles, self.test | self.excluded))

    def query_problem(self, problem: Problem) -> Problem:
        """Return the problem whose queries are the test labels and whose evidence is the other labels.

        Args:
            problem: The training problem. Unless components are held out whole, the variables that it leaves out are queries,
                too, as in `relcrf predict`: a prediction depends on unlabelled neighbours. Their labels are not used.
        """
        latent = (problem.roles == Role.FREE) & (problem.states < 0)
        roles = np.where(labelled_in_problem(problem) & ~self.test, Role.CLAMPED, problem.roles).astype(np.int8)
        found = replace(problem, roles=roles)
        if not self.whole_components:
            found = replace(found.with_unlabelled(), queries=~latent)
        return replace(found, roles=_mark_absent(found.roles, self.excluded))


def _mark_absent(roles: np.ndarray, variables: np.ndarray) -> np.ndarray:
    return np.where(variables, Role.ABSENT, roles).astype(np.int8)


def labelled_in_problem(problem: Problem) -> np.ndarray:
    """Return which variables of a training problem are labelled, shape (n_variables,), bool."""
    return np.asarray((problem.roles == Role.FREE) & (problem.states >= 0))


def random_fold(problem: Problem, fraction: float, seed: int) -> Fold:
    """Hold out a fraction of the labels: whole components where each is small (`MAX_COMPONENT_FRACTION`), else single variables.

    Raises:
        DataError: Nothing is left to learn from, or to predict (E226).
    """
    units, unit, whole = _holdout_units(problem)
    n = round(fraction * len(units))
    _require_labels(0 < n < len(units), len(units))
    chosen = np.random.default_rng(seed).permutation(units)[:n]
    return Fold.from_test(HIDDEN_FOLD, labelled_in_problem(problem) & np.isin(unit, chosen), whole=whole)


def random_folds(problem: Problem, n: int, seed: int) -> list[Fold]:
    """Divide all labels into `n` folds of equal size, of the same units as `random_fold`.

    Raises:
        DataError: There are fewer labels, or components of them, than folds (E226).
    """
    units, unit, whole = _holdout_units(problem)
    _require_labels(len(units) >= n, len(units))
    parts = np.array_split(np.random.default_rng(seed).permutation(units), n)
    labelled = labelled_in_problem(problem)
    return [Fold.from_test(str(k + 1), labelled & np.isin(unit, part), whole=whole) for k, part in enumerate(parts)]


def holdout_fold(problem: Problem, variables: np.ndarray) -> Fold:
    """Hold out the labels among some variables, shape (n_variables,), bool.

    Raises:
        DataError: Nothing is left to learn from, or to predict (E226).
    """
    labelled = labelled_in_problem(problem)
    test, component = labelled & variables, label_components(problem.graph, problem.roles)
    _require_labels(0 < test.sum() < labelled.sum(), int(labelled.sum()))
    cut = bool(np.isin(component[test], component[labelled & ~test]).any())
    return Fold.from_test(HIDDEN_FOLD, test, whole=not (cut or problem.candidates))


def _holdout_units(problem: Problem) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return the units that can be held out, the unit of each variable, shape (n_variables,), and whether they are components.

    Candidates may join any two variables: where there are some, single variables are held out.
    """
    labelled = labelled_in_problem(problem)
    if not problem.candidates:
        component = label_components(problem.graph, problem.roles)
        sizes = np.bincount(component[labelled])
        if sizes.max(initial=0) <= MAX_COMPONENT_FRACTION * labelled.sum():
            return np.flatnonzero(sizes), component, True
    return np.flatnonzero(labelled), np.arange(len(labelled)), False


def _require_labels(enough: bool, n: int) -> None:
    if not enough:
        message = f"{n} labels are too few to hold some of them out"
        raise DataError(Diagnostic("E226", message, hint="label more things, or say the settings"))


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of the variables of a ground graph into folds.

    Args:
        name: The text of the plan for people.
        fold: The index of each variable's fold in `fold_names`, shape (n_variables,); -1 for one that is never held out.
        fold_names: The names of the folds: the sorted values of a column; else `1`, `2`, ... as far as a variable is in them, or
            `hidden`, `rest`; the first and the last time of each period.
        ordered: Whether the folds are consecutive periods, so that those after the test fold are excluded.
    """

    name: str
    fold: np.ndarray
    fold_names: tuple[str, ...]
    ordered: bool = False

    def holdout_mask(self, values: list[str]) -> np.ndarray:
        """Return which variables are in the folds of these names, shape (n_variables,), bool.

        Raises:
            UsageError: The partition does not have a fold of that name (E340).
        """
        for value in values:
            if value not in self.fold_names:
                hint = suggestion(value, self.fold_names) or f"it has {listing(self.fold_names)}"
                raise UsageError(Diagnostic("E340", f"the split by '{self.name}' has no value '{value}'", hint=hint))
        return np.isin(self.fold, [self.fold_names.index(v) for v in values])


def make_folds(grounding: Grounding, plan: SplitPlan | str, *, for_training: bool = True) -> tuple[Fold, ...]:
    """Return the folds that a plan holds out in turn: those of `plan.hold`, or each that has labels, of each repetition.

    Args:
        for_training: Whether each fold must leave labels to learn from.

    Raises:
        DataError, UsageError: See `partition_variables`; or every seed gives the same division (E352), or too little is labelled (E226).
    """
    plan = parse_split(plan) if isinstance(plan, str) else plan
    if plan.is_deterministic and plan.repeats > 1:
        message = f"the split '{plan}' is the same every time, and there is nothing to repeat"
        raise UsageError(Diagnostic("E352", message, hint="leave --repeats out"))
    found: list[Fold] = []
    labelled = labelled_in_grounding(grounding)
    for repeat in range(plan.repeats):
        partition = partition_variables(grounding, replace(plan, seed=plan.seed + repeat))
        for value in dict.fromkeys(plan.holdout or partition.fold_names[int(partition.ordered) :]):
            number = partition.fold_names.index(value) if value in partition.fold_names else NO_FOLD
            excluded = (partition.fold > number) if partition.ordered else np.zeros(len(labelled), dtype=bool)
            name = f"{repeat + 1}.{value}" if plan.repeats > 1 else value
            fold = Fold(name, labelled & partition.holdout_mask([value]), excluded)
            if not fold.n_test:
                continue
            if for_training and not fold.train_mask(labelled).any():
                message = f"with '{value}' held out there is no label to learn from"
                raise DataError(Diagnostic("E226", message, hint="take another --split, or label more things"))
            found.append(fold)
    if not found:
        message = f"{int(labelled.sum())} labels are too few to hold some of them out by this split"
        raise DataError(Diagnostic("E226", message, hint="take another --split, or label more things"))
    return tuple(found)


def partition_variables(grounding: Grounding, plan: SplitPlan | str) -> Partition:
    """Partition the variables of a ground graph.

    Raises:
        UsageError: The text of the plan is not a split, or names an unknown attribute.
        DataError: The tables do not have the column, or there are fewer parts than folds.
    """
    plan = parse_split(plan) if isinstance(plan, str) else plan
    labelled = labelled_in_grounding(grounding)
    match plan.kind:
        case "column":
            names, group = _column_values(grounding, plan.column)
            if plan.folds is None:
                return Partition(str(plan), group, names)
            there = len(distinct(group[labelled & (group >= 0)]))
            _require_parts(plan, there, f"values of '{plan.column}' with labels")
            return _numbered_partition(plan, balanced_folds(group, labelled, _folds(plan), _rng(plan)))
        case "time":
            return _partition_by_time(grounding, plan)
        case "folds":
            # Attributes of one entity stay together: the owner's name is hashed, and not the attribute.
            hashes = [_key_hashes(grounding, block, f"{plan.seed}\0{block.owner}") for block in grounding.blocks]
            number = (np.concatenate(hashes) % np.uint64(_folds(plan))).astype(np.int64)
            names = tuple(str(number + 1) for number in distinct(number).tolist())
            return Partition(str(plan), number_rows(number), names)
        case "hide" if plan.attribute is None:
            hashes = [_key_hashes(grounding, block, f"{plan.seed}\0{block.name}") for block in grounding.blocks]
            rest = np.concatenate(hashes) >= np.uint64(plan.fraction * 2**64)
            return Partition(str(plan), rest.astype(np.int64), (HIDDEN_FOLD, "rest"))
        case "hide":
            of = None if plan.attribute == ALL_ATTRIBUTES else plan.attribute
            hidden = stratified_sample(_strata(grounding, of), plan.fraction, _rng(plan))
            return Partition(str(plan), np.where(hidden, 0, 1), (HIDDEN_FOLD, "rest"))
        case "component":
            component = grounding.component
            _require_parts(plan, len(distinct(component[labelled])), "connected components with labels")
            return _numbered_partition(plan, balanced_folds(component, labelled, _folds(plan), _rng(plan)))
        case "snowball":
            _require_parts(plan, int(labelled.sum()), "labels")
            return _numbered_partition(
                plan, snowball_folds(adjacency_matrix(grounding.graph), labelled, _folds(plan), _rng(plan))
            )
    _require_parts(plan, int(labelled.sum()), "labels")
    return _numbered_partition(plan, stratified_folds(_strata(grounding, None), _folds(plan), _rng(plan)))


def _rng(plan: SplitPlan) -> np.random.Generator:
    return np.random.default_rng(plan.seed)


def _folds(plan: SplitPlan) -> int:
    return DEFAULT_FOLDS if plan.folds is None else plan.folds


def _numbered_partition(plan: SplitPlan, fold: np.ndarray) -> Partition:
    return Partition(str(plan), fold, tuple(str(number + 1) for number in range(int(fold.max(initial=-1)) + 1)))


def _require_parts(plan: SplitPlan, there: int, what: str) -> None:
    if there < _folds(plan):
        message = f"{_folds(plan)} folds cannot be made of {there} {what}"
        fewer = "give fewer --folds" if there > 1 else "label more things"
        raise DataError(Diagnostic("E352", message, hint=f"{fewer}, or take another --split"))


def labelled_in_grounding(grounding: Grounding) -> np.ndarray:
    """Return which variables have a label, shape (n_variables,), bool."""
    return np.asarray((grounding.states >= 0) & ~grounding.latent)


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


def _column_values(grounding: Grounding, name: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the distinct texts of a column, and the index of each variable's text; `NO_FOLD` for one without the column.

    Args:
        name: A column of the entity that a variable is about; for a tuple, of the first argument that has the column. With
            an entity before it, `Page.university`, the column of that entity alone.

    Raises:
        DataError: A variable is not about an entity, or none is about the named one (E342).
    """
    bound, spec = grounding.bound, grounding.spec
    entity, _, column = name.partition(".")
    if not column or spec.entity(entity) is None:
        entity, column = "", name
    texts: list[np.ndarray | None] = []
    for block in grounding.blocks:
        places = [k for k, sort in enumerate(block.argument_types) if spec.entity(sort) and entity in ("", sort)]
        if not (places or entity):
            message = f"'{block.name}' is about no things, and cannot be split by a column of theirs"
            hint = "give it an argument that is an entity, or split by folds=10"
            raise DataError(Diagnostic("E342", message, hint=hint))
        with_column = places if entity else [k for k in places if bound.has_column(block.argument_types[k], column)]
        chosen = next(iter(with_column or places), None)
        if chosen is None:
            texts.append(None)
        else:
            codes = read_argument_codes(bound, block)[chosen]
            texts.append(np.asarray(bound.raw_column(block.argument_types[chosen], column)[codes]).astype(str))
    known = [part for part in texts if part is not None]
    if not known:
        message = f"nothing that is predicted is about {entity}, by whose '{column}' it is to be split"
        raise DataError(Diagnostic("E342", message, hint="name a column of a thing that something is predicted of"))
    values = np.unique(np.concatenate(known))
    group = [
        np.full(block.count, NO_FOLD) if part is None else np.searchsorted(values, part)
        for block, part in zip(grounding.blocks, texts, strict=True)
    ]
    return tuple(values.tolist()), np.concatenate(group)


def _partition_by_time(grounding: Grounding, plan: SplitPlan) -> Partition:
    values, group = _column_values(grounding, plan.column)
    times = _parse_times(values, plan.column)
    missing = np.full(1, np.nan if times.dtype == float else "NaT", dtype=times.dtype)
    of_variable = np.concatenate((times, missing))[group]
    labelled = labelled_in_grounding(grounding) & (group >= 0)
    without = labelled & (of_variable != of_variable)
    if without.any():
        message = f"{int(without.sum()):,} labels have no time in '{plan.column}'"
        raise DataError(Diagnostic("E352", message, hint="give each labelled thing its time, or remove its label"))
    there, folds = len(np.unique(of_variable[labelled])), _folds(plan)
    _require_parts(plan, there - 1, f"times in '{plan.column}' with labels after the first")
    period = time_periods(of_variable, labelled, folds + 1)
    names = []
    for number in range(int(period.max()) + 1):
        inside = distinct(group[labelled & (period == number)])
        ascending = inside[np.argsort(times[inside], kind="stable")]
        first, last = (values[place] for place in ascending[[0, -1]])
        names.append(first if first == last else f"{first}..{last}")
    return Partition(str(plan), period, tuple(names), ordered=True)


def _parse_times(values: tuple[str, ...], column: str) -> np.ndarray:
    """Texts as numbers, or else as dates; missing where a text is empty."""
    for kind, missing in ((np.float64, "nan"), (np.dtype("datetime64[us]"), "NaT")):
        try:
            return np.array([value or missing for value in values]).astype(kind)
        except ValueError:
            continue
    message = f"column '{column}' holds neither numbers nor dates"
    hint = "write times as numbers, or as 2026-11-22 or 2026-11-22T13:00:00"
    raise DataError(Diagnostic("E352", message, hint=hint))


def _key_hashes(grounding: Grounding, block: VariableBlock, salt: str) -> np.ndarray:
    """A number for each variable of a block that depends on its keys and the salt alone, shape (n,), uint64."""
    start = blake2b(salt.encode(), digest_size=8)
    found = np.empty(block.count, dtype=np.uint64)
    for k, keys in enumerate(zip(*grounding.argument_texts(block), strict=True)):
        own = start.copy()
        own.update("".join(f"\0{len(key)}:{key}" for key in keys).encode())
        found[k] = int.from_bytes(own.digest(), "big")
    return found
