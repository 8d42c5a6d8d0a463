"""ESS-CRF on a synthetic web graph: seconds, peak memory, accuracy, and growth with the size of the data.

    python benchmarks/web.py --pages 100000

Each size runs in a separate process, so that peak memory is that of the size. The creation of the tables is not measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from support import ROOT, BenchmarkParser, in_fresh_process, peak_mib, sized


def measure(folder: Path, memory: str) -> dict[str, float]:
    """Ground, learn on the pages of part `train` and infer those of `test`, in this process."""
    import relcrf
    from relcrf import api
    from relcrf.evaluation.splits import partition_variables

    model = relcrf.load(ROOT / "models" / "webkb.rcrf")
    start_cpu, start = time.process_time(), time.perf_counter()
    grounding = model.ground(relcrf.Dataset(folder, memory=memory))
    seconds_ground = time.perf_counter() - start
    hidden = partition_variables(grounding, "part").holdout_mask(["test"])
    fit = api.fit(model, grounding, "ess", hidden=hidden)
    found = api.predict(fit, grounding, hidden=hidden)
    accuracy = found.score(subset=hidden).accuracy
    cpu, peak = time.process_time() - start_cpu, peak_mib()
    local = api.fit(model, grounding, "local", hidden=hidden)
    return {
        "pages": len(grounding.states),
        "seconds_ground": seconds_ground,
        "seconds_learn": fit.seconds,
        "seconds_infer": found.seconds,
        "cpu_seconds": cpu,
        "peak_mib": peak,
        "graph_mib": grounding.graph.nbytes / 2**20,
        "accuracy_local": api.predict(local, grounding, hidden=hidden).score(subset=hidden).accuracy,
        "accuracy": accuracy,
        "iterations": sum(v for k, v in fit.summary.items() if k.endswith("_iterations")),
    }


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="20,000 pages")
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--memory", default="auto", help="memory limit; see `relcrf train --help`")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.memory)))
        return
    sys.path.insert(0, str(ROOT / "datasets"))
    from web import make_web

    pages = sized(options, options.pages, 20_000, 200)
    results = []
    with tempfile.TemporaryDirectory() as folder:

        def run(size: int) -> dict[str, float]:
            return in_fresh_process(__file__, "--measure", Path(folder) / str(size), "--memory", options.memory)

        for size in (pages // 10, pages):
            make_web(Path(folder) / str(size), size)
        if not options.smallest:
            run(pages // 10)  # compile the kernels unless they are cached
        for size in (pages // 10, pages):
            results.append(run(size))
            print("  ".join(f"{k} {v:,.3f}" if isinstance(v, float) else f"{k} {v:,}" for k, v in results[-1].items()))
    small, large = results
    large["growth_10x"] = large["cpu_seconds"] / small["cpu_seconds"]
    # L-BFGS may need different numbers of iterations; this is the growth of the cost per iteration.
    learn = [r["seconds_learn"] / r["iterations"] for r in results]
    large["growth_10x_per_iteration"] = learn[1] / learn[0]
    print(json.dumps(large))


if __name__ == "__main__":
    main()
