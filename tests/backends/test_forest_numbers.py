"""Forests of numbers learned by `ess`, compared with plain implementations in NumPy, SciPy and networkx."""

import networkx as nx
import numpy as np
import pytest
from gaussians import predict_by_enumeration
from houses import DECLARATIONS, MIXED, NEAR_PRICES, houses
from interrupted import assert_goes_on
from scipy.optimize import minimize
from scipy.stats import norm

import relcrf
from relcrf import api
from relcrf.backends import numeric_targets
from relcrf.backends.number_model import NumberModel
from relcrf.errors import UsageError
from relcrf.learning import number_fit

ITEMS = """
entity Item {
    predict y : real
    x : real
}
relation Link(a: Item, b: Item) { far : real }
template level(i: Item) over i.y by 1, i.x l2 1e-9
template link(a: Item, b: Item) where Link(a, b) over a.y, b.y by 1, Link(a, b).far l2 1e-9
"""


def items(n=12, n_links=20, seed=0, known=1.0):
    """Return the tables of linked numbers; links of a small distance, within groups of three, have a large correlation."""
    rng = np.random.default_rng(seed)
    x, near = rng.normal(size=n), [(a, b) for a in range(n) for b in range(a // 3 * 3, a)]
    common = rng.normal(size=n // 3 + 1)[np.arange(n) // 3]
    y = np.where(rng.random(n) < known, 1.0 + x + common + rng.normal(size=n), np.nan)
    others = rng.permutation([(a, b) for a in range(n) for b in range(a // 3 * 3)])[: n_links - len(near)]
    pairs = np.array([*near, *others])
    far = 0.3 * rng.random(n_links) + 0.7 * (np.arange(n_links) >= len(near))
    return {
        "item": {"id": range(n), "y": [None if np.isnan(value) else value for value in y], "x": x},
        "link": {"a": pairs[:, 0], "b": pairs[:, 1], "far": far},
    }


@pytest.fixture
def unpenalised(monkeypatch):
    monkeypatch.setattr(number_fit, "PRIOR_OBSERVATIONS", 0.0)
    monkeypatch.setattr(numeric_targets, "VALUE_TOLERANCE", 0.0)


def pair_correlations(tables):
    """Return the correlations of links that maximise the product of the densities of links, given the single numbers."""
    y, x = np.array(tables["item"]["y"], dtype=float), np.asarray(tables["item"]["x"])
    a, b, far = (np.asarray(tables["link"][name]) for name in ("a", "b", "far"))

    def correlation(point):
        difference, total = np.exp(point[0] + point[1] * far), np.exp(point[2] + point[3] * far)
        return (difference - total) / (1.0 + difference + total)

    def loss(point):
        u = (y - point[4] - point[5] * x) * np.exp(-point[6])
        r = correlation(point)
        squares = (u[a] ** 2 - 2.0 * r * u[a] * u[b] + u[b] ** 2) / (1.0 - r**2)
        return (0.5 * squares + 0.5 * np.log(1.0 - r**2) + 2.0 * point[6]).sum()

    return correlation(minimize(loss, [-2.0, 0.0, -2.0, 0.0, 0.0, 0.0, 0.0], tol=1e-10).x)


def test_structure_maximises_the_product_of_the_densities_of_links(unpenalised):
    tables = items(60, 100)
    fit = relcrf.parse(ITEMS).fit(relcrf.Dataset(tables), "ess", tolerance=1e-8, max_iterations=2_000)
    grounding = fit.ground(relcrf.Dataset(tables))
    rule = NumberModel.from_vectors(fit.learned.vectors_for(grounding)).forest
    graph = relcrf.graph.numeric_graph.numeric_graph(
        relcrf.backends.problems.numeric_targets(grounding), grounding.states
    )
    expected = pair_correlations(tables)
    ends = np.sort(np.stack((tables["link"]["a"], tables["link"]["b"]), axis=1), axis=1)
    order = {tuple(pair): r for pair, r in zip(ends.tolist(), expected.tolist(), strict=True)}
    found = dict(zip(map(tuple, graph.links[0].tolist()), rule.weights.correlations(graph).correlation, strict=True))
    assert found == pytest.approx(order, abs=1e-3)
    network = nx.Graph()
    network.add_weighted_edges_from((a, b, r * r) for (a, b), r in order.items())
    tree = {tuple(sorted(edge)) for edge in nx.maximum_spanning_tree(network).edges}
    selected = rule.select(graph, np.zeros(60, dtype=bool))
    assert set(map(tuple, selected.links[0].tolist())) == tree
    assert fit.summary["numeric_links"] == 100 and fit.summary["numeric_forest_links"] == len(tree)


def test_weights_maximise_the_likelihood_on_the_forest(unpenalised):
    tables = items(60, 200, known=0.8)
    fit = relcrf.parse(ITEMS).fit(relcrf.Dataset(tables), "ess", tolerance=1e-8, max_iterations=2_000)
    grounding = fit.ground(relcrf.Dataset(tables))
    model = NumberModel.from_vectors(fit.learned.vectors_for(grounding))
    graph = relcrf.graph.numeric_graph.numeric_graph(
        relcrf.backends.problems.numeric_targets(grounding), grounding.states
    )
    y = grounding.numbers
    labelled = graph.select(~np.isnan(y))
    y = y[~np.isnan(y)]
    x = np.asarray(tables["item"]["x"])[labelled.variables]
    forest = model.forest.select(labelled, np.zeros(len(y), dtype=bool))
    far = {
        frozenset(e): f for *e, f in zip(tables["link"]["a"], tables["link"]["b"], tables["link"]["far"], strict=True)
    }
    ends = forest.links[0]
    distance = np.array([far[frozenset(labelled.variables[pair].tolist())] for pair in ends])

    def correlation(point):
        difference, total = np.exp(point[0] + point[1] * distance), np.exp(point[2] + point[3] * distance)
        return (difference - total) / (1.0 + difference + total)

    def loss(point):
        """The density of Chow & Liu."""
        u = (y - point[4] - point[5] * x) * np.exp(-point[6])
        r, a, b = correlation(point), *u[ends.T]
        squares = (a**2 - 2.0 * r * a * b + b**2) / (1.0 - r**2) - a**2 - b**2
        return 0.5 * (squares + np.log(1.0 - r**2)).sum() + (0.5 * u**2 + point[6]).sum()

    best = minimize(loss, [-2.0, 0.0, -2.0, 0.0, 0.0, 1.0, 0.0], tol=1e-10)
    found = model.weights
    np.testing.assert_allclose(found.mean(labelled), best.x[4] + best.x[5] * x, atol=2e-3)
    np.testing.assert_allclose(found.log_precision(labelled), -2.0 * best.x[6], atol=5e-3)
    np.testing.assert_allclose(found.correlations(forest).correlation, correlation(best.x), atol=5e-3)


def grid(n_side, seed, strength):
    """Return a model and the tables of a grid in which each number is close to the mean of its neighbours."""
    n, rng = n_side**2, np.random.default_rng(seed)
    cell = np.arange(n).reshape(n_side, n_side)
    first = np.concatenate((cell[:, :-1].ravel(), cell[:-1].ravel()))
    second = np.concatenate((cell[:, 1:].ravel(), cell[1:].ravel()))
    precision = np.eye(n)
    for a, b in zip(first, second, strict=True):
        precision[[a, b], [a, b]] += strength
        precision[[a, b], [b, a]] -= strength
    y = np.linalg.solve(np.linalg.cholesky(precision).T, rng.normal(size=n))
    item = {"id": range(n), "y": y.tolist(), "x": rng.normal(size=n)}
    return {"item": item, "link": {"a": first, "b": second, "far": np.zeros(len(first))}}


def mean_log_density(fit, tables, hidden):
    grounding = fit.ground(relcrf.Dataset(tables))
    prediction = api.predict(fit, grounding, hidden=hidden)
    return norm.logpdf(grounding.numbers[hidden], prediction.means(), prediction.deviations()).mean()


def test_links_to_known_numbers_are_chosen_by_the_density_of_labels():
    """On a grid, all links to known numbers are better. On cliques, their dependence makes them worse than a tree."""
    cliques, rng = items(900, 10, seed=3), np.random.default_rng(4)
    cells = [(a, b) for a in range(900) for b in range(a // 15 * 15, a)]
    level = rng.normal(size=60)[np.arange(900) // 15]
    cliques["item"]["y"] = (1.5 * level + rng.normal(size=900)).tolist()
    cliques["link"] = {"a": [a for a, _ in cells], "b": [b for _, b in cells], "far": [0.0] * len(cells)}
    for tables, expected in ((grid(40, 0, 8.0), "all"), (cliques, "tree")):
        hidden = np.random.default_rng(1).random(len(tables["item"]["y"])) < 0.5
        model = relcrf.parse(ITEMS)
        grounding = model.ground(relcrf.Dataset(tables))
        fits = {
            edges: api.fit(model, grounding, "ess", hidden=hidden, edges=edges) for edges in ("auto", "tree", "all")
        }
        densities = {edges: mean_log_density(fit, tables, hidden) for edges, fit in fits.items()}
        summary = fits["auto"].summary
        assert summary["numeric_edges"] == expected and fits["all"].summary["numeric_edges"] == "all"
        assert densities["auto"] == densities[expected] == max(densities.values())
        compared = {edges: summary[f"numeric_log_density_{edges}"] for edges in ("tree", "all")}
        assert max(compared, key=compared.get) == expected and "numeric_log_density_all" not in fits["tree"].summary


def test_settings():
    model, data = relcrf.parse(ITEMS), relcrf.Dataset(items(60, 200))
    n_links = [
        model.fit(data, "ess", min_information=limit).summary["numeric_forest_links"] for limit in (0.0, 0.15, 9.0)
    ]
    assert n_links[0] > n_links[1] >= n_links[2] == 0
    pairs = model.fit(data, "ess", weights="pairs")
    stages = {row["stage"] for row in pairs.learned.log}
    assert stages == {"single numbers", "number structure"}
    graph = pairs.ground(data)
    vectors = pairs.learned.vectors_for(graph)
    np.testing.assert_array_equal(vectors["weights"], vectors["structure"])
    for setting, value in (("treewidth", 2), ("observed_edges", "tree"), ("trees", 2), ("unlabelled", "marginal")):
        with pytest.raises(UsageError) as error:
            model.fit(data, "ess", **{setting: value})
        assert error.value.diagnostics[0].code == "E305" and setting in error.value.diagnostics[0].message


def test_numbers_without_links_between_labels():
    """Weights of links that no two labels have remain at their initial values, without a correlation."""
    tables = items(60, 200)
    known = [k for k in range(60) if k not in set(map(int, tables["link"]["a"]))]
    tables["item"]["y"] = [y if k in known else None for k, y in enumerate(tables["item"]["y"])]
    fit, other = (relcrf.parse(ITEMS).fit(relcrf.Dataset(tables), backend) for backend in ("ess", "local"))
    found, expected = (one.predict(relcrf.Dataset(tables)) for one in (fit, other))
    assert len(known) > 2 and fit.summary["numeric_links"] == 0
    np.testing.assert_allclose(found.means(), expected.means(), rtol=1e-2)
    np.testing.assert_allclose(found.deviations(), expected.deviations(), rtol=1e-2)


def test_interrupted_training_resumes(tmp_path):
    model = relcrf.parse(ITEMS)
    grounding = model.ground(relcrf.Dataset(items(60, 200)))
    assert_goes_on(model, grounding, "ess", {}, (("number structure", 2), ("all numbers", 3)), tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_discrete_variables_and_numbers_inform_each_other(seed):
    """Inference equals the enumeration of the kinds, up to the error of expectation propagation."""
    independent_kinds = MIXED.replace("template same(a: House, b: House) where Near(a, b) over a.kind == b.kind\n", "")
    model = relcrf.parse(independent_kinds + NEAR_PRICES)
    fit = model.fit(relcrf.Dataset(houses(80, 0, unknown=0.0)), "ess", edges="tree")
    grounding = fit.ground(relcrf.Dataset(houses(7, seed, unknown=0.4, unknown_kinds=0.5)))
    prediction = api.predict(fit, grounding)
    marginals, means, deviations = predict_by_enumeration(fit, grounding)
    np.testing.assert_allclose(prediction.probabilities("kind"), marginals, atol=0.01)
    np.testing.assert_allclose(prediction.means("price"), means, atol=0.04)
    np.testing.assert_allclose(prediction.deviations("price"), deviations, atol=0.04)


def test_mixed_models_have_both_structures(tmp_path):
    """The weights of the discrete variables are those of a model without numbers."""
    tables = houses(80, 0)
    fit = relcrf.parse(MIXED + NEAR_PRICES).fit(relcrf.Dataset(tables), "ess", edges="tree", pooling=0.5)
    discrete = MIXED[: MIXED.index("template size")].replace("predict price : real", "price : real")
    other = relcrf.parse(discrete).fit(relcrf.Dataset(tables), "ess", edges="tree", pooling=0.5)
    names = {info.name: k for k, info in enumerate(fit.learned.templates)}
    for k, info in enumerate(other.learned.templates):
        for vector in ("weights", "structure"):
            np.testing.assert_allclose(
                fit.learned.layout.matrix(fit.learned.vectors[vector], names[info.name]),
                other.learned.layout.matrix(other.learned.vectors[vector], k),
                atol=1e-9,
            )
    assert fit.summary["forest_edges"] == other.summary["forest_edges"] and fit.summary["numeric_forest_links"] > 0
    fit.save(tmp_path / "run")
    data = relcrf.Dataset(houses(30, 1, unknown_kinds=0.3))
    predictions = [one.predict(data) for one in (fit, relcrf.load_fit(tmp_path / "run"))]
    for name in ("means", "deviations"):
        np.testing.assert_array_equal(*(getattr(one, name)("price") for one in predictions))
    np.testing.assert_array_equal(*(one.probabilities("kind") for one in predictions))


def test_separate_unary_weights_of_pairs_and_numbers_raise_e305():
    model, data = relcrf.parse(MIXED + NEAR_PRICES), relcrf.Dataset(houses(40, 0))
    with pytest.raises(UsageError) as error:
        model.fit(data, "ess", structure_unaries="own")
    assert error.value.diagnostics[0].code == "E305"


def test_a_single_prediction_is_that_of_the_whole_data():
    model = relcrf.parse(DECLARATIONS + NEAR_PRICES)
    fit = model.fit(relcrf.Dataset(houses(60, 0)), "ess")
    tables = houses(20, 1)
    expected = fit.predict(relcrf.Dataset(tables))
    columns = {name: [np.asarray(column).tolist() for column in table.values()] for name, table in tables.items()}
    request = {
        name: [dict(zip(tables[name], row, strict=True)) for row in zip(*columns[name], strict=True)] for name in tables
    }
    served = relcrf.Predictor(fit).predict(request).to_dicts()
    np.testing.assert_allclose([row["price"] for row in served], expected.means())
    np.testing.assert_allclose([row["deviation"] for row in served], expected.deviations())
