"""Tests of learning and inference in shards: same results as the whole graph, bitwise equal on all executors."""

import multiprocessing
import os
import signal
from dataclasses import replace

import numpy as np
import pytest

import relcrf
from relcrf import api
from relcrf.backends import automatic_sharding, sharded
from relcrf.backends.base import Monitor
from relcrf.backends.local import LocalBackend
from relcrf.execution.pool import PoolExecutor
from relcrf.execution.serial import SerialExecutor
from relcrf.graph.shards import cut_into_shards
from relcrf.inference.result import Verdict
from relcrf.resources import resource_path


@pytest.fixture(scope="module")
def grounding():
    """Return pages with few links, so that there are many components."""
    rng = np.random.default_rng(3)
    pages = 180
    ids = [f"p{k}" for k in range(pages)]
    ends = rng.integers(pages, size=(2, pages // 2))
    kinds = np.array(["course", "faculty", "student"], dtype=object)[rng.integers(3, size=pages)]
    words = rng.integers(20, size=(pages, 6))
    tables = {
        "page": {"id": ids, "category": kinds},
        "link": {"source": [ids[k] for k in ends[0]], "target": [ids[k] for k in ends[1]]},
        "page_word": {"page": np.repeat(ids, 6), "word": [f"w{k}" for k in words.ravel()]},
    }
    model = relcrf.load(resource_path("models", "webkb.rcrf"))
    return model, model.ground(relcrf.Dataset(tables))


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(sharded, "SHARD_FACTORS", 200)


@pytest.mark.parametrize("backend", ["ess", "local", "pseudo"])
def test_shards_learn_the_weights_of_the_whole(grounding, backend):
    model, ground = grounding
    hidden = np.random.default_rng(0).random(len(ground.states)) < 0.3
    options = {"hidden": hidden, "tolerance": 1e-10, "max_iterations": 1000}
    whole = api.fit(model, ground, backend, **options)
    sharded = api.fit(model, ground, backend, executor=SerialExecutor(), **options)
    assert sharded.summary["variables"] == whole.summary["variables"]
    for name, vector in whole.learned.vectors.items():
        np.testing.assert_allclose(sharded.learned.vectors[name], vector, atol=2e-6)
    if backend != "pseudo":  # a sampler's draws depend on the graph that it walks
        one, many = (api.predict(whole, ground, hidden=hidden, executor=e) for e in (None, SerialExecutor()))
        np.testing.assert_allclose(many.inferred.marginals, one.inferred.marginals, atol=1e-12)
        assert (many.inferred.map_states == one.inferred.map_states).all()
        assert (many.inferred.variables == one.inferred.variables).all()
        assert many.inferred.log_partition == pytest.approx(one.inferred.log_partition, rel=1e-12)
        assert sorted(map(tuple, many.inferred.edges)) == sorted(map(tuple, one.inferred.edges))


def test_there_are_several_shards(grounding, tmp_path):
    _, ground = grounding
    problem = api.training_problem(ground)
    assert len(cut_into_shards(problem.graph, problem.roles, problem.states, tmp_path, 200)) > 3


def test_graph_beyond_memory_is_sharded(grounding, monkeypatch):
    model, ground = grounding
    seen = []
    monkeypatch.setattr(
        automatic_sharding, "shard_problem", lambda *args: seen.append(args) or sharded.shard_problem(*args)
    )
    api.fit(model, ground, "local", max_iterations=2)
    assert not seen
    monkeypatch.setattr(ground.bound.dataset.store, "n_bytes", 1000)
    api.fit(model, ground, "local", max_iterations=2)
    assert len(seen) == 1


@pytest.mark.parametrize("worst", ["converged", "not converged", "interrupted"])
def test_verdict_is_that_of_the_worst_shard(grounding, monkeypatch, worst):
    model, ground = grounding
    fit, infer, seen = api.fit(model, ground, "local"), LocalBackend.infer, []

    def infer_shard(*arguments):
        seen.append(Verdict(worst if len(seen) == 1 else "exact", len(seen)))
        return replace(infer(*arguments), verdict=seen[-1])

    monkeypatch.setattr(LocalBackend, "infer", infer_shard)
    hidden = np.ones(len(ground.states), dtype=bool)
    found = api.predict(fit, ground, hidden=hidden, executor=SerialExecutor())
    assert len(seen) > 2 and found.verdict == Verdict(worst, len(seen) - 1)


@pytest.mark.slow
def test_a_pool_gives_the_same_bits_though_a_worker_is_killed(grounding):
    model, ground = grounding
    alone = api.fit(model, ground, "ess", executor=SerialExecutor(), max_iterations=6)
    monitor = KillingMonitor()
    with PoolExecutor(2) as pool:
        many = api.fit(model, ground, "ess", executor=pool, monitor=monitor, max_iterations=6)
    assert monitor.n_steps > 3
    for name, vector in alone.learned.vectors.items():
        assert (many.learned.vectors[name] == vector).all()


class KillingMonitor(Monitor):
    """A monitor that kills a worker process after the third step."""

    n_steps = 0

    def step(self, stage, state, max_iterations):
        self.n_steps += 1
        if self.n_steps == 3:
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)


@pytest.mark.slow
def test_spark_gives_the_same_bits(grounding, spark):
    from relcrf.execution.spark import SparkExecutor

    model, ground = grounding
    alone = api.fit(model, ground, "ess", executor=SerialExecutor(), max_iterations=3)
    with SparkExecutor(spark) as executor:
        many = api.fit(model, ground, "ess", executor=executor, max_iterations=3)
    for name, vector in alone.learned.vectors.items():
        assert (many.learned.vectors[name] == vector).all()
