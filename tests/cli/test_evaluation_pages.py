"""The commands of the pages on cross-validation and comparison, run as a reader would."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "least", "made"),
    [("evaluate", 7, "answers/ess/fold-04/Page.category.csv"), ("compare", 3, "compare.png")],
)
def test_commands_of_page_run(page, least, made, relcrf_, tmp_path, monkeypatch, capsys):
    for name in ("models", "datasets"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    ran = 0
    for language, text in BLOCK.findall((ROOT / "docs" / "how-to" / f"{page}.md").read_text()):
        if language == "python":
            (tmp_path / "example.py").write_text(text)
            runpy.run_path(str(tmp_path / "example.py"))
            ran += 1
            continue
        for line in text.replace("\\\n", "").splitlines():
            words = shlex.split(line.removeprefix("$ "))
            if words[0] == "python":
                subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True)
            else:
                code, _, err = relcrf_(*words[1:])
                assert code == 0, (line, err)
            ran += 1
    assert ran >= least
    assert (tmp_path / made).exists()
