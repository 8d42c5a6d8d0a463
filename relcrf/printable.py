"""Texts of data for terminals, pictures and files, where some characters would do more than be seen."""

from __future__ import annotations

_ALLOWED_SPACES = frozenset("\u00a0\u200c\u200d\u3000")
"""Spaces and joiners that scripts need, though Python calls them not printable."""


def escape_unprintable(text: str, allowed: str = "") -> str:
    """A text with control characters, marks of direction and halves of characters as their escapes: `\\x1b`, `\\u202e`.

    Args:
        allowed: control characters that stay, such as the breaks of lines.
    """
    return "".join(
        c if c.isprintable() or c in _ALLOWED_SPACES or c in allowed else c.encode("unicode_escape").decode()
        for c in text
    )


def replace_unprintable(text: str) -> str:
    """As `printable`, each such character being one other: what stands below a column of the text stays below it. Tabs stay."""
    return "".join(c if c.isprintable() or c in _ALLOWED_SPACES or c == "\t" else "\ufffd" for c in text)
