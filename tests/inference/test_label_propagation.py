"""Label propagation, compared with the dense solution of the linear system and with the power iteration."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from relcrf.inference.label_propagation import normalise_links, propagate


def random_links(rng, n, p=0.2):
    upper = np.triu(rng.random((n, n)) < p, 1).astype(float)
    return upper + upper.T


def dense_normalised(links):
    degree = links.sum(axis=1)
    scale = np.array([d**-0.5 if d else 0.0 for d in degree])
    return scale[:, None] * links * scale


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("seed", range(3))
def test_equals_dense_solution(alpha, seed):
    rng = np.random.default_rng(seed)
    links = random_links(rng, 40, 0.06)
    values = rng.normal(size=(40, 3)) * (rng.random((40, 1)) < 0.3)
    values[:, 2] = 0.0
    matrix = dense_normalised(links)
    np.testing.assert_allclose(normalise_links(csr_array(links)).toarray(), matrix)
    found = propagate(csr_array(matrix), alpha, values, 1e-12)
    expected = (1 - alpha) * np.linalg.solve(np.eye(40) - alpha * matrix, values)
    np.testing.assert_allclose(found.values, expected, atol=1e-10)
    assert found.converged and found.residual <= 1e-12


def test_equals_power_iteration_of_zhou_et_al():
    rng = np.random.default_rng(7)
    matrix, labels = dense_normalised(random_links(rng, 30)), np.zeros((30, 2))
    labels[0, 0] = labels[1, 1] = 1.0
    scores = labels
    for _ in range(400):
        scores = 0.9 * matrix @ scores + 0.1 * labels
    np.testing.assert_allclose(propagate(csr_array(matrix), 0.9, labels).values, scores, atol=1e-6)


def test_unreached_variables_remain_0_and_others_keep_their_signs():
    links = np.zeros((5, 5))
    links[0, 1] = links[1, 0] = links[3, 4] = links[4, 3] = 1.0
    found = propagate(csr_array(dense_normalised(links)), 0.9, np.eye(5)[:, :1]).values[:, 0]
    assert (found[:2] > 0).all() and (found[2:] == 0).all()


def test_iterations_are_limited(monkeypatch):
    links = np.diag(np.ones(199), 1)
    matrix = csr_array(dense_normalised(links + links.T))
    monkeypatch.setattr("relcrf.inference.label_propagation.MAX_ITERATIONS", 3)
    found = propagate(matrix, 0.99, np.eye(200)[:, :1])
    assert found.iterations == 3 and not found.converged
