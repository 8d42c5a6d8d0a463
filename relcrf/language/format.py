"""The formatter of models; it changes only white space, and preserves the order of tokens and comments.

A declaration that is written on one line remains on one line if it is not too long. In other declarations, each clause
and each attribute starts a line; long lines are broken at conjuncts and commas. Adjacent trailing comments are aligned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from relcrf.errors import ModelError
from relcrf.language.keywords import CLAUSE_KEYWORDS, OPTION_KEYWORDS, TEMPLATE_CLAUSES
from relcrf.language.parse import parse_without_includes
from relcrf.language.tokens import DeclarationTokens, SourceText, Token

MAX_LINE_WIDTH = 100
"""Maximum number of columns of a line without its comment."""

MAX_COMMENT_COLUMN = 60
"""Last column at which trailing comments are aligned; the comment of a longer line directly follows the text."""

INDENT = "    "

_DEPTH_CHANGES = {"{": 1, "(": 1, "}": -1, ")": -1}
_BINARY = {"==", "!=", "<", "<=", ">", ">=", "=>", "<=>", "+", "-", "*", "/", "=", "and", "or", "in"}
_BEFORE_OPERAND = _BINARY | {"(", "[", "{", ",", "..", "not", ":", *CLAUSE_KEYWORDS, "rule"}


def format_text(text: str) -> str:
    """Format a model; formatting is idempotent.

    Raises:
        ModelError: if the text has syntax errors. Included files are not read.
    """
    source = SourceText(text)
    _, problems = parse_without_includes(source)
    if problems:
        raise ModelError(problems)
    starts = [*(declaration.start for declaration in source.declarations), len(text)]
    blocks = [
        _DeclarationLayout.from_tokens(source.tokens_between(d.start, stop), d)
        for d, stop in zip(source.declarations, starts[1:], strict=True)
    ]
    lines = _without_comments(_DeclarationLayout.from_tokens(source.tokens_between(0, starts[0])).trailing_lines)
    was_long = False
    for k, block in enumerate(blocks):
        block_lines = list(block.lines())
        if k:
            has_blank_line = (was_long or len(block_lines) > 1) and "" not in blocks[k - 1].trailing_lines
            lines += _without_comments(
                ["", *blocks[k - 1].trailing_lines] if has_blank_line else blocks[k - 1].trailing_lines
            )
        lines += block_lines
        was_long = len(block_lines) > 1
    lines += _without_comments(blocks[-1].trailing_lines) if blocks else []
    out = "\n".join(_align_comments(lines)).strip("\n")
    return out + "\n" if out else ""


def _without_comments(lines: list[str]) -> list[tuple[str, str]]:
    return [(line, "") for line in lines]


@dataclass
class _FormattedToken:
    """A token with its comments."""

    text: str
    kind: str
    trailing_comment: str = ""
    """The comment that follows the token on its line."""
    leading_comments: list[str] = field(default_factory=list)
    """The comments on separate lines before the token."""
    is_type_colon: bool = False
    """Whether the token is the colon before the type of an attribute or random relation; spaces surround this colon."""


@dataclass
class _DeclarationLayout:
    """A declaration with the comments and blank lines that follow it."""

    tokens: list[_FormattedToken]
    trailing_lines: list[str]
    is_one_line: bool
    hanging_indent: int = 0
    """Number of columns from the indent to the content of a clause: the length of the longest keyword plus one."""

    attribute_starts: frozenset[int] = frozenset()
    """The indices of the tokens that start attributes."""

    @staticmethod
    def from_tokens(source_tokens: Iterable[Token], declaration: DeclarationTokens | None = None) -> _DeclarationLayout:
        tokens: list[_FormattedToken] = []
        pending: list[str] = []
        breaks = 0
        is_line_empty, is_one_line = True, True
        for token in source_tokens:
            if token.kind == "space":
                breaks += token.text.count("\n")
                is_line_empty |= "\n" in token.text
                if breaks > 1 and (not pending or pending[-1]):
                    pending.append("")
            elif token.kind == "comment":
                breaks = 0
                if tokens and not is_line_empty and not pending and not tokens[-1].trailing_comment:
                    tokens[-1].trailing_comment = token.text.rstrip()
                else:
                    pending.append(token.text.rstrip())
            else:
                if tokens and breaks + len(pending) > 0:
                    is_one_line = False
                breaks = 0
                tokens.append(
                    _FormattedToken(token.text, token.kind, leading_comments=[line for line in pending if line])
                )
                pending = []
                is_line_empty = False
        if any(t.trailing_comment for t in tokens[:-1]):
            is_one_line = False
        layout = _DeclarationLayout(tokens, pending, is_one_line)
        if declaration is not None:
            layout.attribute_starts = frozenset(declaration.attributes.values())
            colons = {declaration.body_index} if declaration.keyword == "predict" else set()
            for k in colons.union(name + 1 for name in declaration.attributes):
                if k < len(tokens):
                    tokens[k].is_type_colon = True
        return layout

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of the declaration, each with its trailing comment."""
        single = "".join(self._with_spaces(self.tokens))
        if self.is_one_line and len(single) <= MAX_LINE_WIDTH:
            yield single, self.tokens[-1].trailing_comment
        else:
            yield from self._split_lines()

    @staticmethod
    def _with_spaces(tokens: list[_FormattedToken]) -> Iterator[str]:
        """Yield each token with the space before it."""
        for k, token in enumerate(tokens):
            yield (" " if k and _needs_space(tokens, k) else "") + token.text

    # Lines

    def _split_lines(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of a declaration that does not fit on one line, each with its trailing comment."""
        parts = list(self._attribute_rows() if self.tokens[0].text in ("entity", "relation") else self._clause_rows())
        keywords = (row[: _keyword_length(row)] for indent, row in parts if indent)
        self.hanging_indent = max((len("".join(self._with_spaces(k))) for k in keywords if k), default=3) + 1
        for indent, tokens in parts:
            for comment in tokens[0].leading_comments:
                yield (INDENT if tokens[0].text == "}" else indent) + comment, ""
            yield from self._wrap_row(indent, tokens)

    def _attribute_rows(self) -> Iterator[tuple[str, list[_FormattedToken]]]:
        """Yield rows (indent, tokens): the head up to the brace, one row for each attribute, and the closing brace."""
        opening = next((k for k, t in enumerate(self.tokens) if t.text == "{"), None)
        if opening is None:
            yield "", self.tokens
            return
        yield "", self.tokens[: opening + 1]
        rows: list[list[_FormattedToken]] = []
        for k in range(opening + 1, len(self.tokens) - 1):
            token = self.tokens[k]
            if token.text == ",":
                if token.trailing_comment and not rows[-1][-1].trailing_comment:
                    rows[-1][-1].trailing_comment = token.trailing_comment
                elif token.trailing_comment:
                    self.tokens[k + 1].leading_comments.insert(0, token.trailing_comment)
                self.tokens[k + 1].leading_comments[:0] = token.leading_comments
                continue
            if not rows or k in self.attribute_starts:
                rows.append([])
            rows[-1].append(token)
        width = max((len("".join(self._with_spaces(_name_tokens(row)))) for row in rows), default=0)
        for row in rows:
            name = _name_tokens(row)
            padding = " " * (width - len("".join(self._with_spaces(name))))
            name[-1].text += padding
            yield INDENT, row
        yield "", self.tokens[-1:]

    def _clause_rows(self) -> Iterator[tuple[str, list[_FormattedToken]]]:
        """Yield rows (indent, tokens): the head, one row for each clause, and one row for the options."""
        row: list[_FormattedToken] = []
        depth = 0
        indent = ""
        for k, token in enumerate(self.tokens):
            is_keyword_position = token.kind == "name" and depth == 0 and k > 1 and self.tokens[k - 1].text != "."
            starts_row = is_keyword_position and (
                token.text in TEMPLATE_CLAUSES
                or (token.text in OPTION_KEYWORDS and not (row and row[0].text in OPTION_KEYWORDS))
            )
            if starts_row and not (self.tokens[0].text == "domain" or self._is_inline_by(k)):
                yield indent, row
                row, indent = [], INDENT
            row.append(token)
            depth += _DEPTH_CHANGES.get(token.text, 0)
        yield indent, row

    def _is_inline_by(self, k: int) -> bool:
        """Return True if the token is the `by` of nearest neighbours or of a gate; this `by` does not start a line."""
        return self.tokens[k].text == "by" and (self.tokens[0].text == "gate" or self.tokens[k - 2].text == "nearest")

    def _wrap_row(self, indent: str, tokens: list[_FormattedToken]) -> Iterator[tuple[str, str]]:
        """Yield a row as one or more lines; break the row at comments and at the maximum width."""
        words = list(self._with_spaces(tokens))
        n_keywords = _keyword_length(tokens) if indent else 0
        if 0 < n_keywords < len(words):
            width = len("".join(words[:n_keywords]))
            words[n_keywords] = " " * (self.hanging_indent - width) + words[n_keywords].lstrip()
            hang = indent + " " * self.hanging_indent
        else:
            hang = indent + INDENT
        starts = list(accumulate(map(len, words), initial=0))
        line, length, is_first = indent, len(indent) + starts[-1], True
        breaks = _find_breaks(words, tokens, len(hang))
        following = dict(pairwise([*breaks, len(words)]))
        for k, (token, word) in enumerate(zip(tokens, words, strict=True)):
            if k and token.leading_comments:
                if line.strip():
                    yield line, ""
                for comment in token.leading_comments:
                    yield hang + comment, ""
                line, is_first = hang, True
            remaining = starts[-1] - starts[k]
            may_break = k in breaks and k > 1 and length > MAX_LINE_WIDTH and line.strip()
            if may_break and len(line) + starts[following[k]] - starts[k] > MAX_LINE_WIDTH:
                yield line, ""
                line, is_first = hang + INDENT * breaks[k], True
                length = len(line) + remaining
            line += word.lstrip() if is_first else word
            is_first = False
            if token.trailing_comment:
                yield line, token.trailing_comment
                line, is_first = hang, True
                length = len(hang) + remaining
        if line.strip():
            yield line, ""


def _keyword_length(row: list[_FormattedToken]) -> int:
    """Return the number of tokens of the keyword of a clause: 2 for `as of`, 0 if the row is not a clause."""
    return 0 if row[0].text not in TEMPLATE_CLAUSES else 2 if row[0].text == "as" else 1


def _needs_space(tokens: list[_FormattedToken], k: int) -> bool:
    """Return True if a space precedes token `k`; k must not be 0."""
    a, b = tokens[k - 1].text, tokens[k].text
    if b in (",", ")", ".", "..") or a in ("(", ".", "..") or (b == ":" and not tokens[k].is_type_colon):
        return False
    if a == "-" and (k == 1 or tokens[k - 2].text in _BEFORE_OPERAND):  # a sign
        return False
    return b != "(" or tokens[k - 1].kind != "name" or a in _BEFORE_OPERAND


def _find_breaks(words: list[str], tokens: list[_FormattedToken], width: int) -> dict[int, int]:
    """Return the tokens before which a line may break, with the number of parentheses around each.

    A line breaks at operators and commas outside parentheses. Inside parentheses that do not fit into a line after `width`
    spaces, it breaks at `or`, or at `and` if there is no `or`.
    """
    breaks, open_groups = {}, [_Group(True, frozenset(("and", "or", "=>")), breaks_at_commas=True)]
    for k, token in enumerate(tokens):
        group = open_groups[-1]
        if group.is_long and (
            token.text in group.operators or (group.breaks_at_commas and k and tokens[k - 1].text == ",")
        ):
            breaks[k] = len(open_groups) - 1
        if _DEPTH_CHANGES.get(token.text, 0) > 0:
            end = _find_end(tokens, k)
            is_long = group.is_long and token.text == "(" and width + len("".join(words[k:end])) > MAX_LINE_WIDTH
            open_groups.append(_Group(is_long, _lowest_operator(tokens[k + 1 : end])))
        elif _DEPTH_CHANGES.get(token.text, 0) < 0 and len(open_groups) > 1:
            open_groups.pop()
    return breaks


class _Group(NamedTuple):
    """The tokens in a pair of parentheses, or the whole row.

    Args:
        operators: operators between its parts.
    """

    is_long: bool
    operators: frozenset[str]
    breaks_at_commas: bool = False


def _find_end(tokens: list[_FormattedToken], start: int) -> int:
    """Return the position of the token that closes the parenthesis at `start`, or the number of tokens."""
    depth = 0
    for k in range(start, len(tokens)):
        depth += _DEPTH_CHANGES.get(tokens[k].text, 0)
        if depth == 0:
            return k
    return len(tokens)


def _lowest_operator(tokens: list[_FormattedToken]) -> frozenset[str]:
    """Return `or` if it joins the tokens outside further parentheses, otherwise `and`."""
    depth = 0
    for token in tokens:
        if depth == 0 and token.text == "or":
            return frozenset(("or",))
        depth += _DEPTH_CHANGES.get(token.text, 0)
    return frozenset(("and",))


def _name_tokens(row: list[_FormattedToken]) -> list[_FormattedToken]:
    """Return the tokens of an attribute before its colon."""
    colon = next(k for k, t in enumerate(row) if t.text == ":" and k > 0)
    return row[:colon]


def _align_comments(lines: list[tuple[str, str]]) -> list[str]:
    """Append comments to lines; the comments of a paragraph are aligned in one column, except those of long lines."""
    out: list[str] = []
    for _, paragraph in groupby(lines, key=lambda line: line == ("", "")):
        rows = list(paragraph)
        width = max((len(text) for text, comment in rows if comment and len(text) <= MAX_COMMENT_COLUMN), default=0)
        out += [f"{text.ljust(width)}  {comment}" if comment else text for text, comment in rows]
    return out
