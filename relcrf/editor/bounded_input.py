"""The input stream of the language server, without messages whose declared length would exhaust the memory."""

from __future__ import annotations

import logging
import re
import sys
from typing import BinaryIO

MAX_MESSAGE_BYTES = 64_000_000
"""Maximum length of a message; the server discards a longer one."""

MAX_HEADER_BYTES = 10_000
"""Maximum length of a header line."""

MAX_DIGITS = 15
"""Maximum digits of a length; a longer number has no end in practice."""

_CONTENT_LENGTH = re.compile(rb"^Content-Length: *(\d+)\r?\n$", re.IGNORECASE)
_CHUNK_BYTES = 1 << 20

_log = logging.getLogger(__name__)


class BoundedInput:
    """An input stream of messages, each with header lines that state its length; too long messages are skipped."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readline(self) -> bytes:
        """Return the next header line; b"" at the end of the stream or after an overlong line."""
        while match := _CONTENT_LENGTH.fullmatch(line := self._stream.readline(MAX_HEADER_BYTES)):
            digits = match[1].lstrip(b"0") or b"0"
            length = int(digits) if len(digits) <= MAX_DIGITS else sys.maxsize
            if length <= MAX_MESSAGE_BYTES:
                return line
            _log.error("skipped a message that is longer than %s bytes", f"{MAX_MESSAGE_BYTES:,}")
            self._skip_message(length)
        return line if line.endswith(b"\n") else b""

    def _skip_message(self, length: int) -> None:
        """Read the other header lines and the body of a message without keeping them."""
        while (line := self._stream.readline(MAX_HEADER_BYTES)).strip():
            pass
        while line and length > 0 and (chunk := self._stream.read(min(length, _CHUNK_BYTES))):
            length -= len(chunk)

    def read(self, n: int) -> bytes:
        """Return the next n bytes, or fewer at the end of the stream."""
        return self._stream.read(n)
