"""Work in processes of its own: answers, crashes, limits, memory."""

import os
from functools import partial

import numpy as np
import pytest
from apart_pieces import identity, sleep_for, take_memory
from executor_processes import gone

from relcrf.execution.isolated import memory_usage, run_isolated


def test_each_has_a_process():
    found = {done.number: done.value for done in run_isolated([identity] * 3, 2)}
    assert sorted(found) == [0, 1, 2]
    pids = {pid for pid, _ in found.values()}
    assert len(pids) == 3 and os.getpid() not in pids
    assert {threads for _, threads in found.values()} == {"1"}


def test_one_that_dies_leaves_the_others_alone():
    first, second = run_isolated([partial(os._exit, 3), identity], 1)
    assert (first.number, first.value, first.failure) == (0, None, "died")
    assert second.value is not None and second.why == ""


def test_one_that_takes_too_long_is_stopped():
    (slow,) = run_isolated([partial(sleep_for, 3600.0)], 1, 0.5)
    assert (slow.value, slow.failure) == (None, "stopped")
    (quick,) = run_isolated([partial(sleep_for, 0.0)], 1, 600.0)
    assert quick.value is not None and quick.failure == ""


def test_an_error_comes_back_as_itself():
    with pytest.raises(ValueError, match="invalid literal"):
        list(run_isolated([partial(int, "x"), partial(sleep_for, 3600.0)], 2))


def test_who_asks_for_no_more_ends_the_others():
    answers = run_isolated([identity, partial(sleep_for, 3600.0)], 2)
    first = next(answers)
    answers.close()
    assert first.number == 0 and gone([first.value[0]])


def test_memory_is_that_of_the_process_alone():
    mine = np.ones(30_000_000)  # 240 MB here, which a child must not count
    now, most = memory_usage()
    assert most >= now > mine.nbytes
    (done,) = run_isolated([partial(take_memory, 50_000_000)], 1)
    before, peak = done.value
    assert before < mine.nbytes and peak - before == pytest.approx(50_000_000, rel=0.3)
