"""Test of Ctrl-C while the command is imported."""

import subprocess
import sys

INTERRUPTED_IMPORT = """
import signal, sys, importlib.abc
class InterruptingFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, InterruptingFinder())
sys.argv = ["relcrf", "runs"]
from relcrf.__main__ import main
main()
"""


def test_ctrl_c_during_imports_prints_no_traceback():
    for name in ("relcrf.cli.commands", "relcrf.cli.main", "relcrf.kernels.compile"):
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED_IMPORT.format(name=name)], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n"), name
