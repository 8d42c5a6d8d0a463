"""The packages of npm that build and test the VS Code extension, installed once per lock file in build/npm."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "editors" / "vscode"

_NO_CONNECTION = re.compile(r"\b(EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ENOTFOUND|ETIMEDOUT)\b")


def install_packages() -> Path:
    """Return the folder `node_modules` of the extension's lock file; skip the test without Node.js or a connection."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs Node.js")
    lock = (EXTENSION / "package-lock.json").read_bytes()
    folder = ROOT / "build" / "npm" / hashlib.sha256(lock).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    packages, partial = folder / "node_modules", folder / "partial"
    with FileLock(folder / "lock"):
        if not packages.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(EXTENSION / name, partial)
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
            found = subprocess.run(command, cwd=partial, capture_output=True, text=True)
            if found.returncode and _NO_CONNECTION.search(found.stderr):
                pytest.skip("needs the npm registry")
            assert found.returncode == 0, found.stderr
            (partial / "node_modules").rename(packages)
            shutil.rmtree(partial)
    return packages
