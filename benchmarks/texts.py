"""Similarities of texts: CPU seconds for pairs of titles, compared with a join in SQL, and for their nearest neighbours.

    python benchmarks/texts.py

A title has 8 random words, whose frequencies follow Zipf's law: the most frequent word is in half of the titles. The pairs are
those of titles in the same block of about 20. Peak memory is that of the process, with the imported packages.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from support import BenchmarkParser, peak_mib, sized

import relcrf
from relcrf.data.binding import bind
from relcrf.data.bound_model import BoundModel
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.ground import create_relation_tables

SCHEMA = "entity Record { predict same : bool  title : string  block : integer }\n"
USE = "\ntemplate near(a: Record, b: Record) where Near(a, b) over a.same, b.same"
PAIRS = "where a.block == b.block and a < b"
QUERIES = {
    "pairs without a similarity": PAIRS,
    "pairs, words": f"{PAIRS} and tfidf_cosine(a.title, b.title) > 0.2",
    "pairs, 3-grams": f"{PAIRS} and tfidf_cosine(a.title, b.title, 3) > 0.2",
    "pairs, token_jaccard": f"{PAIRS} and token_jaccard(a.title, b.title) > 0.2",
    "nearest 10, words": "= nearest 10 by tfidf_cosine(a.title, b.title)",
    "nearest 10, 3-grams": "= nearest 10 by tfidf_cosine(a.title, b.title, 3)",
}
"""The definitions of a derived relation of two records."""

TOKENS = '"tok.tfidf_cosine(Record.title).Record.title"'
"""The table of token weights, whose columns are arrays outside DuckDB."""

COPY = f"CREATE TABLE tokens AS FROM {TOKENS}"
"""A copy in DuckDB, which has statistics of the columns."""

SCANS = '"ent.Record" AS a, "ent.Record" AS b WHERE a."x.block" = b."x.block" AND a.vid < b.vid'
JOIN = f"""
SELECT count(*) FROM (
    SELECT k.a, k.b, sum(x.weight * y.weight) AS similarity
    FROM (SELECT a.vid AS a, b.vid AS b FROM {SCANS}) AS k, TOKENS AS x, TOKENS AS y
    WHERE x.vid = k.a AND y.vid = k.b AND x.code = y.code GROUP BY k.a, k.b
) WHERE similarity > 0.2"""
"""The pairs of titles with a cosine above 0.2, by a join of a table of token weights."""


def titles(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return random titles of 8 words, shape (n,), dtype object."""
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    rank = 1.0 / np.arange(1, len(letters) + 1)
    words = np.array(["".join(rng.choice(letters, rng.integers(2, 10), p=rank / rank.sum())) for _ in range(n // 2)])
    frequency = 1.0 / np.arange(1, len(words) + 1)
    drawn = words[rng.choice(len(words), size=(n, 8), p=frequency / frequency.sum())]
    return np.array([" ".join(row) for row in drawn], dtype=object)


def bound_model(definition: str, dataset: relcrf.Dataset) -> BoundModel:
    """Return the bound model with one derived relation, on one thread; the tokens are computed."""
    spec = relcrf.parse(f"{SCHEMA}derive Near(a: Record, b: Record) {definition}{USE}").spec
    bound = bind(spec, dataset)
    bound.connection.execute("SET threads = 1")
    make_lowering_context(bound)
    return bound


def measure(definition: str, dataset: relcrf.Dataset) -> dict[str, Any]:
    """Return the CPU seconds and the peak memory of a derived relation, and its number of pairs."""
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the current memory
    start = time.process_time()
    bound = bound_model(definition, dataset)
    tokenised = time.process_time()
    create_relation_tables(bound)
    seconds = time.process_time() - tokenised
    pairs = bound.count_rows("rel.Near")
    return {"tokens": tokenised - start, "seconds": seconds, "pairs": pairs, "peak_mib": peak_mib()}


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="20,000 titles")
    options = parser.parse_args()
    n = sized(options, 100_000, 20_000, 200)
    rng = np.random.default_rng(0)
    block = rng.integers(max(1, n // 20), size=n)
    columns = {"id": np.arange(n), "same": np.arange(n) % 2 == 0, "title": titles(n, rng), "block": block}
    dataset = relcrf.Dataset({"record": columns})
    for definition in (QUERIES["pairs, words"], QUERIES["nearest 10, words"]):  # compile or load the kernels
        create_relation_tables(
            bound_model(definition, relcrf.Dataset({"record": {k: v[:9] for k, v in columns.items()}}))
        )
    table = Table("relation", "tokens, s", "pairs, s", "pairs", "peak, MiB", title=f"{n:,} titles, CPU seconds")
    found = {}
    for name, definition in QUERIES.items():
        row = found[name] = measure(definition, dataset)
        table.add_row(
            name, *(f"{row[k]:,.2f}" for k in ("tokens", "seconds")), f"{row['pairs']:,}", f"{row['peak_mib']:.0f}"
        )
    bound = bound_model(QUERIES["pairs, words"], dataset)
    bound.connection.execute(COPY)
    joins = {"with statistics": "tokens", "without statistics": TOKENS}
    join_seconds = {}
    for name, tokens in joins.items():
        start = time.process_time()
        ((joined,),) = bound.connection.execute(JOIN.replace("TOKENS", tokens)).fetchall()
        seconds = join_seconds[name] = time.process_time() - start
        assert joined == found["pairs, words"]["pairs"]
        table.add_row(f"join {name}", "", f"{seconds:,.2f}", f"{joined:,}", "")
    Console().print(table)
    base = found["pairs without a similarity"]
    similarity_seconds = found["pairs, words"]["seconds"] - base["seconds"]
    result = {
        "pairs_per_second": base["pairs"] / max(similarity_seconds, 1e-9),
        "ratio_join": join_seconds["with statistics"] / found["pairs, words"]["seconds"],
        "ratio_join_without_statistics": join_seconds["without statistics"] / found["pairs, words"]["seconds"],
        "seconds_nearest": found["nearest 10, words"]["seconds"],
        "seconds_nearest_ngrams": found["nearest 10, 3-grams"]["seconds"],
        "peak_mib": max(row["peak_mib"] for row in found.values()),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
