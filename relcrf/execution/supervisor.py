"""A process that waits for a command and reports its death by a signal. The module imports only the standard library."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable

from relcrf.execution.temporary import remove_stale_folders

_FORWARDED_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT")

FORWARDED = tuple(getattr(signal, name) for name in _FORWARDED_NAMES if hasattr(signal, name))
"""Signals that the supervisor forwards to the command, unless the terminal has sent them to both processes."""

CRASHES = {
    "SIGSEGV": "a native library crashed, which a damaged or malicious file can cause",
    "SIGBUS": "a native library crashed; a file may have been truncated while it was read",
    "SIGABRT": "a native library stopped, often for a lack of memory",
    "SIGILL": "a native library crashed",
    "SIGFPE": "a native library crashed",
    "SIGKILL": "the usual cause is a lack of memory: lower --memory, or see the log of the system",
}
"""Signals that end a command which has not been told to stop, and their usual causes."""

NATIVE_PACKAGES = frozenset(("duckdb", "numba", "numpy"))
"""Packages whose import starts threads that Python does not count."""

_MAX_SENT_CODE = 0
"""Maximum code of a signal that a process has sent; those of the terminal have larger codes (asm-generic/siginfo.h)."""

_PR_SET_PDEATHSIG = 1


def supervise(run: Callable[[], None]) -> None:
    """Call a function in a child process, where this function returns; report the child's death by a signal.

    This process ends with the exit code of the child, or with 128 + the number of the signal. The function is called in this
    process where the supervision is impossible or would hide the function from a debugger or profiler. A process that has
    imported NumPy or DuckDB is not forked, because their threads do not survive a fork.
    """
    is_observed = sys.gettrace() is not None or sys.getprofile() is not None or bool(os.environ.get("RELCRF_DEBUG"))
    has_threads = threading.active_count() > 1 or not NATIVE_PACKAGES.isdisjoint(sys.modules)
    if sys.platform != "linux" or has_threads or is_observed:
        run()
        return
    signals = {*FORWARDED, signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, the exit code of the child is lost
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        run()
        return
    code = _wait(child, signals)
    if code < 0:
        remove_stale_folders(tempfile.gettempdir())
        name = signal.Signals(-code).name
        if name in CRASHES:
            sys.stderr.write(f"internal error: the command was ended by {name}; {CRASHES[name]}\n")
            sys.stderr.flush()
    os._exit(code if code >= 0 else 128 - code)  # nothing is left to clean up


def _wait(child: int, signals: set[signal.Signals]) -> int:
    """Wait for the end of the child, and forward signals meanwhile; return the exit code, negative for a signal."""
    while True:
        received = signal.sigwaitinfo(signals)
        if received.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == child:
                return os.waitstatus_to_exitcode(status)
            continue
        if received.si_code <= _MAX_SENT_CODE:
            os.kill(child, received.si_signo)
        if received.si_signo == signal.SIGTSTP:  # the shell waits for this process to stop
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
