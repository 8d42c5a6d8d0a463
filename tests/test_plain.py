"""Values read back from JSON are of the types that their data classes declare."""

import json
from dataclasses import asdict

import pytest

from relcrf.backends.provenance import Provenance, TableDigest, TrainingProtocol
from relcrf.graph.weights import WeightBlock
from relcrf.json_values import from_json_value

BLOCK = {"name": "a", "n_features": 2, "n_patterns": 3}


def test_data_classes_inside_data_classes_come_back():
    protocol = TrainingProtocol(split="folds=3", holdout=("1", "2"), spark_master=None)
    known = Provenance("id", protocol, {"page": TableDigest(3, "x")}, {"relcrf": "0.2"})
    assert from_json_value(Provenance, json.loads(json.dumps(asdict(known)))) == known


@pytest.mark.parametrize("initial", [0.5, (0.5, 1.0)])
def test_the_first_fitting_type_of_several(initial):
    block = WeightBlock("a", 2, 3, initial, l1=None, l2=1.0)
    assert from_json_value(WeightBlock, json.loads(json.dumps(asdict(block)))) == block


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": 1}, TypeError),
        ({"n_features": True}, TypeError),
        ({"n_features": 2.0}, TypeError),
        ({"initial": [1.0, "x"]}, TypeError),
        ({"l1": "0.5"}, TypeError),
        ({"other": 1}, KeyError),
    ],
)
def test_other_types_and_names_are_errors(changes, error):
    with pytest.raises(error):
        from_json_value(WeightBlock, BLOCK | changes)


def test_what_is_no_object_is_an_error():
    for value in (None, [], "text"):
        with pytest.raises(TypeError):
            from_json_value(WeightBlock, value)
