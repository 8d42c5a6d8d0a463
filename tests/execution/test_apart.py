"""Work in processes of its own: answers, crashes, limits, memory."""

import os
from functools import partial

import numpy as np
import pytest
from apart_pieces import identity, sleep_for, take_memory
from executor_processes import gone

from relcrf.execution.apart import each_apart, memory


def test_each_has_a_process():
    found = {done.number: done.answer for done in each_apart([identity] * 3, 2)}
    assert sorted(found) == [0, 1, 2]
    pids = {pid for pid, _ in found.values()}
    assert len(pids) == 3 and os.getpid() not in pids
    assert {threads for _, threads in found.values()} == {"1"}


def test_one_that_dies_leaves_the_others_alone():
    first, second = each_apart([partial(os._exit, 3), identity], 1)
    assert (first.number, first.answer, first.why) == (0, None, "died")
    assert second.answer is not None and second.why == ""


def test_one_that_takes_too_long_is_stopped():
    (slow,) = each_apart([partial(sleep_for, 3600.0)], 1, 0.5)
    assert (slow.answer, slow.why) == (None, "stopped")
    (quick,) = each_apart([partial(sleep_for, 0.0)], 1, 600.0)
    assert quick.answer is not None and quick.why == ""


def test_an_error_comes_back_as_itself():
    with pytest.raises(ValueError, match="invalid literal"):
        list(each_apart([partial(int, "x"), partial(sleep_for, 3600.0)], 2))


def test_who_asks_for_no_more_ends_the_others():
    answers = each_apart([identity, partial(sleep_for, 3600.0)], 2)
    first = next(answers)
    answers.close()
    assert first.number == 0 and gone([first.answer[0]])


def test_memory_is_that_of_the_process_alone():
    mine = np.ones(30_000_000)  # 240 MB here, which a child must not count
    now, most = memory()
    assert most >= now > mine.nbytes
    (done,) = each_apart([partial(take_memory, 50_000_000)], 1)
    before, peak = done.answer
    assert before < mine.nbytes and peak - before == pytest.approx(50_000_000, rel=0.3)
