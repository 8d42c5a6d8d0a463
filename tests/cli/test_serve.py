"""The serve command: answers, signals, and errors before it starts."""

import http.client
import json
import signal
import socket
import subprocess
import sys

import pytest

import relcrf
from relcrf.data import extras
from relcrf.resources import resource_path


@pytest.fixture(scope="module")
def run(web, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "web"
    fit = relcrf.load(resource_path("models", "webkb.rcrf")).fit(relcrf.Dataset(web), "ess", max_iterations=20)
    fit.save(folder)
    return folder


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"])
def test_signals_stop_the_service_after_the_requests_in_flight(run, number, code):
    command = [sys.executable, "-m", "relcrf", "serve", str(run), "--port", "0", "--timeout", "600"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        line = process.stdout.readline()
        assert "serving" in line, process.stderr.read()
        port = int(line.split(";")[0].rpartition(":")[2])
        connection, other = (http.client.HTTPConnection("127.0.0.1", port, timeout=600) for _ in range(2))
        connection.request(
            "POST", "/predict", json.dumps({"page": {"id": "new"}}), {"Content-Type": "application/json"}
        )
        health = {"waiting": 0, "latency_ms": {"p50": 0.0}}
        while not health["waiting"] and not health["latency_ms"]["p50"]:
            other.request("GET", "/healthz")
            health = json.loads(other.getresponse().read())
        process.send_signal(number)  # usually while the first request compiles kernels
        with connection.getresponse() as response:
            assert response.status == 200 and json.loads(response.read())["predictions"][0]["id"] == "new"
        connection.close()
        other.close()
        _, errors = process.communicate(timeout=600)
    assert process.returncode == code and "Traceback" not in errors


def test_errors_before_the_service_starts(run, web, tmp_path, relcrf_, monkeypatch):
    def assert_error(code, text, *arguments):
        found, out, errors = relcrf_("serve", *arguments)
        assert (found, out) == (code, "") and text in errors, errors

    with socket.create_server(("127.0.0.1", 0)) as used:
        assert_error(2, "E463", run, "--port", used.getsockname()[1])
    assert_error(2, "E463", run, "--host", "no.such.host.invalid")
    assert_error(3, "E334", tmp_path)
    assert_error(2, "E311", run, "--max-body", "big")
    assert_error(2, "E300", run, "--port", "70000")
    assert_error(2, "E300", run, "--timeout", "inf")
    assert_error(2, "E305", run, "--set", "treewidth=0")
    assert_error(3, "E2", run, "--data", tmp_path)
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert_error(2, "pip install 'relcrf[serve]'", run)
