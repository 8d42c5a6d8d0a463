"""Plugin packages: those of docs/how-to/extending, and invalid ones."""

import importlib
import json
import re
import runpy
import shlex
import sys
from math import nan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import relcrf_command

import relcrf
from relcrf import api
from relcrf.builder import fn
from relcrf.editor.completion import complete
from relcrf.editor.document import Document
from relcrf.errors import DataError, RelcrfError, UsageError
from relcrf.grounding.dialects.spark import SparkDialect
from relcrf.model.functions import FUNCTIONS
from relcrf.unaries import storage


def run(code, folder):
    (folder / "example.py").write_text(code)
    return runpy.run_path(str(folder / "example.py"))


def test_backend_of_docs_page_trains_predicts_and_explains(packages, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for line in packages.install_page("how-to/extending/backend.md")["console"].splitlines():
        arguments = shlex.split(line.removeprefix("$ relcrf "))
        code, out, err = relcrf_command(capsys, monkeypatch, *arguments)
        assert code == 0, (line, err)
        assert arguments[0] != "evaluate" or "random" in out
    model, data = relcrf.datasets.load("web")
    fits = [model.fit(data, "random", seed=seed) for seed in (1, 1, 2)]
    vectors = [fit.learned.vectors["weights"] for fit in fits]
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert not np.allclose(vectors[0], vectors[2])
    assert fits[0].predict(data).verdict.status == "exact"
    code, out, err = relcrf_command(capsys, monkeypatch, "explain", "run", "Page/p003", "--data", "web")
    assert code == 0, err
    versions = json.loads(Path("run/manifest.json").read_text())["provenance"]["versions"]
    assert versions["backend"] == "1.0"


def test_reader_of_docs_page_reads_edge_lists(packages, tmp_path, monkeypatch, capsys):
    example = packages.install_page("how-to/extending/reader.md")["py"]
    monkeypatch.chdir(tmp_path)
    data = run(example, tmp_path)["data"]
    table = data.find_table("link")
    assert data.connection.execute(f"SELECT * FROM {table.scan}").fetchall() == [("p1", "p2"), ("p2", "p3")]
    Path("web/link.edges").write_text("p1 p2\n\np1 p2 p3\n")
    with pytest.raises(DataError, match=r"line 3 of .*link\.edges has 3 names"):
        relcrf.Dataset("web")


def test_estimator_of_docs_page_is_trained_and_stored(packages, tmp_path):
    found = run(packages.install_page("how-to/extending/estimator.md")["py"], tmp_path)
    fit, data, points = (found[name] for name in ("fit", "data", "points"))
    hidden = points.inside.isna()
    truth = (points.x**2 + points.y**2 < 2)[hidden].to_numpy()
    assert (found["predicted"].inside.eq("true").to_numpy() == truth).mean() > 0.9
    fit.save(tmp_path / "run")
    loaded = api.load_fit(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predict(data).probabilities(), fit.predict(data).probabilities())
    assert json.loads(json.dumps(storage.to_json(fit.learned.learned_features[0])))["versions"]["estimator"] == "1.0"


def test_network_of_docs_page_is_trained_and_stored(packages, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("skorch")
    page = Path(relcrf.__file__).parents[1] / "docs/how-to/extending/estimator.md"
    (_, code) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    (example,) = re.findall(r"^```py\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    packages.install("networks", "relcrf.estimators", {"NetworkClassifier": "networks:NetworkClassifier"}, code)
    found = [run(example.replace("KernelClassifier(gamma=1.0)", "NetworkClassifier()"), tmp_path) for _ in range(2)]
    fit, data, points = (found[0][name] for name in ("fit", "data", "points"))
    truth = (points.x**2 + points.y**2 < 2)[points.inside.isna()].to_numpy()
    assert (found[0]["predicted"].inside.eq("true").to_numpy() == truth).mean() > 0.9
    expected = fit.predict(data).probabilities()
    np.testing.assert_array_equal(found[1]["fit"].predict(data).probabilities(), expected)
    fit.save(tmp_path / "run")
    np.testing.assert_array_equal(api.load_fit(tmp_path / "run").predict(data).probabilities(), expected)
    versions = storage.to_json(fit.learned.learned_features[0])["versions"]
    assert set(versions) == {"networks", "scikit-learn", "skorch", "torch"}
    changed = code.replace("n_hidden=32", "n_hidden=8")
    (packages.folder / "networks.py").write_text(changed)
    sys.modules.pop("networks")
    importlib.invalidate_caches()
    with pytest.raises(RelcrfError, match="E440"):
        api.load_fit(tmp_path / "run")


def test_function_of_docs_page_is_used_in_training_and_serving(packages, tmp_path, capsys):
    found = run(packages.install_page("how-to/extending/function.md")["py"], tmp_path)
    model, data, towns, fit = (found[name] for name in ("model", "data", "towns", "fit"))
    grounding = model.ground(data)
    feature = grounding.templates[0].features[1]
    km = {(row["a"], row["b"]): np.expm1(row[feature]) for row in grounding.instances("near").to_dicts()}
    assert set(km) == {("Bern", "Thun"), ("Basel", "Bern"), ("Basel", "Thun")}
    assert km["Bern", "Thun"] == pytest.approx(25.2, abs=0.3)  # measured on a map
    assert fit.predict(data).table().to_pandas().weather.tolist() == ["rain"]
    invalid_latitude = relcrf.Dataset({"town": towns.assign(latitude=[95.0, 46.76, 47.56, 59.91])})
    assert len(model.ground(invalid_latitude).instances("near").to_pandas()) == 1
    assert "kilometres" in dir(fn)
    fit.save(tmp_path / "run")
    rows = towns.replace({nan: None}).to_dict("records")
    served = relcrf.Predictor(tmp_path / "run").predict({"town": rows})
    np.testing.assert_allclose(served["p_rain"], fit.predict(data).table()["p_rain"], atol=1e-9)


MODEL = """
domain D = {{ x, y }}
entity E {{ predict d : D  s : string  n : real  v : vector }}
template t(e: E) where {condition} over e.d by {feature}
"""


def make_dataset(**columns):
    return relcrf.Dataset(
        {"e": pd.DataFrame({"id": [1, 2], "d": ["x", None], "s": ["a b", None], "n": [2.5, nan]} | columns)}
    )


FUNCTIONS_OF_ALL_TYPES = """
from relcrf.model.functions import PluginFunction as F
arguments = []
def words(text):
    arguments.append(text)
    return len(text.split())
words = F(("text",), "integer", "words", words)
half = F(("number",), "real", "half of a number", lambda x: x / 2 if x < 10 else None)
largest = F(("vector",), "real", "largest component", max)
is_long = F(("text",), "bool", "whether a text is long", lambda text: len(text) > 5)
reverse = F(("text",), "string", "reversed text", lambda text: text[::-1])
"""


def test_functions_of_all_types_are_computed(packages):
    names = ("words", "half", "largest", "is_long", "reverse")
    packages.install("types", "relcrf.functions", {n: f"types_of_functions:{n}" for n in names}, FUNCTIONS_OF_ALL_TYPES)
    model = relcrf.parse(
        MODEL.format(
            condition='not is_long(e.s) and reverse(e.s) == "b a"',
            feature="words(e.s), half(e.n), half(e.n * 10), largest(e.v), -half(3)",
        )
    )
    grounding = model.ground(make_dataset(v_0=[1.0, 5.0], v_1=[4.0, 2.0]))
    (row,) = grounding.instances("t").to_dicts()
    features = [row[name] for name in grounding.templates[0].features]
    assert features == [2.0, 1.25, 0.0, 4.0, -1.5]
    assert model.plan(make_dataset(v_0=[1.0, 5.0], v_1=[4.0, 2.0]))[0].bindings == 1
    assert None not in sys.modules["types_of_functions"].arguments


def test_call_with_wrong_types_is_model_error(packages):
    packages.install("kinds2", "relcrf.functions", {"words2": "kinds2:words"}, FUNCTIONS_OF_ALL_TYPES)
    for call, code in (("words2(e.n)", "E110"), ("words2(e.s, e.s)", "E108"), ("word2(e.s)", "E102")):
        with pytest.raises(RelcrfError, match=code) as raised:
            relcrf.parse(MODEL.format(condition="e.n > 0", feature=call))
    assert "did you mean 'words2'" in str(raised.value)
    with pytest.raises(RelcrfError, match="E139"):
        relcrf.parse("domain D = { x } entity words2 { predict d : D }\ntemplate t(e: words2) over e.d")


def test_spark_rejects_functions_of_packages():
    with pytest.raises(UsageError, match=r"(?s)E370.*no equivalent of the function 'words'.*to the data as a column"):
        SparkDialect().function_call("plugin_words", [])


def test_blocks_with_functions_of_packages_are_not_cached(packages, tmp_path):
    packages.install("halving", "relcrf.functions", {"halve": "halving:half"}, FUNCTIONS_OF_ALL_TYPES)
    model = relcrf.parse(MODEL.format(condition="e.n > 0", feature="halve(e.n)"))
    data = make_dataset(v_0=[1.0, 1.0])
    grounding = model.ground(data, cache=relcrf.api.BlockCache(tmp_path / "blocks"))
    assert list((tmp_path / "blocks").iterdir()) == []
    assert any("results of halve may change" in note for note in grounding.bound.notes)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("lambda x: 1 / 0", "ZeroDivisionError: division by zero"),
        ("lambda x: 'much'", "it returned 'much', which is not of type real"),
        ("lambda x: True", "it returned True, which is not of type real"),
    ],
)
def test_failing_function_raises_e405(packages, code, problem):
    name = f"fails{abs(hash(code))}"
    text = f"from relcrf.model.functions import PluginFunction as F\nf = F(('number',), 'real', '', {code})"
    packages.install(name, "relcrf.functions", {name: f"{name}:f"}, text)
    for where, by in (("e.n > 0", f"{name}(e.n)"), (f"{name}(e.n) > 0", "1")):
        model = relcrf.parse(MODEL.format(condition=where, feature=by))
        for operation in (model.ground, model.fit, lambda data, model=model: model.plan(data, exact=True)):
            if operation not in (model.ground, model.fit) and by != "1":
                continue  # a plan does not compute features
            with pytest.raises(UsageError) as raised:
                operation(make_dataset(v_0=[1.0, 1.0]))
            (found,) = raised.value.diagnostics
            assert found.code == "E405" and f"'{name}' of package '{name}'" in found.message
            assert found.notes == (f"{name}(2.5)", problem)


INVALID_FUNCTIONS = {
    "no_module": ("not_there:f", "", "ModuleNotFoundError"),
    "no_function": ("broken_a:f", "f = len", "it is not a relcrf.model.functions.PluginFunction"),
    "no_parameters": ("broken_b:f", "f = F(('string',), 'real', '', len)", "its parameters are not a tuple"),
    "no_result": ("broken_c:f", "f = F(('text',), 'int', '', len)", "its result is not one of real, integer"),
    "no_compute": ("broken_d:f", "f = F(('text',), 'real', '', 3)", "its 'compute' is not callable"),
}


@pytest.mark.parametrize("name", INVALID_FUNCTIONS)
def test_invalid_function_raises_e403_at_its_call(packages, name):
    value, code, problem = INVALID_FUNCTIONS[name]
    text = f"from relcrf.model.functions import PluginFunction as F\n{code}"
    packages.install(f"pack-{name}", "relcrf.functions", {name: value}, text)
    if name == "no_module":
        (packages.folder / "not_there.py").unlink()
    relcrf.parse(MODEL.format(condition="e.n > 0", feature="log(e.n)"))
    with pytest.raises(RelcrfError) as raised:
        relcrf.parse(MODEL.format(condition="e.n > 0", feature=f"{name}(e.s)"))
    (found,) = raised.value.diagnostics
    assert found.code == "E403" and f"package 'pack-{name}'" in found.message and found.location.line == 4
    assert problem in found.notes[0]


def test_completion_survives_function_that_cannot_be_loaded(packages):
    packages.install("pack", "relcrf.functions", {"breaks": "breaks:f"}, "1 / 0")
    text = MODEL.format(condition="", feature="1")
    found = complete(Document(text, None), text.index("where") + 6)
    (item,) = [item for item in found.items if item.label == "breaks"]
    assert "of package 'pack' cannot be loaded" in item.documentation


def test_duplicate_function_name_raises_e404(packages):
    packages.install("one", "relcrf.functions", {"twice": "one:f", "log": "one:f"}, "f = 1")
    packages.install("two", "relcrf.functions", {"twice": "two:f"}, "f = 1")
    with pytest.raises(UsageError, match=r"(?s)E404.*'twice' is defined by 'one' and 'two'"):
        FUNCTIONS["twice"]
    with pytest.raises(UsageError, match=r"(?s)E404.*'log' is defined by 'one' and relcrf itself"):
        FUNCTIONS["log"]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("Reader = dict", "it is not a subclass of"),
        ("class Reader(AbstractReader): suffixes = ('.x',)", "it has no method 'tables'"),
        (
            "class Reader(AbstractReader):\n    tables = None\n    suffixes = '.x'",
            "'suffixes' is not a tuple of lower-case suffixes",
        ),
        (
            "class Reader(AbstractReader):\n    tables = None\n    suffixes = ('x',)",
            "'suffixes' is not a tuple of lower-case suffixes",
        ),
    ],
)
def test_invalid_reader_raises_e406(packages, code, problem):
    text = f"from relcrf.data.readers.base import AbstractReader\n{code}"
    packages.install("pack", "relcrf.readers", {"broken": "broken_reader:Reader"}, text)
    (packages.folder / "table.csv").write_text("id\n1\n")
    with pytest.raises(UsageError, match="E406") as raised:
        relcrf.Dataset(packages.folder / "table.csv")
    (found,) = raised.value.diagnostics
    assert "reader 'broken' of package 'pack'" in found.message and problem in found.notes[0]
