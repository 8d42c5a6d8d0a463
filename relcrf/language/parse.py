"""The parser, which converts text to a `ModelSpec`.

`tokens.py` splits the text into declarations, and each declaration is parsed separately. An invalid declaration
therefore results in one diagnostic and does not affect other declarations.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lark

from relcrf.errors import Diagnostic, ModelError, Span, listing, suggestion
from relcrf.language.grammar import load_grammar
from relcrf.language.keywords import DECLARATION_KEYWORDS
from relcrf.language.syntax_messages import describe_syntax_error
from relcrf.language.syntax_tree import DeclarationBuilder, InvalidSyntaxTreeError
from relcrf.language.tokens import DeclarationTokens, SourceText, Token, literal_terminals
from relcrf.language.unparsed import unparsed_declaration
from relcrf.model.spec import Declaration, Include, ModelSpec


def parse(text: str, name: str = "<model>", folder: Path | None = None) -> ModelSpec:
    """Parse a text; the declarations are not validated (see `check.py`).

    Args:
        name: the name of the text in messages.
        folder: the folder to which the paths of `include` are relative; if None, `include` is an error.

    Raises:
        ModelError: if there are syntax errors; it contains all of them.
    """
    spec, problems = parse_with_errors(text, name, folder)
    if problems:
        raise ModelError(problems)
    return spec


def parse_with_errors(
    text: str, name: str = "<model>", folder: Path | None = None
) -> tuple[ModelSpec, list[Diagnostic]]:
    """Parse a text; return its valid declarations, and one diagnostic for each invalid declaration."""
    return parse_source(SourceText(text, name), folder)


def parse_source(text: SourceText, folder: Path | None = None) -> tuple[ModelSpec, list[Diagnostic]]:
    """Parse a text and the files that it includes; return the valid declarations and the syntax errors."""
    name = text.source.name
    declarations, problems = parse_without_includes(text)
    seen = {Path(name).resolve()} if folder is not None and Path(name).is_file() else set()
    included, include_problems = _partition(_parse_includes(declarations, folder, folder, seen))
    return ModelSpec(tuple(declarations), included=tuple(included), source=text.source), [*problems, *include_problems]


def parse_without_includes(text: SourceText) -> tuple[list[Declaration], list[Diagnostic]]:
    """Parse a text without the files that it includes; return the valid declarations and the syntax errors."""
    return _partition(_parse_declaration(text, each) for each in text.declarations)


def _partition(results: Iterable[Declaration | Diagnostic]) -> tuple[list[Declaration], list[Diagnostic]]:
    collected = list(results)
    return [d for d in collected if not isinstance(d, Diagnostic)], [d for d in collected if isinstance(d, Diagnostic)]


def _parse_includes(
    declarations: list[Declaration], root: Path | None, folder: Path | None, seen: set[Path]
) -> Iterator[Declaration | Diagnostic]:
    """Yield the declarations and errors of each included file once; the files that a file includes come before it."""
    for include in declarations:
        if not isinstance(include, Include):
            continue
        if root is None or folder is None:
            message = "a model that was not read from a file cannot include files"
            yield Diagnostic("E005", message, include.span, "save the model in the folder of the included file")
            continue
        if "\0" in include.path:
            yield Diagnostic("E005", f"{include.path!a} is not a valid file name", include.span)
            continue
        path = Path(os.path.realpath(folder / include.path))
        if path in seen:
            continue
        if len(seen) > MAX_INCLUDED_FILES:
            message = f"the model includes more than {MAX_INCLUDED_FILES} files"
            yield Diagnostic("E005", message, include.span, "merge some of them")
            return
        seen.add(path)
        text = _read_included_file(include, root, path)
        if isinstance(text, Diagnostic):
            yield text
            continue
        included, problems = parse_without_includes(SourceText(text, str(path.relative_to(root.resolve()))))
        yield from problems
        yield from _parse_includes(included, root, path.parent, seen)
        yield from included


_WORD = re.compile(r"\w+|.", re.DOTALL)

MAX_INCLUDED_FILES = 200
"""Maximum number of files that a model includes, directly or through other files; it limits the recursion depth."""

MAX_INCLUDED_BYTES = 10_000_000
"""Maximum size of an included file."""


def _read_included_file(include: Include, root: Path, path: Path) -> str | Diagnostic:
    if not path.is_relative_to(root.resolve()):
        message = f"'{include.path}' is outside the model's folder"
        return Diagnostic("E005", message, include.span, "include only files in the model's folder and its subfolders")
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return Diagnostic("E005", f"'{include.path}' is not a regular file", include.span)
        if status.st_size > MAX_INCLUDED_BYTES:
            return Diagnostic("E005", f"'{include.path}' has more than {MAX_INCLUDED_BYTES:,} bytes", include.span)
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        message = f"'{include.path}' cannot be read: {(error.strerror or str(error)).lower()}"
        names = [p.name for p in path.parent.glob("*.rcrf")] if path.parent.is_dir() else []
        hint = suggestion(path.name, names) or "write the path relative to the including file"
        return Diagnostic("E005", message, include.span, hint)
    except UnicodeDecodeError:
        return Diagnostic("E005", f"'{include.path}' is not UTF-8 text", include.span, "save it as UTF-8")


def feed_parser(tokens: Iterable[Token]) -> tuple[Any, list[lark.Token], Token | None]:
    """Feed tokens to a new parser until it rejects one.

    A word is parsed as a keyword if the grammar allows this keyword at its position, and otherwise as a name.

    Returns:
        Lark's interactive parser, the accepted tokens, and the rejected token (None if all tokens were accepted).
    """
    parser: Any = load_grammar().parse_interactive()
    state = parser.parser_state
    accepted: list[lark.Token] = []
    states, reserved = state.parse_conf.parse_table.states, _keyword_terminals()
    for token in tokens:
        terminal, text, start = token
        if terminal in ("NAME", "AGGREGATE"):
            allowed = states[state.position]
            if text in reserved and reserved[text] in allowed:
                terminal = reserved[text]
            elif terminal not in allowed:
                terminal = "NAME"
        lark_token = lark.Token(terminal, text, start, None, None, None, None, start + len(text))
        try:
            state.feed_token(lark_token)
        except lark.UnexpectedToken:
            return parser, accepted, token
        accepted.append(lark_token)
    return parser, accepted, None


@cache
def _keyword_terminals() -> dict[str, str]:
    return {text: terminal for terminal, text in literal_terminals().items() if text.isidentifier()}


def _parse_declaration(text: SourceText, declaration_tokens: DeclarationTokens) -> Declaration | Diagnostic:
    """Parse a declaration; return it, or the diagnostic of its syntax error."""
    tokens = declaration_tokens.tokens
    word = _WORD.match(text.text, declaration_tokens.start)
    if word is not None and word[0] not in DECLARATION_KEYWORDS:
        return unparsed_declaration(_unknown_keyword(word[0], text.span(*word.span())), tokens)
    parser, accepted, rejected = feed_parser(tokens)
    try:
        tree = parser.feed_eof(accepted[-1]) if rejected is None else None
    except lark.UnexpectedToken:
        tree = None
    if tree is None:
        return unparsed_declaration(
            describe_syntax_error(text, parser, accepted, tokens), tokens, tokens[len(accepted) :]
        )
    try:
        return DeclarationBuilder(text).build_declaration(tree)
    except InvalidSyntaxTreeError as error:
        return unparsed_declaration(Diagnostic("E001", error.message, error.span, error.hint), tokens)


def _unknown_keyword(word: str, span: Span) -> Diagnostic:
    if not word.isprintable():
        return Diagnostic("E002", f"a declaration cannot start with {word!a}", span, "check that this is a text file")
    hint = suggestion(word, DECLARATION_KEYWORDS) or f"the keywords are {listing(DECLARATION_KEYWORDS)}"
    return Diagnostic("E002", f"unknown keyword '{word}'", span, hint)
