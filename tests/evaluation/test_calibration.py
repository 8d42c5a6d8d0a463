"""Temperature calibration: the scale maximises the held-out likelihood and preserves the most probable joint state."""

import numpy as np
import pytest

import relcrf
from relcrf import api
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.calibration import SCALES
from relcrf.evaluation.splits import random_folds
from relcrf.resources import resource_path


@pytest.fixture(scope="module")
def web():
    """Pages with weakly informative words, and links."""
    rng = np.random.default_rng(1)
    kinds = np.array(["course", "faculty", "student"], dtype=object)
    kind = rng.integers(3, size=90)
    words = np.where(rng.random((90, 8)) < 0.2, kind[:, None], rng.integers(30, size=(90, 8)))
    ends = rng.integers(90, size=(2, 60))
    ids = [f"p{k:02}" for k in range(90)]
    tables = {
        "page": {"id": ids, "category": kinds[kind]},
        "link": {"source": [ids[k] for k in ends[0]], "target": [ids[k] for k in ends[1]]},
        "page_word": {"page": np.repeat(ids, 8), "word": [f"w{k}" for k in words.ravel()]},
    }
    model = relcrf.load(resource_path("models", "webkb.rcrf"))
    return model, model.ground(relcrf.Dataset(tables))


@pytest.mark.parametrize("backend", ["ess", "pseudo"])
def test_overfitted_weights_are_scaled_down(web, backend):
    model, grounding = web
    hidden = np.arange(len(grounding.states)) % 3 == 0
    plain, calibrated = (
        api.fit(model, grounding, backend, hidden=hidden, l2=1e-4, calibrate=folds) for folds in (0, 4)
    )
    scale = calibrated.summary["calibration"]
    assert scale in SCALES and scale < 1.0
    np.testing.assert_allclose(calibrated.learned.vectors["weights"], scale * plain.learned.vectors["weights"])
    before, after = (api.predict(fit, grounding, hidden=hidden) for fit in (plain, calibrated))
    assert after.score(subset=hidden).log_likelihood > before.score(subset=hidden).log_likelihood
    if backend == "ess":
        np.testing.assert_array_equal(before.inferred.map_states, after.inferred.map_states)


def test_scale_equals_manual_search(web):
    model, grounding = web
    fit = api.fit(model, grounding, "local", l2=0.01, calibrate=3)
    problem = api.training_problem(grounding)
    total = np.zeros(len(SCALES))
    for fold in random_folds(problem, 3, 0):
        part = api.fit(model, grounding, "local", l2=0.01, hidden=fold.test)
        for k, scale in enumerate(SCALES):
            part.learned.vectors["weights"][:] *= scale
            found = api.predict(part, grounding, hidden=fold.test)
            total[k] += fold.n_test * found.score(subset=fold.test).log_likelihood
            part.learned.vectors["weights"][:] /= scale
    assert fit.summary["calibration"] == SCALES[total.argmax()]


def test_hidden_labels_are_not_used_and_fixed_weights_are_unchanged():
    text = (
        "domain D = { x, y } entity E { predict d : D\n w : string }\n"
        "template given(e: E) over e.d init 0.5 fixed\ntemplate word(e: E) over e.d per e.w"
    )
    rng = np.random.default_rng(0)
    words = rng.integers(3, size=60)
    label = np.where(rng.random(60) < 0.8, words == 0, words != 0)
    table = {"id": list(range(60)), "d": ["x" if k else "y" for k in label], "w": [f"w{k}" for k in words]}
    model = relcrf.parse(text)
    grounding = model.ground(relcrf.Dataset({"e": table}))
    hidden = np.arange(60) % 2 == 0
    fit = api.fit(model, grounding, "local", hidden=hidden, calibrate=5)
    weights = fit.weights().to_pandas().query("template == 'given'")["weight"]
    assert (weights == 0.5).all()
    from dataclasses import replace

    changed = replace(grounding, states=np.where(hidden, 0, grounding.states))
    other = api.fit(model, changed, "local", hidden=hidden, calibrate=5)
    np.testing.assert_array_equal(other.learned.vectors["weights"], fit.learned.vectors["weights"])


def test_too_few_folds_or_labels_raise_error(web):
    model, grounding = web
    with pytest.raises(UsageError, match="E317"):
        api.fit(model, grounding, "local", calibrate=1)
    few = np.ones(len(grounding.states), dtype=bool)
    few[np.flatnonzero(grounding.states >= 0)[:3]] = False
    with pytest.raises(DataError, match="E226"):
        api.fit(model, grounding, "local", hidden=few, calibrate=5)
