"""The waterfall picture: its bars add up to the explained number."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

import relcrf
from relcrf.evaluation.contributions import Contribution
from relcrf.report import waterfall

MODEL = """
domain Level = { low, high }
entity Pair { predict match: bool, name: Level, town: Level }
template share(p: Pair) over p.match
template name(p: Pair) over p.match per p.name
template town(p: Pair) over p.match per p.town
"""


@pytest.fixture(scope="module")
def explanation():
    table = pd.DataFrame({"id": range(8), "match": [True, True, False, False] * 2})
    table = table.assign(name=["high", "low"] * 4, town=["high", "high", "high", "low"] * 2)
    model, data = relcrf.parse(MODEL), relcrf.Dataset({"pair": table})
    return model.fit(data, "local").explain(model.ground(data), "Pair/0")


def test_bars_are_named_by_template_and_key_and_add_up(explanation):
    bars = waterfall.waterfall_bars(explanation)
    assert {label for label, _ in bars} == {"share", "name: high", "town: high"}
    assert sum(amount for _, amount in bars) == pytest.approx(explanation.log_odds)


def test_further_contributions_share_a_bar(explanation):
    many = tuple(Contribution("itself", (f"t{k}",), (), 0.1 * k) for k in range(30, 0, -1))
    long = replace(explanation, contributions=many, log_odds=sum(one.amount for one in many))
    bars = waterfall.waterfall_bars(long)
    assert len(bars) == waterfall.MAX_BARS + 1
    assert bars[-1][0] == "10 further contributions"
    assert sum(amount for _, amount in bars) == pytest.approx(long.log_odds)


def test_the_picture_is_written_twice_with_equal_bytes(explanation, tmp_path):
    for name in ("one.svg", "two.svg"):
        waterfall.save_waterfall(explanation, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    text = (tmp_path / "one.svg").read_text()
    assert "town: high" in text and "log odds of" in text
