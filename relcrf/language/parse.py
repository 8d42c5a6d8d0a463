"""Text to a `ModelSpec`.

Each declaration (`tokens.py` cuts the text) is parsed alone: a mistake in one gives one diagnostic, and all others are read.
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
from relcrf.language.keywords import DECLARATION_KEYWORDS
from relcrf.language.syntax_messages import describe_syntax_error
from relcrf.language.syntax_tree import DeclarationBuilder, InvalidSyntaxTreeError
from relcrf.language.tokens import DeclarationTokens, SourceText, Token, literal_terminals, load_grammar
from relcrf.language.unparsed import unparsed_declaration
from relcrf.model.spec import Declaration, Include, ModelSpec


def parse(text: str, name: str = "<model>", folder: Path | None = None) -> ModelSpec:
    """The specification that a text says. It is not checked: see `check.py`.

    Args:
        name: what messages call the text.
        folder: where the files that it includes are looked for; None admits none.

    Raises:
        ModelError: with every syntax error of the text.
    """
    spec, problems = parse_with_errors(text, name, folder)
    if problems:
        raise ModelError(problems)
    return spec


def parse_with_errors(
    text: str, name: str = "<model>", folder: Path | None = None
) -> tuple[ModelSpec, list[Diagnostic]]:
    """What could be parsed of a text, and a diagnostic for each declaration that could not."""
    return parse_source(SourceText(text, name), folder)


def parse_source(text: SourceText, folder: Path | None = None) -> tuple[ModelSpec, list[Diagnostic]]:
    """Return what could be parsed of a text and its files, and a diagnostic for each declaration that could not."""
    name = text.source.name
    declarations, problems = parse_without_includes(text)
    seen = {Path(name).resolve()} if folder is not None and Path(name).is_file() else set()
    included, wrong = _partition(_parse_includes(declarations, folder, folder, seen))
    return ModelSpec(tuple(declarations), included=tuple(included), source=text.source), [*problems, *wrong]


def parse_without_includes(text: SourceText) -> tuple[list[Declaration], list[Diagnostic]]:
    """As `parse_source`, without the files that the text includes."""
    return _partition(_parse_declaration(text, each) for each in text.declarations)


def _partition(found: Iterable[Declaration | Diagnostic]) -> tuple[list[Declaration], list[Diagnostic]]:
    every = list(found)
    return [d for d in every if not isinstance(d, Diagnostic)], [d for d in every if isinstance(d, Diagnostic)]


def _parse_includes(
    declarations: list[Declaration], root: Path | None, folder: Path | None, seen: set[Path]
) -> Iterator[Declaration | Diagnostic]:
    """Yield what the files say that some declarations include, each once, after what those include in turn."""
    for include in declarations:
        if not isinstance(include, Include):
            continue
        if root is None or folder is None:
            message = "a model that is no file cannot include another"
            yield Diagnostic("E005", message, include.span, "save it as a file beside the other")
            continue
        if "\0" in include.path:
            yield Diagnostic("E005", f"{include.path!a} is no name of a file", include.span)
            continue
        path = Path(os.path.realpath(folder / include.path))
        if path in seen:
            continue
        if len(seen) > MAX_INCLUDED_FILES:
            message = f"a model includes at most {MAX_INCLUDED_FILES} files"
            yield Diagnostic("E005", message, include.span, "join some of them")
            return
        seen.add(path)
        text = _read_included_file(include, root, path)
        if isinstance(text, Diagnostic):
            yield text
            continue
        inner, wrong = parse_without_includes(SourceText(text, str(path.relative_to(root.resolve()))))
        yield from wrong
        yield from _parse_includes(inner, root, path.parent, seen)
        yield from inner


_WORD = re.compile(r"\w+|.", re.DOTALL)

MAX_INCLUDED_FILES = 200
"""Files, each of which may include the next."""

MAX_INCLUDED_BYTES = 10_000_000
"""Bytes of an included file."""


def _read_included_file(include: Include, root: Path, path: Path) -> str | Diagnostic:
    if not path.is_relative_to(root.resolve()):
        message = f"'{include.path}' is outside the model's folder"
        return Diagnostic("E005", message, include.span, "a model includes files of its own folder and those below it")
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return Diagnostic("E005", f"'{include.path}' is no file", include.span)
        if found.st_size > MAX_INCLUDED_BYTES:
            return Diagnostic("E005", f"'{include.path}' has more than {MAX_INCLUDED_BYTES:,} bytes", include.span)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"'{include.path}' cannot be read: {(error.strerror or str(error)).lower()}"
        known = [p.name for p in path.parent.glob("*.rcrf")] if path.parent.is_dir() else []
        hint = suggestion(path.name, known) or "it is looked for beside the model"
        return Diagnostic("E005", message, include.span, hint)
    except UnicodeDecodeError:
        return Diagnostic("E005", f"'{include.path}' is no UTF-8 text", include.span, "save it as UTF-8")


def feed_parser(tokens: Iterable[Token]) -> tuple[Any, list[lark.Token], Token | None]:
    """Feed tokens to a new parser until one does not fit.

    A word is a word of the language where the grammar admits it, and else a name.

    Returns:
        Lark's interactive parser, the tokens that it took, and the one that it did not.
    """
    parser: Any = load_grammar().parse_interactive()
    state = parser.parser_state
    taken: list[lark.Token] = []
    states, reserved = state.parse_conf.parse_table.states, _keyword_terminals()
    for token in tokens:
        terminal, text, start = token
        if terminal in ("NAME", "FIGURE"):
            admitted = states[state.position]
            if text in reserved and reserved[text] in admitted:
                terminal = reserved[text]
            elif terminal not in admitted:
                terminal = "NAME"
        known = lark.Token(terminal, text, start, None, None, None, None, start + len(text))
        try:
            state.feed_token(known)
        except lark.UnexpectedToken:
            return parser, taken, token
        taken.append(known)
    return parser, taken, None


@cache
def _keyword_terminals() -> dict[str, str]:
    return {text: terminal for terminal, text in literal_terminals().items() if text.isidentifier()}


def _parse_declaration(text: SourceText, declared: DeclarationTokens) -> Declaration | Diagnostic:
    """Return a declaration, or what is wrong with it."""
    tokens = declared.tokens
    word = _WORD.match(text.text, declared.start)
    if word is not None and word[0] not in DECLARATION_KEYWORDS:
        return unparsed_declaration(_unknown_keyword(word[0], text.span(*word.span())), tokens)
    parser, taken, wrong = feed_parser(tokens)
    try:
        tree = parser.feed_eof(taken[-1]) if wrong is None else None
    except lark.UnexpectedToken:
        tree = None
    if tree is None:
        return unparsed_declaration(describe_syntax_error(text, parser, taken, tokens), tokens, tokens[len(taken) :])
    try:
        return DeclarationBuilder(text).build_declaration(tree)
    except InvalidSyntaxTreeError as beyond:
        return unparsed_declaration(Diagnostic("E001", beyond.message, beyond.span, beyond.hint), tokens)


def _unknown_keyword(word: str, place: Span) -> Diagnostic:
    if not word.isprintable():
        return Diagnostic("E002", f"character {word!a} begins no declaration", place, "is this a text file?")
    hint = suggestion(word, DECLARATION_KEYWORDS) or f"a declaration begins with {listing(DECLARATION_KEYWORDS)}"
    return Diagnostic("E002", f"'{word}' begins no declaration", place, hint)
