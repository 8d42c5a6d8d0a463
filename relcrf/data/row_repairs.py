"""Descriptions of the repairs that the policies of a manifest made to the rows of a table; run folders store them."""

from __future__ import annotations

from dataclasses import dataclass


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
        return f"{self.table}: {self.action} ({self.policy})"
