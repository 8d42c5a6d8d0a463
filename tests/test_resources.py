"""The grammar and the models are found in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

import relcrf.resources as resources


def test_found_in_this_installation() -> None:
    assert resources.resource_path("grammar", "rcrf.lark").read_text(encoding="utf-8")
    assert resources.resource_path("models", "webkb.rcrf").is_file()


@pytest.mark.parametrize("place", ["site/relcrf/shipped/grammar", "site/grammar"], ids=["wheel", "checkout"])
def test_found_in_both_places(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "rcrf.lark").write_text("start:")
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "site" / "relcrf")
    assert resources.resource_path("grammar", "rcrf.lark") == folder / "rcrf.lark"


def test_the_error_names_both_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "relcrf")
    with pytest.raises(FileNotFoundError) as caught:
        resources.resource_path("models", "none.rcrf")
    assert str(tmp_path / "relcrf" / "shipped" / "models" / "none.rcrf") in str(caught.value)
    assert str(tmp_path / "models" / "none.rcrf") in str(caught.value)
