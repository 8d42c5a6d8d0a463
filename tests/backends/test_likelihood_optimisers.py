"""Tests of setting `optimiser`: every backend learns the same weights, also after an interruption, and rejects other names."""

from pathlib import Path

import numpy as np
import pytest
from answers import MARKOV, RING, TREE, tables

import relcrf
from relcrf import api
from relcrf.backends import dense, likelihood_backend
from relcrf.backends.base import Monitor
from relcrf.backends.likelihood_backend import LIKELIHOOD_OPTIMISERS
from relcrf.errors import UsageError
from relcrf.execution.serial import SerialExecutor
from relcrf.inference import belief_propagation
from relcrf.kernels import pair_flooding

MODEL = relcrf.parse(MARKOV)
EXACT = {"tolerance": 1e-8, "max_iterations": 2000}
BACKENDS = (
    ("local", {}),
    ("chow-liu", {}),
    ("ess", {}),
    ("ess", {"objective": "margin"}),
    ("dense", {"inference": "jt"}),
    ("dense", {"objective": "pseudo"}),
    ("pseudo", {}),
)


@pytest.fixture(scope="module")
def groundings():
    return {
        name: MODEL.ground(relcrf.Dataset(tables(pairs, rows=60))) for name, pairs in (("tree", TREE), ("ring", RING))
    }


class Interrupted(Exception):
    pass


class InterruptingMonitor(Monitor):
    """A monitor that raises an exception in iteration 2 of a stage, and later restores the state of this iteration."""

    def __init__(self, stage):
        self.stage, self.arrays = stage, None

    def step(self, stage, state, max_iterations):
        if stage == self.stage and state.iteration == 2 and self.arrays is None:
            self.arrays = state.to_arrays()
            raise Interrupted

    def restore(self, stage, state_class):
        return state_class.from_arrays(self.arrays) if stage == self.stage and self.arrays else None


@pytest.mark.parametrize("optimiser", [name for name in LIKELIHOOD_OPTIMISERS if name != "lbfgs"])
@pytest.mark.parametrize(("backend", "settings"), BACKENDS, ids=[f"{b}{''.join(s.values())}" for b, s in BACKENDS])
def test_same_weights_with_each_optimiser(groundings, backend, settings, optimiser):
    # The structures of `ess` on a ring depend on rounding: the information of several edges may be nearly equal.
    grounding = groundings["tree" if backend in ("ess", "chow-liu") else "ring"]
    expected = api.fit(MODEL, grounding, backend, **EXACT, **settings).learned
    found = api.fit(MODEL, grounding, backend, optimiser=optimiser, **EXACT, **settings).learned
    weights, expected_weights = found.vectors["weights"], expected.vectors["weights"]
    assert found.converged and (weights != expected_weights).any()
    np.testing.assert_allclose(weights, expected_weights, atol=1e-5)


@pytest.mark.parametrize("optimiser", LIKELIHOOD_OPTIMISERS)
@pytest.mark.parametrize("stage", ["structure", "weights"])
def test_interrupted_training_gives_identical_bits(groundings, optimiser, stage):
    settings = {"optimiser": optimiser, "min_information": 0.01}
    monitor = InterruptingMonitor(stage)
    with pytest.raises(Interrupted):
        api.fit(MODEL, groundings["ring"], "ess", monitor=monitor, **settings)
    resumed = api.fit(MODEL, groundings["ring"], "ess", monitor=monitor, **settings).learned
    whole = api.fit(MODEL, groundings["ring"], "ess", **settings).learned
    np.testing.assert_array_equal(resumed.vectors["weights"], whole.vectors["weights"])
    np.testing.assert_array_equal(resumed.vectors["structure"], whole.vectors["structure"])


@pytest.mark.parametrize("optimiser", LIKELIHOOD_OPTIMISERS)
@pytest.mark.parametrize("stage", ["pseudo", "weights", "coarse"])
def test_stages_of_dense_resume_with_identical_bits(groundings, optimiser, stage, monkeypatch):
    """The memory of a stage is part of the initial state of the next stage."""
    if stage == "coarse":
        monkeypatch.setattr(dense, "MIN_COARSE_EDGES", 0)
    monitor = InterruptingMonitor(stage)
    with pytest.raises(Interrupted):
        api.fit(MODEL, groundings["ring"], "dense", monitor=monitor, optimiser=optimiser)
    resumed = api.fit(MODEL, groundings["ring"], "dense", monitor=monitor, optimiser=optimiser).learned
    whole = api.fit(MODEL, groundings["ring"], "dense", optimiser=optimiser).learned
    assert whole.converged
    np.testing.assert_array_equal(resumed.vectors["weights"], whole.vectors["weights"])


class StateKeeper(Monitor):
    """A monitor that keeps the last state of the stage that runs, and restores it."""

    def __init__(self):
        self.stage, self.arrays = None, None

    def step(self, stage, state, max_iterations):
        self.stage, self.arrays = stage, state.to_arrays()

    def restore(self, stage, state_class):
        return state_class.from_arrays(self.arrays) if stage == self.stage else None


@pytest.mark.parametrize("round_number", [1, 10, 25, 60])
def test_unfinished_propagation_is_not_learned_from(groundings, round_number, monkeypatch):
    """Propagation returns unfinished marginals after Ctrl-C; learning must end instead, and resume with identical bits."""
    whole = api.fit(MODEL, groundings["ring"], "dense").learned
    flood, n_rounds, monitor = pair_flooding.flood, 0, StateKeeper()

    def interrupt(*arguments):
        nonlocal n_rounds
        n_rounds += 1
        if n_rounds == round_number:
            raise KeyboardInterrupt
        return flood(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(pair_flooding, "flood", interrupt)
        with pytest.raises(KeyboardInterrupt):
            api.fit(MODEL, groundings["ring"], "dense", monitor=monitor)
    resumed = api.fit(MODEL, groundings["ring"], "dense", monitor=monitor).learned
    assert resumed.converged
    np.testing.assert_array_equal(resumed.vectors["weights"], whole.vectors["weights"])


class StageRecorder(Monitor):
    """A monitor that records the number of iterations of each stage, and the number of evaluations."""

    def __init__(self):
        self.iterations, self.evaluations = {}, {}

    def step(self, stage, state, max_iterations):
        self.iterations[stage], self.evaluations[stage] = state.iteration, state.evaluations


def fit_with_coarse_stage(grounding, monkeypatch, executor=None, **settings):
    monkeypatch.setattr(dense, "MIN_COARSE_EDGES", 0)
    recorder = StageRecorder()
    learned = api.fit(MODEL, grounding, "dense", monitor=recorder, executor=executor, **settings).learned
    monkeypatch.undo()
    return recorder, learned


def test_coarse_propagation_saves_accurate_evaluations(groundings, monkeypatch):
    recorder = StageRecorder()
    expected = api.fit(MODEL, groundings["ring"], "dense", monitor=recorder, tolerance=1e-7).learned.vectors["weights"]
    for executor in (None, SerialExecutor()):
        found, learned = fit_with_coarse_stage(groundings["ring"], monkeypatch, executor, tolerance=1e-6)
        assert list(found.iterations) == ["pseudo", "coarse", "weights"]
        assert found.iterations["weights"] < recorder.iterations["weights"] // 2
        np.testing.assert_allclose(learned.vectors["weights"], expected, atol=1e-3)


def test_misleading_coarse_propagation_changes_nothing(groundings, monkeypatch):
    """If coarse values are wrong, as after a single round of propagation, the weights are those without the coarse stage."""
    monkeypatch.setattr(belief_propagation, "MAX_ROUNDS_PER_STEP", 1)
    expected = api.fit(MODEL, groundings["ring"], "dense").learned.vectors["weights"]
    monkeypatch.setattr(belief_propagation, "COARSE_TOLERANCE", np.inf)
    monkeypatch.setattr(likelihood_backend, "MAX_COARSE_ERROR", 1e-12)  # the links of this graph are weak
    found, learned = fit_with_coarse_stage(groundings["ring"], monkeypatch)
    assert found.iterations["coarse"] > 0
    np.testing.assert_array_equal(learned.vectors["weights"], expected)


def test_accurate_propagation_only_confirms_a_coarse_minimum(groundings, monkeypatch):
    """At the default tolerance, the memory of the coarse stage shows that no significant decrease remains."""
    found, learned = fit_with_coarse_stage(groundings["ring"], monkeypatch)
    assert found.iterations["coarse"] > 0 and learned.converged
    assert (found.iterations["weights"], found.evaluations["weights"]) == (0, 1)


def test_memory_of_the_pseudo_likelihood_does_not_change_the_optimum(groundings, monkeypatch):
    found = []
    for _ in range(2):
        states = []

        class Recorder(Monitor):
            def step(self, stage, state, max_iterations, states=states):
                states.append((stage, len(state.steps)))

        learned = api.fit(MODEL, groundings["ring"], "dense", monitor=Recorder(), **EXACT).learned
        found.append((dict(reversed(states))["weights"], learned.vectors["weights"]))
        monkeypatch.setattr(likelihood_backend, "ConjugateGradient", object)  # ignores the memory
    (n_steps, weights), (n_steps_without, expected) = found
    assert n_steps > n_steps_without == 1
    np.testing.assert_allclose(weights, expected, atol=1e-5)


def test_propagation_that_fails_does_not_attract_learning(monkeypatch):
    """At the maximum of the pseudo-likelihood of these pages, propagation finds a state in which one category prevails.

    The memory of the pseudo-likelihood then suggests a step of 200 units, to weights where propagation does not converge.
    """
    monkeypatch.syspath_prepend(Path(relcrf.__file__).parent.parent / "datasets")
    from weak_links import MODEL as LINKED
    from weak_links import make_pages

    model = relcrf.parse(LINKED)
    grounding = model.ground(relcrf.Dataset(make_pages(1_000, np.random.default_rng(3)).tables()))
    learned = api.fit(model, grounding, "dense").learned
    assert np.abs(learned.vectors["weights"]).max() < 5.0


@pytest.mark.parametrize("backend", ["local", "ess", "pseudo"])
def test_rejects_other_names(groundings, backend):
    with pytest.raises(UsageError) as error:
        api.fit(MODEL, groundings["tree"], backend, optimiser="adam")
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "E305"
    assert diagnostic.message == f"setting 'optimiser' of backend '{backend}' cannot be 'adam'"
    assert "lbfgs" in diagnostic.hint and "newton-cg" in diagnostic.hint
