"""Backend `fellegi-sunter`: matches of records without labels."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

import relcrf

PAIRS = """
domain Level = { different, near, equal }
entity Pair { predict match: bool, name: Level, town: Level, street: Level, is_close: bool, similarity: real }
template share(p: Pair) over p.match
template name(p: Pair) over p.match per p.name
template town(p: Pair) over p.match per p.town
template street(p: Pair) over p.match per p.street
"""
LEVELS = np.array(["different", "near", "equal"], dtype=object)
PARAMETERS = {
    "name": ((0.1, 0.2, 0.7), (0.9, 0.08, 0.02)),
    "town": ((0.05, 0.1, 0.85), (0.7, 0.2, 0.1)),
    "street": ((0.3, 0.2, 0.5), (0.95, 0.04, 0.01)),
}
CLOSE = (0.8, 0.2)


def pairs(n=5000, seed=0, missing=0.0):
    """Return the states of pairs, and the pairs as a table without labels."""
    rng = np.random.default_rng(seed)
    match = rng.random(n) < 0.2
    table = {"id": np.arange(n), "match": np.full(n, None, dtype=object)}
    for column, (m, u) in PARAMETERS.items():
        drawn = np.where(match, rng.choice(3, size=n, p=m), rng.choice(3, size=n, p=u))
        table[column] = np.where(rng.random(n) < missing, None, LEVELS[drawn])
    table["is_close"] = rng.random(n) < np.where(match, *CLOSE)
    table["similarity"] = rng.random(n)
    return match, pd.DataFrame(table)


def fit(model, table, **settings):
    data = relcrf.Dataset({"pair": table})
    fitted = relcrf.parse(model).fit(data, "fellegi-sunter", **settings)
    return fitted, data


def test_probabilities_follow_the_bayes_rule():
    """Compared with the rule for single pairs, computed with the parameters that the table was made with."""
    match, table = pairs(n=100_000, missing=0.1)
    fitted, data = fit(PAIRS, table)
    found = fitted.predict(data).probabilities()[:, 1]
    for pattern in itertools.product((None, *LEVELS), repeat=3):
        odds, of_pattern = math.log(0.2 / 0.8), np.ones(len(table), dtype=bool)
        for column, level in zip(PARAMETERS, pattern, strict=True):
            of_pattern &= table[column].isin([level]).to_numpy()
            if level is not None:
                m, u = (row[list(LEVELS).index(level)] for row in PARAMETERS[column])
                odds += math.log(m / u)
        assert np.ptp(found[of_pattern]) < 1e-9
        assert found[of_pattern][0] == pytest.approx(1 / (1 + math.exp(-odds)), abs=0.07)
    assert ((found > 0.5) == match).mean() > 0.93


def test_a_template_of_some_pairs_is_a_comparison():
    """Its absence is evidence too, which the weight of the share contains."""
    _, table = pairs(n=50_000)
    fitted, data = fit(f"{PAIRS}template close(p: Pair) where p.is_close over p.match\n", table)
    weights = fitted.weights().to_pandas()
    other, same = weights.query("template == 'close'")["weight"]
    expected = math.log(CLOSE[0] / CLOSE[1]) - math.log((1 - CLOSE[0]) / (1 - CLOSE[1]))
    assert same - other == pytest.approx(expected, abs=0.15)
    found = fitted.predict(data).probabilities()[:, 1]
    assert found.mean() == pytest.approx(0.2, abs=0.02), "the expected share of matches"


def test_labels_are_used():
    match, table = pairs(n=400, seed=3)
    table.loc[::4, "match"] = match[::4]
    fitted, data = fit(PAIRS, table)
    assert fitted.learned.summary["labelled"] == 100
    found = fitted.predict(data).probabilities()[:, 1]
    assert ((found > 0.5) == match[np.arange(400) % 4 != 0]).mean() > 0.9


def test_evaluation_hides_labels():
    match, table = pairs(n=600, seed=4)
    table["match"] = match
    evaluation = relcrf.parse(PAIRS).evaluate(relcrf.Dataset({"pair": table}), "random,folds=3", "fellegi-sunter")
    scores = [fold.scores["Pair.match"].accuracy for fold in evaluation.predictions.fold_scores("fellegi-sunter")]
    assert min(scores) > 0.85


def test_the_joint_probability_is_the_product_of_marginals():
    match, table = pairs(n=300, seed=5)
    table["match"] = match
    fitted, data = fit(PAIRS, table)
    grounding = relcrf.parse(PAIRS).ground(data)
    hidden = np.arange(300) < 40
    found = relcrf.api.predict(fitted, grounding, hidden=hidden).probabilities()
    expected = np.log(found[np.arange(40), match[:40].astype(int)]).sum()
    assert relcrf.api.joint_log_likelihood(fitted, grounding, hidden=hidden) == pytest.approx(expected, abs=1e-9)


def test_fixed_weights_are_given_log_odds():
    _, table = pairs(n=2000)
    fitted, _ = fit(f"{PAIRS}template close(p: Pair) where p.is_close over p.match init 0.3 fixed\n", table)
    weights = fitted.weights().to_pandas().query("template == 'close'")["weight"]
    assert (weights == 0.3).all()


@pytest.mark.parametrize(
    ("model", "message", "hint"),
    [
        (
            f"{PAIRS}template s(p: Pair) over p.match by p.similarity\n",
            "E450.*template 's' has numbers in 'by'",
            "per bin",
        ),
        (
            PAIRS.replace("template share(p: Pair) over p.match\n", ""),
            "E450.*holds the share of matches",
            "for every pair",
        ),
        (PAIRS.replace("match: bool", "match: Level"), "E450.*learns Boolean variables, .* has 3 states", "auto"),
    ],
)
def test_unsupported_models(model, message, hint):
    _, table = pairs(n=50)
    with pytest.raises(relcrf.UsageError, match=f"(?s){message}.*{hint}"):
        fit(model, table)


def test_comparisons_that_never_differ():
    _, table = pairs(n=50)
    with pytest.raises(relcrf.DataError, match=r"E451.*do not separate matches"):
        fit(PAIRS, table.assign(name="near", town="equal", street="near"))


def test_other_backends_need_labels():
    _, table = pairs(n=50)
    with pytest.raises(relcrf.DataError, match=r"(?s)E225.*fellegi-sunter"):
        relcrf.parse(PAIRS).fit(relcrf.Dataset({"pair": table}), "local")


RECORDS = """
entity Person { first: string, last: string, town: string, phone: string }
derive Block(a: Person, b: Person) where a < b and (a.last == b.last and a.first == b.first or a.town == b.town)
predict relation same(a: Person, b: Person) where Block(a, b)
template share(a: Person, b: Person) over same(a, b)
template first(a: Person, b: Person) where a.first == b.first over same(a, b)
template last(a: Person, b: Person) where a.last == b.last over same(a, b)
template phone(a: Person, b: Person) where a.phone == b.phone over same(a, b)
template town(a: Person, b: Person) where a.town == b.town over same(a, b)
"""


def test_random_pairs_tell_how_often_other_pairs_agree():
    """All admitted pairs of one block agree in the town, which says little about unrelated records."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(1000), 2)
    columns = {
        "first": rng.integers(60, size=1000),
        "last": rng.integers(200, size=1000),
        "town": rng.integers(80, size=1000),
    }
    columns["phone"] = np.arange(1000)
    table = pd.DataFrame({name: values[person] for name, values in columns.items()}).astype(str)
    for name in columns:
        wrong = rng.random(2000) < 0.15
        table.loc[wrong, name] = [f"wrong {k}" for k in range(wrong.sum())]
    data = relcrf.Dataset({"person": table.assign(id=np.arange(2000))})
    fitted = relcrf.parse(RECORDS).fit(data, "fellegi-sunter")
    assert fitted.learned.summary["matches"] == pytest.approx(900, abs=120)
    weights = fitted.weights().to_pandas()
    (same,) = weights.query("template == 'town'")["weight"]
    assert same > 3.0, "towns agree in 1 of 80 unrelated pairs, and in 3 of 4 matches"
    found = fitted.predict(data).table().to_pandas()
    is_match = found["a"].astype(int) // 2 == found["b"].astype(int) // 2
    assert ((found["p_true"] > 0.5) == is_match).mean() > 0.99
