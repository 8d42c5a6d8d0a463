"""The conversion of RelBench tasks, on small files in its format; learned features need scikit-learn."""

import json

import duckdb
import numpy as np
import pytest

import relcrf
from relcrf.errors import UsageError
from relcrf.evaluation.later_rows import count_later_rows
from relcrf.relbench import convert_task
from relcrf.relbench.__main__ import main

N_DRIVERS = 40


def save(path, query, key=None, references=None, time=None):
    """Write the rows of a query as RelBench writes a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"pkey_col": key, "fkey_col_to_pkey_table": references or {}, "time_col": time}
    pairs = ", ".join(f"{name}: '{json.dumps(value)}'" for name, value in metadata.items())
    duckdb.sql(query).to_view("saved")
    duckdb.sql(f"COPY saved TO '{path}' (FORMAT parquet, KV_METADATA {{ {pairs} }})")


@pytest.fixture
def dataset(tmp_path):
    """Write drivers, whose results in races depend on their skill, and a task of each quarter."""
    folder = tmp_path / "rel-small"
    drivers = (
        f"SELECT i AS driverId, (i * 7 % 10)::DOUBLE AS skill, 'name ' || i AS surname FROM range({N_DRIVERS}) t(i)"
    )
    save(folder / "db" / "drivers.parquet", drivers, "driverId")
    races = "SELECT i AS raceId, TIMESTAMP '2020-01-05' + INTERVAL 7 DAY * i AS date FROM range(100) t(i)"
    save(folder / "db" / "races.parquet", races, "raceId", time="date")
    results = f"""SELECT i % {N_DRIVERS} AS driverId, (i // 20)::DOUBLE AS raceId, (i * 31 % 17)::BIGINT AS "position order",
        TIMESTAMP '2020-01-05' + INTERVAL 7 DAY * (i // 20) AS date FROM range(2000) t(i)"""
    save(folder / "db" / "results.parquet", results, None, {"driverId": "drivers", "raceId": "races"}, "date")
    for part, (first, last) in {"train": (1, 4), "val": (5, 5), "test": (6, 6)}.items():
        task = f"""SELECT TIMESTAMP '2020-01-01' + INTERVAL 90 DAY * k AS date, d AS driverId,
            CAST((d * 7 % 10 + k % 3) > 5 AS INTEGER)::DOUBLE AS did_not_finish
            FROM range({first}, {last + 1}) a(k), range({N_DRIVERS}) b(d)"""
        save(folder / "tasks" / "driver-dnf" / f"{part}.parquet", task, None, {"driverId": "drivers"}, "date")
    return folder


def test_task_is_a_valid_model_without_leaks(dataset, tmp_path):
    converted = convert_task(dataset, "driver-dnf")
    converted.write(tmp_path / "model.rcrf")
    model = relcrf.load(tmp_path / "model.rcrf")
    data = relcrf.Dataset(dataset, manifest=tmp_path / "model.toml")
    grounding = model.ground(data)
    assert model.warnings == ()
    assert len(grounding.states) == 6 * N_DRIVERS
    assert {p.name: str(p.type) for e in model.spec.entities if e.name == "Results" for p in e.attributes} == {
        "position_order": "integer",
        "date": "datetime",
    }
    assert all(counts.later == 0 for counts in count_later_rows(grounding))
    rows = grounding.bound.connection.execute(
        'SELECT count(*), count(DISTINCT a0) FROM "rel.ResultsDriverId"'
    ).fetchall()
    assert rows == [(2000, 2000)]


def test_split_is_that_of_the_task(dataset, tmp_path):
    convert_task(dataset, "driver-dnf").write(tmp_path / "model.rcrf")
    data = relcrf.Dataset(dataset, manifest=tmp_path / "model.toml")
    evaluation = relcrf.load(tmp_path / "model.rcrf").evaluate(data, backend="local")
    (sizes,) = evaluation.part_sizes
    assert (sizes.train, sizes.validation, sizes.ignored, sizes.test) == (4 * N_DRIVERS, N_DRIVERS, 0, N_DRIVERS)
    (labels,) = evaluation.predictions.scored_by_fold("local", "Task.did_not_finish")
    assert labels.score().accuracy > 0.7


def test_command_prints_the_next_command(dataset, tmp_path, capsys):
    out = tmp_path / "dnf.rcrf"
    assert main([str(dataset), "driver-dnf", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"relcrf evaluate {out} --data {dataset} --manifest {tmp_path / 'dnf.toml'}\n"
    assert main([str(dataset), "driver-dnf", "--out", str(out)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main([str(dataset), "driver-dn", "--out", str(out), "--force"]) == 2
    assert "did you mean 'driver-dnf'" in capsys.readouterr().err
    assert main([str(dataset), "driver-dnf", "--out", str(tmp_path / "new.toml")]) == 2
    assert "does not end in .rcrf" in capsys.readouterr().err and not (tmp_path / "new.toml").exists()


def test_errors(dataset):
    for path in dataset.glob("tasks/driver-dnf/*.parquet"):
        query = f"SELECT date, driverId, [1, 2] AS position FROM '{path}'"
        save(dataset / "tasks" / "driver-position" / path.name, query, None, {"driverId": "drivers"}, "date")
    with pytest.raises(UsageError, match="recommendation tasks are not supported"):
        convert_task(dataset, "driver-position")
    with pytest.raises(UsageError, match="has no tables 'db"):
        convert_task(dataset / "db", "driver-dnf")
    (dataset / "tasks" / "driver-dnf" / "val.parquet").unlink()
    with pytest.raises(UsageError, match=r"lacks val\.parquet"):
        convert_task(dataset, "driver-dnf")
    duckdb.sql(f"COPY (SELECT 1 AS x) TO '{dataset / 'db' / 'plain.parquet'}' (FORMAT parquet)")
    with pytest.raises(UsageError, match="lack pkey_col"):
        convert_task(dataset, "driver-position")


def test_classes_are_a_range(dataset, tmp_path):
    for path in dataset.glob("tasks/driver-dnf/*.parquet"):
        query = f"SELECT date, driverId, driverId % 4 + 2 AS class FROM '{path}'"
        save(dataset / "tasks" / "driver-class" / path.name, query, None, {"driverId": "drivers"}, "date")
    convert_task(dataset, "driver-class").write(tmp_path / "model.rcrf")
    grounding = relcrf.load(tmp_path / "model.rcrf").ground(relcrf.Dataset(dataset, manifest=tmp_path / "model.toml"))
    assert "predict class : 2..5" in (tmp_path / "model.rcrf").read_text()
    assert np.bincount(grounding.states).tolist() == [60, 60, 60, 60]


def test_regression_is_learned(dataset, tmp_path):
    for path in dataset.glob("tasks/driver-dnf/*.parquet"):
        query = f"SELECT date, driverId, (3.5 * (driverId * 7 % 10) + driverId % 3)::DOUBLE AS points FROM '{path}'"
        save(dataset / "tasks" / "driver-points" / path.name, query, None, {"driverId": "drivers"}, "date")
    convert_task(dataset, "driver-points").write(tmp_path / "model.rcrf")
    model = relcrf.load(tmp_path / "model.rcrf")
    assert "predict points : real" in (tmp_path / "model.rcrf").read_text() and model.warnings == ()
    data = relcrf.Dataset(dataset, manifest=tmp_path / "model.toml")
    assert all(counts.later == 0 for counts in count_later_rows(model.ground(data)))
    evaluation = model.evaluate(data, backend="local")
    (numbers,) = evaluation.predictions.scored_by_fold("local", "Task.points")
    assert len(numbers.truth) == N_DRIVERS
    assert numbers.measures()["r2"] > 0.8


def test_fractions_are_numbers(dataset):
    """A rate from 0 to 1 is not a truth value."""
    for path in dataset.glob("tasks/driver-dnf/*.parquet"):
        query = f"SELECT date, driverId, (driverId % 5) / 4 AS rate FROM '{path}'"
        save(dataset / "tasks" / "driver-rate" / path.name, query, None, {"driverId": "drivers"}, "date")
    assert "predict rate : real" in convert_task(dataset, "driver-rate").text
