"""Tests of the examples in docs/how-to/serve.md, run as a reader would run them."""

import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from command import relcrf_command
from starlette.applications import Starlette

import relcrf
from relcrf.cli import serve as serve_command
from relcrf.serving.server import accepted_hosts, is_loopback, url_host

PAGE = Path(relcrf.__file__).parent.parent / "docs" / "how-to" / "serve.md"
TEXT = PAGE.read_text()


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = []
        for k, text in enumerate(re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)):
            (folder / f"example{k}.py").write_text(text)
            found.append(runpy.run_path(str(folder / f"example{k}.py")))
        yield found


def test_first_example_predicts_on_fast_path(examples):
    prediction = examples[0]["prediction"]
    assert prediction["id"].tolist() == ["new"] and prediction["category"].tolist() == ["course"]
    assert examples[0]["predictor"].report().slow_path == 0


def test_last_example_is_an_application(examples):
    assert isinstance(examples[-1]["app"], Starlette)


def test_commands_start_a_service_whose_answers_are_those_of_the_page(tmp_path, monkeypatch, capsys):
    """Run the commands of the page with a server that returns immediately, and the requests of the page on its application."""
    served = []

    class Server:
        accepted_hosts = staticmethod(accepted_hosts)
        is_loopback = staticmethod(is_loopback)
        url_host = staticmethod(url_host)
        serve = staticmethod(lambda app, *_: served.append(app))

        @staticmethod
        def open_socket(host, port):
            class Listener:
                getsockname = staticmethod(lambda: (host, port))

            return Listener

    modules = {"relcrf.serving.server": Server}
    monkeypatch.setattr(serve_command, "import_module", lambda name: modules.get(name) or sys.modules[name])
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"^```console\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ relcrf "):
                code, _, errors = relcrf_command(capsys, monkeypatch, *shlex.split(line)[2:])
                assert code == 0, errors
    (app,) = served
    assert {route.path for route in app.routes} >= {
        "/predict",
        "/explain",
        "/variables",
        "/healthz",
        "/openapi.json",
        "/",
    }
    bodies = [json.loads(body) for body in re.findall(r"--json '(.*?)'", TEXT, re.DOTALL)]
    (tables, explanation) = bodies
    (row,) = relcrf.Predictor("runs/web").predict(tables).to_dicts()
    assert f'"category": "{row["category"]}", "probability": {row["probability"]:.1f}'[:-1] in TEXT
    fit = relcrf.load_fit("runs/web")
    assert fit.explain(relcrf.Dataset("web"), explanation["variable"], depth=explanation["depth"]).contributions
