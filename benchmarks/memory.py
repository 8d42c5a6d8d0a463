"""Peak memory of commands on inputs that are made to exceed a memory limit.

    python benchmarks/memory.py          # 20 inputs, up to ten minutes, 1 GB of disk

Each command runs in a separate process with `--memory`. The peak is the resident memory of the process, including the pages of
mapped files, and of its child processes. The promise is the limit plus the base, which is the peak of a training on ten rows:
Python, packages, compiled kernels and an empty database. An input that cannot fit must end with E315, E320 or E435.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psutil
from support import BenchmarkParser, sized

TOLERANCE = 1.2
"""Maximum ratio of the peak to the promise."""

INTERVAL = 0.02
"""Seconds between two measurements of the memory."""

EXPECTED = re.compile(r"error\[(E315|E320|E321|E435)\]")
"""Errors with which an input that cannot fit may end."""

LABELS = """domain Label = open
entity Page { a: real  predict label: Label }
template prior(p: Page) over p.label
template feat(p: Page) over p.label by p.a
"""
LINKS = (
    LABELS.replace("\ntemplate prior", "\nrelation Link(p: Page, q: Page)\ntemplate prior")
    + "template link(p: Page, q: Page) where Link(p, q) over "
)
WORDS = """domain Word = open
entity Page { w: Word  predict flag: bool }
template prior(p: Page) over p.flag
template feat(p: Page) over p.flag per p.w
"""
TEXTS = "entity Page { t: string  predict flag: bool }\ntemplate prior(p: Page) over p.flag\n"
WIDE = "entity Page { c1: real  predict flag: bool }\ntemplate prior(p: Page) over p.flag by p.c1\n"
BAGS = """domain Word = open
entity Page { words: bag of Word  predict flag: bool }
template word(p: Page) over p.flag by tfidf(p.words)
"""
PAIRS = """domain A = open
domain B = open
entity Page { a: A  b: B  predict flag: bool }
template pair(p: Page) over p.flag per p.a, p.b
"""
KEYS = """entity Page { predict flag: bool }
relation Link(p: Page, q: Page)
template prior(p: Page) over p.flag
template link(p: Page, q: Page) where Link(p, q) over p.flag == q.flag
"""
VECTORS = "entity Page { x: vector  predict flag: bool }\ntemplate feat(p: Page) over p.flag by p.x\n"
MANY = "entity Page { a: real  predict flag: bool }\n" + "".join(
    f"template t{k}(p: Page) where p.a > {k} over p.flag by p.a + {k}\n" for k in range(300)
)
CROSS = """domain Label = open
entity Page { a: real  predict label: Label }
template cross(p: Page, q: Page) over p.label == q.label
"""

_LABELLED = "SELECT i AS id, (i % 97) / 97 AS a, 'L' || (i % {k}) AS label FROM range({n}) AS t(i)"
_FLAGGED = "SELECT i AS id, {columns}, i % 2 = 0 AS flag FROM range({n}) AS t(i)"


@dataclass(frozen=True)
class Input:
    """An input and the command that reads it.

    Args:
        tables: SQL of each table, by name.
        command: Arguments of relcrf: `MODEL`, `DATA` and `OUT` are replaced.
        trained_on: SQL of the tables of the training data of `predict`, by name.
    """

    name: str
    model: str
    tables: dict[str, str]
    command: tuple[str, ...]
    trained_on: dict[str, str] | None = None


CHECK = ("check", "MODEL", "--data", "DATA")
PLAN = ("plan", "MODEL", "--data", "DATA")
GROUND = ("ground", "MODEL", "--data", "DATA")
TRAIN = ("train", "MODEL", "--data", "DATA", "--out", "OUT")
PREDICT = ("predict", "RUN", "--data", "DATA", "--out", "OUT.csv")
PROFILE = ("profile", "DATA", "--out", "OUT.html")


def make_inputs(scale: float) -> list[Input]:
    """Return the inputs; the number of rows is proportional to `scale`."""

    def rows(n: int) -> int:
        return max(int(n * scale), 20)

    def page(k: int, n: int) -> dict[str, str]:
        return {"page": _LABELLED.format(k=rows(k), n=rows(n))}

    def flagged(columns: str, n: int) -> str:
        return _FLAGGED.format(columns=columns, n=rows(n))

    def link(n: int, first: str, second: str) -> str:
        return f"SELECT {first} AS p, {second} AS q FROM range({rows(n)}) AS t(i)"

    words = {"page": flagged("'word' || i AS w", 2_000_000)}
    texts = {"page": flagged("repeat('text ', 200000) || i AS t", 300)}
    wide = {"page": flagged(", ".join(f"i % {k + 2} AS c{k}" for k in range(max(int(4096 * scale), 10))), 300)}
    chain = {**page(30, 20_000), "link": link(19_999, "i", "i + 1")}
    classes = page(3_000, 10_001)
    blank = {"page": f"SELECT id, a, NULL::VARCHAR AS label FROM ({classes['page']})"}
    pages = {"page": f"SELECT 'page' || i AS id, i % 2 = 0 AS flag FROM range({rows(1_000_000)}) AS t(i)"}
    hub = {**pages, "link": link(999_999, "'page0'", "'page' || (i + 1)")}
    keys = {**pages, "link": link(999_999, "'page' || i", "'page' || (i + 1)")}
    n_bags = max(int(100 * scale), 2)
    bag = {
        "page": f"SELECT i AS id, i % 2 = 0 AS flag FROM range({n_bags}) AS t(i)",
        "page_words": f"SELECT i % {n_bags} AS page, 'word' || (i % 77777) AS word FROM range({rows(2_000_000)}) AS t(i)",
    }
    pairs = {"page": flagged("'a' || (i % 1009) AS a, 'b' || (i // 1009) AS b", 1_000_000)}
    huge = {**page(20_000, 20_001), "link": link(19_000, "i", "i + 1")}
    numbers = ", ".join(f"((i * {k + 3}) % 101) / 101 AS x_{k}" for k in range(256))
    return [
        Input("many classes", LABELS, page(10_000, 10_001), CHECK),
        Input("many classes", LABELS, page(10_000, 10_001), PLAN),
        Input("many classes", LABELS, classes, TRAIN),
        Input("predictions of many classes", LABELS, blank, PREDICT, classes),
        Input("many classes, a backend for whole graphs", LABELS, classes, (*TRAIN, "--backend", "gated")),
        Input("many distinct words", WORDS, words, CHECK),
        Input("many distinct words, as keys", WORDS, words, GROUND),
        Input("long texts", TEXTS, texts, CHECK),
        Input("long texts", TEXTS, texts, PROFILE),
        Input("many keys", KEYS, keys, CHECK),
        Input("wide table", WIDE, wide, CHECK),
        Input("wide table", WIDE, wide, PROFILE),
        Input("heavy hub", KEYS, hub, GROUND),
        Input("large bags", BAGS, bag, GROUND),
        Input("cross product", CROSS, page(10, 20_000), PLAN),
        Input("many templates", MANY, {"page": flagged("i % 400 AS a", 10_000)}, GROUND),
        Input("many distinct pairs", PAIRS, pairs, GROUND),
        Input("huge domain with pairs", LINKS + "p.label == q.label\n", huge, GROUND),
        Input("connected variables with large tables", LINKS + "p.label, q.label\n", chain, (*TRAIN, "--backend", "ess")),
        Input("many features", VECTORS, {"page": flagged(numbers, 20_000)}, (*TRAIN, "--backend", "local")),
    ]  # fmt: skip


def write_tables(folder: Path, tables: dict[str, str]) -> Path:
    """Write tables as CSV files."""
    folder.mkdir()
    connection = duckdb.connect(config={"threads": 1})
    for name, query in tables.items():
        connection.execute(f"COPY ({query}) TO '{folder / name}.csv' (HEADER)")
    return folder


def resident_bytes(process: psutil.Process) -> int:
    """Return the resident memory of a process and its child processes; 0 if it has ended."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def peak_bytes(process: psutil.Process) -> int:
    """Return the peak that the system recorded for a running process, without its children."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


@dataclass(frozen=True)
class Measurement:
    """The peak memory in bytes, the exit code, the output and the seconds of a command."""

    peak: int
    code: int
    output: str
    seconds: float

    @property
    def outcome(self) -> str:
        """A word for the exit: `ok`, the code of an expected error, or `FAILED`."""
        found = EXPECTED.search(self.output)
        return "ok" if self.code in (0, 4) else found[1] if found and self.code == 2 else "FAILED"


def measure(*command: str) -> Measurement:
    """Run a relcrf command."""
    started, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen([sys.executable, "-m", "relcrf", *command], stdout=output, stderr=subprocess.STDOUT)
        process = psutil.Process(child.pid)
        while child.poll() is None:
            try:
                peak = max(peak, resident_bytes(process), peak_bytes(process))
            except psutil.NoSuchProcess:
                break
            time.sleep(INTERVAL)
        code = child.wait()
        output.seek(0)
        return Measurement(peak, code, output.read(), time.perf_counter() - started)


def estimated_bytes(output: str) -> str:
    """Return the memory that `plan` or an error message predicts, as text; empty if there is none."""
    found = re.search(r"(?:needs|would take) about ([\d.,]+ [KMG]iB)", output)
    return found[1] if found else ""


def measure_base(folder: Path, limit: str, runs: int) -> int:
    """Return the peak of the last of several trainings on ten rows; the first one may compile kernels."""
    (folder / "small.rcrf").write_text(LABELS)
    data = write_tables(folder / "small", {"page": _LABELLED.format(k=3, n=10)})
    arguments = ("train", str(folder / "small.rcrf"), "--data", str(data), "--out", str(folder / "run"))
    return [measure(*arguments, "--memory", limit, "--force") for _ in range(runs)][-1].peak


def measure_input(each: Input, number: int, folder: Path, limit: str, base: int, promise: int) -> dict[str, object]:
    """Measure the command of an input, and the estimate of `plan` if the model is learned."""
    model, run, out = (folder / f"{number}{suffix}" for suffix in (".rcrf", ".run", ".out"))
    model.write_text(each.model)
    data = write_tables(folder / f"{number}", each.tables)
    if each.trained_on is not None:
        training = write_tables(folder / f"{number}.train", each.trained_on)
        measure(
            "train",
            str(model),
            "--data",
            str(training),
            "--out",
            str(run),
            "--backend",
            "local",
            "-s",
            "max_iterations=2",
        )
    names = {"MODEL": str(model), "DATA": str(data), "RUN": str(run), "OUT": str(out)}
    command = [re.sub(r"^(MODEL|DATA|RUN|OUT)", lambda found: names[found[1]], part) for part in each.command]
    found = measure(*command, "--memory", limit)
    estimate = estimated_bytes(found.output)
    if each.command[0] == "train" and not estimate:
        estimate = estimated_bytes(measure("plan", str(model), "--data", str(data), "--memory", limit).output)
    if found.outcome == "FAILED":
        print(found.output[-600:], file=sys.stderr)
    return {
        "input": each.name,
        "command": " ".join(part for part in each.command if part.islower() and not part.startswith("-")),
        "estimate": estimate,
        "peak_mb": round(found.peak / 1e6),
        "ratio": round(found.peak / promise, 2),
        "outcome": found.outcome,
        "seconds": round(found.seconds, 1),
    }


def print_row(row: dict[str, object]) -> None:
    cells = (f"{row['input']:40}", f"{row['command']:14}", f"{row['estimate']:>11}")
    print(*cells, f"{row['peak_mb']:6} MB  {row['ratio']:5}  {row['outcome']:7} {row['seconds']:6} s", flush=True)


def run(options: argparse.Namespace, report: Callable[[dict[str, object]], None]) -> dict[str, object]:
    """Measure all inputs; return the results."""
    scale, limit, runs = sized(options, (1.0, "300MB", 2), (0.1, "100MB", 2), (0.0001, "100MB", 1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = measure_base(folder, limit, runs)
        promise = base + int(limit.removesuffix("MB")) * 1_000_000
        print(f"base {base / 1e6:.0f} MB, limit {limit}, promise {promise / 1e6:.0f} MB")
        rows = []
        inputs = make_inputs(scale)
        for number, each in enumerate(inputs[:1] if options.smallest else inputs):
            rows.append(measure_input(each, number, folder, limit, base, promise))
            report(rows[-1])
    kept = [row for row in rows if float(str(row["ratio"])) <= TOLERANCE and row["outcome"] != "FAILED"]
    return {"base_mb": round(base / 1e6), "limit": limit, "inputs": rows, "kept": len(kept), "n": len(rows)}


def main() -> None:
    options = BenchmarkParser(__doc__, "tenth of the rows, limit of 100 MB").parse_args()
    print(json.dumps(run(options, print_row)))


if __name__ == "__main__":
    main()
