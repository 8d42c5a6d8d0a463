"""The L2 penalty as a Gaussian prior centred on the declared initial weights."""

import numpy as np
import pytest

import relcrf
from relcrf.api import fit, predict

MODEL = """
domain Topic = { a, b, c }
entity Page { predict topic : Topic, size : real }
relation Link(source: Page, target: Page)
template size(p: Page) over p.topic by p.size
template linked(p: Page, q: Page) where Link(p, q) over p.topic == q.topic init 1 OPTION
"""


def tables_without_labelled_neighbours():
    """Return 40 pages, of which those with an odd number have labels; no link joins two of them."""
    rng = np.random.default_rng(0)
    topics = [("a", "b", "c")[k % 3] if k % 2 else None for k in range(40)]
    pairs = [(k, int(rng.choice(np.arange(k % 2 == 0, 40, 2)))) for k in range(40) for _ in range(2)]
    pairs = [(s, t) for s, t in pairs if not (s % 2 and t % 2)] + [(0, 2), (2, 4), (1, 4)]
    return {
        "page": {"id": list(range(40)), "topic": topics, "size": rng.normal(size=40).tolist()},
        "link": {"source": [s for s, _ in pairs], "target": [t for _, t in pairs]},
    }


@pytest.mark.parametrize("backend", ["ess", "dense", "pseudo", "trmrf"])
def test_weight_without_training_factors_stays_at_its_initial_value(backend):
    weights, marginals = [], []
    for option in ("l2 1", "fixed"):
        model = relcrf.parse(MODEL.replace("OPTION", option))
        grounding = model.ground(relcrf.Dataset(tables_without_labelled_neighbours()))
        trained = fit(model, grounding, backend)
        weights.append(float(trained.learned.vectors["weights"][-1]))
        marginals.append(predict(trained, grounding).inferred.marginals)
    assert weights == [1.0, 1.0]
    np.testing.assert_allclose(marginals[0], marginals[1], atol=1e-6)
