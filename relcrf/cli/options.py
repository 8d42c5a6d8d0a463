"""Options that several commands share, declared once, in groups that commands take as one parameter.

A group is a frozen dataclass whose fields are options of Typer. A command that has a parameter of a group's type gets
all options of the group on its command line, and the group, filled, as its argument; see `flattened`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import typer

from relcrf import api
from relcrf.cli.output import print_note, show_progress
from relcrf.cli.time_limit import limit_time
from relcrf.data.dataset import Dataset
from relcrf.data.split_plan import SplitPlan, parse_hide, parse_split
from relcrf.data.store import DEFAULT_MEMORY
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.splits import partition_variables
from relcrf.grounding.block_cache import BlockCache
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.grounding import Grounding
from relcrf.progress_reporting import ProgressMonitor

ModelArgument = Annotated[Path, typer.Argument(help="The model, a .rcrf file.")]
RunArgument = Annotated[Path, typer.Argument(help="A run folder that 'relcrf train' wrote.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
DataOption = Annotated[
    str, typer.Option("--data", "-d", help="A folder of tables, a dataset.toml, a database file or postgresql://...")
]
MemoryOption = Annotated[
    str, typer.Option("--memory", help="Limit of tables and ground columns in memory, such as 500MB.")
]
MaxFactorsOption = Annotated[
    int | None,
    typer.Option("--max-factors", min=1, help="Most factors that the whole model may have; more are refused."),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="A setting of the backend, such as l2=0.5; repeatable.")
]
OverrideSetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="Another setting of the backend than in training, such as inference=bp."),
]


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """The limits of tables and of grounding."""

    budget: Annotated[int, typer.Option("--budget", min=1, help="Most bindings that a template may have.")] = (
        DEFAULT_BUDGET
    )
    memory: MemoryOption = DEFAULT_MEMORY


@dataclass(frozen=True, kw_only=True)
class TableOptions(LimitOptions):
    """The tables of a command, and their limits."""

    data: DataOption

    @cached_property
    def dataset(self) -> Dataset:
        """The tables, opened at the first use."""
        return Dataset(self.data, memory=self.memory)


@dataclass(frozen=True, kw_only=True)
class GroundingOptions(TableOptions):
    """The tables of a command that grounds them, and the folder in which ground blocks are cached."""

    cache: Annotated[
        Path | None,
        typer.Option("--keep", help="A folder of ground blocks: takes what is there, and adds what is not."),
    ] = None

    @cached_property
    def block_cache(self) -> BlockCache | None:
        """The ground blocks of the folder of --keep."""
        return None if self.cache is None else BlockCache(self.cache)

    def ground(self, source: api.Model | api.Fit, watch: ProgressMonitor, **options: Any) -> Grounding:
        """Ground a model, or the model of a run, on the tables."""
        watch.start_phase("reading tables")
        return source.ground(
            self.dataset, self.budget, progress=watch.report_grounding, cache=self.block_cache, **options
        )

    def note_cache_use(self) -> None:
        """Print which blocks of the folder of --keep were found and which were made."""
        note_cache_use(self.block_cache)


def note_cache_use(saved: BlockCache | None) -> None:
    """Print which ground blocks of a folder were found and which were made."""
    if saved is not None:
        parts = [f"{what} {listing(names)}" for what, names in (("found", saved.hits), ("made", saved.misses)) if names]
        print_note(f"{saved.folder}: {'; '.join(parts) or 'no block was taken or made'}")


@dataclass(frozen=True, kw_only=True)
class HoldoutOptions:
    """The labels that a command holds out; for the language of splits see `relcrf.data.split_plan`."""

    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            help="random, component, snowball, by=Page.university, time=Page.year, a column, folds=10 or hide=0.1. "
            "Default: the manifest's.",
        ),
    ] = None
    holdout: Annotated[list[str] | None, typer.Option("--hold", help="A fold to hold out; repeatable.")] = None
    folds: Annotated[int | None, typer.Option("--folds", "-k", help="Number of folds. Default: 5.")] = None
    hide: Annotated[
        str | None,
        typer.Option(
            "--hide",
            help="Fraction of the labels to hide, 0.1, or of those of one attribute or relation, Friends=0.1.",
        ),
    ] = None
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of a random split.")] = 0

    def plan(self, default: SplitPlan | None) -> SplitPlan | None:
        """Return the split of the command line, or else the default, with the folds of --hold.

        Raises:
            UsageError: The options are not a split, or contradict each other (E349).
        """
        if self.hide is not None:
            if self.split is not None or self.folds is not None:
                message = "--hide already sets what is held out"
                raise UsageError(Diagnostic("E349", message, hint="leave --split and --folds out, or --hide"))
            plan: SplitPlan | None = parse_hide(self.hide, self.seed)
        elif self.split is None and self.folds is None:
            plan = default
        else:
            plan = parse_split(self.split or "random", self.folds, self.seed)
        return replace(plan, holdout=tuple(self.holdout)) if plan is not None and self.holdout else plan

    def require_plan(self, default: SplitPlan | None) -> SplitPlan:
        """Return the split, see `plan`.

        Raises:
            UsageError: There is none (E341).
        """
        plan = self.plan(default)
        if plan is None:
            hint = "give --split a column, folds=10 or hide=0.1; or write [split] into the dataset.toml"
            raise UsageError(Diagnostic("E341", "nothing says which labels are held out", hint=hint))
        return plan

    def holdout_plan(self, default: SplitPlan | None) -> SplitPlan | None:
        """Return the split and the folds of it that are held out, see `plan`; None without any.

        Raises:
            UsageError: The split does not name the folds that are held out, or there is no split (E341).
        """
        plan = self.plan(default)
        if plan is not None and plan.holdout:
            return plan
        if self.holdout or (plan is not None and plan != default):
            hint = "name a column and the values to hide, folds=10 and the folds, or hide=0.1"
            raise UsageError(Diagnostic("E341", "--split and --hold go together", hint=hint))
        return None

    def hidden(self, grounding: Grounding) -> np.ndarray | None:
        """Return the variables whose labels are held out, shape (n_variables,), bool; None without any."""
        plan = self.holdout_plan(grounding.bound.dataset.split)
        return None if plan is None else partition_variables(grounding, plan).holdout_mask(list(plan.holdout))

    def note_default_split(self, hidden: np.ndarray | None) -> None:
        """Print how many labels the manifest holds out where the command line names no split."""
        if hidden is not None and self.split is None and self.folds is None and self.hide is None:
            print_note(f"the split of the manifest holds out {int(hidden.sum()):,} variables")


@dataclass(frozen=True, kw_only=True)
class FoldOptions(HoldoutOptions):
    """The folds of an evaluation."""

    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Number of divisions, by consecutive seeds.")] = 1

    def plan(self, default: SplitPlan | None) -> SplitPlan | None:
        """Return the split with its repetitions; see `HoldoutOptions.plan`."""
        plan = super().plan(default)
        return replace(plan, repeats=self.repeats) if plan is not None and self.repeats > 1 else plan


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """How long a command may take, and for whom it prints."""

    time_limit: Annotated[
        str | None,
        typer.Option("--time", help="How long it may take, such as 90s, 10m or 2h; what there is then is kept."),
    ] = None
    as_json: JsonOption = False

    @contextmanager
    def show_progress(self) -> Iterator[ProgressMonitor]:
        """Show progress of what runs inside, and end it when its time is over."""
        with show_progress(quiet=self.as_json) as watch, limit_time(self.time_limit):
            yield watch


def flatten_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options of its groups as parameters of its own, as Typer wants them.

    Options that are required come first, in the order in which they are declared.

    Args:
        command: parameters whose type is a dataclass are groups, and all others arguments or options.
    """
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if not (isinstance(hint, type) and is_dataclass(hint)):
            parameters.append(_make_parameter(parameter.name, hint, parameter.default))
            continue
        groups[parameter.name] = hint
        options = get_type_hints(hint, include_extras=True)
        for field in fields(hint):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            parameters.append(_make_parameter(field.name, options[field.name], default))
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)

    @wraps(command)
    def flat(**values: Any) -> None:
        built = {name: group(**{f.name: values.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        command(**built, **values)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _make_parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
