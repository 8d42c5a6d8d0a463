"""Models of the prices of houses, and small tables for them."""

from __future__ import annotations

import numpy as np

DECLARATIONS = """
domain Kind = { flat, house, barn }
domain Area = open
entity House {
    predict price : real
    kind : Kind
    area : Area
    size : real
}
relation Near(a: House, b: House)
template size(h: House) over h.price by 1, h.size
template area(h: House) over h.price per h.area
"""
NEAR = "template near(a: House, b: House) where Near(a, b) over a.price, b.price by 1, a.size\n"
MIXED = """
domain Kind = { flat, house, barn }
entity House {
    predict price : real
    predict kind : Kind
    size : real
}
relation Near(a: House, b: House)
template prior(h: House) over h.kind
template same(a: House, b: House) where Near(a, b) over a.kind == b.kind
template size(h: House) over h.price by 1, h.size
template kind(h: House) over h.price, h.kind
"""
NEAR_PRICES = "template near(a: House, b: House) where Near(a, b) over a.price, b.price\n"
KIND_LEVELS = "template kind(h: House) over h.price per h.kind\n"
KINDS = ("flat", "house", "barn")


def houses(n, seed, *, unknown=0.3, unknown_kinds=0.0, areas="wxyz", links=1.0, unit=1.0):
    """Return the tables of houses whose prices depend on their sizes and kinds, and on a level of each four neighbours."""
    rng = np.random.default_rng(seed)
    size, kind, area = rng.normal(size=n), rng.integers(3, size=n), rng.integers(len(areas), size=n)
    level = rng.normal(size=n)[np.arange(n) // 4 * 4]
    price = 5.0 + 2.0 * size + 2.0 * kind + area + level + 0.5 * rng.normal(size=n)
    first = rng.integers(n, size=int(links * n))
    second = np.minimum(first // 4 * 4 + rng.integers(4, size=len(first)), n - 1)
    kept = first != second
    table = {
        "id": range(n),
        "price": [float(p) if known else None for p, known in zip(price * unit, rng.random(n) >= unknown, strict=True)],
        "kind": [KINDS[k] if known else None for k, known in zip(kind, rng.random(n) >= unknown_kinds, strict=True)],
        "area": [areas[k] for k in area],
        "size": size,
    }
    return {"house": table, "near": {"a": first[kept], "b": second[kept]}}
