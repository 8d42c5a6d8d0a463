"""Reports with data: scores on held-out labels, plots, recommendations and their commands."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from browser import PROGRAM, browser
from command import relcrf_command
from html_page import Page
from tables import small_web

import relcrf
from relcrf import api
from relcrf.backends import checkpoints, run_folder
from relcrf.cli.options import HoldoutOptions
from relcrf.evaluation.intervals import MIN_CLUSTERS, UNDEFINED, Clusters
from relcrf.evaluation.measures import ScoredLabels
from relcrf.evaluation.predictions import MeasureDifference
from relcrf.evaluation.splits import random_folds
from relcrf.report import holdout as holdout_module
from relcrf.report import page
from relcrf.report.calibration import measure_calibration
from relcrf.report.confusion import MAX_STATES, count_confusions
from relcrf.report.headline import BaselineComparison, Headline
from relcrf.report.holdout import evaluate_holdout
from relcrf.report.influence import script_hash
from relcrf.report.results import build_sections
from relcrf.resources import resource_path

HELD = ("school", ["s1"])
OPTIONS = ("--data", "data", "--split", "school", "--holdout", "s1")


def hidden_labels(grounding, held):
    """Return the mask of the variables whose labels a split holds out."""
    return HoldoutOptions(split=held[0], holdout=held[1]).hidden(grounding) if held else None


def train_run(folder, model, data, backend="ess", held=HELD, **settings):
    """Write a run folder trained without the held-out labels."""
    grounding = model.ground(relcrf.Dataset(data))
    hidden = hidden_labels(grounding, held)
    monitor = checkpoints.CheckpointMonitor(run_folder.prepare_partial_folder(folder, resume=False), "test")
    fit = api.fit(model, grounding, backend, hidden=hidden, monitor=monitor, **settings)
    run_folder.save(fit.learned, folder, {"learn": 1.0})
    return folder


def evaluate_run(folder, data, held=HELD, **options):
    """Return the holdout evaluation of a run folder."""
    fit = api.load_fit(folder)
    grounding = fit.ground(relcrf.Dataset(data))
    return evaluate_holdout(fit, grounding, hidden_labels(grounding, held), options=OPTIONS, **options)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("holdout")


@pytest.fixture(scope="module")
def web(place):
    """Pages of which every seventh has a wrong label."""
    folder = small_web(place / "data", pages=150)
    pages = pd.read_csv(folder / "page.csv")
    pages.loc[::7, "category"] = pages["category"].shift(-3)[::7]
    pages.to_csv(folder / "page.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def run(place, web):
    return train_run(place / "web", relcrf.load(resource_path("models", "webkb.rcrf")), web)


@pytest.fixture(scope="module")
def holdout(run, web):
    return evaluate_run(run, web, with_curve=True, with_errors=True)


@pytest.fixture(scope="module")
def report(run, holdout):
    return page.render_report(run, holdout)


@pytest.fixture(scope="module")
def explained(run, web):
    return evaluate_run(run, web, n_explained=3)


@pytest.fixture(scope="module")
def shown(place):
    """Return a browser."""
    with browser(place / "profile") as started:
        yield started


@pytest.fixture(scope="module")
def explained_page(run, explained, place):
    """Return the path of a report with explanations."""
    path = place / "explained" / "report.html"
    page.write_report(run, path, explained)
    return path


def test_scores_equal_predict(run, web, holdout):
    fit = api.load_fit(run)
    grounding = fit.ground(relcrf.Dataset(web))
    held = hidden_labels(grounding, HELD)
    score = api.predict(fit, grounding, hidden=held).score(subset=held)
    assert list(holdout.predictions.systems) == ["majority", "local", "ess"]
    figures = holdout.predictions.estimates("ess", "Page.category")
    assert figures["accuracy"].value == pytest.approx(score.accuracy)
    assert figures["log_loss"].value == pytest.approx(-score.log_likelihood)
    (labels,) = holdout.labels
    assert (labels.n_variables, labels.n_labelled, labels.n_held_out) == (150, labels.n_labelled, score.n)
    assert sum(labels.values.values()) == labels.n_labelled == (grounding.states >= 0).sum()
    assert holdout.tables == {"page": 150, "page_words": 900, "link": 300}
    assert holdout.n_training_labels == labels.n_labelled - score.n == fit.summary["variables"]
    points = holdout.curve["Page.category"]
    assert points["labels"].tolist() == [round(share * holdout.n_training_labels) for share in (0.125, 0.25, 0.5, 1)]
    assert points["log_loss"][-1] == pytest.approx(-score.log_likelihood)


def test_report_with_data(run, holdout, report):
    made = report
    html = Page(made.html)
    html.require_closed()
    assert {f"Page.category: {what}" for what in ("accuracy", "log-loss, nats", "reliability", "learning curve")} <= {
        *made.plots
    }
    assert len(made.plots) == html.count("svg") == html.count("figure")
    figures = holdout.predictions.estimates("ess", "Page.category")
    cells = html.text("td")
    assert f"{figures['accuracy'].value:.3f}" in cells and f"{figures['roc_auc'].value:.3f}" in cells
    judged = holdout.predictions.pooled("ess", "Page.category")
    for state in np.unique(judged.truth):
        right = ((judged.truth == state) & (judged.modes == state)).sum()
        assert f"{right / (judged.truth == state).sum():.1%}" in cells, "recall"
        assert f"{right / max((judged.modes == state).sum(), 1):.1%}" in cells, "precision"
    low, high = figures["accuracy"].low, figures["accuracy"].high
    assert f"[{low:.3f}, {high:.3f}]" in html.text("small")
    assert f"{figures['accuracy'].value:.1%}" in html.text("strong")
    gain = holdout.predictions.differences("ess", "local", "Page.category")["accuracy"].value
    (sentence,) = [text for text in html.text("p") if "compared with the local model" in text]
    assert f"accuracy by {100 * gain:+.1f} percentage points (95 % CI:" in sentence
    assert "standard error" in html.text("th") and "Most confident errors" in html.text("h4")
    assert page.render_report(run, holdout).html == made.html
    # Commands contain the options of the report.
    (again,) = [text for text in html.text("pre") if text.startswith(f"relcrf train {run}/model.rcrf \\")]
    assert "--split school \\\n" in again and "--holdout s1" in again
    assert [text for text in html.text("pre") if text.startswith(f"relcrf explain {run} 'Page(p")]


def test_reproduction_command_trains_equal_weights(run, report, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    (again,) = [text for text in Page(report.html).text("pre") if "web-again" in text]
    words = shlex.split(again.replace("\\\n", ""))
    assert words[0] == "relcrf" and relcrf_command(capsys, monkeypatch, *words[1:])[0] == 0
    np.testing.assert_array_equal(np.load(place / "web-again" / "weights.npy"), np.load(run / "weights.npy"))


def test_commands_of_the_next_steps_run(place, web, monkeypatch, capsys):
    """Use a run with non-default settings that did not converge and is underconfident."""
    settings = {"max_iterations": 3, "l2": 30.0}
    run = train_run(place / "a run", relcrf.load(resource_path("models", "webkb.rcrf")), web, **settings)
    found = Page(page.render_report(run, evaluate_run(run, web)).html).text("pre")
    steps = [shlex.split(text) for text in found if text.startswith("relcrf ") and "\\\n" not in text]
    assert [step[1] for step in steps] == ["train", "train", "explain", "evaluate", "weights"]
    longer, calibrated = steps[:2]
    assert {"--split", "--holdout", "s1"} <= {*steps[-1]}, "standard errors are computed on the training labels"
    assert longer.count("--set") == 2 and {"max_iterations=10000", "l2=30.0"} <= {*longer}
    assert {"--calibrate", "max_iterations=3", "l2=30.0"} <= {*calibrated}
    monkeypatch.chdir(place)
    for step in steps:
        code, _, err = relcrf_command(capsys, monkeypatch, *step[1:])
        assert code == 0, (step, err)


def test_report_without_held_out_labels(run, web, place, monkeypatch, capsys):
    """The headline refers to commands that cross-validate, or train and evaluate; they run as printed."""
    monkeypatch.chdir(place)
    html = Page(page.render_report(Path("web"), evaluate_run(run, web, held=None)).html)
    html.require_closed()
    assert "Not evaluated on held-out labels." in html.text("span")
    steps = [shlex.split(text) for text in html.text("pre") if text.startswith("relcrf ") and "\\\n" not in text]
    assert [step[1] for step in steps[:3]] == ["evaluate", "train", "report"]
    for step in steps[1:3]:
        code, out, err = relcrf_command(capsys, monkeypatch, *step[1:])
        assert code == 0, (step, err)
    assert "held-out labels." in out, "the report of the second run has a headline"
    assert [text for text in html.text("p") if text.startswith("No labels are held out of these data")]
    assert "standard error" not in html.text("th") and "--standard-errors" in html.text("code")
    assert "150" in html.text("dd") and "reliability" not in " ".join(html.text("figcaption"))


def test_held_out_labels_seen_in_training_give_a_warning(report, place, web):
    seen = train_run(place / "seen", relcrf.load(resource_path("models", "webkb.rcrf")), web, held=None)
    for made, is_seen in ((page.render_report(seen, evaluate_run(seen, web)), True), (report, False)):
        assert any("probably used" in text for text in made.warnings) == is_seen


def test_all_labels_held_out_gives_no_baselines(run, web):
    found = evaluate_run(run, web, held=("school", ["s0", "s1", "s2"]))
    assert list(found.predictions.systems) == ["ess"]
    made = page.render_report(run, found)
    Page(made.html).require_closed()
    assert [text for text in made.warnings if "not compared with the local model" in text]


def test_local_run_has_no_relational_gain(place, web):
    run = train_run(place / "alone", relcrf.load(resource_path("models", "webkb.rcrf")), web, "local")
    found = evaluate_run(run, web)
    assert list(found.predictions.systems) == ["majority", "local"]
    made = page.render_report(run, found)
    assert "compared with the local model" not in made.html and not [
        text for text in made.warnings if "not compared" in text
    ]


def test_learning_curve_omits_fractions_with_fewer_labels_than_folds(monkeypatch):
    """A backend may divide the labels into five folds; an eighth of 16 labels are two."""
    model = relcrf.parse("domain D = { u, v } entity E { predict d : D } template s(e: E) over e.d")
    grounding = model.ground(relcrf.Dataset({"e": {"id": range(20), "d": ["u", "v"] * 10}}))
    hidden = np.arange(20) >= 16
    predict_fold = holdout_module.predict_fold

    def predict_with_folds(problem, fold, system, **options):
        random_folds(fold.learning_problem(problem), 5, seed=0)
        return predict_fold(problem, fold, system, **options)

    monkeypatch.setattr(holdout_module, "predict_fold", predict_with_folds)
    fit = api.fit(model, grounding, "local", hidden=hidden)
    found = evaluate_holdout(fit, grounding, hidden, with_curve=True)
    assert found.curve["E.d"]["labels"].tolist() == [8, 16]


HOSTILE = "</style><script>alert(1)</script>"


def test_hostile_data_is_escaped(place):
    model = relcrf.parse("domain D = open\nentity E { predict d : D }\ntemplate t(e: E) over e.d\n")
    values = [HOSTILE, f"{HOSTILE}b", "$x^$"]
    names = [f"{k}<img src=x>\x1b'" for k in range(90)]
    table = pd.DataFrame({"id": names, "d": [values[k % 7 % 3] for k in range(90)], "g": [k % 2 for k in range(90)]})
    run = train_run(place / "<i>hostile", model, {"e": table}, held=("g", ["1"]))
    made = page.render_report(run, evaluate_run(run, {"e": table}, held=("g", ["1"])))
    html = Page(made.html)
    html.require_closed()
    assert not {"script", "img", "i"} & {tag for tag, _ in html.elements}
    assert HOSTILE in html.text("th") and "\x1b" not in " ".join(html.text("pre"))


def test_confusions_of_many_states_are_pairs():
    rng = np.random.default_rng(0)
    k = MAX_STATES + 1
    truth = rng.integers(k, size=500)
    probabilities = rng.dirichlet(np.ones(k), size=500)
    found = count_confusions(
        ScoredLabels(probabilities, truth), [f"v{s}" for s in range(k)], [str(n) for n in range(500)]
    )
    modes = probabilities.argmax(axis=1)
    counts = {
        (f"v{t}", f"v{m}"): int(((truth == t) & (modes == m)).sum()) for t in range(k) for m in range(k) if t != m
    }
    assert found.counts == () and found.pairs["count"][0] == max(counts.values())
    assert all(counts[truth, answer] == count for truth, answer, count, *_ in found.pairs.rows())
    surest = np.flatnonzero(modes != truth)[probabilities.max(axis=1)[modes != truth].argmax()]
    assert found.mistakes["name"][0] == str(surest)
    few = count_confusions(ScoredLabels(probabilities[:, :2], truth % 2), "ab", [str(n) for n in range(500)])
    modes = probabilities[:, :2].argmax(axis=1)
    pairs = [(truth % 2 == label) & (modes == answer) for label in range(2) for answer in range(2)]
    assert [count for row in few.counts for count in row] == [int(pair.sum()) for pair in pairs]


def test_confusions_of_very_many_states_need_no_matrix():
    k, truth = 60_000, np.array([59_999, 59_999, 7, 3], dtype=np.int32)
    probabilities = np.zeros((4, k))
    probabilities[np.arange(4), [59_998, 59_998, 8, 3]] = 1.0
    found = count_confusions(ScoredLabels(probabilities, truth), [f"v{s}" for s in range(k)], list("abcd"))
    assert found.counts == () and found.pairs.rows() == [
        ("v59999", "v59998", 2, 2, "a (100%), b (100%)"),
        ("v7", "v8", 1, 1, "c (100%)"),
    ]


@pytest.mark.parametrize(
    ("said", "happens", "words"),
    [(0.95, 0.7, "overconfident"), (0.6, 0.9, "underconfident"), (0.8, 0.8, "within sampling error")],
)
def test_calibration_advice(said, happens, words):
    n = 600
    truth = (np.arange(n) >= happens * n).astype(np.int64)
    judged = ScoredLabels(np.tile([said, 1 - said], (n, 1)), truth)
    found = measure_calibration("E.d", judged, Clusters.from_variables(np.arange(n), np.arange(n)))
    assert words in found.advice and ("--calibrate 5" in found.advice) == (said != happens)
    assert f"{said:.1%}" in found.advice and f"{happens:.1%}" in found.advice
    assert found.interval[0] <= said - happens <= found.interval[1]


EQUAL = MeasureDifference(0.0, -0.0, 0.0, UNDEFINED)


@pytest.mark.parametrize(
    ("difference", "units", "tone", "words"),
    [
        ((0.1, 0.05, 0.15), 10, "good", "Better than majority by 10.0 points of accuracy [5.0, 15.0]"),
        ((-0.1, -0.15, -0.05), 10, "bad", "Worse than majority by 10.0 points of accuracy [5.0, 15.0]"),
        ((0.1, 0.0, 0.15), 10, "unclear", "No clear difference from majority: +10.0 points of accuracy [+0.0, +15.0]"),
        ((0.1, 0.1, 0.1), 9, "unclear", "No clear difference from majority: +10.0 points"),
    ],
)
def test_headline_is_green_only_if_the_interval_excludes_zero(difference, units, tone, words):
    """An interval from fewer than ten resampled units gives no verdict."""
    compared = BaselineComparison("majority", MeasureDifference(*difference, UNDEFINED), EQUAL, units >= MIN_CLUSTERS)
    found = Headline("E.d", "Accuracy 70.0%", (compared,), 1200, 1)
    assert found.text.startswith(words) and found.text.endswith(", on 1,200 held-out labels.")
    assert [style for style, _ in found.parts if style] == [tone]


def test_headline_reports_the_log_loss_if_the_accuracies_do_not_differ():
    loss = MeasureDifference(-0.08, -0.125, -0.034, UNDEFINED)
    found = Headline("E.d", "Accuracy 70.0%", (BaselineComparison("local", EQUAL, loss, is_reliable=True),), 100, 1)
    assert "[-0.0, +0.0], but better probabilities: log-loss lower by 0.080 [0.034, 0.125], on" in found.text
    assert [style for style, _ in found.parts if style] == ["unclear", "good"]
    clear = BaselineComparison("local", MeasureDifference(0.1, 0.05, 0.15, UNDEFINED), loss, is_reliable=True)
    assert "log-loss" not in Headline("E.d", "Accuracy 70.0%", (clear,), 100, 1).text


def test_gain_by_labelled_neighbours(holdout, report):
    """The rows partition the held-out labels, and their accuracies are those of the labels that they contain."""
    (section,) = build_sections(holdout)
    rows, results = section.neighbour_gains, holdout.predictions
    n_neighbours = holdout.n_neighbours["Page.category"]
    assert sum(row.n_labels for row in rows) == section.labels.n_held_out == len(n_neighbours)
    for system in ("ess", "local"):
        correct = results.pooled(system, "Page.category").item_measures["accuracy"]
        for row in rows:
            low, high = row.measures[system][1]
            assert low <= row.measures[system][0] <= high
            if row.neighbours in ("0", "1", "2"):
                mask = n_neighbours == int(row.neighbours)
                assert row.n_labels == mask.sum() and row.measures[system][0] == pytest.approx(correct[mask].mean())
    total = sum(row.n_labels * row.gain[0] for row in rows) / len(n_neighbours)
    assert total == pytest.approx(section.gain.accuracy.value)
    assert "Gain by labelled neighbours" in Page(report.html).text("h4")


def test_headline_equals_the_differences(holdout, report):
    (found,) = report.headlines
    html = Page(report.html)
    for one, name in zip(found.comparisons, ("majority", "local"), strict=True):
        assert one.difference == holdout.predictions.differences("ess", name, "Page.category")["accuracy"]
        assert any(one.text[1:] in text for text in html.text("span"))


@pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
def test_page_in_a_browser(explained_page, shown, tmp_path):
    """Check that the page never scrolls sideways, and that its text has sufficient contrast."""
    papers = []
    for width in (320, 1600):
        for dark in (False, True):
            shown.open(explained_page, width, dark=dark)
            assert shown.ask("document.documentElement.scrollWidth") == width
            out = "e => !e.closest('.table, .text, .command, svg') && e.getBoundingClientRect().right > innerWidth + 1"
            assert shown.ask(f"[...document.querySelectorAll('body *')].filter({out}).length") == 0
            papers.append(shown.ask("getComputedStyle(document.body).backgroundColor"))
            assert shown.ask("document.querySelector('.n').closest('.table').scrollWidth > 0")
            assert shown.ask("getComputedStyle(document.querySelector('td.n')).textAlign") == "right"
            for element in ("p", ".text .kd", ".text .c1", ".tile small", ".verdict", "svg text"):
                assert contrast(shown, element) >= 4.5, (element, dark)
    assert papers[0] == papers[2] != papers[1] == papers[3]
    assert shown.ask("document.querySelector('nav a').click(), location.hash") == "#warnings"
    shown.picture(tmp_path / "page.png", whole=False)
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
def test_long_names_and_large_numbers_fit_on_the_page(explained_page, shown, tmp_path):
    html = explained_page.read_text(encoding="utf-8")
    html = re.sub(r"(<h[1-4][^>]*>)", rf"\g<1>{'name' * 100}", html)
    html = re.sub(r"(<strong class=[^>]*>)[^<]+", r"\g<1>-290,529,075,782,123", html)
    (tmp_path / "report.html").write_text(html, encoding="utf-8")
    for width in (400, 700, 1280):
        shown.open(tmp_path / "report.html", width)
        assert shown.ask("document.documentElement.scrollWidth") == width
        wide = "[...document.querySelectorAll('.tile')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
        assert shown.ask(wide) == 0


def test_explained_links(explained, explained_page):
    """The links and pictures are those of the explanations of a sample; the policy allows exactly the script of the page."""
    made = explained_page.read_text(encoding="utf-8")
    html = Page(made)
    assert len(explained.explanations) == 3
    parts = [part for one in explained.explanations for part in one.contributions if part.neighbours]
    largest = max(parts, key=lambda part: abs(part.amount))
    assert f"{largest.amount:+.3f}" in html.text("td") and str(largest.neighbours[0]) in " ".join(html.text("td"))
    (script,) = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    (policy,) = [a["content"] for tag, a in html.elements if tag == "meta" and "Security" in a.get("http-equiv", "")]
    assert f"script-src '{script_hash(script)}';" in policy and "unsafe-inline" not in policy.split("script-src")[1]
    labels = [a["aria-label"] for tag, a in html.elements if tag == "g" and a.get("role") == "button"]
    assert labels and set(labels) <= {*html.text("li")}, "the page has the same texts without the script"


@pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
def test_neighbourhood_shows_a_neighbour_on_click_and_key(explained_page, shown):
    shown.open(explained_page, 900)
    picture = "document.querySelector('.neighbourhood')"
    disc = f"{picture}.querySelector('[role=button]')"
    for event in ("new MouseEvent('click')", "new KeyboardEvent('keydown', {key: 'Enter'})"):
        shown.ask(f"{picture}.querySelector('output').textContent = ''")
        shown.ask(f"{disc}.dispatchEvent({event})")
        text = shown.ask(f"{picture}.querySelector('output').textContent")
        assert text and text == shown.ask(f"{disc}.getAttribute('aria-label')")
    assert shown.ask(f"{disc}.getAttribute('aria-pressed')") == "true"


def contrast(shown, element):
    """Return the WCAG 2 contrast ratio of a text and its background."""
    text, paper = shown.ask(
        f"""(() => {{
            const e = document.querySelector({element!r});
            const own = getComputedStyle(e);
            let behind = e;
            while (getComputedStyle(behind).backgroundColor == "rgba(0, 0, 0, 0)") behind = behind.parentElement;
            const colour = e.closest("svg") ? own.fill : own.color;
            return [colour, getComputedStyle(behind).backgroundColor].map(c => c.match(/[\\d.]+/g).slice(0, 3).map(Number));
        }})()"""
    )
    one, other = sorted((luminance(text), luminance(paper)), reverse=True)
    return (one + 0.05) / (other + 0.05)


def luminance(colour):
    parts = np.array(colour) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
