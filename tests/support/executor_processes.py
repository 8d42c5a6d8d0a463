"""Functions that find the processes of Spark executors and wait for them."""

from __future__ import annotations

import os
import time
from pathlib import Path

GONE = (FileNotFoundError, ProcessLookupError)  # a process that ends before its file is opened, and while it is read


def executor_pids() -> list[int]:
    """Return the process IDs of the Spark executors among the descendants of this process."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(stat[1]), (folder / "cmdline").read_text()
        except GONE:
            continue
    found = []
    for pid, (parent, command) in parents.items():
        if "CoarseGrainedExecutorBackend" in command:
            while parent not in (0, os.getpid()):
                parent = parents.get(parent, (0, ""))[0]  # it may have ended since
            found += [pid] if parent else []
    return sorted(found)


def await_executors(number: int) -> list[int]:
    """Wait until there are `number` Spark executors and return them; a killed executor is replaced after some time."""
    while len(found := executor_pids()) != number:
        time.sleep(0.05)
    return found


def gone(pids: list[int], seconds: float = 600.0) -> bool:
    """Return True if the processes end within a number of seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(Path(f"/proc/{pid}").exists() and "Z" not in _state(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except GONE:
        return "Z"
