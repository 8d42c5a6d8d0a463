"""Compilation of kernels, and the folder in which compiled kernels are cached between processes.

The folder is `NUMBA_CACHE_DIR` if the user has set it, `__pycache__` of this package, or a private folder of the user.
Numba pickles its cache, so loading a cache file can run code. A private folder is therefore used only if no other user
can write to it.
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
"""Exceptions raised by unpickling a damaged or outdated index.

A power failure or a full disk may truncate an index; an outdated index may refer to classes that another version of Numba
has moved.
"""


@dataclass(frozen=True)
class CacheFolder:
    """A cache folder of compiled kernels.

    Args:
        path: the folder; None if no usable folder was found. Every process then compiles the kernels again.
        private: whether the folder must be private, i.e. it is used only if no other user can write to it.
        note: the reason why the preferred folder is not used; empty if it is used.
    """

    path: Path | None
    private: bool = False
    note: str = ""

    def is_usable(self) -> bool:
        """Create the folder if it is missing; return True if it is writable, lockable and, if required, private."""
        if self.path is None:
            return False
        try:
            for folder in (*reversed(self.path.parents), self.path):
                if not folder.exists():
                    folder.mkdir(mode=0o700, exist_ok=True)
            if self.private and not _is_private(self.path):
                return False
            tempfile.TemporaryFile(dir=self.path).close()
            with _lock_folder(self.path):
                return True
        except OSError:
            return False


def _is_private(folder: Path) -> bool:
    """Return True if only this user and root can write to the folder or replace it."""
    if folder.is_symlink():
        return False
    if sys.platform == "win32":
        return True  # on Windows, other users cannot write to user folders and temporary folders
    real = folder.resolve()
    for ancestor in (real, *real.parents):
        status = ancestor.stat()
        if status.st_uid not in (os.getuid(), 0):
            return False
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if others_write and (ancestor == real or not status.st_mode & stat.S_ISVTX):
            return False
    return real.stat().st_uid == os.getuid()


def _lock_folder(folder: Path) -> AbstractContextManager[None]:
    """Prevent other processes and threads from reading or adding compiled kernels during the context."""
    return file_lock(folder / ".lock")


@cache
def cache_folder() -> CacheFolder:
    """Choose the cache folder of compiled kernels, once per process.

    The result is the first usable folder of this list: `NUMBA_CACHE_DIR`, if it is set; `__pycache__` of this package;
    the user's cache folder (on Linux `$XDG_CACHE_HOME/relcrf/kernels`, by default in `~/.cache`); a private folder in
    the temporary directory.
    """
    # Each installation has a separate folder, because two versions in one folder would evict each other's kernels.
    installation = "kernels_" + hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:16]
    note = ""
    if config.CACHE_DIR:
        requested = CacheFolder(Path(config.CACHE_DIR).absolute() / installation)
        if requested.is_usable():
            return requested
        note = f"NUMBA_CACHE_DIR is {config.CACHE_DIR}, where compiled kernels cannot be written; "
    candidates = [CacheFolder(PACKAGE / "__pycache__", note=note and f"{note}they are in {PACKAGE / '__pycache__'}")]
    folder = user_cache_path("relcrf", appauthor=False) / "kernels" / installation
    if folder.is_absolute():
        candidates.append(CacheFolder(folder, private=True, note=note and f"{note}they are in {folder}"))
    user = getpass.getuser() if sys.platform == "win32" else os.getuid()
    folder = Path(tempfile.gettempdir()) / f"relcrf_{user}_{installation}"
    candidates.append(CacheFolder(folder, private=True, note=f"{note}compiled kernels are cached in {folder} only"))
    no_folder = CacheFolder(
        None, note=f"{note}no usable cache folder for compiled kernels: every process compiles its own"
    )
    return next((candidate for candidate in candidates if candidate.is_usable()), no_folder)


@cache
def _source_stamp() -> str:
    """Return a hash of the source of all kernels. A compiled kernel contains the kernels that it calls."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one kernel, with locks for concurrent processes; only this class uses Numba's private cache API.

    Numba numbers the files of a kernel in an index file, which it reads and writes without a lock. Two processes that
    compile the kernel for different types can therefore choose the same number. Code for the wrong type would then run.
    """

    class _KernelFiles(CompileResultCacheImpl):  # type: ignore[misc]
        """The files of one kernel in the cache folder of relcrf."""

        class _KernelLocator(_CacheLocator):  # type: ignore[misc]
            """The folder, source stamp and name of the files of one kernel."""

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
        """Attach this cache to a dispatcher."""
        dispatcher._cache = cls(function)

    @classmethod
    def has_all(cls, dispatcher: Any, signatures: tuple[tuple[Any, ...], ...]) -> bool:
        """Return True if the code of a dispatcher is cached for all given signatures."""
        cached = dispatcher._cache
        return isinstance(cached, cls) and all(cached.contains(types_, dispatcher.targetctx) for types_ in signatures)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        folder = cache_folder()
        if folder.path is None or not folder.is_usable():  # a temporary folder may have been deleted since
            return None
        with _lock_folder(folder.path):
            try:
                return super().load_overload(sig, target_context)
            except STALE_INDEX_ERRORS:
                self.flush()
                return None

    def contains(self, signature: tuple[Any, ...], target_context: Any) -> bool:
        """Return True if the code for this signature is cached; the code is not loaded."""
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
    """A function compiled by Numba, and the signatures with which relcrf calls the function."""

    dispatcher: Any
    signatures: tuple[tuple[Any, ...], ...]

    def is_cached(self) -> bool:
        """Return True if the cache contains the code for all signatures."""
        return _KernelCache.has_all(self.dispatcher, self.signatures)

    def compile(self) -> None:
        """Compile the function for all signatures, or load the code from the cache."""
        for signature in self.signatures:
            self.dispatcher.compile(signature)


KERNELS: dict[str, Kernel] = {}
"""The kernels of all imported modules, by `module.function`."""


def kernel(*signatures: tuple[Any, ...], label: str = "", **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator of functions that Numba compiles on the first call, caches, and runs without the GIL.

    Args:
        signatures: the argument types with which the function is called, for `relcrf warmup`. They are empty for a
            function that is called only by other kernels. Such a function is compiled and cached as a part of these
            kernels; if called from Python, it runs uncompiled.
        label: a label that distinguishes functions of the same name created by a factory.
        options: options of `numba.njit`, such as `fastmath`. As in NumPy, division by 0 gives inf, nan or, for
            integers, 0; an exception would increase the compile time and prevent vectorisation.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        # Wrappers for C are never needed, wrappers for Python only with signatures; they take 1/4 of the compile time.
        njit_options = {"error_model": "numpy", "no_cfunc_wrapper": True, **options}
        if not signatures and "inline" not in options:
            return register_jitable(**njit_options)(function)
        dispatcher = njit(nogil=True, **njit_options)(function)
        if config.DISABLE_JIT:
            return dispatcher
        if cache_folder().path is not None:
            _KernelCache.attach(dispatcher, function)
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}{label}"
        KERNELS[name] = Kernel(dispatcher, signatures)
        return dispatcher

    return decorate


def allocation_free_kernel(*signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator of kernels without allocations. They need no reference counting, which is slow for large tuples."""
    return kernel(signature, _nrt=False)


inline_kernel = kernel(_nrt=False, forceinline=True)
"""Decorator of functions inlined into allocation-free kernels; a call would pass tuples as more than 100 arguments."""


def read_only(array: Any) -> Any:
    """Return the read-only variant of an array type, e.g. for arrays that are memory-mapped from a file."""
    return types.Array(array.dtype, array.ndim, array.layout, readonly=True)
