"""Belief propagation on gated pairs and its adjoint, compared with NumPy, finite differences, enumeration and PyTorch."""

from itertools import pairwise

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.enumeration import Enumeration
from relcrf.kernels import gated_layout, gated_linear, gated_losses, threads
from relcrf.kernels.gated_binary import MAX_RANGE32, MAX_RANGE64
from relcrf.kernels.gated_pairs import GatedLayout, build_layout, choose_arithmetic, compute_loss_gradient, propagate


class Problem:
    """Random gated pairs over nodes of given cardinalities; pairs of the same cardinalities may share tables."""

    def __init__(self, rng, cardinality, ends, shared=True, scale=1.0):
        self.cardinality = np.asarray(cardinality)
        self.state_start = np.concatenate(([0], np.cumsum(self.cardinality)))
        self.ends = np.asarray(ends, dtype=np.int32).reshape(-1, 2)
        sizes, self.table_of = [], np.empty(len(self.ends), dtype=np.int32)
        for p, (i, j) in enumerate(self.ends):
            shape = (self.cardinality[i], self.cardinality[j])
            if shape not in sizes or not shared or rng.random() < 0.3:
                self.table_of[p] = len(sizes)
                sizes.append(shape)
            else:
                self.table_of[p] = rng.choice([t for t, size in enumerate(sizes) if size == shape])
        self.table_start = np.concatenate(([0], np.cumsum([k * n for k, n in sizes], dtype=np.int64)))
        self.nodes = rng.normal(size=self.state_start[-1])
        self.tables = scale * rng.normal(size=self.table_start[-1])
        self.gate = rng.uniform(-0.2, 1.2, size=len(self.ends)) * (rng.random(len(self.ends)) < 0.8)
        self.observed = np.array([rng.integers(k) for k in self.cardinality], dtype=np.int32)
        self.weight = rng.uniform(0.5, 2.0, size=len(self.cardinality)) * (rng.random(len(self.cardinality)) < 0.7)
        self.slope = rng.normal(size=self.state_start[-1])

    @property
    def layout(self) -> GatedLayout:
        return build_layout(self.state_start, self.ends, self.table_of, self.table_start)

    @property
    def losses(self):
        squared = gated_losses.squared_error_loss(self.observed, self.weight)
        return (
            squared,
            gated_losses.cross_entropy_loss(self.observed, self.weight),
            gated_losses.linear_loss(self.slope),
        )

    def table(self, tables, p):
        """Return the table of a pair, shape (..., k, n), for tables of shape (..., n_cells)."""
        k, n = self.cardinality[self.ends[p]]
        start = self.table_start[self.table_of[p]]
        return tables[..., start : start + k * n].reshape(*tables.shape[:-1], k, n)

    def beliefs(self, nodes, tables, gate, n_iterations):
        """Run belief propagation in logs, message by message; return lists of probabilities and of their logs, by node.

        Leading axes of the arguments, which broadcast, are those of separate problems.
        """
        own = [nodes[..., a:b] for a, b in pairwise(self.state_start)]
        message = {
            (p, side): np.zeros(self.cardinality[pair[side]]) for p, pair in enumerate(self.ends) for side in (0, 1)
        }
        for t in range(n_iterations + 1):
            total = list(own)
            for (p, side), log in message.items():
                v = self.ends[p, side]
                total[v] = total[v] + log
            if t == n_iterations:
                logs = [log - logsumexp(log, axis=-1, keepdims=True) for log in total]
                return [np.exp(log) for log in logs], logs
            new = {}
            for p, (i, j) in enumerate(self.ends):
                table = gate[..., p, None, None] * self.table(tables, p)
                new[p, 1] = logsumexp(table + (total[i] - message[p, 0])[..., :, None], axis=-2)
                new[p, 0] = logsumexp(table + (total[j] - message[p, 1])[..., None, :], axis=-1)
            message = {key: log - log.max(axis=-1, keepdims=True) for key, log in new.items()}

    def values(self, nodes, tables, gate, n_iterations):
        """Return the value of each of `losses`, by kind, for problems as in `beliefs`."""
        beliefs, logs = self.beliefs(nodes, tables, gate, n_iterations)
        squared = entropy = linear = 0.0
        for v, (belief, log) in enumerate(zip(beliefs, logs, strict=True)):
            state, weight = self.observed[v], self.weight[v]
            right = np.arange(belief.shape[-1]) == state
            squared = squared + weight * 0.5 * ((belief - right) ** 2).sum(axis=-1)
            entropy = entropy - weight * log[..., state]
            linear = linear + belief @ self.slope[self.state_start[v] : self.state_start[v + 1]]
        return {
            gated_losses.SQUARED_ERROR: squared,
            gated_losses.CROSS_ENTROPY: entropy,
            gated_losses.LINEAR: linear,
        }

    def derivatives(self, n_iterations):
        """Compute central differences of the reference losses, by kind, with respect to nodes, tables and gates."""
        arguments = [self.nodes, self.tables, self.gate]
        found = {loss.kind: [] for loss in self.losses}
        for which, values in enumerate(arguments):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [*arguments]
                moved[which] = values + step * np.eye(len(values))
                ends.append(self.values(*moved, n_iterations))
            for kind, derivatives in found.items():
                difference = (ends[0][kind] - ends[1][kind]) / 2e-5
                derivatives.append(np.broadcast_to(difference, len(values)))  # one value if no loss depends on them
        return found


@st.composite
def problems(draw, cardinalities):
    n = draw(st.integers(1, 6))
    cardinality = [draw(cardinalities) for _ in range(n)]
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    pairs = draw(st.lists(ends, max_size=7)) if n > 1 else []
    return Problem(np.random.default_rng(draw(st.integers(0, 2**31))), cardinality, pairs)


def check_adjoint(problem, n_iterations, tolerances):
    """Compare beliefs, losses and derivatives with the reference, for each floating-point type with a tolerance."""
    given_arrays = problem.nodes, problem.tables, problem.gate
    values, derivatives = problem.values(*given_arrays, n_iterations), problem.derivatives(n_iterations)
    expected = np.concatenate(problem.beliefs(*given_arrays, n_iterations)[0])
    layout = problem.layout
    for real, tolerance in tolerances.items():
        np.testing.assert_allclose(propagate(layout, *given_arrays, n_iterations, real), expected, atol=tolerance)
        for loss in problem.losses:
            found = compute_loss_gradient(layout, *given_arrays, loss, n_iterations, real)
            assert found.value == pytest.approx(values[loss.kind], abs=tolerance)
            np.testing.assert_allclose(found.beliefs, expected, atol=tolerance)
            for name, derivative in zip(("nodes", "tables", "gate"), derivatives[loss.kind], strict=True):
                ours = getattr(found, name)
                assert ours.shape == derivative.shape
                np.testing.assert_allclose(ours, derivative, atol=max(tolerance, 2e-8), err_msg=name)


@settings(max_examples=25, deadline=None)
@given(problems(st.integers(1, 4)), st.integers(0, 4))
def test_nodes_of_mixed_cardinalities(problem, n_iterations):
    check_adjoint(problem, n_iterations, {"float64": 1e-10})


@settings(max_examples=25, deadline=None)
@given(problems(st.just(2)), st.integers(0, 4))
def test_binary_nodes(problem, n_iterations):
    assert choose_arithmetic(problem.layout, problem.tables, problem.gate) == "binary float32"
    check_adjoint(problem, n_iterations, {"float64": 1e-10, "float32": 2e-5})


def examples(rng, n_examples, n=7):
    """Make many components, most of the same shape, and an isolated node; corresponding pairs share tables."""
    pairs = np.array([(i, j) for i in range(n) for j in range(i + 1, n)])
    ends, table_of = [], []
    for example in range(n_examples):
        example_pairs = pairs if example % 5 else pairs[rng.random(len(pairs)) < 0.7]
        ends.append(example_pairs + n * example)
        table_of.append(n * example_pairs[:, 0] + example_pairs[:, 1])
    problem = Problem(rng, np.full(n * n_examples + 1, 2), np.concatenate(ends))
    problem.table_of = np.concatenate(table_of).astype(np.int32)
    problem.table_start = 4 * np.arange(n * n + 1)
    problem.tables = rng.normal(size=4 * n * n)
    return problem


def assert_close(left, right, **tolerance):
    assert left.value == pytest.approx(right.value, rel=1e-5)
    for name in ("nodes", "tables", "gate", "beliefs"):
        np.testing.assert_allclose(getattr(left, name), getattr(right, name), err_msg=name, **tolerance)


@pytest.mark.parametrize("block", [1, 200, gated_layout.BLOCK_SIZE])
def test_binary_kernels_equal_the_general_ones(block, monkeypatch):
    monkeypatch.setattr(gated_layout, "BLOCK_SIZE", block)
    problem = examples(np.random.default_rng(0), 70)
    layout = problem.layout
    assert layout.slots.contiguous.any() and not layout.slots.contiguous.all()
    assert layout.slots.shared_table.any() and not layout.slots.shared_table.all()
    general = GatedLayout(
        layout.state_start, layout.table_start, layout.slots, layout.run_start, layout.table_range, is_binary=False
    )
    given_arrays = problem.nodes, problem.tables, problem.gate
    for loss in problem.losses:
        expected = compute_loss_gradient(general, *given_arrays, loss)
        assert_close(compute_loss_gradient(layout, *given_arrays, loss, precision="float64"), expected, atol=1e-12)
        assert_close(compute_loss_gradient(layout, *given_arrays, loss), expected, atol=2e-5)
    beliefs = propagate(layout, *given_arrays)
    assert beliefs.dtype == np.float32
    np.testing.assert_allclose(beliefs, propagate(general, *given_arrays), atol=1e-6)


@pytest.mark.parametrize("real", ["float32", "float64"])
@pytest.mark.parametrize("binary", [True, False])
def test_results_do_not_depend_on_number_of_threads(real, binary, monkeypatch):
    monkeypatch.setattr(threads, "MIN_PARALLEL_COST", 0)
    monkeypatch.setattr(gated_layout, "BLOCK_SIZE", 100)
    problem = examples(np.random.default_rng(1), 90)
    if not binary:
        problem.cardinality[-1] = 3
        problem.state_start[-1] += 1
        problem.nodes = np.append(problem.nodes, 0.3)
    layout, found = problem.layout, []
    assert layout.is_binary == binary and len(layout.run_start) > 4
    for n_threads in (1, 2, 3):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n_threads)
        found.append(
            compute_loss_gradient(
                layout, problem.nodes, problem.tables, problem.gate, problem.losses[0], precision=real
            )
        )
    for other in found[1:]:
        assert other.value == found[0].value
        for left, right in zip(other[1:], found[0][1:], strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("widest", [2, 4])
def test_forests_with_open_gates_are_exact(widest):
    rng = np.random.default_rng(2)
    cardinality = rng.integers(2, widest + 1, size=9)
    ends = [(rng.integers(v), v)[:: rng.choice([1, -1])] for v in range(1, 9) if v != 5]
    problem = Problem(rng, cardinality, ends)
    problem.gate[:] = 1.0
    scopes = Scopes(cardinality, 2 * np.arange(len(ends) + 1), problem.ends.ravel())
    factors = [problem.table(problem.tables, p).ravel() for p in range(len(ends))]
    exact = Enumeration(scopes).marginals(Potentials(problem.nodes, np.concatenate(factors)))
    found = propagate(problem.layout, problem.nodes, problem.tables, problem.gate, 8, "float64")
    np.testing.assert_allclose(found, exact.nodes, atol=1e-12)


@pytest.mark.parametrize("cardinality", [2, 3])
def test_closed_gates_leave_nodes_independent(cardinality):
    problem = Problem(np.random.default_rng(3), [cardinality] * 5, [(0, 1), (1, 2), (2, 0), (3, 1)], scale=3.0)
    problem.gate[:] = 0.0
    for real in ("float32", "float64"):
        found = compute_loss_gradient(
            problem.layout, problem.nodes, problem.tables, problem.gate, problem.losses[0], precision=real
        )
        alone = softmax(problem.nodes.reshape(5, cardinality), axis=1).ravel()
        np.testing.assert_allclose(found.beliefs, alone, atol=1e-6)
        assert not found.tables.any() and found.gate.any()
    np.testing.assert_allclose(found.gate, problem.derivatives(3)[gated_losses.SQUARED_ERROR][2], atol=1e-8)


@pytest.mark.parametrize("block", [1, 300, gated_layout.BLOCK_SIZE])
@pytest.mark.parametrize("equal_gates", [True, False])
@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_linear_kernels_equal_the_logarithmic_ones(block, equal_gates, scale, monkeypatch):
    monkeypatch.setattr(gated_layout, "BLOCK_SIZE", block)
    rng, n = np.random.default_rng(7), 60
    cardinality = rng.choice([1, 2, 3, 5], size=n, p=[0.1, 0.2, 0.3, 0.4])
    ends = [(v, w) for v, w in rng.integers(n, size=(400, 2)) if v != w and v // 40 == w // 40]
    problem = Problem(rng, cardinality, ends, scale=scale)
    if equal_gates:
        problem.gate[:] = 0.7
    problem.nodes *= 30.0
    problem.nodes[problem.state_start[np.flatnonzero(cardinality > 1)[::4]]] = -np.inf
    given_arrays, layout = (problem.nodes, problem.tables, problem.gate), problem.layout
    groups = layout.groups
    assert groups.shared_table.any() and not groups.shared_table.all() and groups.n_pairs.min() < gated_linear.LANES
    assert len(np.unique(groups.pair)) == layout.n_pairs == groups.n_pairs.sum()
    monkeypatch.setattr(gated_linear, "MAX_RANGE", 500.0)
    assert choose_arithmetic(layout, *given_arrays[1:]) == "linear float64"
    found = [compute_loss_gradient(layout, *given_arrays, loss, precision="float64") for loss in problem.losses]
    beliefs = propagate(layout, *given_arrays, precision="float64")
    monkeypatch.setattr(gated_linear, "MAX_RANGE", 0.0)
    assert choose_arithmetic(layout, *given_arrays[1:]) == "tables float64"
    for loss, ours in zip(problem.losses, found, strict=True):
        expected = compute_loss_gradient(layout, *given_arrays, loss, precision="float64")
        assert_close(ours, expected, rtol=1e-9, atol=1e-9 * scale)
        np.testing.assert_array_equal(ours.beliefs, beliefs)


@pytest.mark.parametrize(("factor", "name"), [(0.999, "linear float64"), (1.001, "tables float64")])
def test_tables_at_the_limit_of_linear_messages(factor, name):
    problem = Problem(np.random.default_rng(8), [3] * 4, [(v, w) for v in range(4) for w in range(v)], shared=False)
    problem.tables *= factor * gated_linear.MAX_RANGE / np.ptp(problem.tables) / np.abs(problem.gate).max()
    assert choose_arithmetic(problem.layout, problem.tables, problem.gate) == name
    for n_iterations in range(5):
        check_adjoint(problem, n_iterations, {"float64": 1e-6})


def test_each_arithmetic_is_accurate_in_its_range():
    problem = Problem(np.random.default_rng(4), [2] * 4, [(v, w) for v in range(4) for w in range(v)], shared=False)
    t = problem.tables.reshape(-1, 2, 2)
    width = max(np.abs(t[:, 0] - t[:, 1]).max(), np.abs(t[:, :, 0] - t[:, :, 1]).max()) * np.abs(problem.gate).max()
    layout, own = problem.layout, problem.tables
    for limit, inside, real, beyond in (
        (MAX_RANGE32, "binary float32", "float32", "binary float64"),
        (MAX_RANGE64, "binary float64", "float64", "tables float64"),
    ):
        for scale, name in ((0.999 * limit / width, inside), (1.001 * limit / width, beyond)):
            problem.tables = scale * own
            assert choose_arithmetic(layout, problem.tables, problem.gate, real) == name
            given_arrays = problem.nodes, problem.tables, problem.gate
            expected = np.concatenate(problem.beliefs(*given_arrays, 3)[0])
            tolerance = 5e-5 if name == "binary float32" else 1e-10
            derivatives = problem.derivatives(3)
            for loss in problem.losses:
                found = compute_loss_gradient(layout, *given_arrays, loss, precision=real)
                np.testing.assert_allclose(found.beliefs, expected, atol=tolerance)
                for derivative, differences in zip(found[1:4], derivatives[loss.kind], strict=True):
                    size = 1.0 + np.abs(differences).max()
                    np.testing.assert_allclose(
                        derivative, differences, atol=(2e-4 if tolerance > 1e-6 else 1e-6) * size
                    )


@pytest.mark.parametrize("cardinality", [2, 3])
@pytest.mark.parametrize("scale", [1e3, 1e8])
def test_huge_tables_and_impossible_states(cardinality, scale):
    rng = np.random.default_rng(5)
    problem = Problem(rng, [cardinality] * 6, [(v, w) for v in range(6) for w in range(v)], scale=scale)
    problem.nodes *= scale
    problem.nodes[0] = problem.nodes[cardinality + 1] = -np.inf
    for loss in problem.losses:
        found = compute_loss_gradient(problem.layout, problem.nodes, problem.tables, problem.gate, loss)
        for numbers in found[1:]:
            assert np.isfinite(numbers).all()
        assert not np.isnan(found.value)
        assert found.beliefs[0] == found.beliefs[cardinality + 1] == 0.0
    problem.tables /= 10 * scale
    expected = np.concatenate(problem.beliefs(problem.nodes, problem.tables, problem.gate, 3)[0])
    for real, tolerance in (("float32", 1e-6), ("float64", 1e-12)):
        found = propagate(problem.layout, problem.nodes, problem.tables, problem.gate, 3, real)
        np.testing.assert_allclose(found, expected, atol=tolerance)


def test_empty_network():
    layout = build_layout(np.zeros(1), np.empty((0, 2)), np.empty(0, dtype=np.int32), np.zeros(1))
    found = compute_loss_gradient(layout, *(np.empty(0),) * 3, gated_losses.linear_loss(np.empty(0)))
    assert found.value == 0.0 and all(len(numbers) == 0 for numbers in found[1:])


INVALID_ARGUMENTS = {
    "connects a node with itself": lambda p: p.ends.__setitem__((0, 1), p.ends[0, 0]),
    "a missing node": lambda p: p.ends.__setitem__((0, 1), 9),
    "a missing table": lambda p: p.table_of.__setitem__(0, 9),
    "the cardinalities of its pair": lambda p: p.state_start.__setitem__(slice(1, None), p.state_start[1:] + 1),
    "no state": lambda p: p.state_start.__setitem__(1, 0),
    "not finite": lambda p: p.tables.__setitem__(0, -np.inf),
    "a gate": lambda p: p.gate.__setitem__(0, np.nan),
    "inf or nan": lambda p: p.nodes.__setitem__(0, np.inf),
    "no possible state": lambda p: p.nodes.__setitem__(slice(0, 2), -np.inf),
    "not a state of its node": lambda p: (p.observed.__setitem__(0, 2), p.weight.__setitem__(0, 1.0)),
    "tables or gates do not fit": lambda p: setattr(p, "gate", p.gate[1:]),
    "nodes do not fit": lambda p: setattr(p, "nodes", p.nodes[1:]),
    "weights do not fit": lambda p: (setattr(p, "observed", p.observed[1:]), setattr(p, "weight", p.weight[1:])),
}


@pytest.mark.parametrize("message", INVALID_ARGUMENTS)
def test_invalid_arguments_are_rejected(message):
    problem = Problem(np.random.default_rng(6), [2, 2, 2], [(0, 1), (1, 2)])
    INVALID_ARGUMENTS[message](problem)
    with pytest.raises(ValueError, match=message):
        compute_loss_gradient(problem.layout, problem.nodes, problem.tables, problem.gate, problem.losses[0])


def test_mismatched_slopes_are_rejected():
    problem = Problem(np.random.default_rng(6), [2, 2, 2], [(0, 1), (1, 2)])
    with pytest.raises(ValueError, match="slopes"):
        compute_loss_gradient(
            problem.layout, problem.nodes, problem.tables, problem.gate, gated_losses.linear_loss(np.ones(5))
        )


def test_gradient_equals_pytorch_autograd():
    torch = pytest.importorskip("torch")
    problem = examples(np.random.default_rng(7), 20)
    arguments = [torch.tensor(values, requires_grad=True) for values in (problem.nodes, problem.tables, problem.gate)]
    nodes, tables, gate = arguments
    first, second = torch.tensor(problem.ends.T.astype(np.int64))
    own = nodes.reshape(-1, 2)
    log = gate[:, None, None] * tables.reshape(-1, 2, 2)[torch.tensor(problem.table_of.astype(np.int64))]
    to_first = to_second = torch.zeros(len(gate), 2, dtype=torch.float64)
    total = own
    for _ in range(3):
        new = torch.logsumexp(log + (total[first] - to_first)[:, :, None], dim=1)
        to_first = torch.logsumexp(log + (total[second] - to_second)[:, None, :], dim=2)
        to_second = new
        total = own.index_add(0, first, to_first).index_add(0, second, to_second)
    belief = torch.softmax(total, dim=1)[torch.arange(len(own)), torch.tensor(problem.observed.astype(np.int64))]
    loss = (torch.tensor(problem.weight) * (1.0 - belief) ** 2).sum()
    loss.backward()
    found = compute_loss_gradient(
        problem.layout, problem.nodes, problem.tables, problem.gate, problem.losses[0], precision="float64"
    )
    assert found.value == pytest.approx(loss.item(), rel=1e-12)
    for ours, theirs in zip(found[1:4], arguments, strict=True):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), atol=1e-12)
