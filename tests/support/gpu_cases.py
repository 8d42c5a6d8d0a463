"""Comparisons of GPU kernels with the CPU."""

import traceback
from functools import partial

import numpy as np
from gated import random_gating
from graphs import random_graph
from networks import CLIQUES, FORESTS, LOOPS, hard, network
from scipy.sparse import csr_array

from relcrf.backends.base import Monitor, Problem
from relcrf.backends.gated_risks import build_risk
from relcrf.backends.pseudo import PseudoLikelihoodSpec
from relcrf.backends.registry import make_backend
from relcrf.columns.offsets import offsets
from relcrf.gpu import row_sums
from relcrf.gpu.conditionals import GpuConditionals
from relcrf.gpu.gated_pairs import GpuGatedPairs
from relcrf.graph.gates import LazyGates
from relcrf.graph.reduction import Role
from relcrf.graph.scopes import Potentials
from relcrf.inference.auto import Auto
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.result import UnsupportedGraphError
from relcrf.kernels.gated_losses import cross_entropy_loss, linear_loss, squared_error_loss
from relcrf.kernels.gated_pairs import LossGradient, build_layout, compute_loss_gradient
from relcrf.learning.risk import LOSSES, RiskSettings

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


SLOW_NETWORKS = ("star", "grid of agreements", "loops with hard rules")
"""Networks on which propagation converges in 20 or 30 iterations; it is tested for convergence after each ten. The others are
compared for ten iterations, because each takes the simulator up to a tenth of a second."""


def compare_propagation(name, damping):
    """Compare marginals, the log partition, most probable states and verdicts; two runs have the same bits."""
    scopes, potentials = NETWORKS[name](np.random.default_rng(1))
    settings = {"damping": damping, "max_iterations": 30 if name in SLOW_NETWORKS else 10}
    cpu, gpu = (BeliefPropagation(scopes, device=device, **settings) for device in ("cpu", "gpu"))
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
    start, entries = np.arange(0, 1201, 3), row_sums.CHUNK_ENTRIES
    row_sums.CHUNK_ENTRIES = 500
    try:
        gpu = GpuConditionals(matrix, start)
    finally:
        row_sums.CHUNK_ENTRIES = entries
    for shift in (added, None):
        tables = (dense @ weights + (0.0 if shift is None else shift)).reshape(-1, 3)
        log_partition = np.log(np.exp(tables).sum(axis=1))
        value, counts = gpu.expectation(weights, shift)
        assert_close(value, log_partition.sum())
        assert_close(counts, np.exp(tables - log_partition[:, None]).ravel() @ dense)


def compare_gated_pairs(seed, n_iterations, n_states, n_tables):
    """Compare beliefs, losses and derivatives, with impossible states, closed gates, parallel pairs and large potentials."""
    rng = np.random.default_rng(seed)
    ends = np.array([(0, 1), (1, 2), (2, 0), (0, 1), (3, 2), (4, 3)])
    cardinality = np.full(6, n_states)
    table_of = rng.integers(n_tables, size=len(ends))
    if n_tables == len(ends):
        cardinality, table_of = np.array([2, 3, 1, 4, 2, 3]), np.arange(len(ends))
        sizes = cardinality[ends].prod(axis=1)
    else:
        sizes = np.full(n_tables, n_states**2)
    layout = build_layout(offsets(cardinality), ends, table_of, offsets(sizes))
    nodes = rng.normal(size=cardinality.sum())
    nodes[0] = -np.inf
    tables = (1.0, 300.0)[seed % 2] * rng.normal(size=sizes.sum())
    gate = np.where(rng.random(len(ends)) < 0.2, 0.0, rng.random(len(ends)))
    pairs = GpuGatedPairs(layout, ends)
    labels = (np.full(6, cardinality.min() - 1), rng.random(6))
    for loss in (squared_error_loss(*labels), cross_entropy_loss(*labels), linear_loss(rng.normal(size=len(nodes)))):
        found = pairs.compute_loss_gradient(nodes, tables, gate, loss, n_iterations)
        expected = compute_loss_gradient(layout, nodes, tables, gate, loss, n_iterations, "float64")
        for name in LossGradient._fields:
            assert_close(getattr(found, name), getattr(expected, name))
    again = pairs.compute_loss_gradient(nodes, tables, gate, loss, n_iterations)
    assert all(np.array_equal(getattr(again, name), getattr(found, name)) for name in LossGradient._fields)
    assert_close(pairs.propagate(nodes, tables, gate, n_iterations), expected.beliefs)


def compare_risk(loss):
    """Compare the risk and its gradient, and inference with hard gates."""
    rng = np.random.default_rng(5)
    graph = random_graph(rng, n_variables=6, max_arity=2)
    gates = random_gating(rng, graph)
    roles = np.array([Role.FREE] * 5 + [Role.CLAMPED], dtype=np.int8)
    states = np.array([rng.integers(k) for k in graph.cardinality], dtype=np.int32)
    problem = Problem(graph, roles, states, lazy_gates=LazyGates(lambda: gates), queries=np.arange(6) < 3)
    point = rng.normal(size=graph.layout.size + problem.gates.layout.size)
    gpu, cpu = (
        build_risk(problem, problem.queries, RiskSettings(loss, 0.1, 2, 0.4, device=device), "gated")
        for device in ("gpu", "cpu")
    )
    assert gpu.graph.n_pairs > 0
    for found, expected in zip(gpu(point, 1.5), cpu(point, 1.5), strict=True):
        assert_close(found, expected)
    for skip_closed in (True, False):
        found, expected = (risk.infer_with_hard_gates(point, 0.45, skip_closed=skip_closed) for risk in (gpu, cpu))
        assert_close(found.beliefs, expected.beliefs)


def compare_gated_backend():
    """Compare the weights and the predictions of backend `gated` after a short training."""
    rng = np.random.default_rng(6)
    graph = random_graph(rng, n_variables=4, max_arity=2)
    states = np.array([rng.integers(k) for k in graph.cardinality], dtype=np.int32)
    problem = Problem(graph, np.full(graph.n_variables, Role.FREE, dtype=np.int8), states)
    settings = {"max_iterations": 1, "pretraining_iterations": 1, "gates": "none"}
    gpu, cpu = (make_backend("gated", device=device, **settings) for device in ("gpu", "cpu"))
    vectors = cpu.fit(problem, Monitor()).vectors
    assert_close(gpu.fit(problem, Monitor()).vectors["weights"], vectors["weights"])
    assert_close(gpu.infer(problem, vectors).marginals, cpu.infer(problem, vectors).marginals)


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
    "gated pairs, two states": partial(compare_gated_pairs, 0, 3, 2, 2),
    "gated pairs, three states and large potentials": partial(compare_gated_pairs, 1, 2, 3, 2),
    "gated pairs, mixed states": partial(compare_gated_pairs, 2, 3, 0, 6),
    "gated pairs, no iterations": partial(compare_gated_pairs, 3, 0, 2, 1),
    **{f"risk, {loss}": partial(compare_risk, loss) for loss in LOSSES},
    "backend gated": compare_gated_backend,
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
