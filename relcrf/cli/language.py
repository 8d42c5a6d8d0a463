"""Commands for the model language: fmt, explain-error, lsp."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.markdown import Markdown

from relcrf.cli.flat_options import JsonOption
from relcrf.cli.output import console, print_json
from relcrf.errors import Diagnostic, ModelError, UsageError, suggestion
from relcrf.files import atomic_path
from relcrf.language.check import check
from relcrf.language.format import format_text
from relcrf.language.parse import parse_with_errors
from relcrf.resources import resource_path


def fmt(
    models: Annotated[list[str], typer.Argument(metavar="MODELS...", help="Model files, or '-' for standard input.")],
    only_check: Annotated[
        bool, typer.Option("--check", help="Do not change files; fail if a file is not formatted.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Format model files in place, without changing tokens or comments.

    Example: relcrf fmt models/*.rcrf --check
    """
    changed = []
    for name in models:
        text = _read_model_text(name)
        _require_valid_syntax(text, "<standard input>" if name == "-" else name)
        formatted = format_text(text)
        if name == "-" and not only_check:
            sys.stdout.buffer.write(formatted.encode())
        elif formatted != text:
            changed.append(name)
            if not only_check:
                _replace_file(Path(name), formatted)
    if only_check and changed:
        raise UsageError(
            Diagnostic("E343", f"'{name}' is not formatted", hint=f"run: relcrf fmt {name}") for name in changed
        )
    if as_json:
        print_json({"changed": changed})
    elif "-" not in models:
        console.print(f"{len(changed)} of {len(models)} files changed", highlight=False)


def _read_model_text(name: str) -> str:
    """Read a model file, or standard input if its name is '-'; models are UTF-8, regardless of the locale."""
    try:
        text = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return text.decode("utf-8")  # preserves line endings
    except OSError as error:
        message = f"the model '{name}' cannot be read: {(error.strerror or str(error)).lower()}"
        raise ModelError(Diagnostic("E004", message, hint="pass the path of a .rcrf file")) from None
    except UnicodeDecodeError:
        raise ModelError(
            Diagnostic("E004", f"the model '{name}' is not valid UTF-8", hint="save it as UTF-8")
        ) from None


def _require_valid_syntax(text: str, name: str) -> None:
    """Raise a ModelError with the syntax errors of a text."""
    problems = [p for p in parse_with_errors(text, name)[1] if p.code != "E005"]
    if problems:
        raise ModelError(problems)


def _replace_file(path: Path, text: str) -> None:
    """Write a file; if its path is a link, the target is written."""
    path = path.resolve()
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")
        partial.chmod(path.stat().st_mode)


def explain_error(
    code: Annotated[str, typer.Argument(metavar="CODE", help="Code of an error or a warning, e.g. E101.")],
    as_json: JsonOption = False,
) -> None:
    """Explain an error or warning: its meaning, an example, and how to fix it.

    Example: relcrf explain-error E101
    """
    code = code.upper()
    try:
        page = resource_path("docs", f"errors/{code}.md").read_text(encoding="utf-8")
    except (FileNotFoundError, OSError):
        index = resource_path("docs", "errors/README.md").read_text(encoding="utf-8")
        known = [word.strip("[]") for word in index.split() if word.startswith("[E") or word.startswith("[W")]
        codes = [word.split("]")[0] for word in known]
        hint = suggestion(code, codes) or "see the list of codes in docs/errors/README.md"
        raise UsageError(Diagnostic("E344", f"unknown diagnostic code '{code}'", hint=hint)) from None
    message = example_message(page)
    if as_json:
        print_json({"code": code, "page": page, "message": message})
        return
    before, heading, after = page.partition("## How to fix")
    console.print(Markdown(before))
    if message:
        console.print(message, markup=False, highlight=False, soft_wrap=True)
        console.print()
    console.print(Markdown(heading + after))


def example_message(page: str) -> str:
    """Return the diagnostics of the example model on an error page; an empty string if the page has no model."""
    _, _, rest = page.partition("## Example\n\n```rcrf\n")
    model = rest.partition("```")[0]
    if not model:
        return ""
    spec, problems = parse_with_errors(model, "wrong.rcrf")
    return "\n\n".join(d.render() for d in [*problems, *check(spec, problems)])


def lsp(
    stdio: Annotated[
        bool, typer.Option("--stdio", hidden=True, help="Accepted for compatibility with clients.")
    ] = True,
) -> None:
    """Run the language server for editors over standard input and output.

    Example: see docs/how-to/editor.md
    """
    if find_spec("pygls") is None:
        hint = "install it with: pip install 'relcrf[editor]'"
        raise UsageError(Diagnostic("E345", "the language server requires the extra 'editor'", hint=hint))
    import_module("relcrf.editor.server").main()  # imported here, because the dependencies are optional
