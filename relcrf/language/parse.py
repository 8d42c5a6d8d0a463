"""Text to a `ModelSpec`.

The text is cut into declarations at the words that begin one, and each piece is parsed on its own: a mistake in one
declaration gives one diagnostic, and all others are still read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import lark

from relcrf.errors import Diagnostic, ModelError, Source, Span, listing, suggestion
from relcrf.language.messages import not_yet, syntax_problem
from relcrf.language.syntax import Builder, Unbuildable
from relcrf.language.unread import unread
from relcrf.language.words import CLAUSES, CONTINUING, DECLARATIONS, LATER
from relcrf.model.spec import Declaration, ModelSpec
from relcrf.resources import shipped

_NAME = r"[A-Za-z_]\w*"
_GAP = r"(?:\s|\#[^\n]*\n)"
_KEYWORD = rf"(?:{'|'.join(DECLARATIONS)})\b"
_CLAUSE = rf"(?:{'|'.join(CLAUSES)})\b"
_OTHER = rf"(?!(?:{'|'.join(CONTINUING)})\b){_NAME}"

_CUTS = re.compile(
    rf"""
    (?P<skip> \#[^\n]* | "(?:[^"\\\n]|\\.)*" )
    # A keyword and a name: nowhere inside a declaration do two names stand side by side. Or a keyword that begins a
    # line, unless it is an attribute or a value of that name.
  | (?P<keyword> (?<![\w.]) {_KEYWORD} (?={_GAP}+(?!{_CLAUSE}){_NAME}\b(?!{_GAP}*:)) )
  | (?P<lonely> ^[ \t]* {_KEYWORD} (?!{_GAP}*[:,.}})]) )
    # What later versions have.
  | (?P<later> ^[ \t]*(?: predict\s+relation\s+{_NAME}\s*\( | rule\b[^\n]*=> | (?:candidates|gate)[ \t]+{_NAME}
                        | include[ \t]*" ) )
    # An unindented line such as `templat linked(`.
  | (?P<odd> ^{_OTHER} (?=[ \t]+ {_OTHER} [ \t]* (?:[({{=\#]|$)) )
    """,
    re.MULTILINE | re.VERBOSE | re.ASCII,
)


def parse(text: str, name: str = "<model>") -> ModelSpec:
    """The specification that a text says. It is not checked: see `check.py`.

    Raises:
        ModelError: with every syntax error of the text.
    """
    spec, problems = read(text, name)
    if problems:
        raise ModelError(problems)
    return spec


def read(text: str, name: str = "<model>") -> tuple[ModelSpec, list[Diagnostic]]:
    """What could be parsed of a text, and a diagnostic for each declaration that could not."""
    source = Source(name, text)
    text = " " + text[1:] if text.startswith("\ufeff") else text  # the mark that some editors put at the start
    declarations: list[Declaration] = []
    problems: list[Diagnostic] = []
    for piece in _pieces(text):
        found = _declaration(piece, source)
        if isinstance(found, Diagnostic):
            problems.append(found)
        elif found is not None:
            declarations.append(found)
    return ModelSpec(tuple(declarations), source=source), _gathered(problems)


def _gathered(problems: list[Diagnostic]) -> list[Diagnostic]:
    """One diagnostic for each part of the language that is missing, however often the model uses it."""
    kept: dict[str, Diagnostic] = {}
    for k, problem in enumerate(problems):
        key = problem.message if problem.code == "E003" else str(k)
        first = kept.setdefault(key, problem)
        if first is not problem and isinstance(problem.place, Span):
            kept[key] = replace(first, notes=(*first.notes, f"also in line {problem.place.line}"))
    return [replace(p, notes=(_lines(p.notes),)) if len(p.notes) > 1 else p for p in kept.values()]


def _lines(notes: tuple[str, ...]) -> str:
    return "also in lines " + listing(note.rsplit(" ", 1)[-1] for note in notes)


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


def _pieces(text: str) -> Iterator[_Piece]:
    starts = [m.start() for m in _CUTS.finditer(text) if m.lastgroup != "skip"]
    line, at = 1, 0
    for start, stop in zip([0, *starts], [*starts, len(text)], strict=True):
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
    if word == "predict" and re.match(r"predict\s+relation\b", piece.text[offset:]):
        word = "predict relation"
    place = piece.span(source, offset, len(word.split()[0]))
    if word in LATER:
        later = not_yet(word, 0, 0)
        return Diagnostic(later.code, later.message, place, later.hint)
    if not word.isprintable():
        return Diagnostic("E002", f"character {word!a} begins no declaration", place, "is this a text file?")
    hint = suggestion(word, DECLARATIONS) or f"a declaration begins with {listing(DECLARATIONS)}"
    return Diagnostic("E002", f"'{word}' begins no declaration", place, hint)
