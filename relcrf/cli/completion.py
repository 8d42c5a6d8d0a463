"""Shell completion by scripts that contain all commands and options, so that <Tab> does not start Python.

With Typer's own completion, each <Tab> starts Python and imports all commands, which takes 1.9 s of CPU time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relcrf.backends import registry
from relcrf.cli.options import JsonOption
from relcrf.cli.output import print_json
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.grounding.engines.choice import NAMES
from relcrf.inference.methods import METHODS
from relcrf.resources import resource_path
from relcrf.settings import setting_names

SHELLS = ("bash", "zsh", "fish")

_COMPLETERS = {
    **dict.fromkeys(("model", "models"), "model"),
    **dict.fromkeys(("data", "out", "cache", "export", "plot", "graphml", "picture", "evidence"), "path"),
    **dict.fromkeys(("setting", "select"), "setting"),
    "run": "run",
    "target": "target",
}
"""Kind of completion by parameter name; `_completer_for` handles the parameters that have a fixed list of values."""


@dataclass(frozen=True)
class CommandCompletion:
    """The completion data of a command.

    Args:
        options: The help text and the kind of completion (see `_completer_for`; None for a switch) of each option.
        argument: The kind of completion of the argument; empty if the command has no argument.
    """

    name: str
    summary: str
    options: Mapping[str, tuple[str, str | None]]
    argument: str


def completion(
    context: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"One of {listing(SHELLS)}.")],
    as_json: JsonOption = False,
) -> None:
    """Print a shell completion script for commands, options, settings and files.

    Example: relcrf completion bash > ~/.local/share/bash-completion/completions/relcrf
    """
    if shell not in SHELLS:
        hint = f"use one of: {listing(SHELLS)}"
        raise UsageError(Diagnostic("E300", f"shell '{shell}' is not supported", hint=hint))
    commands = list(_list_commands(context.find_root().command))
    text = _fish_script(commands) if shell == "fish" else _bash_script(commands)
    if shell == "zsh":
        text = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" + text
    if as_json:
        print_json({"shell": shell, "script": text})
    else:
        print(text, end="")


def _list_commands(group: Any) -> Iterator[CommandCompletion]:
    """Yield the completion data of all commands."""
    for name, command in group.commands.items():
        options: dict[str, tuple[str, str | None]] = {"--help": ("Show this message and exit.", None)}
        argument = ""
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                argument = "uai" if name == "infer" else _completer_for(parameter.name)
                continue
            kind = None if parameter.is_flag else _completer_for(parameter.name)
            summary = str(parameter.help or "").strip()
            options |= dict.fromkeys((*parameter.opts, *parameter.secondary_opts), (summary, kind))
        yield CommandCompletion(name, (command.help or "").strip().split("\n")[0], options, argument)


def _completer_for(name: str) -> str:
    """Return the kind of completion of a parameter: `words:a b` (fixed values), a value of `_COMPLETERS`, or `none`."""
    if name == "code":
        pages = resource_path("docs", "errors/README.md").parent.glob("[EW][0-9]*.md")
        return f"words:{_join_words(sorted(page.stem for page in pages))}"
    words = {
        "shell": SHELLS,
        "backend": registry.backend_names(),
        "backends": registry.backend_names(),
        "engine": NAMES,
        "method": sorted(METHODS),
        "task": ("PR", "MAR", "MPE"),
        "select_by": ("log_likelihood", "accuracy"),
    }
    return f"words:{_join_words(words[name])}" if name in words else _COMPLETERS.get(name, "none")


def _list_settings() -> dict[str, list[str]]:
    """Return the names of the settings of each backend, and of each inference method, whose name starts with `infer:`."""
    backends = {name: setting_names(registry.backend_class(name)) for name in registry.backend_names()}
    return backends | {f"infer:{name}": setting_names(method) for name, method in METHODS.items()}


def _join_words(words: Iterable[str]) -> str:
    """Join words for a script; omit words that a shell would split or expand."""
    return " ".join(word for word in words if re.fullmatch(r"[\w.+-]+", word))


def _case_function(function: str, replies: Mapping[str, str]) -> str:
    """Return the code of a shell function that sets REPLY to the entry of `replies` for its argument."""
    lines = "\n".join(f"        '{key}') REPLY='{answer}' ;;" for key, answer in replies.items() if answer)
    return f"{function}() {{\n    case $1 in\n{lines}\n        *) REPLY= ;;\n    esac\n}}\n"


def _bash_script(commands: list[CommandCompletion]) -> str:
    tables = [
        "# Completion for relcrf in bash, and in zsh by bashcompinit. Written by: relcrf completion",
        f"_relcrf_commands='{_join_words(c.name for c in commands)} --help --version'\n",
        _case_function("_relcrf_flags", {c.name: _join_words(c.options) for c in commands}),
        _case_function(
            "_relcrf_value", {f"{c.name} {flag}": kind or "" for c in commands for flag, (_, kind) in c.options.items()}
        ),
        _case_function("_relcrf_argument", {c.name: c.argument for c in commands}),
        _case_function("_relcrf_settings", {name: _join_words(names) for name, names in _list_settings().items()}),
    ]
    return "\n".join([*tables, Path(__file__).with_name("completion.bash").read_text(encoding="utf-8")])


_FISH_COMPLETERS = {
    "model": "(__fish_complete_suffix .rcrf)",
    "uai": "(__fish_complete_suffix .uai)",
    "run": "(__fish_complete_directories)",
    "target": "(__fish_complete_suffix .rcrf)",
    "path": "(__fish_complete_path)",
}


def _fish_script(commands: list[CommandCompletion]) -> str:
    out = ["# Completion for relcrf in fish. Written by: relcrf completion", "complete -c relcrf -f"]
    for command in commands:
        out.append(f"complete -c relcrf -n __fish_use_subcommand -a {command.name} -d {_quote_fish(command.summary)}")
        prefix = f"complete -c relcrf -n '__fish_seen_subcommand_from {command.name}'"
        if command.argument not in ("", "none"):
            out.append(f"{prefix} -a {_quote_fish(_fish_candidates(command.argument))}")
        for flag, (summary, kind) in command.options.items():
            option = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            if kind == "setting":
                out += _fish_setting_lines(command, flag, option, summary)
                continue
            value = "" if kind is None else " -x" if kind == "none" else f" -x -a {_quote_fish(_fish_candidates(kind))}"
            out.append(f"{prefix} {option}{value} -d {_quote_fish(summary)}")
    return "\n".join(out) + "\n"


def _fish_setting_lines(command: CommandCompletion, flag: str, option: str, summary: str) -> Iterator[str]:
    """Yield, for each backend or inference method, a line that completes the settings of this backend or method.

    Without the option that names the backend or method, the line of the default applies.
    """
    names = METHODS if command.name == "infer" else registry.backend_names()
    default = "auto" if command.name == "infer" else registry.DEFAULT_BACKEND
    option_is_given = f"__fish_seen_argument {'-s m -l method' if command.name == 'infer' else '-s b -l backend'}"
    settings = _list_settings()
    for name in names:
        condition = f"__fish_seen_subcommand_from {command.name}; and "
        condition += f"{option_is_given}; and string match -q -- '*{name}*' (commandline -p)"
        if name == default:
            condition = f"__fish_seen_subcommand_from {command.name}; and not {option_is_given}"
        words = " ".join(f"{setting}=" for setting in settings[f"infer:{name}" if command.name == "infer" else name])
        yield f"complete -c relcrf -n {_quote_fish(condition)} {option} -x -a {_quote_fish(words)} -d {_quote_fish(summary)}"


def _fish_candidates(kind: str) -> str:
    return kind.removeprefix("words:") if kind.startswith("words:") else _FISH_COMPLETERS[kind]


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
