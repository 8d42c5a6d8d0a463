"""Recursive relations on data with too many pairs to enumerate, and their budget."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.data.binding import bind
from relcrf.errors import BudgetError
from relcrf.grounding.ground import create_relation_tables

MODEL = """
entity E { predict s : bool }
relation R(a: E, b: E)
derive Reach(a: E, b: E) where R(a, b) or (Reach(a, m) and R(m, b))
derive Both(a: E, b: E) where R(a, b) or R(b, a)
template t(a: E, b: E) where Reach(a, b) over a.s == b.s
template u(a: E, b: E) where Both(a, b) over a.s == b.s
"""


def dataset(edges, n):
    page = pd.DataFrame({"id": np.arange(n), "s": [True] * n})
    return relcrf.Dataset({"e": page, "r": pd.DataFrame(edges, columns=["a", "b"])})


def test_transitive_closure_equals_networkx():
    graph = nx.gnp_random_graph(60, 0.03, seed=1, directed=True)
    bound = bind(relcrf.parse(MODEL).spec, dataset(list(graph.edges), 60))
    create_relation_tables(bound)
    found = set(bound.connection.execute('SELECT a0, a1 FROM "rel.Reach"').fetchall())
    closure = nx.transitive_closure(graph, reflexive=None)
    assert found == {(a, b) for a in graph for b in closure[a]} | {
        (a, a) for a in graph for b in graph.successors(a) if b == a or nx.has_path(graph, b, a)
    }


def test_long_chains_and_many_entities():
    chains = [(100 * k + j, 100 * k + j + 1) for k in range(300) for j in range(20)]
    bound = bind(relcrf.parse(MODEL).spec, dataset(chains, 30_000))
    create_relation_tables(bound)
    ((n,),) = bound.connection.execute('SELECT count(*) FROM "rel.Reach"').fetchall()
    assert n == 300 * 20 * 21 // 2
    ((n,),) = bound.connection.execute('SELECT count(*) FROM "rel.Both"').fetchall()
    assert n == 2 * 300 * 20


def test_closure_over_budget_raises_budget_error():
    ring = [(k, (k + 1) % 400) for k in range(400)]
    bound = bind(relcrf.parse(MODEL).spec, dataset(ring, 400))
    with pytest.raises(BudgetError, match="'Reach' would have"):
        create_relation_tables(bound, budget=5_000)


def test_iteration_that_would_exceed_the_budget_does_not_start():
    star = [edge for k in range(1, 41) for edge in ((k, 0), (0, 40 + k))]  # the second iteration joins 40 * 40 pairs
    bound = bind(relcrf.parse(MODEL).spec, dataset(star, 81))
    with pytest.raises(BudgetError, match="'Reach' would have up to 1,600 bindings"):
        create_relation_tables(bound, budget=100)


def test_disjunction_of_links_is_a_union():
    """As a filter, it would test each of 900 million pairs."""
    text = MODEL.replace("where Reach(a, b) over", "where (R(a, b) or R(b, a)) and a < b over")
    assert "Reach" in text  # unused, so that its 450 million pairs are not materialised
    grounding = relcrf.parse(text).ground(dataset([(k, k + 1) for k in range(29_999)], 30_000))
    assert grounding.bindings["t"] == 29_999
