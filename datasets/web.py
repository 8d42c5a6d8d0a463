"""Generator of a synthetic web: pages of five categories, links that prefer their own category, and hint words.

    python datasets/web.py --pages 10000 --out /tmp/web

Writes `page.parquet` (id, category, part), `link.parquet` (source, target) and `page_word.parquet` (page, word), the
tables of models/webkb.rcrf. `part` is `train` or `test`, with equal probability.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import duckdb
import numpy as np

CATEGORIES = ("course", "faculty", "student", "project", "staff")
VOCABULARY = 50_000
HINTS = 400
"""Number of hint words of a category: words that the pages of the category use more often."""
HINT_FRACTION = 0.035
"""Fraction of a page's words that are drawn from the hint words of its category instead of the whole vocabulary."""
SAME_CATEGORY_FRACTION = 0.35
"""Fraction of links whose target is drawn from the category of the source; the other targets are any pages."""


def make_web(
    folder: Path, pages: int, links: int = 8, words: int = 100, seed: int = 0, hub_fraction: float = 0.0, sites: int = 1
) -> None:
    """Write the tables of a web to a folder.

    Args:
        links, words: Number of links, and of words, per page.
        sites: Number of sites of equal size; links stay within a site.
        hub_fraction: Fraction of links that lead to popular pages; a few popular pages have thousands of links.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    category = rng.integers(len(CATEGORIES), size=pages)
    by_category = [np.flatnonzero(category == k) for k in range(len(CATEGORIES))]

    source = np.repeat(np.arange(pages), links)
    target = rng.integers(pages, size=len(source))
    for k, members in enumerate(by_category):
        stays = (category[source] == k) & (rng.random(len(source)) < SAME_CATEGORY_FRACTION)
        target[stays] = rng.choice(members, size=int(stays.sum()))
    if hub_fraction:
        popular = rng.random(len(source)) < hub_fraction
        target[popular] = (pages * rng.random(int(popular.sum())) ** 3).astype(target.dtype)
    if sites > 1:
        size = pages // sites
        target = np.minimum(source // size * size + target % size, pages - 1)

    page = np.repeat(np.arange(pages, dtype=np.int32), words)
    # As in text, word frequencies fall with the rank: the square makes a few words common and most words rare.
    word = (VOCABULARY * rng.random(len(page)) ** 2).astype(np.int32)
    hint = rng.random(len(page)) < HINT_FRACTION
    word[hint] = category[page[hint]] * HINTS + rng.integers(HINTS, size=int(hint.sum())) + 10_000

    with duckdb.connect() as connection:
        names = np.asarray(CATEGORIES, dtype=object)[category]
        part = np.where(rng.random(pages) < 0.5, "train", "test").astype(object)
        connection.register("page", {"id": np.arange(pages), "category": names, "part": part})
        connection.register("link", {"a": source, "b": target})
        connection.register("word", {"page": page, "word": word})
        tables = {
            "page": "SELECT 'p' || id AS id, category, part FROM page",
            "link": "SELECT 'p' || a AS source, 'p' || b AS target FROM link",
            "page_word": "SELECT 'p' || page AS page, 'w' || word AS word FROM word",
        }
        for name, select in tables.items():
            connection.execute(f"COPY ({select}) TO '{folder / (name + '.parquet')}' (FORMAT parquet)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--links", type=int, default=8, help="Number of links per page.")
    parser.add_argument("--words", type=int, default=100, help="Number of words per page.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="Folder to write.")
    options = parser.parse_args()
    make_web(options.out, options.pages, options.links, options.words, options.seed)
    print(f"wrote {options.pages:,} pages to {options.out}")


if __name__ == "__main__":
    main()
