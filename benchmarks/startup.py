"""CPU seconds (user and system) until a command answers: help, check, import, first and second training, warmup, demo.

Each measurement is the median of fresh processes and their child processes. The byte code of Python is cached in a folder of
the benchmark and written before the measurement. `first_train` and `warmup` start with an empty cache of compiled kernels, and
`second_train` with the kernels of the first training. `demo_wall` is the wall time of `relcrf demo` with the kernels of `warmup`.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from support import ROOT, BenchmarkParser, sized

RELCRF = ("-m", "relcrf")
MODEL = ROOT / "models" / "webkb.rcrf"


class Launcher:
    """Runs Python processes with separate caches.

    Args:
        folder: Working folder of the processes and location of the caches.
        writes_byte_code: Whether the byte code is cached in the folder; otherwise in the installation.
    """

    def __init__(self, folder: Path, writes_byte_code: bool) -> None:
        self.folder = folder
        self._environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self._environment["PYTHONPATH"] = path
        self.writes_byte_code = writes_byte_code
        if writes_byte_code:
            self._environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")

    def run(self, *arguments: object, kernels: str | None = None) -> tuple[float, float]:
        """Run Python, and return the CPU and wall seconds of the process and its child processes.

        Args:
            kernels: Name of the folder of compiled kernels; if None, the cache of the installation is used.
        """
        cache = {} if kernels is None else {"NUMBA_CACHE_DIR": str(self.folder / kernels)}
        command = [sys.executable, *map(str, arguments)]
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment | cache, capture_output=True, text=True, check=False
        )
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            sys.exit(done.stderr)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall

    def median_cpu(self, repeats: int, *arguments: object) -> float:
        """Return the median CPU seconds of a command, after a run that writes the byte code if this is necessary."""
        if self.writes_byte_code:
            self.run(*arguments)
        return statistics.median(self.run(*arguments)[0] for _ in range(repeats))


def measure_training(
    launcher: Launcher, repeats: int, web: Path, options: tuple[str, ...], kernels: str | None
) -> tuple[float, float]:
    """Return the median CPU seconds of a training without cached kernels, and of the next training.

    Args:
        kernels: Prefix of the empty folders of compiled kernels; if None, both trainings use the cache of the installation.
    """
    command = (*RELCRF, "train", MODEL, "--data", web, *options, "--out")
    if launcher.writes_byte_code:
        launcher.run(*command, "run")
    firsts, seconds = [], []
    for k in range(repeats):
        folder = kernels and f"{kernels}{k}"
        firsts.append(launcher.run(*command, f"first{k}", kernels=folder)[0])
        seconds.append(launcher.run(*command, f"second{k}", kernels=folder)[0])
    return statistics.median(firsts), statistics.median(seconds)


def measure_warmup(launcher: Launcher, repeats: int, pattern: str) -> float:
    """Return the median CPU seconds of the compilation of all kernels, or of the kernels whose names match a pattern."""
    if pattern:
        (launcher.folder / "portable").mkdir()
        command: tuple[object, ...] = ("-m", "relcrf.kernels.portable", launcher.folder / "portable", pattern)
    else:
        command = (*RELCRF, "warmup")
    return statistics.median(launcher.run(*command, kernels=f"warmup{k}")[0] for k in range(repeats))


def main() -> None:
    quick = "fewer repetitions; training with the backend local, warmup of the kernels of forests, and one split of the demo"
    options = BenchmarkParser(__doc__, quick=quick).parse_args()
    repeats = sized(options, 5, 3, 1)
    pattern = sized(options, "", "forest.*", "components.*")
    with tempfile.TemporaryDirectory() as name:
        launcher = Launcher(Path(name), writes_byte_code=not options.smallest)
        web = Path(name) / "web"
        launcher.run(ROOT / "datasets" / "web.py", "--pages", sized(options, 1_000, 1_000, 50), "--out", web)
        figures = {
            "help": launcher.median_cpu(repeats, *RELCRF, "--help"),
            "version": launcher.median_cpu(repeats, *RELCRF, "--version"),
            "check": launcher.median_cpu(repeats, *RELCRF, "check", MODEL),
            "import": launcher.median_cpu(repeats, "-c", "import relcrf"),
            "import_load": launcher.median_cpu(repeats, "-c", "import relcrf; relcrf.load"),
        }
        backend = ("--backend", "local") if options.quick else ()
        figures["first_train"], figures["second_train"] = measure_training(
            launcher, sized(options, 3, 1, 1), web, backend, sized(options, "training", "training", None)
        )
        figures["warmup"] = measure_warmup(launcher, sized(options, 3, 1, 1), pattern)
        splits = ("--splits", 1) if options.quick else ()
        demo = ("--help",) if options.smallest else splits  # the demo itself is tested elsewhere
        figures["demo_wall"] = launcher.run(*RELCRF, "demo", *demo, kernels=None if pattern else "warmup0")[1]
    table = Table("measurement", "seconds", title="CPU seconds (wall seconds of the demo)")
    for key, value in figures.items():
        table.add_row(key, f"{value:.3f}")
    Console().print(table)
    print(json.dumps({key: round(value, 4) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
