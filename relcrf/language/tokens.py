"""The lossless tokenizer of model texts, and the division of tokens into declarations.

Every character of a text belongs to one token; white space, comments and invalid characters also have tokens. The
parser, the formatter, the highlighter and the language server use the same tokens. All words are `NAME` tokens; the
parser recognises the keywords among them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import pairwise, takewhile
from typing import NamedTuple

from relcrf.errors import Source, Span
from relcrf.language.grammar import load_grammar
from relcrf.language.keywords import CLAUSE_KEYWORDS, CONTEXT_KEYWORDS, DECLARATION_KEYWORDS, RESERVED, ROLE_KEYWORDS

COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})

WEIGHTED_DECLARATIONS = frozenset({"template", "candidates", "rule", "gate"})
"""Keywords of the declarations that define or refer to weights."""

_WITH_PARAMETERS = frozenset({"relation", "predict", "derive", "feature", "template", "candidates"})
_DECLARATIONS, _CONTEXT_KEYWORDS = frozenset(DECLARATION_KEYWORDS), frozenset(CONTEXT_KEYWORDS)
_KEYWORDS_BEFORE_NAME = _DECLARATIONS - {"predict", "rule", "include"}
_LINE_CONTINUATIONS = (":", ",", "{", "(", "=", "<", ">", "+", "-", "*", "/", ".")
"""A declaration continues on the next line if a line ends with one of these texts."""

_TOKEN_KINDS = {
    "NAME": "name",
    "AGGREGATE": "name",
    "INTEGER": "number",
    "REAL": "number",
    "STRING": "text",
    "UNCLOSED": "text",
    "COMMENT": "comment",
    "MARK": "space",
    "OTHER": "other",
}


@cache
def literal_terminals() -> dict[str, str]:
    """Return the texts of the terminals that match a fixed text, by terminal name."""
    return {t.name: t.pattern.value for t in load_grammar().terminals if t.pattern.type == "str"}


@cache
def _compile_scanner() -> re.Pattern[str]:
    """Compile a pattern that matches any terminal (in Lark's order) or an invalid token; keywords match as names."""
    terminals = [t for t in load_grammar().terminals if not literal_terminals().get(t.name, "").isidentifier()]
    terminals.sort(key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name))
    patterns = {"MARK": r"\A\ufeff", **{t.name: t.pattern.to_regexp() for t in terminals}}
    # A string without closing quote ends at the next declaration keyword or at the end of its line.
    patterns["UNCLOSED"] = rf'"(?:(?!\b(?:{"|".join(DECLARATION_KEYWORDS)})\s)[^"\\\n]|\\[^\n])*'
    patterns["OTHER"] = "(?s:.)"
    return re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in patterns.items()))


@cache
def _ignored_terminals() -> frozenset[str]:
    """Return the terminals of comments and white space, which the parser ignores."""
    return frozenset({*load_grammar().lexer_conf.ignore, "MARK"})


class Token(NamedTuple):
    """A token; `start` is the offset of its first character in the text.

    Args:
        terminal: name of the terminal in the grammar, or `MARK` for a byte order mark, `UNCLOSED` for a string without
            a closing quote, `OTHER` for an invalid character.
    """

    terminal: str
    text: str
    start: int

    @property
    def stop(self) -> int:
        return self.start + len(self.text)

    @property
    def kind(self) -> str:
        """`name`, `number`, `text`, `operator`, `comment`, `space` or `other`."""
        return _TOKEN_KINDS.get(self.terminal) or ("space" if self.terminal in _ignored_terminals() else "operator")


class DeclarationTokens:
    """The tokens (one or more) of a complete or incomplete declaration, without white space and comments.

    The keyword, name, parameters and attributes of the declaration are derived from these tokens alone.
    """

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self.tokens = tokens

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def stop(self) -> int:
        return self.tokens[-1].stop

    @cached_property
    def texts(self) -> tuple[str, ...]:
        return tuple(token.text for token in self.tokens)

    def text_at(self, k: int) -> str:
        """Return the text of a token; '' if the index is out of range."""
        return self.texts[k] if 0 <= k < len(self.texts) else ""

    @property
    def keyword(self) -> str:
        """The keyword of the declaration; '' if the first token is not a keyword of a declaration."""
        return self.texts[0] if self.texts[0] in DECLARATION_KEYWORDS else ""

    @cached_property
    def name_index(self) -> int | None:
        """The index of the token with the name of the declaration; None if the declaration has no name."""
        k = 2 if self.texts[:2] == ("predict", "relation") else 1
        if self.keyword == "rule":
            colon = self.texts.index(":") if ":" in self.texts else len(self.texts)
            k = colon - 1
        if self.keyword in ("", "include") or not 0 < k < len(self.tokens) or self.tokens[k].kind != "name":
            return None
        return k if self.texts[k] not in RESERVED else None

    @property
    def name(self) -> str:
        return self.texts[self.name_index] if self.name_index is not None else ""

    @cached_property
    def body_index(self) -> int:
        """The index of the first token after the name and the parameters."""
        if self.keyword == "rule":
            return self.texts.index(":") + 1 if ":" in self.texts else len(self.texts)
        if self.name_index is None:
            return 1
        k = self.name_index + 1
        if self.texts[k : k + 1] == ("(",) and (self.keyword in _WITH_PARAMETERS or self.keyword == "entity"):
            return matching_bracket(self.texts, k) + 1
        return k

    @cached_property
    def parameters(self) -> dict[str, tuple[Token, str]]:
        """The declared parameters: by name, the token of the name and the name of the type ('' if it is missing)."""
        parameters: dict[str, tuple[Token, str]] = {}
        if self.keyword not in _WITH_PARAMETERS or self.name_index is None:
            return parameters
        for k in range(self.name_index + 2, min(self.body_index, len(self.tokens))):
            if self.texts[k] == ":" and self.tokens[k - 1].kind == "name":
                type_text = takewhile(lambda text: text not in (",", ")"), self.texts[k + 1 :])
                parameters.setdefault(self.texts[k - 1], (self.tokens[k - 1], "".join(type_text)))
        return parameters

    @cached_property
    def attributes(self) -> dict[int, int]:
        """A mapping from the index of an attribute's name to the index of its first token (role keyword or name)."""
        texts = self.texts
        if self.keyword not in ("entity", "relation") or "{" not in texts[self.body_index :]:
            return {}
        first = texts.index("{", self.body_index)
        named = range(first + 1, len(texts) - 1)
        names = [k for k in named if self.tokens[k].kind == "name" and texts[k + 1] == ":"]
        # In `seen : time date : date`, the word `time` is a type, not the role of the next attribute.
        return {k: k - (texts[k - 1] in ROLE_KEYWORDS and texts[k - 2] not in (":", "of")) for k in names}


class SourceText:
    """A model text with its tokens and declarations; methods convert between offsets and spans (lines and columns).

    Args:
        name: the name of the text in messages.
    """

    def __init__(self, text: str, name: str = "<model>") -> None:
        self.text = text
        self.source = Source(name, text)
        self.tokens = tuple(Token(m.lastgroup or "", m[0], m.start()) for m in _compile_scanner().finditer(text))
        self._code = [token for token in self.tokens if token.terminal not in _ignored_terminals()]
        # For spans, only `\n` ends a line; for editors, other characters may end a line, too.
        self._line_starts = [0, *(m.end() for m in re.finditer("\n", text))]

    @cached_property
    def _starts(self) -> list[int]:
        return [token.start for token in self.tokens]

    @cached_property
    def _code_starts(self) -> list[int]:
        return [token.start for token in self._code]

    @cached_property
    def declarations(self) -> tuple[DeclarationTokens, ...]:
        """The tokens of each declaration; any tokens before the first declaration are an additional first item."""
        cuts = list(
            dict.fromkeys([0, *_DeclarationSplitter(self._code, self.text).declaration_starts(), len(self._code)])
        )
        return tuple(DeclarationTokens(tuple(self._code[a:b])) for a, b in pairwise(cuts))

    def code_tokens(self, start: int, stop: int) -> Sequence[Token]:
        """Return the tokens that start in a range, without white space and comments."""
        return self._code[bisect_left(self._code_starts, start) : bisect_left(self._code_starts, stop)]

    def tokens_between(self, start: int, stop: int) -> Sequence[Token]:
        """Return all tokens that start in a range."""
        return self.tokens[bisect_left(self._starts, start) : bisect_left(self._starts, stop)]

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and a column, counted from 1; the end of the text if there is no such line."""
        if line > len(self._line_starts):
            return len(self.text)
        return min(self._line_starts[line - 1] + column - 1, len(self.text))

    def offsets(self, span: Span) -> tuple[int, int]:
        """Return the start and end offsets of a span."""
        return self.offset(span.line, span.column), self.offset(span.end_line, span.end_column)

    def span(self, start: int, stop: int) -> Span:
        """Return the span from one offset to another."""
        line, end_line = bisect_right(self._line_starts, start), bisect_right(self._line_starts, stop)
        column, end_column = start - self._line_starts[line - 1] + 1, stop - self._line_starts[end_line - 1] + 1
        return Span(self.source, line, column, end_line, end_column)

    def line_range(self, line: int) -> tuple[int, int]:
        """Return the start and end offsets of a line without surrounding white space."""
        start = self.offset(line, 1)
        line_text = self.text[start : self.offset(line + 1, 1)]
        return start + len(line_text) - len(line_text.lstrip()), start + len(line_text.rstrip())

    def token_at(self, offset: int) -> Token | None:
        """Return the token at a cursor position; between two tokens, the right token unless only the left is a name."""
        right = bisect_right(self._starts, offset) - 1
        if right < 0:
            return None
        token = self.tokens[right]
        if token.start == offset and token.kind != "name" and right > 0 and self.tokens[right - 1].kind == "name":
            return self.tokens[right - 1]
        return token

    def token_before(self, offset: int) -> Token | None:
        """Return the last token that starts before an offset, ignoring white space and comments."""
        index = bisect_left(self._code_starts, offset) - 1
        return self._code[index] if index >= 0 else None

    def declaration_at(self, offset: int) -> DeclarationTokens | None:
        """Return the last declaration that starts at or before an offset."""
        preceding = [declaration for declaration in self.declarations if declaration.start <= offset]
        return preceding[-1] if preceding else None


class _DeclarationSplitter:
    """The heuristics that split tokens into declarations, so that a syntax error affects only one declaration.

    An attribute or value may be named like a declaration keyword, so the tokens around a keyword are examined, too.
    """

    def __init__(self, code: Sequence[Token], text: str) -> None:
        self.code = code
        self.text = text
        self.words = [token.text for token in code]

    def declaration_starts(self) -> Sequence[int]:
        """Return the indices of the tokens that start a declaration."""
        starts, k = [], 0
        while k < len(self.code):
            head_length = self._head_length(k) if self.code[k].kind == "name" else 0
            if head_length:
                starts.append(k)
            k += head_length or 1
        return starts

    def _head_length(self, k: int) -> int:
        """Return the number of tokens, from `k` on, that certainly start a declaration; 0 if `k` does not start one."""
        word, following = self.words[k], self._word(k + 1)
        if word not in _DECLARATIONS:
            return int(word not in _CONTEXT_KEYWORDS and self._indent(k) == "" and self._is_misspelt_keyword(k))
        if self._word(k - 1) not in (".", ".."):
            if word == "predict" and following == "relation" and self._word(k + 2) not in (":", ",", "}"):
                return 2
            # Two names are never adjacent inside a declaration.
            if (
                word in _KEYWORDS_BEFORE_NAME
                and self._is_name(k + 1)
                and following not in CLAUSE_KEYWORDS
                and self._word(k + 2) != ":"
            ):
                return 1
            if word == "rule" and (colon := self._colon_of_rule(k)) and not self._is_type(colon + 1):
                return colon - k + 1
            if word == "include" and following.startswith('"'):
                return 1
        indent = self._indent(k)
        if indent is None or following in (":", ",", ".", "..", "}", ")"):
            return 0
        if word == "predict":
            bracket = next((j for j in (2, 3) if self._word(k + j) == "("), 0)
            return int(indent == "" and bracket > 0 and all(self._is_word(k + j) for j in range(1, bracket)))
        return int(word in _KEYWORDS_BEFORE_NAME or indent == "")

    def _word(self, k: int) -> str:
        return self.words[k] if 0 <= k < len(self.words) else ""

    def _is_name(self, k: int) -> bool:
        return k < len(self.code) and self.code[k].kind == "name"

    def _is_word(self, k: int) -> bool:
        return k < len(self.code) and self.code[k].kind in ("name", "number")

    def _indent(self, k: int) -> str | None:
        """Return the white space before token `k` if it is the first token of its line; otherwise None."""
        before = self.text[self.code[k - 1].stop if k else 0 : self.code[k].start]
        is_first = k == 0 or "\n" in before
        indent = before[before.rfind("\n") + 1 :]
        return indent if is_first and not indent.strip(" \t") else None

    def _text_before(self, k: int) -> str:
        """Return the text between a token and its predecessor."""
        return self.text[self.code[k - 1].stop : self.code[k].start]

    def _colon_of_rule(self, k: int) -> int:
        """Return the index of the colon after the weight and the name of a rule; 0 if there is none."""
        parts = 0
        for j in range(k + 1, len(self.code)):
            parts += bool(self._text_before(j))
            if self.words[j] == ":":
                return j
            if self.words[j] in ("(", ")", "{", "}") or self.code[j].kind == "text" or not 0 < parts < 3:
                return 0
        return 0

    def _is_type(self, k: int) -> bool:
        """Return True if only a type follows the colon before token `k`.

        The word before the colon is then an attribute with the name of a keyword, as in `rule: float`.
        """
        if self._word(k) == "bag" or ".." in (self._word(k + 1), self._word(k + 2) if self._word(k) == "-" else ""):
            return True
        following = self._word(k + 1)
        if following in ("predict", "latent"):
            return not (self._word(k + 2) == "relation" and self._word(k + 3) not in (":", ",", "}"))
        is_end = following in (",", "}", ":") or (self._is_name(k + 1) and self._word(k + 2) == ":")
        is_end |= following == "time" and self._is_name(k + 2) and self._word(k + 3) == ":"
        return self._is_name(k) and is_end

    def _is_misspelt_keyword(self, k: int) -> bool:
        """Return True if a misspelt keyword starts a declaration, as in the line `templat linked(`."""
        if not self._is_name(k + 1) or self.words[k + 1] in _CONTEXT_KEYWORDS or self._text_before(k + 1).strip(" \t"):
            return False
        is_last = k + 2 >= len(self.code) or self._text_before(k + 2).strip(" \t") != ""
        return (is_last or self.words[k + 2][0] in "({=") and not self._word(k - 1).endswith(_LINE_CONTINUATIONS)


def matching_bracket(texts: Sequence[str], bracket: int) -> int:
    """Return the index of the bracket that matches the bracket at index `bracket`.

    If no bracket matches, return `len(texts)` for an opening bracket and -1 for a closing bracket.
    """
    symbol = texts[bracket]
    partner = {"(": ")", "{": "}", ")": "(", "}": "{"}[symbol]
    indices = range(bracket, len(texts)) if symbol in "({" else range(bracket, -1, -1)
    depth = 0
    for k in indices:
        depth += (texts[k] == symbol) - (texts[k] == partner)
        if depth == 0:
            return k
    return indices.stop
