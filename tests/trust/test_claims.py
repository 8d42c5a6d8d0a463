"""Tests of run folders: files of the user in and next to them are preserved, and concurrent trainings do not interfere."""

import json
import os
from zipfile import ZipFile

import duckdb
import numpy as np
import pytest

from relcrf.backends import checkpoints, run_folder
from relcrf.errors import UsageError
from relcrf.execution import memory
from relcrf.files import remove_folder, write_text
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture
def train(relcrf_, web, tmp_path):
    """Return a function that trains into a folder and returns the exit code and standard error."""

    def run(out="run", *more, data=web):
        code, _, err = relcrf_("train", MODEL, "--backend", "ess", "--data", data, "--out", tmp_path / out, *more)
        assert "Traceback" not in err
        return code, err

    return run


def read_files(folder):
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if path.name not in ("timings.json", "manifest.json")
    }


def test_existing_links_are_not_followed(tmp_path):
    """With predictable temporary names, a link could redirect the output to another file."""
    (tmp_path / "mine").write_text("mine")
    for name in (".out.txt.writing", "out.txt"):
        (tmp_path / name).symlink_to(tmp_path / "mine")
    write_text(tmp_path / "out.txt", "new")
    assert (tmp_path / "mine").read_text() == "mine" and (tmp_path / "out.txt").read_text() == "new"
    assert not (tmp_path / "out.txt").is_symlink()


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_file_mode_follows_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "out", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o666 & ~mask


def test_neighbouring_folders_are_not_changed(train, tmp_path):
    for name in ("run.replaced", "run.partial.removed", "run.removed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("precious")
    assert train()[0] == 0 and train("run", "--force")[0] == 0
    for name in ("run.replaced", "run.partial.removed", "run.removed"):
        assert (tmp_path / name / "file").read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"run", "run.replaced", "run.partial.removed", "run.removed"}
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "file").touch()
    code, err = train("other", "--force")
    assert (code, "E331" in err, "name of an unfinished run" in err) == (2, True, True)


def test_force_does_not_delete_foreign_files(train, web, tmp_path):
    assert train()[0] == 0
    for name in ("page.csv", "link.csv", "page_words.csv"):
        write_text(tmp_path / "run" / name, (web / name).read_text())
    for more in ({"data": tmp_path / "run"}, {}):
        code, err = train("run", "--force", **more)
        assert (code, "E331" in err) == (2, True)
    assert "page.csv" in err and (tmp_path / "run" / "page.csv").exists()
    code, err = train("new", "--cache", tmp_path / "new" / "cache")
    assert (code, "E331" in err, "inside the run folder" in err) == (2, True, True)


def test_concurrent_training_raises_e407(train, tmp_path):
    with run_folder.claim_folder(tmp_path / "run", resume=False, force=False) as partial:
        (partial / "checkpoint" / "identity").write_text("of the first")
        for more in ((), ("--force",), ("--resume",)):
            code, err = train("run", *more)
            assert code == 2 and ("E407" in err or "E337" in err), err
        assert "E407" in train("run", "--force")[1] and "E407" in train("run", "--resume")[1]
        assert (partial / "checkpoint" / "identity").read_text() == "of the first"
    assert train("run", "--force")[0] == 0


def test_run_created_during_training_is_not_replaced(train, tmp_path, monkeypatch):
    require = run_folder.require_writable
    train("other")

    def late(folder, **how):
        if "read" not in how:  # the second check, after grounding
            (tmp_path / "other").rename(tmp_path / "run")
        require(folder, **how)

    monkeypatch.setattr(run_folder, "require_writable", late)
    code, err = train("run")
    assert (code, "E330" in err) == (2, True)


def test_link_to_a_run_folder_is_preserved(train, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "run")
    assert train("link")[0] == 0
    first = read_files(tmp_path / "there" / "run")
    for _ in range(2):
        assert train("link", "--force")[0] == 0
    assert (tmp_path / "link").is_symlink() and read_files(tmp_path / "there" / "run") == first
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["run"]


def test_failure_after_learning_keeps_the_weights(train, tmp_path, monkeypatch):
    steps = []
    step = checkpoints.CheckpointMonitor.step
    monkeypatch.setattr(checkpoints.CheckpointMonitor, "step", lambda *given: (steps.append(given[1]), step(*given)))
    assert train("whole")[0] == 0 and steps

    def full(folder, names):
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr(run_folder, "file_hashes", full)
    code, err = train()
    assert code == 2 and "E314" in err and not (tmp_path / "run").exists()
    monkeypatch.undo()
    monkeypatch.setattr(checkpoints.CheckpointMonitor, "step", lambda *given: (steps.append(given[1]), step(*given)))
    steps.clear()
    assert train("run", "--resume")[0] == 0
    assert not steps, "nothing is learned again"
    assert read_files(tmp_path / "run") == read_files(tmp_path / "whole")
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_failed_resume_keeps_the_checkpoint(train, tmp_path, monkeypatch, interrupted_training):
    with interrupted_training():
        assert train("whole")[0] == train()[0] == 130
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    code, err = train("run", "--resume")
    assert (code, "E435" in err) == (2, True)
    monkeypatch.undo()
    assert train("run", "--resume")[0] == train("whole", "--force")[0] == 0
    assert read_files(tmp_path / "run") == read_files(tmp_path / "whole")


@pytest.mark.parametrize(
    ("exception", "expected"), [(duckdb.InterruptException("Interrupted!"), 130), (MemoryError(), 2)]
)
def test_failed_training_saves_its_state(train, tmp_path, monkeypatch, interrupted_training, exception, expected):
    monkeypatch.setattr(checkpoints, "SAVE_INTERVAL", 1e9)
    with interrupted_training(exception):
        assert train()[0] == expected
    with np.load(tmp_path / "run.partial" / "checkpoint" / "weights.npz") as state:
        last = json.loads(state["path.log"].tobytes())[-1]
    assert (last["stage"], last["iteration"]) == ("weights", 3)


def test_training_killed_before_the_final_rename_can_be_resumed(train, tmp_path):
    """The checkpoint is deleted and the run not yet renamed: everything is learned again."""
    assert train("whole")[0] == 0 and train()[0] == 0
    left = tmp_path / ".run.partial.ab12cd_9.removed"
    (tmp_path / "run").rename(tmp_path / "run.partial")
    (left / "checkpoint").mkdir(parents=True)
    assert train("run", "--resume")[0] == 0
    assert read_files(tmp_path / "run") == read_files(tmp_path / "whole") and not left.exists()


@pytest.mark.parametrize("at", [2, 5, 9])
def test_training_interrupted_within_a_step_can_be_resumed(train, tmp_path, monkeypatch, at):
    assert train("whole")[0] == 0
    count, calls = np.count_nonzero, []

    def interrupt(array):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return count(array)

    monkeypatch.setattr(checkpoints.np, "count_nonzero", interrupt)
    assert train()[0] == 130
    monkeypatch.undo()
    assert train("run", "--resume")[0] == 0
    assert read_files(tmp_path / "run") == read_files(tmp_path / "whole")


def corrupt_array(folder):
    """Change one byte of an array."""
    path = folder / "weights.npz"
    content = bytearray(path.read_bytes())
    with ZipFile(path) as file:
        at = file.getinfo("point.npy").header_offset
    content[content.index(b"NUMPY", at) + 200] ^= 1
    path.write_bytes(content)


def remove_iteration(folder):
    """Remove the iteration."""
    path = folder / "weights.npz"
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "iteration"}
    np.savez(path, **arrays)


def truncate_file(folder):
    path = folder / "weights.npz"
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    "spoil", [corrupt_array, remove_iteration, truncate_file, lambda f: (f / "identity").write_bytes(b"\xff\xfe")]
)
def test_damaged_checkpoint_cannot_be_resumed(train, tmp_path, interrupted_training, spoil):
    with interrupted_training():
        assert train()[0] == 130
    spoil(tmp_path / "run.partial" / "checkpoint")
    code, err = train("run", "--resume")
    assert (code in (2, 3), err.count("error[")) == (True, 1) and ("E336" in err or "E333" in err)
    assert train("run", "--force")[0] == 0


def test_folder_is_removed_under_a_random_name(tmp_path):
    for name in ("one", "one.removed"):
        (tmp_path / name).mkdir()
    remove_folder(tmp_path / "one")
    assert [path.name for path in tmp_path.iterdir()] == ["one.removed"]


def test_save_from_python_raises_e407_as_well(train, web, tmp_path):
    import relcrf

    fit = relcrf.load(MODEL).fit(relcrf.Dataset(web), "ess", max_iterations=2)
    with run_folder.claim_folder(tmp_path / "run", resume=False, force=False), pytest.raises(UsageError, match="E407"):
        fit.save(tmp_path / "run")
