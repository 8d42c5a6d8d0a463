"""Additions and subtractions of neighbouring numbers at once, where LLVM cannot know that arrays do not overlap."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

GROUP_SIZE = 16
"""Of float32, a widest vector; of float64, two. LLVM makes several of it where the machine's are shorter."""


def _vector_pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any, n: int) -> Any:
    """A pointer to n numbers of an array from an index on."""
    data = context.make_array(kind)(context, builder, array).data
    real = context.get_value_type(kind.dtype)
    return builder.bitcast(builder.gep(data, [index]), ir.VectorType(real, n).as_pointer())


def make_adder(n: int) -> Any:
    """Return the function `add(total, at, values, start)`: `total[at : at + n] += values[start : start + n]`.

    Indices are uint64 and not looked at.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def add(typing_context: Any, total: Any, at: Any, values: Any, start: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            align = context.get_abi_sizeof(context.get_value_type(total.dtype))
            left = _vector_pointer(context, builder, total, arguments[0], arguments[1], n)
            right = _vector_pointer(context, builder, values, arguments[2], arguments[3], n)
            added = builder.fadd(builder.load(left, align=align), builder.load(right, align=align))
            builder.store(added, left, align=align)
            return context.get_dummy_value()

        return types.void(total, types.uint64, values, types.uint64), generate

    return add


add_group = make_adder(GROUP_SIZE)


@intrinsic  # type: ignore[untyped-decorator]
def subtract_group(typing_context: Any, total: Any, at: Any, values: Any, start: Any, out: Any, place: Any) -> Any:
    """`out[place : place + GROUP] = total[at : at + GROUP] - values[start : start + GROUP]`; as `add_group`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        align = context.get_abi_sizeof(context.get_value_type(total.dtype))
        left = _vector_pointer(context, builder, total, arguments[0], arguments[1], GROUP_SIZE)
        right = _vector_pointer(context, builder, values, arguments[2], arguments[3], GROUP_SIZE)
        rest = builder.fsub(builder.load(left, align=align), builder.load(right, align=align))
        builder.store(rest, _vector_pointer(context, builder, out, arguments[4], arguments[5], GROUP_SIZE), align=align)
        return context.get_dummy_value()

    return types.void(total, types.uint64, values, types.uint64, out, types.uint64), generate
