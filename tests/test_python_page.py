"""The examples of docs/how-to/python.md, each run as a separate script."""

import re
import runpy
from pathlib import Path

import pytest

import relcrf

PAGE = (Path(relcrf.__file__).parent.parent / "docs" / "how-to" / "python.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_run(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("example.py").write_text(example)
    runpy.run_path("example.py", run_name="__main__")
    assert "print(" not in example or capsys.readouterr().out
