"""Tasks in separate processes: results, crashes, time limits, memory."""

import os
from functools import partial

import numpy as np
import pytest
from apart_pieces import identity, sleep_for, take_memory
from executor_processes import gone

from relcrf.execution.isolated import memory_usage, run_isolated


def test_each_task_has_own_process():
    found = {done.number: done.value for done in run_isolated([identity] * 3, 2)}
    assert sorted(found) == [0, 1, 2]
    pids = {pid for pid, _ in found.values()}
    assert len(pids) == 3 and os.getpid() not in pids
    assert {threads for _, threads in found.values()} == {"1"}


def test_crash_does_not_affect_other_tasks():
    first, second = run_isolated([partial(os._exit, 3), identity], 1)
    assert (first.number, first.value, first.failure) == (0, None, "died")
    assert second.value is not None and second.failure == ""


def test_task_over_time_limit_is_stopped():
    (slow,) = run_isolated([partial(sleep_for, 3600.0)], 1, 0.5)
    assert (slow.value, slow.failure) == (None, "stopped")
    (quick,) = run_isolated([partial(sleep_for, 0.0)], 1, 600.0)
    assert quick.value is not None and quick.failure == ""


def test_exception_of_task_is_raised_unchanged():
    with pytest.raises(ValueError, match="invalid literal"):
        list(run_isolated([partial(int, "x"), partial(sleep_for, 3600.0)], 2))


def test_closing_iterator_ends_running_tasks():
    answers = run_isolated([identity, partial(sleep_for, 3600.0)], 2)
    first = next(answers)
    answers.close()
    assert first.number == 0 and gone([first.value[0]])


def test_memory_usage_excludes_parent_process():
    mine = np.ones(30_000_000)  # 240 MB in this process, which a child must not count
    now, most = memory_usage()
    assert most >= now > mine.nbytes
    (done,) = run_isolated([partial(take_memory, 50_000_000)], 1)
    before, peak = done.value
    assert before < mine.nbytes and peak - before == pytest.approx(50_000_000, rel=0.3)
