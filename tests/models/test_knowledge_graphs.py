"""Tests of `datasets/knowledge_graphs.py`: inheritance in the hierarchy, and one kinship term for each pair."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "datasets"))
import knowledge_graphs


def test_relations_are_inherited():
    facts = knowledge_graphs.draw_hierarchy(np.random.default_rng(0), 60, 8, blocked=0.0)
    child, parent = np.nonzero(facts[..., 0])
    assert child.tolist() == list(range(1, 60)) and (parent < child).all()
    # A child is in all relations of its parent.
    for relation in range(1, 8):
        held = facts[..., relation]
        assert held.any()
        assert (held[child] >= held[parent]).all() and (held[:, child] >= held[:, parent]).all()
    blocked = knowledge_graphs.draw_hierarchy(np.random.default_rng(0), 60, 8, blocked=0.3)
    assert 0.6 < blocked[..., 1:].sum() / facts[..., 1:].sum() < 0.8 and (blocked <= facts).all()


def test_pairs_have_one_term():
    facts = knowledge_graphs.draw_kinship(np.random.default_rng(0), 40, 9, noise=0.0)
    assert facts.shape == (40, 40, 9) and (facts.sum(axis=2) == 1).all()
    assert len(np.unique(facts.reshape(40, -1), axis=0)) <= 4 * 3, (
        "people of equal section and generation use equal terms"
    )
    noisy = knowledge_graphs.draw_kinship(np.random.default_rng(0), 40, 9, noise=0.2)
    assert 0.1 < (noisy != facts).any(axis=2).mean() < 0.25
