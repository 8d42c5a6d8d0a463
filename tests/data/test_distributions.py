"""Distributions of columns against pandas, their stability across tables, and invalid distributions in run folders."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.backends import run_folder
from relcrf.data import distributions
from relcrf.data.binding import bind
from relcrf.data.distributions import MAX_VALUES, ColumnDistribution, measure_distributions
from relcrf.errors import DataError

MODEL = """
domain Topic = { a, b }
domain Colour = open
domain Word = open
entity Item {
    size: real
    stock: integer
    fresh: bool
    title: string
    day: date
    hour: time
    seen: datetime
    colour: Colour
    words: bag of Word
    vector: vector
    predict topic: Topic
    latent kind: Topic
}
relation Near(x: Item, y: Item) { weight: real }
template unary(i: Item) over i.topic per i.colour
"""


def tables(n=200, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    keys = [f"i{k:03d}" for k in range(n)]
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    item = pd.DataFrame(
        {
            "id": keys,
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n) * scale),
            "stock": rng.integers(0, 4, n),
            "fresh": rng.random(n) < 0.3,
            "title": ["x" * k for k in rng.integers(1, 30, n)],
            "day": days.strftime("%Y-%m-%d"),
            "hour": [f"{hour:02d}:30:00" for hour in rng.integers(0, 24, n)],
            "seen": days.strftime("%Y-%m-%d 10:00:00"),
            "colour": [f"c{k:02d}" for k in np.minimum(rng.geometric(0.08, n), 40)],
            "vector": ["[1.0, 2.0]"] * n,
            "topic": np.where(rng.random(n) < 0.5, None, rng.choice(["a", "b"], n)),
        }
    )
    words = pd.DataFrame({"item": rng.choice(keys, 3 * n), "word": [f"w{k}" for k in rng.integers(0, 30, 3 * n)]})
    near = pd.DataFrame({"x": rng.choice(keys, n), "y": rng.choice(keys, n)}).drop_duplicates()
    return {"item": item, "item_words": words, "near": near.assign(weight=rng.random(len(near)))}


def measure(given, like=()):
    bound = bind(relcrf.parse(MODEL).spec, relcrf.Dataset(given))
    return {one.name: one for one in measure_distributions(bound, like)}


def test_values_against_pandas():
    given = tables()
    found = measure(given)
    item = given["item"]
    assert set(found) == {
        "Item.size",
        "Item.stock",
        "Item.fresh",
        "length of Item.title",
        "Item.day",
        "Item.hour",
        "Item.seen",
        "Item.colour",
        "Item.words",
        "number of Item.words",
        "Item.topic",
        "Near.weight",
        "number of Near by x",
        "number of Near by y",
    }
    for name, column, n_missing in (
        ("colour", item.colour, 0),
        ("words", given["item_words"].word, 0),
        ("topic", item.topic, None),
    ):
        one, counts = found[f"Item.{name}"], column.value_counts()
        assert dict(zip(one.values, one.counts, strict=True)) == {value: counts[value] for value in one.values}
        assert min(one.counts) >= counts[~counts.index.isin(one.values)].max() if len(counts) > MAX_VALUES else True
        assert len(one.values) == min(len(counts), MAX_VALUES) and one.n_rows == len(column)
        assert one.n_missing == (column.isna().sum() if n_missing is None else n_missing)
    assert found["Item.topic"].is_predicted and not found["Item.colour"].is_predicted
    assert dict(zip(found["Item.fresh"].values, found["Item.fresh"].counts, strict=True)) == {
        "false": (~item.fresh).sum(),
        "true": item.fresh.sum(),
    }


@pytest.mark.parametrize("chunk", [1, 7, 600])
def test_bags_in_chunks_against_pandas(chunk, monkeypatch):
    given = tables()
    given["item_words"] = given["item_words"].assign(count=np.arange(600) % 5 + 1)
    monkeypatch.setattr(distributions, "ROWS_PER_CHUNK", chunk)
    bound = bind(relcrf.parse(MODEL).spec, relcrf.Dataset(given))
    by_value, by_item = distributions._bag_totals(bound, "Item", "words", len(bound.domains["Word"]))
    words = given["item_words"]
    by_word = words.groupby("word")["count"].sum()
    assert dict(zip(bound.domains["Word"], by_value, strict=True)) == by_word.to_dict()
    of_item = words.groupby("item")["count"].sum().reindex(given["item"]["id"], fill_value=0)
    assert by_item.tolist() == of_item.tolist() and (by_item == 0).any()


def bins(numbers, edges):
    """Return the numbers of values per bin by a plain loop over the definition."""
    counts = [0] * (len(edges) + 1)
    for number in numbers:
        if number < edges[0]:
            counts[0] += 1
        elif number <= edges[1]:
            counts[1] += 1
        else:
            counts[next((k for k in range(2, len(edges)) if number <= edges[k]), len(edges))] += 1
    return tuple(counts)


@pytest.mark.parametrize("seed", [0, 1])
def test_numbers_against_a_loop(seed):
    given, other = tables(seed=seed), tables(150, seed=seed + 10, scale=3.0)
    found = measure(given)
    again = measure(other, list(found.values()))

    def numbers(tables):
        item, near = tables["item"], tables["near"]
        midnight = pd.Timestamp("1970-01-01")
        return {
            "Item.size": item["size"].dropna(),
            "Item.stock": item.stock,
            "length of Item.title": item.title.str.len(),
            "Item.day": (pd.to_datetime(item.day) - midnight).dt.days,
            "Item.hour": item.hour.str[:2].astype(int) * 3600 + 1800,
            "Item.seen": (pd.to_datetime(item.seen) - midnight).dt.total_seconds(),
            "Near.weight": near.weight,
            "number of Item.words": item.id.map(tables["item_words"].item.value_counts()).fillna(0),
            "number of Near by y": item.id.map(near.y.value_counts()).fillna(0),
        }

    for name, values in numbers(given).items():
        one = found[name]
        assert one.edges[0] == values.min() and one.edges[-1] == values.max()
        assert set(one.edges) <= set(values) and len(one.edges) <= 11
        assert one.counts == bins(values, one.edges) and one.counts[0] == one.counts[-1] == 0
        assert again[name].edges == one.edges
        assert again[name].counts == bins(numbers(other)[name], one.edges)
    assert again["Item.size"].counts[0] and again["Item.size"].counts[-1], "values outside the range are found"
    assert found["Item.size"].n_missing == given["item"]["size"].isna().sum()


def test_same_tables_give_the_same_distributions():
    found = list(measure(tables()).values())
    assert list(measure(tables(), found).values()) == found


def test_values_that_training_did_not_have_are_others():
    given = tables()
    found = measure(given)
    changed = {**given, "item": given["item"].assign(colour="new")}
    again = measure(changed, list(found.values()))["Item.colour"]
    assert again.values == found["Item.colour"].values and not any(again.counts) and again.n_others == 200


def test_empty_columns():
    given = tables(50)
    given["item"] = given["item"].assign(size=np.nan, topic=None)
    found = measure(given)
    assert found["Item.size"] == ColumnDistribution("Item.size", (0,), n_missing=50)
    assert found["Item.topic"].counts == () and found["Item.topic"].n_missing == 50
    again = measure(tables(30), list(found.values()))
    assert again["Item.size"].counts == (tables(30)["item"]["size"].notna().sum(),)


def test_a_run_keeps_them(tmp_path):
    fit = relcrf.parse(MODEL).fit(tables(), "local")
    fit.save(tmp_path / "run")
    assert fit.learned.columns == tuple(measure(tables()).values())
    assert run_folder.load(tmp_path / "run").columns == fit.learned.columns


@pytest.mark.parametrize(
    "change",
    [
        {"counts": [1]},
        {"counts": [-1, 2, 3]},
        {"edges": [1.0]},
        {"edges": [2.0, 1.0]},
        {"edges": [1.0, 2.0, 2.0], "counts": [0, 1, 2, 3]},
        {"edges": [1.0, float("nan")]},
        {"edges": [1.0, float("inf")]},
        {"n_missing": -1},
        {"counts": [True, 1, 1]},
        {"unit": None},
    ],
)
def test_damaged_distributions_are_rejected(tmp_path, change):
    fit = relcrf.parse(MODEL).fit(tables(20), "local")
    column = ColumnDistribution("Item.size", (0, 1, 0), edges=(1.0, 2.0))
    relcrf.api.Fit(replace(fit.learned, columns=(column,))).save(tmp_path / "signed")
    shutil.copytree(tmp_path / "signed", tmp_path / "run", ignore=shutil.ignore_patterns("manifest.json"))
    assert run_folder.load(tmp_path / "run").columns == (column,)
    path = tmp_path / "run" / "columns.json"
    (plain,) = json.loads(path.read_text())
    path.write_text(json.dumps([{**plain, **change}]))
    with pytest.raises(DataError, match=r"columns\.json"):
        run_folder.load(tmp_path / "run")
