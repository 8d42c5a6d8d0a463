"""Requests with texts, of which a manifest derives bags of words: their answers equal the predictions of tables."""

import pandas as pd
import pytest
from tables import write_tables

import relcrf
from relcrf.serving.openapi import openapi_document
from relcrf.serving.predictor import Predictor

MODEL = """
domain Queue = { access, billing }
domain Word = open
entity TicketKEY { predict queue : Queue  title_words : bag of Word }
template prior(t: Ticket) over t.queue
template word(t: Ticket) over t.queue by t.title_words
"""
TEXTS = (
    "Invoice paid twice, invoice (17)",
    "PASSWORD not accepted: straße STRASSE",
    "İstanbul login; Σίσυφος ΟΔΟΣ",
    "Gene\u0300ve Genève reset, ½ of 3² — ﬁnal 漢字",
    "n/a",
    "",
    "?!",
    "password invoice",
    "Login, password of Genève",
)
MANIFESTS = {
    "file": ("", '[tables.ticket]\nfile = "ticket.csv"\nmissing = ["n/a"]\nwords = { title_words = "Title" }\n'),
    "key": (
        "(name)",
        '[tables.ticket]\nfile = "ticket.csv"\ncolumns = { name = "Title" }\nwords = { title_words = "Title" }\n',
    ),
    "query": (
        "",
        '[tables.rows]\nfile = "ticket.csv"\n[tables.ticket]\nsql = "SELECT id, queue, Title AS t FROM rows"\n'
        'columns = { Title = "t", title_words = "w" }\nwords = { w = "t" }\n',
    ),
}


def tickets(texts):
    return [{"id": f"t{k}", "Title": text, "queue": ("access", "billing")[k % 2]} for k, text in enumerate(texts)]


@pytest.fixture(scope="module", params=MANIFESTS)
def trained(request, tmp_path_factory):
    """Return the name of a manifest, a predictor of a loaded run, and the batch predictions of further tables."""
    folder = tmp_path_factory.mktemp("tickets")
    key, manifest = MANIFESTS[request.param]
    texts = [text for text in TEXTS if text] if key else TEXTS
    rows = tickets([f"{text} {k}" for k, text in enumerate(texts * 3)])
    (folder / "tables.toml").write_text(manifest)
    data = relcrf.Dataset(write_tables(folder / "old", ticket=rows), manifest=folder / "tables.toml")
    relcrf.parse(MODEL.replace("KEY", key)).fit(data, "local").save(folder / "run")
    new = write_tables(folder / "new", ticket=[{**row, "queue": ""} for row in tickets(texts)])
    expected = relcrf.load_fit(folder / "run").predict(new).table()
    return request.param, Predictor(folder / "run"), texts, expected


def requests(name, texts):
    """Return each ticket as a row of a request."""
    if name == "key":
        return [{"name": text} for text in texts]
    return [{"id": f"t{k}", "title": text or None} for k, text in enumerate(texts)]


def test_answers_equal_predictions_of_tables(trained):
    name, predictor, texts, expected = trained
    keys = {key: k for k, key in enumerate(expected["Title" if name == "key" else "id"].tolist())}
    rows = requests(name, texts)
    alone = [frame.to_dicts()[0] for frame in predictor.predict_many([{"ticket": row} for row in rows])]
    together = predictor.predict({"Ticket": pd.DataFrame(rows).assign(unused=1)}).to_dicts()
    assert len(alone) == len(together) == len(texts)
    for row in (*alone, *together):
        k = keys[row["name" if name == "key" else "id"]]
        assert row["queue"] == expected["queue"][k]
        assert row["p_access"] == pytest.approx(expected["p_access"][k], rel=1e-12)
    assert predictor.report().slow_path == 0
    assert len({row["p_access"] for row in alone}) > 5


def test_words_may_be_sent_instead(trained):
    name, predictor, _, _ = trained
    text = predictor.predict({"ticket": requests(name, ["Invoice paid: INVOICE"])[0]}).rows()
    row = {**requests(name, ["Invoice paid: INVOICE"])[0], "title_words": ["paid", "invoice"]}
    row.pop("title", None)
    assert predictor.predict({"ticket": row}).rows() == text


@pytest.mark.parametrize("trained", ["file"], indirect=True)
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"Title": 17}, "'17' in row 1 of the column 'Title' is not a text"),
        ({"Title": ["invoice", "paid"]}, "is not a text"),
        ({"title": "paid", "title_words": ["paid"]}, "has the texts 'title' and their words 'title_words'"),
    ],
)
def test_invalid_texts_raise_data_error(trained, row, message):
    with pytest.raises(relcrf.DataError, match=f"E203.*{message}"):
        trained[1].predict({"ticket": {"id": 1, **row}})


def test_openapi_describes_texts(trained):
    name, predictor, _, _ = trained
    document = openapi_document(predictor.request_schema, predictor.attributes, has_stored_tables=False)
    columns = document["components"]["schemas"]["Row.ticket"]["properties"]
    assert ("Title" in columns) == (name != "key")
