"""The documentation pages of inference methods: examples and links."""

import math
import re
import runpy
import shlex
from pathlib import Path

import pytest
from command import relcrf_command

import relcrf

PAGES = Path(relcrf.__file__).parent.parent / "docs" / "explanation" / "inference"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [text for kind, text in BLOCK.findall((PAGES / page).read_text()) if kind == language]


def test_junction_tree(tmp_path, capsys):
    path = tmp_path / "example.py"
    path.write_text("".join(blocks("junction_tree.md", "python")))
    runpy.run_path(str(path))
    lines = capsys.readouterr().out.splitlines()
    assert "exact" in lines[3] and "[1 1 1 1]" in lines
    assert lines[-4:] == ["3", "[32.  0.  0.  0.]", "[336.   0.   0.   0.]", "4 exact"]


def test_uai(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("alarm.uai").write_text(blocks("uai.md", "text")[0])
    Path("alarm.evid").write_text("1 1 0\n")
    (commands,) = blocks("uai.md", "console")
    for line in commands.splitlines():
        code, out, err = relcrf_command(capsys, monkeypatch, *shlex.split(line.removeprefix("$ "))[1:])
        assert code == 0, (line, err)
        assert out or Path("alarm.MAR").exists()
    (example,) = blocks("uai.md", "python")
    Path("example.py").write_text(example)
    runpy.run_path("example.py")
    # Variable 1 is in state 0: a column that sums to 5, and a row that sums to 9.25.
    assert float(capsys.readouterr().out) == pytest.approx(math.log10(5 * 9.25), abs=1e-9)
    assert relcrf_command(capsys, monkeypatch, "infer", "rest.uai", "--task", "PR")[1].startswith("PR\n1.66511")


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.iterdir()))
def test_links(page):
    for target in re.findall(r"\]\(([^)#]+)\)", (PAGES / page).read_text()):
        assert (PAGES / target).exists(), target


@pytest.mark.parametrize("page", ["README.md", "belief_propagation.md", "mean_field.md", "gibbs.md", "map.md"])
def test_example_runs(page):
    (text,) = blocks(page, "python")
    exec(compile(text, page, "exec"), {})
