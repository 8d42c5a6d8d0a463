"""The built-in functions of the language: their types, for the checker. Their SQL is in `grounding/sql.py`."""

from __future__ import annotations

from dataclasses import dataclass

MEASURES = ("cosine", "dot", "distance")
"""The functions that `nearest K by` takes."""


@dataclass(frozen=True, slots=True)
class Signature:
    """`parameters` are `number` or `vector`; the result is always a real number."""

    name: str
    parameters: tuple[str, ...]
    summary: str


FUNCTIONS: dict[str, Signature] = {
    s.name: s
    for s in (
        Signature("log", ("number",), "natural logarithm; missing where the argument is not positive"),
        Signature("log1p", ("number",), "log(1 + x); missing where x is not above -1"),
        Signature("exp", ("number",), "e to the power x"),
        Signature("sqrt", ("number",), "square root; missing where the argument is negative"),
        Signature("abs", ("number",), "absolute value"),
        Signature("least", ("number", "number"), "the smaller of two numbers"),
        Signature("greatest", ("number", "number"), "the larger of two numbers"),
        Signature("cosine", ("vector", "vector"), "cosine of the angle; 0 where a vector is all zeros"),
        Signature("dot", ("vector", "vector"), "inner product"),
        Signature("distance", ("vector", "vector"), "Euclidean distance"),
    )
}
