"""Load, memory and malformed requests of `relcrf serve` on loopback.

    python benchmarks/serve.py

The server is a process on one core, and the load generator a process on the others. A request is a page with 20 labelled
neighbours and 8 words. `one` are requests of one connection, `batched` those of 16 connections, which the server predicts
together; `requests_per_cpu_second` is the rate on a core that no other process uses. Memory is the resident set of the
server after each tenth of the requests; growth is that of the second half. A malformed request is a valid one with random
changes of its JSON, its bytes or its HTTP; it must have exactly one answer, without an internal error.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table
from support import ROOT, BenchmarkParser, sized

import relcrf

JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**400,
    1e308,
    float("nan"),
    "",
    "\ud800",
    "p001",
    "x" * 300,
    [],
    [[]],
    {},
    [None],
    {"a": 1},
)
"""Values that replace parts of a request."""


COLUMNS = ("requests_per_second", "p50_ms", "p99_ms", "cpu_ms", "requests_per_cpu_second")
"""Figures that are printed."""


def request_tables(rng: random.Random) -> dict[str, Any]:
    """Return a request of one page with 20 labelled neighbours and 8 words."""
    pages = [f"p{k:03d}" for k in range(20)]
    categories = ("course", "faculty", "student", "project", "staff")
    return {
        "page": [{"id": "new"}, *({"id": page, "category": rng.choice(categories)} for page in pages)],
        "link": [
            {"source": "new", "target": page} if k % 2 else {"source": page, "target": "new"}
            for k, page in enumerate(pages)
        ],
        "page_words": [{"page": "new", "word": f"w{rng.randrange(90):02d}"} for _ in range(8)],
    }


def http_request(
    body: bytes, start: str = "POST /predict", kind: str = "application/json", close: bool = False
) -> bytes:
    """Return the bytes of a request."""
    lines = [f"{start} HTTP/1.1", "Host: localhost", f"Connection: {'close' if close else 'keep-alive'}"]
    lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def running_server(run: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Start a server on one core; yield its process and port."""
    command = [sys.executable, "-m", "relcrf", "serve", str(run), "--port", "0"]
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if cores:
        os.sched_setaffinity(0, {min(cores)})  # the server inherits this
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as supervisor:
        if cores:
            os.sched_setaffinity(0, (cores - {min(cores)}) or cores)
        assert supervisor.stdout is not None
        try:
            port = int(supervisor.stdout.readline().split(";")[0].rpartition(":")[2])
            yield (psutil.Process(supervisor.pid).children() or [psutil.Process(supervisor.pid)])[0], port
        finally:
            supervisor.terminate()


def measure(server: psutil.Process, port: int, connections: int, count: int) -> dict[str, Any]:
    """Return the figures of the load generator, and those of the server's CPU, which other processes do not affect."""
    before = server.cpu_times()
    figures = generate(port, connections, count, 1)
    after = server.cpu_times()
    seconds = after.user + after.system - before.user - before.system
    return {**figures, "cpu_ms": 1000 * seconds / count, "requests_per_cpu_second": count / max(seconds, 0.01)}


def generate(port: int, connections: int, count: int, seed: int) -> dict[str, Any]:
    """Run the load generator in another process; return its figures."""
    command = [sys.executable, __file__, "--generate", *map(str, (port, connections, count, seed))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def send_requests(port: int, connections: int, count: int, seed: int) -> dict[str, Any]:
    """Send requests on several connections, each after the answer to the previous one; return rate and latencies."""
    rng = random.Random(seed)
    bodies = [http_request(json.dumps(request_tables(rng)).encode()) for _ in range(200)]
    seconds: list[float] = []
    numbers = iter(range(count))

    async def send_in_turn() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            started = time.perf_counter()
            writer.write(bodies[number % len(bodies)])
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r")[0]))
            seconds.append(time.perf_counter() - started)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(send_in_turn() for _ in range(connections)))
    total = time.perf_counter() - began
    p50, p99 = (float(np.percentile(seconds, at)) * 1000 for at in (50, 99))
    return {"requests_per_second": count / total, "p50_ms": p50, "p99_ms": p99}


def malformed(rng: random.Random) -> bytes:
    """Return the bytes of a request with random changes."""
    tables = request_tables(rng)
    for _ in range(rng.randrange(3)):
        _change_part(tables, rng)
    body = json.dumps(tables).encode()
    kind = rng.randrange(8)
    if kind == 0:
        return http_request(bytes(rng.randrange(256) for _ in range(rng.randrange(60))), close=True)
    if kind == 1:
        return http_request(body[: rng.randrange(len(body))], close=True)
    if kind == 2:
        return http_request(json.dumps([tables, rng.choice(JUNK)]).encode(), close=True)
    if kind == 3:
        start = rng.choice(
            ("GET /predict", "PUT /explain", "POST /..%2f..%2fetc/passwd", "POST /predict?attribute=%ff", "BREW /")
        )
        return http_request(body, start, close=True)
    if kind == 4:
        arguments = {"variable": rng.choice(("Page/new", *JUNK)), "tables": tables, "depth": rng.choice((1, 2, *JUNK))}
        return http_request(json.dumps(arguments).encode(), "POST /explain", close=True)
    if kind == 5:
        return http_request(body, kind=rng.choice(("text/plain", "", "application/json; charset=\x7f")), close=True)
    if kind == 6:
        return rng.randbytes(rng.randrange(1, 200)).replace(b"\n", b"") + b"\r\n\r\n"
    changed = bytearray(body)
    for _ in range(rng.randrange(1, 6)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return http_request(bytes(changed), close=True)


def _change_part(value: Any, rng: random.Random) -> None:
    """Replace, rename or remove a random part of nested lists and objects."""
    while True:
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not places:
            return
        place = rng.choice(places)
        if isinstance(value[place], dict | list) and value[place] and rng.random() < 0.7:
            value = value[place]
            continue
        match rng.randrange(3):
            case 0:
                value[place] = copy.deepcopy(rng.choice(JUNK))
            case 1:
                del value[place]
            case _ if isinstance(value, dict):
                value[str(rng.choice(JUNK))] = value.pop(place)
            case _:
                value.append(value[place])
        return


async def send_malformed(port: int, count: int, seed: int) -> dict[str, int]:
    """Send malformed requests on separate connections; return the number of answers by status, or by what is wrong."""
    rng = random.Random(seed)
    requests = iter([malformed(rng) for _ in range(count)])
    answers: Counter[str] = Counter()

    async def send_in_turn() -> None:
        for request in requests:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            try:
                answers[_check_answer(await asyncio.wait_for(reader.read(), 60))] += 1
            except (TimeoutError, OSError) as error:
                answers[f"no answer: {type(error).__name__}"] += 1
            writer.close()

    await asyncio.gather(*(send_in_turn() for _ in range(8)))
    return dict(answers)


def _check_answer(received: bytes) -> str:
    """Return the status of an answer, or what is wrong with it."""
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator:
        return "no answer"
    fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
    if b"content-length" in fields and len(body) != int(fields[b"content-length"]):
        return "several answers"
    return head.split(b" ")[1].decode()


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="fewer requests")
    parser.add_argument("--generate", nargs=4, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.generate:
        print(json.dumps(asyncio.run(send_requests(*chosen.generate))))
        return
    count, n_memory, n_malformed = sized(chosen, (5000, 100_000, 10_000), (1000, 4000, 1000), (20, 20, 40))
    model, data = relcrf.datasets.load("web")
    table, found = Table("", "connections", *(name.replace("_", " ") for name in COLUMNS)), {}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        model.fit(data, "ess").save(run)
        with running_server(run) as (server, port):
            for connections in (1, 16):
                generate(port, connections, sized(chosen, 500, 200, 5), 0)  # compiles kernels and fills caches
            for name, connections in (("one", 1), ("batched", 16), ("batched_32", 32)):
                figures = measure(server, port, connections, count)
                found[name] = figures
                table.add_row(name, str(connections), *(f"{figures[key]:.1f}" for key in COLUMNS))
            Console().print(table)
            held, n_parts = [], sized(chosen, 10, 10, 2)
            for k in range(n_parts):
                generate(port, 16, n_memory // n_parts, k)
                held.append(server.memory_info().rss / 2**20)
            growth = held[-1] - held[n_parts // 2 - 1]
            print(f"{n_memory:,} requests: {' '.join(f'{mib:.0f}' for mib in held)} MiB; growth {growth:+.1f} MiB")
            answers = asyncio.run(send_malformed(port, n_malformed, 2))
            print(f"{n_malformed:,} malformed requests: {answers}")
    one_answer = sum(n for status, n in answers.items() if status.isdecimal() and status != "500")
    result = {**found["one"], "batched": found["batched"], "batched_32": found["batched_32"]}
    print(
        json.dumps({**result, "growth_mib": growth, "malformed": answers, "one_answer_share": one_answer / n_malformed})
    )


if __name__ == "__main__":
    main()
