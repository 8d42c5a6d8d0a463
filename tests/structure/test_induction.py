"""Feature induction with billions of candidate pairs."""

import numpy as np
from induction import induced

from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSide, KeyRelation, PairSpace
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightLayout
from relcrf.learning.literal_likelihood import LiteralLikelihood


def test_chosen_pair_is_not_proposed_again_among_billions():
    """Keys are int32, but the code of this pair needs 64 bits."""
    n_keys, n_samples, n_rare = 60_000, 8, 2
    key = np.repeat(np.arange(n_keys - n_rare, n_keys), n_samples)
    sample, variable = np.tile(np.arange(n_samples), n_rare), np.arange(n_rare * n_samples)
    side = CandidateSide.from_cells(n_keys, key, sample, variable, np.array([0.0, 1.0]))
    space = PairSpace("pairs", side, side, KeyRelation.ASCENDING, n_samples)
    graph = FactorGraph(np.full(len(variable), 2, dtype=np.int32), (), WeightLayout(()))
    labels = (sample < 4).astype(np.int32)
    base = blanket_graph(graph, np.full(len(variable), Role.FREE, dtype=np.int8), labels)
    model = LiteralLikelihood.build(base, labels, (space,))
    first, _ = induced(model, np.empty(0), [1.5], 1, error_threshold=0.4, signal_threshold=0.4)
    assert first.rows.T.tolist() == [[0, 59_998, 59_999]]
    extended = model.with_candidates(first)
    assert len(induced(extended, np.array([0.1]), [1.5], 1, error_threshold=0.4, signal_threshold=0.4)[0]) == 0
    assert len(induced(model, np.empty(0), [1.5], 1, error_threshold=0.4, signal_threshold=0.4)[0]) == 1
