"""Choosing among so many candidates that their numbers are large."""

import numpy as np
from scipy.sparse import csr_array

from relcrf.learning.induced import Chosen
from relcrf.learning.rows import RowsLikelihood
from relcrf.structure.row_scores import RowScorer


def test_what_is_chosen_is_not_chosen_again_among_billions():
    """The keys of pairs are int32, and the number of this pair is not."""
    on = np.zeros((8, 60_000), dtype=bool)
    on[:4, -2:] = True
    model = RowsLikelihood.of(csr_array(on))
    point, scorer = np.zeros(model.n_base), RowScorer(model.space, 0.4, 0.4)
    first = scorer.best(model, [model.space], point, [1.5], 1)
    assert first.candidates.rows.T.tolist() == [[0, 59_998, 59_999]]
    assert (
        len(scorer.best(model.having(first.candidates), [model.space], np.append(point, 0.1), [1.5], 1).candidates) == 0
    )
    assert len(scorer.best(model.having(Chosen.none()), [model.space], point, [1.5], 1).candidates) == 1
