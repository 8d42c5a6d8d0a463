"""Record linkage without labels: a million records with typing errors, compared with Splink on DuckDB.

    python benchmarks/linkage.py --splink /path/to/venv/bin/python

The records are those of `datasets/person_records.py` with seed 0. Both systems admit the same pairs, learn without labels and
make clusters; each runs in a process of its own. Splink runs in the Python of `--splink`, in which `pip install splink` has been
run (see `linkage_splink.py`). `seconds` include reading, training, prediction and clustering, but no imports. Pairwise F1 is
computed over all pairs of records: of the pairs that a system predicts as matches, and of the pairs in its clusters. For
Splink, the better of two thresholds, 0.5 and 0.95, is reported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from support import ROOT, BenchmarkParser, peak_mib, sized

import relcrf
from relcrf import api
from relcrf.clustering import cluster_prediction
from relcrf.datasets.persons import make_records
from relcrf.evaluation.cluster_measures import cluster_measures

THRESHOLDS = (0.5, 0.95)


def run_relcrf(source: Path, out: Path) -> dict[str, float]:
    """Link the records of a file; write the matches and the clusters, and return seconds and peak memory."""
    started = time.perf_counter()
    data = relcrf.Dataset(source.parent, memory="3GB")
    model = relcrf.load(ROOT / "models" / "linkage.rcrf")
    grounding = model.ground(data)
    ground = time.perf_counter()
    fit = api.fit(model, grounding, "fellegi-sunter")
    trained = time.perf_counter()
    prediction = api.predict(fit, grounding)
    predicted = time.perf_counter()
    clusters = cluster_prediction(prediction)
    ended = time.perf_counter()
    pairs = prediction.table().to_pandas()[["a", "b", "p_true"]]
    pairs.rename(columns={"p_true": "probability"}).to_parquet(out)
    clusters.table().to_pandas()[["id", "cluster"]].to_parquet(f"{out}.clusters.parquet")
    return {
        "seconds_ground": ground - started,
        "seconds_train": trained - ground,
        "seconds_predict": predicted - trained,
        "seconds_cluster": ended - predicted,
        "seconds": ended - started,
        "peak_mib": peak_mib(),
    }


def pair_f1(pairs: Path, person: np.ndarray, threshold: float) -> dict[str, float]:
    """Return precision, recall and F1 over all pairs of records of the pairs above a threshold."""
    query = f"SELECT a::BIGINT AS a, b::BIGINT AS b FROM '{pairs}' WHERE probability > {threshold}"
    found = duckdb.sql(query).fetchnumpy()
    correct = float((person[found["a"]] == person[found["b"]]).sum())
    sizes = np.bincount(person).astype(float)
    precision, recall = correct / max(len(found["a"]), 1), correct / float((sizes * (sizes - 1) / 2).sum())
    return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / max(precision + recall, 1e-300)}


def score(out: Path, person: np.ndarray, thresholds: tuple[float, ...], cluster_files: list[Path]) -> dict[str, Any]:
    """Return the measures of the predicted pairs and of the clusters, each of the best threshold."""
    pairs = max((pair_f1(out, person, threshold) for threshold in thresholds), key=lambda each: each["f1"])
    best: dict[str, Any] = {}
    for file in cluster_files:
        query = f"SELECT cluster FROM '{file}' ORDER BY id::BIGINT"
        predicted = np.unique(duckdb.sql(query).fetchnumpy()["cluster"], return_inverse=True)[1]
        found = cluster_measures(person, predicted)
        measures = {name: [each.value, each.low, each.high] for name, each in found.items()}
        if not best or measures["pairwise_f1"] > best["pairwise_f1"]:
            best = measures
    return {"pairs": pairs, "clusters": best}


def link(command: list[str]) -> dict[str, float]:
    """Run a process that links records, and return the figures that it prints in its last line."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Generate the records and compare both systems."""
    parser = BenchmarkParser(__doc__, quick="20,000 records")
    parser.add_argument(
        "--splink", metavar="PYTHON", help="the Python in which Splink is installed; without it, only relcrf"
    )
    parser.add_argument("--run", nargs=2, type=Path, metavar=("RECORDS", "OUT"), help="only link the records of a file")
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run_relcrf(*options.run)))
        return
    records = pd.DataFrame(make_records(sized(options, 1_000_000, 20_000, 2_000)))
    person, figures = records["person"].to_numpy(), {"records": len(records)}
    script = Path(__file__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        source, out = folder / "data" / "record.parquet", folder / "relcrf.parquet"
        records.drop(columns="person").to_parquet(source)
        figures["relcrf"] = link([sys.executable, str(script), "--run", str(source), str(out)])
        figures["relcrf"] |= score(out, person, THRESHOLDS[:1], [Path(f"{out}.clusters.parquet")])
        if options.splink:
            out = folder / "splink.parquet"
            figures["splink"] = link(
                [options.splink, str(script.with_name("linkage_splink.py")), str(source), str(out)]
            )
            files = [Path(f"{out}.clusters_{threshold}.parquet") for threshold in THRESHOLDS]
            figures["splink"] |= score(out, person, THRESHOLDS, files)
            figures["ratio_seconds"] = figures["relcrf"]["seconds"] / figures["splink"]["seconds"]
    print(f"{'':10} {'seconds':>8} {'MiB':>7} {'pairs: precision, recall, F1':>32} {'clusters: F1, B-cubed F1, V':>32}")
    for system in ("relcrf", "splink"):
        if system in figures:
            row = figures[system]
            pairs = ", ".join(f"{row['pairs'][each]:.4f}" for each in ("precision", "recall", "f1"))
            clusters = ", ".join(
                f"{row['clusters'][each][0]:.4f}" for each in ("pairwise_f1", "b_cubed_f1", "v_measure")
            )
            print(f"{system:10} {row['seconds']:8.1f} {row['peak_mib']:7.0f} {pairs:>32} {clusters:>32}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
