"""The frames of files that are compressed with Zstandard. DuckDB reads a file that is cut off without an error.

Source: Collet and Kucherawy, Zstandard Compression, RFC 8878, 2021, section 3.1.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from relcrf.data.store import unreadable_error

_FRAME, _SKIPPABLE_FRAME = 0xFD2FB528, 0x184D2A50
"""Magic numbers of frames; the last four bits of the second are arbitrary."""

_REPEATED_BYTE = 1
"""Type of a block with one byte, which is repeated."""


def require_complete_zst(path: Path) -> None:
    """Validate that a file consists of complete frames; only the sizes of their blocks are read.

    Raises:
        DataError: The file ends within a frame, or contains other bytes (E204).
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            while file.tell() < size:
                _skip_frame(file)
            is_complete = file.tell() == size
        except ValueError:
            is_complete = False
    if not is_complete:
        raise unreadable_error(str(path), "copy or compress the file again", ("its compressed content is incomplete",))


def _skip_frame(file: BinaryIO) -> None:
    """Move to the end of a frame, which may be located beyond the end of the file.

    Raises:
        ValueError: The file ends within the frame, or no frame begins here.
    """
    magic = _read_number(file, 4)
    if magic & ~0xF == _SKIPPABLE_FRAME:
        file.seek(_read_number(file, 4), os.SEEK_CUR)
        return
    if magic != _FRAME:
        raise ValueError("no frame begins here")
    descriptor = _read_number(file, 1)
    is_single_segment = descriptor >> 5 & 1
    content_size = (is_single_segment, 2, 4, 8)[descriptor >> 6]
    file.seek((1 - is_single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size, os.SEEK_CUR)
    is_last = 0
    while not is_last:
        block = _read_number(file, 3)
        is_last, kind, size = block & 1, block >> 1 & 3, block >> 3
        file.seek(1 if kind == _REPEATED_BYTE else size, os.SEEK_CUR)
    file.seek(4 * (descriptor >> 2 & 1), os.SEEK_CUR)  # a checksum


def _read_number(file: BinaryIO, n_bytes: int) -> int:
    content = file.read(n_bytes)
    if len(content) < n_bytes:
        raise ValueError("the file ends here")
    return int.from_bytes(content, "little")
