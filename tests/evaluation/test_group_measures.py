"""Measures by group: they equal those of the labels of each group, and unknown columns are reported."""

import numpy as np
import pytest

import relcrf
from relcrf import api
from relcrf.errors import DataError
from relcrf.evaluation.group_measures import MAX_GROUPS, VariableGroups, measure_groups

TEXT = """
domain Kind = { a, b }
entity Item {
    predict kind : Kind
    size         : real
    batch        : string
}
template size(i: Item)
    over i.kind
    by   i.size
"""


@pytest.fixture(scope="module")
def items():
    rng = np.random.default_rng(0)
    size = rng.normal(size=90)
    batch = np.repeat(["large", "middle", "small"], (50, 30, 10))
    flip = np.where(batch == "middle", 0.5, 0.05)  # labels of the middle batch are random
    kind = np.where((size > 0) ^ (rng.random(90) < flip), "a", "b")
    table = {"id": np.arange(90), "kind": kind, "size": size, "batch": batch}
    model = relcrf.parse(TEXT)
    return model.ground(relcrf.Dataset({"item": table})), batch


def test_measures_equal_those_of_the_labels_of_a_group(items):
    grounding, batch = items
    evaluation = api.evaluate(grounding, ["local"], "random,folds=3")
    predictions = evaluation.predictions
    frame = measure_groups(predictions, "local", "Item.kind", VariableGroups.from_column(grounding, "batch"))
    assert list(frame["batch"]) == ["large", "middle", "small"] and list(frame["labels"]) == [50, 30, 10]
    whole = predictions.pooled("local", "Item.kind")
    variables = np.concatenate([one.variables for one in predictions.by_system["local"]])
    for row in frame.to_dicts():
        selected = batch[variables] == row["batch"]
        confidence = whole.probabilities[selected].max(axis=1).mean()
        assert row["accuracy"] == pytest.approx((whole.modes == whole.truth)[selected].mean())
        assert row["log_loss"] == pytest.approx(whole.item_measures["log_loss"][selected].mean())
        assert row["overconfidence"] == pytest.approx(confidence - row["accuracy"])
        assert row["low"] < row["overconfidence"] < row["high"]
    by_batch = {row["batch"]: row for row in frame.to_dicts()}
    assert by_batch["middle"]["low"] > 0.0 > by_batch["large"]["low"]  # only the random labels surprise the model


def test_only_the_largest_groups_have_a_row(items):
    grounding, _ = items
    evaluation = api.evaluate(grounding, ["local"], "random,folds=3")
    frame = measure_groups(evaluation.predictions, "local", "Item.kind", VariableGroups.from_column(grounding, "id"))
    assert len(frame) == MAX_GROUPS
    with pytest.raises(DataError) as error:
        VariableGroups.from_column(grounding, "bach")
    assert error.value.diagnostics[0].code == "E212"
