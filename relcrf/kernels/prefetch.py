"""Prefetching of memory into the L1 cache."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_READ, _LOCALITY, _DATA = (ir.Constant(ir.IntType(32), value) for value in (0, 3, 1))


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of `array[index]` without waiting; the index may be outside the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        function_type = ir.FunctionType(
            ir.VoidType(), [address.type, *(constant.type for constant in (_READ, _LOCALITY, _DATA))]
        )
        builder.call(
            builder.module.declare_intrinsic("llvm.prefetch", [address.type], function_type),
            [address, _READ, _LOCALITY, _DATA],
        )
        return context.get_dummy_value()

    return types.none(array, index), generate
