"""Asks the machine to bring memory into its nearest cache, and does not wait for it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_READ, _LOCALITY, _DATA = (ir.Constant(ir.IntType(32), value) for value in (0, 3, 1))


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """`prefetch(array, index)`: what stands there will be read soon. Any index will do, also one behind the end."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [place.type, *(constant.type for constant in (_READ, _LOCALITY, _DATA))])
        builder.call(
            builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind), [place, _READ, _LOCALITY, _DATA]
        )
        return context.get_dummy_value()

    return types.none(array, index), generate
