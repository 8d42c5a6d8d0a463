"""Entity resolution on the citations of Cora: piecewise training with transitivity, compared with independent pairs.

    RELCRF_DATA=... python benchmarks/entities.py

The model is models/entities.rcrf. Each of the five published folds of citations is held out in turn; the test pairs are those
whose first citation is in the fold. `local` predicts each pair by the similarities of its records only, `dense` with
`objective=piecewise` adds transitivity. The intervals of the differences are computed from 400 bootstrap resamples of the
blocks of the fold, which are connected components.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from support import ROOT, BenchmarkParser, sized

import relcrf
from relcrf.backends.problems import training_problem
from relcrf.backends.registry import make_backend
from relcrf.evaluation.intervals import Clusters, percentile_interval
from relcrf.evaluation.runner import predict_fold
from relcrf.evaluation.splits import make_folds
from relcrf.kernels.distinct import number_rows

sys.path.insert(0, str(ROOT / "datasets"))
from real import citations

SYSTEMS = (make_backend("local"), make_backend("dense", objective="piecewise"))
MEASURES = (("accuracy", "accuracy", 1.0), ("log_likelihood", "log_loss", -1.0))
"""Name of each reported measure, name of the measure of single labels, and sign."""


def compare(items: list[dict[str, np.ndarray]], block: np.ndarray) -> dict[str, Any]:
    """Return the measures of both systems and the intervals of their differences.

    Args:
        items: Measures of single labels, for each system.
        block: The block of each label, shape (n,).
    """
    clusters = Clusters(number_rows(block), "components")
    row: dict[str, Any] = {"pairs": len(block), "blocks": len(np.unique(block))}
    for name, measure, sign in MEASURES:
        local, piecewise = (sign * one[measure] for one in items)
        difference = piecewise - local
        resampled = [float(w @ difference / w.sum()) for w in clusters.bootstrap_weights()]
        row[f"{name}_local"], row[name] = float(local.mean()), float(piecewise.mean())
        row[f"{name}_difference"] = [float(difference.mean()), *percentile_interval(resampled)]
    return row


def print_row(name: str, row: dict[str, Any]) -> None:
    cells = [f"{name:>4} {row['pairs']:>6} {row['blocks']:>6}"]
    for measure, _, _ in MEASURES:
        value, low, high = row[f"{measure}_difference"]
        cells.append(f"{row[f'{measure}_local']:.3f} {row[measure]:.3f} {value:+.3f} ({low:+.3f} to {high:+.3f})")
    print("   ".join(cells), flush=True)


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="400 of the 1,295 citations")
    options = parser.parse_args()
    tables = citations(sized(options, 1295, 400, 100))
    grounding = relcrf.load(ROOT / "models" / "entities.rcrf").ground(relcrf.Dataset(tables))
    problem, same = training_problem(grounding), grounding.blocks[0]
    rows: list[dict[str, Any]] = []
    every: list[tuple[np.ndarray, ...]] = []
    print("fold  pairs blocks   accuracy: local, piecewise, difference    log-likelihood: local, piecewise, difference")
    for fold in make_folds(grounding, "fold"):
        predictions, fits = zip(*(predict_fold(problem, fold, system) for system in SYSTEMS), strict=True)
        items = [prediction.block_labels(same).item_measures for prediction in predictions]
        block = grounding.component[predictions[0].variables]
        scales = {name: fits[1].summary[name] for name in ("unary_scale", "scale")}
        row = compare(items, block) | {"fold": fold.name, **scales}
        row["seconds_learn"], row["seconds_infer"] = predictions[1].seconds_learn, predictions[1].seconds_infer
        rows.append(row)
        every.append((block, *(one[measure] for one in items for _, measure, _ in MEASURES)))
        print_row(fold.name, row)
    block, *values = (np.concatenate(column) for column in zip(*every, strict=True))
    names = [measure for _, measure, _ in MEASURES]
    total = compare([dict(zip(names, part, strict=True)) for part in (values[:2], values[2:])], block)
    print_row("all", total)
    print(json.dumps({"folds": {key: [row[key] for row in rows] for key in rows[0]}, "all": total}))


if __name__ == "__main__":
    main()
