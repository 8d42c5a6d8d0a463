"""Audit of labels: wrong labels that `relcrf audit` finds, compared with confident learning and with other rankings.

    RELCRF_DATA=... python benchmarks/audit.py

In each of six data sets, a fraction of the labels is replaced by other values at random, with several seeds. The methods rank
the labels; the precision at k, with k the number of replaced labels, and the average precision are means over seeds, with 95 %
intervals of the mean. `relcrf` audits a run of `--backend` with the defaults; `run` uses the weights of the same run without
cross-fitting, `local` audits a run of backend `local`. `confident` is confident learning (Northcutt et al. 2021) with
out-of-fold logistic regression on the features of each entity: labels off the diagonal of the confident joint come first, in the
order of their normalised margins. `logistic` ranks by the out-of-fold probability of the label alone.

The data sets also contain errors of their own, which count as false alarms for all methods. CPU time and its growth are measured
on synthetic webs of pages (datasets/web.py) with all labels and with half of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from choosing_tasks import TASKS
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import MaxAbsScaler
from support import ROOT, BenchmarkParser, is_installed, sized

import relcrf
from relcrf import api
from relcrf.evaluation.audit import AuditSettings
from relcrf.grounding.grounding import Grounding

sys.path.insert(0, str(ROOT / "datasets"))
from web import make_web

DATASETS = ("cora", "webkb", "people", "films", "advisers", "molecules")
"""Tasks of `choosing_tasks.py`: citations and pages; people of departments, films and universities; molecules without links."""

FOLDS = 5
"""Number of folds of cross-fitting and of logistic regression."""


@dataclass(frozen=True, eq=False)
class FlippedLabels:
    """A ground graph in which some labels of one attribute are wrong.

    Args:
        variables: The labelled variables of the attribute, shape (n,).
        is_wrong: Mask of the replaced labels, shape (n,).
    """

    model: relcrf.Model
    grounding: Grounding
    attribute: str
    variables: np.ndarray
    is_wrong: np.ndarray

    @property
    def labels(self) -> np.ndarray:
        """The labels, including the wrong ones, shape (n,)."""
        return np.asarray(self.grounding.states[self.variables])

    def score(self, ranking: np.ndarray) -> tuple[float, float]:
        """Return the precision at k and the average precision of scores that are larger for suspicious labels, shape (n,)."""
        first = np.argsort(-ranking, kind="stable")[: int(self.is_wrong.sum())]
        return float(self.is_wrong[first].mean()), float(average_precision_score(self.is_wrong, ranking))


def flip_labels(model: relcrf.Model, grounding: Grounding, attribute: str, fraction: float, seed: int) -> FlippedLabels:
    """Replace a fraction of the labels of an attribute by other values at random."""
    block = next(block for block in grounding.blocks if block.name == attribute)
    variables = block.start + np.flatnonzero(grounding.states[block.start : block.start + block.count] >= 0)
    rng = np.random.default_rng(seed)
    is_wrong = np.zeros(len(variables), dtype=bool)
    is_wrong[rng.choice(len(variables), max(1, round(fraction * len(variables))), replace=False)] = True
    states, n_values = np.array(grounding.states), len(block.values)
    wrong = variables[is_wrong]
    states[wrong] = (states[wrong] + rng.integers(1, n_values, size=len(wrong))) % n_values
    return FlippedLabels(model, replace(grounding, states=states), attribute, variables, is_wrong)


def audit_ranking(task: FlippedLabels, fit: api.Fit, folds: int) -> np.ndarray:
    """Return minus the probability of each label given all others, shape (n,)."""
    found = api.audit_labels(fit.learned, task.grounding, AuditSettings(task.attribute, folds))
    block = next(block for block in found.blocks if block.name == task.attribute)
    return -found.probabilities(block)[np.arange(len(task.variables)), task.labels]


def own_features(task: FlippedLabels) -> sp.csr_matrix:
    """Return the features of the model's templates over a single label, divided by their largest absolute values."""
    blocks = []
    for group in task.grounding.graph.groups:
        factors = np.flatnonzero(np.isin(group.scope[0], task.variables)) if len(group.scope) == 1 else np.empty(0, int)
        if len(factors):
            entries = group.features.entries(factors)
            rows = np.searchsorted(task.variables, np.asarray(group.scope[0])[factors])[entries.row]
            shape = (len(task.variables), group.features.n_features)
            blocks.append(sp.csr_matrix((entries.value, (rows, entries.feature)), shape=shape))
    return sp.csr_matrix(MaxAbsScaler().fit_transform(sp.hstack(blocks)))


def logistic_probabilities(task: FlippedLabels, seed: int) -> np.ndarray:
    """Return out-of-fold probabilities of logistic regression on each entity's own features, shape (n, n_values)."""
    features = own_features(task)
    labels, n_values = task.labels, int(task.grounding.graph.cardinality[task.variables[0]])
    out = np.zeros((len(labels), n_values))
    folds = min(FOLDS, max(2, int(np.bincount(labels)[np.bincount(labels) > 0].min())))
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(features, labels):
        classifier = LogisticRegression(max_iter=1000).fit(features[train], labels[train])
        out[np.ix_(test, classifier.classes_)] = classifier.predict_proba(features[test])
    return out


def confident_ranking(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Rank by confident learning: labels off the diagonal of the confident joint first, then by normalised margin."""
    n, n_values = probabilities.shape
    own = probabilities[np.arange(n), labels]
    thresholds = np.array([own[labels == k].mean() if (labels == k).any() else np.inf for k in range(n_values)])
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    is_off_diagonal = (confident.max(axis=1) > 0.0) & (confident.argmax(axis=1) != labels)
    others = probabilities.copy()
    others[np.arange(n), labels] = -1.0
    return 2.0 * is_off_diagonal + (others.max(axis=1) - own) / 2.0


def cleanlab_ranking(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Rank by cleanlab: label issues first, then by its label quality scores."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    present = np.unique(labels)
    labels, probabilities = np.searchsorted(present, labels), probabilities[:, present]
    return 2.0 * find_label_issues(labels, probabilities) - get_label_quality_scores(labels, probabilities)


def measure(
    task: FlippedLabels, seed: int, backend: str, folds: int, with_cleanlab: bool
) -> dict[str, tuple[float, float, float]]:
    """Return precision at k, average precision and CPU seconds of each method; training of a run is not included."""
    runs = {"relcrf": backend, "local": "local"}
    fits = {name: api.fit(task.model, task.grounding, of) for name, of in runs.items()}
    out, seconds = {}, {}

    def add(name: str, work: Any) -> None:
        start = time.process_time()
        ranking = work()
        seconds[name] = time.process_time() - start
        out[name] = (*task.score(ranking), seconds[name])

    add("relcrf", lambda: audit_ranking(task, fits["relcrf"], folds))
    add("run", lambda: audit_ranking(task, fits["relcrf"], 0))
    add("local", lambda: audit_ranking(task, fits["local"], folds))
    probabilities = logistic_probabilities(task, seed)
    add("confident", lambda: confident_ranking(logistic_probabilities(task, seed), task.labels))
    add("logistic", lambda: -probabilities[np.arange(len(task.labels)), task.labels])
    if with_cleanlab:
        add("cleanlab", lambda: cleanlab_ranking(probabilities, task.labels))
    add("random", lambda: np.random.default_rng(seed).random(len(task.labels)))
    return out


def interval(values: np.ndarray) -> list[float]:
    """Return the mean and the limits of its 95 % interval by Student's t distribution."""
    mean = float(values.mean())
    half = float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return [mean, mean - half, mean + half]


def audit_dataset(
    name: str, fraction: float, seeds: int, backend: str, folds: int, with_cleanlab: bool
) -> dict[str, Any]:
    """Print and return the scores of all methods on one data set, and the differences of relcrf and each rival."""
    task = TASKS[name]
    model = task.load_model()
    grounding = model.ground(relcrf.Dataset(task.tables(*task.seeds[:1])))
    rows = []
    for seed in range(seeds):
        flipped = flip_labels(model, grounding, task.asked, fraction, seed)
        rows.append(measure(flipped, seed, backend, folds, with_cleanlab))
    print(f"\n{name}: {len(flipped.labels):,} labels, {int(flipped.is_wrong.sum()):,} wrong, {seeds} seeds")
    print(f"{'method':10s} {'precision at k':>22s} {'average precision':>22s} {'relcrf - method':>22s} {'CPU s':>8s}")
    out: dict[str, Any] = {}
    for method in rows[0]:
        scores = np.array([row[method] for row in rows])
        difference = interval(np.array([row["relcrf"][0] for row in rows]) - scores[:, 0])
        out[method] = {
            "precision_at_k": interval(scores[:, 0]),
            "average_precision": interval(scores[:, 1]),
            "precision_gain": difference,
            "seconds": float(scores[:, 2].mean()),
        }
        cells = (out[method][key] for key in ("precision_at_k", "average_precision", "precision_gain"))
        texts = "".join(f" {mean:7.3f} [{low:5.2f}, {high:5.2f}]" for mean, low, high in cells)
        print(f"{method:10s} {texts} {out[method]['seconds']:8.2f}", flush=True)
    return out


def audit_seconds(pages: int, labelled: float, folds: int, folder: Path) -> float:
    """Return the CPU seconds of an audit of a web of pages, of which a fraction is labelled, without training of the run."""
    make_web(folder, pages)
    model = relcrf.load(ROOT / "models" / "webkb.rcrf")
    grounding = model.ground(relcrf.Dataset(folder))
    states = np.where(np.random.default_rng(0).random(pages) < labelled, grounding.states, -1).astype(np.int32)
    grounding = replace(grounding, states=states)
    fit = api.fit(model, grounding, "ess", edges="all", inference="bp")
    start = time.process_time()
    api.audit_labels(fit.learned, grounding, AuditSettings(folds=folds))
    return time.process_time() - start


def measure_growth(sizes: tuple[int, int], folds: int) -> dict[str, Any]:
    """Print and return the CPU seconds of audits of two webs, and their ratios."""
    out: dict[str, Any] = {}
    for labelled, suffix in ((1.0, ""), (0.5, "_half_labelled")):
        seconds = []
        for pages in sizes:
            with tempfile.TemporaryDirectory() as folder:
                seconds.append(audit_seconds(pages, labelled, folds, Path(folder)))
            print(f"{pages:,} pages, {labelled:.0%} labelled: {seconds[-1]:.1f} CPU s", flush=True)
        out[f"seconds{suffix}"] = dict(zip(map(str, sizes), seconds, strict=True))
        out[f"growth_10x{suffix}"] = seconds[1] / seconds[0]
    return out


def count_wins(results: Mapping[str, Any]) -> dict[str, int]:
    """Return, for each rival, the number of data sets on which relcrf has a larger precision at k."""
    rivals = next(iter(results.values()))
    return {
        rival: sum(each["relcrf"]["precision_at_k"][0] > each[rival]["precision_at_k"][0] for each in results.values())
        for rival in rivals
        if rival != "relcrf"
    }


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="two small data sets, two seeds, webs of 300 and 3,000 pages")
    parser.add_argument("--datasets", help=f"comma-separated names; default: {','.join(DATASETS)}")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, at least 2")
    parser.add_argument("--fraction", type=float, default=0.05, help="fraction of the labels that are replaced")
    parser.add_argument("--backend", default="ess", help="backend of the audited runs")
    options = parser.parse_args()
    names = (
        options.datasets.split(",")
        if options.datasets
        else sized(options, DATASETS, ("webkb", "films"), ("molecules",))
    )
    seeds = sized(options, options.seeds, 2, 2)
    folds = sized(options, FOLDS, FOLDS, 2)
    with_cleanlab = is_installed("cleanlab")
    results = {
        name: audit_dataset(name, options.fraction, seeds, options.backend, folds, with_cleanlab) for name in names
    }
    growth = measure_growth(sized(options, (6_000, 60_000), (300, 3_000), (10, 100)), folds)
    precision = {
        name: {method: each[method]["precision_at_k"] for method in each}
        | ({} if with_cleanlab else {"cleanlab": None})
        for name, each in results.items()
    }
    print(json.dumps({"precision_at_k": precision, "wins": count_wins(results), **growth, "datasets": results}))


if __name__ == "__main__":
    main()
