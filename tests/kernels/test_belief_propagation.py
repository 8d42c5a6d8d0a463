"""Kernels of belief propagation, compared with a NumPy reference that updates the same messages one by one, in logs."""

import numpy as np
import pytest
from networks import hard, network

from relcrf.graph.scopes import Potentials
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.kernels import pair_flooding


def log_sum_exp(terms, axis=None):
    """Return the logarithm of the sum of the exponentials of some terms, which may be -inf."""
    largest = np.max(terms, axis=axis, keepdims=True)
    largest = np.where(largest > -np.inf, largest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.sum(np.exp(terms - largest), axis=axis)) + np.squeeze(largest, axis=axis)


class ReferencePropagation:
    """Belief propagation over tables of any arity, by definition; agreements are expanded to tables."""

    def __init__(self, scopes, potentials, maximum=False, damping=0.0):
        full, whole = scopes.expand_agreements(potentials)
        self.scopes, self.damping = full, damping
        self.reduce = np.max if maximum else log_sum_exp
        self.nodes = np.split(whole.nodes, full.state_start[1:-1]) if full.n_nodes else []
        self.scope = [full.node[a:b] for a, b in zip(full.start[:-1], full.start[1:], strict=True)]
        tables = np.split(whole.factors, full.table_start[1:-1]) if self.scope else []
        self.tables = [t.reshape(full.cardinality[s]) for t, s in zip(tables, self.scope, strict=True)]
        self.message = {(f, v): np.zeros(full.cardinality[v]) for f, s in enumerate(self.scope) for v in s}
        self.factors = [[f for f, s in enumerate(self.scope) if v in s] for v in range(full.n_nodes)]

    def product(self, v, without=-1):
        return sum((self.message[f, v] for f in self.factors[v] if f != without), self.nodes[v])

    def joint(self, f, without=-1):
        """Return a factor's log table plus the cavities of its nodes, except node `without`."""
        table = self.tables[f].copy()
        for axis, v in enumerate(self.scope[f]):
            if v != without:
                shape = [1] * table.ndim
                shape[axis] = -1
                table += self.product(v, f).reshape(shape)
        return table

    def new_message(self, f, v):
        axes = tuple(a for a, w in enumerate(self.scope[f]) if w != v)
        message = self.reduce(self.joint(f, v), axis=axes)
        message = message - message.max()
        if not self.damping:
            return message
        old = self.message[f, v]
        both = np.isfinite(message) & np.isfinite(old)
        return np.where(both, self.damping * np.where(both, old, 0.0) + (1 - self.damping) * message, message)

    def flood(self):
        self.message = {(f, v): self.new_message(f, v) for f, v in self.message}

    def sweep(self, backwards):
        for v in range(self.scopes.n_nodes)[:: -1 if backwards else 1]:
            for f, scope in enumerate(self.scope):
                for w in scope:
                    if v in scope and w != v:
                        self.message[f, w] = self.new_message(f, w)

    def send_by_residual(self):
        def change(key):
            new_message, old = self.new_message(*key), self.message[key]
            both = (new_message == -np.inf) & (old == -np.inf)
            return np.max(np.abs(np.where(both, 0.0, new_message - np.where(both, 0.0, old))))

        key = max(self.message, key=change)
        self.message[key] = self.new_message(*key)

    def beliefs(self):
        """Return flat distributions of nodes and factors, and minus the Bethe free energy."""
        nodes = [self.product(v) for v in range(self.scopes.n_nodes)]
        factors = [self.joint(f).ravel() for f in range(len(self.scope))]
        degree = np.bincount(self.scopes.node, minlength=self.scopes.n_nodes)
        value = sum(map(log_sum_exp, factors)) + sum(
            (1 - d) * log_sum_exp(b) for d, b in zip(degree, nodes, strict=True)
        )
        normal = [
            np.concatenate([np.exp(b - log_sum_exp(b)) for b in part] or [np.empty(0)]) for part in (nodes, factors)
        ]
        return *normal, value


def mixed_network(rng, scale=1.0):
    """Make a network with every kind of factor.

    It has pairs of two shapes in both orders, agreements of two and three nodes, triples, a node with one state, and an
    isolated node.
    """
    sizes = [2, 3, 3, 3, 2, 1, 4]
    scopes = [(0, 1), (1, 0), (1, 2), (2, 3), (3, 1), (1, 2, 3), (0, 4, 1), (4, 5), (0, 4), (3, 1, 5)]
    return network(rng, sizes, scopes, scale, agreement=[a in (3, 4, 5, 8) for a in range(len(scopes))])


def constrained_network(rng):
    """Make the mixed network with some impossible cells."""
    scopes, potentials = mixed_network(rng)
    factors = potentials.factors.copy()
    for f in (0, 2, 6):
        factors[scopes.table_start[f] + rng.integers(6)] = -np.inf
    return scopes, Potentials(potentials.nodes, factors)


KINDS = {
    "numbers": mixed_network,
    "logs": lambda rng: mixed_network(rng, 150.0),
    "hard": constrained_network,
    "pairs": lambda rng: hard(rng, network(rng, [3, 2, 3], [(0, 1), (2, 1), (2, 0)]), 0.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", ["flooding", "sequential", "residual"])
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_rounds_match_reference(kind, schedule, damping):
    for seed in range(4):
        scopes, potentials = KINDS[kind](np.random.default_rng(seed))
        reference = ReferencePropagation(scopes, potentials, damping=damping)
        for k in range(3):
            if schedule == "flooding":
                reference.flood()
            elif schedule == "sequential":
                reference.sweep(k % 2 == 1)
            else:
                for _ in scopes.node:
                    reference.send_by_residual()
        method = BeliefPropagation(scopes, schedule=schedule, damping=damping, max_iterations=3, tolerance=0.0)
        actual = method.marginals(potentials)
        nodes, factors, value = reference.beliefs()
        np.testing.assert_allclose(actual.nodes, nodes, atol=1e-9)
        np.testing.assert_allclose(actual.factors, scopes.collapse_agreements(factors), atol=1e-9)
        assert actual.log_partition == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", ["flooding", "sequential"])
def test_max_marginals_match_reference(kind, schedule):
    """Compare max-marginals, up to normalisation."""
    for seed in range(4):
        scopes, potentials = KINDS[kind](np.random.default_rng(seed))
        reference = ReferencePropagation(scopes, potentials, maximum=True)
        for k in range(3):
            reference.flood() if schedule == "flooding" else reference.sweep(k % 2 == 1)
        method = BeliefPropagation(scopes, schedule=schedule, max_iterations=3, tolerance=0.0)
        state = method._propagate(potentials, None, maximum=True).state
        expected = np.concatenate([reference.product(v) for v in range(scopes.n_nodes)])
        actual = np.where(state.n_impossible > 0, -np.inf, state.product)
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("agreement", [False, True])
@pytest.mark.parametrize("reweighted", [False, True])
@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 2), (3, 4), (5, 5)])
@pytest.mark.parametrize("shares_table", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_lanes(in_place, shares_table, first, second, reweighted, agreement, maximum):
    """Test a round of flooding on two blocks of pairs with shared nodes, with a table per pair or the same block of tables."""
    if agreement:
        second = first
    rng = np.random.default_rng(0)
    width, n_blocks, n_states, damping = first + second, 2, 40, 0.2
    n_cells = 2 if agreement else first * second
    tables = rng.random((1 if shares_table else n_blocks, n_cells, pair_flooding.LANES))
    ends = rng.integers(n_states - 5, size=(n_blocks, 2, pair_flooding.LANES), dtype=np.int32)
    message, product, next_product = (
        rng.random((n_blocks, width, pair_flooding.LANES)),
        rng.random(n_states),
        rng.random(n_states),
    )
    old, actual = message.copy(), (product if in_place else next_product).copy()
    appearance = rng.uniform(0.1, 1.0, size=(n_blocks if reweighted else 0, pair_flooding.LANES))
    shape, read = (first, second, agreement), actual if in_place else product
    max_ratio = pair_flooding.flood(*shape, maximum, damping, appearance, tables, ends, message, read, actual, in_place)
    expected, change = (product if in_place else next_product).copy(), 1.0
    for block in range(n_blocks):
        product = expected.copy() if in_place else product
        i, j = (ends[block, side] + np.arange(k)[:, None] for side, k in enumerate((first, second)))
        m = np.split(old[block], [first])
        table = tables[min(block, len(tables) - 1)]  # one column for each lane
        same = np.eye(first, dtype=bool)[:, :, None]
        table = np.where(same, *table) if agreement else table.reshape(first, second, -1)
        to_first = table * (product[j] / m[1])
        to_second = table.swapaxes(0, 1) * (product[i] / m[0])
        for states, old_message, terms, rows in (
            (i, m[0], to_first, slice(0, first)),
            (j, m[1], to_second, slice(first, None)),
        ):
            new_message = terms.max(axis=1) if maximum else terms.sum(axis=1)
            new_message = old_message**damping * (new_message / new_message.max(axis=0)) ** (1 - damping)
            np.testing.assert_allclose(message[block, rows], new_message, rtol=1e-12)
            absorbed = new_message / old_message if in_place else new_message
            np.multiply.at(expected, states, absorbed ** appearance[block] if reweighted else absorbed)
            change = max(change, (new_message / old_message).max(), (old_message / new_message).max())
    np.testing.assert_allclose(actual, expected, rtol=1e-10)
    assert max_ratio == pytest.approx(change, rel=1e-12)


@pytest.mark.parametrize("agreement", [False, True])
@pytest.mark.parametrize("destination", ["none", "one", "separate"])
@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 2), (3, 4), (5, 5)])
def test_sums_of_beliefs(first, second, destination, agreement):
    """Compare the sums over 150 pairs, which fill one block and a part of another, with the definition."""
    if agreement:
        second = first
    rng = np.random.default_rng(0)
    n_pairs, n_states, n_cells = 150, 40, 1 if agreement else first * second
    tables = rng.random((1 if destination == "one" else 2, 2 if agreement else n_cells, pair_flooding.LANES))
    if destination == "one":
        tables[:] = tables[:, :, :1]
    ends = rng.integers(n_states - 5, size=(2, 2, pair_flooding.LANES), dtype=np.int32)
    message, product = rng.random((2, first + second, pair_flooding.LANES)), 1e-200 * rng.random(n_states)
    start = np.arange({"none": 0, "one": 1, "separate": n_pairs}[destination]) * n_cells + 3
    actual = rng.random(3 + n_pairs * n_cells)
    expected, log_partition = actual.copy(), 0.0
    found = pair_flooding.sum_beliefs(first, second, agreement, tables, ends, n_pairs, start, message, product, actual)
    for pair in range(n_pairs):
        block, lane = divmod(pair, pair_flooding.LANES)
        to_first, to_second = np.split(message[block, :, lane], [first])
        one = 1e200 * product[ends[block, 0, lane] + np.arange(first)] / to_first
        other = 1e200 * product[ends[block, 1, lane] + np.arange(second)] / to_second
        table = tables[min(block, len(tables) - 1), :, lane]
        joint = (np.where(np.eye(first), *table) if agreement else table.reshape(first, second)) * np.outer(one, other)
        log_partition += np.log(joint.sum()) - 2.0 * np.log(1e200)
        belief = np.trace(joint) if agreement else joint.ravel()
        if len(start):
            cell = start[min(pair, len(start) - 1)]
            expected[cell : cell + n_cells] += belief / joint.sum()
    assert found == pytest.approx(log_partition, rel=1e-12)
    np.testing.assert_allclose(actual, expected, rtol=1e-11)
