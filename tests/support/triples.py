"""Datasets and models with candidate triples of all forms, and one with a conjunction that no pair represents completely."""

import numpy as np
from traits import TEXT as PAIRS

from relcrf.graph.candidates import CandidateSet, PairSpace

TEXT = (
    PAIRS
    + """
candidates three(n: Nation, s: Trait, t: Trait, u: Trait)
    where s < t and t < u
    over trait(n, s) and trait(n, t) and trait(n, u)
    per s, t, u
candidates through(n: Nation, m: Nation, v: Verb, s: Trait, t: Trait)
    over verb(n, m, v) and trait(n, s) and trait(m, t)
    per t, v, s
candidates mixed(a: Nation, b: Nation, p: Trait, q: Trait, r: Trait)
    where Near(a, b) and p != q
    over trait(a, p) and not trait(a, q) and trait(b, r)
    per p, q, r
candidates loose(n: Nation, s: Trait, t: Trait, u: Trait)
    where u > s
    over trait(n, s) and trait(n, t) and trait(n, u)
    per s, t, u
"""
)
NAMES = ("three", "through", "mixed", "loose")

CAUSES = """
domain Trait = open
entity Thing
predict relation has(x: Thing, t: Trait)
template prior(x: Thing, t: Trait) over has(x, t) per t
candidates pairs(x: Thing, s: Trait, t: Trait) where s < t over has(x, s) and has(x, t) per s, t
"""
TRIPLES = """
candidates triples(x: Thing, s: Trait, t: Trait, u: Trait)
    where s < t and t < u
    over has(x, s) and has(x, t) and has(x, u)
    per s, t, u
"""


def causes_world(rows=600, seed=0, extra=6):
    """Return independent fair traits a and b, c as a noisy `a and b`, and independent others."""
    rng = np.random.default_rng(seed)
    a, b = rng.random((2, rows)) < 0.5
    columns = {"a": a, "b": b, "c": (a & b) ^ (rng.random(rows) < 0.05)}
    columns |= {f"x{k}": rng.random(rows) < 0.3 for k in range(extra)}
    names = [f"r{r}" for r in range(rows)]
    return {
        "thing": {"id": names},
        "has": {
            "x": np.repeat(names, len(columns)),
            "t": np.tile(list(columns), rows),
            "value": np.stack(list(columns.values()), axis=1).ravel(),
        },
    }


def every_candidate(spaces):
    """Return all pairs and triples of candidate spaces."""
    rows = [np.empty((3, 0), dtype=np.int64)]
    for number, space in enumerate(spaces):
        if isinstance(space, PairSpace):
            pairs = space.all_pairs()
        else:
            keys = np.indices([side.n_keys for side in space.sides]).reshape(3, -1)
            kept = [relation.allows(keys[i], keys[j]) for (i, j), relation in space.relations.items()]
            pairs = space.numbered(keys[:, np.all(kept, axis=0)].T)
        rows.append(np.stack((np.full(len(pairs), number), *pairs.T)))
    return CandidateSet(np.concatenate(rows, axis=1))


def proposed(model, spaces, point):
    """Return the triples that are not in a model and contain a pair that is, by plain loops."""
    held = point[model.n_base :] != 0.0
    standing = set(map(tuple, model.chosen.only(held).rows.T.tolist()))
    chosen = set(map(tuple, model.chosen.rows.T.tolist()))
    out = set()
    for row in map(tuple, every_candidate(spaces).rows.T.tolist()):
        space = spaces[row[0]]
        if row in chosen or isinstance(space, PairSpace):
            continue
        (keys,) = space.keys(np.array([row[1:]])).tolist()
        for parent in space.parents:
            first, second = (
                np.flatnonzero(of == keys[at]).tolist() for of, at in zip(parent.keys, parent.places, strict=True)
            )
            if any((parent.space, a, b) in standing for a in first for b in second):
                out.add(row)
    return out
