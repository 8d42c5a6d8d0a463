"""Explicit vector additions and subtractions, for loops that LLVM does not vectorise because arrays might overlap."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

GROUP_SIZE = 16
"""Numbers per vector operation: one AVX-512 vector of float32, or two of float64. LLVM splits them if necessary."""


def _vector_pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, n: int) -> Any:
    """Emit a pointer to the vector of n numbers that starts at an index of an array."""
    data = context.make_array(array_type)(context, builder, array).data
    number_type = context.get_value_type(array_type.dtype)
    return builder.bitcast(builder.gep(data, [index]), ir.VectorType(number_type, n).as_pointer())


def make_adder(n: int) -> Any:
    """Make the function `add(total, at, values, start)`: `total[at : at + n] += values[start : start + n]`.

    Indices are uint64 and not checked.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def add(typing_context: Any, total: Any, at: Any, values: Any, start: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            align = context.get_abi_sizeof(context.get_value_type(total.dtype))
            left = _vector_pointer(context, builder, total, arguments[0], arguments[1], n)
            right = _vector_pointer(context, builder, values, arguments[2], arguments[3], n)
            sums = builder.fadd(builder.load(left, align=align), builder.load(right, align=align))
            builder.store(sums, left, align=align)
            return context.get_dummy_value()

        return types.void(total, types.uint64, values, types.uint64), generate

    return add


def make_scaled_adder(n: int) -> Any:
    """Make the function `add(total, at, factor, values, start)`: `total[at : at + n] += factor * values[start : start + n]`.

    The product is rounded before the addition. The factor and both arrays have the same type.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def add(typing_context: Any, total: Any, at: Any, factor: Any, values: Any, start: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number_type = context.get_value_type(total.dtype)
            align = context.get_abi_sizeof(number_type)
            left = _vector_pointer(context, builder, total, arguments[0], arguments[1], n)
            right = builder.load(_vector_pointer(context, builder, values, arguments[3], arguments[4], n), align=align)
            product = builder.fmul(_broadcast(builder, arguments[2], n), right)
            sums = builder.fadd(builder.load(left, align=align), product)
            builder.store(sums, left, align=align)
            return context.get_dummy_value()

        return types.void(total, types.uint64, total.dtype, values, types.uint64), generate

    return add


def make_four_adder(n: int) -> Any:
    """Make the function `add(total, at, values, a, b, c, d)`, which adds four vectors: `total += (a + b) + (c + d)`.

    a, b, c and d are the starts of vectors of n numbers in `values`; `at` is that of the vector in `total`.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def add(typing_context: Any, total: Any, at: Any, values: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            align = context.get_abi_sizeof(context.get_value_type(total.dtype))
            left = _vector_pointer(context, builder, total, arguments[0], arguments[1], n)
            rows = [
                builder.load(_vector_pointer(context, builder, values, arguments[2], start, n), align=align)
                for start in arguments[3:]
            ]
            sums = builder.fadd(builder.fadd(rows[0], rows[1]), builder.fadd(rows[2], rows[3]))
            builder.store(builder.fadd(builder.load(left, align=align), sums), left, align=align)
            return context.get_dummy_value()

        return types.void(total, types.uint64, values, *[types.uint64] * 4), generate

    return add


def _broadcast(builder: Any, number: Any, n: int) -> Any:
    """Emit a vector of n equal numbers."""
    vector = ir.Constant(ir.VectorType(number.type, n), ir.Undefined)
    for k in range(n):
        vector = builder.insert_element(vector, number, ir.Constant(ir.IntType(32), k))
    return vector


def _load_number(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Emit the number at an index of an array."""
    return builder.load(builder.gep(context.make_array(array_type)(context, builder, array).data, [index]))


def make_row_combiner(n: int) -> Any:
    """Make the function `combine(out, rows, first, factors, at)`: `out[:n]` becomes the sum of n rows times a factor each.

    Row i is `rows[first + i * n : first + (i + 1) * n]`, and its factor is `factors[at + i]`. The rows are added in their order.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def combine(typing_context: Any, out: Any, rows: Any, first: Any, factors: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            align = context.get_abi_sizeof(context.get_value_type(rows.dtype))
            total = None
            for k in range(n):
                start, index = (
                    builder.add(arguments[i], ir.Constant(arguments[i].type, step)) for i, step in ((2, k * n), (4, k))
                )
                row = builder.load(_vector_pointer(context, builder, rows, arguments[1], start, n), align=align)
                factor = _broadcast(builder, _load_number(context, builder, factors, arguments[3], index), n)
                product = builder.fmul(row, factor, flags=("contract",))
                total = product if total is None else builder.fadd(total, product, flags=("contract",))
            zero = ir.Constant(arguments[2].type, 0)
            builder.store(total, _vector_pointer(context, builder, out, arguments[0], zero, n), align=align)
            return context.get_dummy_value()

        return types.void(out, rows, types.uint64, factors, types.uint64), generate

    return combine


def make_table_adder(n: int) -> Any:
    """Make the function `add(table_sum, table, first, factors, values, column, column_sum)`.

    The table of the numbers `factors[x] * table[first + x * n + y] * values[column + y]` is added to `table_sum`, from the index
    `first`, and the sums of its columns to `column_sum[column : column + n]`.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def add(
        typing_context: Any,
        table_sum: Any,
        table: Any,
        first: Any,
        factors: Any,
        values: Any,
        column: Any,
        column_sum: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            align = context.get_abi_sizeof(context.get_value_type(table.dtype))

            def add_to(array_type: Any, array: Any, index: Any, added: Any) -> None:
                pointer = _vector_pointer(context, builder, array_type, array, index, n)
                builder.store(builder.fadd(builder.load(pointer, align=align), added), pointer, align=align)

            pointer = _vector_pointer(context, builder, values, arguments[4], arguments[5], n)
            value, total = builder.load(pointer, align=align), None
            for k in range(n):
                start, index = (ir.Constant(arguments[2].type, step) for step in (k * n, k))
                at = builder.add(arguments[2], start)
                row = builder.load(_vector_pointer(context, builder, table, arguments[1], at, n), align=align)
                factor = _broadcast(builder, _load_number(context, builder, factors, arguments[3], index), n)
                product = builder.fmul(builder.fmul(factor, row), value)
                add_to(table_sum, arguments[0], at, product)
                total = product if total is None else builder.fadd(total, product)
            add_to(column_sum, arguments[6], arguments[5], total)
            return context.get_dummy_value()

        return types.void(table_sum, table, types.uint64, factors, values, types.uint64, column_sum), generate

    return add


add_group = make_adder(GROUP_SIZE)


@intrinsic  # type: ignore[untyped-decorator]
def subtract_group(typing_context: Any, total: Any, at: Any, values: Any, start: Any, out: Any, target: Any) -> Any:
    """Set `out[target : target + n] = total[at : at + n] - values[start : start + n]` for n = `GROUP_SIZE`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        align = context.get_abi_sizeof(context.get_value_type(total.dtype))
        left = _vector_pointer(context, builder, total, arguments[0], arguments[1], GROUP_SIZE)
        right = _vector_pointer(context, builder, values, arguments[2], arguments[3], GROUP_SIZE)
        difference = builder.fsub(builder.load(left, align=align), builder.load(right, align=align))
        builder.store(
            difference, _vector_pointer(context, builder, out, arguments[4], arguments[5], GROUP_SIZE), align=align
        )
        return context.get_dummy_value()

    return types.void(total, types.uint64, values, types.uint64, out, types.uint64), generate
