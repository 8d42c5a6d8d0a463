"""Inputs that others may have written, each target of `targets.py`: seeds, what fuzzing has found, and mutations.

The same inputs in every run, as many as fit half a minute; `benchmarks/fuzz.py` tries others for as long as one likes.
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
from promise import Overdue, kept, url_problem
from targets import TARGETS

from relcrf.errors import DataError, DataLocation, Diagnostic
from relcrf.resources import resource_path

FOUND = sorted(path for path in (Path(__file__).parent / "found").glob("*/*") if path.is_file())

EXAMPLES = {"language": 150, "uai": 200, "evidence": 200, "alchemy": 25, "run": 25, "blocks": 25, "command": 16}
"""Of other targets a dozen: each grounds a model."""

OTHERWISE = ("alchemy", "command")
"""Targets some of whose seeds are of no use for the model: they end in diagnostics."""


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in OTHERWISE])
def test_seeds_are_taken(name, monkeypatch):
    """Else mutations would test nothing but the first look at a file."""

    def refuse(error):
        raise AssertionError(str(error))

    monkeypatch.setattr("promise.require_shown", refuse)
    seeds = TARGETS[name].seeds()
    for seed in seeds[:1] if name in ("jsonl", "manifest") else seeds:
        TARGETS[name].run(seed)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_stays_mended(path):
    TARGETS[path.parent.name].run(path.read_bytes())


def mutated(seed: bytes, edits: list[tuple[int, float, float, bytes]]) -> bytes:
    """Args: edits: a kind each, where it begins and ends as a share of the input, and a piece."""
    for kind, start, end, piece in edits:
        a, b = sorted((int(start * len(seed)), int(end * len(seed))))
        b = min(b, a + 64)
        match kind:
            case 0:
                seed = seed[:a] + piece + seed[a:]
            case 1:
                seed = seed[:a] + piece + seed[a + len(piece) :]
            case 2:
                seed = seed[:a] + seed[b:]
            case 3:
                seed = seed[:b] + seed[a:]
            case 4:
                seed = seed[:a]
    return seed


def inputs(name: str) -> st.SearchStrategy[bytes]:
    target = TARGETS[name]
    place = st.floats(0, 1, width=16)
    kind = st.sampled_from((0, 0, 1, 1, 1, 2, 3, 4))
    piece = st.sampled_from(target.words) | st.binary(min_size=1, max_size=4)
    seeds = st.deferred(lambda: st.sampled_from(target.seeds()))
    return st.builds(mutated, seeds, st.lists(st.tuples(kind, place, place, piece), min_size=1, max_size=4))


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_keep_the_promise(name):
    @generated(EXAMPLES.get(name, 12))
    @given(inputs(name))
    def check(data):
        TARGETS[name].run(data)

    check()


def texts() -> st.SearchStrategy[str]:
    return from_lark(lark.Lark(resource_path("grammar", "rcrf.lark").read_text(encoding="utf-8")))


@generated(40)
@given(st.lists(st.deferred(texts), min_size=1, max_size=3))
def test_texts_of_the_grammar_keep_the_promise(pieces):
    targets.language("\n".join(pieces).encode())


def test_a_broken_promise_is_noticed(monkeypatch):
    with pytest.raises(ZeroDivisionError), kept():
        raise ZeroDivisionError
    with pytest.raises(AssertionError), kept():
        raise DataError(())
    with pytest.raises(AssertionError, match="x1b"):
        url_problem("\x1b[31m")
    with kept():
        raise DataError(Diagnostic("E204", "\x1b[31m", DataLocation("\u202e.csv"), "[red]", ("\x07",)))
    monkeypatch.setattr("promise.SECONDS", 0.01)
    with pytest.raises(Overdue), kept():
        while True:
            pass
