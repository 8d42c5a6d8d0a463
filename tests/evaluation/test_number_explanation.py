"""Explanations of numbers: contributions that add up to the mean and equal difference quotients of predictions."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from gaussians import predict_plainly
from houses import DECLARATIONS, KIND_LEVELS, MIXED, NEAR, NEAR_PRICES, houses
from trains import LINKS, NEIGHBOURS, SEPARATE, TOGETHER, TRAINS, trains

import relcrf
from relcrf import api
from relcrf.errors import UsageError
from relcrf.evaluation import number_explanation
from relcrf.evaluation.number_evidence import format_number

CASES = {
    "linked": (DECLARATIONS + KIND_LEVELS + NEAR + NEAR_PRICES.replace("near(", "also("), "dense", 0.0),
    "pseudo": (DECLARATIONS + NEAR, "pseudo", 0.0),
    "forest": (DECLARATIONS + NEAR + NEAR_PRICES.replace("near(", "also("), "ess tree", 0.0),
    "forest with known numbers": (DECLARATIONS + NEAR, "ess all", 0.0),
    "local": (DECLARATIONS + NEAR, "local", 0.0),
    "alone": (DECLARATIONS, "dense", 0.0),
    "mixed": (MIXED, "dense", 0.5),
    "mixed and linked": (MIXED + NEAR_PRICES, "dense", 0.5),
    "mixed and a forest": (MIXED + NEAR_PRICES, "ess tree", 0.5),
}


@cache
def trained(text, backend):
    """Return the fit of a backend and its edges, e.g. `ess tree`, which is trained once."""
    name, _, edges = backend.partition(" ")
    return relcrf.parse(text).fit(relcrf.Dataset(houses(60, 0)), name, **({"edges": edges} if edges else {}))


@cache
def fit_and_ground(text, backend, unknown_kinds, links=2.0):
    """Return a fit, tables of other houses with unknown prices, and their grounding; tests must not change the tables."""
    fit = trained(text, backend)
    tables = houses(30, 1, unknown=0.5, unknown_kinds=unknown_kinds, links=links)
    return fit, tables, fit.ground(relcrf.Dataset(tables))


def mean_of(fit, tables, name):
    """Return the predicted mean of a house, e.g. `House(3).price`."""
    prediction = fit.predict(relcrf.Dataset(tables))
    names = prediction.grounding.variable_names(prediction.variables("price")).tolist()
    return float(prediction.means("price")[names.index(name)])


def changed(tables, column, house, amount):
    """Return the tables with a changed price or size of one house."""
    values = list(tables["house"][column])
    values[house] += amount
    return {**tables, "house": {**tables["house"], column: values}}


@pytest.mark.parametrize("case", CASES)
def test_contributions_add_up_to_the_predicted_mean(case):
    fit, _, grounding = fit_and_ground(*CASES[case])
    prediction = api.predict(fit, grounding)
    variables = prediction.variables("price")
    for variable, mean, deviation in zip(
        variables, prediction.means("price"), prediction.deviations("price"), strict=True
    ):
        found = fit.explain(grounding, grounding.variable_name(int(variable)))
        total = sum(one.amount for one in found.contributions)
        assert total == pytest.approx(found.mean, abs=1e-9) and abs(found.remainder) < 1e-9
        for one in found.contributions:
            assert sum(part.amount for part in one.features) == pytest.approx(one.amount, abs=1e-9)
        # Expectation propagation in the component alone may stop in another round.
        tolerance = 1e-3 if case == "mixed and linked" else 1e-9
        assert found.mean == pytest.approx(mean, abs=tolerance) and found.total == found.mean
        assert found.deviation == pytest.approx(deviation, abs=tolerance)
        assert found.truth is None and sum(found.by_template().values()) == pytest.approx(total, abs=1e-9)
        kinds = [one.kind for one in found.contributions]
        assert kinds[0] == "constant" and "constant" not in kinds[1:]
        amounts = [abs(one.amount) for one in found.contributions[1:]]
        assert amounts == sorted(amounts, reverse=True)


def test_contributions_of_known_numbers_equal_difference_quotients():
    """Known numbers contribute through direct links and through unknown neighbours."""
    fit, tables, grounding = fit_and_ground(*CASES["linked"])
    n_direct = n_indirect = 0
    adjacent = {
        frozenset(pair) for pair in zip(tables["near"]["a"].tolist(), tables["near"]["b"].tolist(), strict=True)
    }
    for house in [k for k, price in enumerate(tables["house"]["price"]) if price is None][:4]:
        name = f"House({house}).price"
        found = fit.explain(grounding, name)
        for one in found.contributions:
            if not one.neighbours:
                continue
            (neighbour,) = one.neighbours
            other = int(neighbour.name[6:].partition(")")[0])
            slope = mean_of(fit, changed(tables, "price", other, 1.0), name) - found.mean
            deviation = one.features[0].value
            assert one.amount == pytest.approx(slope * deviation, abs=1e-9) and neighbour.is_observed
            is_direct = frozenset((house, other)) in adjacent
            n_direct, n_indirect = n_direct + is_direct, n_indirect + (not is_direct)
            assert {part.feature for part in one.features} == {"deviation"} and set(one.templates) == {"near", "also"}
            assert found.parts_text(one, 5).startswith(found.format_number(abs(deviation)))
    assert n_direct and n_indirect


def test_contributions_of_features_equal_difference_quotients():
    fit, tables, _ = fit_and_ground(*CASES["linked"])
    house = next(k for k, price in enumerate(tables["house"]["price"]) if price is None)
    # The strength of links depends on the size, and the scale on the kind: without links, only the mean does.
    near = tables["near"]
    kept = (near["a"] != house) & (near["b"] != house)
    tables = {**tables, "near": {name: column[kept] for name, column in near.items()}}
    grounding = fit.ground(relcrf.Dataset(tables))
    name = f"House({house}).price"
    found = fit.explain(grounding, name)
    parts = {(part.template, part.name): part for one in found.contributions for part in one.features}
    size = parts["size", "h.size"]
    slope = mean_of(fit, changed(tables, "size", house, 1.0), name) - found.mean
    assert size.value == pytest.approx(tables["house"]["size"][house])
    assert size.amount == pytest.approx(slope * size.value, abs=1e-9)
    kind, others = tables["house"]["kind"][house], [k for k in ("flat", "barn") if k != tables["house"]["kind"][house]]
    values = list(tables["house"]["kind"])
    values[house] = others[0]
    other = fit.explain(fit.ground(relcrf.Dataset({**tables, "house": {**tables["house"], "kind": values}})), name)
    moved = {(part.template, part.name): part for one in other.contributions for part in one.features}
    change = moved["kind", others[0]].amount - parts["kind", kind].amount
    assert other.mean - found.mean == pytest.approx(change, abs=1e-9)
    assert "h.size = " in found.parts_text(next(one for one in found.contributions if "size" in one.templates), 5)


@pytest.mark.parametrize("case", ["linked", "forest", "forest with known numbers"])
def test_deviation_without_known_numbers_is_that_of_the_dense_distribution(case):
    fit, tables, grounding = fit_and_ground(*CASES[case])
    unknown = [k for k, price in enumerate(tables["house"]["price"]) if price is None]
    nothing = {**tables, "house": {**tables["house"], "price": [float("nan")] * 30}}
    empty = fit.ground(relcrf.Dataset(nothing))
    _, covariance, _ = predict_plainly(fit, empty, empty.states)
    linked = 0
    for house in unknown:
        found = fit.explain(grounding, f"House({house}).price")
        assert found.deviation_alone == pytest.approx(np.sqrt(covariance[house, house]))
        assert found.deviation <= found.deviation_alone + 1e-12
        is_reduced = found.deviation < 0.99 * found.deviation_alone
        assert not is_reduced or f"from {found.format_number(found.deviation_alone)} to" in found.gain_text
        linked += is_reduced
    assert linked


def test_a_number_with_an_unknown_category_is_explained_as_a_mixture():
    fit, tables, grounding = fit_and_ground(*CASES["mixed"])
    prediction = api.predict(fit, grounding)
    names = grounding.variable_names(prediction.variables("kind")).tolist()
    marginals = dict(zip(names, prediction.probabilities("kind"), strict=True))
    (block,) = (k for k, info in enumerate(grounding.templates) if info.name == "kind")
    weights = grounding.graph.layout.matrix(fit.learned.vectors["weights"], block)[0]
    n_mixed = 0
    for house, price in enumerate(tables["house"]["price"]):
        if price is not None:
            continue
        found = fit.explain(grounding, f"House({house}).price")
        (one,) = (each for each in found.contributions if each.templates == ("kind",))
        (kind,) = one.neighbours
        if tables["house"]["kind"][house] is not None:
            assert one.kind == "evidence" and kind.state == tables["house"]["kind"][house] and kind.probability == 1.0
            continue
        n_mixed += 1
        probabilities = marginals[f"House({house}).kind"]
        assert one.kind == "neighbour" and kind.probability == pytest.approx(probabilities.max())
        assert {part.key: part.amount for part in one.features} == pytest.approx(
            dict(zip(("flat", "house", "barn"), probabilities * weights[:3], strict=True))
        )
        assert kind.state == ("flat", "house", "barn")[int(probabilities.argmax())]
    assert n_mixed


@pytest.mark.parametrize("case", ["mixed", "mixed and linked"])
def test_categories_are_explained_by_numbers(case):
    """The contribution of a number is that of its density, if the category has no other links to numbers."""
    fit, tables, grounding = fit_and_ground(*CASES[case], links=0.7)
    prediction = api.predict(fit, grounding)
    names = grounding.variable_names(prediction.variables("kind")).tolist()
    n_numbers = n_compared = 0
    for name, probabilities in zip(names, prediction.probabilities("kind"), strict=True):
        found = fit.explain(grounding, name)
        best = int(probabilities.argmax())
        assert found.probabilities[found.answer] == pytest.approx(probabilities[best], abs=1e-3)
        total = sum(one.amount for one in found.contributions) + found.remainder
        assert total == pytest.approx(found.log_odds, abs=1e-9)
        numbers = [one for one in found.contributions if any(".price" in n.name for n in one.neighbours)]
        house = int(name[6:].partition(")")[0])
        assert len(numbers) == (tables["house"]["price"][house] is not None)
        for one in numbers:
            n_numbers += 1
            assert one.kind == "evidence" and one.templates == ("kind",)
            hidden = {**tables, "house": {**tables["house"], "price": list(tables["house"]["price"])}}
            hidden["house"]["price"][house] = None
            if case == "mixed" and not any("same" in each.templates for each in found.contributions):
                n_compared += 1
                before = fit.explain(fit.ground(relcrf.Dataset(hidden)), name).probabilities
                log_odds = np.log(before[found.answer] / before[found.against])
                assert one.amount == pytest.approx(found.log_odds - log_odds, abs=1e-9)
    assert n_numbers and (n_compared or case != "mixed")


@cache
def ground_trains(form):
    model = relcrf.parse(TRAINS + form + LINKS)
    return model, model.ground(relcrf.Dataset(trains(100, 0)))


@pytest.mark.parametrize("form", [SEPARATE, TOGETHER, NEIGHBOURS])
@pytest.mark.parametrize("backend", ["dense", "local"])
def test_numbers_with_several_unknown_categories_are_explained(form, backend):
    """Each factor contributes the expectation of its weights over the joint states of its unknown categories."""
    fit = api.fit(*ground_trains(form), backend)
    tables = trains(12, 1, unknown=0.5, unknown_categories=0.7)
    grounding = fit.ground(relcrf.Dataset(tables))
    prediction = api.predict(fit, grounding)
    names = grounding.variable_names(prediction.variables("delay")).tolist()
    n_joint = 0
    for name, mean in zip(names, prediction.means("delay"), strict=True):
        found = fit.explain(grounding, name)
        assert sum(one.amount for one in found.contributions) == pytest.approx(found.mean, abs=1e-9)
        assert found.mean == pytest.approx(mean, abs=1e-3)
        for one in found.contributions:
            unknown = [each for each in one.neighbours if not each.is_observed]
            parts = [part for part in one.features if part.template == "delay"]
            assert all(len(part.key.split(", ")) == len(unknown) for part in parts if part.key)
            n_joint += len(unknown) > 1
    assert bool(n_joint) == (form != SEPARATE)
    marginals = {}
    for attribute in ("cause", "line"):
        found = grounding.variable_names(prediction.variables(attribute)).tolist()
        marginals |= dict(zip(found, prediction.probabilities(attribute), strict=True))
    for name, probabilities in marginals.items():
        found = fit.explain(grounding, name)
        assert found.probabilities[found.answer] == pytest.approx(probabilities.max(), abs=1e-3)
        total = sum(one.amount for one in found.contributions) + found.remainder
        assert total == pytest.approx(found.log_odds, abs=1e-9)


def test_flips_of_categories_in_models_with_numbers():
    fit, _, grounding = fit_and_ground(*CASES["mixed"])
    prediction = api.predict(fit, grounding)
    names = grounding.variable_names(prediction.variables("kind")).tolist()
    found = [fit.flips(grounding, name) for name in names[:6]]
    assert any(one.single for one in found)


def test_numbers_beyond_the_largest_are_aggregated(monkeypatch):
    fit, _, grounding = fit_and_ground(*CASES["linked"])
    variables = api.predict(fit, grounding).variables("price")
    explained = [fit.explain(grounding, grounding.variable_name(int(variable))) for variable in variables]
    whole = max(explained, key=lambda one: len(one.contributions))
    monkeypatch.setattr(number_explanation, "MAX_NEIGHBOURS", 2)
    short = fit.explain(grounding, whole.variable)
    named = [one for one in whole.contributions if one.neighbours]
    (others,) = (one for one in short.contributions if one.kind == "others")
    assert len(named) > 2 and sum(bool(one.neighbours) for one in short.contributions) == 2
    assert others.amount == pytest.approx(sum(one.amount for one in named[2:]), abs=1e-12)
    assert short.by_template() == pytest.approx(whole.by_template())


def test_options_without_meaning_for_numbers_are_rejected():
    fit, tables, grounding = fit_and_ground(*CASES["alone"])
    name = f"House({tables['house']['price'].index(None)}).price"
    for call in (
        lambda: fit.explain(grounding, name, against="3"),
        lambda: fit.explain(grounding, name, depth=2),
        lambda: fit.flips(grounding, name),
    ):
        with pytest.raises(UsageError) as error:
            call()
        assert error.value.diagnostics[0].code == "E379"


def test_numbers_without_links_have_no_gain():
    fit, tables, grounding = fit_and_ground(*CASES["alone"])
    found = fit.explain(grounding, f"House({tables['house']['price'].index(None)}).price")
    assert found.deviation_alone == pytest.approx(found.deviation) and not found.gain_text


def test_linked_numbers_of_two_attributes():
    """The deviation of a neighbour has the unit of its own attribute."""
    text = """
    entity House { predict price : real  predict rent : real  size : real }
    template price(h: House) over h.price by 1, h.size
    template rent(h: House) over h.rent by 1, h.size
    template both(h: House) over h.price, h.rent
    """
    tables = {"house": {name: houses(60, 0)["house"][name] for name in ("id", "price", "size")}}
    rng = np.random.default_rng(0)
    known = [5.0 if price is None else price for price in tables["house"]["price"]]
    tables["house"]["rent"] = [
        1000.0 * price + 100.0 * error for price, error in zip(known, rng.normal(size=60), strict=True)
    ]
    fit = relcrf.parse(text).fit(relcrf.Dataset(tables), "dense")
    house = tables["house"]["price"].index(None)
    found = fit.explain(relcrf.Dataset(tables), f"House/{house}.price")
    (rent,) = (one for one in found.contributions if one.neighbours)
    assert rent.templates == ("both",) and rent.neighbours[0].name == f"House({house}).rent"
    mean = fit.explain(relcrf.Dataset(tables), f"House/{house}.rent").mean  # without known numbers
    assert rent.features[0].value == pytest.approx(tables["house"]["rent"][house] - mean)
    assert sum(one.amount for one in found.contributions) == pytest.approx(found.mean, abs=1e-9)


def test_a_known_number_is_hidden():
    fit, tables, grounding = fit_and_ground(*CASES["linked"])
    house = next(k for k, price in enumerate(tables["house"]["price"]) if price is not None)
    found = fit.explain(grounding, f"House/{house}.price")
    assert found.truth == tables["house"]["price"][house] and found.truth_text.startswith("its value is ")
    hidden = {**tables, "house": {**tables["house"], "price": list(tables["house"]["price"])}}
    hidden["house"]["price"][house] = None
    assert found.mean == pytest.approx(mean_of(fit, hidden, found.variable), abs=1e-9)


@pytest.mark.parametrize(
    ("value", "scale", "text"),
    [
        (1234567.8, 54321.0, "+1,234,568"),
        (12.3456, 3.2, "+12.35"),
        (-0.00123456, 0.0032, "-0.00123"),
        (1e-15, 3e-15, "+1e-15"),
        (2e15, 1e12, "+2e+15"),
        (3.0, 0.0, "+3"),
    ],
)
def test_numbers_have_three_digits_of_their_deviation(value, scale, text):
    assert format_number(value, scale, sign=True) == text
