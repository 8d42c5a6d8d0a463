"""Multi-label classification: ESSCRFClassifier, compared with one-vs-rest logistic regression and a classifier chain.

    python benchmarks/multilabel.py     # ten minutes; `scene` requires RELCRF_DATA, the folder of real data sets

The penalty of each is selected by its log loss on a part of the training rows. `exact`: fraction of test rows whose labels
are all correct; `each`: fraction of correct labels; `log-loss`: nats per label; seconds of selection and fit, wall time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support import BenchmarkParser, sized

from relcrf.estimators import ESSCRFClassifier

GRID = (1.0, 10.0, 100.0, 1000.0)
"""Penalties, as 1 / C."""


@dataclass(frozen=True)
class Row:
    """The results of one classifier."""

    name: str
    exact: float
    each: float
    log_loss: float
    seconds: float


Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""X and Y for training, X and Y for test."""


def scene() -> Rows:
    """Return 2,407 photographs with 294 numbers and six labels, split as in the source."""
    folder = Path(os.environ["RELCRF_DATA"]) / "scene"
    images = pd.read_csv(folder / "image.csv").set_index("id")
    X = pd.read_csv(folder / "feature_wide.csv.gz").set_index("image").loc[images.index].to_numpy()
    Y = images.filter(like="label").to_numpy()
    train = (images["split"] == "train").to_numpy()
    return X[train], Y[train], X[~train], Y[~train]


def bits() -> Rows:
    """Return 1,797 digits with the four bits of the digit as labels; every second one is for training."""
    X, digit = load_digits(return_X_y=True)
    Y = digit[:, None] >> np.arange(4) & 1
    return X[::2], Y[::2], X[1::2], Y[1::2]


def single(penalty: float) -> LogisticRegression:
    return LogisticRegression(C=1 / penalty, max_iter=5000)


CLASSIFIERS: dict[str, Callable[[float], Any]] = {
    "one-vs-rest LogisticRegression": lambda penalty: MultiOutputClassifier(single(penalty)),
    "ClassifierChain": lambda penalty: ClassifierChain(single(penalty), random_state=0),
    "ESSCRFClassifier, constant pairs": lambda penalty: ESSCRFClassifier(2 * penalty, evidence_on_pairs=False),
    "ESSCRFClassifier": lambda penalty: ESSCRFClassifier(2 * penalty),
}


def log_loss(classifier: Any, X: np.ndarray, Y: np.ndarray) -> float:
    """Return the mean negative log-probability of each label, in nats."""
    found = classifier.predict_proba(X)
    positive = np.column_stack([p[:, 1] for p in found]) if isinstance(found, list) else found
    right = np.clip(np.where(Y == 1, positive, 1 - positive), 1e-15, 1)
    return float(-np.log(right).mean())


def compare(X: np.ndarray, Y: np.ndarray, test_X: np.ndarray, test_Y: np.ndarray) -> Iterator[Row]:
    """Fit each classifier with its best penalty, and score it on the test rows."""
    own_X, held_X, own_Y, held_Y = train_test_split(X, Y, test_size=0.25, random_state=0)
    for name, make in CLASSIFIERS.items():
        started = time.perf_counter()

        def classifier(penalty: float, make: Callable[[float], Any] = make) -> Any:
            return make_pipeline(StandardScaler(), make(penalty))

        losses = [log_loss(classifier(penalty).fit(own_X, own_Y), held_X, held_Y) for penalty in GRID]
        best = classifier(GRID[int(np.argmin(losses))]).fit(X, Y)
        seconds = time.perf_counter() - started
        right = best.predict(test_X) == test_Y
        yield Row(name, float(right.all(axis=1).mean()), float(right.mean()), log_loss(best, test_X, test_Y), seconds)


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="only the digits")
    options = parser.parse_args()
    sets = {"bits of digits": bits} if options.quick else {"bits of digits": bits, "scene": scene}
    n_rows = sized(options, None, None, 60)
    found = {}
    for title, rows in sets.items():
        print(f"{title:42} exact   each  log-loss  seconds")
        found[title] = []
        for row in compare(*(part[:n_rows] for part in rows())):
            print(f"{row.name:42} {row.exact:.3f}  {row.each:.3f}  {row.log_loss:8.4f}  {row.seconds:7.1f}", flush=True)
            found[title].append(asdict(row))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
