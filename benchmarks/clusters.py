"""Clusters of the citations of Cora: methods of `relcrf cluster`, and their seconds and memory on a million records.

    RELCRF_DATA=... python benchmarks/clusters.py

The model is models/entities.rcrf. Folds 1 to 4 of the citations are held out in turn: backend `local` learns from the other
three folds, predicts the pairs of the held-out fold, and the records are clustered. Fold 5 is used only at the end, with a
model of the four other folds. The last part clusters a million synthetic records with three million pairs.
"""

from __future__ import annotations

import json
import resource
import time
from typing import Any

import numpy as np
from entities import citations
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from support import ROOT, BenchmarkParser, sized

import relcrf
from relcrf.clustering import METHODS, cluster_prediction, cluster_records
from relcrf.evaluation.cluster_measures import cluster_measures

SHOWN = ("pairwise_precision", "pairwise_recall", "pairwise_f1", "b_cubed_f1", "v_measure")
THRESHOLDS = (0.3, 0.5, 0.7)
TEST_FOLD = "5"


def true_clusters(tables: dict[str, Any]) -> np.ndarray:
    """Return the true entity of each citation: the connected components of the pairs of `same`, shape (n,)."""
    ids = tables["record"]["id"].tolist()
    index = {name: k for k, name in enumerate(ids)}
    ends = [[index[name] for name in tables["same"][side]] for side in ("a", "b")]
    graph = coo_array((np.ones(len(ends[0])), ends), shape=(len(ids), len(ids)))
    return np.asarray(connected_components(graph, directed=False)[1])


def cluster_folds(tables: dict[str, Any], folds: list[str], tested: list[str]) -> dict[str, Any]:
    """Return the measures of each method and threshold on the records of the tested folds together.

    Args:
        folds: Folds of which all but the tested one are the training data.
    """
    record, same, truth = tables["record"], tables["same"], true_clusters(tables)
    fold_of = dict(zip(record["id"], record["fold"].astype(str), strict=True))
    model = relcrf.load(ROOT / "models" / "entities.rcrf")
    found: dict[str, list[np.ndarray]] = {}
    labels = []
    for test in tested:
        names = {name for name, fold in fold_of.items() if fold in folds and fold != test}
        pairs = same[same["a"].isin(names) & same["b"].isin(names)]
        fit = model.fit(relcrf.Dataset({"record": record[record["id"].isin(names)], "same": pairs}), backend="local")
        held_out = record["fold"].astype(str) == test
        prediction = fit.predict(relcrf.Dataset({"record": record[held_out]}))
        truth_of = dict(zip(record["id"], truth, strict=True))
        for method in METHODS:
            for threshold in THRESHOLDS:
                clusters = cluster_prediction(prediction, method=method, threshold=threshold)
                table = clusters.table()
                found.setdefault(f"{method} {threshold}", []).append(table["cluster"] + 10_000 * len(labels))
        labels.append(np.array([truth_of[name] for name in table["id"]]))
    out = {}
    for name, parts in found.items():
        measures = cluster_measures(np.concatenate(labels), np.concatenate(parts))
        out[name] = {m: [round(v, 3) for v in (measures[m].value, measures[m].low, measures[m].high)] for m in SHOWN}
        print(f"{name:>16}", *(f"{v:.3f} ({low:.3f} to {high:.3f})" for v, low, high in out[name].values()), flush=True)
    return out


def time_methods(n_records: int) -> dict[str, Any]:
    """Return CPU seconds and peak memory of each method on synthetic records with three pairs each."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(n_records), 1 + rng.poisson(2.0, n_records))[:n_records]
    first = rng.integers(0, n_records, 3 * n_records)
    second = (first + rng.integers(1, 5, len(first))) % n_records
    second = np.where(rng.random(len(first)) < 0.3, rng.integers(0, n_records, len(first)), second)
    probability = 1 / (1 + np.exp(-rng.normal(np.where(truth[first] == truth[second], 2.0, -2.0), 1.5)))
    out = {}
    for method in METHODS:
        for source, distinct in (("", None), (" --distinct", rng.integers(0, 1000, n_records))):
            cluster_records(2, [0], [1], [0.9], method=method)  # loads the kernels
            start = time.process_time()
            clusters = cluster_records(n_records, first, second, probability, method=method, distinct=distinct)
            seconds = time.process_time() - start
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            out[method + source] = {"seconds": seconds, "peak_mib": peak, "clusters": len(clusters.sizes)}
            print(f"{method + source:>24} {seconds:6.1f} s, peak of the process {peak:,} MiB", flush=True)
    return out


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="100,000 synthetic records")
    options = parser.parse_args()
    tables = citations(sized(options, 1295, 1295, 400))
    folds = sorted(set(tables["record"]["fold"].astype(str)))
    training = [fold for fold in folds if fold != TEST_FOLD] or folds
    print("Columns:", ", ".join(SHOWN))
    results = {"training folds": cluster_folds(tables, training, training if len(training) > 1 else [])}
    print(f"fold {TEST_FOLD}")
    results["test fold"] = cluster_folds(tables, folds, [TEST_FOLD])
    results["synthetic"] = time_methods(sized(options, 1_000_000, 100_000, 1000))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
