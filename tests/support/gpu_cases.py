"""Comparisons of GPU kernels with the CPU; run as a script, this module prints the error of each case as a JSON object."""

import json
import sys
import traceback
from functools import partial

import numpy as np
from graphs import random_graph
from networks import CLIQUES, FORESTS, LOOPS, hard, network
from scipy.sparse import csr_array

from relcrf.backends.base import Monitor, Problem
from relcrf.backends.pseudo import PseudoLikelihoodSpec
from relcrf.backends.registry import make_backend
from relcrf.gpu import conditionals
from relcrf.graph.reduction import Role
from relcrf.graph.scopes import Potentials
from relcrf.inference.auto import Auto
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.result import UnsupportedGraphError

TOLERANCE = 1e-10
"""Maximum difference of results of the GPU and of the CPU, relative to values above 1."""


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)


def impossible(rng):
    """Return a loop whose factors exclude every joint state."""
    scopes, potentials = network(rng, [2, 2, 2], [(0, 1), (1, 2), (0, 2)])
    tables = np.where(np.tile([1, 0, 0, 1], 3), -np.inf, potentials.factors)
    return scopes, Potentials(potentials.nodes, tables)


def contradiction(rng):
    """Return a pair with a factor that excludes every joint state."""
    scopes, potentials = network(rng, [2, 3], [(0, 1)])
    return scopes, Potentials(potentials.nodes, np.full(6, -np.inf))


NETWORKS = {
    **FORESTS,
    **LOOPS,
    "loops with hard rules": lambda rng: hard(rng, LOOPS["grid, k = 3"](rng), 0.3),
    "hard rules without a joint state": impossible,
    "a factor without a joint state": contradiction,
}


def compare_propagation(name, damping):
    """Compare marginals, the log partition, most probable states and verdicts; two runs have the same bits."""
    scopes, potentials = NETWORKS[name](np.random.default_rng(1))
    cpu = BeliefPropagation(scopes, damping=damping, max_iterations=30)
    gpu = BeliefPropagation(scopes, damping=damping, max_iterations=30, device="gpu")
    found, expected = gpu.marginals(potentials), cpu.marginals(potentials)
    assert_close(found.nodes, expected.nodes)
    assert_close(found.factors, expected.factors)
    assert_close(found.log_partition, expected.log_partition)
    states, expected_states = gpu.map_states(potentials), cpu.map_states(potentials)
    assert_close((states.score, states.bound), (expected_states.score, expected_states.bound))
    np.testing.assert_array_equal(states.states, expected_states.states)
    for verdict, other in ((found.verdict, expected.verdict), (states.verdict, expected_states.verdict)):
        assert (verdict.status, verdict.iterations) == (other.status, other.iterations)
    again = gpu.marginals(potentials)
    assert again.nodes.tobytes() + again.factors.tobytes() == found.nodes.tobytes() + found.factors.tobytes()
    assert np.array_equal(again.log_partition, found.log_partition, equal_nan=True)


def compare_reuse():
    """The arrays of an earlier call do not affect a call with other potentials."""
    scopes, potentials = LOOPS["one loop"](np.random.default_rng(2))
    other = Potentials(potentials.nodes[::-1], -potentials.factors)
    gpu, cpu = BeliefPropagation(scopes, device="gpu"), BeliefPropagation(scopes)
    for each in (potentials, other, potentials):
        assert_close(gpu.marginals(each).nodes, cpu.marginals(each).nodes)


def compare_auto():
    scopes, potentials = LOOPS["grid of agreements"](np.random.default_rng(3))
    settings = {"memory": 0}  # without memory for junction trees, loops require propagation
    found = Auto(scopes, device="gpu", **settings).marginals(potentials)
    assert found.verdict.status == "converged"
    assert_close(found.nodes, Auto(scopes, **settings).marginals(potentials).nodes)


def reject_larger_factors():
    scopes, potentials = CLIQUES["a tree of triples"](np.random.default_rng(0))
    for method in (BeliefPropagation.marginals, BeliefPropagation.map_states):
        try:
            method(BeliefPropagation(scopes, device="gpu"), potentials)
        except UnsupportedGraphError as error:
            assert "two nodes" in str(error)
        else:
            raise AssertionError("a factor of three nodes is accepted")


def compare_pseudo_likelihood(seed):
    """Compare value and gradient with the CPU; two runs have the same bits."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=8)
    roles = rng.choice((Role.FREE, Role.CLAMPED, Role.ABSENT), size=graph.n_variables, p=(0.7, 0.2, 0.1)).astype(
        np.int8
    )
    problem = Problem(graph, roles, np.array([rng.integers(k) for k in graph.cardinality], dtype=np.int32))
    gpu, cpu = (PseudoLikelihoodSpec(device).likelihood(problem) for device in ("gpu", "cpu"))
    weights = (1.0, 1e3)[seed] * rng.normal(size=graph.layout.size)
    (value, gradient), (expected_value, expected_gradient) = gpu(weights), cpu(weights)
    assert_close(value, expected_value)
    assert_close(gradient, expected_gradient)
    again = gpu(weights)
    assert (again[0], again[1].tobytes()) == (value, gradient.tobytes())


def compare_conditionals():
    """Compare columns of several chunks, columns without entries, and added potentials with NumPy."""
    rng = np.random.default_rng(0)
    dense = np.zeros((1200, 3))
    dense[:, 0] = rng.normal(size=1200)
    dense[::7, 2] = rng.normal(size=len(dense[::7]))
    matrix, added, weights = csr_array(dense), rng.normal(size=1200), rng.normal(size=3)
    start, entries = np.arange(0, 1201, 3), conditionals.CHUNK_ENTRIES
    conditionals.CHUNK_ENTRIES = 500
    try:
        gpu = conditionals.GpuConditionals(matrix, start)
    finally:
        conditionals.CHUNK_ENTRIES = entries
    for shift in (added, None):
        tables = (dense @ weights + (0.0 if shift is None else shift)).reshape(-1, 3)
        log_partition = np.log(np.exp(tables).sum(axis=1))
        value, counts = gpu.expectation(weights, shift)
        assert_close(value, log_partition.sum())
        assert_close(counts, np.exp(tables - log_partition[:, None]).ravel() @ dense)


def compare_backend(name, **settings):
    """Compare the weights and the predictions of a backend after one iteration."""
    rng = np.random.default_rng(4)
    graph = random_graph(rng, n_variables=4, max_arity=2)
    states = np.array([rng.integers(k) for k in graph.cardinality], dtype=np.int32)
    problem = Problem(graph, np.full(graph.n_variables, Role.FREE, dtype=np.int8), states)
    gpu, cpu = (make_backend(name, device=device, max_iterations=1, **settings) for device in ("gpu", "cpu"))
    vectors = cpu.fit(problem, Monitor()).vectors
    assert_close(gpu.fit(problem, Monitor()).vectors["weights"], vectors["weights"])
    found, expected = (backend.infer(problem, vectors) for backend in (gpu, cpu))
    assert_close(found.marginals, expected.marginals)
    assert_close(found.log_partition, expected.log_partition)
    np.testing.assert_array_equal(found.map_states, expected.map_states)


CASES = {
    **{
        f"propagation, {name}": partial(compare_propagation, name, 0.3 * (index % 2))
        for index, name in enumerate(NETWORKS)
    },
    **{f"pseudo-likelihood, seed {seed}": partial(compare_pseudo_likelihood, seed) for seed in range(2)},
    "conditionals": compare_conditionals,
    "backend dense": partial(compare_backend, "dense"),
    "backend dense, pseudo-likelihood": partial(compare_backend, "dense", objective="pseudo"),
    "backend pseudo": partial(compare_backend, "pseudo", inference="bp"),
    "propagation, other potentials": compare_reuse,
    "propagation, auto": compare_auto,
    "propagation, larger factors": reject_larger_factors,
}


def run(case):
    """Return the traceback of a case; empty if it passes."""
    try:
        CASES[case]()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    print(json.dumps({case: run(case) for case in sys.argv[1:] or CASES}))
