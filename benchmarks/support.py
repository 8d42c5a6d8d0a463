"""Shared arguments, clocks and processes of the benchmarks."""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent


class BenchmarkParser(argparse.ArgumentParser):
    """A parser with `--quick`, and with a hidden `--smallest` for tests, which implies it.

    Args:
        about: Docstring of the benchmark.
        quick: What `--quick` does.
    """

    def __init__(self, about: str | None, quick: str) -> None:
        super().__init__(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument("--quick", action="store_true", help=quick)
        self.add_argument("--smallest", action="store_true", help=argparse.SUPPRESS)

    def parse_args(self, *given: Any) -> argparse.Namespace:  # type: ignore[override]
        options = super().parse_args(*given)
        options.quick = options.quick or options.smallest
        return options


class ResultCache:
    """Results of a benchmark, in a file with one JSON object per line, so that an interrupted run can be resumed.

    Args:
        path: The file; if None, results are not cached.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self._results = {json.dumps(line["work"]): line["figures"] for line in map(json.loads, lines)}

    def get(self, work: list[Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the cached result of `work`, which describes the measurement; measure and cache it if necessary."""
        key = json.dumps(work)
        if key not in self._results:
            self._results[key] = measure()
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"work": work, "figures": self._results[key]}) + "\n")
        return self._results[key]


def sized(options: argparse.Namespace, whole: Any, quick: Any, smallest: Any) -> Any:
    """Return the size that the options select."""
    return smallest if options.smallest else quick if options.quick else whole


def cpu_seconds(work: Callable[[], Any]) -> float:
    """Return the CPU seconds that a call takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def medians(repeats: int, *works: Callable[[], Any]) -> list[float]:
    """Return the median CPU seconds of each call, measured alternately, after one warm-up run each."""
    for work in works:
        work()
    runs = [[cpu_seconds(work) for work in works] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*runs, strict=True)]


def status_bytes(name: str) -> int:
    """Return a line of this process's status in bytes.

    `VmHWM` is the peak of this process only; `ru_maxrss` would include the parent process.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) * 1024


def peak_mib() -> float:
    """Return the peak memory of this process."""
    return status_bytes("VmHWM") / 2**20


def in_fresh_process(script: str, *arguments: object) -> dict[str, Any]:
    """Run a script and return the object in the last line of its output."""
    command = [sys.executable, script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def is_installed(rival: str) -> bool:
    """Return True if a rival's package is installed; otherwise print that it is skipped."""
    there = importlib.util.find_spec(rival.lower()) is not None
    if not there:
        print(f"{rival} is skipped: it is not installed (pip install -r benchmarks/requirements.txt)")
    return there


def no_work(shard: Path, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Return a gradient of zeros without any computation; Spark's workers import this function."""
    return 0.0, weights
