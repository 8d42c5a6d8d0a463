"""Text to a `ModelSpec`.

The text is cut into declarations at the words that begin one, and each piece is parsed on its own: a mistake in one
declaration gives one diagnostic, and all others are still read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lark

from relcrf.errors import Diagnostic, ModelError, Source, Span, listing, suggestion
from relcrf.language.messages import syntax_problem
from relcrf.language.syntax import Builder, Unbuildable
from relcrf.language.unread import unread
from relcrf.language.words import CLAUSES, CONTINUING, DECLARATIONS
from relcrf.model.spec import Declaration, Include, ModelSpec
from relcrf.resources import shipped

_NAME = r"[A-Za-z_]\w*"
_GAP = r"(?:\s|\#[^\n]*\n)"
_KEYWORD = rf"(?:{'|'.join(w for w in DECLARATIONS if w not in ('predict', 'rule', 'include'))})\b"
_CLAUSE = rf"(?:{'|'.join(CLAUSES)})\b"
_OTHER = rf"(?!(?:{'|'.join(CONTINUING)})\b){_NAME}"

_CUTS = re.compile(
    rf"""
    (?P<skip> \#[^\n]* | "(?:[^"\\\n]|\\.)*" )
    # A keyword and a name: nowhere inside a declaration do two names stand side by side. Or a keyword that begins a
    # line, unless it is an attribute or a value of that name.
  | (?P<random> (?<![\w.]) predict{_GAP}+relation\b (?!{_GAP}*[:,}}]) )
  | (?P<keyword> (?<![\w.]) {_KEYWORD} (?={_GAP}+(?!{_CLAUSE}){_NAME}\b(?!{_GAP}*:)) )
  | (?P<lonely> ^[ \t]* {_KEYWORD} (?!{_GAP}*[:,.}})]) )
    # A rule: no attribute of that name, behind whose colon a type stands alone.
  | (?P<rule> (?<![\w.]) rule\b (?:{_GAP}+[^\s:(){{}}\#"]+){{0,2}} {_GAP}*:
        (?!{_GAP}*(?:bag\b | -?\d+\s*\.\. | {_NAME}{_GAP}*(?:[,}}]
            | (?:predict|latent)\b (?!{_GAP}+relation\b(?!{_GAP}*[:,}}])) | {_NAME}{_GAP}*:))) )
  | (?P<include> (?<![\w.]) include{_GAP}*(?=") )
  | (?P<first> ^(?:rule|include)\b (?!{_GAP}*[:,.}})]) | ^predict\b (?=(?:{_GAP}+\w+){{1,2}}{_GAP}*\() )
    # An unindented line such as `templat linked(`.
  | (?P<odd> ^{_OTHER} (?=[ \t]+ {_OTHER} [ \t]* (?:[({{=\#]|$)) )
    """,
    re.MULTILINE | re.VERBOSE | re.ASCII,
)


def parse(text: str, name: str = "<model>", folder: Path | None = None) -> ModelSpec:
    """The specification that a text says. It is not checked: see `check.py`.

    Args:
        name: what messages call the text.
        folder: where the files that it includes are looked for; None admits none.

    Raises:
        ModelError: with every syntax error of the text.
    """
    spec, problems = read(text, name, folder)
    if problems:
        raise ModelError(problems)
    return spec


def read(text: str, name: str = "<model>", folder: Path | None = None) -> tuple[ModelSpec, list[Diagnostic]]:
    """What could be parsed of a text, and a diagnostic for each declaration that could not."""
    source = Source(name, text)
    declarations, problems = _declarations(source)
    included: list[Declaration] = []
    seen: set[Path] = set()
    if folder is not None and Path(name).is_file():
        seen.add(Path(name).resolve())
    _follow(declarations, folder, folder, seen, included, problems)
    return ModelSpec(tuple(declarations), included=tuple(included), source=source), problems


def _declarations(source: Source) -> tuple[list[Declaration], list[Diagnostic]]:
    text = source.text
    text = " " + text[1:] if text.startswith("\ufeff") else text  # the mark that some editors put at the start
    declarations: list[Declaration] = []
    problems: list[Diagnostic] = []
    for piece in _pieces(text):
        found = _declaration(piece, source)
        if isinstance(found, Diagnostic):
            problems.append(found)
        elif found is not None:
            declarations.append(found)
    return declarations, problems


def _follow(
    declarations: list[Declaration],
    root: Path | None,
    folder: Path | None,
    seen: set[Path],
    included: list[Declaration],
    problems: list[Diagnostic],
) -> None:
    """Reads the files that some declarations include, each once, and those that they include."""
    for include in declarations:
        if not isinstance(include, Include):
            continue
        if root is None or folder is None:
            message = "a model that is no file cannot include another"
            problems.append(Diagnostic("E005", message, include.span, "save it as a file beside the other"))
            continue
        if "\0" in include.path:
            problems.append(Diagnostic("E005", f"{include.path!a} is no name of a file", include.span))
            continue
        path = Path(os.path.realpath(folder / include.path))
        if path in seen:
            continue
        if len(seen) > MOST_INCLUDED:
            message = f"a model includes at most {MOST_INCLUDED} files"
            problems.append(Diagnostic("E005", message, include.span, "join some of them"))
            return
        seen.add(path)
        text = _included_text(include, root, path)
        if isinstance(text, Diagnostic):
            problems.append(text)
            continue
        inner, wrong = _declarations(Source(str(path.relative_to(root.resolve())), text))
        problems += wrong
        _follow(inner, root, path.parent, seen, included, problems)
        included += inner


MOST_INCLUDED = 200
"""Files, each of which may include the next."""

MAX_INCLUDED = 10_000_000
"""Bytes of an included file."""


def _included_text(include: Include, root: Path, path: Path) -> str | Diagnostic:
    if not path.is_relative_to(root.resolve()):
        message = f"'{include.path}' is outside the model's folder"
        return Diagnostic("E005", message, include.span, "a model includes files of its own folder and those below it")
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return Diagnostic("E005", f"'{include.path}' is no file", include.span)
        if found.st_size > MAX_INCLUDED:
            return Diagnostic("E005", f"'{include.path}' has more than {MAX_INCLUDED:,} bytes", include.span)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"'{include.path}' cannot be read: {(error.strerror or str(error)).lower()}"
        known = [p.name for p in path.parent.glob("*.rcrf")] if path.parent.is_dir() else []
        hint = suggestion(path.name, known) or "it is looked for beside the model"
        return Diagnostic("E005", message, include.span, hint)
    except UnicodeDecodeError:
        return Diagnostic("E005", f"'{include.path}' is no UTF-8 text", include.span, "save it as UTF-8")


@dataclass(frozen=True)
class _Piece:
    """Some of the text that holds one declaration: it begins in line `line`, after `indent` characters."""

    text: str
    line: int
    indent: int

    def span(self, source: Source, offset: int, width: int) -> Span:
        """A place, by its offset in the piece's text."""
        line = self.line + self.text.count("\n", 0, offset)
        column = offset - self.text.rfind("\n", 0, offset) + (self.indent if line == self.line else 0)
        return Span(source, line, column, line, column + width)


def starts(text: str) -> list[int]:
    """Where declarations begin, as offsets."""
    found = (m for m in _CUTS.finditer(text) if m.lastgroup != "skip")
    return [m.start() for m in found if m.lastgroup != "odd" or not _goes_on(text[: m.start()])]


def _goes_on(before: str) -> bool:
    """Whether something must follow what stands before, so that the next word begins no declaration."""
    for line in reversed(before.splitlines()):
        code = line.partition("#")[0].rstrip()
        if code:
            return code.endswith((":", ",", "{", "(", "=", "<", ">", "+", "-", "*", "/", "."))
    return False


def _pieces(text: str) -> Iterator[_Piece]:
    cuts = starts(text)
    line, at = 1, 0
    for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True):
        line, at = line + text.count("\n", at, start), start
        indent = start - (text.rfind("\n", 0, start) + 1)
        yield _Piece(text[start:stop], line, indent)


@cache
def _parser() -> lark.Lark:
    grammar = shipped("grammar", "rcrf.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=True, maybe_placeholders=False)


@cache
def _spelling() -> dict[str, str]:
    return {t.name: t.pattern.value for t in _parser().terminals if t.pattern.type == "str"}


_BLANK = re.compile(r"(?:\s|#[^\n]*)*")


def _declaration(piece: _Piece, source: Source) -> Declaration | Diagnostic | None:
    """The declaration of a piece, what is wrong with it, or None where it holds only comments."""
    blank = _BLANK.match(piece.text)
    start = blank.end() if blank else 0
    if start == len(piece.text):
        return None
    word = re.match(r"\w+", piece.text[start : start + 200])
    if word is None or word.group() not in DECLARATIONS:
        found = _no_declaration(piece, source, start, word.group() if word else piece.text[start])
        return unread(found, piece.text[start:], "")
    interactive: Any = _parser().parse_interactive(piece.text)
    seen: list[lark.Token] = []
    try:
        for token in interactive.lexer_thread.lex(interactive.parser_state):
            interactive.feed_token(token)
            seen.append(token)
        tree = interactive.feed_eof(seen[-1])
    except lark.UnexpectedInput as error:
        problem = syntax_problem(error, interactive, _spelling(), seen, piece.text)
        place = piece.span(source, problem.offset, problem.width)
        found = Diagnostic(problem.code, problem.message, place, problem.hint)
        return unread(found, piece.text[start:], piece.text[problem.offset :])
    try:
        return Builder(source, piece.line - 1, piece.indent).declaration(tree)
    except Unbuildable as beyond:
        return unread(Diagnostic("E001", beyond.message, beyond.span, beyond.hint), piece.text[start:], "")


def _no_declaration(piece: _Piece, source: Source, offset: int, word: str) -> Diagnostic:
    place = piece.span(source, offset, len(word))
    if not word.isprintable():
        return Diagnostic("E002", f"character {word!a} begins no declaration", place, "is this a text file?")
    hint = suggestion(word, DECLARATIONS) or f"a declaration begins with {listing(DECLARATIONS)}"
    return Diagnostic("E002", f"'{word}' begins no declaration", place, hint)
