"""A process that forks one for each command, so that a hundred can be killed without a hundred imports.

It reads a line of JSON for each, `{"argv": [...], "cpu": seconds or null}`, and answers with a line: how the command ended, as
`Popen.returncode` has it, and the seconds of the processor that it took.
"""

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

    def run(self, *argv, cpu=None):
        """Runs a command, which is killed when it has had so many seconds of the processor.

        Returns:
            its return code, -9 of a killed one; and the seconds that it took.
        """
        self.process.stdin.write(json.dumps({"argv": [str(one) for one in argv], "cpu": cpu}) + "\n")
        self.process.stdin.flush()
        return tuple(json.loads(self.process.stdout.readline()))

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def _child(run, asked):
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    sys.argv = ["relcrf", *asked["argv"]]
    if asked["cpu"] is not None:
        # The system ends the process at once: without a handler this signal is as deaf as SIGKILL.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, max(asked["cpu"], 1e-4))
    try:
        run()
    except SystemExit as end:
        os._exit(end.code or 0)
    os._exit(0)


def main():
    from relcrf.backends import checkpoints
    from relcrf.cli.main import run

    checkpoints.SAVE_EVERY = 0.0
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            _child(run, asked)
        _, status, used = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        print(json.dumps([-9 if code == -signal.SIGPROF else code, used.ru_utime + used.ru_stime]), flush=True)


if __name__ == "__main__":
    main()
