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

from relcrf import clustering
from relcrf.backends import registry
from relcrf.backends.gated import GatedBackend
from relcrf.cli.evaluate import COMPARED_BACKENDS
from relcrf.cli.flat_options import JsonOption
from relcrf.cli.infer import UaiTask
from relcrf.cli.output import print_json
from relcrf.cli.weights import SortKey
from relcrf.data.split_plan import RANDOM_KINDS
from relcrf.datasets import examples
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.grounding.engines.choice import NAMES
from relcrf.inference.methods import METHODS
from relcrf.resources import resource_path
from relcrf.settings import setting_names

SHELLS = ("bash", "zsh", "fish")

INFERENCE = "infer:"
"""Prefix of the names of inference methods in the tables of settings, which also contain backends."""

_COMPLETERS = {
    **dict.fromkeys(("model", "models"), "model"),
    **dict.fromkeys(
        ("data", "source", "manifest", "out", "cache", "export", "plot", "graphml", "picture", "waterfall", "evidence"),
        "path",
    ),
    **dict.fromkeys(("merged", "folder"), "path"),
    **dict.fromkeys(("setting", "select"), "setting"),
    **dict.fromkeys(("run", "first", "second"), "run"),
    "target": "target",
}
"""Kind of completion by parameter name; `_completer_for` handles the parameters that have a fixed list of values."""

_DEFAULT_BACKENDS = {
    **dict.fromkeys(("train", "evaluate"), (registry.DEFAULT_BACKEND,)),
    "compare": COMPARED_BACKENDS,
    "pareto": (GatedBackend.name,),
    "infer": (f"{INFERENCE}auto",),
}
"""Backends whose settings a command uses if its options and its run do not name a backend."""


@dataclass(frozen=True)
class CommandCompletion:
    """The completion data of a command.

    Args:
        options: The help text and the kind of completion (see `_completer_for`; None for a switch) of each option.
        arguments: The kinds of completion of the arguments; the last one may be repeated.
    """

    name: str
    summary: str
    options: Mapping[str, tuple[str, str | None]]
    arguments: tuple[str, ...]


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
        text = "\n".join([_ZSH_START, text, _read_functions("zsh")])
    if as_json:
        print_json({"shell": shell, "script": text})
    else:
        print(text, end="")


def _list_commands(group: Any) -> Iterator[CommandCompletion]:
    """Yield the completion data of all commands."""
    for name, command in group.commands.items():
        options: dict[str, tuple[str, str | None]] = {"--help": ("Show this message and exit.", None)}
        arguments = []
        for parameter in command.params:
            kind = None if getattr(parameter, "is_flag", False) else _completer_for(name, parameter)
            if parameter.param_type_name == "argument":
                arguments.append(str(kind))
                continue
            summary = str(parameter.help or "").strip()
            options |= dict.fromkeys((*parameter.opts, *parameter.secondary_opts), (summary, kind))
        yield CommandCompletion(name, (command.help or "").strip().split("\n")[0], options, tuple(arguments))


def _completer_for(command: str, parameter: Any) -> str:
    """Return the kind of completion of a parameter.

    Returns:
        `words:a b` (fixed values), `list:a b` (a comma-separated list of fixed values), a value of `_COMPLETERS`, or `none`.
    """
    if (command, parameter.name) in (("infer", "model"), ("example", "name"), ("cluster", "method")):
        words: dict[str, Iterable[str]] = {"name": examples.descriptions(), "method": clustering.METHODS}
        return f"words:{_join_words(words[parameter.name])}" if parameter.name in words else "uai"
    if parameter.name == "backend":
        kind = "list" if parameter.metavar == "NAMES" else "words"
        return f"{kind}:{_join_words(registry.backend_names())}"
    if parameter.name == "code":
        pages = resource_path("docs", "errors/README.md").parent.glob("[EW][0-9]*.md")
        return f"words:{_join_words(sorted(page.stem for page in pages))}"
    fixed: dict[str, Iterable[str]] = {
        "shell": SHELLS,
        "engine": NAMES,
        "method": sorted(METHODS),
        "task": UaiTask,
        "sort": SortKey,
        "select_by": ("log_likelihood", "accuracy"),
        "split": (*RANDOM_KINDS, "by=", "time=", "folds=", "hide="),
    }
    name = parameter.name
    return f"words:{_join_words(fixed[name])}" if name in fixed else _COMPLETERS.get(name, "none")


def _list_settings() -> dict[str, list[str]]:
    """Return the names of the settings of each backend, of all backends (`all`), and of each inference method."""
    backends = {name: setting_names(registry.backend_class(name)) for name in registry.backend_names()}
    union = sorted({name for names in backends.values() for name in names})
    return backends | {"all": union} | {f"{INFERENCE}{name}": setting_names(method) for name, method in METHODS.items()}


def _list_choices() -> dict[str, str]:
    """Return the valid values of the settings of each backend, by backend and setting, as `ess inference`."""
    return {
        f"{backend} {setting}": _join_words(values)
        for backend in registry.backend_names()
        for setting, values in registry.backend_class(backend).setting_choices().items()
    }


def _join_words(words: Iterable[str]) -> str:
    """Join words for a script; omit words that a shell would split or expand."""
    return " ".join(word for word in words if re.fullmatch(r"[\w.+:-]+=?", word))


def _case_function(function: str, replies: Mapping[str, str]) -> str:
    """Return the code of a shell function that sets REPLY to the entry of `replies` for its argument."""
    lines = "\n".join(f"        '{key}') REPLY='{answer}' ;;" for key, answer in replies.items() if answer)
    return f"{function}() {{\n    case $1 in\n{lines}\n        *) REPLY= ;;\n    esac\n}}\n"


def _bash_script(commands: list[CommandCompletion]) -> str:
    arguments = {f"{c.name} {k}": kind for c in commands for k, kind in enumerate(c.arguments)}
    last = {c.name: c.arguments[-1] for c in commands if c.arguments}
    tables = [
        "# Completion for relcrf in bash, and in zsh by bashcompinit. Written by: relcrf completion",
        f"_relcrf_commands='{_join_words(c.name for c in commands)} --help --version'\n",
        _case_function("_relcrf_flags", {c.name: _join_words(c.options) for c in commands}),
        _case_function("_relcrf_argument", arguments | last),
        *(_case_function(name, replies) for name, replies in _value_tables(commands).items()),
    ]
    return "\n".join([*tables, _read_functions("bash")])


_ZSH_START = """(( $+functions[compdef] )) || { autoload -U +X compinit && compinit; }
autoload -U +X bashcompinit && bashcompinit"""
"""The start of the script for zsh, which loads its completion system and its emulation of bash."""


def _value_tables(commands: list[CommandCompletion]) -> dict[str, dict[str, str]]:
    """Return the tables of the functions for values, by the name of the function."""
    return {
        "_relcrf_value": {f"{c.name} {flag}": kind or "" for c in commands for flag, (_, kind) in c.options.items()},
        "_relcrf_default": {name: _join_words(backends) for name, backends in _DEFAULT_BACKENDS.items()},
        "_relcrf_settings": {name: _join_words(names) for name, names in _list_settings().items()},
        "_relcrf_choices": _list_choices(),
    }


def _read_functions(shell: str) -> str:
    """Return the functions of the script for a shell, which use the tables."""
    return Path(__file__).with_name(f"completion.{shell}").read_text(encoding="utf-8")


_FISH_COMPLETERS = {
    "model": "(__fish_complete_suffix .rcrf)",
    "uai": "(__fish_complete_suffix .uai)",
    "run": "(_relcrf_runs)",
    "target": "(__fish_complete_suffix .rcrf)",
    "path": "(__fish_complete_path)",
}


def _fish_script(commands: list[CommandCompletion]) -> str:
    out = ["# Completion for relcrf in fish. Written by: relcrf completion", "complete -c relcrf -f"]
    for name, replies in _value_tables(commands).items():
        cases = [
            f"        case {_quote_fish(key)}\n            echo {_quote_fish(reply)}"
            for key, reply in replies.items()
            if reply
        ]
        out.append("\n".join([f"function {name}", "    switch $argv[1]", *cases, "    end", "end"]))
    out.append(_read_functions("fish"))
    for command in commands:
        out.append(f"complete -c relcrf -n __fish_use_subcommand -a {command.name} -d {_quote_fish(command.summary)}")
        for k, argument in enumerate(command.arguments):
            if argument != "none":
                condition = _quote_fish(f"_relcrf_argument {command.name} {k}")
                candidates = _quote_fish(_fish_candidates(command.name, argument))
                out.append(f"complete -c relcrf -n {condition} -a {candidates}")
        prefix = f"complete -c relcrf -n '__fish_seen_subcommand_from {command.name}'"
        for flag, (summary, kind) in command.options.items():
            option = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            candidates = (
                "" if kind in (None, "none") else f" -a {_quote_fish(_fish_candidates(command.name, str(kind)))}"
            )
            value = "" if kind is None else " -x"
            out.append(f"{prefix} {option}{value}{candidates} -d {_quote_fish(summary)}")
    return "\n".join(out) + "\n"


def _fish_candidates(command: str, kind: str) -> str:
    """Return the candidates of a kind of completion, as words or as a command substitution of fish."""
    form, colon, words = kind.partition(":")
    if kind == "setting":
        return f"(_relcrf_setting {command})"
    if colon:
        return f"(_relcrf_list {words})" if form == "list" else words
    return _FISH_COMPLETERS[kind]


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
