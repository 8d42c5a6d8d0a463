"""Option groups shared by several commands.

A group is a frozen dataclass whose fields are Typer options. If a parameter of a command has the type of a group, the
command line has all options of the group, and the command receives an instance of the group; see `flatten_options`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import typer

from relcrf import api
from relcrf.backends import run_folder
from relcrf.backends.registry import DEFAULT_BACKEND, backend_class
from relcrf.cli.flat_options import JsonOption, ManifestOption, MemoryOption
from relcrf.cli.help_panels import HOLDOUT, RESOURCES
from relcrf.cli.output import print_note
from relcrf.cli.progress import show_progress
from relcrf.cli.time_limit import limit_time
from relcrf.data.dataset import Dataset
from relcrf.data.manifest import FILE_NAME, is_applicable
from relcrf.data.split_plan import SplitPlan, parse_hide, parse_split
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.splits import HeldOutLabels, hold_out, labelled_in_grounding
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.gpu.device import load_kernels
from relcrf.grounding.block_cache import BlockCache
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.grounding import Grounding
from relcrf.progress_reporting import ProgressMonitor


class Device(StrEnum):
    """A device that runs kernels; see `relcrf.gpu.device.DEVICES`."""

    CPU = "cpu"
    GPU = "gpu"


ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="Model, a .rcrf file.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder written by 'relcrf train'.")]
DataOption = Annotated[
    str,
    typer.Option(
        "--data",
        "-d",
        metavar="SOURCE",
        help="Folder, manifest, database or URL.",
    ),
]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", metavar="PATH", rich_help_panel=RESOURCES, help="Cache folder for ground blocks."),
]
MaxFactorsOption = Annotated[
    int | None,
    typer.Option(
        "--max-factors",
        metavar="INT",
        min=1,
        rich_help_panel=RESOURCES,
        help="Maximum number of factors.",
    ),
]
BackendOption = Annotated[
    list[str] | None,
    typer.Option("--backend", "-b", metavar="NAME", help=f"Backend. Default: {DEFAULT_BACKEND}."),
]
GatedBackendOption = Annotated[
    list[str] | None, typer.Option("--backend", "-b", metavar="NAME", help="Backend with gates. Default: gated.")
]
BackendsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backend", "-b", metavar="NAMES", help=f"Backends, e.g. ess,dense; repeatable. Default: {DEFAULT_BACKEND}."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="Backend setting, e.g. l2=0.5; repeatable."),
]
OverrideSetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help="Override a training setting, e.g. inference=bp.",
    ),
]
DeviceOption = Annotated[
    Device | None,
    typer.Option(
        "--device",
        metavar="cpu|gpu",
        rich_help_panel=RESOURCES,
        help="Device; short for --set device=...",
    ),
]

SafeCsvOption = Annotated[
    bool, typer.Option("--safe-csv", help="Put ' before texts that spreadsheets would execute as formulas.")
]

CoverageOption = Annotated[
    float | None,
    typer.Option(
        "--coverage",
        metavar="FRACTION",
        show_default=False,
        help="Calibrate prediction sets that contain the true value with this probability, e.g. 0.9.",
    ),
]

EachValueOption = Annotated[
    bool,
    typer.Option("--each-value", help="Guarantee the coverage for each true value, e.g. for rare values, too."),
]

NearbyOption = Annotated[
    bool,
    typer.Option(
        "--nearby", help="Calibrate each set on the nearest held-out labels, so that all regions are covered."
    ),
]


def split_names(texts: Sequence[str] | None) -> list[str]:
    """Return the distinct names in comma-separated texts, such as the values of a repeatable option."""
    return list(dict.fromkeys(name.strip() for text in texts or () for name in text.split(",") if name.strip()))


def with_device(setting: Sequence[str] | None, device: Device | None, *, overrides: bool = False) -> list[str]:
    """Return the values of `--set` with the setting that `--device` represents.

    Args:
        overrides: Whether a run may contain another device. Otherwise, the CPU is the default, which every backend supports,
            and no setting represents it.

    Raises:
        UsageError: The device is a GPU, and no GPU is found (E382).
    """
    if device is None:
        return list(setting or ())
    others = [pair for pair in setting or () if not pair.startswith("device=")]
    if device is Device.GPU:
        load_kernels()  # raises the error before the tables are read
    return [*others, f"device={device.value}"] if device is Device.GPU or overrides else others


def require_single_backend(texts: Sequence[str] | None, default: str) -> str:
    """Return the backend that the values of `--backend` name, or the default if there are none.

    Raises:
        UsageError: The values name several backends (E300), or an empty name (E301).
    """
    names = split_names(texts)
    if len(names) > 1:
        hint = f"name one, or compare them: relcrf compare MODEL --backend {','.join(names)}"
        raise UsageError(
            Diagnostic("E300", f"this command uses one backend, not {len(names)}: {listing(names)}", hint=hint)
        )
    if texts and not names:
        backend_class("")
    return names[0] if names else default


def bindings_option(name: str) -> Any:
    """Return the option that limits the bindings of a template, with the name `name`."""
    return typer.Option(
        name,
        metavar="INT",
        min=1,
        rich_help_panel=RESOURCES,
        show_default=f"{DEFAULT_BUDGET:.0e}".replace("+0", ""),
        help="Maximum bindings per template.",
    )


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """The limit on bindings per template, and the memory limit for tables and the ground graph."""

    budget: Annotated[int, bindings_option("--budget")] = DEFAULT_BUDGET
    memory: MemoryOption = DEFAULT_MEMORY


@dataclass(frozen=True, kw_only=True)
class TableOptions(LimitOptions):
    """The tables of a command, with the limits of `LimitOptions`."""

    data: DataOption
    manifest: ManifestOption = None

    @cached_property
    def dataset(self) -> Dataset:
        """The tables, opened on first use."""
        return Dataset(self.data, manifest=self.manifest, memory=self.memory)

    def for_run(self, run: Path) -> Self:
        """Return the options with the manifest of a run, if it is applied to the tables; see `run_manifest`."""
        return replace(self, manifest=run_manifest(run, self.data, self.manifest))


def run_manifest(run: Path, data: str, manifest: Path | None) -> Path | None:
    """Return the manifest for tables of a run: the given one, or the stored one if the tables need it.

    The stored one applies to a folder without `dataset.toml` that contains one of its files or, if it names tables of a
    database, to any database; a note reports this.

    Args:
        data: Value of `--data`.
        manifest: Value of `--manifest`.
    """
    stored, folder = run_folder.contained_path(run, run_folder.TABLES), Path(data)
    if manifest is not None or not stored.is_file() or os.path.lexists(folder / FILE_NAME) or folder.suffix == ".toml":
        return manifest
    if not is_applicable(stored.read_text(encoding="utf-8"), folder):
        return None
    print_note(f"the tables of '{data}' are read as '{stored}' describes them")
    return stored


@dataclass(frozen=True, kw_only=True)
class GroundingOptions(TableOptions):
    """The tables of a command that grounds a model, the cache of ground blocks, and whether files are flushed to disk."""

    cache: CacheOption = None
    no_sync: Annotated[
        bool,
        typer.Option("--no-sync", rich_help_panel=RESOURCES, help="Do not flush runs, blocks and predictions."),
    ] = False

    @cached_property
    def block_cache(self) -> BlockCache | None:
        """The block cache in the folder of --cache; None without the option."""
        return None if self.cache is None else BlockCache(self.cache, sync=not self.no_sync)

    def ground(self, source: api.Model | api.Fit, monitor: ProgressMonitor, **options: Any) -> Grounding:
        """Ground a model, or the model of a run, on the tables."""
        monitor.start_phase("reading tables")
        return source.ground(
            self.dataset, self.budget, progress=monitor.report_grounding, cache=self.block_cache, **options
        )

    def note_cache_use(self) -> None:
        """Print which ground blocks were loaded from the cache and which were computed."""
        note_cache_use(self.block_cache)


def note_cache_use(cache: BlockCache | None) -> None:
    """Print which ground blocks were loaded from a cache and which were computed."""
    if cache is not None:
        lists = (("loaded", cache.hits), ("computed", cache.misses))
        parts = [f"{verb} {listing(names)}" for verb, names in lists if names]
        print_note(f"cache {cache.folder}: {'; '.join(parts) or 'no blocks loaded or computed'}")


@dataclass(frozen=True, kw_only=True)
class HoldoutOptions:
    """The labels that a command holds out. `relcrf.data.split_plan` documents the values of --split."""

    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            metavar="SPLIT",
            rich_help_panel=HOLDOUT,
            help="random, component, snowball, COLUMN, by=COLUMN, time=COLUMN, folds=INT or hide=FRACTION. "
            "Default: as in dataset.toml.",
        ),
    ] = None
    holdout: Annotated[
        list[str] | None,
        typer.Option("--holdout", metavar="FOLD", rich_help_panel=HOLDOUT, help="Fold to hold out; repeatable."),
    ] = None
    train: Annotated[
        list[str] | None,
        typer.Option("--train", metavar="FOLD", rich_help_panel=HOLDOUT, help="Fold to train on; repeatable."),
    ] = None
    valid: Annotated[
        list[str] | None,
        typer.Option(
            "--valid", metavar="FOLD", rich_help_panel=HOLDOUT, help="Fold to select settings on; repeatable."
        ),
    ] = None
    test: Annotated[
        list[str] | None,
        typer.Option("--test", metavar="FOLD", rich_help_panel=HOLDOUT, help="Fold to score; repeatable."),
    ] = None
    folds: Annotated[
        int | None,
        typer.Option("--folds", "-k", metavar="INT", rich_help_panel=HOLDOUT, help="Number of folds. Default: 5."),
    ] = None
    hide: Annotated[
        str | None,
        typer.Option(
            "--hide",
            metavar="FRACTION",
            rich_help_panel=HOLDOUT,
            help="Fraction of labels to hide: 0.1, or NAME=0.1 for one attribute or relation.",
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="INT", min=0, rich_help_panel=HOLDOUT, help="Seed of a random split. Default: 0."
        ),
    ] = None

    def plan(self, default: SplitPlan | None) -> SplitPlan | None:
        """Return the split of the command line, or the default if there is none, with the folds of the command line.

        Raises:
            UsageError: The options are not a valid split, or contradict each other (E349).
        """
        if self.hide is not None:
            if self.split is not None or self.folds is not None:
                message = "--hide cannot be combined with --split or --folds"
                raise UsageError(Diagnostic("E349", message, hint="remove --hide, or remove --split and --folds"))
            plan: SplitPlan | None = parse_hide(self.hide, self.seed or 0)
        elif self.split is None and self.folds is None:
            plan = default
            if plan is not None and self.seed is not None and not plan.is_deterministic:
                plan = replace(plan, seed=self.seed)
        else:
            plan = parse_split(self.split or "random", self.folds, self.seed or 0)
        if plan is None:
            return None
        parts = [option for option, folds in self._named_folds.items() if folds and option != "--holdout"]
        if self.holdout and parts:
            message = f"--holdout cannot be combined with {listing(parts)}"
            raise UsageError(Diagnostic("E349", message, hint="use --test instead of --holdout"))
        try:
            plan = replace(plan, holdout=tuple(self.holdout)) if self.holdout else plan
            return plan.with_parts(self.train or (), self.valid or (), self.test or ())
        except UsageError as error:
            if default is None or not default.has_parts or plan is not default:
                raise
            hint = "write --split again to replace the parts of dataset.toml or of the run folder"
            raise UsageError(replace(error.diagnostics[0], hint=hint)) from None

    def require_plan(self, default: SplitPlan | None) -> SplitPlan:
        """Return the split as `plan` does, but raise an error if there is none.

        Raises:
            UsageError: No split is specified (E341).
        """
        plan = self.plan(default)
        if plan is None:
            hint = "use --split COLUMN, --split folds=10 or --split hide=0.1, or add a [split] section to dataset.toml"
            raise UsageError(Diagnostic("E341", "no split is specified, so no labels can be held out", hint=hint))
        return plan

    def holdout_plan(self, default: SplitPlan | None) -> SplitPlan | None:
        """Return the split with the folds to hold out; None if nothing is held out. For details see `plan`.

        Raises:
            UsageError: Only one of the split and the folds to hold out is specified (E341).
        """
        plan = self.plan(default)
        if plan is not None and (plan.holdout or plan.has_parts):
            return plan
        named = [option for option, folds in self._named_folds.items() if folds]
        if named or (plan is not None and plan != default):
            hint = "use --split COLUMN --holdout VALUE, --split folds=10 --holdout 1, or --split hide=0.1"
            message = f"--split and {listing(named or ['--holdout'])} must be used together"
            raise UsageError(Diagnostic("E341", message, hint=hint))
        return None

    def require_split_of_run(self) -> None:
        """Check that the options do not change the split of a run, whose other labels were training labels.

        Raises:
            UsageError: They change its seed (E349).
        """
        if self.seed is not None and self.split is None and self.folds is None and self.hide is None:
            message = "--seed would hold out labels with which the run was trained"
            raise UsageError(Diagnostic("E349", message, hint="remove --seed, or name the split with --split"))

    @property
    def _named_folds(self) -> dict[str, list[str] | None]:
        return {"--holdout": self.holdout, "--train": self.train, "--valid": self.valid, "--test": self.test}

    def held_out(self, grounding: Grounding) -> HeldOutLabels | None:
        """Return the held-out labels; None if nothing is held out."""
        plan = self.holdout_plan(grounding.bound.dataset.split)
        return None if plan is None else hold_out(grounding, plan)

    def hidden(self, grounding: Grounding) -> np.ndarray | None:
        """Return a mask of the variables whose labels are hidden, shape (n_variables,); None if nothing is held out."""
        held_out = self.held_out(grounding)
        return None if held_out is None else held_out.hidden

    def note_held_out_labels(self, grounding: Grounding) -> None:
        """Print the numbers of labels of named parts, and how many variables the split of the manifest holds out."""
        default = grounding.bound.dataset.split
        plan = self.holdout_plan(default)
        if plan is None:
            return
        held_out = hold_out(grounding, plan)
        if self.split is None and self.folds is None and self.hide is None:
            print_note(f"the split of dataset.toml holds out {int(held_out.hidden.sum()):,} variables")
        if plan.has_parts:
            labelled = labelled_in_grounding(grounding)
            print_note(str(held_out.fold("", labelled).part_sizes(labelled)))


@dataclass(frozen=True, kw_only=True)
class FoldOptions(HoldoutOptions):
    """The folds of an evaluation, and the number of repeated splits."""

    repeats: Annotated[
        int,
        typer.Option(
            "--repeats", metavar="INT", min=1, rich_help_panel=HOLDOUT, help="Number of splits, with consecutive seeds."
        ),
    ] = 1

    def plan(self, default: SplitPlan | None) -> SplitPlan | None:
        """Return the split with the number of repetitions; see `HoldoutOptions.plan`."""
        plan = super().plan(default)
        return replace(plan, repeats=self.repeats) if plan is not None and self.repeats > 1 else plan


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """The time limit and the output format of a command."""

    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit",
            metavar="TIME",
            rich_help_panel=RESOURCES,
            help="Time limit, e.g. 90s, 10m or 2h.",
        ),
    ] = None
    as_json: JsonOption = False

    @contextmanager
    def show_progress(self) -> Iterator[ProgressMonitor]:
        """Display the progress of the enclosed code, and interrupt the code at the time limit."""
        with show_progress(quiet=self.as_json) as monitor, limit_time(self.time_limit):
            yield monitor
