"""Tests of the cache of benchmark results in `benchmarks/support.py`."""

import sys
from pathlib import Path

FOLDER = str(Path(__file__).parents[2] / "benchmarks")


def test_results_are_measured_once_per_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "support", raising=False)
    from support import ResultCache

    measured = []

    def measure(value):
        measured.append(value)
        return {"value": value}

    path = tmp_path / "results.jsonl"
    for _ in range(2):
        cache = ResultCache(path)
        assert cache.get(["a", 1], lambda: measure(1)) == {"value": 1}
        assert cache.get(["a", 2], lambda: measure(2)) == {"value": 2}
    assert measured == [1, 2]
    assert ResultCache(None).get(["a", 1], lambda: measure(3)) == {"value": 3}
