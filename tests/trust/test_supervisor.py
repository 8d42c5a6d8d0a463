"""Tests of the supervisor of the command: it forwards signals, follows job control, and reports crashes."""

import os
import pty
import signal
import subprocess
import sys
import time

import pytest
from executor_processes import gone

SUPERVISED = """
import os, signal, sys, time
from relcrf.execution.supervisor import supervise
def run():
    {body}
supervise(run)
print("end of the child", flush=True)
"""
COUNTING = """
    counts = {}
    def count(number, frame):
        counts[number] = counts.get(number, 0) + 1
        print(signal.Signals(number).name, flush=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, count)
    print(os.getpid(), flush=True)
    while not counts.get(signal.SIGUSR1):
        time.sleep(0.01)
"""


def start(body, **options):
    command = [sys.executable, "-c", SUPERVISED.format(body=body.strip())]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(process):
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def test_exit_codes_and_output_are_those_of_the_child():
    assert finish(start("pass")) == (0, "end of the child\n", "")
    assert finish(start("sys.exit(3)")) == (3, "", "")


def test_process_with_native_threads_is_not_forked():
    code = (
        "import numpy, os; from relcrf.execution.supervisor import supervise; pid = os.getpid(); "
        "supervise(lambda: print(os.getpid() == pid))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGKILL])
def test_crash_is_reported(number, tmp_path):
    body = (
        "from relcrf.execution.temporary import new_temporary_folder; new_temporary_folder(sys); "
        f"print('x' * 10, flush=True); os.kill(os.getpid(), {int(number)})"
    )
    code, out, err = finish(start(body, env={**os.environ, "TMPDIR": str(tmp_path)}))
    assert (code, out, err.count("\n")) == (128 + number, "x" * 10 + "\n", 1)
    assert err.startswith(f"internal error: the command was ended by {number.name}; ")
    assert not list(tmp_path.iterdir())


def test_default_signal_ends_silently():
    assert finish(start("os.kill(os.getpid(), signal.SIGTERM)")) == (143, "", "")


def test_signals_for_the_supervisor_alone_are_forwarded():
    process = start(COUNTING)
    process.stdout.readline()
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"{name}\n"
    assert finish(process) == (0, "end of the child\n", "")


def test_child_ends_with_the_supervisor():
    process = start(COUNTING)
    pid = int(process.stdout.readline())
    process.kill()
    assert gone([pid])
    process.communicate(timeout=300)


def test_ctrl_c_and_ctrl_z_in_a_terminal_reach_the_child_once():
    terminal, side = pty.openpty()
    command = [sys.executable, "-c", SUPERVISED.format(body=COUNTING.strip())]
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for descriptor in range(3):
            os.dup2(side, descriptor)
        os.close(os.open(os.ttyname(0), os.O_RDWR))  # it becomes the controlling terminal
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        job = os.fork()
        if job == 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(0, os.getpid())
            os.execv(command[0], command)
        while True:  # as a shell: report a stopped job and continue it
            _, status = os.waitpid(job, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                os._exit(os.waitstatus_to_exitcode(status))
            os.write(1, b"stopped\n")
            os.killpg(job, signal.SIGCONT)
    os.close(side)
    with os.fdopen(terminal, "rb", buffering=0) as output:
        child = int(_line(output))
        os.write(terminal, b"\x03")
        assert _line(output) == "^CSIGINT"
        os.write(terminal, b"\x1a")
        assert "stopped" in _line(output)
        time.sleep(0.2)
        os.kill(child, signal.SIGUSR1)
        assert _line(output) == "SIGUSR1", "Ctrl-C came only once"
        assert _line(output) == "end of the child"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _line(output):
    found = b""
    while not found.endswith(b"\n"):
        found += output.read(1)
    return found.decode().strip()


def test_broken_pipe_of_the_shell():
    relcrf = f"'{sys.executable}' -m relcrf"
    shell = f"{relcrf} --help | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=300)
    assert (done.stdout.splitlines()[-1] in ("0", "141"), done.stderr) == (True, "")
