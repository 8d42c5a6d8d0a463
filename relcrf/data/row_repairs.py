"""Descriptions of the repairs that the policies of a manifest made to the rows of a table; run folders store them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_FILE_ROWS = 2**40
"""Row k of file number n of a table has the number n * MAX_FILE_ROWS + k, if the table has several files."""


@dataclass(frozen=True)
class RowRepair:
    """An application of a policy to the rows of a table. Its string representation is a note for the user.

    Args:
        table: The repaired table.
        location: The file, database table or manifest entry that contains the table.
        policy: The line of the manifest, such as `duplicates = "first"`.
        count: Number of rows that were dropped or merged, or of entities that were added.
        action: What was done to these rows, such as `dropped 3 rows with the key of another row`.
        example: The first of these rows, such as `'c1' in rows 1 and 3`; without row numbers, and the first in the order of
            the texts, if the rows of the table have no order.
    """

    table: str
    location: str
    policy: str
    count: int
    action: str
    example: str

    def __str__(self) -> str:
        example = f"{':' if self.count == 1 else ', such as'} {self.example}"
        return f"{self.table}: {self.action}{example if self.example else ''} ({self.policy})"


def row_location(number: int, location: str, files: Sequence[str]) -> tuple[str, int]:
    """Return the file that contains a row, and the number of the row in this file.

    Args:
        number: The row's number in the table.
        location, files: The location of the table, and those of its files if it has several.
    """
    file, row = divmod(number, MAX_FILE_ROWS)
    return (files[file], row) if files else (location, number)
