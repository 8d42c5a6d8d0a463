"""Back-off from the weights of a key to shared weights: a key that training did not see has the weight 0."""

import numpy as np
import pytest

import relcrf
from relcrf.data.dataset import Dataset

MODEL = """
domain Shop = open
entity Order { predict late : bool  shop : Shop }
template shared(o: Order) over o.late l2 0.01
template shop(o: Order) over o.late per o.shop l2 1.0
"""


def orders(shops, late=None):
    columns = {"id": np.arange(len(shops)), "shop": shops}
    return Dataset({"order": columns if late is None else columns | {"late": late}})


@pytest.fixture(scope="module")
def fit():
    shops = [f"s{k}" for k in range(20) for _ in range(10)]
    late = [i % 10 < (9 if k == 0 else 2) for k in range(20) for i in range(10)]
    return relcrf.parse(MODEL).fit(orders([*shops, "rare"], [*late, True]), backend="pseudo")


def probability_late(fit, shop):
    return fit.predict(orders([shop])).probabilities("late")[0, 1]


def test_unseen_key_predicts_by_the_shared_template(fit):
    log_odds = sum(
        row["weight"] * (1 if row["pattern"] == "true" else -1)
        for row in fit.weights().to_dicts()
        if row["template"] == "shared"
    )
    assert probability_late(fit, "unseen") == pytest.approx(1 / (1 + np.exp(-log_odds)), abs=1e-6)
    assert probability_late(fit, "unseen") == probability_late(fit, "another")


def test_penalty_pulls_rare_key_towards_the_shared_template(fit):
    unseen = probability_late(fit, "unseen")
    assert unseen < probability_late(fit, "rare") < 0.8
    assert probability_late(fit, "s0") > 0.6 > 0.3 > probability_late(fit, "s1")


def test_initial_weight_is_not_a_score_of_an_unseen_key():
    """Weights of an unseen key are initial weights; its edges have no label information and no selected fraction."""
    text = MODEL + "relation Before(a: Order, b: Order)\n"
    text += "template same(a: Order, b: Order) where Before(a, b) over a.late == b.late per a.shop init 2\n"
    tables = {"order": {"id": [1, 2, 3], "shop": ["s", "s", "s"], "late": [True, True, False]}}
    train = Dataset({**tables, "before": {"a": [1, 2], "b": [2, 3]}})
    fit = relcrf.parse(text).fit(train, "ess", pooling=0.5, min_fraction=0.1)
    new = fit.ground(Dataset({"order": {"id": [4, 5], "shop": ["z", "z"]}, "before": {"a": [4], "b": [5]}}))
    (block,) = (k for k, info in enumerate(new.templates) if info.name == "same")
    found = {
        name: new.graph.layout.matrix(vector, block)[-1].tolist()
        for name, vector in fit.learned.vectors_for(new).items()
    }
    assert found == {"weights": [2.0], "structure": [2.0], "label_information": [0.0], "selected_fraction": [0.0]}


@pytest.mark.parametrize(("init", "expected"), [("", 1.5), (" init 2", 2.0)])
def test_unseen_key_has_the_prior_mean_of_agreement(init, expected):
    text = MODEL + "relation Before(a: Order, b: Order)\n"
    text += f"template same(a: Order, b: Order) where Before(a, b) over a.late == b.late per a.shop{init}\n"
    tables = {"order": {"id": [1, 2, 3], "shop": ["s", "s", "s"], "late": [True, True, False]}}
    fit = relcrf.parse(text).fit(Dataset({**tables, "before": {"a": [1, 2], "b": [2, 3]}}), "pseudo", agreement=1.5)
    new = fit.ground(Dataset({"order": {"id": [4, 5], "shop": ["z", "z"]}, "before": {"a": [4], "b": [5]}}))
    (block,) = (k for k, info in enumerate(new.templates) if info.name == "same")
    assert new.graph.layout.matrix(fit.learned.vectors_for(new)["weights"], block)[-1].tolist() == [expected]
