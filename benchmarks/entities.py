"""Entity resolution on the citations of Cora: transitivity with piecewise training, compared with independent pairs.

    RELCRF_DATA=... python benchmarks/entities.py

The model is models/entities.rcrf. Each of the five published folds of citations is held out in turn; the test pairs are those
whose first citation is in the fold. `local` predicts each pair by the similarities of its records. The other two systems are
backend `dense` with transitivity, trained with `objective=piecewise` and, for two folds of the first 400 citations, with
`objective=pseudo`. The intervals are computed from 400 bootstrap resamples of blocks, the connected components of pairs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
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

LOCAL, PIECEWISE, PSEUDO = "local", "piecewise", "pseudo"
SYSTEMS = {
    LOCAL: make_backend("local"),
    PIECEWISE: make_backend("dense", objective="piecewise"),
    PSEUDO: make_backend("dense", objective="pseudo"),
}
PSEUDO_FOLDS = ("1", "2")
"""The folds on which `PSEUDO` runs, because its inference is slow: it does not converge."""

MEASURES = (("accuracy", "accuracy", 1.0), ("log_likelihood", "log_loss", -1.0))
"""Name of each reported measure, name of the measure of single labels, and sign."""

Items = dict[str, dict[str, np.ndarray]]
"""For each system and reported measure, the value of each label."""


def score(items: Items, block: np.ndarray) -> dict[str, Any]:
    """Return the means of all systems, and the differences of `PIECEWISE` from `LOCAL` with intervals.

    Args:
        block: The block of each label, shape (n,).
    """
    clusters = Clusters(number_rows(block), "components")
    row: dict[str, Any] = {"pairs": len(block), "blocks": len(np.unique(block))}
    for measure, _, _ in MEASURES:
        difference = items[PIECEWISE][measure] - items[LOCAL][measure]
        resampled = [float(w @ difference / w.sum()) for w in clusters.bootstrap_weights()]
        row[measure] = {name: float(one[measure].mean()) for name, one in items.items()}
        row[measure]["difference"] = [float(difference.mean()), *percentile_interval(resampled)]
    return row


def print_row(name: str, row: dict[str, Any]) -> None:
    print(f"{name:>4} {row['pairs']:>6} {row['blocks']:>6}", end="")
    for measure, _, _ in MEASURES:
        difference, low, high = row[measure]["difference"]
        means = " ".join(f"{row[measure][name]:6.3f}" for name in SYSTEMS if name in row[measure])
        print(f"   {means} {difference:+.3f} ({low:+.3f} to {high:+.3f})", end="")
    print(flush=True)


def run(n_citations: int, names: Sequence[str]) -> dict[str, Any]:
    """Return the results of each fold, and of all folds together."""
    tables = citations(n_citations)
    grounding = relcrf.load(ROOT / "models" / "entities.rcrf").ground(relcrf.Dataset(tables))
    problem, same = training_problem(grounding), grounding.blocks[0]
    rows: dict[str, Any] = {}
    every: list[tuple[Items, np.ndarray]] = []
    print(f"{n_citations} citations. Columns: fold, pairs, blocks; accuracy and log-likelihood of {', '.join(names)},")
    print("each followed by the difference of piecewise from local", flush=True)
    for fold in make_folds(grounding, "fold"):
        items, row = {}, {}
        for name in names if fold.name in PSEUDO_FOLDS else (LOCAL, PIECEWISE):
            predicted, fit = predict_fold(problem, fold, SYSTEMS[name])
            measured = predicted.block_labels(same).item_measures
            items[name] = {measure: sign * measured[source] for measure, source, sign in MEASURES}
            row[name] = {
                "rule_weight": float(fit.vectors["weights"][-1]),
                "seconds_learn": predicted.seconds_learn,
                "seconds_infer": predicted.seconds_infer,
            }
            block = grounding.component[predicted.variables]
        rows[fold.name] = score(items, block) | row
        every.append((items, block))
        print_row(fold.name, rows[fold.name])
    pooled = {
        n: {m: np.concatenate([items[n][m] for items, _ in every]) for m, _, _ in MEASURES} for n in (LOCAL, PIECEWISE)
    }
    rows["all"] = score(pooled, np.concatenate([block for _, block in every]))
    print_row("all", rows["all"])
    return rows


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="only the first 400 citations")
    options = parser.parse_args()
    small = run(sized(options, 400, 400, 100), tuple(SYSTEMS))
    print(json.dumps({"citations_400": small, "citations": None if options.quick else run(1295, (LOCAL, PIECEWISE))}))


if __name__ == "__main__":
    main()
