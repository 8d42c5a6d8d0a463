"""Text to a `ModelSpec`.

The text is cut into declarations at the words that begin one, and each piece is parsed on its own: a mistake in one
declaration gives one diagnostic, and all others are still read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import lark

from relcrf.errors import Diagnostic, ModelError, Source, Span, suggestion
from relcrf.language.syntax import Builder
from relcrf.model.spec import Declaration, ModelSpec
from relcrf.resources import shipped

DECLARATIONS = ("domain", "entity", "relation", "derive", "template")
CLAUSES = ("where", "over", "per", "by", "init", "fixed", "l1", "l2", "and", "or", "not", "in")
LATER = ("latent", "rule", "candidates", "gate", "include", "symmetric", "hard", "exists", "count", "sum")
"""Words of the language that this version does not have yet."""

_BEGINS = re.compile(rf"[ \t]*({'|'.join(DECLARATIONS)})\b|(?!(?:{'|'.join(CLAUSES)})\b)\w")
"""A line that begins a declaration: with its keyword, or unindented with a word that is no clause's."""

_TERMINALS = {
    "NAME": "a name",
    "INTEGER": "a whole number",
    "SIGNED_INTEGER": "a whole number",
    "REAL": "a number",
    "SIGNED_REAL": "a number",
    "STRING": "a text in quotes",
    "COMPARISON": "a comparison",
    "PLUS": "'+'",
    "TIMES": "'*'",
    "$END": "the end of the declaration",
}
_MAX_DEPTH = 100
"""Brackets inside brackets; deeper text is no model, and would exhaust Python's stack."""


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
    declarations: list[Declaration] = []
    problems: list[Diagnostic] = []
    for piece in _pieces(text):
        found = _declaration(piece, source)
        if isinstance(found, Diagnostic):
            problems.append(found)
        elif found is not None:
            declarations.append(found)
    return ModelSpec(tuple(declarations), source=source), problems


@dataclass(frozen=True)
class _Piece:
    """Some lines of the text that hold one declaration; `line` is the number of the first."""

    text: str
    line: int


def _pieces(text: str) -> Iterator[_Piece]:
    lines = text.split("\n")
    starts = [k for k, line in enumerate(lines) if _BEGINS.match(line)]
    if not starts or starts[0] > 0:
        starts.insert(0, 0)
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield _Piece("\n".join(lines[start:stop]), start + 1)


@cache
def _parser() -> lark.Lark:
    grammar = shipped("grammar", "rcrf.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=True, maybe_placeholders=False)


def _declaration(piece: _Piece, source: Source) -> Declaration | Diagnostic | None:
    """The declaration of a piece, what is wrong with it, or None where it holds only comments."""
    code = re.sub(r"#[^\n]*", "", piece.text)
    first = re.search(r"\S", code)
    if first is None:
        return None
    word = re.match(r"\w+", code[first.start() :])
    if word is None or word.group() not in DECLARATIONS:
        return _no_declaration(piece, source, first.start(), word.group() if word else code[first.start()])
    depth = 0
    for at, character in enumerate(code):
        depth += (character in "([{") - (character in ")]}")
        if depth > _MAX_DEPTH:
            return Diagnostic("E001", f"more than {_MAX_DEPTH} brackets inside each other", _at(piece, source, at, 1))
    interactive = _parser().parse_interactive(piece.text)
    seen: list[lark.Token] = []
    try:
        for token in interactive.lexer_thread.lex(interactive.parser_state):
            interactive.feed_token(token)
            seen.append(token)
        tree = interactive.feed_eof(seen[-1])
    except lark.UnexpectedInput as error:
        return _syntax_error(error, interactive, seen, piece, source)
    builder = Builder(source, piece.line - 1)
    try:
        return builder.declaration(tree)
    except RecursionError:
        return Diagnostic("E001", "the expression is nested too deeply", _at(piece, source, first.start(), 1))


def _at(piece: _Piece, source: Source, offset: int, width: int) -> Span:
    """A place of a piece, by its offset in the piece's text."""
    before = piece.text[:offset]
    line = before.count("\n")
    column = offset - (before.rfind("\n") + 1) + 1
    return Span(source, piece.line + line, column, piece.line + line, column + width)


def _no_declaration(piece: _Piece, source: Source, offset: int, word: str) -> Diagnostic:
    place = _at(piece, source, offset, len(word))
    if word in LATER or word == "predict":
        return _later(word if word != "predict" else "predict relation", place)
    hint = suggestion(word, DECLARATIONS) or f"a declaration begins with {', '.join(DECLARATIONS)}"
    return Diagnostic("E002", f"'{word}' begins no declaration", place, hint)


def _later(word: str, place: Span) -> Diagnostic:
    message = f"'{word}' is a word of the language that this version of relcrf does not have yet"
    return Diagnostic("E003", message, place, "see docs/language.md for what it has")


def _syntax_error(
    error: lark.UnexpectedInput, interactive: Any, seen: list[lark.Token], piece: _Piece, source: Source
) -> Diagnostic:
    """What was found, what was expected instead, and a remedy for the usual slips."""
    if isinstance(error, lark.UnexpectedToken) and error.token.type != "$END":
        found, offset = str(error.token), error.token.start_pos or 0
    elif isinstance(error, lark.UnexpectedCharacters):
        offset = error.pos_in_stream or 0
        found = piece.text[offset]
    else:
        last = seen[-1]
        found, offset = "", (last.end_pos or 0)
    place = _at(piece, source, offset, max(1, len(found.split("\n")[0])))
    previous = str(seen[-1]) if seen else ""
    for word in (previous, found):
        if word in LATER:
            start = (seen[-1].start_pos or 0) if word == previous else offset
            return _later(word, _at(piece, source, start, len(word)))
    if previous == "predict" and found == "relation":
        return _later("predict relation", place)
    what = f"unexpected '{found}'" if found else "the declaration ends too early"
    expected = _expected(interactive)
    message = f"{what}, expected {expected}" if expected else what
    return Diagnostic("E001", message, place, _remedy(found, piece.text[offset : offset + 2], seen))


def _expected(interactive: Any) -> str:
    """The few things that could stand there; nothing where there are many."""
    accepted = interactive.accepts() - {"$END"}
    names = []
    for terminal in sorted(accepted):
        if terminal in _TERMINALS:
            names.append(_TERMINALS[terminal])
        else:
            pattern = next(t.pattern.value for t in _parser().terminals if t.name == terminal)
            names.append(f"'{pattern}'")
    names = list(dict.fromkeys(names))
    if not 0 < len(names) <= 6:
        return "an expression" if {"NAME", "LPAR"} <= accepted else ""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]


def _remedy(found: str, two: str, seen: list[lark.Token]) -> str | None:
    kinds = [str(token) for token in seen]
    if two in ("&&", "||") or found in ("&", "|"):
        return f"write '{'and' if '&' in two else 'or'}'"
    if found == "!":
        return "write 'not'"
    if found == "=" and kinds and kinds[0] in ("template", "derive") and len(kinds) > 3 and "where" in kinds + ["over"]:
        return "two values are compared with '=='"
    if found == ";":
        return "declarations and clauses need nothing to end them"
    if kinds[0] == "template":
        if "over" not in kinds and (not found or found in ("per", "by")):
            return "every template needs an 'over' clause: the random attributes that it is about"
        if found in ("where", "over", "per", "by"):
            if found in kinds:
                return f"a template has one '{found}' clause; join conditions with 'and', terms with ','"
            return "the clauses stand in this order: where, over, per, by, options"
        if found and found.isidentifier():
            return suggestion(found, ("where", "over", "per", "by", "init", "fixed", "l1", "l2", "and", "or"))
    return None
