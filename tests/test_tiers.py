"""The two tiers of the suite: the fast one covers every package, and no test of the whole one is skipped unnoticed."""

import os
import subprocess
import sys
from pathlib import Path

from fast_tier import FAST

ROOT = Path(__file__).parents[1]


def test_the_fast_tier_covers_every_package():
    packages = {path.parent.name for path in (ROOT / "relcrf").glob("*/*.py")}
    assert set(FAST) == packages
    for package, files in FAST.items():
        assert files and all((ROOT / "tests" / name).is_file() for name in files), package


TESTS = """
import pytest

def test_one():
    pytest.skip("no reason")

@pytest.mark.skipif(True, reason="file systems cannot be mounted here")
def test_other():
    pass

def test_that_passes():
    pass
"""


def test_a_skip_that_is_not_expected_fails(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "tests" / "support"),
        "RELCRF_EXPECTED_SKIPS": str(ROOT / "tests" / "expected_skips.txt"),
    }

    def run(*options):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "skips", "test_some.py", *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout

    code, out = run("--numprocesses=1")
    assert code == 1
    assert "skipped 1: file systems cannot be mounted here\nskipped 1: no reason\nnot expected in" in out
    assert out.splitlines()[-1].startswith("1 passed, 2 skipped in ")
    assert run("-k", "not one")[0] == 0
