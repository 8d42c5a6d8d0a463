"""Models of pairs compared with an independent implementation that fits each pair of variables separately."""

import itertools

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

import relcrf
from relcrf import api
from relcrf.structure.pair_unaries import pairs_contain_unaries
from relcrf.training import Training

MODEL = """
domain Sensor = open
entity Moment {{ known : vector }}
predict relation reading(m: Moment, s: Sensor) : 0..2

template level(m: Moment, s: Sensor)
    over reading(m, s)
    per  s
    by   1, m.known

template pair(m: Moment, s: Sensor, t: Sensor)
    where s < t
    over  reading(m, s), reading(m, t)
    per   s, t
    by    {features}
"""
SENSORS = ("p", "q", "r", "s", "t")
STATES = 3
L2 = 1.0


def sensor_tables(rows, seed, names=SENSORS):
    """Return readings that copy one of the two previous sensors or depend on a known value."""
    rng = np.random.default_rng(seed)
    known = rng.normal(size=(rows, 1))
    readings = np.zeros((rows, len(SENSORS)), dtype=int)
    for k in range(len(SENSORS)):
        slope = 1.5 * (-1) ** k * k / len(SENSORS)
        own = np.clip(np.round(1 + slope * known[:, 0] + rng.normal(size=rows)), 0, STATES - 1)
        copied = readings[np.arange(rows), np.maximum(k - rng.integers(1, 3, size=rows), 0)]
        readings[:, k] = np.where((rng.random(rows) < 0.7) & (k > 0), copied, own)
    moment = pd.DataFrame({"id": np.arange(rows), "known": list(known)})
    cells = [{"m": m, "s": name, "value": int(readings[m, SENSORS.index(name)])} for m in range(rows) for name in names]
    return {"moment": moment, "reading": pd.DataFrame(cells)}, known, readings


def fit_pair(known, first, second, unaries):
    """Return a function from rows of known values to tables of a pair, shape (n, STATES, STATES), by equation (9).

    The pair has features (1, known) without `unaries`, and the feature 1 with them; each end then has the features (1,
    known) with weights that belong to this pair.
    """
    features = np.column_stack((np.ones(len(known)), known))
    shapes = [(1, STATES, STATES), (2, STATES), (2, STATES)] if unaries else [(2, STATES, STATES)]
    sizes = [int(np.prod(shape)) for shape in shapes]

    def scores(point, features):
        parts = [
            part.reshape(shape) for part, shape in zip(np.split(point, np.cumsum(sizes)[:-1]), shapes, strict=True)
        ]
        table = np.einsum("nd,dij->nij", features[:, : shapes[0][0]], parts[0])
        if unaries:
            table = table + (features @ parts[1])[:, :, None] + (features @ parts[2])[:, None, :]
        return table

    def loss(point):
        table = scores(point, features)
        log_partition = logsumexp(table, axis=(1, 2))
        residual = np.exp(table - log_partition[:, None, None])
        residual[np.arange(len(known)), first, second] -= 1.0
        gradients = [np.einsum("nd,nij->dij", features[:, : shapes[0][0]], residual)]
        if unaries:
            gradients += [features.T @ residual.sum(axis=2), features.T @ residual.sum(axis=1)]
        value = log_partition.sum() - table[np.arange(len(known)), first, second].sum() + 0.5 * L2 * point @ point
        return value, np.concatenate([g.ravel() for g in gradients]) + L2 * point

    options = {"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-8}
    point = minimize(loss, np.zeros(sum(sizes)), jac=True, method="L-BFGS-B", options=options).x
    return lambda rows: scores(point, np.column_stack((np.ones(len(rows)), rows)))


def spanning_trees(known, readings, queried, unaries):
    """Return the set of edges of the tree of each queried row, computed pair by pair."""
    information = {}
    for i, j in itertools.combinations(range(len(SENSORS)), 2):
        table = fit_pair(known, readings[:, i], readings[:, j], unaries)(queried)
        p = np.exp(table - logsumexp(table, axis=(1, 2), keepdims=True))
        independent = p.sum(axis=2, keepdims=True) * p.sum(axis=1, keepdims=True)
        information[i, j] = (p * np.log(p / independent)).sum(axis=(1, 2))
    trees = []
    for row in range(len(queried)):
        graph = nx.Graph()
        graph.add_weighted_edges_from((i, j, values[row]) for (i, j), values in information.items())
        trees.append({tuple(sorted(edge)) for edge in nx.maximum_spanning_tree(graph).edges})
    return trees


@pytest.mark.parametrize(("unaries", "features"), [("none", "1, m.known"), ("own", "1")])
def test_structures_equal_those_of_pairs_that_are_fitted_separately(unaries, features, tmp_path):
    """The test data have other rows, and list the sensors in another order, so that keys have other numbers."""
    tables, known, readings = sensor_tables(400, seed=0)
    model = relcrf.parse(MODEL.format(features=features))
    options = {"structure_unaries": unaries, "edges": "tree", "l2": L2, "tolerance": 1e-8, "max_iterations": 1000}
    api.fit(model, model.ground(relcrf.Dataset(tables)), "ess", **options).save(tmp_path / "run")
    fit = api.load_fit(tmp_path / "run")
    names = ("t", "q", "p", "s", "r")
    new_tables, queried, _ = sensor_tables(200, seed=1, names=names)
    grounding = fit.ground(relcrf.Dataset(new_tables))
    prediction = api.predict(fit, grounding, hidden=np.ones(grounding.graph.n_variables, dtype=bool))
    found = [set() for _ in range(len(queried))]
    for a, b in prediction.inferred.edges:
        (row, first), (other_row, second) = (cell(grounding, variable) for variable in (a, b))
        assert row == other_row
        found[row].add(tuple(sorted((first, second))))
    wanted = spanning_trees(known, readings, queried, unaries == "own")
    assert len({frozenset(tree) for tree in wanted}) >= 3  # the structure depends on the evidence
    assert np.mean([a == b for a, b in zip(found, wanted, strict=True)]) >= 0.99


def cell(grounding, variable):
    """Return the row and the position in `SENSORS` of a variable."""
    name = grounding.variable_name(int(variable))
    row, sensor = name[name.index("(") + 1 : name.index(")")].split(", ")
    return int(row), SENSORS.index(sensor)


@pytest.mark.parametrize(
    ("model", "is_contained"),
    [
        (MODEL.format(features="1, m.known"), True),
        (MODEL.format(features="m.known, 1"), True),
        (MODEL.format(features="1"), False),
        (MODEL.format(features="1, m.known").replace("    per   s, t\n", ""), False),
        (
            MODEL.format(features="1, m.known").replace(
                "over  reading(m, s), reading(m, t)", "over reading(m, s) == reading(m, t)"
            ),
            False,
        ),
    ],
)
def test_whether_pairs_contain_their_unary_features(model, is_contained):
    tables, *_ = sensor_tables(20, seed=0)
    parsed = relcrf.parse(model)
    training = Training.build(parsed.spec, parsed.ground(relcrf.Dataset(tables)), "ess")
    assert pairs_contain_unaries(training.problem.reduced_graph("ess")) == is_contained
    assert training.run().chosen_settings["structure_unaries"] == ("none" if is_contained else "shared")


def test_own_unaries_need_keys_that_the_pair_determines():
    tables, *_ = sensor_tables(20, seed=0)
    model = relcrf.parse(MODEL.format(features="1").replace("    per   s, t\n", ""))
    with pytest.raises(relcrf.UsageError, match="must determine the key of 'level'"):
        api.fit(model, model.ground(relcrf.Dataset(tables)), "ess", structure_unaries="own")
