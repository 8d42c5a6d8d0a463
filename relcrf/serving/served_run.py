"""A run folder that is loaded again when training replaces it, with the tables whose entities can be explained by name."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from relcrf.api import Fit, load_fit
from relcrf.data.dataset import Dataset
from relcrf.errors import Diagnostic, RelcrfError
from relcrf.evaluation.explanation import Explanation
from relcrf.grounding.grounding import Grounding
from relcrf.serving.predictor import Predictor

logger = logging.getLogger("relcrf.serving")

INTERNAL_ERROR = Diagnostic(
    "E462", "internal error", hint="the log of the service contains the details; please report them"
)
"""The diagnostic for an exception other than `RelcrfError`, of which only the log contains the details."""

_RUN_SUFFIXES = (".json", ".jsonl", ".npy", ".rcrf", ".skops", ".toml")
"""Suffixes of the files of a run; another file, such as the page of `relcrf report`, does not change the run."""

FileIdentities: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Name, inode, size and time of change in nanoseconds of each file of a run folder."""


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """A trained model that was loaded from a run folder.

    Args:
        settings: Backend settings that replace settings of the training run.
        files: The files from which it was loaded.
        open_tables: Function that opens the stored tables; None if there are none.
        loaded_at: Time of loading, in seconds since 1970.
    """

    fit: Fit
    predictor: Predictor
    settings: Mapping[str, Any]
    files: FileIdentities
    open_tables: Callable[[], Dataset] | None
    loaded_at: float = field(default_factory=time.time)

    @cached_property
    def stored_grounding(self) -> Grounding | None:
        """The grounding of the stored tables; None without tables. Only one thread may use it.

        Raises:
            DataError: The tables do not match the model.
        """
        return None if self.open_tables is None else self.fit.ground(self.open_tables())

    def explain(
        self, tables: Mapping[str, Any] | None, variable: str, *, against: str | None, depth: int
    ) -> Explanation:
        """Explain the prediction of a variable of a request or, without tables, of the stored tables; see `Predictor.explain`."""
        if tables is not None:
            return self.predictor.explain(tables, variable, against=against, depth=depth)
        assert self.stored_grounding is not None
        return self.fit.explain(self.stored_grounding, variable, against=against, depth=depth, **self.settings)


class ServedRun:
    """The newest loadable run of a folder. If a new run is damaged, the previous one remains.

    Args:
        open_tables: See `LoadedRun`.
        settings: Backend settings that replace settings of the training run.
        report: Function that receives a message when a run was loaded again or could not be loaded.

    Raises:
        DataError: The folder is not a run folder, or is damaged.
        UsageError: A setting is unknown.
    """

    def __init__(
        self,
        folder: Path,
        open_tables: Callable[[], Dataset] | None = None,
        settings: Mapping[str, Any] | None = None,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._folder, self._open_tables, self._settings = folder, open_tables, dict(settings or {})
        self._report = report
        self._lock = threading.Lock()
        self._rejected: FileIdentities = ()
        self.error: RelcrfError | None = None
        """The reason why the newest run could not be loaded."""
        self.loaded = self._load(self._read_identities())

    def current(self) -> LoadedRun:
        """Return the newest run, which is loaded first if the files have changed."""
        files = self._read_identities()
        if files in (self.loaded.files, self._rejected) or not files:
            return self.loaded
        with self._lock:
            if files not in (self.loaded.files, self._rejected):
                self._reload(files)
            return self.loaded

    def _reload(self, files: FileIdentities) -> None:
        try:
            self.loaded = self._load(files)
        except Exception as error:  # whatever is wrong with the new run, the previous one can answer
            if files != self._read_identities():
                return  # the folder was replaced while it was read; the next request reads it again
            if not isinstance(error, RelcrfError):
                logger.error("internal error while a run was loaded", exc_info=error)
            self.error = error if isinstance(error, RelcrfError) else RelcrfError(INTERNAL_ERROR)
            self._rejected = files
            self._report(f"the new run cannot be loaded, and the previous one remains in use: {self.error}")
        else:
            self.error = None
            self._report(f"loaded the new run (backend {self.loaded.fit.learned.backend})")

    def _load(self, files: FileIdentities) -> LoadedRun:
        fit = load_fit(self._folder)
        return LoadedRun(fit, Predictor(fit, **self._settings), self._settings, files, self._open_tables)

    def _read_identities(self) -> FileIdentities:
        """Return the identities of the files; an empty tuple while training replaces the folder."""
        try:
            with os.scandir(self._folder) as entries:
                stats = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith(_RUN_SUFFIXES)]
        except OSError:
            return ()
        return tuple(sorted((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats))
