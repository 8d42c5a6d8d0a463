"""What notebooks and terminals see of relcrf's objects: short, escaped, and moving while work goes on."""

import io
import re
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import relcrf
from relcrf import progress_reporting
from relcrf.text.html_table import html_table
from relcrf.text.notebook import MAX_POINTS, line_chart

MODEL = """
domain D = open
entity E { predict d : D }
relation R(a: E, b: E)
template prior(e: E) over e.d
template tie(a: E, b: E) where R(a, b) over a.d == b.d
"""
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def model():
    return relcrf.parse(MODEL)


@pytest.fixture(scope="module")
def data():
    things = pd.DataFrame({"id": ["a", "b", EVIL], "d": [EVIL, "x", None], EVIL: [1, 2, 3]})
    return relcrf.Dataset({"e": things, "r": pd.DataFrame({"a": ["a", "b"], "b": ["b", EVIL]})})


def test_objects_show_themselves(model, data):
    fit = model.fit(data, "ess")
    found = fit.predict(data)
    shown = [
        (data, "Dataset(the given tables: e, r)"),
        (model.ground(data), "Grounding(3 variables, 5 factors of prior, tie)"),
        (fit, "Fit(ess: 3 weights of prior, tie; converged"),
        (found, "Prediction(1 query variables of E.d; exact)"),
        (found.table(), "Frame(1 rows: id, d, probability, joint"),
    ]
    for thing, line in shown:
        assert repr(thing).startswith(line)
        assert len(repr(thing)) < 300
        html = thing._repr_html_()
        assert "<td>" in html and "<script>" not in html
    assert "&lt;script&gt;" in data._repr_html_() and "&lt;script&gt;" in found._repr_html_()
    assert "largest weights" in fit._repr_html_()
    assert found.table().to_dicts()[0]["id"] == EVIL


def svg_elements(html):
    return [
        ElementTree.fromstring(svg) for svg in re.findall(r"<svg xmlns.*?</svg>(?=</div>|<svg xmlns)", html, re.DOTALL)
    ]


def texts(svg):
    return [element.text for element in svg.iter() if element.tag.endswith("}text")]


def test_model_is_shown_as_a_diagram():
    model = relcrf.parse(
        "domain D = { x, y }\ndomain Word = open\nentity Page { predict topic : D  length : real  words : bag of Word }\n"
        "entity Site { }\nrelation Link(source: Page, target: Page)\nrelation On(page: Page, site: Site)\n"
        "relation Tag(page: Page, word: Word)\npredict relation Spam(s: Site)\n"
        "derive Near(a: Page, b: Page) where On(a, s) and On(b, s)\n"
        "template t(p: Page) over p.topic\ntemplate n(a: Page, b: Page) where Near(a, b) over a.topic, b.topic\n"
    )
    (svg,) = svg_elements(model._repr_html_())
    shown = texts(svg)
    page = shown.index("Page")
    assert shown[page : page + 6] == [
        "Page",
        "predict topic: D",
        "length: real",
        "words: bag of Word",
        "↻ Link",
        "↻ derive Near",
    ]
    assert {"Site", "• predict Spam", "Word: values", "On", "Tag", "page", "site", "word"} <= {*shown}
    marked = [element.text for element in svg.iter() if element.get("fill") == "var(--mark)"]
    assert marked == ["predict topic: D", "• predict Spam"]
    assert "--mark: " in model._repr_html_(), "a notebook does not define the colours"


def test_fit_is_shown_with_its_curves():
    model, data = relcrf.datasets.load("web")
    fit = model.fit(data, "ess")
    charts = svg_elements(fit._repr_html_())
    stages = list(dict.fromkeys(step["stage"] for step in fit.learned.log))
    assert [texts(chart)[0].split(":")[0] for chart in charts] == [f"objective of {s} by iteration" for s in stages]
    for chart, stage in zip(charts, stages, strict=True):
        values = [step["value"] for step in fit.learned.log if step["stage"] == stage]
        (line,) = (element for element in chart.iter() if element.tag.endswith("}polyline"))
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        assert len(points) == len(values) and points[0][1] == min(y for _, y in points), "large values are at the top"
    assert line_chart([1.0], "x") == line_chart([], "x") == line_chart([float("nan")] * 3, "x") == ""
    assert line_chart([1.0, float("inf"), 1.0], "<x>").count("&lt;x&gt;") == 2
    assert len(re.findall(r"[\d.]+,[\d.]+", line_chart(np.arange(5000.0), "x").split("points=")[1])) == MAX_POINTS


def test_numbers_are_shown_with_bars(model, data):
    shown = model.fit(data, "ess").predict(data)._repr_html_()
    widths = list(map(int, re.findall(r"linear-gradient\(90deg, [^%]* (\d+)%", shown)))
    found = model.fit(data, "ess").predict(data).table()
    numbers = [cell for row in found.rows() for cell in row if isinstance(cell, float)]
    assert widths == [round(100 * number) for number in numbers]
    assert "50%" in html_table(["w"], [[-2.0], [4.0]], bars=["w"]) and "linear" not in html_table(["w"], [[0.5]])


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal shows."""
    out = io.StringIO()
    monkeypatch.setattr(progress_reporting, "Console", lambda **_: Console(file=out, force_terminal=True, width=120))
    return out


def test_scripts_are_silent_unless_asked(model, data, terminal):
    fit = model.fit(data, "ess")
    fit.predict(data)
    assert terminal.getvalue() == ""
    with relcrf.progress():
        model.fit(data, "ess")
    assert "learning: weights" in terminal.getvalue()
    terminal.truncate(0)
    fit.predict(data, progress=True)
    assert "grounding" in terminal.getvalue()


def test_progress_can_be_switched_off_for_a_call(model, data, terminal):
    with relcrf.progress():
        model.fit(data, "ess", progress=False)
    assert terminal.getvalue() == ""


def test_threads_show_their_own_progress(model, data, terminal):
    def work():
        model.fit(
            relcrf.Dataset({"e": pd.DataFrame({"id": [1, 2], "d": ["x", "y"]}), "r": {"a": [1], "b": [2]}}),
            "ess",
            progress=True,
        )

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "learning" in terminal.getvalue()


def test_nothing_is_drawn_into_a_file(model, data, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(progress_reporting, "Console", lambda **_: Console(file=out, force_terminal=False))
    model.fit(data, "ess", progress=True)
    assert out.getvalue() == ""


class Output:
    """Stands for the widget that a notebook shows."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def clear_output(self, wait=False):
        pass

    def close(self):
        pass


@pytest.fixture
def notebook(monkeypatch):
    """Enough of a notebook for Rich; gives what is displayed."""
    displayed = []
    for name, members in {
        "IPython": {},
        "IPython.display": {"display": lambda *things, **_: displayed.extend(things)},
        "ipywidgets": {"Output": Output},
    }.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(progress_reporting, "Console", lambda **_: Console(force_jupyter=True))
    return displayed


def test_notebooks_show_progress_by_themselves(model, data, notebook):
    model.fit(data, "ess")
    widget, *drawn = notebook
    assert isinstance(widget, Output)
    assert any("━" in thing.html for thing in drawn), "a bar, inside the widget"


def test_notebooks_can_be_silent(model, data, notebook):
    with relcrf.progress(False):
        model.fit(data, "ess")
    assert notebook == []
    model.fit(data, "ess", progress=False)
    assert notebook == []
