"""Latent factors: values and gradients equal those of plain NumPy, and scores do not depend on the scored label."""

import numpy as np
import pytest

import relcrf
from relcrf.backends.latent_scores import latent_scores
from relcrf.errors import UsageError
from relcrf.learning.latent_factors import LatentFactorObjective, LatentFactors


def tensor(shape=(3, 7, 7), seed=0):
    rng = np.random.default_rng(seed)
    return (rng.random(shape) < 0.3).astype(float), (rng.random(shape) < 0.8).astype(float)


@pytest.mark.parametrize("is_shared", [True, False])
def test_value_and_gradient(is_shared):
    truth, known = tensor() if is_shared else tensor((3, 7, 5))
    n_slots, n_first, n_second = truth.shape
    objective = LatentFactorObjective(truth, known, is_shared, 2, 0.7)
    rng = np.random.default_rng(1)
    point = objective.initial_point(rng)
    vectors = point[:-n_slots].reshape(-1, 4)
    complex_vectors = vectors[:, :2] + 1j * vectors[:, 2:]
    first, second = complex_vectors[:n_first], complex_vectors[0 if is_shared else n_first :][:n_second]
    slot, bias = complex_vectors[-n_slots:], point[-n_slots:]
    scores = bias[:, None, None] + np.einsum("ik,sk,jk->sij", first, slot, second.conj()).real
    np.testing.assert_allclose(objective.scores(point), scores, atol=1e-12)
    value, gradient = objective(point)
    losses = known * (np.log1p(np.exp(scores)) - truth * scores)
    assert value == pytest.approx(losses.sum() + 0.35 * (vectors**2).sum())
    for at in rng.permutation(len(point))[:25]:
        step = np.zeros(len(point))
        step[at] = 1e-5
        slope = (objective(point + step)[0] - objective(point - step)[0]) / 2e-5
        assert gradient[at] == pytest.approx(slope, abs=1e-6)


def test_score_of_known_entry_does_not_depend_on_its_label():
    truth, known = (array.astype(np.float32) for array in tensor())
    learner = LatentFactors(rank=2, l2=1.0, folds=3, max_iterations=20)
    scores = learner.out_of_fold_scores(truth, known, is_shared=True)
    for at in np.argwhere(known)[::17]:
        flipped = truth.copy()
        flipped[tuple(at)] = 1 - flipped[tuple(at)]
        again = learner.out_of_fold_scores(flipped, known, is_shared=True)
        assert again[tuple(at)] == scores[tuple(at)] and (again != scores).any()
    hidden_label = np.where(known, truth, 1 - truth)
    np.testing.assert_array_equal(learner.out_of_fold_scores(hidden_label, known, is_shared=True), scores)


MODEL = """
entity Thing
domain Kind = open
predict relation holds(x: Thing, k: Kind, y: Thing) where x != y
predict relation likes(x: Thing, k: Kind)
predict relation big(x: Thing)
template prior(x: Thing, y: Thing, k: Kind) over holds(x, k, y) per k
template liked(x: Thing, k: Kind) over likes(x, k)
template big(x: Thing) over big(x)
"""


def test_scores_of_a_relation_rank_hidden_tuples():
    rng = np.random.default_rng(0)
    group, rule = rng.integers(3, size=30), rng.random((3, 3, 4)) < 0.4
    x, y, k = np.nonzero(rule[group][:, group])
    names = np.array([f"t{n}" for n in range(30)])
    holds = {"x": names[x], "k": np.array(list("abcd"))[k], "y": names[y]}
    data = {
        "thing": {"id": names},
        "holds": holds,
        "likes": {"x": names[:3], "k": ["a", "b", "a"]},
        "big": {"x": names[:2]},
    }
    grounding = relcrf.parse(MODEL).ground(relcrf.Dataset(data))
    block = next(b for b in grounding.blocks if b.name == "holds")
    hidden = rng.random(len(grounding.states)) < 0.2
    factors = LatentFactors(rank=4, folds=2, max_iterations=50)
    table = latent_scores(grounding, "holds", hidden, factors=factors).columns
    assert list(table) == ["x", "k", "y", "score"] and len(table["score"]) == block.count == 30 * 29 * 4
    truth = grounding.states[block.start : block.start + block.count] == 1
    is_hidden = hidden[block.start : block.start + block.count]
    for part in (is_hidden, ~is_hidden):
        assert ((table["score"][part] > 0) == truth[part]).mean() > 0.95
    liked = latent_scores(grounding, "likes", factors=factors).columns
    assert list(liked) == ["x", "k", "score"] and np.isfinite(liked["score"]).all()
    with pytest.raises(UsageError, match=r"E310[\s\S]*'big' is not[\s\S]*holds, likes"):
        latent_scores(grounding, "big")


def test_too_large_relation_raises_e395(monkeypatch):
    monkeypatch.setattr("relcrf.backends.latent_scores.MAX_ENTRIES", 3)
    data = {
        "thing": {"id": ["t1", "t2"]},
        "likes": {"x": ["t1"], "k": ["a"]},
        "holds": {"x": ["t1"], "k": ["a"], "y": ["t2"]},
    }
    grounding = relcrf.parse(MODEL).ground(relcrf.Dataset(data))
    with pytest.raises(UsageError, match=r"E395[\s\S]*1 x 2 x 2 entries"):
        latent_scores(grounding, "holds")
