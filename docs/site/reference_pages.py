"""The generated parts of the reference: commands from Typer, settings from the dataclasses of backends and methods."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from relcrf.backends.registry import backend_class, backend_names
from relcrf.cli.commands import COMMANDS, app
from relcrf.inference.methods import METHODS, text_setting_names
from relcrf.settings import field_types

_ENTRY = re.compile(r"^    (\w[\w, ]*): (.*?)(?=^    \S|\Z)", re.MULTILINE | re.DOTALL)


def command_line() -> str:
    """Return the reference of the commands as Markdown, grouped by their help panels."""
    group = typer.main.get_command(app)
    panels: dict[str, list[str]] = {}
    for name, entry in COMMANDS.items():
        panels.setdefault(entry.panel, []).append(name)
    lines = []
    for panel, names in panels.items():
        lines.append(f"## {panel}\n")
        lines += [text for name in names for text in _command(name, group.commands[name], group)]  # type: ignore[attr-defined]
    return "\n".join(lines)


def _command(name: str, command: Any, group: Any) -> Iterator[str]:
    """Yield the blocks of one command: its description, usage, arguments and options."""
    context = command.context_class(command, info_name=name, parent=group.context_class(group, info_name="relcrf"))
    text = inspect.cleandoc(command.help or "")
    example = re.search(r"^Example: (.+)$", text, re.MULTILINE)
    yield f"### {name}\n"
    yield re.sub(r"^Example: .+$", "", text, flags=re.MULTILINE).replace("\f", "").strip() + "\n"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"```text\n{usage}\n```\n"
    if example:
        yield f"```console\n$ {example[1]}\n```\n"
    rows = [row for row in (_parameter(each, context) for each in command.params) if row]
    yield "| Option | Description |\n| --- | --- |\n" + "\n".join(rows) + "\n"


def _parameter(parameter: Any, context: Any) -> str:
    """Return the table row of one argument or option; an empty string for a hidden one."""
    record = None if getattr(parameter, "hidden", False) else parameter.get_help_record(context)
    if record is None:
        return ""
    name, text = (" ".join(each.split()).replace("|", "\\|") for each in record)
    return f"| `{name}` | {text} |"


def settings() -> str:
    """Return the settings of every backend and inference method as Markdown tables."""
    blocks = ["## Backends\n"]
    for name in backend_names():
        kind = backend_class(name)
        blocks += _settings_table(name, kind, [field.name for field in dataclasses.fields(kind)])
    blocks.append("## Inference methods\n")
    for name, method in METHODS.items():
        blocks += _settings_table(name, method, text_setting_names(method))
    return "\n".join(blocks)


def _settings_table(name: str, kind: type, names: list[str]) -> Iterator[str]:
    """Yield the heading, the summary and the table of one class with settings."""
    types, described = field_types(kind), _descriptions(kind)
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    yield f"### {name}\n"
    yield inspect.cleandoc(kind.__doc__ or "").split("\n\nArgs:")[0] + "\n"
    rows = [
        f"| `{each}` | {getattr(types[each], '__name__', types[each])} | `{defaults[each]}` | {described.get(each, '')} |"
        for each in names
    ]
    if rows:
        yield "| Setting | Type | Default | Description |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"


def _descriptions(kind: type) -> Mapping[str, str]:
    """Return the descriptions of a class's fields: the Args sections of its docstring and of those of its bases."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        text = inspect.cleandoc(each.__dict__.get("__doc__") or "")
        section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
        for names, description in _ENTRY.findall(section[1]) if section else ():
            line = " ".join(description.split()).replace("|", "\\|")
            found |= {name.strip(): line for name in names.split(",")}
    return found
