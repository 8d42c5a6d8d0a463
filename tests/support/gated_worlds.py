"""Small synthetic datasets for gated models, with known dependencies and known unnecessary links."""

from __future__ import annotations

import numpy as np

from relcrf.data.frame import Frame

ROWS = """
domain Trait = open
entity Thing
predict relation has(x: Thing, t: Trait)
template prior(x: Thing, t: Trait) over has(x, t) per t
template link(x: Thing, s: Trait, t: Trait) where s < t over has(x, s), has(x, t) per s, t
"""
"""Traits of entities, with a factor for every pair of traits of an entity."""

SWITCHED = """
domain State = { off, low, high }
entity Thing {
  predict switch : State
  predict lamp : State
}
template prior(x: Thing) over x.lamp
template chance(x: Thing) over x.switch
template wire(x: Thing) over x.switch, x.lamp
"""
"""Switches and lamps: a lamp depends on its switch only if the switch is on."""

WEATHER = """
entity Thing {
  wet : bool
  hint : real
  predict rain : bool
  predict street : bool
}
template rain(x: Thing) over x.rain
template seen(x: Thing) over x.street by x.hint
template link(x: Thing) over x.rain, x.street
"""
"""Rain and streets: the street depends on the rain only if `wet` is true; a hint is evidence about the street."""

CITATIONS = """
domain Topic = { a, b, c }
domain Word = open
entity Paper {
  words : bag of Word
  predict topic : Topic
}
relation Cites(from: Paper, to: Paper)
template prior(p: Paper) over p.topic
template word(p: Paper) over p.topic by p.words
template link(p: Paper, q: Paper) where Cites(p, q) over p.topic, q.topic
"""


HIDDEN_CAUSE = """
domain Trait = open
entity Thing { latent kind : 1..2 }
predict relation has(x: Thing, t: Trait)
template prior(x: Thing, t: Trait) over has(x, t) per t
template typical(x: Thing, t: Trait) over x.kind, has(x, t) per t
"""
"""Entities of two latent kinds on which all traits depend."""


def rows(n=300, traits=8, twins=2, seed=0):
    """Return traits in which t0 and t1, t2 and t3, ... (`twins` pairs) differ in a tenth of the rows; the others are independent.

    A trait is true with probability 0.3.
    """
    rng = np.random.default_rng(seed)
    columns = rng.random((n, traits)) < 0.3
    for twin in range(twins):
        columns[:, 2 * twin + 1] = columns[:, 2 * twin] ^ (rng.random(n) < 0.1)
    x, t = np.indices(columns.shape).reshape(2, -1)
    return {
        "thing": {"id": [f"x{r}" for r in range(n)]},
        "has": {"x": [f"x{r}" for r in x], "t": [f"t{k}" for k in t], "value": columns.ravel().tolist()},
    }


def of_two_kinds(n=200, traits=8, seed=0):
    """Return entities of two kinds, with all traits or none, except for 20 % noise."""
    rng = np.random.default_rng(seed)
    has = (rng.random((n, 1)) < 0.5) ^ (rng.random((n, traits)) < 0.2)
    x, t = np.indices(has.shape).reshape(2, -1)
    return {
        "thing": {"id": np.arange(n)},
        "has": {"x": x, "t": [f"t{k}" for k in t], "value": has.ravel().tolist()},
    }


def switched(n=600, seed=0):
    """Return switches, half of which are off."""
    rng = np.random.default_rng(seed)
    switch = rng.choice(3, size=n, p=(0.5, 0.25, 0.25))
    lamp = np.where((switch > 0) & (rng.random(n) < 0.9), switch, rng.integers(0, 3, size=n))
    names = np.array(["off", "low", "high"], dtype=object)
    return {"thing": {"id": np.arange(n), "switch": names[switch], "lamp": names[lamp]}}


def weather(n=600, seed=0):
    rng = np.random.default_rng(seed)
    wet, street = rng.random((2, n)) < 0.5
    rain = np.where(wet, street ^ (rng.random(n) < 0.05), rng.random(n) < 0.5)
    hint = np.where(street, 1.0, -1.0) + 0.5 * rng.normal(size=n)
    return {"thing": {"id": np.arange(n), "wet": wet, "hint": hint, "rain": rain, "street": street}}


def citations(n=60, seed=0, unknown=0.0, islands=1, words=12, first=0):
    """Return papers that mostly cite papers of their topic and island; half of the words are specific to the topic.

    Args:
        unknown: fraction of papers without a topic.
        first: number of the first word.
    """
    rng = np.random.default_rng(seed)
    topic, island = rng.integers(0, 3, size=n), rng.integers(0, islands, size=n)
    cites = {(p, p - 1) for p in range(1, n) if island[p] == island[p - 1]}
    for p in range(n):
        like = np.flatnonzero((topic == topic[p]) & (island == island[p]) & (np.arange(n) != p))
        cites |= {(p, int(q)) for q in like[rng.random(len(like)) < 3.0 / max(len(like), 1)]}
    own = words // 3
    listed = [
        [f"w{first + (k * own + rng.integers(own) if rng.random() < 0.5 else rng.integers(words))}" for _ in range(4)]
        for k in topic
    ]
    named = [None if rng.random() < unknown else "abc"[k] for k in topic]
    one, other = zip(*sorted(cites), strict=True)
    return {
        "paper": {"id": np.arange(n), "words": listed, "topic": np.array(named, dtype=object)},
        "Cites": {"from": one, "to": other},
    }


def write(tables, folder):
    """Write tables as CSV files, with bags as separate tables."""
    folder.mkdir()
    for name, table in tables.items():
        bags = {column: cells for column, cells in table.items() if isinstance(cells[0], list)}
        for column, cells in bags.items():
            ids = [one for one, words in zip(table["id"], cells, strict=True) for _ in words]
            listed = {name: ids, column.removesuffix("s"): [word for words in cells for word in words]}
            _write_table(listed, folder / f"{name}_{column.removesuffix('s')}.csv")
        _write_table({c: cells for c, cells in table.items() if c not in bags}, folder / f"{name}.csv")
    return folder


def _write_table(table, path):
    Frame({name: np.asarray(cells, dtype=object) for name, cells in table.items()}).write(path)
