"""Values whose arrays are written once, and mapped by every process that needs them."""

from __future__ import annotations

import mmap
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

PAGE = mmap.ALLOCATIONGRANULARITY


@dataclass(frozen=True)
class MappedValue(Generic[T]):
    """A value in a file; what is pickled is where.

    Args:
        path: of the file: arrays from page to page, and behind them the rest.
        sizes: of the arrays, in bytes.
    """

    path: Path
    sizes: tuple[int, ...]

    @classmethod
    def save(cls, value: T, path: Path) -> MappedValue[T]:
        """Writes a value; nothing of the size of its arrays is copied in memory."""
        buffers: list[pickle.PickleBuffer] = []
        rest = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        sizes = []
        with path.open("wb") as file:
            for buffer in buffers:
                raw = buffer.raw()
                file.write(raw)
                file.write(bytes(-raw.nbytes % PAGE))
                sizes.append(raw.nbytes)
            file.write(rest)
        return cls(path, tuple(sizes))

    def load(self) -> T:
        """The value; its arrays are the file's pages, shared by all processes. Who writes to one has his own from then on."""
        starts = [0]
        for size in self.sizes:
            starts.append(starts[-1] + size + -size % PAGE)
        with self.path.open("rb") as file:
            file.seek(starts[-1])
            rest = file.read()
            whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        view = memoryview(whole)
        buffers = [view[start : start + size] for start, size in zip(starts, self.sizes, strict=False)]
        found: T = pickle.loads(rest, buffers=buffers)
        return found
