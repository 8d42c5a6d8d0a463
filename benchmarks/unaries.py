"""Learned features beside gradient boosting on the same inputs: IMDB, Mutagenesis, and a made set with non-linear attributes.

`gbdt` is scikit-learn's histogram gradient boosting on the inputs of the learned feature; the best of four settings is
chosen by cross-validation in the training labels. `relcrf_local` is the learned feature alone (backend `local`), and
`relcrf` the model with relations by the default backend: templates over linked entities, the parts of molecules, and the
known roles of the people in the same films as a further input of the learned feature. All three have the same folds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from support import ROOT, BenchmarkParser, sized

import relcrf
from relcrf import api
from relcrf.evaluation.splits import make_folds
from relcrf.grounding.learned_values import read_inputs
from relcrf.unaries.encoding import Encoder

sys.path.insert(0, str(ROOT / "datasets"))
import real

FILMS = """
domain Role = { actor, director }
domain Movie = open
entity Person { predict role: Role, female: bool }
relation Cast(person: Person, movie: Movie)
feature opinion(p: Person) = classifier of p.role from p.female, count { m where Cast(p, m) },
    count { q where Cast(p, m) and Cast(q, m) }, count { q, m where Cast(p, m) and Cast(q, m) }ROLES
template opinion(p: Person) over p.role by 1, opinion(p)
"""
ROLES = ", sum { q.role where Cast(p, m) and Cast(q, m) }"
FILM_LINKS = """
template together(p: Person, q: Person) where Cast(p, m) and Cast(q, m) and p < q over symmetric p.role, q.role
    by 1 / (1 + count { r where Cast(p, n) and Cast(r, n) })
"""

MOLECULES = """
domain Element = open
domain Bond = open
entity Molecule { predict mutagenic: bool, size: integer, bonds: integer, rings: integer, c: integer, h: integer, n: integer,
    o: integer, others: integer, double: integer, aromatic: integer, parts: bag of Part }
domain Part = open
feature opinion(m: Molecule) = classifier of m.mutagenic from m.size, m.bonds, m.rings, m.c, m.h, m.n, m.o, m.others, m.double,
    m.aromatic
template opinion(m: Molecule) over m.mutagenic by 1, opinion(m)
"""
MOLECULE_LINKS = """
template parts(m: Molecule) over m.mutagenic by normalise(m.parts)
"""

RINGS = """
domain Ring = { inner, middle, outer }
entity Point { predict ring: Ring, x: real, y: real, shift: real, noise: real }
relation Link(source: Point, target: Point)
feature opinion(p: Point) = classifier of p.ring from p.x, p.y, p.shift, p.noise
template opinion(p: Point) over p.ring by 1, opinion(p)
"""
RING_LINKS = """
template linked(p: Point, q: Point) where Link(p, q) over symmetric p.ring, q.ring
"""


BOOSTING = {"max_leaf_nodes": [8, 31], "max_iter": [60, 100]}
"""The four settings of gradient boosting."""


@dataclass(frozen=True)
class Task:
    """A dataset with a model of its attributes and a model that also uses its relations."""

    tables: Callable[[], dict[str, pd.DataFrame]]
    alone: str
    linked: str
    target: str
    entity: str


def films() -> dict[str, pd.DataFrame]:
    """Return the people of IMDB with their roles, and the films in which they take part."""
    return real.film_people()


def molecules() -> dict[str, pd.DataFrame]:
    """Return the molecules with counts of atoms, bonds and rings, and the counts of their parts."""
    tables = real.molecules()
    molecule, parts = tables["molecule"], tables["molecule_parts"]
    counts = parts.pivot_table(index="molecule", columns="part", values="count", fill_value=0)
    elements = [part for part in counts if "-" not in part]
    atoms, bonds = counts[elements], counts[[part for part in counts if "-" in part]]
    columns: dict[str, Any] = {"size": atoms.sum(axis=1), "bonds": bonds.sum(axis=1) // 2}
    columns["rings"] = columns["bonds"] - columns["size"] + 1
    columns |= {element: atoms[element] for element in ("c", "h", "n", "o")}
    columns["others"] = columns["size"] - sum(columns[element] for element in ("c", "h", "n", "o"))
    columns["double"] = bonds[[b for b in bonds if b.endswith(" 2")]].sum(axis=1)
    columns["aromatic"] = bonds[[b for b in bonds if b.endswith(" 7")]].sum(axis=1)
    extended = molecule.join(pd.DataFrame(columns).astype(int), on="id")
    return {"molecule": extended, "molecule_parts": parts}


def rings(n: int) -> dict[str, pd.DataFrame]:
    """Return points on three noisy rings around a shifted centre, and links of which two thirds join points of one ring."""
    rng = np.random.default_rng(0)
    ring, angle = rng.integers(3, size=n), rng.uniform(0, 2 * np.pi, n)
    radius, shift = 1 + ring + rng.normal(0, 0.55, n), rng.choice([-2.0, 0.0, 2.0], n)
    names = np.array(["inner", "middle", "outer"], dtype=object)
    columns = {
        "x": radius * np.cos(angle) + shift,
        "y": radius * np.sin(angle),
        "shift": shift,
        "noise": rng.normal(size=n),
    }
    source = rng.integers(n, size=2 * n)
    same = [np.flatnonzero(ring == k) for k in range(3)]
    near = np.array([rng.choice(same[k]) for k in ring[source]])
    target = np.where(rng.random(2 * n) < 0.5, near, rng.integers(n, size=2 * n))
    link = pd.DataFrame({"source": source, "target": target}).query("source != target").drop_duplicates()
    return {"point": pd.DataFrame({"id": np.arange(n), "ring": names[ring], **columns}), "link": link}


def tasks(options: Any) -> dict[str, Task]:
    """Return the tasks by name."""
    return {
        "imdb": Task(
            films, FILMS.replace("ROLES", ""), FILMS.replace("ROLES", ROLES) + FILM_LINKS, "Person.role", "Person"
        ),
        "mutagenesis": Task(molecules, MOLECULES, MOLECULES + MOLECULE_LINKS, "Molecule.mutagenic", "Molecule"),
        "rings": Task(partial(rings, sized(options, 1000, 300, 60)), RINGS, RINGS + RING_LINKS, "Point.ring", "Point"),
    }


def boost(grounding: Any, fold: Any, grid: dict[str, list[int]]) -> np.ndarray:
    """Return the probabilities of gradient boosting for the test labels of a fold, shape (n_test, n_states)."""
    feature = grounding.spec.feature("opinion")
    inputs, states = read_inputs(grounding.bound, feature), grounding.states
    train, test = np.flatnonzero(fold.train_mask(states >= 0)), np.flatnonzero(fold.test)
    encoder = Encoder.fit(inputs, train, is_linear=False)
    search = GridSearchCV(HistGradientBoostingClassifier(random_state=0), grid, scoring="neg_log_loss", cv=5)
    search.fit(encoder.transform(inputs, train), states[train])
    out = np.zeros((len(test), int(grounding.graph.cardinality.max())))
    out[:, search.classes_] = search.predict_proba(encoder.transform(inputs, test))
    return out


def measures(probabilities: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return the log loss, the accuracy and the AUC (one versus rest) of predictions, pooled over folds."""
    hot = np.eye(probabilities.shape[1])[truth]
    chosen = np.clip(probabilities[np.arange(len(truth)), truth], 1e-15, None)
    return {
        "log_loss": float(-np.log(chosen).mean()),
        "accuracy": float((probabilities.argmax(axis=1) == truth).mean()),
        "auc": float(roc_auc_score(hot, probabilities, average="macro")),
    }


def compare(task: Task, options: Any) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the measures of each method."""
    split = f"random,folds={sized(options, 10, 2, 2)}"
    data = relcrf.Dataset(task.tables())
    alone, linked = (api.parse(text).ground(data) for text in (task.alone, task.linked))
    folds = make_folds(alone, split, for_training=False)
    test = np.concatenate([np.flatnonzero(fold.test) for fold in folds])
    grid = sized(options, BOOSTING, BOOSTING, {"max_leaf_nodes": [8], "max_iter": [5]})
    yield "gbdt", measures(np.concatenate([boost(alone, fold, grid) for fold in folds]), alone.states[test])
    backends = {"relcrf_local": (alone, "local"), "relcrf": (linked, sized(options, "auto", "pseudo", "pseudo"))}
    for name, (grounding, backend) in backends.items():
        predicted = api.evaluate(grounding, [backend], split).predictions.pooled(backend, task.target)
        width = int(grounding.graph.cardinality.max())
        yield name, measures(predicted.probabilities.reshape(-1, width), predicted.truth)


def main() -> None:
    """Compare the methods on each dataset."""
    parser = BenchmarkParser(__doc__, "2 folds, 300 points on rings, `pseudo` instead of `auto`, and no IMDB.")
    parser.add_argument("--task", choices=("imdb", "mutagenesis", "rings"), help="Run only this dataset.")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    print(f"{'dataset':12} {'method':14} {'log loss':>9} {'accuracy':>9} {'AUC':>7}")
    for name, task in tasks(options).items():
        if options.task == name or (options.task is None and not (options.quick and name == "imdb")):
            figures[name] = {}
            for method, found in compare(task, options):
                figures[name][method] = found
                print(
                    f"{name:12} {method:14} {found['log_loss']:9.4f} {found['accuracy']:9.4f} {found['auc']:7.4f}",
                    flush=True,
                )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
