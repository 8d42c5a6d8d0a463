"""Options of commands that use no tables, and the conversion of option groups to single options.

The module imports no numerical package, so that such commands start fast.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from relcrf.cli.help_panels import PANELS, RESOURCES
from relcrf.cli.output import print_note
from relcrf.execution.memory import AUTOMATIC_MEMORY

JsonOption = Annotated[bool, typer.Option("--json", help="Write one JSON object to standard output.")]
ManifestOption = Annotated[
    Path | None,
    typer.Option(
        "--manifest",
        metavar="PATH",
        help="Manifest of the tables in --data.",
    ),
]
MemoryOption = Annotated[
    str,
    typer.Option(
        "--memory",
        metavar="SIZE",
        rich_help_panel=RESOURCES,
        show_default=False,
        help=f"Memory limit, e.g. 500MB. Default: {AUTOMATIC_MEMORY} for tables and the ground graph.",
    ),
]


def flatten_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options of its groups as separate parameters, as Typer requires.

    Required options come first, then the options of each panel of the help, and --json at the end of the main options.
    Otherwise the order of the declarations is kept.

    Args:
        command: The command; parameters whose type is a dataclass are groups, all others are single arguments or options.
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
    parameters.sort(key=_help_order)

    @wraps(command)
    def flat_command(**values: Any) -> None:
        gc.enable()  # `__main__` disables it during the imports
        _note_kernel_cache()
        filled = {name: group(**{f.name: values.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        try:
            command(**filled, **values)
        except KeyboardInterrupt:
            raise typer.Abort from None  # Typer would convert `KeyboardInterrupt` to an exit without a message

    flat_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat_command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat_command


def _note_kernel_cache() -> None:
    """Print a note if the command uses kernels and cannot cache them in the preferred folder."""
    compilation = sys.modules.get("relcrf.kernels.compile")  # commands without kernels do not import it
    if compilation and compilation.cache_folder().note:
        print_note(compilation.cache_folder().note)


def _help_order(parameter: inspect.Parameter) -> tuple[bool, int, bool]:
    """Return the sort key of a parameter in the help text."""
    options = getattr(parameter.annotation, "__metadata__", ())
    panel = next((option.rich_help_panel for option in options if hasattr(option, "rich_help_panel")), None)
    is_json = parameter.annotation == JsonOption
    return parameter.default is not inspect.Parameter.empty, PANELS.index(panel), is_json


def _make_parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
