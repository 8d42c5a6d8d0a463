"""A small dataset and model with candidates of all forms: literals of relations and attributes, with and without conditions."""

import numpy as np

TEXT = """
domain Trait = open
domain Verb = open
domain Mood = { calm, cross, glad }
entity Nation {
  predict mood : Mood
}
relation Near(n: Nation, m: Nation)
predict relation trait(n: Nation, t: Trait)
predict relation verb(n: Nation, m: Nation, v: Verb)
    where n != m
template trait_prior(n: Nation, t: Trait) over trait(n, t) per t
template verb_prior(n: Nation, m: Nation, v: Verb) over verb(n, m, v) per v
template mood_prior(n: Nation) over n.mood
template contagion(n: Nation, m: Nation) where Near(n, m) over n.mood == m.mood
candidates traits(n: Nation, s: Trait, t: Trait) where s < t over trait(n, s) and trait(n, t) per s, t
candidates unlike(n: Nation, s: Trait, t: Trait) where s != t over trait(n, s) and not trait(n, t) per s, t
candidates subject(n: Nation, m: Nation, v: Verb, t: Trait) over verb(n, m, v) and trait(n, t) per t, v
candidates near(n: Nation, m: Nation, s: Trait, t: Trait) where Near(n, m) over trait(n, s) and trait(m, t) per s, t
candidates reversed(n: Nation, m: Nation, v: Verb, w: Verb) where v != w over verb(n, m, v) and verb(m, n, w) per v, w
candidates moods(n: Nation, m: Nation, v: Verb, w: Verb) where Near(n, m) and w < v over verb(n, m, w) and verb(n, m, v) per v, w
candidates cross(n: Nation, t: Trait, m: Nation, v: Verb) where Near(m, n) over trait(n, t) and verb(m, n, v) per t, v
"""


def traits_world(seed=0, nations=14, missing=0.1):
    """Return tables with correlated pairs of traits, and verbs that depend on the traits of their subject."""
    rng = np.random.default_rng(seed)
    names = [f"n{k:02}" for k in range(nations)]
    base = rng.random(nations) < 0.5
    flip = lambda truth, rate: bool(truth) ^ bool(rng.random() < rate)  # noqa: E731
    traits = [
        (n, t, flip(base[k], 0.15) if t in ("big", "rich") else bool(rng.random() < 0.4))
        for k, n in enumerate(names)
        for t in ("big", "rich", "old", "wet")
    ]
    verbs = [
        (n, m, v, flip(base[k], 0.1) if v == "aids" else bool(rng.random() < 0.3))
        for k, n in enumerate(names)
        for m in names
        if n != m
        for v in ("aids", "trades", "visits")
    ]

    def columns(rows, *heads):
        known = [(*row[:-1], None if rng.random() < missing else row[-1]) for row in rows]
        return {head: list(column) for head, column in zip(heads, zip(*known, strict=True), strict=True)}

    near = [(n, names[(k + 1) % nations]) for k, n in enumerate(names)]
    return {
        "nation": {"id": names, "mood": [("calm", "cross", "glad")[k % 3] for k in range(nations)]},
        "near": {"n": [n for n, _ in near], "m": [m for _, m in near]},
        "trait": columns(traits, "n", "t", "value"),
        "verb": columns(verbs, "n", "m", "v", "value"),
    }
