"""The Python interface, from tables in memory to frames."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from tables import small_web

import relcrf
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.resources import resource_path


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    return small_web(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def model():
    return relcrf.load(resource_path("models", "webkb.rcrf"))


def test_fit_and_predict_with_frames(web, model):
    tables = {path.stem: pd.read_csv(path) for path in web.glob("*.csv")}
    fit = model.fit(relcrf.Dataset(tables), backend="ess", l2=0.5)
    assert fit.learned.settings["l2"] == 0.5
    from_frames = fit.predict(relcrf.Dataset(tables)).table().to_pandas()
    from_files = fit.predict(relcrf.Dataset(web)).table("Page.category").to_pandas()
    pd.testing.assert_frame_equal(from_frames, from_files)
    assert list(from_files.columns[:4]) == ["id", "category", "probability", "joint"]
    arrow = fit.predict(relcrf.Dataset(web)).table().to_arrow()
    assert arrow.num_rows == 12


def test_saved_and_loaded_fits_predict_alike(web, model, tmp_path):
    fit = model.fit(relcrf.Dataset(web), "ess")
    fit.save(tmp_path / "run")
    again = relcrf.load_fit(tmp_path / "run")
    first, second = (f.predict(relcrf.Dataset(web)).probabilities() for f in (fit, again))
    np.testing.assert_array_equal(first, second)
    weights = again.weights().to_pandas()
    assert set(weights["template"]) == {"prior", "word", "linked"}
    assert len(weights) == fit.learned.layout.size
    with pytest.raises(relcrf.UsageError, match="already exists"):
        fit.save(tmp_path / "run")


def test_relations_help_where_they_should(web, model):
    found = model.evaluate(relcrf.Dataset(web), "school", "ess").predictions
    local, ess = (found.score(backend, "Page.category").accuracy for backend in ("local", "ess"))
    assert ess > local + 0.1


def test_probabilities_are_those_of_enumeration(model):
    """A whole prediction by hand: three pages in a chain, one labelled, with fixed weights."""
    text = """
    domain D = { x, y }
    entity E { predict d : D  bias : real }
    relation R(a: E, b: E)
    template t(e: E) over e.d == x by e.bias init 1 fixed
    template r(a: E, b: E) where R(a, b) over a.d == b.d init 0.5 fixed
    """
    tables = {
        "e": pd.DataFrame({"id": [1, 2, 3], "d": [None, None, "y"], "bias": [0.3, -0.2, 5.0]}),
        "r": pd.DataFrame({"a": [1, 2], "b": [2, 3]}),
    }
    data = relcrf.Dataset(tables)
    found = relcrf.parse(text).fit(data, "ess").predict(data).probabilities()
    # d1, d2 in {x, y}; d3 = y. Score: 0.3 [d1=x] - 0.2 [d2=x] + 0.5 [d1=d2] + 0.5 [d2=y].
    joint = np.array([[np.exp(0.3 - 0.2 + 0.5), np.exp(0.3 + 0.5)], [np.exp(-0.2), np.exp(0.5 + 0.5)]])
    joint /= joint.sum()
    np.testing.assert_allclose(found, [joint.sum(axis=1), joint.sum(axis=0)], rtol=1e-10)


def test_engines_by_name_and_by_function(web, model):
    closed = []

    class Watched(DuckDbEngine):
        def close(self):
            closed.append(self)

    data = relcrf.Dataset(web)
    plain, opened = model.ground(data), model.ground(data, engine=lambda bound: Watched(bound.cursor))
    assert len(closed) == 1 and opened.bindings == plain.bindings
    with pytest.raises(relcrf.UsageError, match="than the budget"):
        model.ground(data, 5, engine=lambda bound: Watched(bound.cursor))
    assert len(closed) == 2, "closed where grounding fails, too"
    for name, message in (("postgres", "requires the URL"), ("sparc", "did you mean 'spark'")):
        with pytest.raises(relcrf.UsageError, match=message):
            model.ground(data, engine=name)


def test_nothing_to_learn_from(model, tmp_path):
    folder = small_web(tmp_path)
    page = folder / "page.csv"
    page.write_text("\n".join(",".join([line.split(",")[0], "", "s"]) if k else line
                              for k, line in enumerate(page.read_text().splitlines())))  # fmt: skip
    with pytest.raises(relcrf.DataError, match=r"no value of Page\.category is labelled"):
        model.fit(relcrf.Dataset(folder), "ess")


def test_three_unknowns_in_a_factor_are_refused(tmp_path):
    model = relcrf.parse(
        "domain D = { x, y } entity E { predict d : D }\nrelation R(a: E, b: E, c: E)\n"
        "template three(a: E, b: E, c: E) where R(a, b, c) over a.d, b.d, c.d"
    )
    tables = {
        "e": pd.DataFrame({"id": [1, 2, 3], "d": ["x", "y", "x"]}),
        "r": pd.DataFrame({"a": [1], "b": [2], "c": [3]}),
    }
    with pytest.raises(relcrf.UsageError, match="template 'three' joins more"):
        model.fit(relcrf.Dataset(tables), "ess")


def test_import_is_light():
    code = "import sys, relcrf; print(sorted(m for m in ('numba', 'scipy', 'duckdb', 'lark', 'typer') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_names():
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        relcrf.lod  # noqa: B018
    assert "load" in dir(relcrf)
