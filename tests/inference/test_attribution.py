"""Path attribution of messages: contributions sum to the projection."""

import numpy as np
import pytest

from relcrf.inference.attribution import FactorMessage, log_odds_direction


@pytest.mark.parametrize("scale", [0.1, 3.0, 1000.0])
@pytest.mark.parametrize("is_expected", [False, True])
def test_contributions_sum_to_the_projection(scale, is_expected):
    rng = np.random.default_rng(1)
    potential, beliefs = scale * rng.normal(size=(3, 4)), rng.dirichlet(np.ones(4))
    message, direction = FactorMessage(potential, beliefs, is_expected), log_odds_direction(3, 2, 0)
    projection = message.project(direction)
    assert (message.cell_contributions(direction) * potential).sum() == pytest.approx(projection, abs=1e-9)
    uniform_value, contributions = message.belief_contributions(direction)
    assert uniform_value + contributions @ np.log(beliefs) == pytest.approx(projection, abs=1e-9)
    assert contributions.sum() == pytest.approx(0.0, abs=1e-9)


def test_message_is_the_log_of_a_mean():
    potential, beliefs = np.log([[1.0, 4.0], [3.0, 2.0]]), np.array([0.25, 0.75])
    found = FactorMessage(potential, beliefs).project(log_odds_direction(2, 0, 1))
    assert found == pytest.approx(np.log((0.25 * 1 + 0.75 * 4) / (0.25 * 3 + 0.75 * 2)))
    mean = FactorMessage(potential, beliefs, is_expected=True).project(log_odds_direction(2, 0, 1))
    assert mean == pytest.approx(0.25 * np.log(1 / 3) + 0.75 * np.log(4 / 2))


def test_equal_factors_have_equal_contributions():
    rng = np.random.default_rng(2)
    table = rng.normal(size=(2, 3))
    contributions = FactorMessage(2 * table, rng.dirichlet(np.ones(3))).cell_contributions(log_odds_direction(2, 0, 1))
    assert (contributions * table).sum() == pytest.approx((contributions * 2 * table).sum() / 2)


def test_observed_neighbour_selects_its_cells():
    table = np.array([[1.0, 5.0, 2.0], [0.5, -1.0, 7.0]])
    message = FactorMessage(table, np.array([0.0, 1.0, 0.0]))
    assert message.project(log_odds_direction(2, 0, 1)) == pytest.approx(6.0)
    np.testing.assert_allclose(
        message.cell_contributions(log_odds_direction(2, 0, 1)), [[0, 1, 0], [0, -1, 0]], atol=1e-12
    )
