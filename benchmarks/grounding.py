"""Grounding, compared with hand-written DuckDB SQL with array fetch: CPU, memory, out-of-core operation, budget and growth.

    python benchmarks/grounding.py --pages 1000000

Three templates on a synthetic web graph: words of a page with their counts, linked pages, and pages linked from one page. The
rival computes the same rows by SQL that is specific to this model and these tables, and fetches them with `fetchnumpy()`;
checksums verify that the rows are equal. Every run is a separate process with its own CPU time and peak memory. The creation
of the tables is not measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from support import ROOT, BenchmarkParser, in_fresh_process, peak_mib, sized

MODEL = """
domain Category = { course, faculty, student, project, staff }
domain Word = open

entity Page {
    predict category : Category
    words            : bag of Word
}

relation Link(source: Page, target: Page)

template word(page: Page)
    over  page.category
    by    page.words

template linked(a: Page, b: Page)
    where Link(a, b) and a != b
    over  a.category, b.category

template cocited(a: Page, b: Page)
    where Link(c, a) and Link(c, b) and a < b
    over  symmetric a.category, b.category
"""
HUBS = """
template cociting(a: Page, b: Page)
    where Link(a, c) and Link(b, c) and a < b
    over  symmetric a.category, b.category
"""


def checksum(*columns: np.ndarray) -> int:
    """Return a sum over rows that does not depend on their order."""
    total = 0
    for start in range(0, len(columns[0]), 1 << 22):
        mixed = np.zeros(len(columns[0][start : start + (1 << 22)]), dtype=np.uint64)
        for column in columns:
            part = np.asarray(column[start : start + (1 << 22)]).astype(np.int64).view(np.uint64)
            mixed = (mixed * np.uint64(1_000_003) + part) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        total = (total + int(mixed.sum(dtype=np.uint64))) % (1 << 64)
    return total


def by_sql(folder: Path, memory: str) -> dict[str, Any]:
    """Ground by hand-written SQL: dictionaries, joins, GROUP BY and DISTINCT, and arrays at the end."""
    import duckdb

    cpu, started = time.process_time(), time.perf_counter()
    spill = tempfile.mkdtemp(dir=folder)
    connection = duckdb.connect(config={"memory_limit": memory, "temp_directory": spill})
    connection.execute("SET enable_progress_bar = false")
    page, word, link = (f"read_parquet('{folder / name}.parquet')" for name in ("page", "page_word", "link"))

    def run(sql: str) -> Any:
        return connection.execute(sql)

    run(f"CREATE TABLE p AS SELECT (row_number() OVER (ORDER BY id) - 1)::INTEGER AS vid, id FROM {page}")
    words = f"SELECT DISTINCT word FROM {word}"
    run(f"CREATE TABLE w AS SELECT (row_number() OVER (ORDER BY word) - 1)::INTEGER AS code, word FROM ({words})")
    run(
        f"CREATE TABLE l AS SELECT DISTINCT s.vid AS a, t.vid AS b FROM {link} AS l "
        "JOIN p AS s ON s.id = l.source JOIN p AS t ON t.id = l.target"
    )
    found = {
        "word": run(
            f"SELECT p.vid AS a, w.code AS b, count(*)::FLOAT AS n FROM {word} AS r "
            "JOIN p ON p.id = r.page JOIN w ON w.word = r.word GROUP BY 1, 2"
        ).fetchnumpy(),
        "linked": run("SELECT a, b FROM l WHERE a <> b").fetchnumpy(),
        "cocited": run(
            "SELECT DISTINCT x.b AS a, y.b AS b FROM l AS x JOIN l AS y ON x.a = y.a AND x.b < y.b"
        ).fetchnumpy(),
    }
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - started
    arrays = sum(np.asarray(column).nbytes for columns in found.values() for column in columns.values())
    peak = peak_mib()
    sums = {name: checksum(*map(np.asarray, columns.values())) for name, columns in found.items()}
    return {"cpu": cpu, "seconds": seconds, "peak_mib": peak, "arrays_mib": arrays / 2**20, "checksums": sums}


def by_relcrf(folder: Path, memory: str) -> dict[str, Any]:
    """Ground with relcrf from the model's text."""
    import relcrf
    from relcrf import api

    assert api  # imported before the measurement, as duckdb is
    cpu, started = time.process_time(), time.perf_counter()
    grounding = relcrf.parse(MODEL).ground(relcrf.Dataset(folder, memory=memory))
    cpu, seconds, peak = time.process_time() - cpu, time.perf_counter() - started, peak_mib()
    word, linked, cocited = grounding.graph.groups
    coded = sum(column.nbytes for columns in grounding.bound.external_tables.values() for column in columns.values())
    row_start, code, count = word.features.arrays()
    page = np.repeat(np.asarray(word.scope[0]), np.diff(row_start))
    return {
        "cpu": cpu,
        "seconds": seconds,
        "peak_mib": peak,
        "arrays_mib": grounding.graph.nbytes / 2**20,
        # The columns with the results: the encoded bag and the graph.
        "written_mib": (coded + grounding.graph.nbytes) / 2**20,
        "bytes_per_pair_factor": linked.nbytes / linked.n_factors,
        "bytes_per_unary": word.nbytes / len(code),
        "checksums": {
            "word": checksum(page, code, count),
            "linked": checksum(*linked.scope),
            "cocited": checksum(*cocited.scope),
        },
    }


def guard(folder: Path, memory: str) -> dict[str, Any]:
    """Return the cost of size estimates as a fraction of the join, and that of rejecting a join that a hub makes too large."""
    import relcrf
    from relcrf.data.binding import bind
    from relcrf.errors import BudgetError
    from relcrf.grounding.degrees import DegreeCache
    from relcrf.grounding.derive import make_lowering_context
    from relcrf.grounding.engines.duckdb import DuckDbEngine
    from relcrf.grounding.estimate import DEFAULT_BUDGET, MAX_BUDGET_RATIO, check_budget, estimate_size
    from relcrf.grounding.ground import create_relation_tables
    from relcrf.grounding.lower import lower_template

    spec = relcrf.parse(MODEL + HUBS).spec
    bound = bind(spec, relcrf.Dataset(folder, memory=memory))
    create_relation_tables(bound)
    plans = {t.name: lower_template(t, make_lowering_context(bound)).plan for t in spec.templates}
    list(DuckDbEngine(bound.cursor).rows(plans["linked"]))  # warm-up
    cpu = time.process_time()
    size = estimate_size(DegreeCache(bound), plans["cocited"])
    cpu_guard = time.process_time() - cpu
    cpu = time.process_time()
    for _ in DuckDbEngine(bound.cursor).rows(plans["cocited"]):
        pass
    cpu_join = time.process_time() - cpu
    large = estimate_size(DegreeCache(bound), plans["cociting"])
    started = time.perf_counter()
    try:
        check_budget(
            DegreeCache(bound),
            plans["cociting"],
            min(DEFAULT_BUDGET, large.join_rows // MAX_BUDGET_RATIO - 1),
            "cociting",
            None,
        )
        refusal = ""
    except BudgetError as error:
        refusal = error.diagnostics[0].render()
    return {
        "guard_share": cpu_guard / cpu_join,
        "rows_told": size.join_rows,
        "hub_join_rows": large.join_rows,
        "seconds_to_refuse": time.perf_counter() - started,
        "refusal": refusal,
    }


RUNS = {"sql": by_sql, "relcrf": by_relcrf, "guard": guard}


def run(what: str, folder: Path, memory: str) -> dict[str, Any]:
    """Run one measurement in a new process."""
    found = in_fresh_process(__file__, "--measure", what, "--folder", folder, "--memory", memory)
    shown = {k: v for k, v in found.items() if k not in ("checksums", "refusal")}
    print(f"{what} ({memory})".ljust(20), "  ".join(f"{k} {v:,.3g}" for k, v in shown.items()), flush=True)
    return found


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="100,000 pages")
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--memory", default="300MB", help="memory limit of the out-of-core run")
    parser.add_argument("--measure", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(RUNS[options.measure](options.folder, options.memory)))
        return
    sys.path.insert(0, str(ROOT / "datasets"))
    from web import make_web

    pages = sized(options, options.pages, 100_000, 1_000)
    with tempfile.TemporaryDirectory() as place:
        folder, smaller = Path(place) / str(pages), Path(place) / str(pages // 10)
        make_web(folder, pages, hub_fraction=0.3)
        make_web(smaller, pages // 10, hub_fraction=0.3)
        sql = run("sql", folder, "2GB")
        ours = run("relcrf", folder, "2GB")
        small = run("relcrf", smaller, "2GB")
        outside = run("relcrf", folder, options.memory)
        guarded = run("guard", folder, "2GB")
    if not sql["checksums"] == ours["checksums"] == outside["checksums"]:
        sys.exit(f"the rows differ: {sql['checksums']}, {ours['checksums']}, {outside['checksums']}")
    print(guarded["refusal"])
    print(
        json.dumps(
            {
                "pages": pages,
                "cpu_over_sql": ours["cpu"] / sql["cpu"],
                "peak_over_arrays": ours["peak_mib"] / ours["arrays_mib"],
                "out_of_core_peak_over_written": outside["peak_mib"] / outside["written_mib"],
                "out_of_core_peak_over_graph": outside["peak_mib"] / outside["arrays_mib"],
                "bytes_per_pair_factor": ours["bytes_per_pair_factor"],
                "bytes_per_unary": ours["bytes_per_unary"],
                "guard_share": guarded["guard_share"],
                "growth_10x": ours["cpu"] / small["cpu"],
                "cpu_seconds": {"sql": sql["cpu"], "relcrf": ours["cpu"], "out_of_core": outside["cpu"]},
                "peak_mib": {"sql": sql["peak_mib"], "relcrf": ours["peak_mib"], "out_of_core": outside["peak_mib"]},
                "arrays_mib": {"sql": sql["arrays_mib"], "relcrf": ours["arrays_mib"]},
                "hub_join_rows": guarded["hub_join_rows"],
                "seconds_to_refuse": guarded["seconds_to_refuse"],
            }
        )
    )


if __name__ == "__main__":
    main()
