"""Shared code of faces.py, webkb.py and cora.py: methods, selection of settings by inner folds, and tables of errors.

All methods use the same rule: the setting with the fewest errors on the inner folds, which are labels of the training part.
Ties are broken by the larger log-likelihood, then by the order of the settings. Seconds are CPU time with the selected
setting.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from sklearn.preprocessing import normalize  # noqa: E402
from sklearn.svm import LinearSVC  # noqa: E402

from relcrf import api  # noqa: E402
from relcrf.evaluation.measures import Score  # noqa: E402
from relcrf.grounding.grounding import Grounding  # noqa: E402

Settings = Mapping[str, Any]
L2: tuple[Settings, ...] = ({"l2": 3.0}, {"l2": 10.0}, {"l2": 1.0})
L2_MARGIN: tuple[Settings, ...] = ({"l2": 100.0}, {"l2": 30.0}, {"l2": 10.0})
"""Penalties of the margin objective: the hinge loss grows with the violation and requires a larger penalty."""
C = (0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class Method:
    """A backend with fixed settings, and settings to select from."""

    name: str
    backend: str
    settings: Settings = field(default_factory=dict)
    choices: tuple[Settings, ...] = L2


METHODS = (
    Method("local", "local"),
    Method("ess", "ess"),
    Method("ess_width_2", "ess", {"treewidth": 2}),
    Method("ess_max_margin", "ess", {"objective": "margin"}, L2_MARGIN),
    Method("dense", "dense", {"objective": "likelihood"}),
    Method("dense_pseudo", "dense", {"objective": "pseudo"}),
)


@dataclass(frozen=True)
class Fold:
    """One division of the labels.

    Args:
        hidden: Mask of the test labels, shape (n_variables,).
        inner: Masks of the parts of the other labels that select the settings.
    """

    name: str
    hidden: np.ndarray
    inner: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class MethodResult:
    """The result of one method on one fold; the log-likelihood is NaN without probabilities, and seconds are CPU time."""

    error: float
    log_likelihood: float
    learn: float
    infer: float
    chosen: str


Features = Callable[[np.ndarray], Mapping[str, sp.csr_matrix]]
"""A function from the mask of known labels to named feature matrices of a classifier."""


def evaluate_crf(
    model: api.Model,
    grounding: Grounding,
    method: Method,
    fold: Fold,
    *,
    choose: bool = True,
    repeats: int = 1,
    **settings: Any,
) -> MethodResult:
    """Evaluate a backend with the settings that the inner folds select.

    Args:
        choose: Whether to select settings; otherwise the first choice is used.
        repeats: Number of runs; the minimum time is reported.
        settings: Settings that override those of the method.
    """

    def run(choice: Settings, hidden: np.ndarray, scored: np.ndarray) -> tuple[Score, float, float]:
        start = time.process_time()
        fit = api.fit(model, grounding, method.backend, hidden=hidden, **{**method.settings, **choice, **settings})
        middle = time.process_time()
        found = api.predict(fit, grounding, hidden=hidden)
        end = time.process_time()
        return found.score(subset=scored), middle - start, end - middle

    def rank(choice: Settings) -> tuple[float, float]:
        loose = {**choice, "tolerance": 1e-3}
        scores = [run(loose, fold.hidden | part, part)[0] for part in fold.inner]
        return 1.0 - float(np.mean([s.accuracy for s in scores])), -float(np.mean([s.log_likelihood for s in scores]))

    chosen = min(method.choices, key=rank) if choose and len(method.choices) > 1 else method.choices[0]
    runs = [run(chosen, fold.hidden, fold.hidden) for _ in range(repeats)]
    score, learn, infer = runs[0][0], min(r[1] for r in runs), min(r[2] for r in runs)
    text = " ".join(f"{name}={value:g}" for name, value in chosen.items())
    return MethodResult(1.0 - score.accuracy, score.log_likelihood, learn, infer, text)


def warm_up(model: api.Model, grounding: Grounding, methods: Sequence[Method], fold: Fold) -> None:
    """Compile or load the kernels, so that this is not measured."""
    for method in methods:
        evaluate_crf(model, grounding, method, fold, choose=False, max_iterations=1)


def evaluate_svm(features: Features, label: np.ndarray, fold: Fold) -> MethodResult:
    """Evaluate a linear support vector machine whose features and `C` are selected by the inner folds."""

    def run(name: str, c: float, hidden: np.ndarray, scored: np.ndarray) -> tuple[float, float, float]:
        start = time.process_time()
        matrix = features(~hidden)[name]
        machine = LinearSVC(C=c, max_iter=20_000).fit(matrix[~hidden], label[~hidden])
        middle = time.process_time()
        found = machine.predict(matrix[scored])
        return float((found != label[scored]).mean()), middle - start, time.process_time() - middle

    pairs = itertools.product(features(~fold.hidden), C)
    name, c = min(pairs, key=lambda pair: np.mean([run(*pair, fold.hidden | part, part)[0] for part in fold.inner]))
    error, learn, infer = run(name, c, fold.hidden, fold.hidden)
    return MethodResult(error, float("nan"), learn, infer, f"{name}, C={c:g}")


def concatenate_normalised(*parts: sp.csr_matrix | np.ndarray) -> sp.csr_matrix:
    """Concatenate matrices horizontally, each with rows normalised to length 1."""
    return sp.hstack([normalize(sp.csr_matrix(part)) for part in parts]).tocsr()


def print_errors(title: str, columns: Sequence[str], outcomes: Mapping[str, Sequence[MethodResult]]) -> None:
    """Print a table of errors with a row per method and a column per fold, the mean, the standard deviation and other results."""
    table = Table("method", *columns, "mean", "spread", "log-lik.", "learn s", "infer s", "selected", title=title)
    for name, found in outcomes.items():
        errors = [o.error for o in found]
        percents = (f"{100 * value:.1f}" for value in (*errors, np.mean(errors), np.std(errors)))
        means = (float(np.mean([getattr(o, key) for o in found])) for key in ("log_likelihood", "learn", "infer"))
        table.add_row(
            name,
            *percents,
            *("" if np.isnan(m) else f"{m:.3f}" for m in means),
            "; ".join(dict.fromkeys(o.chosen for o in found)),
        )
    Console(width=160).print(table)


def compare(
    runs: Sequence[tuple[str, api.Model, Grounding]],
    folds: Sequence[Fold],
    features: Features,
    label: np.ndarray,
    *,
    title: str,
    choose: bool,
    **settings: Any,
) -> None:
    """Run all methods on all folds, print a table, and one JSON object as the last line.

    Args:
        runs: Models and ground graphs, with the suffix of their methods' names.
        choose: See `evaluate_crf`.
        settings: See `evaluate_crf`.
    """
    outcomes: dict[str, list[MethodResult]] = {}
    for suffix, model, grounding in runs:
        warm_up(model, grounding, METHODS, folds[0])
        for method in METHODS:
            outcomes[method.name + suffix] = [
                evaluate_crf(model, grounding, method, fold, choose=choose, **settings) for fold in folds
            ]
    outcomes["svm"] = [evaluate_svm(features, label, fold) for fold in folds]
    print_errors(f"{title}: errors, %", [fold.name for fold in folds], outcomes)
    figures: dict[str, Any] = {name: float(np.mean([o.error for o in found])) for name, found in outcomes.items()}
    figures["spread"] = {name: float(np.std([o.error for o in found])) for name, found in outcomes.items()}
    figures["seconds"] = {name: float(np.mean([o.learn + o.infer for o in found])) for name, found in outcomes.items()}
    figures["folds"] = len(folds)
    print(json.dumps(figures))
