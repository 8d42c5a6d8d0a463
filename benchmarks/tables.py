"""`relcrf check` and `relcrf profile` on a large CSV file, compared with DuckDB's own read of the file.

    python benchmarks/tables.py          # 10 million rows, two minutes, 600 MB of disk

The file has six columns of payments: a key, a customer, a device, an amount, a time and a category; a second file lists the
customers. DuckDB counts the rows (`count`), stores them as a table in memory or in a database file (`read`, `store`), and
summarises them (`SUMMARIZE`). `check entities` checks a model in which payments are entities, `check links` one in which they
are links between customers and devices. Each measurement is a process: its wall and CPU time and its peak memory include
the start of Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from support import BenchmarkParser, sized

CUSTOMERS_PER_PAYMENT = 0.05

READ = """
import sys, duckdb
duckdb.connect(sys.argv[2], config={"threads": 2}).execute(sys.argv[3].format(f"read_csv('{sys.argv[1]}')")).fetchall()
"""
"""A program that executes a query on a CSV file. Arguments: the file, the database and the query."""

QUERIES = {
    "count": ("", "SELECT count(*) FROM {}"),
    "read": ("", "CREATE TABLE t AS FROM {}"),
    "store": ("rows.duckdb", "CREATE TABLE t AS FROM {}"),
    "summarize": ("", "SUMMARIZE FROM {}"),
}

ENTITIES = """
domain Category = open
entity Payment { amount: real  time: datetime  category: Category  predict flag: bool }
template prior(p: Payment) over p.flag
"""

LINKS = """
domain Device = open
domain Category = open
domain Country = open
entity Customer { country: Country  age: real  predict fraud: bool }
relation Payment(customer: Customer, device: Device) { amount: real  time: datetime  category: Category }
template prior(c: Customer) over c.fraud
"""


def write_tables(folder: Path, rows: int) -> None:
    """Write `payment.csv` and `customer.csv`; each pair of a customer and a device occurs once."""
    n_customers = max(1, int(rows * CUSTOMERS_PER_PAYMENT))
    connection = duckdb.connect()
    connection.execute("SELECT setseed(0.5)")
    categories = "['groceries', 'fuel', 'travel', 'clothing'][1 + floor(random() * 3.99)::INT]"
    time_sql = "(TIMESTAMP '2025-01-01' + to_seconds((random() * 7776000)::INT))::VARCHAR"
    connection.execute(
        f"COPY (SELECT 'T' || i AS id, 'C' || lpad(((i * 7919) % {n_customers})::VARCHAR, 8, '0') AS customer, "
        f"'D' || (i // 20) AS device, round(exp(random() * 5), 2) AS amount, {time_sql} AS time, {categories} AS category "
        f"FROM range({rows}) AS t(i)) TO '{folder / 'payment.csv'}' (HEADER)"
    )
    connection.execute(
        "COPY (SELECT 'C' || lpad(i::VARCHAR, 8, '0') AS id, ['DE', 'FR', 'NL'][1 + floor(random() * 2.99)::INT] AS country, "
        "(random() * 80)::INT AS age, CASE WHEN random() < 0.4 THEN random() < 0.1 END AS fraud "
        f"FROM range({n_customers}) AS t(i)) TO '{folder / 'customer.csv'}' (HEADER)"
    )


@contextmanager
def small_folder(folder: Path, *names: str) -> Iterator[Path]:
    """Yield a folder with links to some of the files."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for file in names:
            os.link(folder / file, Path(name) / file)
        yield Path(name)


def measure(*command: str) -> dict[str, float]:
    """Run a Python command; return its wall and CPU seconds and its peak memory in MiB."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)[:80]} failed")
    return {
        "wall": round(time.perf_counter() - started, 2),
        "cpu": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mib": round(usage.ru_maxrss / 1024, 1),
    }


def measure_all(folder: Path, rows: int) -> dict[str, dict[str, float]]:
    """Return the measurements of DuckDB and relcrf on tables with this number of payments."""
    write_tables(folder, rows)
    for name, text in (("entities", ENTITIES), ("links", LINKS)):
        (folder / f"{name}.rcrf").write_text(text)
    found = {}
    for name, (database, query) in QUERIES.items():
        path = str(folder / database) if database else ":memory:"
        found[name] = measure("-c", READ, str(folder / "payment.csv"), path, query)
    with small_folder(folder, "payment.csv") as alone, small_folder(folder, "payment.csv", "customer.csv") as both:
        for name, model, data in (("check entities", "entities", alone), ("check links", "links", both)):
            found[name] = measure("-m", "relcrf", "check", str(folder / f"{model}.rcrf"), "--data", str(data))
        found["profile"] = measure("-m", "relcrf", "profile", str(both), "--out", str(folder / "profile.html"))
    return found


def main() -> None:
    options = BenchmarkParser(__doc__, "1 million rows, without the growth").parse_args()
    rows = sized(options, 10_000_000, 1_000_000, 2_000)
    found = {}
    for size in (rows,) if options.quick else (rows // 10, rows):
        with tempfile.TemporaryDirectory() as folder:
            found[size] = measure_all(Path(folder), size)
        print(f"{size:,} rows")
        for name, figures in found[size].items():
            ratio = figures["wall"] / found[size]["read"]["wall"]
            print(
                f"  {name:15} {figures['wall']:6.2f} s wall ({ratio:4.1f} reads), {figures['cpu']:6.2f} s CPU, "
                f"{figures['peak_mib']:6.0f} MiB"
            )
    largest = found[rows]
    names = [name for name in largest if name not in QUERIES]
    growth = {n: round(largest[n]["cpu"] / found[rows // 10][n]["cpu"], 2) for n in names} if len(found) > 1 else None
    over_read = {name: round(largest[name]["wall"] / largest["read"]["wall"], 2) for name in names}
    peak = max(largest[name]["peak_mib"] for name in names)
    print(json.dumps({"rows": rows, **largest, "wall_over_read": over_read, "peak_mib": peak, "growth_10x": growth}))


if __name__ == "__main__":
    main()
