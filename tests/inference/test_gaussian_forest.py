"""Gaussian distributions on forests, compared with dense matrices."""

from dataclasses import replace

import numpy as np
import pytest
from gaussians import condition, dense_precision, random_forest
from objectives import finite_differences

from relcrf.inference.gaussian import ConditionalPattern, PairWeights
from relcrf.inference.gaussian_forest import LinkCorrelations

SHAPES = [(2, 1), (6, 5), (15, 11)]


@pytest.fixture(params=[(*shape, seed) for shape in SHAPES for seed in range(3)], ids=str)
def links(request):
    """Return a random forest, some of whose links have several pairs in both directions."""
    n, n_links, seed = request.param
    rng = np.random.default_rng(seed)
    first, second, link = random_forest(rng, n, n_links)
    return LinkCorrelations(PairWeights(n, first, second, *np.exp(rng.normal(size=(2, len(first))))), link, n_links)


def test_links_change_no_variance(links):
    """The correlation of each link is that of its ends alone, in the distribution without other links."""
    pairs, covariance = links.pairs, np.linalg.inv(dense_precision(links.forest_weights))
    np.testing.assert_allclose(covariance.diagonal(), 1.0)
    for number, (r, information) in enumerate(zip(links.correlation, links.information, strict=True)):
        chosen = np.flatnonzero(links.link == number)
        ends = [pairs.first[chosen[0]], pairs.second[chosen[0]]]
        parts = {name: getattr(pairs, name)[chosen] for name in ("first", "second", "difference", "sum")}
        alone = np.linalg.inv(dense_precision(replace(pairs, **parts)))[np.ix_(ends, ends)]
        assert alone[0, 1] / np.sqrt(alone[0, 0] * alone[1, 1]) == pytest.approx(r)
        assert covariance[ends[0], ends[1]] == pytest.approx(r)
        assert information == pytest.approx(-0.5 * np.log(1.0 - r * r))


def test_ends_are_independent_given_the_path(links):
    """The precision matrix has the density of Chow & Liu: the product of those of the links over those of their ends."""
    covariance = np.linalg.inv(dense_precision(links.forest_weights))
    assert np.linalg.slogdet(covariance)[1] == pytest.approx(-2.0 * links.information.sum())


def test_gradient(links):
    rng = np.random.default_rng(0)
    by = rng.normal(size=(2, len(links.link)))

    def objective(vector):
        changed = replace(links.pairs, difference=vector[: len(links.link)], sum=vector[len(links.link) :])
        found = replace(links, pairs=changed)
        weights = found.forest_weights
        value = float(by[0] @ weights.difference + by[1] @ weights.sum)
        return value, np.concatenate(found.gradient(*by))

    point = np.concatenate((links.pairs.difference, links.pairs.sum))
    np.testing.assert_allclose(objective(point)[1], finite_differences(objective, point), rtol=1e-5, atol=1e-7)


def test_correlations_near_1():
    pairs = PairWeights(2, np.array([0]), np.array([1]), np.array([1e26]), np.array([1e-26]))
    links = LinkCorrelations(pairs, np.array([0]), 1)
    assert links.correlation[0] == 1.0 and links.information[0] == pytest.approx(0.5 * np.log(5e25))
    assert links.forest_weights.values[0] == pytest.approx(-5e25)


@pytest.mark.parametrize("fraction", [0.2, 0.6, 1.0])
def test_each_known_deviation_given_the_others_is_exact(links, fraction):
    pairs, rng = links.forest_weights, np.random.default_rng(1)
    is_known, u = rng.random(pairs.n) < fraction, rng.normal(size=pairs.n)
    covariance = np.linalg.inv(dense_precision(pairs))
    pattern = ConditionalPattern(pairs.n, pairs.first, pairs.second, is_known)
    means, variances = pattern.leave_one_out(pairs, u)
    for k, one in enumerate(np.flatnonzero(is_known)):
        values = np.where(is_known, u, np.nan)
        values[one] = np.nan
        position = int(np.isnan(values)[:one].sum())
        expected, remaining = condition(np.zeros(pairs.n), covariance, values)
        assert means[k] == pytest.approx(expected[position]) and variances[k] == pytest.approx(
            remaining[position, position]
        )
