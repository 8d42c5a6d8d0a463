"""Exponentials and logarithms that LLVM can vectorise; `math.exp` is one library call per number and cannot be vectorised.

`exp` uses only arithmetic. It splits the argument into an integer multiple of ln 2, which becomes the exponent, and a
remainder in [-ln 2 / 2, ln 2 / 2], whose exponential is approximated by a polynomial (Cody & Waite 1980). For arguments
from -708 to 709, the result is within 2 ulp of `np.exp`. For smaller arguments, whose exponentials are subnormal or 0,
the result is 0. For larger arguments and nan, the result is undefined.

`log` supports only positive normal numbers. It splits off the exponent. The logarithm of the mantissa m, which is in
[sqrt(1/2), sqrt(2)), is computed by the odd series in (m - 1) / (m + 1). The error is at most 2 ulp of the result or,
for arguments near 1, 2 ulp of the argument.

`exp_like` and `log_like` accept float64 or float32 and return the same type; `exp_like` of float32 supports -87..88.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float64, types
from numba.extending import intrinsic, overload
from numpy.polynomial import Chebyshev, Polynomial

from relcrf.kernels.compile import kernel

MIN_ARGUMENT = -708.0
MAX_ARGUMENT = 709.0

_ROUNDER = 1.5 * 2.0**52
"""Adding and subtracting this number rounds x to an integer; after the addition, the lowest bits are the integer."""
_ROUNDER_BITS = int(np.float64(_ROUNDER).view(np.int64))
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_PER_LN2 = 1.4426950408889634

_LOWEST32 = np.float32(-87.0)
_ROUNDER32 = np.float32(1.5 * 2.0**23)
_LN2_HIGH32 = np.float32(355.0 / 512.0)
_LN2_LOW32 = np.float32(np.log(2.0) - 355.0 / 512.0)
_PER_LN2_32 = np.float32(_PER_LN2)
_E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11 = (
    0.16666666666666666,
    0.041666666666651364,
    0.008333333333332157,
    0.0013888888905871347,
    0.0001984126985433077,
    2.4801536409064087e-05,
    2.7557280082684685e-06,
    2.761379555451986e-07,
    2.509554598170022e-08,
)
_F2, _F3, _F4, _F5, _F6 = (
    np.float32(c) for c in (0.5, 0.1666657702559799, 0.041666554662050534, 0.008363173074513711, 0.001392617611993558)
)
"""Coefficients of exp; the lower ones are those of the Taylor series. The polynomials interpolate (exp(x) - lower terms) / x^3
(x^2 in float32) in the Chebyshev nodes of [-ln 2 / 2, ln 2 / 2]; their relative errors are 3.4e-17 and 1e-8."""
_ZERO32, _ONE32 = np.float32(0.0), np.float32(1.0)

_CUBIC = Chebyshev.interpolate(
    lambda f: (np.log1p(f) - f + 0.5 * f**2) / f**3, 7, domain=(np.sqrt(0.5) - 1.0, np.sqrt(2.0) - 1.0)
)
_L2 = np.float32(-0.5)
_L3, _L4, _L5, _L6, _L7, _L8, _L9, _L10 = _CUBIC.convert(kind=Polynomial).coef.astype(np.float32)
"""Coefficients of log(1 + f) by Chebyshev interpolation; a truncated Taylor series is inaccurate far from f = 0."""


@intrinsic  # type: ignore[untyped-decorator]
def _float_to_bits(typing_context: Any, x: Any) -> Any:
    """Reinterpret the bits of a float64 as an int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _bits_to_float(typing_context: Any, x: Any) -> Any:
    """Reinterpret the bits of an int64 as a float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


def _float_format(float_type: Any) -> tuple[Any, Any, int, int]:
    """Return the LLVM types of a float and of an equally long integer, the mantissa length, and the rounder's bits."""
    if float_type == types.float64:
        return ir.DoubleType(), ir.IntType(64), 52, _ROUNDER_BITS
    return ir.FloatType(), ir.IntType(32), 23, int(_ROUNDER32.view(np.int32))


@intrinsic  # type: ignore[untyped-decorator]
def _scale(typing_context: Any, x: Any, shifted: Any) -> Any:
    """Compute x * 2^n if the result is a normal number; n is the integer in the lowest bits of `shifted`.

    Args:
        shifted: A number to which the rounder of its type was added.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        float_type, int_type, n_bits, _ = _float_format(x)
        bits, number = (builder.bitcast(each, int_type) for each in arguments)
        return builder.bitcast(builder.add(bits, builder.shl(number, int_type(n_bits))), float_type)

    return x(x, x), generate


def _exponent_bits(builder: Any, float_type: Any, x: Any) -> tuple[Any, Any]:
    """Return the bits of x, and the integer e for which x / 2^e is in [sqrt(1/2), sqrt(2))."""
    _, int_type, n_bits, _ = _float_format(float_type)
    root = np.sqrt(np.float64(0.5)).view(np.int64) if n_bits == 52 else np.sqrt(np.float32(0.5)).view(np.int32)
    bits = builder.bitcast(x, int_type)
    return bits, builder.ashr(builder.sub(bits, int_type(int(root))), int_type(n_bits))


@intrinsic  # type: ignore[untyped-decorator]
def _shifted_exponent(typing_context: Any, x: Any) -> Any:
    """Return e + rounder as a float, with e from `_exponent_bits`; this is faster than converting a 64-bit integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        float_type, int_type, _, round_bits = _float_format(x)
        _, exponent = _exponent_bits(builder, x, arguments[0])
        return builder.bitcast(builder.add(exponent, int_type(round_bits)), float_type)

    return x(x), generate


@intrinsic  # type: ignore[untyped-decorator]
def _mantissa(typing_context: Any, x: Any) -> Any:
    """Return x / 2^e, with e from `_exponent_bits`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        float_type, int_type, n_bits, _ = _float_format(x)
        bits, exponent = _exponent_bits(builder, x, arguments[0])
        return builder.bitcast(builder.sub(bits, builder.shl(exponent, int_type(n_bits))), float_type)

    return x(x), generate


@kernel(inline="always")
def exp(x):
    """Compute exp(x) of a float64. Do not call it from functions compiled with `reassoc` or `fastmath=True`."""
    shifted = x * _PER_LN2 + _ROUNDER
    integer = shifted - _ROUNDER
    rest = (x - integer * _LN2_HIGH) - integer * _LN2_LOW
    p = _E11
    p = p * rest + _E10
    p = p * rest + _E9
    p = p * rest + _E8
    p = p * rest + _E7
    p = p * rest + _E6
    p = p * rest + _E5
    p = p * rest + _E4
    p = p * rest + _E3
    p = p * rest + 0.5
    p = p * rest + 1.0
    p = p * rest + 1.0
    return _scale(p, shifted) if x >= MIN_ARGUMENT else 0.0


@kernel(inline="always")
def exp32(x):
    """Compute exp(x) of a float32."""
    shifted = x * _PER_LN2_32 + _ROUNDER32
    integer = shifted - _ROUNDER32
    rest = (x - integer * _LN2_HIGH32) - integer * _LN2_LOW32
    p = _F6
    p = p * rest + _F5
    p = p * rest + _F4
    p = p * rest + _F3
    p = p * rest + _F2
    p = p * rest + _ONE32
    p = p * rest + _ONE32
    return _scale(p, shifted) if x >= _LOWEST32 else _ZERO32


@kernel(inline="always")
def log(x):
    """Compute log(x) of a float64. Do not call it from functions compiled with `reassoc` or `fastmath=True`."""
    exponent = _shifted_exponent(x) - _ROUNDER
    rest = _mantissa(x) - 1.0
    ratio = rest / (rest + 2.0)
    z = ratio * ratio
    p = 2.0 / 21.0
    p = p * z + 2.0 / 19.0
    p = p * z + 2.0 / 17.0
    p = p * z + 2.0 / 15.0
    p = p * z + 2.0 / 13.0
    p = p * z + 2.0 / 11.0
    p = p * z + 2.0 / 9.0
    p = p * z + 2.0 / 7.0
    p = p * z + 2.0 / 5.0
    p = p * z + 2.0 / 3.0
    small = exponent * _LN2_LOW + ratio * (p * z)
    return exponent * _LN2_HIGH + (2.0 * ratio + small)


@kernel(inline="always")
def log32(x):
    """Compute log(x) of a float32. Unlike `log`, it needs no division: it uses a short polynomial in m - 1."""
    exponent = _shifted_exponent(x) - _ROUNDER32
    rest = _mantissa(x) - _ONE32
    p = _L10
    p = p * rest + _L9
    p = p * rest + _L8
    p = p * rest + _L7
    p = p * rest + _L6
    p = p * rest + _L5
    p = p * rest + _L4
    p = p * rest + _L3
    p = p * rest + _L2
    small = exponent * _LN2_LOW32 + (rest * rest) * p
    return exponent * _LN2_HIGH32 + (rest + small)


def exp_like(x: Any) -> Any:
    """Compute `exp32` of a float32, or `exp` of a float64."""
    return np.exp(x)


def log_like(x: Any) -> Any:
    """Compute `log32` of a float32, or `log` of a float64."""
    return np.log(x)


@overload(exp_like, inline="always")
def _exp_like(x):
    return exp32.py_func if x == types.float32 else exp.py_func


@overload(log_like, inline="always")
def _log_like(x):
    return log32.py_func if x == types.float32 else log.py_func


@kernel((float64[::1],), fastmath={"contract"})
def exp_in_place(x):
    """Set `x[i] = exp(x[i])`, shape (n,); return the largest absolute argument; inf and nan count as the largest.

    The bits of absolute values, read as integers, have the same order. They are compared instead of the floats, because
    LLVM vectorises only the comparison of integers.
    """
    top = np.int64(0)
    for i in range(len(x)):
        bits = _float_to_bits(x[i]) & np.int64(0x7FFFFFFFFFFFFFFF)
        top = bits if bits > top else top
        x[i] = exp(x[i])
    return _bits_to_float(top)
