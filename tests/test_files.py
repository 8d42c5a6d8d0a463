"""Files that one process or thread writes at a time."""

import os
import threading

import pytest
from filelock import Timeout

from relcrf.data import frame
from relcrf.files import atomic_path, file_lock, write_text
from relcrf.report import graph_files, page


def test_a_lock_is_held_by_one_and_leaves_nothing(tmp_path):
    path = tmp_path / ".lock"
    with file_lock(path):
        with pytest.raises(Timeout), file_lock(path, timeout=0.0):
            pass
        assert path.exists()
    with file_lock(path, timeout=0.0):
        pass
    assert not list(tmp_path.iterdir())


def test_threads_that_wait_come_one_after_the_other(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(20):
            with file_lock(tmp_path / ".lock"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80 and max(most) == 1


def test_unfinished_files_of_dead_processes_are_removed(tmp_path):
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    with atomic_path(tmp_path / "a.csv") as partial:
        own = partial.name
        dead = own.replace(f"-{os.getpid()}-", f"-{child}-")
        kept = {
            own,
            own.replace(f"-{os.getpid()}-", f"-{os.getppid()}-"),
            dead.replace(".a.csv.", ".b.csv."),
            dead.replace("-", "0-", 1),  # of another machine
            "." + dead,
        }
        for name in (*kept, dead):
            (tmp_path / name).touch()
        write_text(tmp_path / "a.csv", "first")
        assert {path.name for path in tmp_path.iterdir()} == kept | {"a.csv"}
    assert not (tmp_path / own).exists()


@pytest.mark.parametrize(
    ("module", "name"), [(frame, "rows.csv"), (page, "report.html"), (graph_files, "graph.graphml")]
)
def test_unwritable_folders_are_rejected_before_the_work(module, name, tmp_path, monkeypatch):
    module.require_writable(tmp_path / "new" / name)
    assert (tmp_path / "new").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        module.require_writable(tmp_path / "file" / name)
    monkeypatch.setattr(os, "access", lambda *arguments: False)  # root may write to every folder
    with pytest.raises(PermissionError):
        module.require_writable(tmp_path / "new" / name)
