"""The information of labels through shared weights, compared with Gaussian regression on dense matrices."""

import numpy as np
import pytest
from graphs import dense_features, random_graph
from scipy.sparse import csr_array

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Dense
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.learning.shared_features import NOISE, SharedFeatureGain, principal_components, similarity_features


def dense_gains(kernel, stake, labelled):
    """Return the entropy of each variable that each label explains, shape (n, n), from the definition."""
    noise = NOISE * np.eye(len(labelled))
    prior = kernel
    inverse = np.linalg.inv(kernel[np.ix_(labelled, labelled)] + noise)
    posterior = kernel - kernel[:, labelled] @ inverse @ kernel[labelled]
    reduction = posterior**2 / (np.diag(posterior) + NOISE)[:, None]
    explained = stake * reduction / np.diag(prior)
    np.fill_diagonal(explained, 0.0)
    return explained


@pytest.mark.parametrize("seed", range(5))
def test_gains_equal_gaussian_regression(seed):
    rng = np.random.default_rng(seed)
    features = csr_array(rng.normal(size=(12, 5)))
    labelled = np.array([1, 4])
    mask = np.isin(np.arange(12), labelled)
    stake = np.where(mask, 0.0, rng.random(12))
    gain = SharedFeatureGain.from_features(features, stake, mask)
    kernel = (features @ features.T).toarray()
    for new in (7, 2, 9):
        expected = dense_gains(kernel, stake, labelled)
        assert gain.gains == pytest.approx(expected.sum(axis=1), abs=1e-9)
        assert gain.explained_by(new) == pytest.approx(expected[new], abs=1e-9)
        gain.add_label(new)
        labelled = np.append(labelled, new)


def test_variance_outside_the_components_explains_only_the_variable_itself():
    rng = np.random.default_rng(0)
    features = csr_array(rng.normal(size=(30, 40)))
    coordinates = principal_components(features, n_components=3)
    residual = (features.toarray() ** 2).sum(axis=1) - (coordinates**2).sum(axis=1)
    assert residual.min() > 0.0
    stake, gain = np.ones(30), SharedFeatureGain(coordinates, residual, np.ones(30))
    kernel = coordinates @ coordinates.T + np.diag(residual)
    expected = dense_gains(kernel, stake, np.empty(0, dtype=int))
    assert gain.gains == pytest.approx(expected.sum(axis=1), abs=1e-9)


def test_components_are_principal():
    rng = np.random.default_rng(1)
    spectrum = np.array([9.0, 5.0, 3.0] + [0.01] * 17)
    left, right = (np.linalg.qr(rng.normal(size=(n, 20)))[0] for n in (50, 60))
    features = csr_array((left * spectrum) @ right.T)
    found = principal_components(features, n_components=3)
    best = (left[:, :3] * spectrum[:3]) @ (left[:, :3] * spectrum[:3]).T
    assert np.abs(found @ found.T - best).max() < 1e-3
    assert principal_components(csr_array(np.eye(4))).tolist() == np.eye(4).tolist()


def test_columns_of_equal_numbers_do_not_count():
    """The mean of seven times 0.1 is not 0.1, so that the centred numbers are not 0."""
    constant, varying = np.full((7, 1), 0.1), np.array([[1.0], [1.0], [1.0], [-1.0], [-1.0], [-1.0], [0.0]])
    scope, cardinality = (np.arange(7, dtype=np.int32),), np.full(7, 2, dtype=np.int32)
    for column, expected in ((constant, np.zeros((7, 7))), (varying, varying @ varying.T)):
        values = np.column_stack((constant, column))
        graph = FactorGraph(
            cardinality,
            (FactorGroup(scope, (2,), Dense(values), None, 0),),
            WeightLayout((WeightBlock("t", 2, 2),)),
        )
        features = similarity_features(graph, np.arange(7))
        np.testing.assert_allclose((features @ features.T).toarray(), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_similarity_is_the_mean_cosine_of_the_templates(seed):
    graph = random_graph(np.random.default_rng(seed), n_variables=8)
    features = similarity_features(graph, np.arange(8))
    by_block = {}
    for group in graph.groups:
        if len(group.scope) == 1 and not group.features.rows_are_equal:
            dense = dense_features(group.features)
            if type(group.features).__name__ == "Dense":
                spread = dense.std(axis=0)
                dense = (dense - dense.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
            rows = np.zeros((8, dense.shape[1]))
            np.add.at(rows, np.asarray(group.scope[0]), dense)
            by_block[group.block] = by_block.get(group.block, 0.0) + rows
    kernels = []
    for rows in by_block.values():
        norm = np.linalg.norm(rows, axis=1, keepdims=True)
        if norm.any():
            unit = np.divide(rows, norm, out=np.zeros_like(rows), where=norm > 0.0)
            kernels.append(unit @ unit.T)
    expected = np.mean(kernels, axis=0) if kernels else np.zeros((8, 8))
    assert (features @ features.T).toarray() == pytest.approx(expected, abs=1e-9)
