"""WebKB, leave one university out: ESS-CRF, dense CRF and support vector machine on the words and links of web pages.

    RELCRF_DATA=... python benchmarks/webkb.py

877 pages of four universities in five classes. Pages link only within a university, and no label of the test university is
observed. The inner folds that select settings are the training universities. The model is models/departments.rcrf; `*_links`
is the same without co-citations, and `*_webkb` is models/webkb.rcrf. The features of the support vector machine are the words
of the page and, if the inner folds select them, the words of linked and linking pages.
"""

from __future__ import annotations

import sys

import numpy as np
import scipy.sparse as sp
from collective import Fold, compare, concatenate_normalised
from support import ROOT, BenchmarkParser, sized

import relcrf
from relcrf.evaluation.splits import partition_variables
from relcrf.model.spec import ModelSpec, Template

sys.path.insert(0, str(ROOT / "datasets"))
from real import webkb


def models() -> dict[str, relcrf.Model]:
    """Return the models by the suffix of their rows."""
    whole = relcrf.load(ROOT / "models" / "departments.rcrf")
    kept = (d for d in whole.spec.declarations if not (isinstance(d, Template) and d.name == "cocited"))
    return {
        "": whole,
        "_links": relcrf.Model(ModelSpec(tuple(kept))),
        "_webkb": relcrf.load(ROOT / "models" / "webkb.rcrf"),
    }


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="without selection of settings, lower accuracy")
    options = parser.parse_args()
    tables = webkb()
    runs = [(suffix, model, model.ground(relcrf.Dataset(tables))) for suffix, model in models().items()]
    split = partition_variables(runs[0][2], "university")
    parts = {name: split.holdout_mask([name]) for name in split.fold_names}
    folds = [
        Fold(name, hidden, tuple(part for other, part in parts.items() if other != name))
        for name, hidden in parts.items()
    ]
    n = len(tables["page"])
    word, link = tables["page_word"], tables["link"][tables["link"]["source"] != tables["link"]["target"]]
    words = sp.csr_matrix((np.ones(len(word)), (word["page"], word["word"])), shape=(n, word["word"].max() + 1))
    links = sp.csr_matrix((np.ones(len(link)), (link["source"], link["target"])), shape=(n, n))
    features = {
        "words": concatenate_normalised(words),
        "neighbours' words": concatenate_normalised(words, links @ words, links.T @ words),
    }
    label = tables["page"]["category"].to_numpy()
    settings = sized(options, {}, {"tolerance": 1e-3}, {"max_iterations": 2})
    n_models, n_folds = sized(options, (None, None), (None, None), (1, 1))
    compare(
        runs[:n_models],
        folds[:n_folds],
        lambda known: features,
        label,
        title="WebKB",
        choose=not options.quick,
        **settings,
    )


if __name__ == "__main__":
    main()
