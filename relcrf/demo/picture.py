"""A picture of the predictions in which the ESS-CRF differs from the local classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from relcrf.demo.run import SplitResult
from relcrf.report.plot import new_figure, save_picture

_SHADES = " .:-=+*#%@"


def changed_predictions(result: SplitResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the indices of the unlabelled images whose prediction the ESS-CRF changed, as three arrays.

    The arrays contain corrected predictions, newly wrong predictions, and changes to another wrong digit.
    """
    truth = result.digits.digit[~result.digits.labelled]
    was_correct, is_correct, has_changed = result.before == truth, result.after == truth, result.before != result.after
    corrected, newly_wrong, other = (
        has_changed & is_correct,
        has_changed & was_correct,
        has_changed & ~was_correct & ~is_correct,
    )
    return np.flatnonzero(corrected), np.flatnonzero(newly_wrong), np.flatnonzero(other)


def draw(result: SplitResult, path: Path) -> None:
    """Write a picture of changed images, each with the digits that the classifier and the ESS-CRF predict."""
    save_picture(lambda: _figure(result), path, 130)


def _figure(result: SplitResult) -> Any:
    rest = np.flatnonzero(~result.digits.labelled)
    shown = _sample_images(result, 40)
    columns = 10
    rows = max(1, -(-len(shown) // columns))
    figure = new_figure((columns * 1.05, rows * 1.35 + 0.9))
    corrected, newly_wrong, _ = changed_predictions(result)
    figure.suptitle(
        f"Effect of the relations (split {result.seed}): {len(corrected)} digits corrected, {len(newly_wrong)} newly wrong\n"
        f"local classifier {result.local.accuracy:.1%}, ESS-CRF {result.ess.accuracy:.1%}",
        fontsize=11,
    )
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.axis("off")
    for axis, at in zip(axes, shown, strict=False):
        image = rest[at]
        is_right = result.after[at] == result.digits.digit[image]
        axis.imshow(result.digits.pixels[image].reshape(8, 8), cmap="gray_r", interpolation="nearest")
        axis.set_title(
            f"{result.before[at]} → {result.after[at]}", fontsize=10, color="#157347" if is_right else "#b02a37"
        )
    figure.tight_layout()
    return figure


def _sample_images(result: SplitResult, limit: int) -> np.ndarray:
    """Return up to `limit` changed images, evenly spaced in the concatenated arrays of `changed_predictions`."""
    every = np.concatenate(changed_predictions(result))
    if len(every) <= limit:
        return every
    return np.asarray(every[np.linspace(0, len(every) - 1, limit).astype(int)])


def as_text(result: SplitResult) -> str:
    """Return a few changed images as text for the terminal, side by side."""
    rest = np.flatnonzero(~result.digits.labelled)
    shown = _sample_images(result, 4)
    lines = []
    for row in range(8):
        cells = []
        for at in shown:
            pixels = result.digits.pixels[rest[at]].reshape(8, 8)[row]
            cells.append("".join(_SHADES[int(p * (len(_SHADES) - 1))] * 2 for p in pixels))
        lines.append("  ".join(cells).rstrip())
    truth = result.digits.digit[rest]
    captions = [f"{result.before[at]} -> {result.after[at]} ({truth[at]})" for at in shown]
    lines.append("  ".join(c.center(16) for c in captions).rstrip())
    lines.append("(classifier's digit -> ESS-CRF's digit; true digit in parentheses)")
    return "\n".join(lines)
