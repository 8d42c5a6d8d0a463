"""The wheel holds all that relcrf needs: it runs from an unpacked one, away from the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import relcrf
from relcrf.kernels.compile import cache_folder

ROOT = Path(relcrf.__file__).parent.parent

RUN_COMMANDS = """
import shlex, sys
from relcrf.__main__ import main
for command in sys.argv[1:]:
    print("$ relcrf", command, flush=True)
    sys.argv[1:] = shlex.split(command)
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"exit code {end.code}: {command}")
"""
"""A program that runs the commands given as its arguments in one process."""

COMMANDS = (
    "example web --out web",
    "check web/webkb.rcrf --data web",
    "train web/webkb.rcrf --data web --backend ess --out run",
    "predict run --data web --out predictions.csv",
    "report run --data web --out report.html",
    "profile web --out tables.html",
    "explain-error E101",
    "completion bash",
)
"""Commands that read files of the wheel. `tests/test_docs.py` runs the commands of the README in the checkout."""


def build_wheel(folder, **environment):
    """Build a wheel in a folder and return its path."""
    build = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", build, str(folder)]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return folder / done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_wheel_with_compiled_kernels(tmp_path):
    wheel = build_wheel(tmp_path, RELCRF_COMPILE_KERNELS="vector_math.*")
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{python}-{python}-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "from relcrf.kernels.compile import KERNELS, cache_folder, runs_portable_kernels; import relcrf.kernels.vector_math; "
        "print(cache_folder().path, KERNELS['vector_math.exp_in_place'].is_cached() or not runs_portable_kernels())"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith(str(tmp_path / "cache")) and done.stdout.endswith(" True\n")


@pytest.mark.slow
def test_relcrf_runs_from_its_wheel(tmp_path):
    wheel = build_wheel(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    # The wheel contains the same kernels as the checkout; compiling them again would take a minute.
    compiled = cache_folder().path
    if compiled is not None:
        target = tmp_path / "site" / "relcrf" / "kernels" / "__pycache__"
        unfinished = shutil.ignore_patterns(".*")  # of other workers, which may be adding kernels
        shutil.copytree(compiled, target, ignore=unfinished, dirs_exist_ok=True)
    assert "relcrf/shipped/grammar/rcrf.lark" in names
    assert "relcrf/shipped/models/digits.rcrf" in names
    assert {f"relcrf/report/{name}" for name in ("base.html", "page.html", "profile.html", "page.css")} <= set(names)
    assert not [n for n in names if n.startswith(("tests", "docs", "datasets"))]
    code = (
        "import relcrf; from relcrf.resources import resource_path; from relcrf.backends.registry import backend_names; "
        "model = relcrf.load(resource_path('models', 'webkb.rcrf')); "
        "print(relcrf.__file__); print(model.spec.entities[0].name); print(backend_names())"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    where, entity, backends = done.stdout.splitlines()
    assert where.startswith(str(tmp_path))
    assert entity == "Page"
    assert "ess" in backends

    folder = tmp_path / "empty"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", RUN_COMMANDS, *COMMANDS], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
