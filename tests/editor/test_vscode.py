"""The VS Code extension: the content of its .vsix file, and its client and commands with the real language server."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from node_packages import EXTENSION, ROOT, install_packages

import relcrf
from relcrf.editor.quick_fixes import FIX_ALL

pytest.importorskip("pygls")


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    """Build the extension as its README describes; return the folder of the build and that of the unpacked .vsix file."""
    packages = install_packages()
    folder = tmp_path_factory.mktemp("extension") / "vscode"
    shutil.copytree(EXTENSION, folder, ignore=shutil.ignore_patterns("node_modules", "dist", "*.vsix"))
    (folder / "node_modules").symlink_to(packages)
    found = subprocess.run(["npm", "run", "package"], cwd=folder, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    with zipfile.ZipFile(folder / "relcrf.vsix") as archive:
        archive.extractall(folder.parent / "unpacked")
    return folder, folder.parent / "unpacked" / "extension"


def test_package_contains_only_what_runs(extension):
    _, unpacked = extension
    assert {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()} == {
        "LICENSE.txt",
        "dist/extension.js",
        "dist/licences.txt",
        "icon.png",
        "language-configuration.json",
        "package.json",
        "readme.md",
        "syntaxes/rcrf.tmLanguage.json",
    }
    assert sum(path.stat().st_size for path in unpacked.rglob("*") if path.is_file()) < 1_000_000
    manifest = json.loads((unpacked / "package.json").read_text())
    assert manifest["version"] == relcrf.__version__
    assert (unpacked / manifest["main"]).is_file()
    assert "Apache License" in (unpacked / "LICENSE.txt").read_text()
    # The licences of the bundled packages require that their text is included.
    packages = set(re.findall(r"^(\S+) \d+\.\d+\.\d+$", (unpacked / "dist" / "licences.txt").read_text(), re.MULTILINE))
    assert packages >= {"vscode-languageclient", "vscode-jsonrpc", "vscode-languageserver-protocol"}


def test_client_and_commands(extension):
    """Run the tests of the extension, which load it from the .vsix file and start the language server."""
    folder, unpacked = extension
    environment = {
        **os.environ,
        "RELCRF_COMMAND": json.dumps([sys.executable, "-m", "relcrf"]),
        "RELCRF_EXTENSION": str(unpacked),
    }
    command = ["node", "--test", "--test-reporter=tap", "test/extension.test.js"]
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert found.returncode == 0, found.stdout + found.stderr
    n_tests = (EXTENSION / "test" / "extension.test.js").read_text().count("\ntest(")
    assert n_tests > 10
    assert f"\n# pass {n_tests}\n" in found.stdout


def test_page_matches_extension():
    """The how-to page lists the commands that the fixture runs, every command of the extension, and existing settings."""
    page = (ROOT / "docs" / "how-to" / "editor.md").read_text()
    readme = (EXTENSION / "README.md").read_text()
    manifest = json.loads((EXTENSION / "package.json").read_text())
    assert "cd editors/vscode\nnpm ci\nnpm run package\n" in page
    assert "npm ci\nnpm run package\n" in readme
    titles = re.findall(r"^\| \*relcrf: (.*?)\* \|", page, re.MULTILINE)
    assert titles == [command["title"] for command in manifest["contributes"]["commands"]]
    settings = json.loads(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    assert "relcrf.command" in settings and "relcrf.command" in manifest["contributes"]["configuration"]["properties"]
    assert list(settings["[rcrf]"]["editor.codeActionsOnSave"]) == [FIX_ALL]
