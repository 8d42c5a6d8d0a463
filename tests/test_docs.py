"""The commands, examples, models and links of the documentation."""

import os
import re
import runpy
import shlex
from functools import partial
from pathlib import Path

import pytest
from command import json_command, relcrf_command
from command_cache import CommandCache
from shown_output import missing_lines

import relcrf
from relcrf.cli import output as cli_output
from relcrf.proposal import trial

ROOT = Path(relcrf.__file__).parent.parent
CODE_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = CommandCache()
SAVE_AS = re.compile(r"Save it as\s+`(\w+\.rcrf)`")


def read_page(page):
    """Return the text of a page and its code blocks, as pairs of language and content."""
    text = (ROOT / page).read_text()
    return text, CODE_BLOCK.findall(text.replace("<!-- times differ -->\n```text", "```times"))


def relcrf_commands(block):
    """Yield the arguments of each relcrf command in a console block; a backslash continues a line."""
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("$ relcrf "):
            yield shlex.split(line.removeprefix("$ relcrf "))


TESTED_ELSEWHERE = ("editor", "python", "serve")
"""How-to pages that are not run here: the last two have separate tests, and the first one installs software."""

PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/explanation/grounding.md",
    *sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "docs" / "how-to").glob("*.md")
        if path.stem not in TESTED_ELSEWHERE
    ),
]
"""Pages with commands or examples that run in an empty folder."""


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_examples_run_in_empty_folder(page, tmp_path, monkeypatch, capsys):
    """Where a page shows the output of commands, this is the output in a terminal of 80 columns.

    A comment before the output says that it contains times; it is then not compared.
    """
    monkeypatch.chdir(tmp_path)
    for console in (cli_output.console, cli_output.messages):
        monkeypatch.setattr(console, "width", 80)
    monkeypatch.setattr(
        trial, "MAX_SECONDS", 0.0
    )  # relcrf new trains one model in one fold; tests/proposal compare models
    monkeypatch.setattr(trial, "MAX_COMPUTE_SECONDS", 2.0)

    def execute(arguments):
        code, out, err = relcrf_command(capsys, monkeypatch, *arguments)
        assert code == 0, (arguments, err)
        return (out + "\n" + err).replace(f"{tmp_path}{os.sep}", "")

    text, blocks = read_page(page)
    model_name = SAVE_AS.search(text)
    n_run, output = 0, None
    for language, content in blocks:
        if language == "rcrf" and model_name:
            (tmp_path / model_name[1]).write_text(content)
        elif language == "console":
            commands = list(relcrf_commands(content))
            output = "".join(COMMANDS.run(tmp_path, each, partial(execute, each)) for each in commands)
            n_run += len(commands)
            if any(each[0] == "new" for each in commands):
                output = None  # its trial is shorter here
            continue
        elif language == "times":
            continue
        elif language == "text" and output:
            assert missing_lines(content, output) == [], output
        elif language == "python":
            (tmp_path / "example.py").write_text(content)
            runpy.run_path(str(tmp_path / "example.py"))
            n_run, output = n_run + 1, capsys.readouterr().out
            continue
        output = None
    assert n_run >= 1


def test_command_cache_distinguishes_inputs(tmp_path):
    """A repeated command is executed again if a file that it names has other content."""
    cache, n_executed = CommandCache(), 0

    def execute(folder):
        nonlocal n_executed
        n_executed += 1
        (folder / "out").mkdir(exist_ok=True)
        (folder / "out" / "copy").write_text((folder / "data" / "file").read_text())
        (folder / "old").unlink()
        return f"output {n_executed}"

    contents = ("x", "y", "x")
    for number, content in enumerate(contents):
        folder = tmp_path / str(number)
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "file").write_text(content)
        (folder / "old").touch()
        output = cache.run(folder, ["copy", "data", "--out", "out"], partial(execute, folder))
        assert output == ("output 2" if content == "y" else "output 1")
        assert (folder / "out" / "copy").read_text() == content and not (folder / "old").exists()
    assert n_executed == 2


def test_model_of_readme_has_no_warnings():
    (model,) = [content for language, content in read_page("README.md")[1] if language == "rcrf"]
    assert relcrf.parse(model).warnings == ()


def test_model_in_python_equals_model_in_language(tmp_path):
    (example,) = [content for language, content in read_page("docs/reference/language.md")[1] if language == "py"]
    (tmp_path / "example.py").write_text(example)
    model = runpy.run_path(str(tmp_path / "example.py"))["model"]
    assert [t.name for t in model.spec.templates] == ["word", "cocited", "smooth"]
    assert model.spec.rules[0].name == "courses"


@pytest.mark.parametrize(
    "page", ["README.md", "SECURITY.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
)
def test_link_targets_exist(page):
    for target in re.findall(r"\]\(([^)#]+)\)", read_page(page)[0]):
        assert (ROOT / page).parent.joinpath(target).exists(), target


@pytest.mark.skipif("RELCRF_DATA" not in os.environ, reason="RELCRF_DATA is not set")
def test_webkb_accuracy(capsys, monkeypatch):
    data = Path(os.environ["RELCRF_DATA"]) / "webkb"
    code, found = json_command(
        capsys,
        monkeypatch,
        "evaluate",
        ROOT / "models" / "webkb.rcrf",
        "--data",
        data,
        "--split",
        "university",
        "--backend",
        "ess",
    )
    assert code == 0
    assert found["attributes"]["Page.category"]["n"] == 877
    assert found["attributes"]["Page.category"]["accuracy"] > 0.83
