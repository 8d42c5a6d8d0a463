"""Small tables on disk for tests."""

from __future__ import annotations

import csv
from pathlib import Path


def write_tables(folder: Path, **tables: list[dict]) -> Path:
    """Write each table as CSV; None is an empty cell."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return folder


def small_web(folder: Path, pages: int = 60, seed: int = 0) -> Path:
    """Write tables for models/webkb.rcrf in which words and links indicate the category; every fifth page is unlabelled."""
    import numpy as np

    rng = np.random.default_rng(seed)
    categories = ("course", "faculty", "student", "project", "staff")
    kind = rng.integers(5, size=pages)
    page = [
        {"id": f"p{k}", "category": None if k % 5 == 0 else categories[kind[k]], "school": f"s{k % 3}"}
        for k in range(pages)
    ]
    word = [
        {"page": f"p{k}", "word": f"w{kind[k] * 4 + rng.integers(4)}" if rng.random() < 0.6 else f"x{rng.integers(9)}"}
        for k in range(pages)
        for _ in range(6)
    ]
    link = []
    for k in range(pages):
        same = [j for j in range(pages) if kind[j] == kind[k] and j != k]
        link += [{"source": f"p{k}", "target": f"p{same[rng.integers(len(same))]}"} for _ in range(2)]
    return write_tables(folder, page=page, page_words=word, link=link)


def cursor_factory(connection):
    """Return a function that opens connections to the same tables in the same schema."""

    def cursor(query=None):
        ((schema,),) = connection.execute("SELECT current_schema()").fetchall()
        made = connection.cursor()
        made.execute(f"SET schema = '{schema}'")
        return made

    return cursor
