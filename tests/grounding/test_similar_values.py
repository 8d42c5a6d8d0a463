"""Labels that differ only in case, spaces or the encoding of accents are noted."""

import pandas as pd
import pytest

import relcrf
from relcrf.grounding.similar_values import find_similar_values

MODEL = """
entity Page { kind: Kind  predict topic: Topic }
domain Kind = open
domain Topic = open
template prior(p: Page) over p.topic
template kind(p: Page) over p.topic per p.kind
"""


@pytest.mark.parametrize(
    "values, expected",
    [
        (["news", "sport"], []),
        (["News", "sport", "news", "NEWS"], [["News", "news", "NEWS"]]),
        (["in progress", "inprogress", "in-progress"], [["in progress", "inprogress"]]),
        (["caf\u00e9", "cafe\u0301", "cafe"], [["caf\u00e9", "cafe\u0301"]]),
        (["C", "C++", "C#", "Stra\u00dfe", "STRASSE"], [["Stra\u00dfe", "STRASSE"]]),
    ],
)
def test_groups_of_similar_values(values, expected):
    assert find_similar_values(values) == expected


@pytest.mark.parametrize("labels, is_noted", [(["News", "news", "sport"], True), (["News", "sport", None], False)])
def test_training_and_check_note_similar_labels(labels, is_noted):
    """The values of evidence are not labels."""
    tables = {"page": pd.DataFrame({"id": ["a", "b", "c"], "kind": ["X", "x", "x"], "topic": labels})}
    model = relcrf.parse(MODEL)
    _, notes = model.check(relcrf.Dataset(tables))
    grounded = model.ground(relcrf.Dataset(tables))
    for found in (notes, grounded.bound.notes):
        assert [note for note in found if "differ only" in note] == is_noted * [
            "values of Page.topic differ only in case or spaces and are different labels: 'News' and 'news'; if they mean the "
            "same, correct the table, or declare it by a query in dataset.toml that selects equal texts"
        ]
