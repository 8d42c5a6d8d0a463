"""Run folders as bytes, so that Python can pickle a learned model; the format is that of the run folder."""

from __future__ import annotations

import io
import zipfile

from relcrf.backends import run_folder
from relcrf.backends.learned_model import LearnedModel
from relcrf.execution.temporary import temporary_folder


def pack(learned: LearnedModel) -> bytes:
    """Return the files of a run folder with a learned model, as the bytes of a zip archive."""
    packed = io.BytesIO()
    with temporary_folder() as folder, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        run_folder.save(learned, folder / "run", {"learn": learned.seconds}, sync=False)
        for path in sorted((folder / "run").iterdir()):
            archive.write(path, path.name)
    return packed.getvalue()


def unpack(packed: bytes) -> LearnedModel:
    """Return the learned model of the bytes that `pack` returned.

    Raises:
        DataError: The files are damaged, or written by a version of relcrf with another format.
    """
    with temporary_folder() as folder, zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(folder / "run")
        return run_folder.load(folder / "run")
