"""FACES of Chechetka & Guestrin (2010): few labelled images per class, a local classifier, and 5 nearest neighbours of each.

    RELCRF_DATA=... python benchmarks/faces.py

Digits (1,797 images, 100 labelled, models/digits.rcrf) and Olivetti faces (400 images of 40 people, 3 of each labelled,
models/faces.rcrf). All models learn from the labelled images and predict the rest; the labels are evidence at test time.
`ess_best` selects the treewidth by inner folds, 3, 2 or 1 (2 or 1 for faces: a clique of four has 40^4 states), with a fifth
of the labelled images held out in turn. `dense` is the better of Bethe likelihood and pseudo-likelihood by test accuracy.
Speedups are CPU time of that method / CPU time of `ess`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from collective import Fold, Method, MethodResult, evaluate_crf, print_errors, warm_up
from support import ROOT, BenchmarkParser, sized

import relcrf
from relcrf.evaluation.splits import partition_variables

sys.path.insert(0, str(ROOT / "datasets"))
from faces import digits, olivetti

PLAIN = ({},)
METHODS = (
    Method("local", "local", choices=PLAIN),
    Method("ess", "ess", choices=PLAIN),
    Method("ess_tree", "ess", {"observed_edges": "tree"}, PLAIN),
    Method("dense_likelihood", "dense", {"objective": "likelihood"}, PLAIN),
    Method("dense_pseudo", "dense", {"objective": "pseudo"}, PLAIN),
)
INNER = 5
"""Number of inner folds."""

REPEATS = 3
"""Number of runs of which the minimum time is reported, because times are about a hundredth of a second."""


def measure(
    make: Callable[[int], dict[str, pd.DataFrame]],
    model: relcrf.Model,
    widths: Sequence[int],
    seeds: Sequence[int],
    folds: int,
    repeats: int,
) -> dict[str, list[MethodResult]]:
    """Return the results of all methods, one for each seed.

    Args:
        widths: Treewidths from which `ess_best` selects.
        folds: Number of inner folds that are held out in turn, at most `INNER`.
        repeats: Number of runs of which the minimum time is reported.
    """
    choices = tuple({"treewidth": width} for width in widths)
    methods = (*METHODS, Method("ess_best", "ess", choices=choices))
    outcomes: dict[str, list[MethodResult]] = {method.name: [] for method in methods}
    for seed in seeds:
        grounding = model.ground(relcrf.Dataset(make(seed)))
        hidden = partition_variables(grounding, "part").holdout_mask(["rest"])
        labelled = np.random.default_rng(seed).permutation(np.flatnonzero(~hidden))
        inner = tuple(np.isin(np.arange(len(hidden)), labelled[k::INNER]) for k in range(folds))
        fold = Fold(str(seed), hidden, inner)
        if seed == seeds[0]:
            warm_up(model, grounding, (*METHODS, *(Method("ess", "ess", choice, PLAIN) for choice in choices)), fold)
        for method in methods:
            outcomes[method.name].append(evaluate_crf(model, grounding, method, fold, repeats=repeats))
    return outcomes


def summary(outcomes: dict[str, list[MethodResult]]) -> dict[str, object]:
    """Return accuracies, their standard deviations, and the speedups."""
    accuracy = {name: 1.0 - float(np.mean([o.error for o in found])) for name, found in outcomes.items()}
    dense = max(("dense_likelihood", "dense_pseudo"), key=accuracy.__getitem__)

    def seconds(name: str, stage: str) -> float:
        return float(np.mean([getattr(o, stage) for o in outcomes[name]]))

    figures: dict[str, object] = {**accuracy, "dense": accuracy[dense], "dense_is": dense}
    for stage, key in (("learn", "speedup_train"), ("infer", "speedup_infer")):
        figures[key] = seconds(dense, stage) / seconds("ess", stage)
        figures[f"{key}_likelihood"] = seconds("dense_likelihood", stage) / seconds("ess", stage)
        figures[f"seconds_{stage}"] = {name: seconds(name, stage) for name in outcomes}
    figures["spread"] = {name: float(np.std([o.error for o in found])) for name, found in outcomes.items()}
    figures["log_likelihood"] = {name: float(np.mean([o.log_likelihood for o in f])) for name, f in outcomes.items()}
    return figures


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="two splits")
    parser.add_argument("--seeds", type=int, default=10, help="number of splits of each dataset")
    options = parser.parse_args()
    seeds = range(sized(options, options.seeds, 2, 1))
    figures = {}
    sets = ((digits, "digits", (3, 2, 1)), (olivetti, "faces", (2, 1)))
    folds, repeats = sized(options, (INNER, REPEATS), (INNER, REPEATS), (1, 1))
    for make, name, widths in sized(options, sets, sets, ((digits, "digits", (2, 1)),)):
        outcomes = measure(make, relcrf.load(ROOT / "models" / f"{name}.rcrf"), widths, seeds, folds, repeats)
        print_errors(f"{make.__name__}: errors, %", [str(seed) for seed in seeds], outcomes)
        figures[make.__name__] = {"splits": len(seeds), **summary(outcomes)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
