"""Comparisons of GPU kernels with the CPU; run as a script, this module prints the error of each case as a JSON object.

With NUMBA_ENABLE_CUDASIM=1 in the environment of the process, the kernels run in Numba's simulator of CUDA.
"""

import json
import sys
import traceback
from functools import partial

import numpy as np
from networks import CLIQUES, FORESTS, LOOPS, hard, network

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


CASES = {
    **{
        f"propagation, {name}": partial(compare_propagation, name, 0.3 * (index % 2))
        for index, name in enumerate(NETWORKS)
    },
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
