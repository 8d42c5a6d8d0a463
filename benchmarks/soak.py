"""Ten thousand predictions by one process: whether its memory grows.

    python benchmarks/soak.py

A `Predictor` is asked about one page at a time, `Fit.predict` about a whole web. Memory is what the process holds in RAM after
collecting garbage; growth is that of the last nine tenths of the calls, when all caches are full.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

import relcrf

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Bytes in RAM."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def soaked(call: Callable[[int], object], calls: int) -> tuple[int, int, float]:
    """Memory after a tenth of the calls and after all of them, and seconds of all."""
    began = time.perf_counter()
    for k in range(calls // 10):
        call(k)
    early = resident()
    for k in range(calls // 10, calls):
        call(k)
    return early, resident(), time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--calls", type=int, default=10_000, help="of the Predictor, and a tenth as many of Fit.predict"
    )
    parser.add_argument("--quick", action="store_true", help="500 calls")
    chosen = parser.parse_args()
    calls = 500 if chosen.quick else chosen.calls
    model, data = relcrf.datasets.load("web")
    fit = model.fit(data, max_iterations=20)
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

        table, answer = Table("", "calls", "MiB after a tenth", "MiB at the end", "seconds"), {}
        for name, call, n in (
            ("predictor", ask, calls),
            ("predict", lambda k: fit.predict(data), max(calls // 10, 20)),
        ):
            early, late, seconds = soaked(call, n)
            table.add_row(name, f"{n:,}", f"{early / 2**20:.1f}", f"{late / 2**20:.1f}", f"{seconds:.1f}")
            answer[name] = {"calls": n, "growth_mib": (late - early) / 2**20, "seconds": seconds}
    Console().print(table)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
