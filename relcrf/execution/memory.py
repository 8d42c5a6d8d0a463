"""How much memory a process may still take, so that what needs more is refused before it is killed."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from relcrf.errors import Diagnostic, UsageError

SCRATCH_FACTOR = 4
"""Times the bytes of a ground graph that learning or inference in one piece takes beside it. Of a web of 100,000 pages, with as
many words as a page has, the likelihood of single variables took 1.5 times, pseudo-likelihood 2.4, the ESS-CRF 3.1. Of candidates
with 4,000,000 cells, TR-MRF took 3.4 times what `AbstractSpace.nbytes` says."""

LEARNING_VECTORS = 30
"""Vectors of weights that a quasi-Newton method holds: ten pairs of differences, and what it works with."""

INFERENCE_VECTORS = 4
"""Vectors of weights that inference holds."""

_CGROUP_ROOT = "/sys/fs/cgroup"
_LIMIT_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Of the second and the first version of Linux's control groups."""


def require_memory(graph_bytes: int, n_weights: int, n_vectors: int, operation: str) -> None:
    """Refuses what would be killed for its memory.

    Args:
        graph_bytes: bytes of the ground graph or the piece of it that is worked on, and of candidates' cells. weights: their number.
        n_vectors: of weights, `LEARNING_VECTORS` or `INFERENCE_VECTORS`. what: needs the memory.

    Raises:
        UsageError: where there is less memory than it takes.
    """
    needed, there = SCRATCH_FACTOR * graph_bytes + 8 * n_vectors * n_weights, available_bytes()
    if needed <= there:
        return
    message = f"{operation} would take about {_format_bytes(needed)} of memory, and {_format_bytes(there)} are free"
    notes = (f"a graph of {_format_bytes(graph_bytes)}, and {n_weights:,} weights",)
    hint = "a smaller --memory works in shards; narrower templates have fewer factors and keys"
    raise UsageError(Diagnostic("E435", message, hint=hint, notes=notes))


def _format_bytes(n_bytes: int) -> str:
    return f"{n_bytes / (1 << 30):,.1f} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / (1 << 20):,.0f} MiB"


def available_bytes() -> int:
    """Return the bytes that are free on the machine, in the container and within the process's own limit: the least of these."""
    free = int(psutil.virtual_memory().available)
    return max(0, min([free, *_container_limits(), *_process_limits()]))


def _container_limits() -> list[int]:
    out = []
    for folder in _memory_cgroups():
        # Pages of files count as used, and go where memory is needed.
        cached = re.search(r"^(?:total_)?inactive_file (\d+)$", _read(f"{folder}/memory.stat"), re.MULTILINE)
        for limit, used in _LIMIT_FILES:
            most, now = _read(f"{folder}/{limit}").strip(), _read(f"{folder}/{used}").strip()
            if most.isdigit() and now.isdigit():
                out.append(int(most) - int(now) + (int(cached[1]) if cached else 0))
    return out


def _memory_cgroups() -> list[str]:
    """The process's control groups that limit memory, and those that these are in."""
    found = dict.fromkeys((_CGROUP_ROOT, f"{_CGROUP_ROOT}/memory"))
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        base = (
            _CGROUP_ROOT
            if not controllers
            else f"{_CGROUP_ROOT}/memory"
            if "memory" in controllers.split(",")
            else None
        )
        parts = [part for part in path.split("/") if part not in ("", "..")]
        if base is not None:
            found |= dict.fromkeys("/".join([base, *parts[:k]]) for k in range(len(parts) + 1))
    return list(found)


def _process_limits() -> list[int]:
    if not hasattr(psutil, "RLIMIT_AS"):  # systems without limits of address space, or that psutil cannot ask for them
        return []
    process = psutil.Process()
    most, _ = process.rlimit(psutil.RLIMIT_AS)
    return [] if most == psutil.RLIM_INFINITY else [most - process.memory_info().vms]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
