"""Generator of pages with weak evidence: noisy scores for five categories, and eight links that prefer their own category.

    python datasets/weak_links.py --pages 10000 --out /tmp/weak_links

Writes the folders `train` and `test`, two independent graphs, each with `page.parquet` (id, category, score_1, ...,
score_5) and `link.parquet` (source, target), the tables of `MODEL`. The score of a page for a category is normal with
unit variance; its mean is 1 for the category of the page and 0 for other categories. The largest score is that of the
page's category for about half of the pages. The folder also contains the model, `weak_links.rcrf`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

CATEGORIES = 5
LINKS = 4
"""Number of links from a page; with the links from other pages, a page has eight links on average."""
HOMOPHILY = 0.6
"""Fraction of links whose target is drawn from the category of the source; the other targets are drawn from all pages."""

MODEL = """
entity Page {
    predict category : 1..5
    score_1 : real
    score_2 : real
    score_3 : real
    score_4 : real
    score_5 : real
}

relation Link(source: Page, target: Page)

template scores(p: Page)
    over p.category
    by   1, p.score_1, p.score_2, p.score_3, p.score_4, p.score_5

template linked(a: Page, b: Page)
    where Link(a, b)
    over  a.category, b.category
"""


@dataclass(frozen=True)
class Pages:
    """Pages and their links.

    Args:
        category: Category of each page, from 0, shape (n_pages,).
        scores: Scores of each page, shape (n_pages, CATEGORIES).
        links: Source and target of each link, shape (n_links, 2).
    """

    category: np.ndarray
    scores: np.ndarray
    links: np.ndarray

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables of `MODEL`."""
        columns = {f"score_{k + 1}": self.scores[:, k] for k in range(CATEGORIES)}
        page = pd.DataFrame({"id": np.arange(len(self.category)), "category": self.category + 1, **columns})
        return {"page": page, "link": pd.DataFrame(self.links, columns=["source", "target"])}


def make_pages(n: int, rng: np.random.Generator, homophily: float = HOMOPHILY) -> Pages:
    """Draw pages, their scores and their links; no page links to itself.

    Args:
        homophily: See `HOMOPHILY`.
    """
    category = rng.integers(CATEGORIES, size=n)
    source = np.repeat(np.arange(n), LINKS)
    target = rng.integers(n, size=len(source))
    prefers_own = rng.random(len(source)) < homophily
    for k in range(CATEGORIES):
        chosen, members = prefers_own & (category[source] == k), np.flatnonzero(category == k)
        target[chosen] = rng.choice(members, size=int(chosen.sum()))
    scores = rng.normal(size=(n, CATEGORIES))
    scores[np.arange(n), category] += 1.0
    return Pages(category, scores, np.column_stack((source, target))[source != target])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=10_000, help="Number of pages of each graph.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="Folder to write.")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    for part in ("train", "test"):
        folder = options.out / part
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in make_pages(options.pages, rng).tables().items():
            table.to_parquet(folder / f"{name}.parquet")
    (options.out / "weak_links.rcrf").write_text(MODEL.lstrip())
    print(f"wrote two graphs of {options.pages:,} pages to {options.out}")


if __name__ == "__main__":
    main()
