"""How kernels are compiled, and the folder that keeps the compiled ones from one process to the next.

Numba's cache is pickled, so a folder is used only where nobody else can have put something: where the user says
(`NUMBA_CACHE_DIR`), beside the package's own code, or in a folder of the user's own.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.extending import register_jitable
from platformdirs import user_cache_path

from relcrf.files import file_lock

PACKAGE = Path(__file__).resolve().parent

STALE_INDEX_ERRORS = (
    EOFError,
    pickle.UnpicklingError,
    AttributeError,
    ImportError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
)
"""What unpickling an index raises that a machine left behind which lost its power, that a full disk cut short, or that names
classes which another version of Numba has elsewhere.
"""


@dataclass(frozen=True)
class CacheFolder:
    """Where compiled kernels are kept.

    Args:
        path: the folder; None where no place was found, and every process compiles for itself.
        private: nobody else may be able to write to it, as its place is open to others.
        note: why it is not the place that one would expect; empty where it is.
    """

    path: Path | None
    private: bool = False
    note: str = ""

    def is_usable(self) -> bool:
        """Makes the folder where it is not there; whether it can be written to and locked, and is as private as asked."""
        if self.path is None:
            return False
        try:
            for place in (*reversed(self.path.parents), self.path):
                if not place.exists():
                    place.mkdir(mode=0o700, exist_ok=True)
            if self.private and not _is_private(self.path):
                return False
            tempfile.TemporaryFile(dir=self.path).close()
            with _lock_folder(self.path):
                return True
        except OSError:
            return False


def _is_private(folder: Path) -> bool:
    """Whether nobody but this user and root can write to the folder, or put another in its place."""
    if folder.is_symlink():
        return False
    if sys.platform == "win32":
        return True  # its folders of users, and of their temporary files, are closed to others
    real = folder.resolve()
    for place in (real, *real.parents):
        status = place.stat()
        if status.st_uid not in (os.getuid(), 0):
            return False
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if others_write and (place == real or not status.st_mode & stat.S_ISVTX):
            return False
    return real.stat().st_uid == os.getuid()


def _lock_folder(folder: Path) -> AbstractContextManager[None]:
    """Keep other processes and threads from reading and adding compiled kernels."""
    return file_lock(folder / ".lock")


@cache
def cache_folder() -> CacheFolder:
    """The folder of compiled kernels, chosen once in a process.

    `NUMBA_CACHE_DIR` where it is set; else `__pycache__` of this package where it can be written to; else
    the user's cache folder (on Linux `$XDG_CACHE_HOME/relcrf/kernels`, by default in `~/.cache`); else a folder of the user's
    own among the temporary ones.
    """
    # One folder for each installation: two versions would throw out each other's kernels.
    own = "kernels_" + hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:16]
    note = ""
    if config.CACHE_DIR:
        asked = CacheFolder(Path(config.CACHE_DIR).absolute() / own)
        if asked.is_usable():
            return asked
        note = f"NUMBA_CACHE_DIR is {config.CACHE_DIR}, where compiled kernels cannot be written; "
    places = [CacheFolder(PACKAGE / "__pycache__", note=note and f"{note}they are in {PACKAGE / '__pycache__'}")]
    folder = user_cache_path("relcrf", appauthor=False) / "kernels" / own
    if folder.is_absolute():
        places.append(CacheFolder(folder, private=True, note=note and f"{note}they are in {folder}"))
    user = getpass.getuser() if sys.platform == "win32" else os.getuid()
    folder = Path(tempfile.gettempdir()) / f"relcrf_{user}_{own}"
    places.append(CacheFolder(folder, private=True, note=f"{note}compiled kernels are kept in {folder} only"))
    nowhere = CacheFolder(None, note=f"{note}no folder can keep compiled kernels: every process compiles its own")
    return next((place for place in places if place.is_usable()), nowhere)


@cache
def _source_stamp() -> str:
    """Of all kernels together: a compiled one holds those of other files that it calls."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one kernel, for several processes at once; whatever depends on Numba's private cache is in this class.

    Numba alone numbers its files by an index that it reads before and writes after: two processes that compile one kernel
    for different types can give both the same number, and the code of the one is then run for the types of the other.
    """

    class _KernelFiles(CompileResultCacheImpl):  # type: ignore[misc]
        """The files of one kernel, in our folder."""

        class _KernelLocator(_CacheLocator):  # type: ignore[misc]
            """The folder, the stamp and the name of one kernel's files."""

            def __init__(self, function: Callable[..., Any]) -> None:
                self._line = function.__code__.co_firstlineno

            def get_cache_path(self) -> str:
                return str(cache_folder().path)

            def get_source_stamp(self) -> str:
                return _source_stamp()

            def get_disambiguator(self) -> str:
                return str(self._line)

            @classmethod
            def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _CacheLocator:
                return cls(py_func)

        _locator_classes = (_KernelLocator,)

    _impl_class = _KernelFiles

    @classmethod
    def attach(cls, dispatcher: Any, function: Callable[..., Any]) -> None:
        """Make a dispatcher read and write its kernel here."""
        dispatcher._cache = cls(function)

    @classmethod
    def has_all(cls, dispatcher: Any, signatures: tuple[tuple[Any, ...], ...]) -> bool:
        """Return whether a dispatcher's code for all these types is cached."""
        cached = dispatcher._cache
        return isinstance(cached, cls) and all(cached.contains(types_, dispatcher.targetctx) for types_ in signatures)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        folder = cache_folder()
        if folder.path is None or not folder.is_usable():  # what is temporary may have been cleared away since
            return None
        with _lock_folder(folder.path):
            try:
                return super().load_overload(sig, target_context)
            except STALE_INDEX_ERRORS:
                self.flush()
                return None

    def contains(self, signature: tuple[Any, ...], target_context: Any) -> bool:
        """Whether the code for these types is there; it is not read."""
        folder = cache_folder()
        if folder.path is None or not folder.is_usable():
            return False
        with _lock_folder(folder.path):
            try:
                name = self._cache_file._load_index().get(self._index_key(signature, target_context.codegen()))
            except STALE_INDEX_ERRORS:
                return False
        return name is not None and (folder.path / name).exists()

    def save_overload(self, sig: Any, data: Any) -> None:
        folder = cache_folder()
        if folder.path is not None and folder.is_usable():
            with _lock_folder(folder.path):
                super().save_overload(sig, data)


@dataclass(frozen=True)
class Kernel:
    """A compiled function and the types of arguments that users meet."""

    dispatcher: Any
    signatures: tuple[tuple[Any, ...], ...]

    def is_cached(self) -> bool:
        """Whether the cache has the code for all these types."""
        return _KernelCache.has_all(self.dispatcher, self.signatures)

    def compile(self) -> None:
        """Compiles for all these types, or reads what is compiled."""
        for signature in self.signatures:
            self.dispatcher.compile(signature)


KERNELS: dict[str, Kernel] = {}
"""The kernels of the modules that have been imported, by `module.function`."""


def kernel(*signatures: tuple[Any, ...], label: str = "", **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function by Numba when it is first called, without the interpreter's lock, and keeps the result.

    Args:
        signatures: the types of arguments that it is called with, for `relcrf warmup`. None for one that only other
            kernels call: it is compiled and kept with them, and from Python it is the plain function.
        label: tells functions of one name apart, which a factory makes.
        options: of `numba.njit`, such as `fastmath`. Divisions by 0 give inf, nan or (of integers) 0, as those of NumPy:
            to raise an error takes long to compile, and stops loops from being vectorised.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        # The ways into a function from C, which nobody takes, and from Python are a quarter of what there is to compile.
        ours = {"error_model": "numpy", "no_cfunc_wrapper": True, **options}
        if not signatures and "inline" not in options:
            return register_jitable(**ours)(function)
        dispatcher = njit(nogil=True, **ours)(function)
        if config.DISABLE_JIT:
            return dispatcher
        if cache_folder().path is not None:
            _KernelCache.attach(dispatcher, function)
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}{label}"
        KERNELS[name] = Kernel(dispatcher, signatures)
        return dispatcher

    return decorate


def allocation_free_kernel(*signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a kernel that makes no arrays and so counts no references: counted, those of large tuples take most of the time."""
    return kernel(signature, _nrt=False)


inline_kernel = kernel(_nrt=False, forceinline=True)
"""Decorator of functions that are inlined into such kernels, whose tuples are more than a hundred arguments."""


def read_only(array: Any) -> Any:
    """The type of the same array where it may not be written to, as one that comes from a file."""
    return types.Array(array.dtype, array.ndim, array.layout, readonly=True)
