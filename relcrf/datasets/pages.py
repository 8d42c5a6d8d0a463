"""Synthetic web pages for models/webkb.rcrf and similar models; links are stronger evidence than words."""

from __future__ import annotations

import numpy as np

PAGES, SITES, LINKS_PER_PAGE, WORDS_PER_PAGE = 240, 4, 3, 8
CATEGORIES = ("course", "faculty", "student", "project", "staff")
SAME_CATEGORY_PROBABILITY = 0.75
"""Probability that a link leads to a page of the same category; other links lead to a random page of the site."""
CATEGORY_WORD_PROBABILITY = 0.25
"""Probability that a word is specific to the category; other words are common to all categories."""


def web_pages(seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the tables `page` (with `category` and `site`), `link` (links within each site) and `page_words`."""
    rng = np.random.default_rng(seed)
    name = np.array([f"p{k:03}" for k in range(PAGES)], dtype=object)
    category, site = rng.integers(len(CATEGORIES), size=PAGES), np.arange(PAGES) % SITES
    is_specific = rng.random((PAGES, WORDS_PER_PAGE)) < CATEGORY_WORD_PROBABILITY
    word = np.where(
        is_specific,
        6 * category[:, None] + rng.integers(6, size=is_specific.shape),
        30 + rng.integers(60, size=is_specific.shape),
    )
    source = np.repeat(np.arange(PAGES), LINKS_PER_PAGE)
    target = np.empty_like(source)
    for k, page in enumerate(source):
        same_site = (site == site[page]) & (np.arange(PAGES) != page)
        same_category = same_site & (category == category[page])
        target[k] = rng.choice(
            np.flatnonzero(
                same_category if same_category.any() and rng.random() < SAME_CATEGORY_PROBABILITY else same_site
            )
        )
    return {
        "page": {
            "id": name,
            "category": np.array(CATEGORIES, dtype=object)[category],
            "site": np.array([f"site{k + 1}" for k in site], dtype=object),
        },
        "link": {"source": name[source], "target": name[target]},
        "page_words": {
            "page": np.repeat(name, WORDS_PER_PAGE),
            "word": np.array([f"w{k:02}" for k in word.ravel()], dtype=object),
        },
    }
