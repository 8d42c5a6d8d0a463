"""The HTTP service: real requests to a Uvicorn server in a thread, and the web page in headless Chromium."""

import asyncio
import gc
import http.client
import json
import shutil
import signal
import socket
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pandas
import pytest
import uvicorn
from browser import PROGRAM, browser
from houses import DECLARATIONS, NEAR, houses
from tables import small_web

import relcrf
from relcrf.resources import resource_path
from relcrf.serving.server import LOOPBACK_NAMES, _GracefulServer, accepted_hosts, is_loopback, open_socket
from relcrf.serving.service import ServiceLimits, create_app
from relcrf.serving.work_queue import QueueFullError, WorkQueue

TABLES = {
    "page": [{"id": "new"}, {"id": "p1", "category": "course"}, {"id": "p2", "category": "staff"}],
    "link": [{"source": "new", "target": "p1"}, {"source": "p2", "target": "new"}],
    "page_words": [{"page": "new", "word": "w1"}, {"page": "p1", "word": "w1"}],
}


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    return small_web(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def fit(web):
    return relcrf.load(resource_path("models", "webkb.rcrf")).fit(relcrf.Dataset(web), "ess", max_iterations=20)


@pytest.fixture(scope="module")
def run(fit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "web"
    fit.save(folder)
    return folder


@contextmanager
def serving(*arguments, **options):
    """Serve an application in a thread; yield the port."""
    app = create_app(*arguments, **options)
    listener = open_socket("127.0.0.1", 0)
    config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture(scope="module")
def port(run, web):
    with serving(run, data=web, hosts=LOOPBACK_NAMES) as port:
        yield port


def send(port, method, path, body=None, headers=None):
    """Send a request; return the status, the headers and the content of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
    with connection.getresponse() as response:
        content = response.read()
    connection.close()
    is_json = response.headers["Content-Type"] == "application/json"
    return response.status, response.headers, json.loads(content) if is_json and content else content


def post(port, body, path="/predict"):
    status, _, content = send(port, "POST", path, body)
    return status, content


def test_answers_equal_predictions(port, fit):
    predictor = relcrf.Predictor(fit)
    assert post(port, TABLES) == (200, {"predictions": predictor.predict(TABLES).to_dicts()})
    assert post(port, TABLES, "/predict?attribute=Page.category")[0] == 200
    status, content = post(port, [TABLES, {"pages": []}, {"page": {"id": 7}}])
    first, error, last = content["results"]
    assert status == 200 and first["predictions"] == predictor.predict(TABLES).to_dicts()
    assert [each["code"] for each in error["errors"]] == ["E248"]
    assert last["predictions"] == predictor.predict({"page": {"id": 7}}).to_dicts()
    assert post(port, []) == (200, {"results": []})


def test_simultaneous_requests_get_their_own_answers(port, fit):
    requests = [{**TABLES, "page": [{"id": f"new{k}"}, *TABLES["page"][1:]], "link": []} for k in range(24)]
    answers = {}
    threads = [
        threading.Thread(target=lambda k=k: answers.__setitem__(k, post(port, {**requests[k], "page_words": []})))
        for k in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(24):
        status, content = answers[k]
        assert (status, [row["id"] for row in content["predictions"]]) == (200, [f"new{k}"])


def test_explanations_of_requests_and_of_stored_tables(port, fit, web):
    status, content = post(port, {"variable": "Page/new", "tables": TABLES, "depth": 2}, "/explain")
    expected = relcrf.Predictor(fit).explain(TABLES, "Page/new", depth=2)
    assert status == 200 and content["answer"] == expected.answer
    assert content["log_odds"] == pytest.approx(expected.log_odds)
    assert [each["amount"] for each in content["contributions"]] == pytest.approx(
        [each.amount for each in expected.contributions]
    )
    _, _, found = send(port, "GET", "/variables?search=PAGE/")
    name = found["variables"][0]["variable"]
    status, content = post(port, {"variable": name}, "/explain")
    expected = fit.explain(relcrf.Dataset(web), name)
    assert (status, content["answer"], content["truth"]) == (200, expected.answer, expected.truth)
    assert content["total"] == content["log_odds"] == pytest.approx(expected.log_odds)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "message"),
    [
        ("POST", "/predict", b'{"page": ', 400, "E460", "not valid JSON"),
        ("POST", "/predict", b"\xff\xfe", 400, "E460", "not valid JSON"),
        ("POST", "/predict", b"[" * 100_000, 400, "E460", "too deeply nested"),
        ("POST", "/predict", b"1" * 5000, 400, "E460", "not valid JSON"),
        ("POST", "/predict", b'{"page": [], "page": []}', 400, "E460", "several members with the name 'page'"),
        ("POST", "/predict", b"", 400, "E460", "not valid JSON"),
        ("POST", "/predict", {"pages": []}, 422, "E248", "does not read a table 'pages'"),
        ("POST", "/predict", {"\ud800": []}, 422, "E248", "does not read a table"),
        ("POST", "/predict", {"page": {"id": 1, "category": "cours"}}, 422, "E216", "'cours'"),
        ("POST", "/predict", {"page": {"id": 10**400}, "link": {"source": 1e308, "target": [1]}}, 422, None, ""),
        ("POST", "/predict", 5, 422, "E203", "has type int"),
        ("POST", "/predict?attribute=topic", TABLES, 422, "E310", "unknown predicted attribute 'topic'"),
        ("POST", "/predict?coverge=0.8", TABLES, 422, "E460", "unknown query parameter 'coverge'"),
        ("POST", "/predict", [TABLES] * 300, 413, "E460", "the maximum is 256"),
        ("POST", "/predict", b" " * 1_000_001, 413, "E460", "larger than 1,000,000 bytes"),
        ("GET", "/predict", None, 405, "E460", "/predict does not support GET"),
        ("GET", "/../../etc/passwd", None, 404, "E460", "unknown path"),
        ("POST", "/explain", TABLES, 422, "E460", "name of a variable"),
        ("POST", "/explain", {"variable": 5}, 422, "E460", "'variable' has type int"),
        ("POST", "/explain", {"variable": "Page/new", "depth": True}, 422, "E460", "'depth' has type bool"),
        ("POST", "/explain", {"variable": "Page/new", "depth": 9}, 422, "E460", "between 1 and 5"),
        ("POST", "/explain", {"variable": "Page/none", "tables": TABLES}, 422, "E313", "none"),
        ("POST", "/explain", {"variable": "Page/new", "tables": TABLES, "against": "x"}, 422, "E356", "unknown value 'x'"),
    ],
)  # fmt: skip
def test_invalid_requests_get_diagnostics(port, method, path, body, status, code, message):
    found, headers, content = send(port, method, path, body)
    assert found == status and "server" not in headers and headers["X-Content-Type-Options"] == "nosniff"
    (error, *_) = content["errors"]
    assert message in error["message"] and (error["code"] == code or code is None)
    assert (headers["Allow"] == "POST") if status == 405 else error["hint"]


@pytest.fixture(scope="module")
def prices(tmp_path_factory):
    """Serve a model of prices with its tables; yield the port and the model."""
    tables = houses(60, 0)
    fit = relcrf.parse(DECLARATIONS + NEAR).fit(relcrf.Dataset(tables), "dense", calibrate=3)
    folder = tmp_path_factory.mktemp("prices")
    for name, columns in tables.items():
        pandas.DataFrame(columns).to_csv(folder / f"{name}.csv", index=False)
    fit.save(folder / "run")
    with serving(folder / "run", data=folder) as port:
        yield port, fit


def test_predicted_numbers(prices):
    port, fit = prices
    house = {"kind": "flat", "area": "x", "size": 1.0}
    tables = {
        "house": [{"id": "new", **house}, {"id": "next", "price": 9.0, **house}],
        "near": {"a": "new", "b": "next"},
    }
    for coverage in 0.9, 0.5:
        (row,) = relcrf.Predictor(fit).predict(tables, coverage=coverage).to_dicts()
        assert list(row) == ["id", "price", "deviation", "low", "high"]
        assert post(port, tables, f"/predict?coverage={coverage}") == (200, {"predictions": [row]})
    _, _, document = send(port, "GET", "/openapi.json")
    assert set(
        document["components"]["schemas"]["Predictions"]["properties"]["predictions"]["items"]["properties"]
    ) > set(row) - {"id", "price"}
    assert document["components"]["schemas"]["Row.house"]["properties"]["price"] == {"type": ["number", "null"]}
    _, _, found = send(port, "GET", "/variables?search=house/1")
    values = {each["variable"]: each["value"] for each in found["variables"]}
    expected = dict(zip(map("House/{}".format, range(60)), houses(60, 0)["house"]["price"], strict=True))
    assert values == {name: value for name, value in expected.items() if name.startswith("House/1")}


def test_explanations_of_numbers(prices):
    port, fit = prices
    house = {"kind": "flat", "area": "x", "size": 1.0}
    tables = {
        "house": [{"id": "new", **house}, {"id": "next", "price": 9.0, **house}],
        "near": [{"a": "new", "b": "next"}],
    }
    status, content = post(port, {"variable": "House/new", "tables": tables}, "/explain")
    expected = relcrf.Predictor(fit).explain(tables, "House/new")
    assert status == 200 and content["quantity"] == "mean" and content["total"] == content["mean"]
    assert content["mean"] == pytest.approx(expected.mean) and content["deviation"] == pytest.approx(expected.deviation)
    amounts = [each["amount"] for each in content["contributions"]]
    assert sum(amounts) + content["remainder"] == pytest.approx(content["total"])
    assert content["summary"] == content["short_answer"] == expected.short_answer
    assert content["effects"] == ["raises price", "lowers price"]
    status, content = post(port, {"variable": "House/new", "tables": tables, "against": "flat"}, "/explain")
    assert status == 422 and content["errors"][0]["code"] == "E379"


@pytest.mark.parametrize(
    ("path", "price", "status", "code"),
    [
        ("/predict", '"abc"', 422, "E215"),
        ("/predict", "1e400", 422, "E215"),
        ("/predict", "[1]", 422, "E215"),
        ("/predict", "true", 422, "E215"),
        ("/predict", "NaN", 400, "E460"),
        ("/predict", "Infinity", 400, "E460"),
        ("/predict?coverage=much", "1", 422, "E460"),
        ("/predict?coverage=nan", "1", 422, "E376"),
        ("/predict?coverage=1", "1", 422, "E376"),
    ],
)
def test_malformed_numbers_get_diagnostics(prices, path, price, status, code):
    body = f'{{"house": [{{"id": 1, "kind": "flat", "area": "x", "size": 1.0, "price": {price}}}]}}'.encode()
    found, _, content = send(prices[0], "POST", path, body)
    assert (found, [each["code"] for each in content["errors"]]) == (status, [code])


def test_content_type_and_host_are_checked(port):
    status, _, content = send(port, "POST", "/predict", TABLES, {"Content-Type": "text/plain"})
    assert status == 415 and "application/json" in content["errors"][0]["hint"]
    assert send(port, "POST", "/predict", TABLES, {"Content-Type": "application/json; charset=utf-8"})[0] == 200
    status, _, content = send(port, "GET", "/healthz", headers={"Host": "attacker.example"})
    assert status == 400 and "host name" in content["errors"][0]["message"]
    assert send(port, "GET", "/healthz", headers={"Host": "[::1]:80"})[0] == 200


@pytest.mark.parametrize(
    ("address", "names", "rejected"),
    [
        ("127.0.0.1", {"127.0.0.1:80", "localhost", "LOCALHOST:80", "[::1]"}, {"127.0.0.2", "attacker.example"}),
        ("127.0.0.2", {"127.0.0.2:80", "localhost"}, {"127.0.0.3", "attacker.example"}),
        ("0:0:0:0:0:0:0:1", {"[0:0:0:0:0:0:0:1]:80", "[::1]"}, {"attacker.example"}),
        ("0.0.0.0", {"attacker.example"}, set()),
    ],
)
def test_requests_may_name_the_address_of_the_service(run, address, names, rejected):
    with serving(run, hosts=accepted_hosts(address)) as port:
        answers = {name: send(port, "GET", "/healthz", headers={"Host": name})[0] for name in names | rejected}
    assert answers == dict.fromkeys(names, 200) | dict.fromkeys(rejected, 400)


def test_health_and_openapi(port):
    _, _, health = send(port, "GET", "/healthz")
    assert (health["status"], health["backend"], health["attributes"]) == ("ok", "ess", ["Page.category"])
    assert health["responses"]["200"] > 0 and health["latency_ms"]["p50"] > 0 and health["reload_errors"] == []
    _, _, document = send(port, "GET", "/openapi.json")
    schemas = document["components"]["schemas"]
    assert document["openapi"] == "3.1.0" and set(document["paths"]) > {"/predict", "/explain", "/healthz"}
    assert set(schemas["Tables"]["properties"]) == {"page", "link", "page_words"}
    assert "course" in schemas["Row.page"]["properties"]["category"]["enum"]
    text = json.dumps(document)
    assert all(f'"{name}":' in text for name in schemas if f"/{name}" in text)


def test_slow_bodies_and_predictions_reach_the_time_limit(run, monkeypatch):
    with serving(run, limits=ServiceLimits(seconds=0.5)) as port:
        while post(port, TABLES)[0] != 200:
            pass  # the first ones wait until kernels are compiled
        with socket.create_connection(("127.0.0.1", port)) as connection:
            head = "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
            connection.sendall(head.encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 408")
        released = threading.Event()
        monkeypatch.setattr(relcrf.Predictor, "predict_many", lambda *_, **__: released.wait(60))
        status, content = post(port, TABLES)
        assert (status, content["errors"][0]["code"]) == (504, "E461")
        assert send(port, "GET", "/healthz")[2]["waiting"] == 1, "the health check is answered during a prediction"
        released.set()


def test_requests_beyond_the_queue_are_rejected(run, monkeypatch):
    released = threading.Event()

    def wait(predictor, requests, **query):
        released.wait(60)
        return [relcrf.DataError(()) for _ in requests]

    monkeypatch.setattr(relcrf.Predictor, "predict_many", wait)
    with serving(run, limits=ServiceLimits(queue=3)) as port:
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(send(port, "POST", "/predict", TABLES))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        while len(answers) < 3:
            time.sleep(0.01)
        released.set()
        for thread in threads:
            thread.join()
        assert [status for status, _, _ in answers] == [503] * 3 + [422] * 3
        assert answers[0][1]["Retry-After"] == "1" and answers[0][2]["errors"][0]["code"] == "E461"


def test_internal_errors_affect_one_request_and_show_no_details(run, monkeypatch):
    predict = relcrf.Predictor.predict

    def fail(predictor, tables, **query):
        if "link" in tables:
            raise ZeroDivisionError("secret")
        return predict(predictor, tables, **query)

    def fail_together(*_, **__):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(relcrf.Predictor, "predict", fail)
    monkeypatch.setattr(relcrf.Predictor, "predict_many", fail_together)
    with serving(run) as port:
        status, content = post(port, [TABLES, {"page": {"id": 1}}])
        assert status == 200 and content["results"][0]["errors"][0]["code"] == "E462"
        assert "secret" not in json.dumps(content) and content["results"][1]["predictions"][0]["id"] == "1"
        assert post(port, TABLES)[0] == 500


def test_new_run_is_loaded_and_damaged_run_is_reported(fit, web, tmp_path):
    fit.save(tmp_path / "run")
    other = relcrf.load(resource_path("models", "webkb.rcrf")).fit(relcrf.Dataset(web), "local", max_iterations=20)
    with serving(tmp_path / "run", data=web) as port:
        first = post(port, TABLES)[1]
        other.save(tmp_path / "run", force=True)
        second = post(port, TABLES)[1]
        assert second == {"predictions": relcrf.Predictor(other).predict(TABLES).to_dicts()} != first
        health = send(port, "GET", "/healthz")[2]
        assert health["backend"] == "local"
        (tmp_path / "run" / "report.html").write_text("a page of relcrf report")
        assert post(port, TABLES)[1] == second
        assert send(port, "GET", "/healthz")[2]["loaded_at"] == health["loaded_at"]
        (tmp_path / "run" / "weights.npy").write_bytes(b"damaged")
        assert post(port, TABLES)[1] == second
        assert [each["code"] for each in send(port, "GET", "/healthz")[2]["reload_errors"]] == ["E336"]
        shutil.rmtree(tmp_path / "run")
        assert post(port, TABLES)[1] == second
        fit.save(tmp_path / "run")
        assert post(port, TABLES)[1] == first
        assert send(port, "GET", "/healthz")[2]["reload_errors"] == []
        assert post(port, {"variable": "Page/p0"}, "/explain")[0] in (200, 422)


def test_run_whose_loading_fails_is_tried_once(fit, tmp_path, monkeypatch):
    """An exception that is a bug does not stop the answers, as a damaged run does not."""
    fit.save(tmp_path / "run")
    tried = []

    def fail(folder):
        tried.append(folder)
        raise ZeroDivisionError("secret")

    with serving(tmp_path / "run") as port:
        first = post(port, TABLES)
        with monkeypatch.context() as patched:
            patched.setattr("relcrf.serving.served_run.load_fit", fail)
            fit.save(tmp_path / "run", force=True)
            assert [post(port, TABLES) for _ in range(3)] == [first] * 3 and len(tried) == 1
            _, _, health = send(port, "GET", "/healthz")
            assert [each["code"] for each in health["reload_errors"]] == ["E462"] and "secret" not in json.dumps(health)
        fit.save(tmp_path / "run", force=True)
        assert post(port, TABLES) == first and send(port, "GET", "/healthz")[2]["reload_errors"] == []


def test_service_without_stored_tables(run):
    with serving(run) as port:
        assert send(port, "GET", "/variables")[0] == 404
        status, content = post(port, {"variable": "Page/p1"}, "/explain")
        assert status == 422 and "no stored tables" in content["errors"][0]["message"]
        assert "/variables" not in send(port, "GET", "/openapi.json")[2]["paths"]


def test_queue_drops_jobs_that_nobody_waits_for():
    processed, released = [], threading.Event()

    def process(items):
        processed.append(list(items))
        released.wait(60)
        return items

    async def run():
        queue = WorkQueue("test", process, 4, 8)
        first = asyncio.create_task(queue.run([1], 60))
        while not processed:
            await asyncio.sleep(0.001)
        with pytest.raises(TimeoutError):
            await queue.run([2, 3], 0.01)
        last = asyncio.create_task(queue.run([4], 60))
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError):
            await queue.run([5], 60)
        released.set()
        assert (await first, await last) == ([1], [4])
        await queue.close()
        assert queue.n_jobs == 0

    asyncio.run(run())
    assert processed == [[1], [4]]


def test_queue_continues_after_an_exception():
    def process(items):
        if "bad" in items:
            raise MemoryError
        return items

    async def run():
        queue = WorkQueue("test", process, 4, 8)
        with pytest.raises(MemoryError):
            await queue.run(["bad"], 60)
        assert await queue.run([1, 2], 60) == [1, 2] and queue.n_jobs == 0
        await queue.close()

    asyncio.run(run())


@pytest.mark.parametrize(("seconds", "is_forced"), [(0.01, False), (1.0, True)])
def test_copies_of_an_interrupt_do_not_force_the_exit(monkeypatch, seconds, is_forced):
    """`timeout` sends SIGINT to the group of a process, and its parent forwards it."""
    times = iter((10.0, 10.0 + seconds))
    server = _GracefulServer(uvicorn.Config(None, log_config=None), lambda: None)
    monkeypatch.setattr("relcrf.serving.server.time", SimpleNamespace(monotonic=lambda: next(times)))
    for _ in range(2):
        server.handle_exit(signal.SIGINT, None)
    assert (server.should_exit, server.force_exit) == (True, is_forced)


def test_loopback_addresses():
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.1.2.3", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.1", "example")))


@pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
def test_page_shows_an_entity_with_neighbourhood_and_explanation(port, tmp_path):
    def wait_for(expression):
        ends = time.monotonic() + 60
        while not (found := page.ask(expression)):
            assert time.monotonic() < ends, expression
            time.sleep(0.02)
        return found

    with browser(tmp_path) as page:
        page.open(f"http://127.0.0.1:{port}/", 1200)
        wait_for("document.querySelectorAll('#found a').length > 3")
        page.ask("document.querySelector('#found a').click()")
        wait_for("document.querySelector('svg rect') !== null")
        name = page.ask("document.querySelector('#variable').textContent")
        assert name.startswith("Page(") and name.endswith(").category")
        assert page.ask("document.querySelectorAll('#probabilities tr').length") == 5
        drawn = "document.querySelectorAll('svg line').length"
        assert 0 < page.ask(drawn) == page.ask("document.querySelectorAll('#contributions tbody tr').length")
        page.ask("document.querySelector('#contributions tbody a').click()")
        wait_for(f"document.querySelector('#variable').textContent !== {json.dumps(name)}")
        page.ask("location.hash = '#Page/none'")
        assert "E313" in wait_for(
            "!document.querySelector('#error').hidden && document.querySelector('#error').textContent"
        )


def test_old_objects_are_excluded_from_garbage_collection(fit, tmp_path, monkeypatch):
    monkeypatch.setattr("relcrf.serving.service.FREEZE_AFTER_BATCHES", 3)
    folder = tmp_path / "run"
    fit.save(folder)
    with serving(folder, owns_process=True) as port:
        counts = [(post(port, TABLES), gc.get_freeze_count())[1] for _ in range(4)]
        assert counts[1] == 0 and min(counts[2:]) > 10_000
        fit.save(folder, force=True)
        post(port, TABLES)
        assert gc.get_freeze_count() == 0, "the previous run can be collected"
        post(port, [TABLES]), post(port, TABLES)
        assert gc.get_freeze_count() > 10_000
    assert gc.get_freeze_count() == 0
