"""Tables of scikit-learn's digit images.

The task is FACES of Chechetka & Guestrin (2010), applied to digits: a few images per class are labelled, a classifier
predicts single images, and links connect similar images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.errors import Diagnostic, UsageError

LABELLED_PER_CLASS = 10


@dataclass(frozen=True)
class Digits:
    """One split of the digit images.

    Args:
        pixels: Values from 0 to 1, shape (1797, 64).
        digit: The true digits, shape (1797,).
        labelled: Mask of the labelled images, shape (1797,).
    """

    pixels: np.ndarray
    digit: np.ndarray
    labelled: np.ndarray

    def table(self) -> dict[str, np.ndarray]:
        """Return the table `image`: id, digit, part (`labelled` or `rest`), pixels_0..63."""
        columns: dict[str, np.ndarray] = {
            "id": np.arange(len(self.digit)),
            "digit": self.digit,
            "part": np.where(self.labelled, "labelled", "rest").astype(object),
        }
        columns |= {f"pixels_{k}": self.pixels[:, k] for k in range(self.pixels.shape[1])}
        return columns


def make_digits(seed: int) -> Digits:
    """Build a split with `LABELLED_PER_CLASS` random labelled images of each digit.

    Raises:
        UsageError: scikit-learn, which contains the images, is not installed (E350).
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        message = "the demo needs scikit-learn and matplotlib"
        raise UsageError(Diagnostic("E350", message, hint="install them with: pip install 'relcrf[demo]'")) from None
    images, digit = load_digits(return_X_y=True)
    pixels = images / 16.0
    generator = np.random.default_rng(seed)
    chosen = [generator.permutation(np.flatnonzero(digit == d))[:LABELLED_PER_CLASS] for d in range(10)]
    labelled = np.zeros(len(digit), dtype=bool)
    labelled[np.concatenate(chosen)] = True
    return Digits(pixels, digit, labelled)
