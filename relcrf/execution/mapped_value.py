"""Values with large arrays, written to a file once and memory-mapped by every process that reads the value."""

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
    """A reference to a value in a file; pickling the reference transfers only the path and the sizes.

    Args:
        path: Path of a file with the arrays, each aligned to a page, followed by the rest of the pickled value.
        sizes: Sizes of the arrays in bytes.
    """

    path: Path
    sizes: tuple[int, ...]

    @classmethod
    def save(cls, value: T, path: Path) -> MappedValue[T]:
        """Write a value to a file without copying its arrays in memory."""
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        sizes = []
        with path.open("wb") as file:
            for buffer in buffers:
                raw = buffer.raw()
                file.write(raw)
                file.write(bytes(-raw.nbytes % PAGE))
                sizes.append(raw.nbytes)
            file.write(pickled)
        return cls(path, tuple(sizes))

    def load(self) -> T:
        """Return the value. Its arrays are mapped from the file: processes share the pages and copy a page on write."""
        starts = [0]
        for size in self.sizes:
            starts.append(starts[-1] + size + -size % PAGE)
        with self.path.open("rb") as file:
            file.seek(starts[-1])
            pickled = file.read()
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        view = memoryview(mapping)
        buffers = [view[start : start + size] for start, size in zip(starts, self.sizes, strict=False)]
        value: T = pickle.loads(pickled, buffers=buffers)
        return value
