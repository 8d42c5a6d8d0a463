"""The built-in functions of the language: their types, for the checker. Their SQL is in `grounding/dialects/`.

`levenshtein` and `jaro_winkler` are missing where two texts have more than 127 different letters, unless all are ASCII."""

from __future__ import annotations

from dataclasses import dataclass

MEASURES = ("cosine", "dot", "distance")
"""The functions that `nearest K by` takes."""

AGGREGATES = ("exists", "count", "sum", "min", "max", "mean")
"""What may stand before `{ ... where ... }`."""


@dataclass(frozen=True, slots=True)
class Signature:
    """`parameters` are `number`, `vector` or `text`; `result` is `real`, `integer`, `bool` or `string`."""

    name: str
    parameters: tuple[str, ...]
    summary: str
    result: str = "real"


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
        Signature("lower", ("text",), "the text in lower case", "string"),
        Signature("prefix", ("text", "number"), "the first so many characters of a text", "string"),
        Signature("length", ("text",), "number of characters", "integer"),
        Signature("contains", ("text", "text"), "the second text stands in the first", "bool"),
        Signature("starts_with", ("text", "text"), "the first text begins with the second", "bool"),
        Signature("levenshtein", ("text", "text"), "edits that turn one text into the other", "integer"),
        Signature("jaro_winkler", ("text", "text"), "similarity of two short texts such as names, from 0 to 1"),
        Signature("jaccard", ("text", "text"), "shared letters over all letters of two texts, from 0 to 1"),
    )
}
