"""Order-independent checksums of rows, to compare engines on large results."""

import numpy as np

DIGITS = 9
"""Number of significant digits that are compared, because engines add in different orders."""


def checksum(batches, outputs):
    """Return the number of rows, and the sum and the exclusive or of their 64-bit hashes."""
    n, total, mixed = 0, 0, 0
    for batch in batches:
        assert list(batch) == [name for name, _, _ in outputs]
        hashed = np.zeros(len(next(iter(batch.values()))), dtype=np.uint64)
        for column in batch.values():
            hashed = _scrambled(hashed * np.uint64(31) + _scrambled(_bits(column)))
        n += len(hashed)
        total = (total + int(hashed.sum(dtype=np.uint64))) % 2**64
        mixed ^= int(np.bitwise_xor.reduce(hashed))
    return n, total, mixed


def _bits(column):
    if column.dtype == object:
        return np.array([hash_of(text) for text in column], dtype=np.uint64)
    if column.dtype == np.float64:
        return (rounded(column) + 0.0).view(np.uint64)
    return column.astype(np.int64).view(np.uint64)


def rounded(column):
    """Round numbers to `DIGITS` significant digits."""
    return np.array([float(f"{x:.{DIGITS}g}") for x in column])


def hash_of(text):
    """Return the FNV-1a hash of a text; Python's own hash differs between processes."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def _scrambled(x):
    """Mix the bits of a number (the finaliser of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
