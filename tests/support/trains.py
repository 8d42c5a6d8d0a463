"""Models of the delays of trains, which depend on up to three unknown categories, and small tables for them."""

from __future__ import annotations

import numpy as np

CATEGORIES = {"cause": ("none", "weather", "signal"), "line": ("red", "blue"), "crew": ("early", "late")}

TRAINS = """
domain Cause = { none, weather, signal }
domain Line = { red, blue }
domain Crew = { early, late }
entity Train {
    predict delay : real
    predict cost : real
    predict cause : Cause
    predict line : Line
    predict crew : Crew
    hour : real
}
relation Follows(a: Train, b: Train)
template hour(t: Train) over t.delay by 1, t.hour
template cause(t: Train) over t.cause by 1, t.hour
template crew(t: Train) over t.crew
template routes(t: Train) over t.line, t.cause
template same(a: Train, b: Train) where Follows(a, b) over a.line == b.line
"""
SEPARATE = """
template delay(t: Train) over t.delay, t.cause by 1, t.hour
template line(t: Train) over t.delay, t.line
template cost(t: Train) over t.cost, t.crew
"""
TOGETHER = """
template delay(t: Train) over t.delay, t.cause, t.line
template shift(t: Train) over t.delay, t.crew by t.hour
template cost(t: Train) over t.cost, t.line, t.crew
"""
NEIGHBOURS = """
template delay(t: Train) over t.delay, t.cause, t.line, t.crew
template before(a: Train, b: Train) where Follows(a, b) over b.delay, a.cause
template cost(t: Train) over t.cost, t.cause
"""
LINKS = """
template links(a: Train, b: Train) where Follows(a, b) over a.delay, b.delay
template prices(t: Train) over t.delay, t.cost
"""


def trains(n, seed, *, unknown=0.0, unknown_categories=0.0):
    """Return the tables of trains whose delays depend on their hours, causes, lines and crews, and on the train before."""
    rng = np.random.default_rng(seed)
    hour = rng.normal(size=n)
    cause, line, crew = (rng.integers(len(values), size=n) for values in CATEGORIES.values())
    line = np.where(rng.random(n) < 0.6, cause % 2, line)
    delay = hour + cause * (1.0 + line) - 1.5 * crew * line + 0.4 * (1 + cause) * rng.normal(size=n)
    cost = 1.0 + line - crew + 0.05 * delay + 0.5 * rng.normal(size=n)
    table = {"id": range(n), "hour": hour}
    for name, values in (("delay", delay), ("cost", cost)):
        table[name] = [float(v) if known else None for v, known in zip(values, rng.random(n) >= unknown, strict=True)]
    for (name, values), states in zip(CATEGORIES.items(), (cause, line, crew), strict=True):
        is_known = rng.random(n) >= unknown_categories
        table[name] = [values[k] if known else None for k, known in zip(states, is_known, strict=True)]
    after = np.flatnonzero(rng.random(n - 1) < 0.8) + 1
    return {"train": table, "follows": {"a": after - 1, "b": after}}
