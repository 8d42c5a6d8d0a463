"""Short vectors as values in kernels, for loops that LLVM does not vectorise, for example because arrays might overlap.

A vector consists of a number of floats that is known when the kernel is compiled. `make_loader` makes the function that reads a
vector from an array; `store` writes one. Vectors are added, subtracted, multiplied and divided by the operators `+ - * /`; the
left operand may be a number. LLVM splits vectors that are longer than those of the processor.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable


class ShortVector(types.Type):  # type: ignore[misc]
    """The Numba type of a vector of n numbers."""

    def __init__(self, dtype: types.Float, n: int) -> None:
        self.dtype, self.n = dtype, n
        super().__init__(f"ShortVector({dtype}, {n})")


@register_model(ShortVector)
class _ShortVectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, vector: ShortVector) -> None:
        super().__init__(manager, vector, ir.VectorType(manager.lookup(vector.dtype).get_value_type(), vector.n))


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, vector: Any) -> Any:
    """Emit a pointer to the vector that starts at an index of an array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), context.get_value_type(vector).as_pointer())


def _alignment(context: Any, vector: ShortVector) -> int:
    return int(context.get_abi_sizeof(context.get_value_type(vector.dtype)))


def make_loader(n: int) -> Callable[..., Any]:
    """Make the function `load(array, index)`, which returns the n numbers of a flat view of an array that start at an index.

    The index is uint64 and not checked.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing_context: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vector, (data, start) = signature.return_type, arguments
            pointer = _pointer(context, builder, array, data, start, vector)
            return builder.load(pointer, align=_alignment(context, vector))

        return ShortVector(array.dtype, n)(array, types.uint64), generate

    return load  # type: ignore[no-any-return]


@intrinsic  # type: ignore[untyped-decorator]
def store(typing_context: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write a vector to a flat view of an array, from an index, which is uint64 and not checked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, start, values = arguments
        pointer = _pointer(context, builder, array, data, start, vector)
        builder.store(values, pointer, align=_alignment(context, vector))
        return context.get_dummy_value()

    return types.void(array, types.uint64, vector), generate


def _broadcast(builder: Any, number: Any, n: int) -> Any:
    """Emit a vector of n equal numbers."""
    undefined = ir.Constant(ir.VectorType(number.type, n), ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), n), [0] * n))


def _define_operator(function: Any, instruction: str) -> None:
    """Define an operator for two vectors, and for a number and a vector; the options `fastmath` of the kernel apply."""

    @type_callable(function)  # type: ignore[untyped-decorator]
    def type_operator(context: Any) -> Any:
        def typer(left: Any, right: Any) -> Any:
            is_defined = isinstance(right, ShortVector) and (left == right or isinstance(left, types.Float))
            return right if is_defined else None

        return typer

    @lower_builtin(function, ShortVector, ShortVector)  # type: ignore[untyped-decorator]
    def operate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments)

    @lower_builtin(function, types.Float, ShortVector)  # type: ignore[untyped-decorator]
    def operate_with_number(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, vector = signature.args
        number = context.cast(builder, arguments[0], kind, vector.dtype)
        return getattr(builder, instruction)(_broadcast(builder, number, vector.n), arguments[1])


for _function, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define_operator(_function, _instruction)


@type_callable(operator.getitem)  # type: ignore[untyped-decorator]
def _type_element(context: Any) -> Any:
    def typer(vector: Any, index: Any) -> Any:
        return vector.dtype if isinstance(vector, ShortVector) and isinstance(index, types.Integer) else None

    return typer


@lower_builtin(operator.getitem, ShortVector, types.Integer)  # type: ignore[untyped-decorator]
def _emit_element(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit the number at an index, which is not checked; it is fast if the index is known at compile time."""
    return builder.extract_element(*arguments)


@intrinsic  # type: ignore[untyped-decorator]
def with_element(typing_context: Any, vector: Any, index: Any, number: Any) -> Any:
    """Return a vector in which the number at an index is replaced."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, index, number = arguments
        return builder.insert_element(values, number, index)

    return vector(vector, types.uint64, vector.dtype), generate


@intrinsic  # type: ignore[untyped-decorator]
def sum_of(typing_context: Any, vector: Any) -> Any:
    """Return the sum of the numbers of a vector, in the order that is fastest on the processor."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, kind = context.get_value_type(vector.dtype), context.get_value_type(vector)
        name = f"llvm.vector.reduce.fadd.v{vector.n}f{vector.dtype.bitwidth}"
        reduce = get_or_insert_function(builder.module, ir.FunctionType(number, [number, kind]), name)
        return builder.call(reduce, [ir.Constant(number, -0.0), arguments[0]], fastmath=("reassoc",))

    return vector.dtype(vector), generate


@intrinsic  # type: ignore[untyped-decorator]
def is_any_outside(typing_context: Any, vector: Any, low: Any, high: Any) -> Any:
    """Return True if any number of a vector is below `low` or above `high`; nan is neither."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lowest, highest = (_broadcast(builder, bound, vector.n) for bound in arguments[1:])
        outside = builder.or_(
            builder.fcmp_ordered("<", arguments[0], lowest), builder.fcmp_ordered(">", arguments[0], highest)
        )
        bit = ir.IntType(1)
        reduce = get_or_insert_function(
            builder.module, ir.FunctionType(bit, [outside.type]), f"llvm.vector.reduce.or.v{vector.n}i1"
        )
        return builder.call(reduce, [outside])

    return types.boolean(vector, vector.dtype, vector.dtype), generate


@intrinsic  # type: ignore[untyped-decorator]
def quotients(typing_context: Any, numerator: Any, denominator: Any) -> Any:
    """Return the quotients of two vectors, 0 where the denominator is not positive."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zero = ir.Constant(arguments[1].type, [0.0] * denominator.n)
        is_positive = builder.fcmp_ordered(">", arguments[1], zero)
        return builder.select(is_positive, builder.fdiv(*arguments), zero)

    return denominator(numerator, denominator), generate


@intrinsic  # type: ignore[untyped-decorator]
def zeros_like(typing_context: Any, vector: Any) -> Any:
    """Return a vector of zeros of the same type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(arguments[0].type, [0.0] * vector.n)

    return vector(vector), generate
