"""Memory growth of one process over ten thousand predictions.

    python benchmarks/soak.py

A `Predictor` predicts one page per request, and `Fit.predict` a whole web graph. Memory is the resident set after garbage
collection, after each tenth of the calls; growth is that of the second half, when all caches are full.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from support import BenchmarkParser, sized

import relcrf

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return the resident memory in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def measure_growth(call: Callable[[int], object], calls: int) -> tuple[list[float], float]:
    """Return the memory in MiB after each tenth of the calls, and the total seconds."""
    began, held = time.perf_counter(), []
    for k in range(calls):
        call(k)
        if (k + 1) % (calls // 10) == 0:
            held.append(resident_bytes() / 2**20)
    return held, time.perf_counter() - began


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="500 calls")
    parser.add_argument("--calls", type=int, default=10_000, help="number of calls of each kind, at least 10")
    chosen = parser.parse_args()
    calls = sized(chosen, chosen.calls, 500, 10)
    model, data = relcrf.datasets.load("web")
    fit = model.fit(data, "ess", max_iterations=20)
    with tempfile.TemporaryDirectory() as folder:
        fit.save(Path(folder) / "run")
        predictor = relcrf.Predictor(Path(folder) / "run")
        tables = {
            "page": [{"id": "new"}, {"id": "old", "category": "staff"}],
            "link": [{"source": "new", "target": "old"}],
        }

        def ask(k: int) -> object:
            words = [{"page": "new", "word": f"w{(k + j) % 90:02d}"} for j in range(8)]
            return predictor.predict({**tables, "page_words": words}, "Page.category")

        table, answer = Table("", "calls", "MiB after each tenth", "growth", "seconds"), {}
        for name, call in (("predictor", ask), ("predict", lambda k: fit.predict(data))):
            held, seconds = measure_growth(call, calls)
            growth = held[9] - held[4]
            shown = " ".join(f"{mib:.0f}" for mib in held)
            table.add_row(name, f"{calls:,}", shown, f"{growth:+.1f} MiB", f"{seconds:.0f}")
            answer[name] = {"calls": calls, "growth_mib": growth, "seconds": seconds, "mib": held}
    Console().print(table)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
