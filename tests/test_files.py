"""Files that one process or thread writes at a time."""

import threading

import pytest
from filelock import Timeout

from relcrf.files import file_lock


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
