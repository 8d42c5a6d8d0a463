"""Cora: ESS-CRF, dense CRF and support vector machine on the words and citations of papers.

    RELCRF_DATA=... python benchmarks/cora.py

2,708 papers in seven topics, models/cora_words.rcrf, five folds by the hash of the papers' keys: the labels of the other four
folds are observed in training and evidence at test time. The inner fold that selects settings is a fifth of the training labels.
The features of the support vector machine are the words of the paper and, if the inner fold selects them, the words of citing
and cited papers and the counts of their known topics.
"""

from __future__ import annotations

import sys

import numpy as np
import scipy.sparse as sp
from collective import Fold, compare, concatenate_normalised
from support import ROOT, BenchmarkParser, sized

import relcrf
from relcrf.evaluation.splits import partition_variables

sys.path.insert(0, str(ROOT / "datasets"))
from real import cora


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one fold, without selection of settings, lower accuracy")
    parser.add_argument("--fixed", action="store_true", help="fixed penalties: 3, and 100 for the margin objective")
    options = parser.parse_args()
    tables = cora()
    model = relcrf.load(ROOT / "models" / "cora_words.rcrf")
    grounding = model.ground(relcrf.Dataset(tables))
    split = partition_variables(grounding, "folds=5")
    folds = []
    for name in split.fold_names[: 1 if options.quick else None]:
        hidden = split.holdout_mask([name])
        folds.append(Fold(name, hidden, (~hidden & (np.random.default_rng(0).random(len(hidden)) < 0.2),)))
    n = len(tables["paper"])
    topic, code = np.unique(tables["paper"]["topic"].to_numpy(), return_inverse=True)
    word, cites = tables["paper_word"], tables["cites"]
    words = sp.csr_matrix((np.ones(len(word)), (word["paper"], word["word"])), shape=(n, word["word"].max() + 1))
    links = sp.csr_matrix((np.ones(len(cites)), (cites["source"], cites["target"])), shape=(n, n))
    links = ((links + links.T) > 0).astype(float)
    around = links @ words

    def features(known: np.ndarray) -> dict[str, sp.csr_matrix]:
        topics = links @ (np.eye(len(topic))[code] * known[:, None])
        return {
            "words": concatenate_normalised(words),
            "neighbours' words": concatenate_normalised(words, around),
            "neighbours' words and topics": concatenate_normalised(words, around, topics),
        }

    settings = sized(options, {}, {"tolerance": 1e-2, "max_iterations": 25}, {"max_iterations": 2})
    runs = [("", model, grounding)]
    choose = not (options.quick or options.fixed)
    compare(runs, folds, features, topic[code], title="Cora", choose=choose, **settings)


if __name__ == "__main__":
    main()
