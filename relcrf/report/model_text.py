"""A model's text in colours that a page's style gives, one palette for light paper and one for dark."""

from __future__ import annotations

from pygments import highlight  # type: ignore[import-untyped, unused-ignore]  # no types of its own
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped, unused-ignore]

from relcrf.text.highlight import RcrfLexer

_CLASS = "model"
_LIGHT, _DARK = (HtmlFormatter(style=style, cssclass=_CLASS, nobackground=True) for style in ("default", "github-dark"))


def as_html(text: str) -> str:
    """The text as HTML with classes; every character of it is escaped."""
    return str(highlight(text, RcrfLexer(), _LIGHT))


def style() -> str:
    """The rules that colour it."""
    light, dark = (_rules(formatter) for formatter in (_LIGHT, _DARK))
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _rules(formatter: HtmlFormatter) -> str:
    """Those of words; what is around them is the page's."""
    prefix = f".{_CLASS}"
    return "\n".join(rule for rule in formatter.get_style_defs(prefix).splitlines() if rule.startswith(f"{prefix} ."))
