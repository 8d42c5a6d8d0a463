"""Compilation of kernels, and the folder in which compiled kernels are cached between processes.

The folder is `NUMBA_CACHE_DIR` if the user has set it, `__pycache__` of this package, or a private folder of the user.
Numba pickles compiled kernels, so loading a cache file can run code. A private folder is therefore used only if no other
user can write to it. Damaged machine code crashes the process, so each file starts with a checksum; a kernel whose file is
damaged is compiled again.

Wheels of relcrf contain kernels that were compiled when the wheel was built (see `portable.py` and `hatch_build.py`). They are
used with the same versions of Python and Numba, on processors that have the instructions for which they were compiled.
"""

from __future__ import annotations

import errno
import getpass
import glob
import hashlib
import logging
import os
import pickle
import platform
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding
import numba
from numba import config, njit, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.serialize import dumps
from numba.extending import register_jitable
from platformdirs import user_cache_path

from relcrf.files import atomic_file

PACKAGE = Path(__file__).resolve().parent

_log = logging.getLogger(__name__)

PORTABLE_FOLDER = "portable"
"""Name of the folder in this package that contains the compiled kernels of a wheel."""

PORTABLE_CPU, PORTABLE_FEATURES = (
    ("x86-64-v3", ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"))
    if platform.machine() in ("x86_64", "AMD64")
    else ("generic", ())
)
"""The processor, in the names of LLVM, for which the kernels of a wheel are compiled, and the features that it requires: x86
processors since 2013 (Intel) and 2015 (AMD), and all processors of other architectures."""

CHECKSUM_BYTES = 32
"""Size of the BLAKE2b checksum at the start of each cache file."""


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

    def prepare(self) -> None:
        """Create the folder if it is missing.

        Raises:
            OSError: if the folder is not writable, or not private as required.
        """
        assert self.path is not None
        for folder in (*reversed(self.path.parents), self.path):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        if not self.is_trusted():
            raise PermissionError(errno.EPERM, "other users can write to this folder", str(self.path))
        tempfile.TemporaryFile(dir=self.path).close()

    def is_trusted(self) -> bool:
        """Return True if the folder exists and is private, or does not have to be private."""
        return self.path is not None and self.path.is_dir() and (not self.private or _is_private(self.path))

    def is_usable(self) -> bool:
        """Create the folder if it is missing; return True if it is writable and, if required, private."""
        try:
            self.prepare()
        except OSError:
            return False
        return True


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


@cache
def runs_portable_kernels() -> bool:
    """Return True if this processor has the instructions of the kernels of wheels, and the user chose no other processor."""
    found = llvmlite.binding.get_host_cpu_features()
    return config.CPU_NAME in (None, PORTABLE_CPU) and all(found.get(feature) for feature in PORTABLE_FEATURES)


@cache
def _log_save_error(reason: str) -> None:
    """Log once per process that compiled kernels are not cached."""
    _log.warning("note: compiled kernels are not cached in %s: %s", cache_folder().path, reason)


def _compiler_options() -> tuple[int, ...]:
    """Return the options of Numba, such as `NUMBA_BOUNDSCHECK`, with which kernels are slower; they are meant for debugging."""
    options = config.OPT, config.BOUNDSCHECK or 0, config.DEBUGINFO_DEFAULT, config.LOOP_VECTORIZE, config.SLP_VECTORIZE
    return tuple(map(int, options))


class _Key(NamedTuple):
    """The key of compiled code. The checksum of a file represents the sources and the compiler.

    Args:
        signature: the argument types.
        target: the operating system, the processor and its features.
        kernel: the name of the kernel in `KERNELS`.
        python: the version of Python.
        options: Numba's options from environment variables that change the compiled code; see `_compiler_options`.
    """

    signature: tuple[Any, ...]
    target: tuple[str, str, str]
    kernel: str
    python: tuple[int, int]
    options: tuple[int, ...]


class _CodeFiles:
    """The cache files of one kernel: a file for each signature, with a checksum, and the pickled key and code.

    A file is replaced atomically, so several processes can read and write the same file without a lock.

    Args:
        name: start of the names of the files, unique for the kernel.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def _file_name(self, key: _Key) -> str:
        return f"{self._name}.{hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()}.nbc"

    def _path(self, key: _Key) -> Path:
        folder = cache_folder().path
        assert folder is not None
        return folder / self._file_name(key)

    def _checksum(self, path: Path, content: bytes) -> bytes:
        """Return the checksum of a file; code of another kernel, source or compiler has another checksum."""
        origin = (path.name, _source_stamp(), numba.__version__, llvmlite.__version__)
        return hashlib.blake2b(repr(origin).encode() + content, digest_size=CHECKSUM_BYTES).digest()

    def _candidates(self, key: _Key) -> Iterator[tuple[Path, _Key]]:
        """Yield the paths at which the code for a key may be, with the key of the code at this path."""
        if cache_folder().is_trusted():  # the folder may have changed since the start
            yield self._path(key), key
        if runs_portable_kernels():
            portable = key._replace(target=(key.target[0], PORTABLE_CPU, ""))
            yield PACKAGE / PORTABLE_FOLDER / self._file_name(portable), portable

    def read(self, key: _Key) -> tuple[bytes, _Key] | None:
        """Return the content of the file for a key, and its key; None if it is missing, damaged or outdated."""
        for path, file_key in self._candidates(key):
            try:
                data = path.read_bytes()
            except OSError:
                continue
            content = data[CHECKSUM_BYTES:]
            if data[:CHECKSUM_BYTES] == self._checksum(path, content):
                return content, file_key
        return None

    def load(self, key: _Key) -> Any:
        """Return the code for a key; None if it is not cached."""
        found = self.read(key)
        if found is None:
            return None
        stored_key, code = pickle.loads(found[0])
        return code if stored_key == found[1] else None

    def save(self, key: _Key, code: Any) -> None:
        """Write the code for a key.

        Raises:
            OSError: if the file cannot be written, e.g. because the disk is full.
        """
        path, content = self._path(key), dumps((key, code))
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        with atomic_file(path, sync=False) as file:  # after a power cut, the checksum reveals incomplete files
            file.write(self._checksum(path, content) + content)

    def flush(self) -> None:
        """Remove all files of the kernel from the cache folder."""
        for path in Path(cache_folder().path or "").glob(f"{glob.escape(self._name)}.*.nbc"):
            path.unlink(missing_ok=True)


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one kernel, with other files; only this class uses Numba's private cache API.

    Numba itself does not detect damaged code, and its index assigns the code of one signature to another one if two
    processes compile a kernel at the same time.
    """

    class _KernelFiles(CompileResultCacheImpl):  # type: ignore[misc]
        """The files of one kernel in the cache folder of relcrf."""

        class _KernelLocator(_CacheLocator):  # type: ignore[misc]
            """The folder, source stamp and name of the files of one kernel."""

            def __init__(self, function: Callable[..., Any]) -> None:
                self._line = function.__code__.co_firstlineno
                self._py_file = function.__code__.co_filename  # for Numba's warning of code that cannot be cached

            def ensure_cache_path(self) -> None:
                cache_folder().prepare()

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

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        super().__init__(function)
        self._kernel_name = name
        self._cache_file = _CodeFiles(self._impl.filename_base)

    def _index_key(self, sig: Any, codegen: Any) -> _Key:
        return _Key(sig, codegen.magic_tuple(), self._kernel_name, sys.version_info[:2], _compiler_options())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever the reason, the kernel can be compiled again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if cache_folder().path is None:
            return
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _log_save_error((error.strerror or str(error)).lower())

    def contains(self, signature: tuple[Any, ...], target_context: Any) -> bool:
        """Return True if undamaged code for this signature is cached; the code is not loaded."""
        return self._cache_file.read(self._index_key(signature, target_context.codegen())) is not None


@dataclass(frozen=True)
class Kernel:
    """A function compiled by Numba, and the signatures with which relcrf calls the function."""

    dispatcher: Any
    signatures: tuple[tuple[Any, ...], ...]

    def is_cached(self) -> bool:
        """Return True if the cache contains the code for all signatures."""
        cached, context = self.dispatcher._cache, self.dispatcher.targetctx
        return isinstance(cached, _KernelCache) and all(cached.contains(each, context) for each in self.signatures)

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
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}{label}"
        dispatcher._cache = _KernelCache(function, name)
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
