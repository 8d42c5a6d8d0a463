"""Tests that the functions in the walks of docs/explanation/internals.md are called in the listed order."""

import re
import sys
from pathlib import Path

import pytest
from tables import small_web

import relcrf

ROOT = Path(relcrf.__file__).parent
PAGE = (ROOT.parent / "docs" / "explanation" / "internals.md").read_text()
STEP = re.compile(r"^\d+\. `(\S+)` `(\S+)`", re.MULTILINE)


def steps(title):
    """Return the file and the qualified name of each function of a walk."""
    (walk,) = re.findall(rf"### {title}\n(.*?)(?=\n##)", PAGE, re.DOTALL)
    return STEP.findall(walk)


def calls(work):
    """Return the file and the qualified name of each relcrf function that is called, in the order of the first calls."""
    found = {}

    def record(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            found.setdefault((str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname))

    sys.setprofile(record)
    try:
        work()
    finally:
        sys.setprofile(None)
    return list(found)


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    return small_web(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def model():
    return ROOT.parent / "models" / "webkb.rcrf"


def test_a_cell_becomes_a_probability(web, model, tmp_path):
    fit = relcrf.load(model).fit(relcrf.Dataset(web), "ess", max_iterations=2, edges="tree")

    def work():
        fit.predict(relcrf.Dataset(web)).table().write(tmp_path / "predictions.csv")

    assert_in_order(steps("A cell of a table to a probability"), calls(work))


def test_a_template_becomes_a_named_weight(web, model):
    def work():
        relcrf.load(model).fit(relcrf.Dataset(web), "ess", max_iterations=2).weights()

    assert_in_order(steps("A template to a named weight"), calls(work))


def assert_in_order(walk, called):
    assert len(walk) > 5
    assert [step for step in walk if step not in called] == []
    assert sorted(walk, key=called.index) == walk
