"""Tests of power cuts, by replay of file operations: at any time, the old result or the new one is whole."""

import io

import numpy as np
import pytest
from volatile_disk import recorded, subtree, write_tree

from relcrf import api, files
from relcrf.backends import checkpoints, run_folder
from relcrf.data.dataset import Dataset
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture
def disk(tmp_path):
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture(scope="module")
def run(tmp_path_factory, web):
    folder = tmp_path_factory.mktemp("runs") / "run"
    api.load(MODEL).fit(Dataset(web), backend="ess").save(folder)
    return folder


@pytest.fixture(params=[True, False], ids=["flushed", "unflushed"])
def require(request, monkeypatch):
    """Return a function that requires a property of all states, and another one of the state after the end.

    Without flushes, some states must violate both.
    """

    def check(recorder, is_whole, is_new):
        assert all(map(is_whole, recorder.possible_trees())) == request.param
        assert is_new(recorder.durable_tree()) == request.param
        assert is_new(recorder.last_tree())

    if not request.param:
        monkeypatch.setattr(files, "_flush", lambda path: None)
    return check


@pytest.fixture
def train(relcrf_, web, disk, monkeypatch):
    """Return a function that trains the run `run` of the disk, with a checkpoint after each step."""
    monkeypatch.setattr(checkpoints, "SAVE_INTERVAL", 0.0)

    def run_command(*options):
        settings = ("--backend", "ess", "--set", "max_iterations=3", "--force")
        assert relcrf_("train", MODEL, "--data", web, *settings, "--out", disk / "run", *options)[0] == 0

    return run_command


def is_checkpoint(name, content):
    """Return True if a file of a checkpoint is whole."""
    if name == "identity":
        return content.startswith(f"{checkpoints.FORMAT_VERSION} ".encode()) and len(content) > 32
    try:
        with np.load(io.BytesIO(content)) as file:
            return len([file[name] for name in file.files]) > 0
    except (ValueError, EOFError, OSError):
        return False


@pytest.mark.parametrize("old", [False, True], ids=["first", "replaced"])
def test_run_folder_is_old_or_new(disk, train, require, old):
    if old:
        train("--set", "l2=3")
    with recorded(disk) as recorder:
        train()
    before, after = (subtree(tree, "run") for tree in (recorder.first_tree(), recorder.last_tree()))
    assert before != after

    def is_whole(tree):
        checkpoint = subtree(tree, "run.partial/checkpoint") or {}
        finished = {name: content for name, content in checkpoint.items() if not name.startswith(".")}
        return subtree(tree, "run") in (before, after) and all(is_checkpoint(*file) for file in finished.items())

    require(recorder, is_whole, lambda tree: subtree(tree, "run") == after)


def test_training_is_possible_after_a_power_cut(disk, train, tmp_path):
    with recorded(disk) as recorder:
        train()
    (identity,) = {
        content.decode().split(" ", 1)[1]
        for tree in recorder.possible_trees()
        if (content := tree.get("run.partial/checkpoint/identity"))
    }
    n_resumed = 0
    for k, tree in enumerate(recorder.possible_trees()):
        (tmp_path / str(k)).mkdir()
        write_tree(tree, tmp_path / str(k))
        resume = "run.partial" in tree
        with run_folder.claim_folder(tmp_path / str(k) / "run", resume=resume, force=True, sync=False) as partial:
            checkpoints.CheckpointMonitor(partial, identity, sync=False)
        n_resumed += "run.partial/checkpoint/identity" in tree
    assert n_resumed > 10


@pytest.mark.parametrize("name", ["found.csv", "found.jsonl", "found.arrow"])
def test_prediction_file_is_old_or_new(relcrf_, web, run, disk, require, name):
    (disk / name).write_text("old")
    with recorded(disk) as recorder:
        assert relcrf_("predict", run, "--data", web, "--out", disk / name)[0] == 0
    new = (disk / name).read_bytes()
    require(recorder, lambda tree: tree[name] in (b"old", new), lambda tree: tree[name] == new)


def test_cached_block_is_whole_or_absent(relcrf_, web, disk, require):
    with recorded(disk) as recorder:
        assert relcrf_("ground", MODEL, "--data", web, "--cache", disk / "cache")[0] == 0
    last = recorder.last_tree()
    blocks = {path for path, content in last.items() if content is None and path.startswith("cache/")}
    assert len(blocks) > 1 and all(subtree(last, block) for block in blocks)
    require(
        recorder,
        lambda tree: all(block not in tree or subtree(tree, block) == subtree(last, block) for block in blocks),
        lambda tree: all(subtree(tree, block) == subtree(last, block) for block in blocks),
    )


def test_fold_of_an_evaluation_is_whole_or_absent(relcrf_, web, disk, require):
    with recorded(disk) as recorder:
        evaluate = ("evaluate", MODEL, "--data", web, "--backend", "local", "--split", "folds=2")
        assert relcrf_(*evaluate, "--out", disk / "out")[0] == 0
    last = recorder.last_tree()
    folds = {path for path in last if path.rpartition("/")[2].startswith("fold-")}
    assert len(folds) == 2
    require(
        recorder,
        lambda tree: all(fold not in tree or subtree(tree, fold) == subtree(last, fold) for fold in folds),
        lambda tree: all(subtree(tree, fold) == subtree(last, fold) for fold in folds),
    )


def test_no_sync_flushes_nothing(relcrf_, web, disk, train):
    with recorded(disk) as recorder:
        train("--no-sync", "--cache", disk / "cache")
    assert not recorder.flushes and (disk / "run").is_dir()
