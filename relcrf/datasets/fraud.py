"""Customers of a payment service with devices, merchants and transactions; most frauds are in rings."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from relcrf.files import atomic_path

HOUSEHOLDS, OFFICES, RINGS, LONERS = 1_000, 120, 60, 50
"""Number of groups: honest households and offices, rings of mostly fraudulent customers, and single fraudulent customers."""
FRAUD_IN_RING = 0.85
"""Probability that a customer of a ring is fraudulent; the others are victims whose accounts the ring uses."""
REVIEWED = 0.4
"""Fraction of the customers that an investigator has reviewed; the other customers have no verdict."""
PUBLIC_DEVICES, PUBLIC = 12, 0.03
"""Number of public devices, such as kiosks, and the fraction of the transactions that are made on them."""
MERCHANT_CATEGORIES = ("groceries", "fuel", "travel", "clothing", "electronics", "gift cards")
COUNTRIES = ("DE", "FR", "NL", "PL", "ES", "RO")
NAMES = ("Müller", "Schröder", "Weiß", "Dupont", "Léger", "de Vries", "Kowalska", "García", "Ionescu", "Jørgensen")

Table = dict[str, np.ndarray]


def fraud_tables(seed: int) -> dict[str, Table]:
    """Return the tables `customer`, `device`, `merchant` and `payment` (customer, device, merchant, amount, time).

    `fraud` is missing for customers that are not reviewed. Customers of a household, an office or a ring have common
    devices; amounts, merchants, hours and ages are weak evidence.
    """
    rng = np.random.default_rng(seed)
    kinds = np.repeat(["household", "office", "ring", "loner"], [HOUSEHOLDS, OFFICES, RINGS, LONERS])
    sizes = np.select(
        [kinds == "household", kinds == "loner"], [rng.integers(1, 4, len(kinds)), 1], rng.integers(3, 9, len(kinds))
    )
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    n, kind = len(group), kinds[group]
    fraud = (kind == "loner") | ((kind == "ring") & (rng.random(n) < FRAUD_IN_RING))
    customer = _names("C", n)
    verdict = np.where(fraud, "yes", "no").astype(object)
    verdict[rng.random(n) >= REVIEWED] = None
    signup = np.datetime64("2024-12-31") - rng.gamma(2.0, np.where(fraud, 200, 350)).astype("timedelta64[D]")
    risky = rng.random(n) < np.where(fraud, 0.4, 0.3)

    # Devices: a personal one for each customer, two for each group, and the public ones.
    n_devices = n + 2 * len(sizes) + PUBLIC_DEVICES
    device = rng.permutation(_names("D", n_devices))
    merchant = _names("M", 150)
    category = rng.integers(len(MERCHANT_CATEGORIES), size=len(merchant))

    count = rng.negative_binomial(3, 3 / (3 + np.where(fraud, 18, 15)), n) + 2
    payer = rng.permutation(np.repeat(np.arange(n), count))
    total, bad = len(payer), fraud[payer]
    used = np.where(rng.random(total) < 0.5, payer, n + 2 * group[payer] + rng.integers(2, size=total))
    used = np.where(rng.random(total) < PUBLIC, n_devices - 1 - rng.integers(PUBLIC_DEVICES, size=total), used)
    preference = np.where(np.isin(category, (4, 5)), 1.6, 1.0)
    shops = np.where(
        bad, rng.choice(len(merchant), total, p=preference / preference.sum()), rng.integers(len(merchant), size=total)
    )
    hour = np.where(
        rng.random(total) < np.where(bad, 0.25, 0.15), rng.integers(0, 6, total), rng.integers(6, 24, total)
    )
    time = np.datetime64("2025-01-01T00:00:00") + rng.integers(0, 90, total).astype("timedelta64[D]")
    time = time + hour.astype("timedelta64[h]") + rng.integers(0, 3600, total).astype("timedelta64[s]")
    return {
        "customer": {
            "id": customer,
            "name": rng.choice(np.array(NAMES, dtype=object), n),
            "country": np.where(risky, rng.choice(COUNTRIES[3:], n), rng.choice(COUNTRIES[:3], n)).astype(object),
            "age": np.clip(np.round(rng.normal(np.where(fraud, 37, 41), 12)), 18, 90).astype(int),
            "limit": np.round(rng.lognormal(7, 0.6, n), 2),
            "signup": np.datetime_as_string(signup).astype(object),
            "fraud": verdict,
        },
        "device": {
            "id": device,
            "system": rng.choice(np.array(["Android", "iOS", "Windows", "Linux"], dtype=object), n_devices),
        },
        "merchant": {
            "id": merchant,
            "category": np.array([MERCHANT_CATEGORIES[k] for k in category], dtype=object),
            "country": rng.choice(np.array(COUNTRIES, dtype=object), len(merchant)),
        },
        "payment": {
            "id": _names("T", total),
            "customer": customer[payer],
            "device": device[used],
            "merchant": merchant[shops],
            "amount": np.round(rng.lognormal(np.where(bad, 3.6, 3.4), 0.9), 2),
            "time": np.datetime_as_string(time, "s").astype(object),
        },
    }


def write_exports(tables: dict[str, Table], folder: Path) -> list[Path]:
    """Write the tables as a company's systems export them, and return the paths.

    `customers.csv` is a German export: semicolons, Windows encoding, decimal commas, dates such as 31.12.2024, a header
    with spaces, a customer in two rows, and unknown ages as `n/a`. `transactions.csv.gz` refers to some devices that are
    not in `devices.csv`, which begins with a byte order mark; `merchants.tsv` is separated by tabs.
    """
    customer, device, merchant, payment = (tables[name] for name in ("customer", "device", "merchant", "payment"))
    columns = (customer[c] for c in ("id", "name", "country", "age", "limit", "signup", "fraud"))
    rows = []
    for k, (key, name, country, age, limit, signup, verdict) in enumerate(zip(*columns, strict=True)):
        year, month, day = signup.split("-")
        shown_age = "n/a" if k % 97 == 5 else age
        rows.append(f"{key};{name};{country};{shown_age};{_german_number(limit)};{day}.{month}.{year};{verdict or ''}")
    rows.insert(400, rows[3])
    header = "Customer ID;Name;Country;Age;Credit limit;Sign-up date;Fraud"
    files = {"customers.csv": "\r\n".join([header, *rows, ""]).encode("cp1252")}
    lines = [",".join(map(str, row)) for row in zip(*payment.values(), strict=True)]
    text = "\n".join(["transaction_id,customer_id,device_id,merchant_id,amount,time", *lines, ""])
    files["transactions.csv.gz"] = gzip.compress(text.encode(), mtime=0)
    known = np.arange(len(device["id"])) % 400 != 7
    lines = [f"{key},{system}" for key, system in zip(device["id"][known], device["system"][known], strict=True)]
    files["devices.csv"] = "\n".join(["device_id,operating system", *lines, ""]).encode("utf-8-sig")
    lines = ["\t".join(row) for row in zip(*merchant.values(), strict=True)]
    files["merchants.tsv"] = "\n".join(["merchant_id\tcategory\tcountry", *lines, ""]).encode()
    paths = [folder / name for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        with atomic_path(path) as unfinished:
            unfinished.write_bytes(content)
    return paths


def _names(letter: str, count: int) -> np.ndarray:
    return np.array([f"{letter}{k:05}" for k in range(count)], dtype=object)


def _german_number(value: float) -> str:
    """Return a number with points between thousands and a decimal comma, such as `1.250,00`."""
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))
