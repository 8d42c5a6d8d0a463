"""Tests of the completion scripts, in a shell without a terminal and in interactive shells."""

import shlex
import shutil
import subprocess
import sys

import pytest
from shell import Shell

from relcrf.backends import registry


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "relcrf.bash"
    command = [sys.executable, "-m", "relcrf.cli.main", "completion", "bash"]
    path.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return path


@pytest.fixture
def offered(script, tmp_path):
    """Return a function that completes the last word of a command line in bash."""

    def run(*words):
        line = " ".join(shlex.quote(word) for word in words)
        text = (
            f"source {shlex.quote(str(script))}\nCOMP_WORDS=({line})\nCOMP_CWORD={len(words) - 1}\n"
            '_relcrf 2>&1\n[[ ${#COMPREPLY[@]} == 0 ]] || printf "%s\\n" "${COMPREPLY[@]}"\n'
        )
        done = subprocess.run(["bash", "--norc", "-c", text], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert not done.stderr, done.stderr
        return done.stdout.splitlines()

    return run


def test_completes_commands_and_options(offered):
    assert offered("relcrf", "tr") == ["train"]
    assert {"new", "check", "train", "completion", "explain-error"} <= set(offered("relcrf", ""))
    assert offered("relcrf", "train", "--ba") == ["--backend"]
    assert "--json" in offered("relcrf", "plan", "--")
    assert offered("relcrf", "explain-error", "E36") == [f"E36{k}" for k in range(10) if k != 7]
    assert offered("relcrf", "nothing", "--") == []


def test_backends_methods_and_settings(offered):
    assert offered("relcrf", "train", "m.rcrf", "--backend", "") == registry.backend_names()
    assert offered("relcrf", "train", "m.rcrf", "-b", "trm") == ["trmrf"]
    assert offered("relcrf", "train", "m.rcrf", "--backend", "=", "den") == ["dense"]
    assert offered("relcrf", "train", "m.rcrf", "--set", "") == ["effort=", "seed="]
    assert offered("relcrf", "train", "m.rcrf", "--backend", "ess", "--set", "min_f") == ["min_fraction="]
    assert "memory=" in offered("relcrf", "infer", "g.uai", "--set", "")
    chosen = offered("relcrf", "train", "m.rcrf", "--backend", "dense", "--set", "")
    assert "l2=" in chosen and "min_fraction=" not in chosen
    assert offered("relcrf", "train", "m.rcrf", "-b", "ess", "--set", "l2", "=", "") == []
    assert offered("relcrf", "train", "m.rcrf", "-b", "ess", "--set", "edges", "=", "") == ["auto", "tree", "all"]
    assert offered("relcrf", "train", "m.rcrf", "-b", "ess", "--set", "edges", "=", "t") == ["tree"]
    assert offered("relcrf", "train", "m.rcrf", "--set", "min_f") == ["min_fraction="]  # not a setting of auto
    assert offered("relcrf", "compare", "m.rcrf", "--backend", "ess,d") == ["ess,dense"]
    assert offered("relcrf", "compare", "m.rcrf", "-b", "ess,dense", "-s", "ess.min_f") == ["ess.min_fraction="]
    assert offered("relcrf", "compare", "m.rcrf", "-s", "ess.edges", "=", "a") == ["auto", "all"]
    assert offered("relcrf", "infer", "g.uai", "-m", "gibbs", "-s", "sw") == ["sweeps="]
    assert "gibbs" in offered("relcrf", "infer", "g.uai", "--method", "g")
    assert offered("relcrf", "infer", "g.uai", "--task", "") == ["PR", "MAR", "MPE", "MMAP"]
    assert offered("relcrf", "ground", "m.rcrf", "--engine", "d") == ["duckdb"]
    assert offered("relcrf", "cluster", "run", "--method", "a") == ["average"]
    assert offered("relcrf", "weights", "run", "--sort", "s") == ["support"]
    assert offered("relcrf", "train", "m.rcrf", "--split", "r") == ["random"]
    assert offered("relcrf", "example", "fr") == ["fraud"]


def test_files(offered, tmp_path):
    for name in ("web model.rcrf", "web.csv", "$(touch hacked).rcrf"):
        (tmp_path / name).write_text("")
    (tmp_path / "runs" / "web").mkdir(parents=True)
    (tmp_path / "runs" / "web" / "run.json").write_text('{"format": 2, "backend": "dense", "settings": {}}')
    (tmp_path / "runs" / "other").mkdir()
    assert set(offered("relcrf", "check", "")) == {"web model.rcrf", "$(touch hacked).rcrf", "runs/"}
    assert offered("relcrf", "predict", "runs/w") == ["runs/web"]
    assert offered("relcrf", "predict", "runs/o") == ["runs/other/"]
    assert set(offered("relcrf", "evaluate", "r")) == {"runs/"}
    assert offered("relcrf", "explain", "runs/w") == offered("relcrf", "diff", "runs/web", "runs/w") == ["runs/web"]
    assert offered("relcrf", "explain", "--data", "x", "--json", "runs/w") == ["runs/web"]
    assert offered("relcrf", "explain", "runs/web", "Page/") == []
    assert offered("relcrf", "explain", "runs/web", "Page/1", "--set", "obje") == ["objective="]
    assert offered("relcrf", "explain", "runs/web", "Page/1", "--set", "min_in") == ["min_information="]
    assert "web.csv" in offered("relcrf", "check", "web model.rcrf", "--data", "w")
    assert not (tmp_path / "hacked").exists()


LINES = {
    "relcrf explain ru": "relcrf explain runs/",
    "relcrf explain runs/w": "relcrf explain runs/web",
    "relcrf explain runs/web Page/1 --set inference=tr": "relcrf explain runs/web Page/1 --set inference=trw ",
    "relcrf train m.rcrf --set l2": "relcrf train m.rcrf --set l2=",
    "relcrf train m.rcrf --backend ess --set infer": "relcrf train m.rcrf --backend ess --set inference=",
    "relcrf evaluate m.rcrf --backend ess,den": "relcrf evaluate m.rcrf --backend ess,dense ",
    "relcrf example fr": "relcrf example fraud ",
    "relcrf check we": "relcrf check web.rcrf ",
    "relcrf weights runs/web --sort supp": "relcrf weights runs/web --sort support ",
}
"""Lines before and after <Tab>."""


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_tab_in_an_interactive_shell(name, relcrf_, tmp_path):
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}")
    (tmp_path / "script").write_text(relcrf_("completion", name)[1])
    (tmp_path / "web.rcrf").write_text("")
    (tmp_path / "runs" / "web").mkdir(parents=True)
    (tmp_path / "runs" / "web" / "run.json").write_text('{"format": 2, "backend": "ess", "settings": {}}')
    shell = Shell(name, tmp_path)
    try:
        shell.type("source ./script; echo rea'dy'\n")
        shell.expect("ready")
        for before, after in LINES.items():
            shell.type(f"{before}\t")
            shell.expect(after)
            shell.type("\x15")  # Ctrl-U deletes the line
    finally:
        shell.close()


def test_other_shells(relcrf_, relcrf_json, tmp_path):
    code, zsh, _ = relcrf_("completion", "zsh")
    assert code == 0 and "bashcompinit" in zsh and "compdef _relcrf_zsh relcrf" in zsh
    code, found = relcrf_json("completion", "fish")
    lines = found["script"].splitlines()
    assert code == 0 and "complete -c relcrf -f" in lines
    (line,) = [x for x in lines if "from train'" in x and "-l backend" in x]
    assert "trmrf" in line and all(
        len(shlex.split(x.replace("\\'", ""))) >= 4 for x in lines if x.startswith("complete")
    )
    code, _, err = relcrf_("completion", "tcsh")
    assert code == 2 and err.count("error[E300]") == 1
