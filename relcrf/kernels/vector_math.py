"""Exponentials of whole arrays, as LLVM vectorises them: `math.exp` is a call a number, and stops every loop around it.

`exp` is written out in arithmetic: the argument is split into a whole number of ln 2, which becomes an exponent, and a rest
in [-ln 2 / 2, ln 2 / 2], whose exponential is a polynomial (Cody & Waite 1980). Within 2 units in the last place of
`np.exp` for arguments from -708 to 709; 0 below (where the result would be no normal number); not for larger ones and nan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float64, types
from numba.extending import intrinsic

from relcrf.kernels.compile import kernel

LOWEST = -708.0
HIGHEST = 709.0

_ROUND = 1.5 * 2.0**52
"""Added and taken away again, it rounds to a whole number, which then stands in the lowest bits."""
_ROUND_BITS = int(np.float64(_ROUND).view(np.int64))
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_PER_LN2 = 1.4426950408889634


@intrinsic  # type: ignore[untyped-decorator]
def _bits(typing_context: Any, x: Any) -> Any:
    """The bits of a float64 as an int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _float(typing_context: Any, x: Any) -> Any:
    """The float64 of the bits of an int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@kernel(inline="always")
def exp(x):  # type: ignore[no-untyped-def]
    """See the module. Only in functions whose sums may not be rearranged: no `reassoc`, no `fastmath=True`."""
    y = x if x >= LOWEST else LOWEST
    shifted = y * _PER_LN2 + _ROUND
    whole = shifted - _ROUND
    rest = (y - whole * _LN2_HIGH) - whole * _LN2_LOW
    p = 1.0 / 479001600.0
    p = p * rest + 1.0 / 39916800.0
    p = p * rest + 1.0 / 3628800.0
    p = p * rest + 1.0 / 362880.0
    p = p * rest + 1.0 / 40320.0
    p = p * rest + 1.0 / 5040.0
    p = p * rest + 1.0 / 720.0
    p = p * rest + 1.0 / 120.0
    p = p * rest + 1.0 / 24.0
    p = p * rest + 1.0 / 6.0
    p = p * rest + 0.5
    p = p * rest + 1.0
    p = p * rest + 1.0
    scale = _float(((_bits(shifted) - _ROUND_BITS) + 1023) << 52)
    return p * scale if x >= LOWEST else 0.0


@kernel((float64[::1], float64[::1]), fastmath={"contract"})
def exp_into(x, out):  # type: ignore[no-untyped-def]
    """`out[i] = exp(x[i])`; two arrays of shape (n,) that do not overlap. Returns as `exp_in_place`."""
    top = np.int64(0)
    for i in range(len(x)):
        bits = _bits(x[i]) & np.int64(0x7FFFFFFFFFFFFFFF)
        top = bits if bits > top else top
        out[i] = exp(x[i])
    return _float(top)


@kernel((float64[::1],), fastmath={"contract"})
def exp_in_place(x):  # type: ignore[no-untyped-def]
    """`x[i] = exp(x[i])`, shape (n,). Returns the largest magnitude that was there; inf and nan are larger than any number.

    Magnitudes are compared as bits, whose order is the same: that vectorises, while the comparison of floats does not.
    """
    top = np.int64(0)
    for i in range(len(x)):
        bits = _bits(x[i]) & np.int64(0x7FFFFFFFFFFFFFFF)
        top = bits if bits > top else top
        x[i] = exp(x[i])
    return _float(top)
