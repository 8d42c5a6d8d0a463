"""Tests of link prediction measures: ranks equal those of plain loops over tuples, and the option --rank."""

import numpy as np
import pytest

import relcrf
from relcrf.errors import UsageError
from relcrf.evaluation.evaluations import evaluate
from relcrf.evaluation.measures import ScoredLabels
from relcrf.evaluation.ranking import group_tuples

MODEL = """
domain Verb = { aids, trades }
entity Nation { predict rich : bool }
predict relation verb(n: Nation, m: Nation, v: Verb) where n != m
predict relation level(n: Nation) : 1..3
template prior(n: Nation, m: Nation, v: Verb) over verb(n, m, v) per n, v
template rich(n: Nation) over n.rich
template level(n: Nation) over level(n)
"""


@pytest.fixture(scope="module")
def grounding():
    rng = np.random.default_rng(0)
    names = [f"n{k}" for k in range(12)]
    cells = [(n, m, v) for n in names for m in names if n != m for v in ("aids", "trades")]
    facts = [cell for cell in cells if rng.random() < (0.7 if cell[0] < "n3" else 0.2)]
    verb = dict(zip("nmv", map(list, zip(*facts, strict=True)), strict=True))
    level = {"n": names, "value": [1 + k % 3 for k in range(12)]}
    tables = {"nation": {"id": names, "rich": [k % 2 == 0 for k in range(12)]}, "verb": verb, "level": level}
    return relcrf.parse(MODEL).ground(relcrf.Dataset(tables))


def plain_ranks(probability, truth, arguments, replaced, weights):
    """Return the filtered ranks of true tuples, and the weight of each rank."""
    ranks, out = [], []
    for k in replaced:
        for item, wanted in enumerate(arguments):
            rest = [
                j
                for j, a in enumerate(arguments)
                if truth[j] == 0 and a[:k] + a[k + 1 :] == wanted[:k] + wanted[k + 1 :]
            ]
            if truth[item] == 1 and rest:
                higher = sum(probability[j] > probability[item] for j in rest)
                ranks.append(1 + higher + sum(probability[j] == probability[item] for j in rest) / 2)
                out.append(weights[item])
    return np.array(ranks), np.array(out)


@pytest.mark.parametrize("replaced", [("n",), ("n", "m"), ("n", "m", "v")])
def test_measures_equal_plain_loops(grounding, replaced):
    block = next(b for b in grounding.blocks if b.name == "verb")
    rng = np.random.default_rng(len(replaced))
    groups = group_tuples(grounding, replaced)
    assert list(groups) == ["verb"]
    tested = np.sort(rng.permutation(block.count)[:150])
    probability = np.round(rng.random(150), 1)
    truth, weights = (rng.random(150) < 0.3).astype(int), rng.integers(4, size=150).astype(float)
    scored = ScoredLabels(np.column_stack((1 - probability, probability)), truth, groups["verb"][:, tested])
    arguments = [tuple(texts[tested[i]] for texts in grounding.argument_texts(block)) for i in range(150)]
    ranks, rank_weights = plain_ranks(probability, truth, arguments, ["nmv".index(name) for name in replaced], weights)
    found = scored.measures(weights)
    assert found["mrr"] == pytest.approx(np.average(1 / ranks, weights=rank_weights))
    for k in (1, 3, 10):
        assert found[f"hits_at_{k}"] == pytest.approx(np.average(ranks <= k, weights=rank_weights))
    assert sorted(scored.ranks[0]) == pytest.approx(sorted(ranks))


def test_measures_without_ranked_tuples_are_undefined():
    table = np.array([[0.4, 0.6], [0.1, 0.9]])
    alone = ScoredLabels(table, np.array([1, 0]), np.array([[0, 1]])).measures()
    assert np.isnan(alone["mrr"]) and np.isnan(alone["hits_at_3"])
    assert "mrr" not in ScoredLabels(table, np.array([1, 0])).measures()


def test_estimates_contain_ranks(grounding):
    found = evaluate(grounding, [], "hide=0.3", rank=("n", "m")).predictions
    estimates = found.estimates("local", "verb")
    (part,) = found.scored_by_fold("local", "verb")
    ranks, _ = part.ranks
    assert estimates["mrr"].value == pytest.approx((1 / ranks).mean())
    assert estimates["mrr"].low < estimates["mrr"].value < estimates["mrr"].high
    assert estimates["mrr"].value > found.estimates("majority", "verb")["mrr"].value
    assert "mrr" not in found.estimates("local", "Nation.rich") and "mrr" not in found.estimates("local", "level")


def test_folds_are_ranked_separately(grounding):
    found = evaluate(grounding, [], "folds=3", rank=("m",)).predictions
    parts = found.scored_by_fold("local", "verb")
    sizes, values = [len(part.truth) for part in parts], [part.measures()["mrr"] for part in parts]
    assert found.estimates("local", "verb")["mrr"].value == pytest.approx(np.average(values, weights=sizes))


def test_unknown_argument_raises_e342(grounding):
    with pytest.raises(UsageError, match=r"E342[\s\S]*'x' is not an argument[\s\S]*n, m"):
        evaluate(grounding, [], "hide=0.3", rank=("x",))
