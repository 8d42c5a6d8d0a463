"""A process that forks one child per command, so that a hundred commands can be killed without a hundred imports.

It reads one JSON object per line, with the arguments of `Mortals.run`, and answers with one line: the exit code in the
convention of `Popen.returncode`, and the number of calls. It runs on one core, because a fork does not copy other threads.
Tests kill a child at a counted call and not after a time, independent of the load.
"""

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from relcrf.execution import temporary


class Mortals:
    """The client of the forking process."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *argv, calls=None, seconds=None, number=signal.SIGKILL, file_bytes=None, warm=False):
        """Run a command, which is killed at a counted event.

        Args:
            calls: Number of calls of functions, of Python and of C, after which SIGKILL ends it.
            seconds: Time after which a signal is sent to it. Calls are not counted then.
            number: The number of this signal.
            file_bytes: Size beyond which no file can grow; the write that exceeds it kills the command.
            warm: Run it in the process itself, so that its imports and kernels are loaded for all that follow.

        Returns:
            Return code, negative for a killed command; and the number of calls, 0 for a killed or warm one.
        """
        request = {"argv": [str(one) for one in argv], "calls": calls, "seconds": seconds}
        request |= {"number": int(number), "file_bytes": file_bytes, "warm": warm}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return tuple(json.loads(self.process.stdout.readline()))

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=600)


def _command(run, argv):
    sys.argv = ["relcrf", *argv]
    try:
        run()
    except SystemExit as end:
        return end.code or 0
    return 0


def _child(run, request):
    """Run a command as in a new process, count its calls, and kill this process at the limit."""
    temporary.remove_stale_folders_once.cache_clear()
    limit, n_calls = request["calls"], 0
    if request["file_bytes"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and the write would fail instead
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"],) * 2)

    def count(frame, event, argument):
        nonlocal n_calls
        n_calls += event in ("call", "c_call")
        if n_calls == limit:
            os.kill(os.getpid(), signal.SIGKILL)

    if request["seconds"] is None:
        sys.setprofile(count)
    code = _command(run, request["argv"])
    sys.setprofile(None)
    return code, n_calls


def _kill_late(child, seconds, number):
    """Wait for the end of a child, and send a signal to it after a time."""
    deadline = time.monotonic() + seconds
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= deadline:
            os.kill(child, number)
            return
        time.sleep(0.0005)


def _answer(run, request):
    if request["warm"]:
        return [_command(run, request["argv"]), 0]
    # Garbage of a warm run collected in the fork would wait for threads of DuckDB that do not exist there.
    gc.collect()
    gc.freeze()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        code, n_calls = _child(run, request)
        os.write(write, json.dumps(n_calls).encode())
        os._exit(code)
    os.close(write)
    if request["seconds"] is not None:
        _kill_late(child, request["seconds"], request["number"])
    with os.fdopen(read) as report:
        n_calls = json.loads(report.read() or "0")
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), n_calls]


def main():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    answers = os.fdopen(os.dup(1), "w")
    silent = os.open(os.devnull, os.O_RDWR)
    os.dup2(silent, 1)
    os.dup2(silent, 2)

    from relcrf.backends import checkpoints
    from relcrf.cli.main import run

    checkpoints.SAVE_INTERVAL = 0.0
    for line in sys.stdin:
        answers.write(json.dumps(_answer(run, json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
