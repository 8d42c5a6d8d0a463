"""Tables of scikit-learn's digit images, with the predictions of a local classifier.

The task is FACES of Chechetka & Guestrin (2010), applied to digits: a few images per class are labelled, a local
classifier predicts single images, and links connect similar images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.errors import Diagnostic, UsageError

LABELLED_PER_CLASS = 10
FOLDS = 10


@dataclass(frozen=True)
class Digits:
    """One split of the digit images.

    Args:
        pixels: Values from 0 to 1, shape (1797, 64).
        digit: The true digits, shape (1797,).
        labelled: Mask of the labelled images, shape (1797,).
        local_log_probabilities: Log-probabilities of the classifier, shape (1797, 10). For labelled images they are
            predicted by cross-validation; otherwise the classifier would be overconfident on its training images.
    """

    pixels: np.ndarray
    digit: np.ndarray
    labelled: np.ndarray
    local_log_probabilities: np.ndarray

    def table(self) -> dict[str, np.ndarray]:
        """Return the table `image`: id, digit, part (`labelled` or `rest`), opinion_0..9 (log-probabilities), pixels_0..63."""
        columns: dict[str, np.ndarray] = {
            "id": np.arange(len(self.digit)),
            "digit": self.digit,
            "part": np.where(self.labelled, "labelled", "rest").astype(object),
        }
        columns |= {
            f"opinion_{k}": self.local_log_probabilities[:, k] for k in range(self.local_log_probabilities.shape[1])
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
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_predict
    except ImportError:
        message = "the demo needs scikit-learn and matplotlib"
        raise UsageError(Diagnostic("E350", message, hint="install them with: pip install 'relcrf[demo]'")) from None
    images, digit = load_digits(return_X_y=True)
    pixels = images / 16.0
    generator = np.random.default_rng(seed)
    chosen = [generator.permutation(np.flatnonzero(digit == d))[:LABELLED_PER_CLASS] for d in range(10)]
    labelled = np.zeros(len(digit), dtype=bool)
    labelled[np.concatenate(chosen)] = True
    classifier = LogisticRegression(max_iter=2000, C=1.0)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    opinion = np.empty((len(digit), 10))
    opinion[labelled] = cross_val_predict(
        classifier, pixels[labelled], digit[labelled], cv=folds, method="predict_log_proba"
    )
    classifier.fit(pixels[labelled], digit[labelled])
    opinion[~labelled] = classifier.predict_log_proba(pixels[~labelled])
    return Digits(pixels, digit, labelled, opinion)
