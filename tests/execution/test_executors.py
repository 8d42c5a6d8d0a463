"""Executors: equal results, order, bits and exceptions, also after a worker is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from itertools import count
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from executor_processes import await_executors, gone
from logistic_shards import N_WEIGHTS, LogisticLoss, die, fail, growing, make_shards, process, refuse, threads

from relcrf.errors import DataError, UsageError
from relcrf.execution.pool import MAX_DEATHS, PoolExecutor
from relcrf.execution.serial import SerialExecutor
from relcrf.execution.spark import SparkExecutor
from relcrf.learning.lbfgs import Lbfgs

ZEROS = np.zeros(N_WEIGHTS)
DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "distribute.md"
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return make_shards(tmp_path_factory.mktemp("shards"), 13)


@pytest.fixture(params=["serial", "pool", pytest.param("spark", marks=pytest.mark.slow)], scope="module")
def executor(request):
    match request.param:
        case "serial":
            instance = SerialExecutor()
        case "pool":
            instance = PoolExecutor(2)
        case "spark":
            instance = SparkExecutor(request.getfixturevalue("spark"))
    with instance:
        yield instance


def learn(executor, shards, task=lambda evaluation: LogisticLoss()):
    """Learn for 12 iterations; `task` returns the task of each evaluation, given its number."""
    evaluations = count(1)

    def objective(point):
        return executor.map_reduce(partial(task(next(evaluations)), weights=point), shards)

    optimiser = Lbfgs(tolerance=0.0, value_tolerance=0.0, max_iterations=12)
    state = optimiser.minimise(objective, optimiser.start(objective, ZEROS))
    assert state.iteration == 12
    return state


@pytest.fixture(scope="module")
def learned(shards):
    """Return the state that a single process learns."""
    return learn(SerialExecutor(), shards)


def assert_same_bits(state, other):
    assert state.value == other.value
    assert state.point.tobytes() == other.point.tobytes()
    assert state.gradient.tobytes() == other.gradient.tobytes()


def test_learning_decreases_objective(learned, shards):
    at_zero, _ = SerialExecutor().map_reduce(partial(LogisticLoss(), weights=ZEROS), shards)
    assert learned.value < 0.2 * at_zero


def test_all_executors_learn_same_bits(executor, shards, learned):
    assert_same_bits(learn(executor, shards), learned)


@pytest.mark.parametrize("workers", [1, 3, 20])
def test_any_number_of_workers_gives_same_bits(workers, shards, learned):
    with PoolExecutor(workers) as pool:
        value, gradient = pool.map_reduce(partial(LogisticLoss(), weights=learned.point), shards)
    assert (value, gradient.tobytes()) == (learned.value, learned.gradient.tobytes())


def test_results_have_order_of_shards(executor, shards):
    assert [name for name, _ in executor.map(process, shards)] == [p.name for p in shards]


def test_empty_shards_raise_value_error(executor):
    with pytest.raises(ValueError, match="no shards"):
        executor.map_reduce(partial(LogisticLoss(), weights=ZEROS), [])
    assert executor.map(process, []) == []


def test_data_error_of_task_keeps_its_diagnostic(executor, shards):
    with pytest.raises(DataError) as raised:
        executor.map(refuse, shards)
    assert str(raised.value).splitlines()[:2] == ["error[E336]: damaged", " --> shard-3, row 5"]
    assert raised.value.__notes__ == [f"in shard {shards[3]}"]


@pytest.mark.parametrize("make_executor", [SerialExecutor, lambda: PoolExecutor(2)], ids=["serial", "pool"])
def test_exception_of_task_notes_the_shard(make_executor, shards):
    with make_executor() as executor:
        with pytest.raises(ZeroDivisionError, match="three") as raised:
            executor.map(fail, shards)
        assert raised.value.__notes__ == [f"in shard {shards[3]}"]
        assert executor.map(fail, shards[:3]) == [1, 1, 1]


def test_results_of_different_shapes_raise_value_error(shards):
    with pytest.raises(ValueError, match=r"shapes \(1,\) and \(2,\)"):
        SerialExecutor().map_reduce(growing, shards)


# A pool of processes.


def test_worker_keeps_its_shards_and_has_one_thread(shards, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    before = dict(os.environ)
    with PoolExecutor(3) as pool:
        first = pool.map(process, shards)
        assert pool.map(process, shards) == first
        assert sorted(Counter(pid for _, pid in first).values()) == [4, 4, 5]
        assert os.getpid() not in {pid for _, pid in first}
        assert set(pool.map(threads, shards)) == {"1"}
    assert dict(os.environ) == before


def test_closed_pool_can_be_used_again(shards):
    with PoolExecutor(1) as pool:
        ((_, first),) = pool.map(process, shards[:1])
        pool.close()
        ((_, second),) = pool.map(process, shards[:1])
    assert first != second


def test_killing_working_process_keeps_all_bits(shards, learned):
    with PoolExecutor(2) as pool:
        victim = pool.map(process, shards)[0][1]
        learn_and_kill(pool, shards, learned, victim)
        after = {pid for _, pid in pool.map(process, shards)}
    assert victim not in after
    assert len(after) == 2


def test_killed_idle_worker_is_replaced(shards):
    with PoolExecutor(2) as pool:
        victim = pool.map(process, shards)[0][1]
        os.kill(victim, signal.SIGKILL)
        assert gone([victim])
        assert pool.map(fail, shards[:3]) == [1, 1, 1]


def test_repeated_deaths_raise_e363(shards):
    with PoolExecutor(1) as pool, pytest.raises(UsageError) as raised:
        pool.map(die, shards[:2])
    (problem,) = raised.value.diagnostics
    assert problem.code == "E363"
    assert problem.message == f"a worker process died {MAX_DEATHS + 1} times on {shards[0]}"


def test_zero_workers_raise_e362():
    with pytest.raises(UsageError, match="E362"):
        PoolExecutor(0)


SLOW = """
import sys
from functools import partial
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import numpy as np
from logistic_shards import LogisticLoss, N_WEIGHTS, process
from relcrf.execution.pool import PoolExecutor

if __name__ == "__main__":
    shards = [Path(p) for p in sys.argv[2:]]
    with PoolExecutor(2) as pool:
        print(*{pid for _, pid in pool.map(process, shards)}, flush=True)
        pool.map_reduce(partial(LogisticLoss(pause=3600.0), weights=np.zeros(N_WEIGHTS)), shards)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_driver(number, shards, tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    command = [sys.executable, str(script), str(SUPPORT), *map(str, shards)]
    driver = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with driver:
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(pids) == 2
        while sum((shard / "started").exists() for shard in shards) < 2:
            time.sleep(0.01)
        if number == signal.SIGINT:
            os.killpg(driver.pid, number)  # as a terminal does
        else:
            driver.kill()
        _, stderr = driver.communicate(timeout=600)
    if number == signal.SIGINT:
        assert stderr.count("Traceback") == 1
        assert stderr.strip().endswith("KeyboardInterrupt")
    assert gone(pids)


def test_examples_of_docs_run(tmp_path):
    task, script = re.findall(r"^```py\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "my_tasks.py").write_text(task)
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.stderr) == ("equal\n", "")


# Spark.


@pytest.mark.slow
def test_killing_spark_executor_keeps_all_bits(spark, shards, learned):
    executors = await_executors(2)
    learn_and_kill(SparkExecutor(spark), shards, learned, executors[0])
    assert gone(executors[:1])


@pytest.mark.slow
def test_spark_executors_mostly_keep_their_shards(spark, shards):
    first = []
    while len({pid for _, pid in first}) < 2:  # Spark replaces a killed executor after some time
        executor = SparkExecutor(spark)
        first = executor.map(process, shards)
    with executor:
        storage, number = spark.sparkContext._jsc.sc().getRDDStorageInfo, executor._cached_ranges.id()
        while [one.numCachedPartitions() for one in storage() if one.id() == number] != [2]:
            time.sleep(0.05)  # Spark learns the locations of the partitions with a delay
        assert sum(executor.map(process, shards) == first for _ in range(9)) >= 7  # by chance, in 1 of 10 runs


@pytest.mark.slow
def test_repeated_failure_in_spark_raises_e364(spark, shards):
    with pytest.raises(UsageError) as raised:
        SparkExecutor(spark).map(fail, shards)
    (problem,) = raised.value.diagnostics
    assert problem.code == "E364"
    assert "ZeroDivisionError: three" in problem.notes
    assert f"in shard {shards[3]}" in problem.notes


@pytest.mark.slow
@pytest.mark.parametrize("ended_before", [False, True])
def test_ended_spark_raises_e364(shards, ended_before):
    """When the process of Spark has ended, Python cannot connect to it, also to remove the broadcast work."""
    from py4j.protocol import Py4JError

    refused = ConnectionRefusedError(111, "Connection refused")
    context = MagicMock(defaultParallelism=2)
    if ended_before:
        context.broadcast.side_effect = refused
    results = context.parallelize.return_value.cache.return_value.mapPartitions.return_value
    results.collect.side_effect = Py4JError("Answer from Java side is empty")
    context.broadcast.return_value.destroy.side_effect = refused
    with pytest.raises(UsageError) as raised:
        SparkExecutor(MagicMock(sparkContext=context)).map(process, shards)
    (problem,) = raised.value.diagnostics
    assert problem.code == "E364"
    assert problem.notes == ("[Errno 111] Connection refused" if ended_before else "Answer from Java side is empty",)


def learn_and_kill(executor, shards, learned, victim):
    """Learn while a shard of the tenth evaluation kills the process `victim`, and compare with `learned`."""
    found = learn(executor, shards, lambda evaluation: LogisticLoss(victim=victim if evaluation == 10 else None))
    assert gone([victim])
    assert_same_bits(found, learned)
