"""Joint training of a classifier and a model on Cora with 20 labels per topic, by number of joint rounds.

    RELCRF_DATA=... python benchmarks/joint.py

The classifier predicts topics from words; the model adds citations and is trained with default settings. The splits are those
of few_labels.py: 500 further labels serve only for the choice of the backend and its settings, and 1,000 are predicted.
`classifier` is the classifier of words alone after these rounds.
"""

from __future__ import annotations

import json
from typing import Any

import few_labels
import numpy as np
from few_label_rivals import accuracy_and_loss
from support import BenchmarkParser, sized

import relcrf
from relcrf import api
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.learned_values import read_inputs

MODEL = """
domain Topic = open
domain Word = open
entity Paper { predict topic: Topic, words: bag of Word }
relation Cites(source: Paper, target: Paper)
feature opinion(p: Paper) = classifier of p.topic from p.words joint {rounds}
template opinion(p: Paper) over p.topic by 1, opinion(p)
template linked(p: Paper, q: Paper) where (Cites(p, q) or Cites(q, p)) and p < q over symmetric p.topic, q.topic
"""
LABELS_PER_TOPIC = 20


def draw_split(states: np.ndarray, seed: int) -> few_labels.Split:
    """Draw disjoint training, validation and test sets; those of a part of Cora are smaller."""
    n_valid = min(few_labels.N_VALID, len(states) // 5)
    return few_labels.draw_split(states, LABELS_PER_TOPIC, seed, n_valid, min(few_labels.N_TEST, 2 * n_valid))


def measure(model: api.Model, grounding: Grounding, split: few_labels.Split) -> dict[str, float]:
    """Return the accuracy and the log loss of the model and of its classifier on the test labels of a split."""
    hidden = ~np.isin(np.arange(grounding.graph.n_variables), split.train)
    validation = np.isin(np.arange(grounding.graph.n_variables), split.valid)
    fit = api.fit(model, grounding, hidden=hidden, validation=validation)
    found = api.predict(fit, grounding, hidden=hidden)
    table = found.probabilities()[np.searchsorted(found.variables(), split.test)]
    (feature,) = fit.learned.learned_features
    scores = np.exp(feature.scores(read_inputs(grounding.bound, grounding.spec.feature("opinion")), table.shape[1]))
    alone = (scores / scores.sum(axis=1, keepdims=True))[split.test]
    truth = grounding.states[split.test]
    names = ("accuracy", "log_loss", "classifier_accuracy", "classifier_log_loss")
    return dict(zip(names, (*accuracy_and_loss(table, truth), *accuracy_and_loss(alone, truth)), strict=True))


def main() -> None:
    """Compare numbers of joint rounds."""
    parser = BenchmarkParser(__doc__, "1 split, and at most 1 round; 600 papers in tests.")
    options = parser.parse_args()
    tables = few_labels.first_papers(sized(options, None, None, 600))
    figures: dict[str, Any] = {}
    print(f"{'rounds':>6} {'accuracy':>15} {'log loss':>15} {'of classifier':>15} {'log loss':>15}")
    for rounds in sized(options, (0, 1, 2), (0, 1), (1,)):
        model = api.parse(MODEL.replace("joint {rounds}", f"joint {rounds}" if rounds else ""))
        grounding = model.ground(relcrf.Dataset(tables))
        results = [
            measure(model, grounding, draw_split(grounding.states, seed)) for seed in range(sized(options, 5, 1, 1))
        ]
        values = {name: np.array([each[name] for each in results]) for name in results[0]}
        figures[str(rounds)] = {name: float(column.mean()) for name, column in values.items()}
        cells = (f"{column.mean():.4f} ± {column.std():.4f}" for column in values.values())
        print(f"{rounds:6} " + " ".join(f"{cell:>15}" for cell in cells), flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
