"""Tests of the examples in docs/how-to/serve.md, run as a reader would run them."""

import http.client
import json
import re
import runpy
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

import relcrf

PAGE = Path(relcrf.__file__).parent.parent / "docs" / "how-to" / "serve.md"


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = []
        for k, text in enumerate(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)):
            (folder / f"example{k}.py").write_text(text)
            found.append(runpy.run_path(str(folder / f"example{k}.py")))
        yield found


def test_first_example_predicts_on_fast_path(examples):
    prediction = examples[0]["prediction"]
    assert prediction["id"].tolist() == ["new"] and prediction["category"].tolist() == ["course"]
    assert examples[0]["predictor"].report().slow_path == 0


def test_server_returns_predictions_and_errors(examples, monkeypatch):
    answers = examples[1]["PredictionHandler"]
    monkeypatch.setattr(answers, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def post(tables):
            connection = http.client.HTTPConnection(*server.server_address)
            connection.request("POST", "/", json.dumps(tables))
            with connection.getresponse() as response:
                status, answer = response.status, json.loads(response.read())
            connection.close()
            return status, answer

        try:
            status, answer = post({"page": {"id": "new"}})
            assert (status, answer[0]["id"]) == (200, "new")
            assert sum(value for name, value in answer[0].items() if name.startswith("p_")) == pytest.approx(1)
            status, answer = post({"pages": {"id": "new"}})
            assert (status, answer[0]["code"]) == (422, "E248")
        finally:
            server.shutdown()
            thread.join()
