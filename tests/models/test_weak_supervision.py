"""Learning from the votes of heuristics without a label, with models/votes.rcrf."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import relcrf
from relcrf.datasets.mails import CATEGORIES, VOTERS, mail_categories, mails
from relcrf.resources import resource_path

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module", params=SEEDS)
def trained(request):
    """Return the seed, the tables and the model, learned from the votes alone."""
    tables = mails(request.param)
    model = relcrf.load(resource_path("models", "votes.rcrf"))
    return request.param, tables, model.fit(tables, "dense", unlabelled="marginal")


def test_learned_weights_are_the_accuracies_of_the_heuristics(trained):
    _, _, fit = trained
    weights = fit.weights()
    learned = dict(zip(weights["template"], weights["weight"], strict=True))
    for voter, (accuracy, _) in VOTERS.items():
        expected = np.log(accuracy * (len(CATEGORIES) - 1) / (1.0 - accuracy))
        assert learned[voter] == pytest.approx(expected, abs=0.45), voter


def test_the_model_is_better_than_a_majority_vote(trained):
    seed, tables, fit = trained
    truth = mail_categories(seed)
    votes = [[vote for vote in row if vote is not None] for row in zip(*map(tables["mail"].get, VOTERS), strict=True)]
    majority = [CATEGORIES.index(Counter(row).most_common(1)[0][0]) if row else 0 for row in votes]
    prediction = fit.predict(tables)
    keys = prediction.grounding.argument_texts(prediction.block("category"))[0].astype(int)
    states = np.empty(len(truth), dtype=int)
    states[keys] = prediction.probabilities("category").argmax(axis=1)
    values = np.array([CATEGORIES.index(value) for value in prediction.block("category").values])
    assert (values[states] == truth).mean() > (np.array(majority) == truth).mean() + 0.03


def test_statistics_count_factors_whose_unknown_states_are_summed_out(trained):
    _, _, fit = trained
    assert {one.name: (one.seen, one.factors) for one in fit.template_statistics}["refund"] == (1500, 1500)
