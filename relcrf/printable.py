"""Escaping of unprintable characters, and masking of passwords, in text before it is printed, plotted or written."""

from __future__ import annotations

import re

_ALLOWED_SPACES = frozenset("\u00a0\u200c\u200d\u3000")
"""Spaces and joiners that are not escaped, because some writing systems need them; `str.isprintable` rejects them."""


_NOT_ASCII = re.compile(r"[^ -~]")
"""A character that may be unprintable."""


def escape_unprintable(text: str, allowed: str = "") -> str:
    """Replace control characters, direction marks and surrogates with their escapes: `\\x1b`, `\\u202e`.

    Args:
        allowed: Control characters that are not escaped, such as line breaks.
    """

    def escape(match: re.Match[str]) -> str:
        c = match[0]
        kept = c.isprintable() or c in _ALLOWED_SPACES or c in allowed
        return c if kept else c.encode("unicode_escape").decode()

    return _NOT_ASCII.sub(escape, text)


def replace_unprintable(text: str) -> str:
    """Replace each unprintable character except tabs with U+FFFD, so that the length of the text does not change."""
    return "".join(c if c.isprintable() or c in _ALLOWED_SPACES or c == "\t" else "\ufffd" for c in text)


_PASSWORD = re.compile(r"""(?<=://)(?P<user>[^\s:/@"']*:)[^\s"']+(?=@)|(?P<key>\bpassword=)[^\s&"']+""")
"""Pattern of a password in a URL `scheme://user:password@host` or in a connection string `password=...`."""


def mask_passwords(text: str) -> str:
    """Replace each character of the passwords in URLs and connection strings with `*`; the length does not change."""
    return _PASSWORD.sub(_mask_match, text) if "://" in text or "password=" in text else text


def _mask_match(match: re.Match[str]) -> str:
    visible = match["user"] or match["key"]
    return visible + "*" * (len(match[0]) - len(visible))
