"""Synthetic mails without labels for models/votes.rcrf, with the votes of heuristics of different accuracy."""

from __future__ import annotations

import numpy as np

MAILS, THREAD = 1500, 3
CATEGORIES, FREQUENCIES = ("complaint", "question", "praise"), (0.5, 0.3, 0.2)
SAME_CATEGORY_PROBABILITY = 0.8
"""Probability that a mail has the category of its thread; other mails have a random one."""
VOTERS = {"refund": (0.9, 0.5), "thanks": (0.75, 0.5), "asks": (0.8, 0.6), "tone": (0.55, 0.9), "sender": (0.6, 0.7)}
"""The probability that a vote is right, and that the heuristic does not abstain, by heuristic."""


def mail_categories(seed: int) -> np.ndarray:
    """Return the true category of each mail as an index of `CATEGORIES`, which no table contains, shape (MAILS,)."""
    rng = np.random.default_rng(seed)
    of_thread = np.repeat(rng.choice(len(CATEGORIES), size=MAILS // THREAD, p=FREQUENCIES), THREAD)
    own = rng.choice(len(CATEGORIES), size=MAILS, p=FREQUENCIES)
    return np.asarray(np.where(rng.random(MAILS) < SAME_CATEGORY_PROBABILITY, of_thread, own))


def mails(seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the tables `mail`, with the votes and an empty column `category`, and `replies` within each thread."""
    category, rng = mail_categories(seed), np.random.default_rng((seed, 1))
    names = np.array(CATEGORIES, dtype=object)
    mail = {"id": np.arange(MAILS), "category": np.full(MAILS, None, dtype=object)}
    for voter, (accuracy, coverage) in VOTERS.items():
        wrong = (category + rng.integers(1, len(CATEGORIES), MAILS)) % len(CATEGORIES)
        vote = names[np.where(rng.random(MAILS) < accuracy, category, wrong)]
        vote[rng.random(MAILS) >= coverage] = None
        mail[voter] = vote
    first = np.flatnonzero(np.arange(MAILS) % THREAD < THREAD - 1)
    return {"mail": mail, "replies": {"a": first, "b": first + 1}}
