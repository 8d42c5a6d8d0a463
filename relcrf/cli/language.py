"""Commands about the language itself: fmt, explain-error, lsp."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.markdown import Markdown

from relcrf.cli.options import JsonOption
from relcrf.cli.output import console, print_json
from relcrf.errors import Diagnostic, ModelError, UsageError, suggestion
from relcrf.files import atomic_path
from relcrf.language.check import check
from relcrf.language.format import format_text
from relcrf.language.parse import parse_with_errors
from relcrf.resources import resource_path


def fmt(
    models: Annotated[list[str], typer.Argument(help="Model files, or '-' for standard input.")],
    only_check: Annotated[bool, typer.Option("--check", help="Change nothing; fail if a file would change.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Format models in place: the same tokens and comments in the common layout.

    Example: relcrf fmt models/*.rcrf --check
    """
    changed = []
    for name in models:
        text = sys.stdin.read() if name == "-" else _read_model_text(Path(name))
        _require_valid_syntax(text, "<standard input>" if name == "-" else name)
        formatted = format_text(text)
        if name == "-" and not only_check:
            sys.stdout.write(formatted)
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


def _read_model_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")  # line ends as they are
    except OSError as error:
        message = f"the model '{path}' cannot be read: {(error.strerror or str(error)).lower()}"
        raise ModelError(Diagnostic("E004", message, hint="name a .rcrf file")) from None
    except UnicodeDecodeError:
        raise ModelError(Diagnostic("E004", f"the model '{path}' is no UTF-8 text", hint="save it as UTF-8")) from None


def _require_valid_syntax(text: str, name: str) -> None:
    """Refuses a text with syntax errors, which are said at their places in the whole file."""
    problems = [p for p in parse_with_errors(text, name)[1] if p.code != "E005"]
    if problems:
        raise ModelError(problems)


def _replace_file(path: Path, text: str) -> None:
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")
        partial.chmod(path.stat().st_mode)


def explain_error(
    code: Annotated[str, typer.Argument(help="The code of an error or a warning, such as E101.")],
    as_json: JsonOption = False,
) -> None:
    """Explain a diagnostic: what it means, a model that has it, its message, and the model mended.

    Example: relcrf explain-error E101
    """
    code = code.upper()
    try:
        page = resource_path("docs", f"errors/{code}.md").read_text(encoding="utf-8")
    except (FileNotFoundError, OSError):
        index = resource_path("docs", "errors/README.md").read_text(encoding="utf-8")
        known = [word.strip("[]") for word in index.split() if word.startswith("[E") or word.startswith("[W")]
        codes = [word.split("]")[0] for word in known]
        hint = suggestion(code, codes) or "the codes are listed in docs/errors/README.md"
        raise UsageError(Diagnostic("E344", f"there is no diagnostic '{code}'", hint=hint)) from None
    message = example_message(page)
    if as_json:
        print_json({"code": code, "page": page, "message": message})
        return
    before, wrong, after = page.partition("## How to fix")
    console.print(Markdown(before))
    if message:
        console.print(message, markup=False, highlight=False, soft_wrap=True)
        console.print()
    console.print(Markdown(wrong + after))


def example_message(page: str) -> str:
    """What relcrf says of the wrong model of a page; nothing where it has none."""
    _, _, rest = page.partition("## Example\n\n```rcrf\n")
    model = rest.partition("```")[0]
    if not model:
        return ""
    spec, problems = parse_with_errors(model, "wrong.rcrf")
    return "\n\n".join(d.render() for d in [*problems, *check(spec, problems)])


def lsp(
    stdio: Annotated[
        bool, typer.Option("--stdio", hidden=True, help="The only way it speaks; many clients say so.")
    ] = True,
) -> None:
    """Serve editors over standard input and output: the language server.

    Example: see docs/how-to/editor.md
    """
    if find_spec("pygls") is None:
        hint = "install it with: pip install 'relcrf[editor]'"
        raise UsageError(Diagnostic("E345", "the language server needs the extra 'editor'", hint=hint))
    import_module("relcrf.editor.server").main()  # its packages are an extra, so that it cannot be imported above
