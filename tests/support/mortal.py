"""A process that forks one for each command, so that a hundred can be killed without a hundred imports.

It reads a line of JSON for each, `{"argv": [...], "cpu": seconds or null}`, and answers with a line: how the command ended, as
`Popen.returncode` has it, and the seconds of the processor that it took. It runs on one core: forks have no other threads.
"""

import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path


class Mortals:
    """The other end of that process."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *argv, cpu=None, warm=False):
        """Runs a command, which is killed when it has had so many seconds of the processor.

        Args:
            warm: in that process itself, so that what is loaded and compiled is there for all that follow.

        Returns:
            its return code, -9 of a killed one; and the seconds that it took.
        """
        asked = {"argv": [str(one) for one in argv], "cpu": cpu, "warm": warm}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return tuple(json.loads(self.process.stdout.readline()))

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=60)


def _command(run, asked):
    sys.argv = ["relcrf", *asked["argv"]]
    if asked["cpu"] is not None:
        # Without a handler the system ends the process at once, as SIGKILL does.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, max(asked["cpu"], 1e-4))
    try:
        run()
    except SystemExit as end:
        return end.code or 0
    return 0


def main():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    answers = os.fdopen(os.dup(1), "w")
    silent = os.open(os.devnull, os.O_RDWR)
    os.dup2(silent, 1)
    os.dup2(silent, 2)

    from relcrf.backends import checkpoints
    from relcrf.cli.main import run

    checkpoints.SAVE_EVERY = 0.0
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["warm"]:
            answer = [_command(run, asked), 0.0]
        else:
            # A fork that collects what is left of a warm run would wait for threads of DuckDB, which it does not have.
            gc.collect()
            gc.freeze()
            child = os.fork()
            if not child:
                os._exit(_command(run, asked))
            _, status, used = os.wait4(child, 0)
            code = os.waitstatus_to_exitcode(status)
            answer = [-9 if code == -signal.SIGPROF else code, used.ru_utime + used.ru_stime]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
