"""Numbers that depend on several unknown categories, compared with the enumeration of all joint states."""

from dataclasses import replace

import numpy as np
import pytest
from gaussians import enumerate_states, predict_by_enumeration, without
from scipy.stats import norm
from tables import write_tables
from trains import CATEGORIES, LINKS, NEIGHBOURS, SEPARATE, TOGETHER, TRAINS, trains

import relcrf
from relcrf import api
from relcrf.backends import number_states, sharded
from relcrf.backends.number_inference import infer_posterior
from relcrf.backends.problems import query_problem
from relcrf.errors import UsageError
from relcrf.execution.serial import SerialExecutor
from relcrf.inference.result import Verdict

FORMS = {"separate templates": SEPARATE, "one template": TOGETHER, "neighbours": NEIGHBOURS}

SEEDS = range(3)
NOTHING = {name: [None] for name in ("delay", "cost", *CATEGORIES)}


@pytest.fixture(scope="module")
def fits():
    data = relcrf.Dataset(trains(200, 0))
    return {
        name: relcrf.parse(TRAINS + text + links).fit(data, "dense")
        for form, text in FORMS.items()
        for name, links in ((form, ""), (f"{form} linked", LINKS))
    }


def ground(fit, seed, n=3, **unknown):
    return fit.ground(relcrf.Dataset(trains(n, seed, **unknown)))


def numbers_of(prediction):
    """Return the means and the deviations of the unknown numbers."""
    return tuple(
        np.concatenate([read(name) for name in ("delay", "cost")]) for read in (prediction.means, prediction.deviations)
    )


def assert_equals_enumeration(prediction, fit, grounding, tolerance):
    marginals, means, deviations = predict_by_enumeration(fit, grounding)
    found = [table for name in CATEGORIES for table in prediction.probabilities(name)]
    assert len(found) == len(marginals)
    for one, other in zip(found, marginals, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)
    np.testing.assert_allclose(numbers_of(prediction), (means, deviations), atol=4 * tolerance)


def count_parents(fit, grounding):
    """Return the number of unknown categories of each known number, and of each unknown number."""
    _, vectors, problem = query_problem(fit.learned, grounding, None)
    posterior = infer_posterior(problem, vectors, fit.learned.configure_backend(inference="jt").infer)
    is_free = np.isnan(posterior.values)
    return posterior.states.n_parents[~is_free], posterior.states.n_parents[is_free]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", ["enumeration", "jt", "auto"])
def test_predictions_equal_enumeration(fits, form, seed, method):
    grounding = ground(fits[form], seed, unknown=0.4, unknown_categories=0.8)
    prediction = api.predict(fits[form], grounding, inference=method)
    assert_equals_enumeration(prediction, fits[form], grounding, 1e-9)
    assert prediction.verdict.status == "exact"


@pytest.mark.parametrize("form", FORMS)
def test_the_small_tables_have_numbers_with_several_unknown_categories(fits, form):
    tables = [ground(fits[form], seed, unknown=0.4, unknown_categories=0.8) for seed in SEEDS]
    known, unknown = (
        set(np.concatenate(each).tolist()) for each in zip(*(count_parents(fits[form], t) for t in tables), strict=True)
    )
    assert 2 in known and 2 in unknown and (form == "separate templates" or 3 in known | unknown)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", SEEDS)
def test_joint_likelihood_of_categories_and_numbers(fits, form, seed):
    """It is the ratio of the densities of all values and of those that are not hidden, which are enumerated."""
    fit = fits[form]
    grounding = ground(fit, seed)
    hidden = np.random.default_rng(seed).random(len(grounding.states)) < 0.6
    rest = without(grounding, hidden)
    expected = enumerate_states(fit, grounding).log_density - enumerate_states(fit, rest).log_density
    found = api.joint_log_likelihood(fit, grounding, hidden=hidden, inference="jt")
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", SEEDS)
def test_linked_numbers_are_near_enumeration(fits, form, seed):
    """Expectation propagation is approximate; it is exact if the known numbers do not depend on unknown categories."""
    fit = fits[f"{form} linked"]
    grounding = ground(fit, seed, unknown=0.4, unknown_categories=0.8)
    prediction = api.predict(fit, grounding, inference="jt")
    assert_equals_enumeration(prediction, fit, grounding, 0.03)
    assert "approximate for linked numbers" in prediction.verdict.remark
    grounding = ground(fit, seed, unknown=1.0, unknown_categories=0.6)
    prediction = api.predict(fit, grounding, inference="jt")
    assert_equals_enumeration(prediction, fit, grounding, 1e-9)
    assert prediction.verdict.status == "exact"


def test_ctrl_c_ends_expectation_propagation(fits):
    """The result is that of the interrupted round; further rounds would hide the interruption."""
    fit, seen = fits["one template linked"], []
    grounding = ground(fit, 0, unknown=0.4, unknown_categories=0.8)
    _, vectors, problem = query_problem(fit.learned, grounding)
    system = fit.learned.configure_backend(inference="jt")

    def infer(*arguments):
        seen.append("exact" if len(seen) < 2 else "interrupted")
        return replace(system.infer(*arguments), verdict=Verdict(seen[-1]))

    inferred = infer_posterior(problem, vectors, infer).inferred
    assert len(seen) == 3 and inferred.verdict.status == "interrupted"
    assert np.isfinite(inferred.numbers.means).all()


@pytest.mark.parametrize("form", FORMS)
def test_densities_of_unknown_numbers_are_the_mixtures_of_all_joint_states(fits, form):
    """They are positive, and have the sum 1 by quadrature."""
    fit = fits[form]
    grounding = ground(fit, 1, unknown=0.5, unknown_categories=0.8)
    _, vectors, problem = query_problem(fit.learned, grounding, None)
    posterior = infer_posterior(problem, vectors, fit.learned.configure_backend(inference="jt").infer)
    free = np.flatnonzero(np.isnan(posterior.values))
    assert (posterior.states.n_parents[free] > 1).any()
    _, _, share, means, variances, _ = enumerate_states(fit, grounding)
    grid = np.linspace(-40.0, 40.0, 8001)
    for k, row in enumerate(free.tolist()):
        cells = posterior.states.of_number(row)
        scales = posterior.state_scales[cells]  # the deviation of an unlinked number has variance 1
        density = norm.pdf(grid[:, None], posterior.state_means[cells], scales) @ posterior.probabilities[cells]
        expected = norm.pdf(grid[:, None], means[:, k], np.sqrt(variances[:, k])) @ share
        np.testing.assert_allclose(density, expected, atol=1e-9)
        assert np.trapezoid(density, grid) == pytest.approx(1.0)


@pytest.mark.parametrize("form", FORMS)
def test_belief_propagation_and_mean_field_return_joint_marginals(fits, form):
    """On one train with two unknown categories, belief propagation is exact. Mean field has products of marginals."""
    fit = fits[form]
    for grounding in one_train(fit):
        exact = api.predict(fit, grounding, inference="jt")
        bp, mf = (api.predict(fit, grounding, inference=method) for method in ("bp", "mf"))
        np.testing.assert_allclose(numbers_of(bp), numbers_of(exact), atol=1e-6)
        np.testing.assert_allclose(numbers_of(mf), numbers_of(exact), atol=1.0)


def one_train(fit, **unknown):
    """Yield a train of unknown cause and line, once with an unknown delay and once with an unknown cost."""
    tables = trains(1, 3)
    for number in ("delay", "cost"):
        table = {**tables["train"], "cause": [None], "line": [None], number: [None], **unknown}
        yield fit.ground(relcrf.Dataset({**tables, "train": table}))


def test_numbers_with_the_same_unknown_categories_share_a_factor():
    """Belief propagation would otherwise be approximate on the evidence of both numbers."""
    text = TRAINS.replace("template routes(t: Train) over t.line, t.cause\n", "")
    text += "template delay(t: Train) over t.delay, t.cause, t.line, t.crew\n"
    text += "template cost(t: Train) over t.cost, t.crew, t.line, t.cause\n"
    fit = relcrf.parse(text).fit(relcrf.Dataset(trains(200, 0)), "dense")
    for unknown in ({"crew": [None]}, {"crew": [None], "delay": [1.0], "cost": [0.5]}):
        for grounding in one_train(fit, **unknown):
            assert_equals_enumeration(api.predict(fit, grounding, inference="bp"), fit, grounding, 1e-6)


@pytest.mark.parametrize("settings", [{"edges": "tree"}, {"edges": "all"}, {"min_fraction": 0.3}, {"pooling": 0.9}])
def test_forests_contain_the_evidence_of_numbers(settings):
    """Evidence may join categories that no template joins, so that training has no scores of such edges."""
    text = TRAINS.replace("template routes(t: Train) over t.line, t.cause\n", "") + TOGETHER
    fit = relcrf.parse(text).fit(relcrf.Dataset(trains(200, 0)), "ess", **settings)
    for grounding in one_train(fit):
        assert_equals_enumeration(api.predict(fit, grounding), fit, grounding, 1e-9)


def test_local_ignores_the_evidence_of_numbers_about_several_categories():
    """The joint marginals are products of marginals, so that the mean is an expectation over independent categories."""
    fit = relcrf.parse(TRAINS + TOGETHER).fit(relcrf.Dataset(trains(200, 0)), "local")
    for grounding in one_train(fit):
        _, vectors, problem = query_problem(fit.learned, grounding, None)
        posterior = infer_posterior(problem, vectors, fit.learned.configure_backend().infer)
        prediction = api.predict(fit, grounding)
        independent = np.outer(prediction.probabilities("cause")[0], prediction.probabilities("line")[0]).ravel()
        (row,) = np.flatnonzero(posterior.states.n_parents == 2)
        np.testing.assert_allclose(posterior.probabilities[posterior.states.of_number(row)], independent)
        empty = fit.ground(relcrf.Dataset({**trains(1, 3), "train": {**trains(1, 3)["train"], **NOTHING}}))
        np.testing.assert_allclose(prediction.probabilities("cause"), api.predict(fit, empty).probabilities("cause"))


def test_sharded_inference_equals_inference_on_the_whole_graph(fits, monkeypatch):
    monkeypatch.setattr(sharded, "SHARD_FACTORS", 20)
    fit = fits["one template"]
    tables = trains(60, 5, unknown=0.4, unknown_categories=0.6)
    tables["follows"] = {name: column[:20] for name, column in tables["follows"].items()}
    grounding = fit.ground(relcrf.Dataset(tables))
    plain = api.predict(fit, grounding)
    executor = CountingExecutor()
    in_shards = api.predict(fit, grounding, executor=executor)
    np.testing.assert_allclose(numbers_of(in_shards), numbers_of(plain))
    assert executor.n_shards > 3


class CountingExecutor(SerialExecutor):
    def map(self, function, items):
        self.n_shards = len(items)
        return super().map(function, items)


@pytest.mark.parametrize("backend", ["auto", "dense", "ess", "local", "pseudo"])
def test_every_backend_predicts(backend):
    """`auto` uses a backend with factors over several variables. `ess` rejects factors over three."""
    fit = relcrf.parse(TRAINS + SEPARATE + LINKS).fit(relcrf.Dataset(trains(100, 0)), backend)
    prediction = fit.predict(relcrf.Dataset(trains(30, 1, unknown=0.4, unknown_categories=0.6)))
    means, deviations = numbers_of(prediction)
    assert np.isfinite(means).all() and (deviations > 0.0).all()
    assert backend != "auto" or fit.learned.backend in ("dense", "pseudo")
    if backend == "ess":
        three = relcrf.parse(TRAINS + NEIGHBOURS).fit(relcrf.Dataset(trains(100, 0)), backend)
        with pytest.raises(UsageError) as error:
            three.predict(relcrf.Dataset(trains(30, 1, unknown=0.4, unknown_categories=0.6)))
        assert error.value.diagnostics[0].code == "E302"


@pytest.mark.parametrize("limit", ["MAX_NUMBER_STATES", "MAX_STATES"])
def test_too_many_joint_states_raise_e383(fits, limit, monkeypatch):
    fit = fits["neighbours"]
    grounding = ground(fit, 0, unknown=0.4, unknown_categories=0.9)
    api.predict(fit, grounding)
    monkeypatch.setattr(number_states, limit, 5)
    with pytest.raises(UsageError) as error:
        api.predict(fit, grounding)
    assert error.value.diagnostics[0].code == "E383"
    assert "5 joint states" in error.value.diagnostics[0].message


@pytest.mark.parametrize("unlabelled", ["ignore", "marginal"])
def test_training_uses_the_numbers_whose_categories_are_all_known(unlabelled):
    """This also holds if the states of unlabelled categories are summed out."""
    model, vectors = relcrf.parse(TRAINS + SEPARATE), []
    tables = trains(80, 0, unknown=0.1, unknown_categories=0.3)
    table = tables["train"]
    for _ in range(2):
        fit = model.fit(relcrf.Dataset(tables), "dense", unlabelled=unlabelled)
        vectors.append(fit.learned.vectors)
        for number, names in (("delay", ("cause", "line")), ("cost", ("crew",))):
            categories = zip(*(table[name] for name in names), strict=True)
            table[number] = [None if None in c else n for n, c in zip(table[number], categories, strict=True)]
    for name, vector in vectors[0].items():
        np.testing.assert_array_equal(vector, vectors[1][name])
    n_known = sum(value is not None for number in ("delay", "cost") for value in table[number])
    assert fit.summary["numbers"] == n_known < 120


def test_commands(tmp_path, relcrf_):
    tables = trains(120, 0, unknown=0.2, unknown_categories=0.2)
    rows = {
        name: [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        for name, columns in tables.items()
    }
    unknown = next(row["id"] for row in rows["train"] if None is row["delay"] is row["cause"] is row["line"])
    model, data, run = tmp_path / "trains.rcrf", write_tables(tmp_path / "tables", **rows), str(tmp_path / "run")
    model.write_text(TRAINS + TOGETHER + LINKS)
    of_tables, few = ("--data", str(data)), ("--backend", "dense", "--set", "max_iterations=10")
    for command in (
        ("train", str(model), *of_tables, *few, "--out", run),
        ("predict", run, *of_tables, "--attribute", "Train.delay", "--out", str(tmp_path / "predicted.csv")),
        ("evaluate", str(model), *of_tables, *few, "--folds", "3"),
        ("explain", run, f"Train/{unknown}.delay", *of_tables),
        ("explain", run, f"Train/{unknown}.line", *of_tables),
        ("audit", run, *of_tables),
        ("ask", run, *of_tables, "--budget", "2", "--attribute", "Train.delay"),
        ("ask", run, *of_tables, "--budget", "2", "--attribute", "Train.cause"),
    ):
        code, out, err = relcrf_(*command)
        assert code == 0, err
        if command[0] == "explain":
            assert "Train" in out and f"({unknown})" in out


def test_requests_for_trains_with_several_unknown_categories(fits):
    predictor = relcrf.Predictor(fits["one template"])
    first = {"id": "1", "hour": 0.0, "delay": None, "cost": 1.0, "cause": None, "line": None, "crew": None}
    second = {**first, "id": "2", "delay": 1.0, "cost": None}
    request = {"train": [first, second], "follows": {"a": "1", "b": "2"}}
    columns = {name: [first[name], second[name]] for name in first}
    prediction = fits["one template"].predict(relcrf.Dataset({"train": columns, "follows": {"a": ["1"], "b": ["2"]}}))
    (answer,) = predictor.predict(request, attribute="delay").to_dicts()
    assert answer["delay"] == pytest.approx(float(prediction.means("delay")[0]))
    assert answer["deviation"] == pytest.approx(float(prediction.deviations("delay")[0]))
