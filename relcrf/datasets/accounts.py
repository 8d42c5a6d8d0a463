"""Accounts of an online shop for models/fraud.rcrf; most fraudulent accounts belong to rings that share devices."""

from __future__ import annotations

import numpy as np

HOUSEHOLDS, RINGS = 700, 50
"""Number of groups: households of honest accounts, and rings of mostly fraudulent accounts. A group shares a device."""
FRAUD_IN_RING = 0.9
"""Probability that an account of a ring is fraudulent."""
REVIEWED = 0.4
"""Fraction of the accounts that an investigator has reviewed; the other accounts have no verdict."""
STRAY_TRANSFERS = 0.15
"""Fraction of the transfers that go to an account of another group."""


def accounts(seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the tables `account`, `uses` (account, device) and `transfer` (sender, receiver).

    `verdict` is missing for accounts that are not reviewed. Links are stronger evidence of fraud than age and country.
    """
    rng = np.random.default_rng(seed)
    size = np.concatenate([rng.integers(1, 4, HOUSEHOLDS), rng.integers(3, 8, RINGS)])
    group = np.repeat(np.arange(len(size)), size)
    rng.shuffle(group)
    fraud = (group >= HOUSEHOLDS) & (rng.random(len(group)) < FRAUD_IN_RING)
    n = len(group)
    name = np.array([f"A{k:04}" for k in range(n)], dtype=object)
    days = np.round(rng.gamma(1.5, np.where(fraud, 90.0, 200.0)))
    risky = rng.random(n) < np.where(fraud, 0.5, 0.3)
    country = np.where(risky, rng.choice(["RO", "US", "NG"], n), rng.choice(["DE", "FR", "NL"], n)).astype(object)
    verdict = np.where(fraud, "fraud", "honest").astype(object)
    verdict[rng.random(n) >= REVIEWED] = None

    sender = rng.integers(n, size=2 * n)
    members = [np.flatnonzero(group == k) for k in range(len(size))]
    receiver = np.array([rng.choice(members[group[k]]) for k in sender])
    stray = rng.random(len(sender)) < STRAY_TRANSFERS
    receiver[stray] = rng.integers(n, size=int(stray.sum()))
    links = np.unique(np.column_stack([sender, receiver])[sender != receiver], axis=0)
    return {
        "account": {"id": name, "country": country, "age_days": days, "verdict": verdict},
        "uses": {"account": name, "device": np.array([f"D{k:03}" for k in group], dtype=object)},
        "transfer": {"sender": name[links[:, 0]], "receiver": name[links[:, 1]]},
    }
