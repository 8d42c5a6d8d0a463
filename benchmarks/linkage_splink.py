"""Splink on the records of `linkage.py`; it runs in the Python in which Splink is installed.

    PYTHON linkage_splink.py RECORDS.parquet OUT.parquet

The comparisons are Splink's own for names, dates and addresses. The u-probabilities come from a random sample of pairs and the
m-probabilities from two runs of EM with different blocking, as in Splink's tutorial. Writes the predicted pairs (a, b,
probability) and the clusters (`OUT.parquet.clusters_THRESHOLD.parquet`), and prints a JSON object with CPU and wall seconds and
the peak memory.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import duckdb
import splink.comparison_library as cl
from splink import DuckDBAPI, Linker, SettingsCreator, block_on

BLOCKING = (
    ("surname", "birth"),
    ("first_name", "birth"),
    ("birth", "postcode"),
    ("surname", "postcode"),
    ("first_name", "postcode"),
    ("surname", "street"),
)
"""The columns of each blocking rule: pairs of records that agree in them are compared. `linkage.rcrf` has the same."""

COMPARISONS = [
    cl.NameComparison("first_name"),
    cl.NameComparison("surname"),
    cl.DateOfBirthComparison("birth", input_is_string=True),
    cl.JaroWinklerAtThresholds("street", [0.9, 0.7]),
    cl.JaroWinklerAtThresholds("town", [0.9, 0.7]),
    cl.LevenshteinAtThresholds("postcode", [1, 2]),
]
CLUSTER_THRESHOLDS = (0.5, 0.95)
"""Probabilities above which records share a cluster; the seconds include the first only. Splink's tutorial has 0.95."""


def main() -> None:
    """Train, predict and cluster."""
    source, out = sys.argv[1:]
    started, cpu = time.perf_counter(), time.process_time()
    connection = duckdb.connect()
    connection.execute("SET memory_limit = '3GB'")
    connection.execute(f"CREATE TABLE records AS SELECT * FROM '{source}'")
    settings = SettingsCreator(
        link_type="dedupe_only",
        unique_id_column_name="id",
        comparisons=COMPARISONS,
        blocking_rules_to_generate_predictions=[block_on(*rule) for rule in BLOCKING],
    )
    linker = Linker(DuckDBAPI(connection=connection).register("records"), settings, log_level="WARNING")
    training = linker.training
    training.estimate_probability_two_random_records_match([block_on("first_name", "surname", "birth")], recall=0.6)
    training.estimate_u_using_random_sampling(max_pairs=1e7, seed=1)
    for rule in (block_on("first_name", "surname"), block_on("birth")):
        training.estimate_parameters_using_expectation_maximisation(rule)
    trained = time.perf_counter() - started
    predicted = linker.inference.predict(threshold_match_probability=0.01)
    scored = time.perf_counter() - started
    connection.execute(
        f"COPY (SELECT id_l AS a, id_r AS b, match_probability AS probability FROM {predicted.physical_name}) TO '{out}'"
    )
    seconds, cpu_seconds = 0.0, 0.0
    for threshold in CLUSTER_THRESHOLDS:
        clusters = linker.clustering.cluster_pairwise_predictions_at_threshold(predicted, threshold)
        seconds = seconds or time.perf_counter() - started
        cpu_seconds = cpu_seconds or time.process_time() - cpu
        connection.execute(
            f"COPY (SELECT id, cluster_id AS cluster FROM {clusters.physical_name}) TO '{out}.clusters_{threshold}.parquet'"
        )
    figures = {
        "seconds_train": trained,
        "seconds_predict": scored - trained,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
