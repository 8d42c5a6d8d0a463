"""Folds of the training labels that resemble the missing labels: reserved labels, components, or stratified labels."""

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.backends.problems import training_problem
from relcrf.errors import DataError
from relcrf.evaluation.holdout_folds import FOLDS, automatic_folds
from relcrf.evaluation.splits import labelled_in_problem
from relcrf.graph.reduction import Role

MODEL = """
domain Topic = { x, y }
entity Paper { predict topic : Topic }
relation Cites(a: Paper, b: Paper)
template prior(p: Paper) over p.topic
template same(a: Paper, b: Paper) where Cites(a, b) over a.topic == b.topic
"""


def problem(known, links, **options):
    """Return the problem of papers with alternating topics, of which some have a label."""
    topic = [("x", "y")[k % 2] if each else None for k, each in enumerate(known)]
    cites = pd.DataFrame(links, columns=["a", "b"])
    data = relcrf.Dataset({"paper": pd.DataFrame({"id": range(len(known)), "topic": topic}), "cites": cites})
    return training_problem(relcrf.parse(MODEL).ground(data), **options)


def chains(n, length):
    """Return the links of `n` chains."""
    return [(k, k + 1) for k in range(n * length) if (k + 1) % length]


def assert_partition(made, folds):
    """Assert that each label is in one fold."""
    count = sum(fold.test.astype(int) for fold in folds)
    np.testing.assert_array_equal(count, labelled_in_problem(made).astype(int))


def test_reserved_labels_are_the_only_fold():
    reserved = np.arange(40) % 4 == 0
    made = problem(np.ones(40, dtype=bool), chains(1, 40), validation=reserved)
    extended, (fold,) = automatic_folds(made, 500, 0)
    np.testing.assert_array_equal(fold.test, reserved)
    assert extended.validation is None and (extended.roles[reserved] == Role.FREE).all()
    np.testing.assert_array_equal(fold.learning_problem(extended).roles, made.roles)


def test_components_are_held_out_if_other_components_have_no_labels():
    known = np.arange(60) < 30
    made = problem(known, chains(12, 5))
    same, folds = automatic_folds(made, 500, 0)
    assert same is made and len(folds) == FOLDS
    assert_partition(made, folds)
    for fold in folds:
        assert fold.whole_components and fold.has_evidence
        by_chain = fold.test.reshape(12, 5)
        assert (by_chain.all(axis=1) | ~by_chain.any(axis=1)).all()


def test_labels_are_held_out_if_small_components_lack_labels_at_random():
    """Most unlabelled variables are in pairs without labels, but so are most held-out labels without their own label."""
    known = np.random.default_rng(0).random(600) < 0.4
    made = problem(known, chains(300, 2))
    reached = known.reshape(300, 2)[:, ::-1].ravel()[~known].mean()
    assert reached < 0.5
    _, folds = automatic_folds(made, 500, 0)
    assert_partition(made, folds)
    assert not any(fold.whole_components for fold in folds)


def test_two_components_are_two_folds():
    made = problem(np.arange(15) < 10, chains(3, 5))
    _, folds = automatic_folds(made, 500, 0)
    assert [fold.n_test for fold in folds] == [5, 5]


def test_labels_are_held_out_if_one_component_has_most_labels():
    known = np.arange(40) < 20
    links = [*((k, k + 1) for k in range(14)), *((k, k + 1) for k in range(20, 39))]
    made = problem(known, links)
    _, folds = automatic_folds(made, 500, 0)
    assert not any(fold.whole_components for fold in folds)
    assert_partition(made, folds)


def test_labels_with_unlabelled_neighbours_are_stratified():
    known = np.arange(100) % 5 != 0
    made = problem(known, chains(1, 100))
    _, folds = automatic_folds(made, 500, 0)
    assert_partition(made, folds)
    assert not any(fold.whole_components for fold in folds) and all(fold.has_evidence for fold in folds)
    for fold in folds:
        counts = np.bincount(made.states[fold.test], minlength=2)
        assert np.ptp(counts) <= 1 and fold.n_test == 16
        query = fold.query_problem(made)
        assert (query.roles[~known] == Role.FREE).all() and (query.states[~known] == -1).all()


def test_a_graph_with_all_labels_has_no_evidence():
    """The model will predict other data, which have no labels."""
    made = problem(np.ones(50, dtype=bool), chains(1, 50))
    _, folds = automatic_folds(made, 500, 0)
    assert_partition(made, folds)
    assert all((fold.query_problem(made).roles == Role.FREE).all() for fold in folds)


def test_many_labels_have_one_fold_unless_thorough():
    made = problem(np.arange(100) % 5 != 0, chains(1, 100))
    assert len(automatic_folds(made, 500, 0)[1]) == FOLDS
    (only,) = automatic_folds(made, 80, 0)[1]
    assert only.n_test == 16
    assert len(automatic_folds(made, 80, 0, thorough=True)[1]) == FOLDS


def test_folds_depend_on_the_seed_only():
    made = problem(np.arange(100) % 5 != 0, chains(1, 100))
    one, same, other = (automatic_folds(made, 500, seed)[1] for seed in (0, 0, 1))
    np.testing.assert_array_equal([fold.test for fold in one], [fold.test for fold in same])
    assert any((a.test != b.test).any() for a, b in zip(one, other, strict=True))


def test_too_few_labels_are_an_error():
    with pytest.raises(DataError, match="too few labels to hold some out: 2"):
        automatic_folds(problem(np.arange(30) < 2, chains(1, 30)), 500, 0)


def test_evidence_is_thinned_if_missing_labels_have_fewer_labelled_neighbours():
    """Records 0 to 39 have labels, and 80 % of the links of the others join them to one another."""
    rng = np.random.default_rng(0)
    known = np.arange(100) < 40
    inner = rng.integers(0, 40, size=(600, 2))
    outer = np.concatenate(
        (rng.integers(40, 100, size=(800, 2)), np.column_stack((rng.integers(0, 40, 200), rng.integers(40, 100, 200))))
    )
    links = [(int(a), int(b)) for a, b in np.concatenate((inner, outer)) if a != b]
    made = problem(known, links)
    _, folds = automatic_folds(made, 500, 0)
    assert_partition(made, folds)
    # Of the neighbours of labels, 2 * 600 / (2 * 600 + 200) are labelled; of the others, 200 / (2 * 800 + 200).
    expected = (200 / 1800) / (1200 / 1400)
    for fold in folds:
        assert fold.has_evidence and not fold.whole_components
        query = fold.query_problem(made)
        clamped = query.roles == Role.CLAMPED
        assert not clamped[fold.test].any() and not clamped[~known].any()
        assert 0 < clamped.sum() / known.sum() < 3 * expected


def test_held_out_labels_belong_to_the_domains_with_missing_labels():
    """Two attributes with different domains, of which one has all labels."""
    text = """
domain Kind = { a, b }
domain Topic = { x, y, z }
entity Paper { predict kind : Kind
               predict topic : Topic }
template kinds(p: Paper) over p.kind
template topics(p: Paper) over p.topic
template both(p: Paper) over p.kind, p.topic
"""
    topic = [None if k % 3 == 0 else "xyz"[k % 2] for k in range(60)]
    paper = pd.DataFrame({"id": range(60), "kind": ["ab"[k % 2] for k in range(60)], "topic": topic})
    made = training_problem(relcrf.parse(text).ground(relcrf.Dataset({"paper": paper})))
    _, folds = automatic_folds(made, 500, 0)
    held_out = np.logical_or.reduce([fold.test for fold in folds])
    assert held_out.sum() == 40 and (made.graph.cardinality[held_out] == 3).all()
