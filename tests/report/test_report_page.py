"""The documentation page about reports: its commands and examples run."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from command import relcrf_command

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_documentation_page_can_be_followed(tmp_path, monkeypatch, capsys):
    for name in ("models", "datasets"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "how-to" / "report.md").read_text()
    ran = 0
    for language, block in BLOCK.findall(text):
        if language == "python":
            (tmp_path / "example.py").write_text(block)
            runpy.run_path(str(tmp_path / "example.py"))
            ran += 1
            continue
        for line in block.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            if words[0] == "python":
                subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True)
            elif words[0] == "relcrf":
                code, _, err = relcrf_command(capsys, monkeypatch, *words[1:])
                assert code == 0, (line, err)
            ran += 1
    assert ran >= 6 and (tmp_path / "web.html").exists() and (tmp_path / "again.html").exists()
    for picture in re.findall(r"\]\(\.\./(pictures/[^)]+)\)", text):
        assert (ROOT / "docs" / picture).is_file()
