"""Ctrl-C before the command has been loaded."""

import subprocess
import sys

LATE = """
import signal, sys, importlib.abc
class Interrupts(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["relcrf", "--version"]
from relcrf.__main__ import main
main()
"""


def test_ctrl_c_while_imports_run_is_no_traceback():
    for name in ("relcrf.cli.main", "relcrf.kernels.compile"):
        done = subprocess.run([sys.executable, "-c", LATE.format(name=name)], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n"), name
