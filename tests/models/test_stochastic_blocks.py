"""Tests of `datasets/stochastic_blocks.py`: degrees, homophily, words and labels have the distribution of the model."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relcrf

sys.path.insert(0, str(Path(__file__).parents[2] / "datasets"))
from stochastic_blocks import BlockModel, make_papers

MODEL = BlockModel(n_papers=5_000)


def draw(seed=0, **parameters):
    return make_papers(replace(MODEL, **parameters), np.random.default_rng(seed))


@pytest.mark.parametrize("degree", [1.0, 4.0, 20.0])
def test_citations_have_the_mean_degree_and_heterogeneous_degrees(degree):
    papers = draw(degree=degree)
    assert len(papers.cites) == round(degree * 5_000 / 2)
    assert (papers.cites[:, 0] != papers.cites[:, 1]).all()
    pairs = np.sort(papers.cites, axis=1)
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    found = np.bincount(papers.cites.ravel(), minlength=5_000)
    assert found.max() > 8 * degree
    assert found.var() > 1.5 * degree  # the variance of a Poisson distribution is its mean


def test_degrees_are_more_equal_for_larger_exponents():
    degrees = [np.bincount(draw(exponent=e).cites.ravel(), minlength=5_000) for e in (2.5, 4.0, 50.0)]
    variances = [d.var() for d in degrees]
    assert variances[0] > 1.5 * variances[1] > 1.5 * variances[2]
    assert variances[2] == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("homophily", [0.0, 0.1, 0.2, 0.5, 0.8, 1.0])
def test_citations_between_topics(homophily):
    papers = draw(homophily=homophily, degree=8.0)
    source, target = papers.topic[papers.cites].T
    expected = replace(MODEL, homophily=homophily).topic_affinity()
    np.testing.assert_allclose(expected.sum(axis=1), 1.0)
    np.testing.assert_allclose(expected.sum(axis=0), 1.0)
    np.testing.assert_allclose(np.diag(expected), homophily)
    counts = np.zeros((5, 5))
    np.add.at(counts, (source, target), 1.0)
    np.testing.assert_allclose(counts / counts.sum(axis=1, keepdims=True), expected, atol=0.03)
    if homophily == 0.0:
        assert (target == (source + 1) % 5).all()


def test_words_have_zipf_frequencies_that_depend_on_the_topic_by_the_signal():
    distances = []
    for signal in (0.0, 0.25, 1.0):
        papers = draw(signal=signal, words_per_paper=30.0)
        assert len(np.unique(papers.words, axis=0)) == len(papers.words)
        count = np.zeros((5, 1000))
        np.add.at(count, (papers.topic[papers.words[:, 0]], papers.words[:, 1]), 1.0)
        frequency = np.sort(count[0])[::-1]
        assert frequency[0] > 3 * frequency[30] > 9 * frequency[300]
        share = count / count.sum(axis=1, keepdims=True)
        distances.append(0.5 * np.abs(share[0] - share[1]).sum())
    assert distances[0] < 0.12
    assert distances[0] + 0.1 < distances[1] < distances[2] - 0.2
    assert np.bincount(papers.words[:, 0], minlength=5_000).min() >= 1


def test_labels_have_the_same_rate_in_each_topic():
    papers = draw(label_rate=0.05)
    assert np.bincount(papers.topic).tolist() == [1000] * 5
    assert np.bincount(papers.topic[papers.labelled]).tolist() == [50] * 5
    table = papers.tables(with_all_labels=False)["paper"]
    assert (table["topic"].notna() == papers.labelled).all()


def test_the_same_seed_gives_the_same_papers():
    first, again, other = (draw(seed=seed) for seed in (1, 1, 2))
    for name in ("topic", "labelled", "words", "cites"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert (first.topic != other.topic).any()


def test_tables_are_those_of_the_model_of_cora():
    papers = make_papers(BlockModel(n_papers=400), np.random.default_rng(0))
    model = relcrf.load(Path(__file__).parents[2] / "models" / "cora.rcrf")
    grounding = model.ground(relcrf.Dataset(papers.tables()))
    np.testing.assert_array_equal(grounding.states, papers.topic)
    partial = model.ground(relcrf.Dataset(papers.tables(with_all_labels=False)))
    np.testing.assert_array_equal(partial.states, np.where(papers.labelled, papers.topic, -1))


def test_degrees_that_are_too_large():
    with pytest.raises(ValueError, match="too large for 50 papers"):
        make_papers(BlockModel(n_papers=50, degree=40.0), np.random.default_rng(0))
