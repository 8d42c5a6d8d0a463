"""Escaping of control characters and invisible characters in text from data, before it is printed, plotted or written."""

from __future__ import annotations

_ALLOWED_SPACES = frozenset("\u00a0\u200c\u200d\u3000")
"""Spaces and joiners that are not escaped, because some writing systems need them; `str.isprintable` rejects them."""


def escape_unprintable(text: str, allowed: str = "") -> str:
    """Replace control characters, direction marks and surrogates with their escapes: `\\x1b`, `\\u202e`.

    Args:
        allowed: Control characters that are not escaped, such as line breaks.
    """
    return "".join(
        c if c.isprintable() or c in _ALLOWED_SPACES or c in allowed else c.encode("unicode_escape").decode()
        for c in text
    )


def replace_unprintable(text: str) -> str:
    """Replace each unprintable character except tabs with U+FFFD, so that the length of the text does not change."""
    return "".join(c if c.isprintable() or c in _ALLOWED_SPACES or c == "\t" else "\ufffd" for c in text)
