"""Free texts, such as titles, are bags of words in proposals; names and codes are not."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from tables import write_tables

import relcrf
from relcrf import api
from relcrf.data.dataset import Dataset
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.proposal import proposal
from relcrf.proposal.draft import analyse_tables
from relcrf.proposal.manifest import ManifestBuilder

SUBJECTS = {
    "billing": ("invoice paid twice", "refund of the last payment", "wrong amount on the invoice", "payment by card"),
    "access": ("password not accepted", "login page does not open", "account is locked", "reset of the password"),
}
PLACES = ("Bern", "Genève", "Zürich", "Basel", "Lausanne")


def tickets(n=120, **more):
    """Return tickets whose subjects determine their queues, which every third ticket lacks."""
    queues = [("billing", "access")[k % 2] for k in range(n)]
    return [
        {
            "id": f"T{k}",
            "subject": f"{SUBJECTS[queues[k]][k // 2 % 4].capitalize()}, {PLACES[k % 5]} ({k})",
            "queue": queues[k] if k % 3 else "",
            **{name: cell(k) for name, cell in more.items()},
        }
        for k in range(n)
    ]


def without(rows, *columns):
    return [{name: cell for name, cell in row.items() if name not in columns} for row in rows]


def propose(folder, out):
    project = proposal.propose(str(folder), out, None, DEFAULT_MEMORY)
    project.write()
    return project


@pytest.mark.parametrize(
    ("rows", "key"),
    [
        (tickets(), "id"),
        (without(tickets(), "id"), "subject"),
        ([{**row, "subject": row["subject"].partition(" (")[0]} for row in without(tickets(60), "id")], None),
    ],
    ids=["key", "text as key", "no key"],
)
def test_words_of_free_texts_predict(rows, key, tmp_path):
    folder, out = write_tables(tmp_path / "d", ticket=rows), tmp_path / "m.rcrf"
    text = propose(folder, out).draft.text
    assert "normalise(tfidf(t.subject_words))" in text
    model = relcrf.load(out)
    grounding = model.ground(Dataset(folder, manifest=out.with_suffix(".toml")))
    found = api.predict(api.fit(model, grounding, "local"), grounding).table("Ticket.queue")
    entities = found[key or "id"].tolist()
    numbers = {row[key] if key else str(k + 1): k for k, row in enumerate(rows)}
    assert sorted(numbers[entity] for entity in entities) == list(range(0, len(rows), 3))
    assert found["queue"].tolist() == [("billing", "access")[numbers[entity] % 2] for entity in entities]


def test_words_are_lower_cased_and_without_punctuation(tmp_path):
    rows = [{**row, "subject": row["subject"].replace("è", "e\u0300")} for row in tickets()]
    folder, out = write_tables(tmp_path / "d", ticket=rows), tmp_path / "m.rcrf"
    draft = propose(folder, out).draft
    words = {word for subjects in SUBJECTS.values() for subject in subjects for word in subject.split()}
    words |= {place.lower() for place in PLACES} | {str(k) for k in range(120)}
    assert set(draft.grounding.bound.domains["SubjectWord"]) == words
    (bag,) = draft.analysis.schema.entities[0].bags
    assert (bag.name, bag.distinct) == ("subject_words", len(words))


def code(k):
    digest = hashlib.sha256(str(k).encode()).hexdigest()
    return f"{digest[:8]} {digest[8:12]} {digest[12:16]}"


@pytest.mark.parametrize(
    "cell",
    [
        lambda k: f"Anna{k % 20} Meier{k}",
        lambda k: f"https://www.example.com/tickets/by id/{k}".replace(" ", "-"),
        code,
        lambda k: f"{k} 17 {k + 1} 23",
        lambda k: f"2024 {PLACES[k % 5]}",
    ],
    ids=["names", "addresses of pages", "codes", "numbers", "categories"],
)
def test_other_texts_are_no_words(cell, tmp_path):
    folder = write_tables(tmp_path / "d", ticket=tickets(extra=cell))
    schema = analyse_tables(Dataset(folder), None, ManifestBuilder(folder)).schema
    assert [bag.name for bag in schema.entities[0].bags] == ["subject_words"]


def test_proposed_model_of_data_frames_reads_the_words_of_other_frames():
    frame = pd.DataFrame(tickets()).replace({"queue": {"": None}})
    estimator = relcrf.RelationalCRF(backend="local").fit({"ticket": frame[:100]})
    others = frame[100:].assign(queue=None)
    found = estimator.predict({"ticket": others})
    assert found["queue"].tolist() == [("billing", "access")[k % 2] for k in range(100, 120)]


def test_words_predict_numbers(tmp_path):
    rows = [
        {**row, "queue": "", "hours": 3 + 4 * (k % 2) + k % 3 / 10 if k % 5 else ""} for k, row in enumerate(tickets())
    ]
    folder, out = write_tables(tmp_path / "d", ticket=without(rows, "queue")), tmp_path / "m.rcrf"
    proposal.propose(str(folder), out, "Ticket.hours", DEFAULT_MEMORY).write()
    model = relcrf.load(out)
    grounding = model.ground(Dataset(folder, manifest=out.with_suffix(".toml")))
    prediction = api.predict(api.fit(model, grounding), grounding)
    expected = [3.1 + 4 * (int(ticket[1:]) % 2) for ticket in prediction.table()["id"].tolist()]
    np.testing.assert_allclose(prediction.means(), expected, atol=1.0)
