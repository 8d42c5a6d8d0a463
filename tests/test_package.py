"""The metadata of the package: licence, version, bounds, and the files that other services read."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import relcrf

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read_yaml(name):
    return yaml.safe_load((ROOT / name).read_text())


def test_version_has_one_place():
    """The version is in the package; the citation, the recipe and the extension repeat it."""
    assert "version" in PROJECT["project"]["dynamic"] and "version" not in PROJECT["project"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "relcrf/__init__.py"
    assert read_yaml("CITATION.cff")["version"] == relcrf.__version__
    assert read_yaml("conda/recipe.yaml")["context"]["version"] == relcrf.__version__
    assert json.loads((ROOT / "editors/vscode/package.json").read_text())["version"] == relcrf.__version__


def test_metadata_of_the_package(tmp_path):
    build = "from hatchling.build import prepare_metadata_for_build_wheel as p; import sys; print(p(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    metadata = (tmp_path / done.stdout.splitlines()[-1] / "METADATA").read_text()
    assert f"\nVersion: {relcrf.__version__}\n" in metadata
    for line in ("License-Expression: Apache-2.0", "License-File: LICENSE", "Author: relcrf contributors"):
        assert f"\n{line}\n" in metadata
    assert {"Documentation", "Source", "Issues", "Changes"} == {*PROJECT["project"]["urls"]}
    assert PROJECT["project"]["keywords"] and "Typing :: Typed" in PROJECT["project"]["classifiers"]


def test_licence_and_citation():
    licence = (ROOT / "LICENSE").read_text()
    assert licence == (ROOT / "editors/vscode/LICENSE").read_text(), "the extension is packaged with its own copy"
    assert "Apache License" in licence and "END OF TERMS AND CONDITIONS" in licence
    citation = read_yaml("CITATION.cff")
    assert citation["cff-version"] == "1.2.0" and citation["license"] == PROJECT["project"]["license"]
    notes = [source["notes"] for source in citation["references"]]
    assert notes == [f"Backend {name}" for name in ("ess", "trmrf", "gated", "grafting", "pseudo")]
    for source in citation["references"]:
        assert source["authors"] and source["title"] and source["year"]


def bounds(text):
    name, _, bound = re.sub(r"([\w-]+)(.*)", r"\1|\2", text.replace(" ", "")).partition("|")
    return name, bound


def test_recipe_has_the_requirements_of_the_package():
    run = dict(map(bounds, read_yaml("conda/recipe.yaml")["requirements"]["run"]))
    assert run.pop("python") == PROJECT["project"]["requires-python"]
    run["duckdb"] = run.pop("python-duckdb")
    assert run == dict(map(bounds, PROJECT["project"]["dependencies"]))
    host = dict(map(bounds, read_yaml("conda/recipe.yaml")["requirements"]["host"]))
    assert {*map(bounds, PROJECT["build-system"]["requires"])} <= {*host.items()}


def test_dependencies_have_bounds():
    extras = PROJECT["project"]["optional-dependencies"].values()
    texts = [*PROJECT["project"]["dependencies"], *(text for extra in extras for text in extra)]
    assert all(">=" in text and "<" in text for text in texts if not text.startswith("relcrf["))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_commands_that_exist(path):
    content = yaml.safe_load(path.read_text())
    assert content[True] and content["permissions"] == {"contents": "read"}  # YAML 1.1 reads `on` as true
    steps = [step for job in content["jobs"].values() for step in job["steps"]]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in (line for step in steps if "run" in step for line in step["run"].splitlines()):
        words = command.split()
        assert words[0] in ("python", "make", "bash", "relcrf", "test", "npm"), command
        if words[0] == "make":
            assert {*words[1:]} <= {*targets}, command
        if words[0] == "bash":
            assert (ROOT / words[1]).is_file(), command
    assert all("@" in step["uses"] for step in steps if "uses" in step), "every action has a version"


def test_workflows_cover_systems_and_versions():
    matrix = read_yaml(".github/workflows/test.yml")["jobs"]["systems"]["strategy"]["matrix"]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    classifiers = {f"Programming Language :: Python :: {version}" for version in matrix["python"]}
    listed = {text for text in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", text)}
    assert listed == classifiers
    release = read_yaml(".github/workflows/release.yml")["jobs"]
    assert release["publish"]["permissions"] == {"id-token": "write"} and "password" not in str(release)


def test_hooks_run_on_several_files(relcrf_, tmp_path):
    """The hooks of pre-commit pass the names of all changed models."""
    for path in ("a.rcrf", "b.rcrf"):
        (tmp_path / path).write_text("domain D={x,y}\nentity E { predict d : D }\ntemplate t(e: E) over e.d\n")
    names = [tmp_path / "a.rcrf", tmp_path / "b.rcrf"]
    entries = {hook["id"]: hook for hook in read_yaml(".pre-commit-hooks.yaml")}
    assert re.search(entries["relcrf-fmt"]["files"], "models/a.rcrf")
    for hook in entries.values():
        program, command = hook["entry"].split()
        assert program == "relcrf" and hook["language"] == "python"
        code, out, err = relcrf_(command, *names)
        assert code == 0, (out, err)
    assert (tmp_path / "b.rcrf").read_text().startswith("domain D = { x, y }")
    (tmp_path / "b.rcrf").write_text("entity E { d : Unknown }\n")
    code, _, err = relcrf_("check", *names)
    assert code == 2 and "b.rcrf:1" in err
