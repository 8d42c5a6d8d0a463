"""Tests of benchmarks/choosing.py: time limits, differences, nested evaluation and the tasks."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
MODEL = """
domain Topic = open
entity Page { predict topic: Topic, score: real }
relation Link(a: Page, b: Page)
template own(p: Page) over p.topic by 1, p.score
template linked(a: Page, b: Page) where Link(a, b) over symmetric a.topic, b.topic
"""
QUICK = {"auto": {"effort": "quick"}}
TASKS = {
    "webkb": (877, 4),
    "departments": (877, 4),
    "cora": (1625, 3),
    "cora_near": (1625, 3),
    "people": (711, 4),
    "advisers": (2824, 5),
    "films": (268, 5),
    "scenes": (3600, 3),
    "crops": (200, 3),
    "molecules": (188, 3),
    "olivetti": (280, 1),
    "digits": (1697, 1),
}
"""Number of test labels in all folds, for one seed, and number of folds; the other tasks hide random cells."""


@pytest.fixture(scope="module")
def choosing():
    folders = [str(ROOT / "benchmarks"), str(ROOT / "datasets")]
    sys.path[:0] = folders
    try:
        import choosing

        yield choosing
    finally:
        for folder in folders:
            sys.path.remove(folder)


def make_task(choosing, changed=()):
    """Return a task of 240 linked pages in three parts; the topics of `changed` pages are exchanged."""
    rng = np.random.default_rng(0)
    topic = rng.integers(2, size=240)
    topic_shown = topic.copy()
    topic_shown[list(changed)] = 1 - topic[list(changed)]
    part = np.arange(240) % 3
    pairs = [(a, b) for a, b in rng.integers(240, size=(3000, 2)) if a != b and topic[a] == topic[b]][:400]
    page = {"id": np.arange(240), "topic": topic_shown, "score": topic + rng.normal(size=240), "part": part}
    tables = {"page": pd.DataFrame(page), "link": pd.DataFrame(pairs, columns=["a", "b"])}
    return choosing.Task("pages", MODEL, lambda: tables, "Page.topic", "by=Page.part", ("0",), (), QUICK)


def test_a_call_in_another_process_is_limited(choosing):
    assert choosing.run_limited(lambda: {"value": 3}, 60.0) == {"value": 3}

    def compute_forever():
        while True:
            pass

    assert choosing.run_limited(compute_forever, 1.0)["rejected"] == "time"
    assert choosing.run_limited(lambda: os._exit(3), 60.0) == {"rejected": "died", "reason": "exit status 3"}


def test_differences_are_paired_over_clusters(choosing):
    first = choosing.Scores([{"labels": [2, 1], "accuracy": [2, 1]}, {"labels": [1], "accuracy": [0]}])
    second = choosing.Scores([{"labels": [2, 1], "accuracy": [1, 0]}, {"labels": [1], "accuracy": [1]}])
    mean, error = first.difference(second, "accuracy")
    assert mean == pytest.approx(1 / 4)  # gaps of the clusters: 1 of 2 labels, 1 of 1, -1 of 1
    residuals = np.array([1 - 2 / 4, 1 - 1 / 4, -1 - 1 / 4])
    assert error == pytest.approx(np.sqrt((residuals**2).sum() * 3 / 2) / 4)
    # clusters of one label each: the standard error of a mean
    gaps = np.random.default_rng(0).normal(size=50)
    one, zero = (choosing.Scores([{"labels": [1] * 50, "accuracy": values}]) for values in (gaps, np.zeros(50)))
    assert one.difference(zero, "accuracy")[1] == pytest.approx(gaps.std(ddof=1) / np.sqrt(50))


@pytest.mark.slow
def test_auto_chooses_without_the_test_labels(choosing, monkeypatch):
    """With other labels of the test pages, the candidates have the same scores, and only the result differs."""
    monkeypatch.setattr(choosing, "WARM_SECONDS", 0.0)
    cells = []
    for changed in ((), range(0, 60, 3)):
        data = choosing.Data(make_task(choosing, changed), ())
        assert data.describe()["backends"] == ["local", *choosing.RELATIONAL, "auto"]
        assert list(data.folds) == ["0"]
        cells.append(data.measure("0", "auto", 60.0))
    first, second = cells
    assert sum(first["labels"]) == 80
    drop = [{k: v for k, v in row.items() if k != "seconds"} for row in first["trials"]]
    assert drop == [{k: v for k, v in row.items() if k != "seconds"} for row in second["trials"]]
    assert first["chosen"] == second["chosen"]
    right = np.array(first["accuracy"]) == 1
    assert right.mean() > 0.8
    # the labels of the first 20 test pages are exchanged, so that right predictions of these are wrong
    np.testing.assert_array_equal(right, np.where(np.arange(80) < 20, np.array(second["accuracy"]) == 0, right))
    assert first["seconds_chosen"] < first["seconds_learn"]


def test_rejections_have_a_reason(choosing):
    task = make_task(choosing)
    rule = "rule chain: Link(a, b) and Link(b, c) and a.topic == b.topic => b.topic == c.topic"
    data = choosing.Data(replace(task, model=MODEL + rule), ())
    assert data.measure("0", "ess", 60.0)["rejected"] == "E302"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TASKS))
def test_sizes_of_tasks(choosing, name):
    if "RELCRF_DATA" not in os.environ:
        pytest.skip("RELCRF_DATA is not set")
    task = choosing.TASKS[name]
    data = choosing.Data(task, task.seeds[:1])
    assert (sum(fold.n_test for fold in data.folds.values()), len(data.folds)) == TASKS[name]
