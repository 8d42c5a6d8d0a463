"""Syntax highlighting of `.rcrf` text by Pygments, for documentation, terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pygments import highlight  # type: ignore[import-untyped, unused-ignore]  # untyped package
from pygments import token as t  # type: ignore[import-untyped, unused-ignore]  # untyped package
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped, unused-ignore]
from pygments.lexer import Lexer  # type: ignore[import-untyped, unused-ignore]

from relcrf.language.keywords import KEYWORDS
from relcrf.language.tokens import COMPARISONS, WEIGHTED_DECLARATIONS, DeclarationTokens, SourceText
from relcrf.model.functions import AGGREGATES, FUNCTIONS
from relcrf.model.types import SCALARS

_KINDS = {
    "comment": t.Comment.Single,
    "space": t.Whitespace,
    "text": t.String.Double,
    "other": t.Error,
}
_PUNCTUATION = frozenset("(){},:.")
_CONNECTIVES = frozenset({"and", "or", "not", "in"})


class RcrfLexer(Lexer):  # type: ignore[misc, unused-ignore]
    """A Pygments lexer that classifies a word by its context, as the language server does."""

    name = "rcrf"
    aliases = ("rcrf", "relcrf")
    filenames = ("*.rcrf",)
    mimetypes = ("text/x-rcrf",)

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Yield each token of the text with its offset and type."""
        source = SourceText(text)
        kinds: dict[int, Any] = {}
        for declaration in source.declarations:
            kinds.update(_token_kinds(declaration))
        for token in source.tokens:
            yield token.start, kinds.get(token.start, _KINDS.get(token.kind, t.Text)), token.text


def _token_kinds(declaration: DeclarationTokens) -> Iterator[tuple[int, Any]]:
    """Yield the offset and the type of each name, number and operator."""
    for k, token in enumerate(declaration.tokens):
        if token.kind == "name":
            yield token.start, _name_kind(declaration, k)
        elif token.kind == "number":
            yield token.start, t.Number.Integer if token.text.isdigit() else t.Number.Float
        elif token.kind == "operator":
            yield token.start, t.Punctuation if token.text in _PUNCTUATION else t.Operator


def _name_kind(declaration: DeclarationTokens, k: int) -> Any:
    """Return the type of the name at index k from its context, because an attribute may have the name of a keyword."""
    text, before, after = declaration.texts[k], declaration.text_at(k - 1), declaration.text_at(k + 1)
    if before == ".":
        return t.Name.Attribute
    if k == declaration.name_index:
        return t.Name.Function if declaration.keyword in WEIGHTED_DECLARATIONS else t.Name.Class
    if k == 0 or (k == 1 and declaration.texts[:2] == ("predict", "relation")):
        return t.Keyword.Declaration if declaration.keyword else t.Name
    if k in declaration.attributes:
        return t.Name.Attribute
    if declaration.keyword == "domain":
        return t.Keyword if text == "open" and before == "=" else t.Name.Constant
    is_bag = before == "of" and declaration.text_at(k - 2) == "bag"
    is_type = is_bag or (before == ":" and declaration.keyword != "rule")
    if is_type and text != "bag":
        return t.Keyword.Type if text in SCALARS else t.Name.Class
    if k < declaration.body_index and declaration.keyword != "rule":
        return t.Name.Variable
    return _clause_name_kind(text, before, after, declaration)


def _clause_name_kind(text: str, before: str, after: str, declaration: DeclarationTokens) -> Any:
    if (text in FUNCTIONS and after == "(") or (text in AGGREGATES and after == "{"):
        return t.Name.Builtin
    if text in ("true", "false"):
        return t.Keyword.Constant
    if text in _CONNECTIVES:
        return t.Operator.Word
    if text in KEYWORDS:
        return t.Keyword.Type if text == "bag" or (text, before) == ("of", "bag") else t.Keyword
    if after == "(":
        return t.Name.Class
    if before == "weights":
        return t.Name.Function
    is_value = before in COMPARISONS and after != "." and text not in declaration.parameters
    return t.Name.Constant if is_value else t.Name.Variable


def highlight_html(text: str) -> str:
    """Return a model as HTML with inline colours and escaped text."""
    formatter = HtmlFormatter(noclasses=True, nobackground=True, prestyles="line-height: 1.35")
    return str(highlight(text, RcrfLexer(), formatter))
