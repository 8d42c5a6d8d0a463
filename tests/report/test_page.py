"""Reports of runs of `ess` and `trmrf`: contents, escaping, no scripts, and reproducible bytes."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from html_page import Page
from tables import small_web
from traits import TEXT, traits_world

import relcrf
from relcrf import api
from relcrf.backends import checkpoints, run_folder
from relcrf.errors import DataError, UsageError
from relcrf.learning.moments import Moments
from relcrf.report import moments, page
from relcrf.report.weights import MAX_WEIGHTS
from relcrf.resources import resource_path

UNSIGNED = shutil.ignore_patterns("manifest.json")
"""Ignore pattern for copies of runs that are changed: without the manifest, the hashes are not checked."""


def train(folder, model, data, backend, **settings):
    """Write a run folder as the command does."""
    monitor = checkpoints.CheckpointMonitor(run_folder.prepare_partial_folder(folder, resume=False), "test")
    fit = api.fit(model, model.ground(relcrf.Dataset(data)), backend, monitor=monitor, **settings)
    run_folder.save(fit.learned, folder, {"learn": fit.seconds}, monitor.seconds)
    return folder


@pytest.fixture(scope="module")
def ess(tmp_path_factory):
    place = tmp_path_factory.mktemp("ess")
    return train(place / "web", relcrf.load(resource_path("models", "webkb.rcrf")), small_web(place / "data"), "ess")


@pytest.fixture(scope="module")
def trmrf(tmp_path_factory):
    place = tmp_path_factory.mktemp("trmrf")
    return train(place / "nations", relcrf.parse(TEXT), traits_world(), "trmrf", l1=1.0)


@pytest.fixture(scope="module")
def ess_page(ess):
    return page.render_report(ess)


@pytest.fixture(scope="module")
def trmrf_page(trmrf):
    return page.render_report(trmrf)


def rows(html):
    """Return the cells of all tables, a list per row."""
    found = []
    for part in html.split("<tr>")[1:]:
        cells = Page(f"<table><tr>{part.split('</tr>')[0]}</tr></table>")
        found.append([text for where, text in cells.texts if where in ("td", "th")])
    return found


def test_report_of_an_ess_run(ess, ess_page):
    made = ess_page
    html = Page(made.html)
    html.require_closed()
    assert html.text("h1") == ["web"] and html.text("title") == ["web: ess"]
    assert html.text("h2") == [
        *(
            "Results",
            "Next steps",
            "Model",
            "Data",
            "Training",
            "Optimisation",
            "Moments",
            "Largest weights",
            "Reproduction",
        ),
    ]
    assert html.text("h3") == ["Templates", "Summary", "Seconds", "Settings", "structure", "weights"]
    targets = {attributes["id"] for tag, attributes in html.elements if tag == "section" and "id" in attributes}
    links = [attributes["href"][1:] for tag, attributes in html.elements if tag == "a"]
    assert set(links) == targets and len(targets) == len(html.text("h2"))
    assert "converged" in html.text("span")
    facts = dict(zip(html.text("dt"), html.text("dd"), strict=True))
    summary = api.load_fit(ess).summary
    assert facts["variables"] == str(summary["variables"]) and facts["tolerance"] == "1e-05" and facts["l2"] == "1"
    assert {
        "structure: objective over iterations",
        "weights: objective over seconds",
        "weights: gradient over iterations",
    } <= {*made.plots}
    assert len(made.plots) == html.count("svg") == html.count("figure")
    table = rows(made.html)
    assert ["prior", "60", "5", "5"] in table
    values = sorted((abs(v) for v in api.load_fit(ess).weights()["weight"]), reverse=True)
    shown = [abs(float(row[0])) for row in table if row[0][0] in "+-"]
    assert shown == pytest.approx(values[:MAX_WEIGHTS], abs=1e-4)
    moments = api.load_fit(ess).moments()
    farthest = np.argsort(-np.abs(moments["standard_errors"]), kind="stable")[0]
    names = [moments[name][farthest] for name in ("template", "key", "feature", "pattern")]
    numbers = [f"{moments[name][farthest]:,.6g}" for name in ("empirical", "expected")]
    assert [*filter(None, names), *numbers, f"{moments['standard_errors'][farthest]:.3g}"] in table
    (status,) = [row[1] for row in table if row[0] == "weights" and len(row) == 8]
    assert status == summary["weights_status"]


def test_report_of_a_trmrf_run(trmrf, trmrf_page):
    made = trmrf_page
    html = Page(made.html)
    html.require_closed()
    assert {"errors", "signals", "induction: nonzero weights over iterations"} <= set(made.plots)
    learned = api.load_fit(trmrf).learned
    legend = html.text("li")
    for figure in ("errors", "signals"):
        for name, found in learned.histograms[figure].items():
            share = f"{found.n_beyond / found.total:.1%}"
            assert f"{name}: {share} of {found.total:,} cells exceed ±0.1" in legend
    assert legend.count("threshold") == 2
    assert {"Learned graph", "Largest candidate weights"} <= {*html.text("h2")} and made.plots[-1].endswith(" edges")
    table = rows(made.html)
    fit = api.load_fit(trmrf)
    candidates = {t.name for t in fit.learned.spec.templates if t.is_candidate}
    frame = fit.weights()
    chosen = [k for k, name in enumerate(frame["template"]) if name in candidates]
    best = max(chosen, key=lambda k: abs(frame["weight"][k]))
    gain, support = (fit.learned.vectors[name][best] for name in ("gain", "support"))
    assert [
        f"{frame['weight'][best]:+.4f}",
        *(frame[column][best] for column in ("template", "key", "feature", "pattern")),
        f"{gain:.4g}",
        f"{support:.4g}",
    ] in table


def test_tables_have_captions(ess_page, trmrf_page):
    """Each table follows a paragraph or plots that explain it."""
    for html in (ess_page.html, trmrf_page.html):
        assert html.count("<table>") == len(re.findall(r'</p>\s*<div class="table"', html)) > 0


def test_horizontal_axis_of_moments_has_few_ticks(ess):
    """The labels of all eleven powers of ten from -1e4 to 1e5 would overlap."""
    learned = api.load_fit(ess).learned
    wide = np.linspace(-1e4, 1e5, len(learned.moments.empirical))
    summary = moments.summarise_moments(dataclasses.replace(learned, moments=Moments(wide, wide, np.ones_like(wide))))
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", summary.plot.svg)
    assert 3 <= texts.index("empirical moment") <= moments.N_TICKS + 1


def test_content_security_policy_forbids_scripts(ess_page):
    policies = [
        attributes["content"]
        for tag, attributes in Page(ess_page.html).elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    (policy,) = policies
    assert policy.startswith("default-src 'none';") and "script" not in policy and "http" not in policy


HOSTILE = "<script>alert(1)</script>"


def test_hostile_run_is_escaped(tmp_path):
    model = relcrf.parse(
        f'domain D = {{ "{HOSTILE}", b }}\ndomain W = open\nentity E {{ predict d : D w : W }}\n'
        f"template t(e: E) over e.d per e.w # {HOSTILE}\n"
    )
    data = {"e": {"id": [1, 2, 3], "d": [HOSTILE, "b", "b"], "w": ["</style><img src=x onerror=alert(1)>", "$", "$"]}}
    run = train(tmp_path / "<b onclick=alert(1)>$x^$", model, data, "ess")
    (run / "manifest.json").unlink()
    for name, change in {
        "log.jsonl": lambda text: text.replace("structure", "</svg>\\ud800<script>$^$</script>"),
        "run.json": lambda text: text.replace('"l2"', '"<i>\\ud800"', 1),
        "histograms.json": lambda text: json.dumps(
            {HOSTILE: {HOSTILE: {"edges": [0, 0.5, 1], "counts": [1, 0], "threshold": 0.5, "n_beyond": 0}}}
        ),
    }.items():
        path = run / name
        path.write_text(change(path.read_text() if path.exists() else ""))
    made = page.write_report(run, tmp_path / "report.html")
    read = (tmp_path / "report.html").read_text()
    assert read == made.html
    html = Page(read)
    html.require_closed()
    assert html.text("h1") == ["<b onclick=alert(1)>$x^$"]
    assert HOSTILE in html.text("figcaption")
    assert not {"script", "img", "b", "i"} & {tag for tag, _ in html.elements}
    cells = {cell for row in rows(read) for cell in row}
    assert {"</style><img src=x onerror=alert(1)>", HOSTILE} <= cells


def test_equal_runs_have_equal_reports(tmp_path, trmrf, monkeypatch):
    again = train(tmp_path / "nations", relcrf.parse(TEXT), traits_world(), "trmrf", l1=1.0)
    assert (again / "histograms.json").read_bytes() == (trmrf / "histograms.json").read_bytes()
    assert "seconds" not in (again / "log.jsonl").read_text()
    shutil.copy(trmrf / "timings.json", again)
    pages = []
    for folder in (again.parent, trmrf.parent):
        monkeypatch.chdir(folder)
        pages.append(page.render_report(Path("nations")).html)
    assert pages[0] == pages[1]


def test_runs_without_optional_files_have_a_report(tmp_path, trmrf):
    run = shutil.copytree(trmrf, tmp_path / "old", ignore=UNSIGNED)
    (run / "histograms.json").unlink()
    (run / "timings.json").write_text('{"ground": 0.5, "learn": 1.5}')
    made = page.render_report(run)
    assert made.plots and not [title for title in made.plots if "seconds" in title]
    html = Page(made.html)
    assert "Distributions" not in html.text("h2") and "1.5" in html.text("dd")
    (run / "log.jsonl").write_text("")
    assert page.render_report(run).plots == ("7 nodes, 24 edges",)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("histograms.json", "[1]"),
        (
            "histograms.json",
            '{"errors": {"now": {"edges": [0, 1], "counts": [1, 2], "threshold": null, "n_beyond": 0}}}',
        ),
        ("histograms.json", '{"errors": {"now": {"edges": [0, 1], "counts": [1], "threshold": "x", "n_beyond": 0}}}'),
        ("timings.json", "[1]"),
        ("timings.json", '{"steps": [[1]]}'),
        ("timings.json", '{"learn": null}'),
        ("log.jsonl", '{"stage": "unary"}\n'),
        ("log.jsonl", "[]\n"),
        ("log.jsonl", '{"stage": "s", "iteration": 1e400, "value": 1, "gradient": 1, "weights": 1}\n'),
        ("run.json", "{}"),
    ],
)
def test_damaged_files_raise_e336(tmp_path, trmrf, name, text):
    run = shutil.copytree(trmrf, tmp_path / "run", ignore=UNSIGNED)
    (run / name).write_text(text)
    with pytest.raises(DataError, match="E336") as caught:
        page.render_report(run)
    assert len(caught.value.diagnostics) == 1 and name in caught.value.diagnostics[0].message


def test_diverged_optimiser_has_a_report(tmp_path, ess):
    run = shutil.copytree(ess, tmp_path / "run", ignore=UNSIGNED)
    moments = np.load(run / "moments.npy")
    moments[:, ::2], moments[1, 1::4] = 1e308, np.nan
    np.save(run / "moments.npy", moments)
    values = (1.0, 1e308, -1e308, float("nan"), float("inf"))
    entries = [
        {"stage": "s", "iteration": k, "value": value, "gradient": value, "weights": k}
        for k, value in enumerate(values)
    ]
    (run / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    made = page.render_report(run)
    assert len(made.plots) == 4
    Page(made.html).require_closed()


def test_templates_that_do_not_match_their_weights_raise_e336(tmp_path, trmrf):
    run = shutil.copytree(trmrf, tmp_path / "run", ignore=UNSIGNED)
    facts = json.loads((run / "run.json").read_text())
    facts["templates"][0]["patterns"].append("one more")
    (run / "run.json").write_text(json.dumps(facts))
    with pytest.raises(DataError, match="E336"):
        page.render_report(run)


@pytest.mark.parametrize("name", ["report", "report.txt", "folder.html"])
def test_invalid_output_paths_raise_e312(tmp_path, ess, name):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(UsageError, match="E312"):
        page.write_report(ess, tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.html"]
