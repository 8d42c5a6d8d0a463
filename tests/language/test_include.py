"""Tests of `include`: files are located relative to the including file, read once, and never outside the model's folder."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from unread import unread_pipe

import relcrf
from relcrf.editor.document import Document
from relcrf.editor.workspace import _find_models
from relcrf.errors import ModelError

COMMON = "entity Page { predict spam : bool }\nrelation Link(a: Page, b: Page)\n"
MAIN = 'include "common.rcrf"\n\ntemplate t(a: Page, b: Page)\n    where Link(a, b)\n    over  a.spam == b.spam\n'


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.rcrf").write_text(text)
    return folder / "main.rcrf"


def codes(path: Path) -> list[str]:
    with pytest.raises(ModelError) as caught:
        relcrf.load(path)
    return [d.code for d in caught.value.diagnostics]


def test_included_declarations_belong_to_the_model(tmp_path: Path) -> None:
    model = relcrf.load(write(tmp_path, common=COMMON, main=MAIN))
    assert model.spec.entity("Page") and model.spec.relation("Link")
    assert model.to_rcrf() == MAIN
    whole = relcrf.parse(model.text)
    assert {d.name for d in whole.spec.declarations} == {"Page", "Link", "t"}
    for folder in tmp_path, str(tmp_path):
        assert relcrf.parse(MAIN, folder=folder).text == model.text


def test_run_folder_does_not_need_included_files(tmp_path: Path) -> None:
    model = relcrf.load(write(tmp_path, common=COMMON, main=MAIN))
    page = pd.DataFrame({"id": [1, 2, 3], "spam": [True, True, None]})
    data = relcrf.Dataset({"page": page, "link": pd.DataFrame({"a": [1, 2], "b": [2, 3]})})
    model.fit(data, "ess").save(tmp_path / "run")
    (tmp_path / "common.rcrf").unlink()
    assert len(relcrf.load_fit(tmp_path / "run").predict(data).table()) == 1


def test_nested_includes_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.rcrf").write_text('include "b.rcrf"\nrelation Link(a: Page, b: Page)\n')
    (tmp_path / "parts" / "b.rcrf").write_text(
        'include "a.rcrf"\ninclude "../main.rcrf"\nentity Page { predict spam : bool }\n'
    )
    main = MAIN.replace("common", "parts/a").replace("\n\n", '\ninclude "parts/b.rcrf"\n\n', 1)
    model = relcrf.load(write(tmp_path, main=main))
    assert len(model.spec.all_declarations) == 3


@pytest.mark.parametrize("path", ["../secret.rcrf", "/etc/passwd", "link.rcrf"])
def test_file_outside_the_folder_raises_e005(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.rcrf").write_text(COMMON)
    (folder / "link.rcrf").symlink_to(tmp_path / "secret.rcrf")
    main = write(folder, main=MAIN.replace("common.rcrf", path))
    assert codes(main) == ["E005"]
    with pytest.raises(ModelError, match="outside"):
        relcrf.load(main)


def test_errors_are_located_in_the_included_file(tmp_path: Path) -> None:
    path = write(tmp_path, common=COMMON.replace("bool", "bol"), main=MAIN)
    with pytest.raises(ModelError) as caught:
        relcrf.load(path)
    (found,) = caught.value.diagnostics
    assert found.code == "E120" and found.location.source.name == "common.rcrf" and found.location.line == 1
    path = write(tmp_path, common=COMMON.replace("entity", "entty"), main=MAIN)
    assert codes(path) == ["E002"]
    assert codes(write(tmp_path, common="\x00\n", main=MAIN))[0] in ("E001", "E002")
    (tmp_path / "common.rcrf").write_bytes(b"\xff\xfe")
    assert codes(path) == ["E005"]


def test_invalid_file_name_raises_e005(tmp_path: Path) -> None:
    assert codes(write(tmp_path, main=MAIN.replace("common.rcrf", "a\\u0000b"))) == ["E005"]


def test_pipe_and_cyclic_link_do_not_block(tmp_path: Path) -> None:
    main = write(tmp_path, main=MAIN)
    with unread_pipe(tmp_path / "common.rcrf"):
        assert codes(main) == ["E005"]
        assert list(_find_models([tmp_path])) == [main]
    (tmp_path / "common.rcrf").symlink_to("common.rcrf")
    assert codes(main) == ["E005"]
    document = Document(MAIN, main)
    assert [d.code for d in document.problems] == ["E005"] and document.included_paths == {tmp_path / "common.rcrf"}


def test_missing_file_and_text_without_folder(tmp_path: Path) -> None:
    assert codes(write(tmp_path, comon=COMMON, main=MAIN)) == ["E005"]
    with pytest.raises(ModelError, match=r"did you mean 'comon\.rcrf'"):
        relcrf.load(tmp_path / "main.rcrf")
    with pytest.raises(ModelError, match="not read from a file"):
        relcrf.parse(MAIN)


def test_long_chain_of_includes_raises_e005(tmp_path):
    for k in range(1500):
        (tmp_path / f"{k}.rcrf").write_text(f'include "{k + 1}.rcrf"\n')
    with pytest.raises(ModelError) as caught:
        relcrf.load(tmp_path / "0.rcrf")
    assert {d.code for d in caught.value.diagnostics} == {"E005"} and "more than 200 files" in str(caught.value)
