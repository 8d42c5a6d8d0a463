"""Scripts that run in forks of one process, which has imported what they need once."""

import multiprocessing
import os
import runpy
import sys
import tempfile
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "forked_script",
        "pandas",
        "scipy.optimize",
        "rich.table",
        "relcrf.api",
        "relcrf.backends",
        "sklearn.ensemble",
        "sklearn.linear_model",
        "sklearn.model_selection",
    ]
)


def run_forked(script, *arguments, folder):
    """Run a script as `python script arguments` in a folder, which is also that of its temporary files.

    Returns:
        The exit code, and what the script writes to the standard output and to the standard error.
    """
    outputs = [Path(folder) / name for name in ("stdout", "stderr")]
    process = FORKS.Process(target=_run, args=(str(script), list(arguments), str(folder), outputs))
    process.start()
    process.join(1200)
    process.kill()
    process.join()
    return process.exitcode, *(output.read_text() for output in outputs)


def _run(script, arguments, folder, outputs):
    """Run the script in this process, a fork; the standard streams become the files `outputs`."""
    for stream, output in enumerate(outputs, 1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), stream)
    os.chdir(folder)
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    runpy.run_path(script, run_name="__main__")
