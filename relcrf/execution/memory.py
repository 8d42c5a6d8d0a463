"""Checks of available memory, which reject an operation before the system kills the process for lack of memory."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from relcrf.errors import Diagnostic, UsageError

DEFAULT_MEMORY = "auto"
"""The memory limit `auto`: AUTOMATIC_MEMORY for tables and the ground graph, and all available memory for computations."""

AUTOMATIC_MEMORY = "1GB"

SCRATCH_FACTOR = 4
"""Memory that learning or inference in one process needs beyond the ground graph, as a multiple of the graph's bytes.

This is an upper bound of the measured multiples. On 100,000 linked pages with words, these are 1.5 for the likelihood of single
variables, 2.4 for pseudo-likelihood and 3.1 for the ESS-CRF. On candidates with 4,000,000 cells, TR-MRF needs 3.4 times
`AbstractSpace.nbytes`."""

INFERENCE_VECTORS = 4
"""Number of weight vectors that inference stores."""

MIN_LIMIT = 64 << 20
"""Minimum memory for learning and inference, whatever the user's limit; less than Python and its packages need."""

MAX_NOTES = 3
"""Maximum number of parts of an estimate that a message lists."""

_CGROUP_ROOT = "/sys/fs/cgroup"
_LIMIT_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Names of the files with the limit and the usage of a Linux control group: for version 2, then for version 1."""


@dataclass(frozen=True)
class MemoryUse:
    """One part of the memory that an operation needs.

    Args:
        name: The arrays, as a noun phrase.
    """

    name: str
    n_bytes: int

    def __str__(self) -> str:
        return f"{self.name}: {format_bytes(self.n_bytes)}"


@dataclass(frozen=True)
class TemplateSize:
    """The sizes of one template of a ground graph.

    Args:
        n_bytes: Bytes of the factors in memory.
        n_cells: Number of entries of the tables of the factors over two or more variables.
    """

    name: str
    n_bytes: int
    n_weights: int
    n_cells: int = 0


@dataclass(frozen=True)
class WorkingArrays:
    """The numbers of arrays that a method has in memory at the same time, as upper bounds of measured peaks.

    Args:
        states: Arrays with one number for each state of each variable.
        cells: Arrays with one number for each entry of the table of each factor over two or more variables.
        weights: Arrays with one number for each weight.
    """

    states: float
    cells: float
    weights: int


def estimate_memory(
    templates: Sequence[TemplateSize], n_variables: int, n_states: int, arrays: WorkingArrays, n_extra_bytes: int = 0
) -> tuple[MemoryUse, ...]:
    """Return the parts of the memory that learning or inference needs, the largest part first.

    Args:
        n_states: Sum of the numbers of states of all variables.
        n_extra_bytes: Bytes of the cells of candidates.
    """
    graph = [MemoryUse(f"factors of '{each.name}'", SCRATCH_FACTOR * each.n_bytes) for each in templates]
    tables = [
        MemoryUse(f"tables of '{each.name}' ({each.n_cells:,} entries)", int(8 * arrays.cells * each.n_cells))
        for each in templates
    ]
    weights = [
        MemoryUse(f"weights of '{each.name}' ({each.n_weights:,})", 8 * arrays.weights * each.n_weights)
        for each in templates
    ]
    states = MemoryUse(
        f"probabilities of {n_variables:,} variables with {n_states:,} states in all", int(8 * arrays.states * n_states)
    )
    candidates = MemoryUse("cells of candidates", SCRATCH_FACTOR * n_extra_bytes)
    uses = (use for use in (*graph, *tables, *weights, states, candidates) if use.n_bytes)
    return tuple(sorted(uses, key=lambda use: -use.n_bytes))


def total_bytes(uses: Sequence[MemoryUse]) -> int:
    """Return the sum of the parts of an estimate."""
    return sum(use.n_bytes for use in uses)


_latest_estimate: list[MemoryUse] = []
"""The parts of the latest estimate, which `memory_exhausted_error` names."""


def require_memory(uses: Sequence[MemoryUse], operation: str, limit: int | None = None) -> None:
    """Reject an operation that needs more memory than is available, or than the user allows.

    Args:
        uses: The parts of the memory that the operation needs, the largest part first.
        operation: The operation, as a noun phrase that becomes the subject of the message.
        limit: The user's limit in bytes; None if there is none.

    Raises:
        UsageError: The operation needs more memory than is available or allowed (E435).
    """
    _latest_estimate[:] = uses
    needed, available = total_bytes(uses), available_bytes()
    allowed = available if limit is None else max(limit, MIN_LIMIT)
    if needed <= min(available, allowed):
        return
    message = f"{operation} would take about {format_bytes(needed)} of memory, but "
    if allowed < available:
        message += f"--memory allows {format_bytes(allowed)}"
        hint = "raise --memory, or add conditions to the templates to get fewer factors, keys and values"
    else:
        message += f"{format_bytes(available)} are available"
        hint = (
            "set a smaller --memory to work in shards, or add conditions to the templates to get fewer factors and keys"
        )
    raise UsageError(Diagnostic("E435", message, hint=hint, notes=_describe(uses)))


def memory_exhausted_error(error: MemoryError) -> UsageError:
    """Return the error for an allocation that failed; it names the largest parts of the latest estimate (E435)."""
    reason = str(error).strip().partition("\n")[0]
    notes = ((reason[0].lower() + reason[1:],) if reason else ()) + _describe(_latest_estimate)
    hint = (
        "free memory, raise the limit of the process (ulimit -v), or reduce the tables; 'relcrf plan' lists the sizes"
    )
    return UsageError(Diagnostic("E435", "the memory is exhausted", hint=hint, notes=notes))


def _describe(uses: Sequence[MemoryUse]) -> tuple[str, ...]:
    return tuple(str(use) for use in uses[:MAX_NOTES])


def format_bytes(n_bytes: int) -> str:
    """Return a size in MiB or GiB as text."""
    return f"{n_bytes / (1 << 30):,.1f} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / (1 << 20):,.0f} MiB"


def _find_malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # not the GNU C library
        return None


_malloc_trim = _find_malloc_trim()


def return_freed_memory() -> None:
    """Return freed memory to the operating system; the GNU C library keeps that of arrays below 32 MiB in each thread's pool.

    In learning from 300,000 linked pages, the freed memory of earlier steps is a fifth of the memory of the process.
    """
    if _malloc_trim is not None:
        _malloc_trim(0)


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
