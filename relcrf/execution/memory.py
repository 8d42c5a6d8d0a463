"""Checks of available memory, which reject an operation before the system kills the process for lack of memory."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from relcrf.errors import Diagnostic, UsageError

SCRATCH_FACTOR = 4
"""Memory that learning or inference in one process needs beyond the ground graph, as a multiple of the graph's bytes.

This is an upper bound of the measured multiples. On 100,000 linked pages with words, these are 1.5 for the likelihood of single
variables, 2.4 for pseudo-likelihood and 3.1 for the ESS-CRF. On candidates with 4,000,000 cells, TR-MRF needs 3.4 times
`AbstractSpace.nbytes`."""

LEARNING_VECTORS = 30
"""Number of weight vectors that a quasi-Newton method stores: ten pairs of differences, and scratch vectors."""

INFERENCE_VECTORS = 4
"""Number of weight vectors that inference stores."""

_CGROUP_ROOT = "/sys/fs/cgroup"
_LIMIT_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Names of the files with the limit and the usage of a Linux control group: for version 2, then for version 1."""


def require_memory(graph_bytes: int, n_weights: int, n_vectors: int, operation: str) -> None:
    """Reject an operation that needs more memory than is available.

    Args:
        graph_bytes: Bytes of the ground graph, or of its part in use, plus the bytes of the candidates' cells.
        n_weights: Number of weights.
        n_vectors: Number of weight vectors in memory: `LEARNING_VECTORS` or `INFERENCE_VECTORS`.
        operation: The operation, as a noun phrase that becomes the subject of the message.

    Raises:
        UsageError: The operation needs more memory than is available (E435).
    """
    needed, available = SCRATCH_FACTOR * graph_bytes + 8 * n_vectors * n_weights, available_bytes()
    if needed <= available:
        return
    message = (
        f"{operation} would take about {_format_bytes(needed)} of memory, but {_format_bytes(available)} are available"
    )
    notes = (f"a graph of {_format_bytes(graph_bytes)}, and {n_weights:,} weights",)
    hint = "set a smaller --memory to work in shards, or add conditions to the templates to get fewer factors and keys"
    raise UsageError(Diagnostic("E435", message, hint=hint, notes=notes))


def _format_bytes(n_bytes: int) -> str:
    return f"{n_bytes / (1 << 30):,.1f} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / (1 << 20):,.0f} MiB"


def available_bytes() -> int:
    """Return the number of available bytes: the minimum over the machine, the container and the limit of the process."""
    free = int(psutil.virtual_memory().available)
    return max(0, min([free, *_container_limits(), *_process_limits()]))


def _container_limits() -> list[int]:
    limits = []
    for folder in _memory_cgroups():
        # The usage includes the page cache, which the system frees when memory is needed.
        cached = re.search(r"^(?:total_)?inactive_file (\d+)$", _read(f"{folder}/memory.stat"), re.MULTILINE)
        for limit, used in _LIMIT_FILES:
            maximum, usage = _read(f"{folder}/{limit}").strip(), _read(f"{folder}/{used}").strip()
            if maximum.isdigit() and usage.isdigit():
                limits.append(int(maximum) - int(usage) + (int(cached[1]) if cached else 0))
    return limits


def _memory_cgroups() -> list[str]:
    """Return the folders of the memory control groups of the process and of the ancestors of these groups."""
    folders = dict.fromkeys((_CGROUP_ROOT, f"{_CGROUP_ROOT}/memory"))
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
            folders |= dict.fromkeys("/".join([base, *parts[:k]]) for k in range(len(parts) + 1))
    return list(folders)


def _process_limits() -> list[int]:
    if not hasattr(psutil, "RLIMIT_AS"):  # the system has no address space limits, or psutil cannot read them
        return []
    process = psutil.Process()
    maximum, _ = process.rlimit(psutil.RLIMIT_AS)
    return [] if maximum == psutil.RLIM_INFINITY else [maximum - process.memory_info().vms]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
