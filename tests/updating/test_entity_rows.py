"""Digests of rows, connected entities, and the entities that a change affects, compared with plain computations."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

import relcrf
from relcrf.updating.entity_rows import EntityRows, KnownRows

MODEL = relcrf.parse(
    """
domain Kind = { a, b }
entity Page { predict kind : Kind }
entity Site { size : real }
relation Link(source: Page, target: Page)
relation On(page: Page, site: Site)
template prior(p: Page) over p.kind
"""
)


def make_rows(rng, n=30):
    pages = [(f"p{k}", str(rng.choice(["a", "b"]))) for k in range(n)]
    links = {(f"p{rng.integers(n)}", f"p{rng.integers(n)}") for _ in range(n // 3)}
    on = {(f"p{rng.integers(n)}", f"s{rng.integers(n // 3)}") for _ in range(n // 4)}
    return {
        "page": pages,
        "site": [(f"s{k}", float(k)) for k in range(n // 3)],
        "link": sorted(links),
        "on": sorted(on),
    }


COLUMNS = {"page": ("id", "kind"), "site": ("id", "size"), "link": ("source", "target"), "on": ("page", "site")}


def entity_rows(rows, known=None):
    tables = {
        name: {column: np.array([row[k] for row in rows[name]], dtype=object) for k, column in enumerate(columns)}
        for name, columns in COLUMNS.items()
    }
    return EntityRows(MODEL.spec, relcrf.Dataset(tables), known)


def mentioned(rows):
    """Yield the entities that each row mentions."""
    yield from ([("page", row[0])] for row in rows["page"])
    yield from ([("site", row[0])] for row in rows["site"])
    yield from ([("page", row[0]), ("page", row[1])] for row in rows["link"])
    yield from ([("page", row[0]), ("site", row[1])] for row in rows["on"])


def rows_of(rows):
    """Return the rows that mention each entity."""
    found = {}
    for table, part in rows.items():
        for row in part:
            for entity in next(mentioned({**dict.fromkeys(rows, ()), table: [row]})):
                found.setdefault(entity, set()).add((table, row))
    return found


def graph_of(rows):
    graph = nx.Graph()
    for entities in mentioned(rows):
        graph.add_nodes_from(entities)
        graph.add_edges_from(pairwise(entities))
    return graph


def named(entities):
    return [(("page", "site")[kind], key) for kind, key in zip(entities.kind, entities.key, strict=True)]


def test_order_of_rows_does_not_matter():
    rows = make_rows(np.random.default_rng(0))
    ours, theirs = (entity_rows(each).entities() for each in (rows, {name: part[::-1] for name, part in rows.items()}))
    assert ours.key.tolist() == theirs.key.tolist()
    assert ours.digest.tolist() == theirs.digest.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_components(seed):
    rows = make_rows(np.random.default_rng(seed))
    found = entity_rows(rows)
    entities = found.entities()
    groups = {}
    for entity, number in zip(named(entities), found.components(entities), strict=True):
        groups.setdefault(number, set()).add(entity)
    assert sorted(map(sorted, groups.values())) == sorted(map(sorted, nx.connected_components(graph_of(rows))))


@pytest.mark.parametrize("seed", range(10))
def test_selected_entities_are_whole_components_with_changes(seed):
    rng = np.random.default_rng(seed)
    old = make_rows(rng)
    new = {name: list(part) for name, part in old.items()}
    for _ in range(3):
        name = str(rng.choice(list(COLUMNS)))
        if rng.random() < 0.5 and len(new[name]) > 1:
            new[name].pop(rng.integers(len(new[name])))
        else:
            added = {"page": ("p99", "a"), "site": ("s99", 1.0)}
            new[name].append(
                added.get(name) or (f"p{rng.integers(30)}", f"{'p' if name == 'link' else 's'}{rng.integers(10)}")
            )
    before = entity_rows(old)
    known = before.entities()
    after = entity_rows(new, KnownRows(known, before.components(known)))
    changes = after.compare()
    was, now = rows_of(old), rows_of(new)
    different = {entity for entity in {*was, *now} if was.get(entity) != now.get(entity)}
    assert changes.n_differences == len(different)
    assert changes.n_added == len(now.keys() - was.keys())
    assert changes.n_removed == len(was.keys() - now.keys())
    graph = graph_of(new)
    needed = set().union(*(nx.node_connected_component(graph, entity) for entity in different if entity in graph))
    subset = EntityRows(MODEL.spec, after.select_rows(changes))
    selected = set(named(subset.entities()))
    assert len(selected) == changes.n_selected
    assert needed <= selected
    assert {entity: now[entity] for entity in selected}.keys() == selected
    for group in nx.connected_components(graph):
        assert group <= selected or not group & selected
    kept = {entity for entity, is_kept in zip(named(known), changes.kept, strict=True) if is_kept}
    assert kept == now.keys() - selected
    part = subset.entities()
    digests = dict(zip(named(after.entities()), after.entities().digest.tolist(), strict=True))
    assert dict(zip(named(part), part.digest.tolist(), strict=True)) == {e: digests[e] for e in selected}
