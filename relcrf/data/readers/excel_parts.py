"""Cells of Excel workbooks that are read as missing: errors such as `#N/A`, and formulas without a stored result."""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

_CHUNK_BYTES = 1 << 20

_MAX_CELL_BYTES = 1 << 20
"""Upper bound of the size of a cell; a text has at most 32,767 characters. It bounds the memory for XML without cells."""

_CELL = rb"<(?:\w+:)?c(?=[\s>])"

_ERROR = re.compile(_CELL + rb'[^<>]*\bt="e"')

_FORMULA = re.compile(
    _CELL + rb'(?![^<>]*\bt="str")[^<>]*>\s*<(?:\w+:)?f(?:\s[^<>]*)?(?:/>|>[^<]*</(?:\w+:)?f>)'
    rb"\s*(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>\s*)?</(?:\w+:)?c>"
)
"""Regular expression of a cell with a formula and no result; a result of the type `str` may be an empty text."""


def count_unreadable_cells(path: Path) -> dict[str, tuple[int, int]] | None:
    """Return the numbers of errors, and of formulas without a result, by sheet; None if the files cannot be found."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {title: _count_in_part(archive, part) for title, part in _sheet_parts(archive)}
    except (KeyError, NotImplementedError, ElementTree.ParseError, zipfile.BadZipFile, zlib.error):
        return None


def _sheet_parts(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """Yield the title of each sheet, and the name of its file in the archive."""
    relations = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    targets = {relation.get("Id"): relation.get("Target", "") for relation in relations}
    for sheet in ElementTree.fromstring(archive.read("xl/workbook.xml")).iterfind("{*}sheets/{*}sheet"):
        number = next((value for name, value in sheet.items() if name.endswith("}id")), None)
        yield sheet.get("name", ""), posixpath.normpath(posixpath.join("/xl", targets[number])).lstrip("/")


def _count_in_part(archive: zipfile.ZipFile, part: str) -> tuple[int, int]:
    n_errors, n_formulas, rest = 0, 0, b""
    with archive.open(part) as file:
        while chunk := file.read(_CHUNK_BYTES):
            text = rest + chunk
            last = max(text.rfind(b"/c>"), text.rfind(b":c>"))
            end = last + len(b"/c>") if last >= 0 else 0  # the next cell may be incomplete
            n_errors += len(_ERROR.findall(text, 0, end))
            n_formulas += len(_FORMULA.findall(text, 0, end))
            rest = text[end:][-_MAX_CELL_BYTES:]
    return n_errors, n_formulas
