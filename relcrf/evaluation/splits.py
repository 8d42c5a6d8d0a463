"""Folds: sets of labels that are held out together, selected by a split plan, at random, or by a mask of variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from relcrf.backends.base import Problem
from relcrf.backends.problems import numeric_targets, require_validation_labels, train_features, training_graph
from relcrf.data.split_plan import ALL_ATTRIBUTES, DEFAULT_FOLDS, HIDDEN_FOLD, SplitPlan, parse_split
from relcrf.errors import DataError, Diagnostic, UsageError, listing, suggestion
from relcrf.evaluation.partitions import (
    snowball_folds,
    stratified_sample,
    time_periods,
)
from relcrf.graph.adjacency import adjacency_matrix
from relcrf.graph.components import label_components
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.folds import NO_FOLD, balanced_folds, stratified_folds
from relcrf.graph.numeric_graph import NumericTargets
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock, read_argument_codes
from relcrf.kernels.distinct import distinct, number_rows
from relcrf.model.learned import learned_features

MAX_COMPONENT_FRACTION = 1 / 20
"""Maximum fraction of all labels in one component; above it, variables are held out instead of whole components.
Independent rows are below the limit; a large graph with additional singleton components is above it.
"""


VALIDATION_FOLD = "validation"
"""Name of the fold that holds out the validation labels."""


@dataclass(frozen=True)
class PartSizes:
    """The numbers of training, validation, ignored and test labels."""

    train: int
    validation: int
    ignored: int
    test: int

    def __str__(self) -> str:
        return f"labels: {self.train:,} training, {self.validation:,} validation, {self.ignored:,} ignored, {self.test:,} test"


@dataclass(frozen=True, eq=False)
class Fold:
    """Labels that are held out together.

    Args:
        test: Mask of the labelled variables to predict, shape (n_variables,).
        excluded: Mask of the variables that are absent from training and prediction, e.g. those of a later period,
            shape (n_variables,).
        hidden: Mask of the variables whose labels are neither training labels nor evidence nor scored, shape
            (n_variables,). In contrast to excluded variables, they are unlabelled variables of the graph.
        validation: Mask of the hidden labels that are reserved for the choice of settings, shape (n_variables,); None
            if no labels are reserved.
        whole_components: Whether the test labels are all labels of some connected components.
        evidence: Mask of the training labels that are evidence in prediction, shape (n_variables,); None for all. The
            variables of the other training labels are predicted together with the test variables.
        graph: The graph with learned features that are trained on the training labels of this fold; None for the graph
            of the problem.
        numbers: The numbers with these features; None without learned features or numbers.
    """

    name: str
    test: np.ndarray
    excluded: np.ndarray
    hidden: np.ndarray
    validation: np.ndarray | None = None
    whole_components: bool = False
    evidence: np.ndarray | None = None
    graph: FactorGraph | None = None
    numbers: NumericTargets | None = None

    @classmethod
    def from_test(cls, name: str, test: np.ndarray, *, hidden: np.ndarray | None = None, whole: bool = False) -> Fold:
        """Return a fold that excludes no variables and, by default, hides no further labels."""
        none = np.zeros_like(test)
        return cls(name, test, none, none if hidden is None else hidden, whole_components=whole)

    @property
    def n_test(self) -> int:
        """The number of test labels."""
        return int(self.test.sum())

    def train_mask(self, labelled: np.ndarray) -> np.ndarray:
        """Return the mask of the training labels, shape (n_variables,)."""
        return np.asarray(labelled & ~self.test & ~self.excluded & ~self.hidden)

    @property
    def has_evidence(self) -> bool:
        """Whether any training label is evidence in prediction."""
        return self.evidence is None or bool(self.evidence.any())

    def part_sizes(self, labelled: np.ndarray) -> PartSizes:
        """Count the labels of each part; labels of excluded variables count as ignored."""
        n_train, n_test = int(self.train_mask(labelled).sum()), self.n_test
        n_validation = 0 if self.validation is None else int(self.validation.sum())
        return PartSizes(n_train, n_validation, int(labelled.sum()) - n_train - n_validation - n_test, n_test)

    def with_learned_features(self, grounding: Grounding) -> Fold:
        """Return the fold with the graph of learned features that are trained on its training labels."""
        if not learned_features(grounding.spec):
            return self
        grounding, _ = train_features(grounding, self.train_mask(labelled_in_grounding(grounding)))
        return replace(self, graph=training_graph(grounding), numbers=numeric_targets(grounding))

    def with_graph(self, problem: Problem) -> Problem:
        """Return the problem on the graph of this fold."""
        return problem if self.graph is None else replace(problem, graph=self.graph, numbers=self.numbers)

    def learning_problem(self, problem: Problem) -> Problem:
        """Return the training problem without the test variables, the excluded variables and the hidden labels."""
        roles = _mark_absent(problem.roles, self.test | self.excluded | self.hidden)
        validation = problem.validation if self.validation is None else self.validation
        excluded = self.excluded if problem.excluded is None else self.excluded | problem.excluded
        excluded_mask = excluded if excluded.any() else None
        return replace(self.with_graph(problem), roles=roles, validation=validation, excluded=excluded_mask)

    def query_problem(self, problem: Problem) -> Problem:
        """Return the problem in which the variables with test labels are queried and the training labels are evidence.

        Args:
            problem: The training problem. Unless whole components are held out, unlabelled variables are also queried,
                as in `relcrf predict`, because predictions depend on unlabelled neighbours; those of numbers always do.
        """
        latent = (problem.roles == Role.FREE) & (problem.states < 0)
        evidence = labelled_in_problem(problem) & ~self.test & (True if self.evidence is None else self.evidence)
        roles = np.where(evidence, Role.CLAMPED, problem.roles).astype(np.int8)
        query = replace(self.with_graph(problem), roles=_mark_absent(roles, self.hidden), validation=None)
        if not self.whole_components or problem.numbers is not None:
            query = replace(query.with_unlabelled(), queries=~latent)
        return replace(query, roles=_mark_absent(query.roles, self.excluded))


def _mark_absent(roles: np.ndarray, variables: np.ndarray) -> np.ndarray:
    return np.where(variables, Role.ABSENT, roles).astype(np.int8)


def labelled_in_problem(problem: Problem) -> np.ndarray:
    """Return the mask of the labelled variables of a training problem, shape (n_variables,)."""
    return np.asarray((problem.roles == Role.FREE) & (problem.states >= 0))


def random_fold(problem: Problem, fraction: float, seed: int) -> Fold:
    """Hold out a random fraction of the components if all are small (`MAX_COMPONENT_FRACTION`), else of the labels.

    Raises:
        DataError: No labels would be left to train on, or to predict (E226).
    """
    units, unit, whole = _holdout_units(problem)
    n = round(fraction * len(units))
    _require_labels(0 < n < len(units), len(units))
    chosen = np.random.default_rng(seed).permutation(units)[:n]
    return Fold.from_test(HIDDEN_FOLD, labelled_in_problem(problem) & np.isin(unit, chosen), whole=whole)


def random_folds(problem: Problem, n: int, seed: int) -> list[Fold]:
    """Divide all labels at random into `n` folds of equal size; components stay together if they do in `random_fold`.

    Raises:
        DataError: There are fewer labels, or components, than folds (E226).
    """
    units, unit, whole = _holdout_units(problem)
    _require_labels(len(units) >= n, len(units))
    parts = np.array_split(np.random.default_rng(seed).permutation(units), n)
    labelled = labelled_in_problem(problem)
    return [Fold.from_test(str(k + 1), labelled & np.isin(unit, part), whole=whole) for k, part in enumerate(parts)]


def holdout_fold(problem: Problem, variables: np.ndarray) -> Fold:
    """Hold out the labels of some variables, given as a mask of shape (n_variables,).

    Raises:
        DataError: No labels would be left to train on, or to predict (E226).
    """
    labelled = labelled_in_problem(problem)
    test, component = labelled & variables, label_components(problem.whole_graph, problem.roles)
    _require_labels(0 < test.sum() < labelled.sum(), int(labelled.sum()))
    cut = bool(np.isin(component[test], component[labelled & ~test]).any())
    return Fold.from_test(HIDDEN_FOLD, test, whole=not (cut or problem.candidates))


def validation_fold(problem: Problem) -> tuple[Problem, Fold]:
    """Return the problem with the validation labels as targets, and the fold that holds out exactly these labels.

    Args:
        problem: A training problem with validation labels.
    """
    assert problem.validation is not None
    roles = np.where(problem.validation, Role.FREE, problem.roles).astype(np.int8)
    return replace(problem, roles=roles, validation=None), Fold.from_test(VALIDATION_FOLD, problem.validation)


def _holdout_units(problem: Problem) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return the units to hold out, the unit of each variable, and True if units are components, not variables.

    If the model has candidates, the units are variables, because a candidate may join any two variables.
    """
    labelled = labelled_in_problem(problem)
    if not problem.candidates:
        component = label_components(problem.whole_graph, problem.roles)
        sizes = np.bincount(component[labelled])
        if sizes.max(initial=0) <= MAX_COMPONENT_FRACTION * labelled.sum():
            return np.flatnonzero(sizes), component, True
    return np.flatnonzero(labelled), np.arange(len(labelled)), False


def _require_labels(enough: bool, n: int) -> None:
    if not enough:
        message = f"too few labels to hold some out: {n}"
        raise DataError(Diagnostic("E226", message, hint="label more entities, or give the settings explicitly"))


@dataclass(frozen=True, eq=False)
class HeldOutLabels:
    """The labels that a split plan holds out, as masks of variables, each of shape (n_variables,).

    Args:
        hidden: Mask of the variables whose labels are neither training labels nor evidence; it includes `test` and
            `validation`.
        test: Mask of the variables whose labels are scored.
        validation: Mask of the variables whose labels are reserved for the choice of settings; None if the plan has no
            validation part.
    """

    hidden: np.ndarray
    test: np.ndarray
    validation: np.ndarray | None = None

    def fold(self, name: str, labelled: np.ndarray) -> Fold:
        """Return the fold with these labels.

        Args:
            labelled: Mask of the labelled variables, shape (n_variables,).
        """
        test = labelled & self.test
        fold = Fold.from_test(name, test, hidden=labelled & self.hidden & ~test)
        return fold if self.validation is None else replace(fold, validation=labelled & self.validation)


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of the variables of a ground graph into folds.

    Args:
        name: The split plan, as a string.
        fold: The index in `fold_names` of each variable's fold, shape (n_variables,); -1 for a variable that is never
            held out.
        fold_names: The names of the folds. Depending on the plan: the sorted values of a column, the first and last
            time of each period, `hidden` and `rest`, or `1`, `2`, ...
        ordered: Whether the folds are consecutive periods; periods later than the test fold are then excluded.
    """

    name: str
    fold: np.ndarray
    fold_names: tuple[str, ...]
    ordered: bool = False

    def holdout_mask(self, values: list[str]) -> np.ndarray:
        """Return the mask of the variables in the named folds, shape (n_variables,).

        Raises:
            UsageError: The partition does not have a fold of this name (E340).
        """
        for value in values:
            if value not in self.fold_names:
                hint = suggestion(value, self.fold_names) or f"the values are {listing(self.fold_names)}"
                raise UsageError(
                    Diagnostic("E340", f"unknown value '{value}' of the split by '{self.name}'", hint=hint)
                )
        return np.isin(self.fold, [self.fold_names.index(v) for v in values])

    def hold_out(self, plan: SplitPlan) -> HeldOutLabels:
        """Return the masks of the variables whose labels are in `holdout` or in the parts of a plan.

        If the plan has the part `train`, labels outside the parts are hidden, except the labels of variables that the
        partition never holds out. If the folds are consecutive periods, the labels of later periods are hidden, too.

        Raises:
            UsageError: The partition does not have one of the folds (E340).
        """
        train, valid, test = (
            self.holdout_mask(list(names)) for names in (plan.train, plan.valid, plan.test or plan.holdout)
        )
        hidden = ~train & (self.fold != NO_FOLD) if plan.train else valid | test
        if self.ordered and test.any():
            hidden = self.fold >= self.fold[test].min()
        return HeldOutLabels(hidden, test, valid if plan.valid else None)


def make_folds(grounding: Grounding, plan: SplitPlan | str, *, for_training: bool = True) -> tuple[Fold, ...]:
    """Return the folds of all repetitions of a plan: those in `plan.holdout` or, by default, all folds with labels.

    Args:
        for_training: Whether each fold must leave training labels.

    Raises:
        DataError, UsageError: See `partition_variables`; a deterministic plan has repetitions (E352); there are too
            few labels (E226); the plan has a training or validation part, but no test part (E341).
    """
    plan = parse_split(plan) if isinstance(plan, str) else plan
    if plan.has_parts and not plan.test:
        message = f"the split '{plan}' names folds for training or validation, but none for testing"
        raise UsageError(Diagnostic("E341", message, hint="name the folds to score, e.g. --test test"))
    if plan.is_deterministic and plan.repeats > 1:
        message = f"the split '{plan}' is deterministic and cannot be repeated"
        raise UsageError(Diagnostic("E352", message, hint="remove --repeats"))
    folds: list[Fold] = []
    labelled = labelled_in_grounding(grounding)
    for repeat in range(plan.repeats):
        partition = partition_variables(grounding, replace(plan, seed=plan.seed + repeat))
        for fold in _iter_folds(partition, plan, labelled):
            if not fold.n_test:
                continue
            if for_training and not fold.train_mask(labelled).any():
                message = f"no training labels remain if '{fold.name}' is held out"
                raise DataError(Diagnostic("E226", message, hint="use another --split, or label more entities"))
            if fold.validation is not None:
                require_validation_labels(fold.validation)
            if for_training:
                fold = fold.with_learned_features(grounding)
            folds.append(replace(fold, name=f"{repeat + 1}.{fold.name}") if plan.repeats > 1 else fold)
    if not folds:
        message = f"too few labels for this split: {int(labelled.sum())}"
        raise DataError(Diagnostic("E226", message, hint="use another --split, or label more entities"))
    return tuple(folds)


def _iter_folds(partition: Partition, plan: SplitPlan, labelled: np.ndarray) -> Iterator[Fold]:
    """Yield one fold for the parts of a plan or, without parts, a fold for each name in `holdout`."""
    if plan.has_parts:
        yield partition.hold_out(plan).fold("+".join(plan.test), labelled)
        return
    for value in dict.fromkeys(plan.holdout or partition.fold_names[int(partition.ordered) :]):
        number = partition.fold_names.index(value) if value in partition.fold_names else NO_FOLD
        fold = Fold.from_test(value, labelled & partition.holdout_mask([value]))
        yield replace(fold, excluded=partition.fold > number) if partition.ordered else fold


def hold_out(grounding: Grounding, plan: SplitPlan) -> HeldOutLabels:
    """Return the labels that a plan holds out all at once.

    Raises:
        UsageError: The plan names no folds to hold out (E341).
        UsageError, DataError: See `partition_variables` and `Partition.hold_out`.
    """
    if not (plan.holdout or plan.has_parts):
        hint = "set holdout, train, valid or test of the split plan"
        raise UsageError(Diagnostic("E341", f"the split '{plan}' names no folds to hold out", hint=hint))
    return partition_variables(grounding, plan).hold_out(plan)


def partition_variables(grounding: Grounding, plan: SplitPlan | str) -> Partition:
    """Partition the variables of a ground graph into folds.

    Raises:
        UsageError: The string is not a split plan, or contains an unknown attribute.
        DataError: The tables do not have the column, or there are fewer units than folds.
    """
    plan = parse_split(plan) if isinstance(plan, str) else plan
    labelled = labelled_in_grounding(grounding)
    match plan.kind:
        case "column":
            names, group = column_values(grounding, plan.column)
            if plan.folds is None:
                return Partition(str(plan), group, names)
            n_values = len(distinct(group[labelled & (group >= 0)]))
            _require_parts(plan, n_values, f"values of '{plan.column}' with labels")
            return _numbered_partition(plan, balanced_folds(group, labelled, _folds(plan), _rng(plan)))
        case "time":
            return _partition_by_time(grounding, plan)
        case "folds":
            # The hash does not depend on the attribute, so that all attributes of an entity are in one fold.
            hashes = [_key_hashes(grounding, block, f"{plan.seed}\0{block.owner}") for block in grounding.blocks]
            number = (np.concatenate(hashes) % np.uint64(_folds(plan))).astype(np.int64)
            names = tuple(str(number + 1) for number in distinct(number).tolist())
            return Partition(str(plan), number_rows(number), names)
        case "hide" if plan.attribute is None:
            hashes = [_key_hashes(grounding, block, f"{plan.seed}\0{block.name}") for block in grounding.blocks]
            rest = np.concatenate(hashes) >= np.uint64(plan.fraction * 2**64)
            return Partition(str(plan), rest.astype(np.int64), (HIDDEN_FOLD, "rest"))
        case "hide":
            attribute = None if plan.attribute == ALL_ATTRIBUTES else plan.attribute
            hidden = stratified_sample(_strata(grounding, attribute), plan.fraction, _rng(plan))
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


def _require_parts(plan: SplitPlan, n_units: int, what: str) -> None:
    if n_units < _folds(plan):
        message = f"cannot divide {n_units} {what} into {_folds(plan)} folds"
        remedy = "use fewer --folds" if n_units > 1 else "label more entities"
        raise DataError(Diagnostic("E352", message, hint=f"{remedy}, or use another --split"))


def labelled_in_grounding(grounding: Grounding) -> np.ndarray:
    """Return the mask of the labelled variables of a ground graph, shape (n_variables,)."""
    return np.asarray((grounding.states >= 0) & ~grounding.latent)


def _strata(grounding: Grounding, attribute: str | None) -> np.ndarray:
    """Return the stratum (attribute and state) of each variable, -1 if it is unlabelled, shape (n_variables,).

    Args:
        attribute: A predicted attribute or relation; None selects all of them.
    """
    names = [block.name for block in grounding.blocks if not block.is_latent]
    chosen = [
        block for block in grounding.blocks if attribute in (None, block.name, block.attribute) and not block.is_latent
    ]
    if attribute is not None and len(chosen) != 1:
        hint = suggestion(attribute, names) or f"the predicted attributes are {listing(names)}"
        raise UsageError(
            Diagnostic("E310", f"{'ambiguous' if chosen else 'unknown'} predicted attribute '{attribute}'", hint=hint)
        )
    strata, n_before = np.full(len(grounding.states), -1), 0
    for block in chosen:
        block_slice = slice(block.start, block.start + block.count)
        strata[block_slice] = np.where(grounding.states[block_slice] >= 0, grounding.states[block_slice] + n_before, -1)
        n_before += len(block.values)
    return strata


def argument_with_column(grounding: Grounding, block: VariableBlock, column: str, entity: str = "") -> int | None:
    """Return the index of the first argument of a block that is an entity with a column; None if no argument is an entity.

    If no entity has this column, the index is that of the first entity.

    Args:
        entity: The entity type of the argument; empty for any.
    """
    spec, types = grounding.spec, block.argument_types
    entities = [k for k, sort in enumerate(types) if spec.entity(sort) and entity in ("", sort)]
    with_column = [k for k in entities if grounding.bound.has_column(types[k], column)]
    return next(iter(with_column or entities), None)


def column_values(grounding: Grounding, name: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the distinct values of a column, and the index of each variable's value.

    The index is `NO_FOLD` for variables without an argument of the entity type in `name`.

    Args:
        name: A column of the entity of each variable. For a tuple, the entity is the first argument that has this
            column. A qualified name such as `Page.university` restricts the column to that entity type.

    Raises:
        DataError: A variable has no entity as argument; no variable has an argument of the entity type in `name`
            (E342).
    """
    bound, spec = grounding.bound, grounding.spec
    entity, _, column = name.partition(".")
    if not column or spec.entity(entity) is None:
        entity, column = "", name
    texts: list[np.ndarray | None] = []
    for block in grounding.blocks:
        chosen = argument_with_column(grounding, block, column, entity)
        if chosen is None and not entity:
            message = f"'{block.name}' has no entity as argument, and therefore no column '{column}'"
            hint = "add an argument of an entity type, or split by --split folds=10"
            raise DataError(Diagnostic("E342", message, hint=hint))
        if chosen is None:
            texts.append(None)
        else:
            codes = read_argument_codes(bound, block)[chosen]
            texts.append(np.asarray(bound.raw_column(block.argument_types[chosen], column)[codes]).astype(str))
    known = [part for part in texts if part is not None]
    if not known:
        message = f"cannot use '{column}' of {entity}: no predicted attribute or relation belongs to {entity}"
        raise DataError(
            Diagnostic("E342", message, hint="use a column of an entity with predicted attributes or relations")
        )
    values = np.unique(np.concatenate(known))
    group = [
        np.full(block.count, NO_FOLD) if part is None else np.searchsorted(values, part)
        for block, part in zip(grounding.blocks, texts, strict=True)
    ]
    return tuple(values.tolist()), np.concatenate(group)


def _partition_by_time(grounding: Grounding, plan: SplitPlan) -> Partition:
    values, group = column_values(grounding, plan.column)
    times = _parse_times(values, plan.column)
    missing = np.full(1, np.nan if times.dtype == float else "NaT", dtype=times.dtype)
    time_of_variable = np.concatenate((times, missing))[group]
    labelled = labelled_in_grounding(grounding) & (group >= 0)
    lacks_time = labelled & (time_of_variable != time_of_variable)
    if lacks_time.any():
        message = f"{int(lacks_time.sum()):,} labels have no time in '{plan.column}'"
        raise DataError(Diagnostic("E352", message, hint="add the missing times, or remove the labels"))
    n_times, folds = len(np.unique(time_of_variable[labelled])), _folds(plan)
    _require_parts(plan, n_times - 1, f"labelled time points of '{plan.column}' (without the first)")
    period = time_periods(time_of_variable, labelled, folds + 1)
    names = []
    for number in range(int(period.max()) + 1):
        codes = distinct(group[labelled & (period == number)])
        ascending = codes[np.argsort(times[codes], kind="stable")]
        first, last = (values[place] for place in ascending[[0, -1]])
        names.append(first if first == last else f"{first}..{last}")
    return Partition(str(plan), period, tuple(names), ordered=True)


def _parse_times(values: tuple[str, ...], column: str) -> np.ndarray:
    """Parse strings as numbers or, if a string is not a number, as dates; empty strings are missing values."""
    for kind, missing in ((np.float64, "nan"), (np.dtype("datetime64[us]"), "NaT")):
        try:
            return np.array([value or missing for value in values]).astype(kind)
        except ValueError:
            continue
    message = f"column '{column}' contains neither numbers nor dates"
    hint = "write times as numbers, or as 2026-11-22 or 2026-11-22T13:00:00"
    raise DataError(Diagnostic("E352", message, hint=hint))


def _key_hashes(grounding: Grounding, block: VariableBlock, salt: str) -> np.ndarray:
    """Return a hash of each variable's keys and the salt, for the variables of a block, shape (n,), uint64."""
    salted = blake2b(salt.encode(), digest_size=8)
    hashes = np.empty(block.count, dtype=np.uint64)
    for k, keys in enumerate(zip(*grounding.argument_texts(block), strict=True)):
        digest = salted.copy()
        digest.update("".join(f"\0{len(key)}:{key}" for key in keys).encode())
        hashes[k] = int.from_bytes(digest.digest(), "big")
    return hashes
