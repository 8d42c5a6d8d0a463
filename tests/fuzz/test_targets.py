"""Tests of the fuzz targets of `targets.py` with seeds, previous failures and mutated inputs.

The inputs are the same in every run and take about half a minute; `benchmarks/fuzz.py` generates others without a limit.
"""

from __future__ import annotations

from pathlib import Path

import lark
import pytest
import targets
from generated import generated
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.lark import from_lark
from promise import InputTimeout, allow_diagnostics, require_printable
from targets import TARGETS

from relcrf.errors import DataError, DataLocation, Diagnostic
from relcrf.resources import resource_path

FOUND = sorted(path for path in (Path(__file__).parent / "found").glob("*/*") if path.is_file())

EXAMPLES = {"language": 150, "uai": 200, "evidence": 200, "alchemy": 25, "run": 25, "blocks": 25, "command": 16}
"""Number of examples; other targets have twelve, because each example grounds a model."""

OTHERWISE = ("alchemy", "command")
"""Targets with seeds that result in diagnostics."""


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in OTHERWISE])
def test_seeds_are_accepted(name, monkeypatch):
    """Seeds are valid; otherwise mutations would only test the first validation step."""

    def refuse(error):
        raise AssertionError(str(error))

    monkeypatch.setattr("promise.require_valid_error", refuse)
    seeds = TARGETS[name].seeds()
    for seed in seeds[:1] if name in ("jsonl", "manifest") else seeds:
        TARGETS[name].run(seed)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_previous_failures_are_fixed(path):
    TARGETS[path.parent.name].run(path.read_bytes())


def mutated(seed: bytes, edits: list[tuple[int, float, float, bytes]]) -> bytes:
    """Return a seed after edits.

    Args:
        edits: for each its kind, its start and end as fractions of the input, and a fragment.
    """
    for kind, start, end, fragment in edits:
        a, b = sorted((int(start * len(seed)), int(end * len(seed))))
        b = min(b, a + 64)
        match kind:
            case 0:
                seed = seed[:a] + fragment + seed[a:]
            case 1:
                seed = seed[:a] + fragment + seed[a + len(fragment) :]
            case 2:
                seed = seed[:a] + seed[b:]
            case 3:
                seed = seed[:b] + seed[a:]
            case 4:
                seed = seed[:a]
    return seed


def inputs(name: str) -> st.SearchStrategy[bytes]:
    target = TARGETS[name]
    position = st.floats(0, 1, width=16)
    kind = st.sampled_from((0, 0, 1, 1, 1, 2, 3, 4))
    fragment = st.sampled_from(target.words) | st.binary(min_size=1, max_size=4)
    seeds = st.deferred(lambda: st.sampled_from(target.seeds()))
    return st.builds(mutated, seeds, st.lists(st.tuples(kind, position, position, fragment), min_size=1, max_size=4))


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_are_handled(name):
    @generated(EXAMPLES.get(name, 12))
    @given(inputs(name))
    def check(data):
        TARGETS[name].run(data)

    check()


def texts() -> st.SearchStrategy[str]:
    return from_lark(lark.Lark(resource_path("grammar", "rcrf.lark").read_text(encoding="utf-8")))


@generated(40)
@given(st.lists(st.deferred(texts), min_size=1, max_size=3))
def test_texts_of_the_grammar_are_handled(declarations):
    targets.language("\n".join(declarations).encode())


def test_violations_are_detected(monkeypatch):
    with pytest.raises(ZeroDivisionError), allow_diagnostics():
        raise ZeroDivisionError
    with pytest.raises(AssertionError), allow_diagnostics():
        raise DataError(())
    with pytest.raises(AssertionError, match="x1b"):
        require_printable("\x1b[31m")
    with allow_diagnostics():
        raise DataError(Diagnostic("E204", "\x1b[31m", DataLocation("\u202e.csv"), "[red]", ("\x07",)))
    monkeypatch.setattr("promise.SECONDS", 0.01)
    with pytest.raises(InputTimeout), allow_diagnostics():
        while True:
            pass
