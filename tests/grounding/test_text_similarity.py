"""Similarities of texts, compared with scikit-learn and with a sort of all pairs."""

import gc
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from checksum import checksum
from sklearn.feature_extraction.text import TfidfVectorizer

import relcrf
from relcrf.api import load_fit
from relcrf.data.binding import bind
from relcrf.data.dataset import Dataset
from relcrf.errors import ModelError
from relcrf.grounding import nearest
from relcrf.grounding.block_cache import BlockCache
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.engines.postgres import PostgresEngine
from relcrf.grounding.ground import ground
from relcrf.grounding.lower import lower_template
from relcrf.grounding.text_rows import split_tokens
from relcrf.model.functions import FUNCTIONS
from relcrf.serving import Predictor

MODEL = """
entity Paper { predict good : bool  title : string  kind : string }
entity Book { predict rare : bool  name : string }
relation Cites(a: Paper, b: Paper)
"""
TITLES = [
    "Maps of Zoë's garden", "the garden, the GARDEN", "MAPS", "", "?!", None, "zoe\u0308 in İstanbul", "İSTANBUL maps",
    "ΟΔΟΣ 12", "οδος 13 garden", "the garden, the GARDEN", "日本 地図", "a_b", "b a",
]  # fmt: skip
NAMES = ["The garden of Zoë", None, "地図 ab", "--"]
N = len(TITLES)


def tables(titles=TITLES, names=NAMES):
    keys = [f"p{k:03d}" for k in range(len(titles))]
    good = [True, False, *[None] * (len(titles) - 2)]
    return {
        "paper": pd.DataFrame({"id": keys, "good": good, "title": titles, "kind": "x"}),
        "book": pd.DataFrame({"id": [f"b{k}" for k in range(len(names))], "name": names}),
        "cites": pd.DataFrame({"a": keys[:1], "b": keys[1:2]}),
    }


def grounded(text, data=None, **settings):
    return ground(bind(relcrf.parse(MODEL + text).spec, Dataset(data or tables())), **settings)


def cosines(left, right, length=0):
    """Return the cosines of all pairs by scikit-learn; NaN if a text is missing."""
    words = TfidfVectorizer(tokenizer=split_tokens, token_pattern=None, lowercase=False)
    grams = TfidfVectorizer(analyzer="char", ngram_range=(length, length), preprocessor=joined)
    vectorizer = grams if length else words
    vectorizer.fit([text for text in (left if left is right else left + right) if text])
    matrices = [vectorizer.transform([text or "" for text in column]) for column in (left, right)]
    return np.where(missing(left, right), np.nan, (matrices[0] @ matrices[1].T).toarray())


def joined(text):
    return " ".join(split_tokens(text))


def jaccards(left, right):
    sets = [[set(split_tokens(text or "")) for text in column] for column in (left, right)]
    values = [[len(a & b) / max(len(a | b), 1) for b in sets[1]] for a in sets[0]]
    return np.where(missing(left, right), np.nan, values)


def missing(left, right):
    """Return the pairs without a value; an empty cell is a missing text."""
    return np.array([[not a or not b for b in right] for a in left])


def feature_matrix(grounding, name, shape):
    """Return the feature of each pair of a template whose binders are two entities; 0 if the feature is missing."""
    values = np.zeros(shape)
    rows = grounding.instances(name)
    first, second = (np.array([int(key[1:]) for key in rows[column]]) for column in list(rows.columns)[:2])
    values[first, second] = np.asarray(rows[list(rows.columns)[-1]])
    return values


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("tfidf_cosine(a.title, b.title)", cosines(TITLES, TITLES)),
        ("tfidf_cosine(a.title, b.title, 3)", cosines(TITLES, TITLES, 3)),
        ("tfidf_cosine(a.title, b.title, 2)", cosines(TITLES, TITLES, 2)),
        ("tfidf_cosine(b.name, a.title)", cosines(TITLES, NAMES)),
        ("tfidf_cosine(a.title, b.name, 2)", cosines(TITLES, NAMES, 2)),
        ("token_jaccard(a.title, b.title)", jaccards(TITLES, TITLES)),
        ("token_jaccard(a.title, b.name)", jaccards(TITLES, NAMES)),
    ],
)
def test_values_of_all_pairs(call, expected):
    other, over = ("Book", "a.good, b.rare") if "b.name" in call else ("Paper", "a.good, b.good")
    head = f'(a: Paper, b: {other}) where a.kind == "x"'
    grounding = grounded(f"""
        derive Low(a: Paper, b: {other}) where not {call} > 0.3 and {call} >= 0
        template values{head} over {over} by {call}
        template high{head} and {call} > 0.3 over {over}
        template low{head} and Low(a, b) over {over}
    """)
    known = np.nan_to_num(expected, nan=-1.0)
    found = [feature_matrix(grounding, name, expected.shape) for name in ("values", "high", "low")]
    np.testing.assert_allclose(found[0], np.maximum(known, 0.0), atol=1e-12)
    assert np.array_equal(found[1] > 0, known > 0.3) and found[1].any()
    assert np.array_equal(found[2] > 0, (known >= 0) & (known <= 0.3)) and found[2].any()


def test_similarity_in_aggregates_features_rules_and_gates():
    grounding = grounded("""
        feature likeness(p: Paper) = tfidf_cosine(p.title, p.kind) + 1
        template best(p: Paper) over p.good by max { tfidf_cosine(p.title, q.title) where Cites(p, q) }
        template like(p: Paper) over p.good by likeness(p)
        rule near: token_jaccard(a.title, b.title) > 0.9 and Cites(a, b) and a.good => b.good
        rule far: Cites(a, b) and a.good => b.good
        gate far by 1, tfidf_cosine(a.title, b.title)
    """)
    value = cosines(TITLES, TITLES)[0, 1]
    assert grounding.groups("best")[0].features.row(0) == [(0, pytest.approx(value))]
    assert grounding.groups("like")[0].features.row(0) == [(0, 1.0)]
    assert [grounding.groups(name)[0].n_factors for name in ("near", "far")] == [0, 1]
    gate = grounding.gates.groups[len(grounding.graph.groups) - 1].features
    assert gate.row(0) == [(0, 1.0), (1, pytest.approx(value))]


@pytest.mark.parametrize("block", [nearest.MAX_BLOCK_ROWS, 3])
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("tfidf_cosine(a.title, b.title)", cosines(TITLES, TITLES)),
        ("tfidf_cosine(b.title, a.title, 2)", cosines(TITLES, TITLES, 2)),
        ("token_jaccard(a.title, b.title)", jaccards(TITLES, TITLES)),
    ],
)
def test_nearest_equals_sort_of_all_pairs(call, expected, block, monkeypatch):
    monkeypatch.setattr(nearest, "MAX_BLOCK_ROWS", block)
    closeness = np.nan_to_num(np.round(expected, 9))
    np.fill_diagonal(closeness, 0.0)
    counts = (1, 3, 99)
    names = [f"derive Near{k}(a: Paper, b: Paper) = nearest {k} by {call}" for k in counts]
    uses = [f"template t{k}(a: Paper, b: Paper) where Near{k}(a, b) over a.good, b.good" for k in counts]
    bound = grounded("\n".join([*names, *uses])).bound
    for k in counts:
        pairs = bound.connection.execute(f'SELECT a0, a1 FROM "rel.Near{k}"').fetchall()
        order = [sorted(np.flatnonzero(row), key=lambda b, row=row: (-row[b], b))[:k] for row in closeness]
        assert pairs == [(a, b) for a, row in enumerate(order) for b in row]


def test_nearest_of_random_texts():
    rng = np.random.default_rng(0)
    titles = [" ".join(f"w{word}" for word in rng.zipf(1.5, 5) % 40) for _ in range(120)]
    text = """
        derive Near(a: Paper, b: Paper) = nearest 4 by tfidf_cosine(a.title, b.title)
        template t(a: Paper, b: Paper) where Near(a, b) over a.good, b.good by tfidf_cosine(a.title, b.title)
    """
    bound = grounded(text, tables(titles)).bound
    pairs = bound.connection.execute('SELECT a0, a1 FROM "rel.Near"').fetchnumpy()
    expected = cosines(titles, titles)
    np.fill_diagonal(expected, 0.0)
    largest = -np.sort(-expected, axis=1)[:, :4]
    np.testing.assert_allclose(expected[pairs["a0"], pairs["a1"]], largest[largest > 0], atol=1e-12)


@pytest.mark.parametrize("titles", [["same"] * 3, [None] * 3, ["?"] * 3])
def test_column_with_one_value(titles):
    grounding = grounded(
        """
        derive Near(a: Paper, b: Paper) = nearest 1 by tfidf_cosine(a.title, b.title)
        template t(a: Paper, b: Paper) where Near(a, b) over a.good, b.good by token_jaccard(a.title, b.title)
        template u(a: Paper, b: Paper) where Cites(a, b) over a.good, b.good by tfidf_cosine(a.title, b.title)
        """,
        tables(titles),
    )
    is_same = titles[0] == "same"
    assert grounding.bound.count_rows("rel.Near") == (3 if is_same else 0)
    assert grounding.groups("u")[0].features.row(0) == ([(0, pytest.approx(1.0))] if is_same else [])


def test_predictions_use_frequencies_of_training_data(tmp_path):
    text = (
        MODEL
        + "template t(a: Paper, b: Paper) where Cites(a, b) over a.good, b.good by 1, tfidf_cosine(a.title, b.title)"
    )
    fit = relcrf.parse(text).fit(Dataset(tables()), backend="pseudo")
    fit.save(tmp_path / "run")
    alone = tables(["unseen garden", "the garden", "maps"])
    vectorizer = TfidfVectorizer(tokenizer=split_tokens, token_pattern=None, lowercase=False)
    vectorizer.fit([title for title in TITLES if title])
    idf = {token: vectorizer.idf_[k] for token, k in vectorizer.vocabulary_.items()}
    unseen = np.log(1 + sum(map(bool, TITLES))) + 1
    norms = [np.hypot(unseen, idf["garden"]), np.hypot(idf["the"], idf["garden"])]
    for used in (fit, load_fit(tmp_path / "run")):
        (group,) = used.ground(Dataset(alone)).groups("t")
        assert group.features.row(0)[1] == (1, pytest.approx(idf["garden"] ** 2 / norms[0] / norms[1]))
    predictor = Predictor(fit)
    served = predictor.predict(alone, "good")
    expected = fit.predict(Dataset(alone)).table("good")
    assert list(served["p_true"]) == list(expected["p_true"])
    assert [*predictor.report().reasons] == ["the model has values that are computed for all entities at once"]


@pytest.mark.parametrize("call", ["tfidf_cosine(a.title, b.name, 2)", "token_jaccard(b.title, a.title)"])
def test_values_on_postgres(call, postgres):
    other, over = ("Book", "a.good, b.rare") if "b.name" in call else ("Paper", "a.good, b.good")
    text = f"""
        template values(a: Paper, b: {other}) where a.kind == "x" over {over} by {call}
        template low(a: Paper, b: {other}) where not {call} > 0.2 and {call} >= 0 over {over}
    """
    bound = bind(relcrf.parse(MODEL + text).spec, Dataset(tables()))
    context = make_lowering_context(bound)
    here = DuckDbEngine(bound.cursor)
    with closing(PostgresEngine(postgres.new_database(), bound.cursor)) as there:
        for template in context.spec.templates:
            plan = lower_template(template, context).plan
            expected = checksum(here.rows(plan), plan.outputs)
            assert checksum(there.rows(plan), plan.outputs) == expected and expected[0] > 10


def test_cached_block_depends_on_frequencies(tmp_path):
    text = "template t(a: Paper, b: Paper) where Cites(a, b) over a.good, b.good by tfidf_cosine(a.title, b.title)"
    first = grounded(text, cache=BlockCache(tmp_path)).bound
    cache = BlockCache(tmp_path)
    again = grounded(text, cache=cache).bound
    assert (cache.hits, again.tokens) == (["t"], first.tokens)
    statistics = {name: values + 1 for name, values in first.statistics.items()}
    cache = BlockCache(tmp_path)
    ground(bind(first.spec, Dataset(tables()), first.tokens, statistics), cache=cache)
    assert "t" in cache.misses


def test_functions_of_two_models_of_one_dataset_are_separate():
    dataset = Dataset(tables())
    bodies = [
        f"template t(a: Paper) over a.good by {name}(a.title, a.kind)" for name in ("tfidf_cosine", "token_jaccard")
    ]
    first, second = (ground(bind(relcrf.parse(MODEL + body).spec, dataset)) for body in bodies)
    functions = "SELECT count(*) FROM duckdb_functions() WHERE function_name LIKE 'model%similarity%'"
    assert dataset.connection.execute(functions).fetchall() == [(2,)]
    del first
    gc.collect()
    assert dataset.connection.execute(functions).fetchall() == [(1,)]
    assert second.bound.connection.execute('SELECT "token_jaccard(Paper.kind, Paper.title)"(0, 0)').fetchall() == [(0,)]


def test_result_does_not_depend_on_threads():
    rng = np.random.default_rng(1)
    titles = [" ".join(f"w{word}" for word in rng.integers(30, size=4)) for _ in range(300)]
    text = "derive Alike(a: Paper, b: Paper) where a < b and tfidf_cosine(a.title, b.title) > 0.4\n"
    text += "template t(a: Paper, b: Paper) where Alike(a, b) over a.good, b.good by tfidf_cosine(a.title, b.title)"
    dataset = Dataset(tables(titles))
    found = []
    for threads in (1, 4):
        dataset.connection.execute(f"SET threads = {threads}")
        grounding = ground(bind(relcrf.parse(MODEL + text).spec, dataset))
        found.append(feature_matrix(grounding, "t", (300, 300)))
    assert np.array_equal(*found) and found[0].any()


def test_tokens():
    assert split_tokens("Don't STOP_me, Zoe\u0308 2!") == ["don", "t", "stop", "me", "zoë", "2"]
    assert split_tokens(" A  b-c ", 3) == ["a b", " b ", "b c"]
    assert split_tokens("ab", 3) == split_tokens("?!") == split_tokens("", 2) == []


def test_optional_argument():
    assert str(FUNCTIONS["tfidf_cosine"]) == "tfidf_cosine(text, text[, number]): real"
    with pytest.raises(ModelError, match="tfidf_cosine takes 2 or 3 arguments, not 1"):
        relcrf.parse(MODEL + "template t(a: Paper) where tfidf_cosine(a.title) > 0 over a.good")
