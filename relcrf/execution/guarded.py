"""A process with limited memory for work on untrusted data. A crash of the process does not affect its parent.

Parent and process exchange lines of JSON through pipes, and nothing is unpickled. `multiprocessing` is not used, because it runs
the main script of the user again. The module imports only the standard library where it has resource limits, so that the
process starts fast.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]
    import psutil

Handler = Callable[..., Mapping[str, Any]]

_PR_SET_PDEATHSIG = 1
"""Option of Linux's `prctl`: the signal that the process receives when its parent dies (linux/prctl.h)."""

WATCH_INTERVAL = 0.05
"""Seconds between two checks of the memory of a process on systems without resource limits."""

OUT_OF_MEMORY = 77
"""Exit code of a process that a check of its memory has ended."""

_START = "import sys; sys.path[:] = {path!r}; from {module} import main; main({memory_bytes}, {parent})"


class ProcessDied(Exception):
    """The error of a guarded process that has died.

    Args:
        cause: Name of the signal that ended the process, such as SIGSEGV, or its exit code.
        step: The step of the request that the process reported last; empty if it reported none.
        output: What the process wrote to standard error.
    """

    def __init__(self, cause: str, step: str, output: str) -> None:
        super().__init__(f"{cause} {step}\n{output}")
        self.cause, self.step, self.output = cause, step, output


class GuardedProcess:
    """A process that answers one request at a time. It does not outlive its parent.

    Args:
        module: A module with a function `main(memory_bytes, parent)`, which calls `serve_requests`.
        memory_bytes: Limit of the memory that the process can allocate, in bytes.
        folder: An empty folder for the standard error of the process.
    """

    def __init__(self, module: str, memory_bytes: int, folder: Path) -> None:
        self._errors = folder / "errors"
        code = _START.format(path=sys.path, module=module, memory_bytes=memory_bytes, parent=os.getpid())
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                process_group=0,  # the signals of the terminal reach the parent only, on Windows with the next argument
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )

    def call(self, function: str, **arguments: Any) -> Any:
        """Call a handler of the process and return its result. If the call is interrupted, the process is killed.

        Raises:
            ProcessDied: The process has died.
        """
        step = ""
        try:
            assert self._process.stdin is not None and self._process.stdout is not None
            try:
                self._process.stdin.write(json.dumps([function, arguments]).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise self._death(step) from None
            while True:
                line = self._process.stdout.readline()
                if not line.endswith(b"\n"):
                    raise self._death(step)
                reply = json.loads(line)
                if "step" not in reply:
                    return reply
                step = reply["step"]
        except BaseException:
            self.kill()
            raise

    def _death(self, step: str) -> ProcessDied:
        code = self._process.wait()
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return ProcessDied(cause, step, self._errors.read_text(errors="replace").strip())

    def is_alive(self) -> bool:
        """Return True if the process was not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # of an unsent request
                    continue


def serve_requests(handlers: Mapping[str, Handler], memory_bytes: int, parent: int) -> None:
    """Answer the requests of the parent process until it closes the pipe or dies.

    Args:
        memory_bytes: Limit of the memory that this process can allocate, in bytes.
        parent: Process identifier of the parent.
    """
    if resource is None:
        threading.Thread(target=_watch_memory, args=(memory_bytes,), daemon=True).start()
    else:
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_DATA, memory_bytes)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before
            os._exit(1)
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print

    def send(reply: Mapping[str, Any]) -> None:
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()

    for line in requests:
        function, arguments = json.loads(line)
        send(handlers[function](lambda step: send({"step": step}), **arguments))


def _watch_memory(memory_bytes: int) -> None:
    """End this process if it uses more memory than a limit."""
    process = psutil.Process()
    while process.memory_info().rss <= memory_bytes:
        time.sleep(WATCH_INTERVAL)
    os._exit(OUT_OF_MEMORY)


def _limit(kind: int, amount: int) -> None:
    """Lower a resource limit of this process."""
    _, hard = resource.getrlimit(kind)
    limit = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    resource.setrlimit(kind, (limit, limit))
