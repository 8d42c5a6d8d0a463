"""Values computed for all entities at once, compared with dense products in NumPy."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from relcrf.api import load_fit
from relcrf.api import parse as parse_model
from relcrf.data.binding import bind
from relcrf.data.dataset import Dataset
from relcrf.errors import BudgetError, DataError
from relcrf.grounding import propagation
from relcrf.grounding.block_cache import BlockCache
from relcrf.grounding.ground import create_relation_tables, ground
from relcrf.grounding.preview import plan_templates
from relcrf.language.check import require_valid
from relcrf.language.parse import parse
from relcrf.serving import Predictor

MODEL = """
domain Topic = { a, b, c }
domain Word = open

entity Page {
    predict topic : Topic
    words  : bag of Word
    pixels : vector
    length : real
    quiet  : bool
}

relation Link(source: Page, target: Page)

derive Linked(a: Page, b: Page)
    where (Link(a, b) or Link(b, a)) and a < b

feature smooth(p: Page) = propagate 2 p.words along Link normalised symmetric

feature size(p: Page) = p.length

template prior(p: Page) over p.topic
"""
N, WORDS = 12, 7
RNG = np.random.default_rng(0)
KEYS = [f"p{i:02d}" for i in range(N)]
COUNTS = (RNG.random((N, WORDS)) < 0.4) * RNG.integers(1, 4, (N, WORDS))
COUNTS[3] = 0  # an empty bag
COUNTS[0, 6] = 1
PIXELS = RNG.normal(size=(N, 3))
PIXELS[2] = 0.0
LENGTH = RNG.normal(size=N)
LENGTH[5] = np.nan
QUIET = RNG.random(N) < 0.5
LINKS = np.array(
    sorted({(1, 1), (1, 2), (2, 1), *map(tuple, RNG.integers(N - 1, size=(20, 2)).tolist())})
)  # 11 is isolated


def tables(rows=range(N)):
    kept = set(rows)
    links = [(KEYS[a], KEYS[b]) for a, b in LINKS if {a, b} <= kept]
    page = {
        "id": [KEYS[i] for i in rows],
        "topic": [None if i % 3 == 0 else "abc"[i % 2] for i in rows],
        "pixels": [PIXELS[i].tolist() for i in rows],
        "length": LENGTH[list(rows)],
        "quiet": QUIET[list(rows)],
    }
    words = [(KEYS[i], f"w{j}", COUNTS[i, j]) for i in rows for j in range(WORDS) if COUNTS[i, j]]
    return {
        "page": pd.DataFrame(page),
        "page_words": pd.DataFrame(words, columns=["page", "word", "count"]),
        "link": pd.DataFrame(links, columns=["source", "target"]),
    }


def bound_model(text, data=None):
    spec = parse(MODEL + text)
    require_valid(spec)
    return bind(spec, Dataset(tables() if data is None else data))


def feature_matrix(grounding, template):
    """Return the features of a unary template, with a row for each page."""
    (group,) = grounding.groups(template)
    entries = group.features.entries(np.arange(group.features.n_rows))
    out = np.zeros((N, group.features.n_features))
    out[np.asarray(group.scope[0])[entries.row], entries.feature] = entries.value
    return out


def inverse_frequencies(counts):
    return np.log((1 + N) / (1 + (counts > 0).sum(axis=0))) + 1


ADJACENCY = np.zeros((N, N))
for first, second in LINKS:
    if first != second:
        ADJACENCY[first, second] = ADJACENCY[second, first] = 1.0
LOOPED = ADJACENCY + np.eye(N)
DEGREE = LOOPED.sum(axis=1)
STEPS = {
    "": LOOPED,
    " normalised mean": LOOPED / DEGREE[:, None],
    " normalised symmetric": LOOPED / np.sqrt(DEGREE[:, None] * DEGREE),
}
DIRECTED = np.zeros((N, N))
DIRECTED[tuple(LINKS.T)] = 1.0
OUT_DEGREE = np.maximum(DIRECTED.sum(axis=1), 1.0)[:, None]
IS_KNOWN = ~np.isnan(LENGTH)
KNOWN_LENGTH = np.nan_to_num(LENGTH)[:, None]
IDF = inverse_frequencies(COUNTS)
STANDARD_LENGTH = np.nan_to_num((LENGTH - np.nanmean(LENGTH)) / np.nanstd(LENGTH))[:, None]


def unit_rows(values):
    norm = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(norm > 0, norm, 1.0)


OPERANDS = {
    "p.words": COUNTS,
    "p.pixels": PIXELS,
    "p.length": KNOWN_LENGTH,
    "p.quiet": QUIET[:, None],
    "abs(p.length) + 1": np.where(np.isnan(LENGTH), 0.0, np.abs(LENGTH) + 1)[:, None],
    "normalise(tfidf(p.words))": unit_rows(COUNTS * IDF),
    "standardise(p.length)": STANDARD_LENGTH,
}
RELATIONS = ("Link", "Linked")


def ground_features(bodies, declarations=""):
    """Ground a template for each list of features, all at once; return the feature matrix of each list."""
    names = {body: f"t{k}" for k, body in enumerate(bodies)}
    templates = [f"template {name}(p: Page) over p.topic by {body}" for body, name in names.items()]
    grounding = ground(bound_model("\n".join([declarations, *templates])))
    return {body: feature_matrix(grounding, name) for body, name in names.items()}


@pytest.fixture(scope="module", params=[0.1, 2.0])
def propagations(request):
    """Return the feature matrix of each propagation (operand, relation, normalisation, hops)."""
    keys = {f"f{k}": key for k, key in enumerate(product(OPERANDS, RELATIONS, STEPS, (1, 3)))}
    declared = [
        f"feature {name}(p: Page) = propagate {hops} {operand} along {relation}{normalisation}"
        for name, (operand, relation, normalisation, hops) in keys.items()
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagation, "MIN_DENSITY", request.param)
        matrices = ground_features([f"{name}(p)" for name in keys], "\n".join(declared))
    return {key: matrices[f"{name}(p)"] for name, key in keys.items()}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("normalisation", STEPS)
@pytest.mark.parametrize("operand", OPERANDS)
def test_propagation_equals_dense_products(propagations, operand, normalisation, relation):
    for hops in (1, 3):
        step = np.linalg.matrix_power(STEPS[normalisation], hops)
        found = propagations[operand, relation, normalisation, hops]
        np.testing.assert_allclose(found, step @ OPERANDS[operand], rtol=1e-6, atol=1e-6)


COUNT = DIRECTED.sum(axis=1, keepdims=True)
HAS_WORD = (COUNTS[:, 1:2] > 0).astype(float)
SMOOTH = np.linalg.matrix_power(STEPS[" normalised symmetric"], 2) @ COUNTS
FEATURES = {
    "normalise(p.words)": unit_rows(COUNTS),
    "normalise(p.pixels)": unit_rows(PIXELS),
    "tfidf(p.words)": COUNTS * IDF,
    "tfidf(smooth(p))": SMOOTH * inverse_frequencies(SMOOTH),
    "tfidf(sum { q.words where Link(p, q) })": DIRECTED @ COUNTS * inverse_frequencies(DIRECTED @ COUNTS),
    "standardise(p.pixels)": (PIXELS - PIXELS.mean(axis=0)) / PIXELS.std(axis=0),
    "standardise(p.length), 1": np.hstack([STANDARD_LENGTH, np.ones((N, 1))]),
    "log1p(abs(standardise(p.length)))": np.log1p(np.abs(STANDARD_LENGTH)),
    "standardise(count { q where Link(p, q) })": (COUNT - COUNT.mean()) / COUNT.std(),
    ", ".join(f'standardise(count {{ w where w in p.words and w == "{word}" }})' for word in ("w1", "W1")): np.hstack(
        [(HAS_WORD - HAS_WORD.mean()) / HAS_WORD.std(), np.zeros((N, 1))]
    ),
    "size(p), exp(size(p)), default(size(p), 7), missing(size(p))": np.column_stack(
        [KNOWN_LENGTH[:, 0], np.where(IS_KNOWN, np.exp(LENGTH), 0.0), np.where(IS_KNOWN, LENGTH, 7.0), ~IS_KNOWN]
    ),
    "mean { size(q) where Link(p, q) }": DIRECTED @ KNOWN_LENGTH / np.maximum(DIRECTED @ IS_KNOWN, 1.0)[:, None],
    "normalise(smooth(p))": unit_rows(SMOOTH),
    "mean { q.words where Link(p, q) }": DIRECTED @ COUNTS / OUT_DEGREE,
    "sum { q.words where Link(p, q) and q.length > 0 }": DIRECTED @ (COUNTS * (KNOWN_LENGTH > 0)),
    "sum { q.words where Link(p, m) and Link(m, q) }": DIRECTED @ DIRECTED @ COUNTS,
    "sum { q.words where w in p.words and w in q.words }": (COUNTS > 0).astype(float) @ (COUNTS > 0).T @ COUNTS,
    "sum { q.pixels where Link(p, q) }": DIRECTED @ PIXELS,
    "mean { tfidf(q.words) where Link(q, p) }": DIRECTED.T
    @ (COUNTS * IDF)
    / np.maximum(DIRECTED.sum(axis=0), 1.0)[:, None],
    "sum { standardise(q.length) where Link(p, q) }": DIRECTED @ STANDARD_LENGTH,
    "mean { q.pixels where Link(p, q) }, p.length": np.hstack([DIRECTED @ PIXELS / OUT_DEGREE, KNOWN_LENGTH]),
}


@pytest.fixture(scope="module")
def features():
    """Return the feature matrix of each list of features."""
    return ground_features(FEATURES)


@pytest.mark.parametrize("body", FEATURES)
def test_functions_and_aggregates_equal_dense_products(features, body):
    np.testing.assert_allclose(features[body], FEATURES[body], rtol=1e-6, atol=1e-6)


def test_names_in_aggregates_are_typed_by_bags():
    text = """
        template t(p: Page, w: Word)
            where w in p.words and count { x where w in x.words } > 2
            over  p.topic
            per   w
            by    count { x where w in x.words }, sum { x.length where w in x.words and Link(p, x) }
    """
    rows = ground(bound_model(text)).instances("t")
    assert list(rows.columns) == ["p", "p.topic", "w", *(name for name in rows.columns if "{" in name)]
    frequency, first, second = (COUNTS > 0).sum(axis=0), *[name for name in rows.columns if "{" in name]
    found = {(p, w): (a, b) for p, w, a, b in zip(*(rows[c] for c in ("p", "w", first, second)), strict=True)}
    sums = DIRECTED @ (KNOWN_LENGTH * (COUNTS > 0))
    assert found == {
        (KEYS[i], f"w{j}"): (frequency[j], pytest.approx(sums[i, j]))
        for i, j in np.argwhere((COUNTS > 0) & (frequency > 2)).tolist()
    }


def test_functions_equal_scikit_learn():
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    text = pytest.importorskip("sklearn.feature_extraction.text")
    found = ground_features(["normalise(tfidf(p.words))", "standardise(p.pixels)"])
    tfidf = text.TfidfTransformer().fit_transform(COUNTS).toarray()
    np.testing.assert_allclose(found["normalise(tfidf(p.words))"], tfidf, rtol=1e-6)
    scaled = preprocessing.StandardScaler().fit_transform(PIXELS)
    np.testing.assert_allclose(found["standardise(p.pixels)"], scaled)


def test_template_over_two_entities_and_gate():
    text = """
        template linked(a: Page, b: Page)
            where Link(a, b) and a != b
            over  a.topic == b.topic
            by    standardise(a.length), sum { q.pixels where Link(b, q) }
        gate linked by standardise(b.length)
    """
    grounding = ground(bound_model(text))
    (group,) = grounding.groups("linked")
    a, b = group.scope
    expected = np.hstack([STANDARD_LENGTH[a], (DIRECTED @ PIXELS)[b]])
    np.testing.assert_allclose(group.features.values, expected)
    features = ground(bound_model(text)).gates.groups[1].features.values
    np.testing.assert_allclose(features[:, -1:], STANDARD_LENGTH[b])


def test_bag_of_gate_is_computed():
    text = MODEL.replace("predict topic", "latent kind : bool\n    predict topic")
    spec = parse(text + "template t(p: Page) over p.topic, p.kind gate t by smooth(p)")
    require_valid(spec)
    features = ground(bind(spec, Dataset(tables()))).gates.groups[1].features
    expected = np.linalg.matrix_power(STEPS[" normalised symmetric"], 2) @ COUNTS
    entries = features.entries(np.arange(features.n_rows))
    found = np.zeros((N, features.n_features))
    found[entries.row, entries.feature] = entries.value
    np.testing.assert_allclose(found[:, -WORDS:], expected, rtol=1e-6, atol=1e-6)


def test_unary_factor_of_each_page_with_names():
    grounding = ground(bound_model("template t(p: Page) over p.topic by smooth(p)"))
    (group,) = grounding.groups("t")
    expected = np.linalg.matrix_power(STEPS[" normalised symmetric"], 2) @ COUNTS
    assert group.n_factors == (expected.sum(axis=1) > 0).sum()
    rows = grounding.instances("t")
    assert list(rows.columns) == ["p", "p.topic", "Word", "smooth(p)"]
    values = {(p, w): v for p, w, v in zip(rows["p"], rows["Word"], rows["smooth(p)"], strict=True)}
    assert values == {
        (KEYS[i], f"w{j}"): pytest.approx(expected[i, j], rel=1e-6) for i, j in np.argwhere(expected > 0).tolist()
    }


def test_size_is_planned():
    bound = bound_model("template t(p: Page) over p.topic by smooth(p)")
    create_relation_tables(bound)
    planned = plan_templates(bound)[1]
    expected = np.linalg.matrix_power(STEPS[" normalised symmetric"], 2) @ COUNTS
    assert (planned.bindings, planned.is_exact) == ((expected > 0).sum(), True)


def test_condition_with_existential_names():
    text = "template t(p: Page) where Link(p, q) and q.length > 0 over p.topic by smooth(p)"
    grounding = ground(bound_model(text))
    expected = np.linalg.matrix_power(STEPS[" normalised symmetric"], 2) @ COUNTS
    is_kept = (DIRECTED @ (KNOWN_LENGTH > 0)) > 0
    np.testing.assert_allclose(feature_matrix(grounding, "t"), expected * is_kept, rtol=1e-6, atol=1e-6)
    bound = bound_model(text)
    create_relation_tables(bound)
    planned = plan_templates(bound)[1]
    (group,) = grounding.groups("t")
    assert (planned.bindings, planned.factors, planned.bytes) == (
        grounding.bindings["t"],
        group.n_factors,
        group.nbytes,
    )


def test_too_many_entries_are_rejected():
    with pytest.raises(BudgetError, match="'smooth' would have up to"):
        ground(bound_model("template t(p: Page) over p.topic by smooth(p)"), budget=20)
    with pytest.raises(BudgetError, match="pixels where"):
        ground(
            bound_model("template t(p: Page) over p.topic by sum { q.pixels where Link(p, m) and Link(q, m) }"),
            budget=15,
        )
    text = """
        template t(p: Page, q: Page) where Link(p, q) over p.topic, q.topic
        gate t by sum { x.pixels where Link(p, m) and Link(x, m) }
        candidates c(p: Page, q: Page) where p < q over p.topic == a and q.topic == b per p, q
    """
    found = ground(bound_model(text), budget=len(LINKS))
    with pytest.raises(BudgetError, match="pixels where"):
        _ = found.gates
    with pytest.raises(BudgetError, match="'c' would have"):
        _ = replace(found, budget=10).candidates


def test_infinite_number_is_rejected():
    with pytest.raises(DataError, match="is infinite or above"):
        ground(bound_model("template t(p: Page) over p.topic by standardise(exp(1000 + p.length))"))


def test_cached_block_depends_on_relation_and_statistics(tmp_path):
    text = """
        feature rare(p: Page) = propagate 1 tfidf(p.words) along Linked
        template t(p: Page) over p.topic by smooth(p)
        template u(p: Page) over p.topic by rare(p)
    """
    first = ground(bound_model(text), cache=BlockCache(tmp_path))
    cache = BlockCache(tmp_path)
    again = ground(bound_model(text), cache=cache)
    assert sorted(cache.hits) == ["prior", "t", "u"]
    np.testing.assert_array_equal(feature_matrix(first, "u"), feature_matrix(again, "u"))
    assert [*again.bound.statistics] == [*first.bound.statistics] == ["val.Page.tfidf($.words)"]
    changed, cache = tables(), BlockCache(tmp_path)
    changed["link"] = changed["link"].iloc[1:]
    ground(bound_model(text, changed), cache=cache)
    assert sorted(cache.misses) == ["t", "u"]
    statistics = {name: values + 1 for name, values in first.bound.statistics.items()}
    cache = BlockCache(tmp_path)
    ground(bind(first.spec, Dataset(tables()), None, statistics), cache=cache)
    assert "u" in cache.misses


def test_predictions_use_statistics_of_training_data(tmp_path):
    text = (
        MODEL
        + """
        template words(p: Page) over p.topic by tfidf(p.words)
        template length(p: Page) over p.topic by 1, standardise(p.length)
    """
    )
    fit = parse_model(text).fit(Dataset(tables()), backend="pseudo")
    fit.save(tmp_path / "run")
    alone = tables([0])
    alone["page_words"] = pd.concat(
        [alone["page_words"], pd.DataFrame({"page": [KEYS[0]], "word": ["unseen"], "count": [2]})]
    )
    for used in (fit, load_fit(tmp_path / "run")):
        grounding = used.ground(Dataset(alone))
        (group,) = grounding.groups("words")
        expected = np.append(COUNTS[0] * IDF, 2 * (np.log(1 + N) + 1))
        columns = np.asarray(group.features.column)
        np.testing.assert_allclose(group.features.values, expected[columns], rtol=1e-6)
        np.testing.assert_allclose(grounding.groups("length")[0].features.values, [[1, STANDARD_LENGTH[0, 0]]])
    expected = fit.predict(Dataset(alone)).table("topic")
    predictor = Predictor(fit)
    served = predictor.predict(alone)
    for column in ("id", "topic", "p_a", "p_b", "p_c"):
        assert list(served[column]) == list(expected[column])
    assert [*predictor.report().reasons] == ["the model has values that are computed for all entities at once"]


def test_other_vector_length_is_rejected():
    fit = parse_model(MODEL + "template t(p: Page) over p.topic by standardise(p.pixels)").fit(
        Dataset(tables()), backend="pseudo"
    )
    changed = tables()
    changed["page"]["pixels"] = [[1.0, 2.0]] * N
    with pytest.raises(DataError, match="2 components in these data but had 3 in training"):
        fit.predict(Dataset(changed))


def test_explanation_and_flips():
    fit = parse_model(MODEL + "template t(p: Page) over p.topic by smooth(p)").fit(Dataset(tables()), backend="pseudo")
    name = f"Page({KEYS[0]}).topic"
    explained = fit.explain(Dataset(tables()), name)
    features = {each.feature for contribution in explained.contributions for each in contribution.features}
    assert features == {"1", "smooth(p)"}
    search = fit.flips(Dataset(tables()), name)
    assert not any("t " in change.subject for flip in search.single for change in flip.changes)


def test_rounding_errors_of_equal_numbers_are_not_a_deviation():
    """Otherwise, another number in later data would be about 1e16 deviations from the mean."""
    values = np.column_stack([np.full(10, 0.1), np.full(10, 1e15 / 3), np.r_[np.full(9, 1e6), 1e6 + 1e-3]])
    values[0, 0] = np.nan
    mean, deviation = propagation.mean_and_deviation(values)
    assert mean == pytest.approx(np.nanmean(values, axis=0))
    assert deviation == pytest.approx([1.0, 1.0, 3e-4], rel=1e-2)
