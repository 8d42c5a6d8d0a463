"""Results of commands that are killed, terminated or stopped by a time limit at random times.

    python benchmarks/kills.py --kills 300 --seed 1
    python benchmarks/kills.py --kills 100 --stop term

Each command is stopped after a time that is uniform between 0 and its duration, in a process that is forked after the
imports. After each stop, every file or folder that the command writes must be the old one or the new one, byte for byte. The
same command then runs undisturbed: it must succeed and write the new bytes, leave no unfinished files, and remove the temporary
folders of the killed process. In the last row, two processes ground into one cache, and one of them is killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from support import ROOT, BenchmarkParser, sized

import relcrf
from relcrf.resources import resource_path

sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "datasets")]

from mortal import Mortals  # noqa: E402
from web import make_web  # noqa: E402

PAGES = 30
NO_KILL = 3600.0
"""Seconds after which an undisturbed command is killed: never."""

STOPS = {"kill": (signal.SIGKILL, -9), "term": (signal.SIGTERM, 143), "int": (signal.SIGINT, 130), "time": (None, 4)}
"""The signal and the exit code of each way to stop a command; `time` is the option --time-limit."""

TIME_LIMITED = ("train", "predict", "ground")
"""The commands with the option --time-limit."""

COUNTS = ("kills", "old", "new", "torn", "failed", "different", "unfinished", "temporary")

Parts = dict[str, Any]
"""The files or folders that a command replaces as a whole: by name, their bytes."""


def read_files(folder: Path) -> Parts:
    """Return the bytes of each file in a folder, by its path; the durations of a run are never equal."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "timings.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def read_parts(folder: Path) -> Parts:
    """Return the visible files of a folder, and the content of each visible subfolder that contains files."""
    visible = [path for path in folder.glob("[!.]*") if not path.name.endswith(".partial")] if folder.exists() else []
    parts = {path.name: read_files(path) if path.is_dir() else path.read_bytes() for path in visible}
    return {name: content for name, content in parts.items() if content != {}}


@dataclass
class Case:
    """A command, and the folder that contains what it writes.

    Args:
        old: Content of the folder before the command; None if it does not exist.
        processes: Number of simultaneous processes, one of which is killed.
    """

    name: str
    command: Sequence[object]
    folder: Path
    old: Path | None = None
    processes: int = 1
    counts: Counter[str] = field(default_factory=Counter)

    def reset(self) -> None:
        """Restore the content before the command."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.old is not None:
            shutil.copytree(self.old, self.folder)
        else:
            self.folder.mkdir()

    def arguments(self) -> list[object]:
        """Return the command, which resumes an interrupted training."""
        partial = self.folder / "run.partial" / "checkpoint" / "identity"
        return [*self.command, *(["--resume"] if partial.exists() else [])]

    def unfinished(self) -> list[str]:
        """Return the hidden and partial files."""
        names = (path.name for path in self.folder.rglob("*"))
        return sorted(name for name in names if name.startswith(".") or name.endswith(".partial"))


def run_undisturbed(case: Case, mortals: Mortals) -> tuple[Parts, float]:
    """Run a command from its initial state, and return what it writes, and the seconds."""
    case.reset()
    start = time.perf_counter()
    code, _ = mortals.run(*case.arguments(), seconds=NO_KILL)
    if code:
        sys.exit(f"'{case.name}' ends with code {code}")
    return read_parts(case.folder), time.perf_counter() - start


def kill_once(
    case: Case, processes: Sequence[Mortals], stop: str, seconds: float, new: Parts, stable: set[str], folder: Path
) -> None:
    """Stop a command once, check the result, run the command again, and check this result."""
    case.reset()
    old = read_parts(case.folder)
    number, stopped_code = STOPS[stop]
    limits = [NO_KILL if number is None else seconds, *[NO_KILL] * (case.processes - 1)]
    arguments = [*case.arguments(), *(("--time-limit", f"{seconds:.4f}s") if number is None else ())]
    with ThreadPoolExecutor(case.processes) as pool:
        jobs = [
            pool.submit(m.run, *arguments, seconds=s, number=number or signal.SIGKILL)
            for m, s in zip(processes, limits, strict=False)
        ]
        codes = [job.result()[0] for job in jobs]
    counts, found = case.counts, read_parts(case.folder)
    counts["kills"] += codes[0] == stopped_code
    names = found.keys() | old.keys() | new.keys()
    whole = all(found.get(n) in (old.get(n), new.get(n)) if n in stable else found.get(n) != b"" for n in names)
    is_new = all(found.get(n) == new.get(n) for n in stable)
    counts["torn" if not whole else "new" if is_new else "old"] += 1
    counts["failed"] += any(codes[1:]) or codes[0] not in (0, stopped_code)
    stale = list(folder.iterdir())
    code, _ = processes[0].run(*case.arguments(), seconds=NO_KILL)
    found = read_parts(case.folder)
    counts["failed"] += code != 0
    counts["different"] += found.keys() != new.keys() or any(found[n] != new[n] for n in stable)
    counts["unfinished"] += bool(case.unfinished())
    counts["temporary"] += any(path.exists() for path in stale)
    for path in folder.iterdir():
        shutil.rmtree(path, ignore_errors=True)


def make_cases(folder: Path, run: Callable[..., object]) -> list[Case]:
    """Write tables and the old results, and return the commands."""
    web, model = folder / "web", resource_path("models", "webkb.rcrf")
    web.mkdir()
    make_web(web, pages=PAGES)
    data = ("--data", web, "--budget", 10**6)
    old = {name: folder / f"old_{name}" for name in ("train", "predict", "report", "new", "demo")}
    out = {name: folder / f"out_{name}" for name in (*old, "ground", "cache")}
    for path in (*old.values(), *out.values()):
        path.mkdir()
    train = ("train", model, *data, "--backend", "ess", "--set", "max_iterations=20", "--force", "--out")
    run(*train, old["train"] / "run", "--set", "l2=3")
    run(*train, folder / "run")
    (old["predict"] / "found.csv").write_text("old")
    (old["report"] / "report.html").write_text("old")
    (old["new"] / "model.rcrf").write_text("old")
    predict = ("predict", folder / "run", *data, "--out", out["predict"] / "found.csv")
    report = ("report", folder / "run", *data, "--out", out["report"] / "report.html")
    new = ("new", web, "--predict", "page.category", "--yes", "--force", "--out", out["new"] / "model.rcrf")
    cache = ("ground", model, *data, "--cache")
    return [
        Case("train", (*train, out["train"] / "run"), out["train"], old["train"]),
        Case("predict", predict, out["predict"], old["predict"]),
        Case("ground", (*cache, out["ground"]), out["ground"]),
        Case("report", report, out["report"], old["report"]),
        Case("new", new, out["new"], old["new"]),
        Case("demo", ("demo", "--splits", 1, "--out", out["demo"]), out["demo"], old["demo"]),
        Case("two on one cache", (*cache, out["cache"]), out["cache"], processes=2),
    ]


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="7 kills")
    parser.add_argument("--kills", type=int, default=300, help="number of kills of all commands together")
    parser.add_argument("--seed", type=int, default=1, help="seed of the times")
    parser.add_argument("--command", help="stop only this command, a name of the first column")
    parser.add_argument("--stop", choices=STOPS, default="kill", help="how commands are stopped")
    chosen = parser.parse_args()
    kills, generator = sized(chosen, chosen.kills, 7, 2), np.random.default_rng(chosen.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        temporary = folder / "temporary"
        temporary.mkdir()
        os.environ["TMPDIR"] = str(temporary)
        processes = [Mortals(), Mortals()]
        cases = make_cases(folder, lambda *argv: processes[0].run(*argv, warm=True))
        cases = [case for case in cases if chosen.stop != "time" or case.name in TIME_LIMITED]
        cases = [case for case in cases if chosen.command in (None, case.name)]
        cases = cases[: sized(chosen, None, None, 2)]
        for number, case in enumerate(cases):
            case.reset()
            for mortals in processes[: case.processes]:
                mortals.run(*case.arguments(), warm=True)
            (new, seconds), (again, _) = (run_undisturbed(case, processes[0]) for _ in range(2))
            stable = {part for part in new if new[part] == again[part]}
            for path in temporary.iterdir():
                shutil.rmtree(path, ignore_errors=True)
            share = kills * (number + 1) // len(cases) - kills * number // len(cases)
            while case.counts["kills"] < share:  # a command can end before the time
                kill_once(case, processes, chosen.stop, generator.uniform(0, seconds), new, stable, temporary)
            print(
                f"{case.name}: {seconds:.2f} s, {dict(case.counts)}; compared: {', '.join(sorted(stable))}", flush=True
            )
        for mortals in processes:
            mortals.close()
    table = Table("command", *COUNTS)
    for case in cases:
        table.add_row(case.name, *(str(case.counts[count]) for count in COUNTS))
    total = {count: sum(case.counts[count] for case in cases) for count in COUNTS}
    table.add_row("total", *(str(total[count]) for count in COUNTS))
    Console(width=100).print(table)
    rows = {case.name: {count: case.counts[count] for count in COUNTS} for case in cases}
    print(
        json.dumps(
            {"relcrf": relcrf.__version__, "seed": chosen.seed, "stop": chosen.stop, "commands": rows, "total": total}
        )
    )


if __name__ == "__main__":
    main()
