"""Reports on predicted numbers: measures, largest errors, calibration, explanations, and comparisons of runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from houses import MIXED, NEAR_PRICES, houses
from html_page import Page
from scipy.stats import norm

import relcrf
from relcrf import api
from relcrf.backends.calibration_labels import CalibrationLabels
from relcrf.data.split_plan import parse_split
from relcrf.evaluation.intervals import Clusters
from relcrf.evaluation.number_evidence import number_format
from relcrf.evaluation.number_explanation import NumberExplanation
from relcrf.evaluation.number_measures import ScoredNumbers
from relcrf.evaluation.predictions import MeasureDifference
from relcrf.evaluation.run_comparison import GroundedRun, score_runs
from relcrf.evaluation.standard_errors import StandardErrors
from relcrf.report import page
from relcrf.report.headline import BaselineComparison, HeadlineMeasure
from relcrf.report.holdout import evaluate_holdout
from relcrf.report.number_plots import LEVELS, largest_errors, measure_number_calibration
from relcrf.report.results import NumberGain, NumberSection, build_sections
from relcrf.report.run_comparison import load_runs, render_comparison

NAME = "House.price"
OPTIONS = ("--data", "data", "--split", "hide=0.3")


def train_and_hide(folder, model, data, backend="dense", **settings):
    """Train a run without a third of the labels; return its grounding and the mask of the hidden labels."""
    grounding = model.ground(data)
    hidden = (grounding.states >= 0) & (np.arange(len(grounding.states)) % 3 == 0)
    api.fit(model, grounding, backend, hidden=hidden, **settings).save(folder)
    return grounding, hidden


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers") / "prices"
    return folder, *train_and_hide(folder, *relcrf.datasets.load("prices"))


@pytest.fixture(scope="module")
def holdout(run):
    folder, grounding, hidden = run
    options = {"options": OPTIONS, "with_curve": True, "n_explained": 2, "with_errors": True}
    return evaluate_holdout(api.load_fit(folder), grounding, hidden, **options)


@pytest.fixture(scope="module")
def made(run, holdout):
    return page.render_report(run[0], holdout)


@pytest.fixture(scope="module")
def scored(run):
    """Return the names of the hidden numbers, and their predictions by `predict`."""
    folder, grounding, hidden = run
    prediction = api.predict(api.load_fit(folder), grounding, hidden=hidden)
    variables = prediction.variables(NAME)
    rows = np.flatnonzero(hidden[variables])
    names = grounding.variable_names(variables)[rows].tolist()
    truth = grounding.numbers[variables[rows]]
    return names, ScoredNumbers(prediction.means(NAME)[rows], prediction.deviations(NAME)[rows], truth)


def cells(html):
    """Return the cells of all rows of tables."""
    found = []
    for part in html.split("<tr>")[1:]:
        row = Page(f"<table><tr>{part.split('</tr>')[0]}</tr></table>")
        found.append([text for where, text in row.texts if where in ("td", "th", "span")])
    return found


def test_the_page_shows_the_measures_of_predict(run, holdout, scored, made):
    names, expected = scored
    html = Page(made.html)
    measures = expected.measures()
    rows = {row[0]: row for row in cells(made.html)}
    for name, title in (("rmse", "root mean squared error"), ("mae", "mean absolute error"), ("crps", "CRPS")):
        assert rows[title][-1] == f"{measures[name]:.1f}"
    assert 10.0 < measures["crps"] < measures["mae"] < 100.0 and rows["R²"][-1] == f"{measures['r2']:.3f}"
    assert rows["coverage of 90 % intervals"][-1] == f"{measures['coverage_90']:.3f}"
    assert list(holdout.predictions.systems) == ["majority", "local", "dense"]
    error = np.abs(expected.truth - expected.means)
    shown = [row for row in cells(made.html) if len(row) == 6]
    for k in np.argsort(-error)[:10]:
        truth, mean, deviation = expected.truth[k], expected.means[k], expected.deviations[k]
        texts = [f"{truth:.1f}", f"{mean:.1f}", f"{deviation:.1f}", f"{truth - mean:+.1f}"]
        assert [names[k], *texts, f"{(truth - mean) / deviation:+.2f}"] in shown
    titles = {title.removeprefix(f"{NAME}: ") for title in made.plots}
    assert {
        "mean absolute error",
        "CRPS",
        "values and predictions",
        "coverage",
        "probability integral transform",
        "residuals",
        "learning curve",
        "all numbers: objective over iterations",
    } <= titles
    assert (
        len(made.plots)
        == html.count("svg") - len(holdout.explanations)
        == html.count("figure") - len(holdout.explanations)
    )
    tiles = html.text("strong")
    assert f"{measures['rmse']:.1f}" in tiles and f"{measures['coverage_90']:.1%}" in tiles
    assert page.render_report(run[0], holdout).html == made.html


def test_headline_and_gain_compare_mean_absolute_errors(run, holdout, scored):
    (section,) = build_sections(holdout)
    assert isinstance(section, NumberSection) and isinstance(section.gain, NumberGain)
    _, expected = scored
    _, grounding, hidden = run
    known = grounding.numbers[(grounding.states >= 0) & ~hidden]
    majority = np.abs(expected.truth - known.mean()).mean()
    gain = majority - expected.measures()["mae"]
    assert f"Better than majority by {gain:.1f} in mean absolute error [" in section.headline.text
    assert "better than local (no links) by" in section.headline.text
    local = holdout.predictions.estimates("local", NAME)["mae"].value
    assert section.gain.mae.value == pytest.approx(expected.measures()["mae"] - local)
    assert section.gain.is_gain and "the mean absolute error changes by -" in section.gain.summary
    total = sum(row.n_labels * row.gain[0] for row in section.neighbour_gains) / len(expected.truth)
    assert total == pytest.approx(-section.gain.mae.value)
    labels = section.labels
    assert labels.is_numeric and labels.n_held_out == len(expected.truth) == int(hidden.sum())
    assert labels.values["median"] == np.median(grounding.numbers[grounding.states >= 0])


def test_learning_curve_ends_with_the_crps_of_the_run(holdout, scored):
    points = holdout.curve[NAME]
    assert points["labels"].tolist() == [round(f * holdout.n_training_labels) for f in (0.125, 0.25, 0.5, 1.0)]
    assert points["crps"][-1] == pytest.approx(scored[1].measures()["crps"])


def test_local_has_the_penalty_of_the_run(run, holdout):
    folder, grounding, hidden = run
    learned = api.load_fit(folder).learned
    strong = replace(learned, summary={**learned.summary, "numeric_l2": 1e6})
    found = evaluate_holdout(api.Fit(strong), grounding, hidden)
    assert found.predictions.estimates("local", NAME)["mae"].value > (
        1.5 * holdout.predictions.estimates("local", NAME)["mae"].value
    )


def test_explanations_and_next_steps(holdout, scored, made):
    names, expected = scored
    assert len(holdout.explanations) == 2 and all(isinstance(one, NumberExplanation) for one in holdout.explanations)
    html = Page(made.html)
    assert "Largest links" in html.text("h3") and "raises price" in " ".join(html.text("li"))
    for one in holdout.explanations:
        assert any(one.summary in text and one.truth_text in text for text in html.text("p"))
    worst = names[int(np.argmax(np.abs(expected.truth - expected.means)))]
    assert any(text.startswith("relcrf explain") and worst in text for text in html.text("pre"))
    assert isinstance(holdout.errors, StandardErrors) and holdout.errors.is_maximum
    assert "standard error" in " ".join(html.text("th"))


def test_mixed_models(tmp_path):
    """Numbers and categories have sections; the learning curve omits fractions with too few labels."""
    data = relcrf.Dataset(houses(80, 0, unknown=0.1, unknown_kinds=0.2, links=2.0))
    model = relcrf.parse(MIXED + NEAR_PRICES)
    grounding, hidden = train_and_hide(tmp_path / "run", model, data, max_iterations=30)
    fit = api.load_fit(tmp_path / "run")
    found = evaluate_holdout(fit, grounding, hidden, options=OPTIONS, n_explained=4, with_curve=True)
    assert not found.no_explanations_reason
    assert {type(one).__name__ for one in found.explanations} == {"NumberExplanation", "CategoryExplanation"}
    html = Page(page.render_report(tmp_path / "run", found).html)
    parts = [text for where, text in html.texts if where in ("h3", "h4")]
    parts = [text for text in parts if text in ("House.price", "House.kind", "Largest errors", "Confusion matrix")]
    assert parts == ["House.price", "Largest errors", "House.kind", "Confusion matrix"]


def test_comparison_of_runs(run, tmp_path):
    folder, grounding, _ = run
    other, _ = train_and_hide(tmp_path / "alone", *relcrf.datasets.load("prices"), "local")
    runs = load_runs([folder, tmp_path / "alone"])
    grounded = [GroundedRun(one.name, one.learned, each) for one, each in zip(runs, (grounding, other), strict=True)]
    scores = score_runs(grounded, parse_split("hide=0.3"))
    made = render_comparison(runs, scores, int((grounding.states >= 0).sum()))
    (attribute,) = made.attributes
    assert attribute.name == NAME and attribute.systems == ("majority", "prices", "alone")
    (verdict,) = attribute.verdict_texts()
    assert verdict.startswith("alone: worse than prices by") and "mean absolute error" in verdict
    pooled = scores.predictions.pooled("alone", NAME)
    assert np.abs(pooled.truth - pooled.means).mean() == pytest.approx(
        scores.predictions.estimates("alone", NAME)["mae"].value
    )
    assert scores.n_unmatched == 0 and "mean absolute error" in " ".join(Page(made.html).text("th"))


@pytest.mark.parametrize(
    ("scale", "words"), [(0.5, "too narrow"), (2.0, "too wide"), (1.0, "calibrated, within sampling error")]
)
def test_calibration_of_deviations(scale, words):
    n = 800
    truth = norm.ppf((np.arange(n) + 0.5) / n)
    judged = ScoredNumbers(np.zeros(n), np.full(n, scale), truth)
    clusters = Clusters.from_variables(np.arange(n), np.arange(n))
    found = measure_number_calibration("E.x", judged, clusters, None)
    assert words in found.advice and ("--calibrate 5" in found.advice) == (scale != 1.0)
    assert found.coverage == pytest.approx(2.0 * norm.cdf(1.6448536 * scale) - 1.0, abs=0.005)
    assert found.interval[0] <= found.coverage <= found.interval[1] and found.calibrated_coverage is None
    tail = judged.tail_probabilities()
    labels = CalibrationLabels(
        np.arange(n), np.zeros(n, dtype=np.int64), tail, np.arange(n), "labels", are_components_held_out=False
    )
    calibrated = measure_number_calibration("E.x", judged, clusters, labels)
    assert calibrated.calibrated_coverage == pytest.approx(0.9, abs=0.01)
    assert "calibrated intervals" in {text for _, text in calibrated.plots[0].legend}
    assert "--calibrate" not in calibrated.advice and 0.9 in LEVELS


def test_largest_errors():
    found = largest_errors(
        ScoredNumbers(np.zeros(3), np.array([1.0, 2.0, 4.0]), np.array([1.0, -5.0, 2.0])), ["a", "b", "c"]
    )
    assert found["name"].tolist() == ["b", "c", "a"] and found["error"].tolist() == [-5.0, 2.0, 1.0]
    assert found["residual"].tolist() == [-2.5, 0.5, 1.0]


@pytest.mark.parametrize(
    ("difference", "tone", "text"),
    [
        ((-41.25, -50.0, -30.0), "good", "better than local by 41.2 in mean absolute error [30.0, 50.0]"),
        ((41.25, 30.0, 50.0), "bad", "worse than local by 41.2 in mean absolute error [30.0, 50.0]"),
        ((-1.0, -3.0, 2.0), "unclear", "no clear difference from local: +1.0 in mean absolute error [-2.0, +3.0]"),
    ],
)
def test_a_lower_error_is_better(difference, tone, text):
    measure, undefined = HeadlineMeasure.for_numbers(83.1), (float("nan"), float("nan"))
    equal = MeasureDifference(0.0, 0.0, 0.0, undefined)
    found = BaselineComparison("local", MeasureDifference(*difference, undefined), equal, True, measure)
    assert (found.tone, found.text) == (tone, text)


def test_tiny_numbers_have_significant_digits():
    measure, undefined = HeadlineMeasure.for_numbers(1.5e-12), (float("nan"), float("nan"))
    difference = MeasureDifference(-2.5e-13, -4e-13, -1.234e-13, undefined)
    found = BaselineComparison("local", difference, MeasureDifference(0.0, -1.0, 1.0, undefined), True, measure)
    assert found.text == "better than local by 2.50e-13 in mean absolute error [1.23e-13, 4.00e-13]"
    assert [number_format(scale) for scale in (2e-7, 1e-7, 9e-8, 123.0, 0.0)] == [",.9f", ",.9f", ".2e", ",.0f", ",.0f"]
