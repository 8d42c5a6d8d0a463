"""Updates: CPU seconds of `relcrf update` after 1 % of the rows arrived, compared with a new run on all rows.

    python benchmarks/update.py --pages 100000

The synthetic web (datasets/web.py) consists of sites of 100 pages, whose links stay within the site; half of the pages have a
label. A run on 99 % of the pages is updated when the others arrive:

- `sites`: the pages of whole new sites, without labels; their rows are appended to the tables;
- `sorted`: the same number of new sites, but their rows lie between those of the other sites, so that all row groups change;
- `spread`: the same number of pages in a tenth of all sites, without labels;
- `labelled`: the pages of whole new sites, half of them with a label;
- `one_site`: pages without labels, in a web in which links connect all pages.

The tables are Parquet files in the order of the pages, each written anew as a whole.

A new run reads the tables, grounds, learns, writes the run folder and predicts from the same ground graph. An update reads the
run folder and the tables, and writes the new run folder with the predictions. Both use the backend and settings of the run.
`time_share` is the share of the CPU seconds of a new run that an update of `sites` takes at `--pages` pages, and
`time_share_auto` the share if the new run compares backends (backend `auto`, the default of `relcrf train`). `difference` is the
largest difference of a probability in `sites` and `labelled` at a tenth of the pages (at most 10,000), where learning has the
tolerance 1e-10 in both.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import duckdb  # noqa: E402
import numpy as np  # noqa: E402
from support import ROOT, BenchmarkParser, cpu_seconds, sized  # noqa: E402

import relcrf  # noqa: E402
from relcrf import api  # noqa: E402
from relcrf.backends import run_folder  # noqa: E402
from relcrf.backends.learned_model import LearnedModel  # noqa: E402
from relcrf.backends.provenance import Provenance, TrainingProtocol  # noqa: E402
from relcrf.data.frame import Frame  # noqa: E402
from relcrf.training import TrainingRequest  # noqa: E402
from relcrf.updating.update import Update, update  # noqa: E402

sys.path.insert(0, str(ROOT / "datasets"))
from web import make_web  # noqa: E402

SITE_PAGES = 100
NEW_FRACTION = 100
"""One of this number of pages is new."""

SPREAD_SITES = 10
"""In `spread`, one of this number of sites has new pages."""

SCENARIOS = ("sites", "sorted", "spread", "labelled", "one_site")
MODEL = ROOT / "models" / "webkb.rcrf"
EXACT_TOLERANCE = 1e-10
SMALLEST_PAGES = 10 * SITE_PAGES
MAX_EXACT_PAGES = 10_000


@dataclass(frozen=True)
class Scenario:
    """The tables before and after new rows arrive."""

    old: Path
    new: Path


def is_new_page(name: str, column: str, pages: int) -> str:
    """Return the SQL condition that a page is new."""
    page, site = f"substr({column}, 2)::INTEGER", f"substr({column}, 2)::INTEGER // {SITE_PAGES}"
    match name:
        case "sites":
            return f"{page} >= {pages - pages // NEW_FRACTION}"
        case "spread":
            per_site = SITE_PAGES * SPREAD_SITES // NEW_FRACTION
            return f"{site} % {SPREAD_SITES} = 0 AND {page} % {SITE_PAGES} < {per_site}"
        case _:
            return f"{site} % {NEW_FRACTION} = 0"


def make_scenario(folder: Path, name: str, pages: int) -> Scenario:
    """Write the tables of a scenario."""
    raw = folder / "raw"
    make_web(raw, pages, sites=1 if name == "one_site" else pages // SITE_PAGES)
    label = "part = 'train'" if name == "labelled" else f"part = 'train' AND NOT ({is_new_page(name, 'id', pages)})"
    with duckdb.connect() as connection:
        for part in ("old", "new"):
            (folder / part).mkdir()
            # Filters keep the vectors of DuckDB full, so that row groups have the same size. Semi-joins do not.
            source, target, page, key = (
                f"({part == 'new'} OR NOT ({is_new_page(name, column, pages)}))"
                for column in ("source", "target", "page", "id")
            )
            rows = {
                "page": f"SELECT id, CASE WHEN {label} THEN category END AS category FROM '{raw}/page.parquet' WHERE {key}",
                "page_word": f"SELECT * FROM '{raw}/page_word.parquet' WHERE {page}",
                "link": f"SELECT * FROM '{raw}/link.parquet' WHERE {source} AND {target}",
            }
            for table, select in rows.items():
                connection.execute(f"COPY ({select}) TO '{folder / part / table}.parquet' (FORMAT parquet)")
    return Scenario(folder / "old", folder / "new")


def run_anew(tables: Path, run: Path, backend: str, **settings: Any) -> tuple[LearnedModel, Frame]:
    """Train a model as `relcrf train` does, and predict."""
    spec = relcrf.load(MODEL).spec
    request = TrainingRequest(spec, backend, settings, relcrf.Dataset(tables))
    training = request.ground()
    learned = training.run()
    provenance = Provenance.collect(training.identity, TrainingProtocol(), training.grounding.bound)
    run_folder.require_writable(run, resume=False, force=True)
    run_folder.save(learned, run, {}, provenance=provenance, sync=False)
    return learned, api.predict(api.Fit(learned), training.grounding).table()


def run_update(run: Path, tables: Path, out: Path) -> Update:
    """Update a run as `relcrf update` does."""
    updated = update(run, str(tables))
    updated.save(out, force=True, sync=False)
    return updated


def medians(repeats: int, works: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the median CPU seconds of each call, measured alternately."""
    runs = [[cpu_seconds(work) for work in works] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*runs, strict=True)]


def start_run(scenario: Scenario, run: Path, backend: str, **settings: Any) -> None:
    """Write a run on the old tables, with the state that its first update adds."""
    run_anew(scenario.old, run, backend, **settings)
    run_update(run, scenario.old, run)


def measure(folder: Path, name: str, pages: int, backend: str, repeats: int) -> dict[str, Any]:
    """Measure a new run and an update with default settings."""
    scenario, run = make_scenario(folder, name, pages), folder / "run"
    start_run(scenario, run, backend)
    seconds = medians(
        repeats,
        (
            lambda: run_anew(scenario.new, folder / "anew", backend),
            lambda: run_update(run, scenario.new, folder / "updated"),
        ),
    )
    report = run_update(run, scenario.new, folder / "updated").report
    figures = {"seconds_fresh": seconds[0], "seconds_update": seconds[1], "time_share": seconds[1] / seconds[0]}
    figures |= {"grounded": report.entities.get("grounded", 0) / pages, "weights": report.weights}
    return figures


def measure_difference(folder: Path, name: str, pages: int, backend: str, tolerance: float) -> dict[str, float]:
    """Measure the differences of a new run and an update, where learning has this tolerance in both."""
    settings = {"tolerance": tolerance, "max_iterations": 2000}
    scenario, run = make_scenario(folder, name, pages), folder / "run"
    start_run(scenario, run, backend, **settings)
    learned, expected = run_anew(scenario.new, folder / "anew", backend, **settings)
    updated = run_update(run, scenario.new, folder / "updated")
    (table,) = updated.tables.values()
    assert table["id"].tolist() == expected["id"].tolist()
    columns = [column for column in expected.columns if column.startswith("p_")]
    return {
        "weights": learned.largest_weight_change(updated.learned) or 0.0,
        "probabilities": max(float(np.abs(table[column] - expected[column]).max()) for column in columns),
    }


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="10,000 pages, once, and 1,000 for the differences")
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--backend", default="ess")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), help="default: all")
    parser.add_argument("--skip-auto", action="store_true", help="omit the run that compares backends")
    options = parser.parse_args()
    largest = sized(options, options.pages, 10_000, 2 * SITE_PAGES)
    repeats = sized(options, options.repeats, 1, 1)
    exact_pages = largest if options.smallest else min(max(largest // 10, SMALLEST_PAGES), MAX_EXACT_PAGES)
    tolerance = sized(options, EXACT_TOLERANCE, EXACT_TOLERANCE, 1e-2)
    sizes = (largest // 10, largest) if not options.quick else (largest,)
    backend: str = options.backend
    results: dict[str, Any] = {"pages": largest, "backend": backend}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        if not options.smallest:
            small = make_scenario(root / "warm", "sites", SMALLEST_PAGES)
            run_anew(small.old, root / "warm" / "run", backend)  # compiles the kernels
        for pages in sizes:
            results[str(pages)] = {}
            for scenario in options.scenarios:
                folder = root / f"{scenario}{pages}"
                found = measure(folder, scenario, pages, backend, repeats)
                results[str(pages)][scenario] = found
                print(f"{pages:,} pages, {scenario}: " + format_figures(found), flush=True)
        differences = {}
        for scenario in ("sites", "labelled"):
            folder = root / f"exact {scenario}"
            differences[scenario] = measure_difference(folder, scenario, exact_pages, backend, tolerance)
            print(f"{scenario}: largest difference " + format_figures(differences[scenario]), flush=True)
        folder = root / f"sites{largest}"
        results["seconds_auto"] = None
        if "sites" in options.scenarios and not options.skip_auto:
            results["seconds_auto"] = cpu_seconds(lambda: run_anew(folder / "new", folder / "auto", "auto"))
    sites, auto = results[str(largest)].get("sites"), results["seconds_auto"]
    results["time_share"] = None if sites is None else sites["time_share"]
    results["time_share_auto"] = None if auto is None else sites["seconds_update"] / auto
    results["differences"] = differences
    results["difference"] = max(each["probabilities"] for each in differences.values())
    print(json.dumps(results))


def format_figures(figures: dict[str, Any]) -> str:
    """Return the figures as text."""
    return "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items())


if __name__ == "__main__":
    main()
