"""A comparison of the output that a page shows with the output of its command."""

from __future__ import annotations

import re

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
MEASURED = re.compile(r"(?<![\w.])\d[\d.,]* (?:ms|s|min|seconds|minutes|KiB|MiB|GiB)(?!\w)")
RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 0.02, 0.02
"""Largest difference of two numbers. Processors round differently, and optimisers then stop at slightly other weights."""


def missing_lines(shown: str, output: str) -> list[str]:
    """Return the lines of a page that the output does not contain in this order; `...` stands for omitted lines.

    Runs of spaces and of lines of tables count as one character, and times and sizes of memory as equal.
    """
    lines, position, missing = [_parse(line) for line in output.splitlines()], 0, []
    for line in shown.splitlines():
        if line.strip() in ("", "..."):
            continue
        wanted = _parse(line)
        found = next((i for i in range(position, len(lines)) if _are_equal(wanted, lines[i])), None)
        if found is None:
            missing.append(line)
        else:
            position = found + 1
    return missing


def _parse(line: str) -> tuple[str, list[float]]:
    """Return the text of a line without numbers, and the numbers."""
    text = re.sub(r"([─━])+", r"\1", " ".join(MEASURED.sub("(measured)", line).split()))
    return NUMBER.sub("#", text), [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def _are_equal(one: tuple[str, list[float]], other: tuple[str, list[float]]) -> bool:
    return one[0] == other[0] and all(
        abs(a - b) <= ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * abs(a) for a, b in zip(one[1], other[1], strict=True)
    )
