"""Texts of untrusted tables that spreadsheets execute as formulas."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from relcrf.data.frame import Frame

FORMULAS = ['=HYPERLINK("http://x")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]
HARMLESS = ["-5", "+3.5", "-1,000", "a=b", "", "'=1", "1-2"]


@pytest.mark.parametrize("text", FORMULAS)
def test_formula_is_found_and_escaped(text, tmp_path):
    frame = Frame({"key": np.array([text, "a"], dtype=object), "=p": np.array([0.5, -1.0])})
    assert frame.formula_cells() == ["=p", text]
    safe = frame.without_formulas()
    assert safe.formula_cells() == []
    safe.write(tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [["key", "'=p"], [f"'{text}", "0.5"], ["a", "-1.0"]]


def test_harmless_texts_are_unchanged():
    frame = Frame({"key": np.array(HARMLESS, dtype=object)})
    assert frame.formula_cells() == []
    assert frame.without_formulas()["key"].tolist() == HARMLESS


def test_predict_notes_or_escapes_formulas(relcrf_, tmp_path):
    (tmp_path / "Item.csv").write_text("id,y\na,u\nb,v\n=1+1,\n")
    (tmp_path / "m.rcrf").write_text("domain D = {u, v}\nentity Item { predict y : D }\ntemplate t(i: Item) over i.y\n")
    run, out = tmp_path / "run", tmp_path / "found.csv"
    assert relcrf_("train", tmp_path / "m.rcrf", "--data", tmp_path, "--backend", "local", "--out", run)[0] == 0
    code, _, err = relcrf_("predict", run, "--data", tmp_path, "--out", out)
    assert code == 0 and "1 text, such as" in err and "--safe-csv" in err
    assert ",'=1+1," not in out.read_text() and "=1+1" in out.read_text()
    code, _, err = relcrf_("predict", run, "--data", tmp_path, "--out", out, "--safe-csv")
    assert code == 0 and "formulas" not in err
    assert "'=1+1" in out.read_text()
