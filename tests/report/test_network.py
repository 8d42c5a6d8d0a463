"""The learned graph: its nodes and edges, its picture, and its files."""

import json
from xml.etree import ElementTree

import networkx as nx
import numpy as np
import pytest
from generated import generated
from hypothesis import given
from hypothesis import strategies as st
from traits import TEXT, traits_world

import relcrf
from relcrf import api
from relcrf.data.frame import Frame
from relcrf.errors import UsageError
from relcrf.evaluation.learned_graph import EDGE_COLUMNS, NODE_COLUMNS, LearnedGraph, build_learned_graph, require_edges
from relcrf.printable import escape_unprintable
from relcrf.report import graph_files, network, node_positions
from relcrf.report.node_positions import position_nodes
from relcrf.report.plot import PICTURE_EXTENSIONS

HOSTILE = (
    "</data><x>&\"'",
    "a\x00b\x1b[31m\r\n\t",
    "\ud800half",
    "右左",
    "\u202eevil",
    "[bold]",
    'q"\\"',
    "$x^2$ {",
    "",
)


def graph_of(names, pairs, weights, kind="has"):
    edges = [
        (a, b, "t", abs(w), w, np.nan)
        for (a, b), w in sorted(zip(pairs, weights, strict=True), key=lambda each: -abs(each[1]))
    ]
    return LearnedGraph(
        Frame.from_rows(NODE_COLUMNS, [(kind, name) for name in names]), Frame.from_rows(EDGE_COLUMNS, edges)
    )


@pytest.fixture(scope="module")
def traits():
    model = relcrf.parse(TEXT)
    return api.fit(model, model.ground(relcrf.Dataset(traits_world())), "trmrf", l1=1.0).learned


@pytest.fixture(scope="module")
def hostile():
    pairs = [(k, k + 1) for k in range(len(HOSTILE) - 1)] + [(2, 2)]
    return graph_of(HOSTILE, pairs, [(-1) ** k * (1 + k) for k in range(len(pairs))])


def test_graph_contains_chosen_candidates(traits):
    found = build_learned_graph(traits)
    assert sum(found.degrees) == 2 * len(found.edges) == 2 * traits.summary["chosen"]
    nodes = found.nodes.rows()
    assert set(found.nodes["kind"]) == {"trait", "verb"} and len(set(nodes)) == len(nodes)
    expected = {}
    for block, info in enumerate(traits.templates):
        if info.name in ("traits", "subject"):
            weights, gains = (traits.layout.matrix(traits.vectors[name], block)[:, 0] for name in ("weights", "gain"))
            for key, weight, gain in zip(info.keys.values, weights, gains, strict=True):
                # `subject` has the trait before the verb in `per`, and after it in `over`.
                ends = [("trait", key[0]), ("trait", key[1])]
                ends = ends if info.name == "traits" else [("verb", key[1]), ("trait", key[0])]
                expected[info.name, *ends] = (weight, gain)
    assert expected
    edges = {
        (template, nodes[first], nodes[second]): (weight, gain)
        for first, second, template, _, weight, gain in found.edges.rows()
        if template in ("traits", "subject")
    }
    assert edges == expected
    assert list(found.edges["strength"]) == sorted(np.abs(found.edges["weight"]), reverse=True)


def test_candidates_with_tables_have_no_sign():
    text = (
        "domain KeyNode = open\nentity Row\npredict relation value(r: Row, n: KeyNode) : 1..3\n"
        "candidates edge(r: Row, s: KeyNode, t: KeyNode) where s < t over value(r, s), value(r, t) per s, t\n"
    )
    model, values = relcrf.parse(text), np.random.default_rng(0).integers(1, 4, 60).tolist()
    data = {
        "row": {"id": list(range(20))},
        "value": {"r": [k // 3 for k in range(60)], "n": list("abc") * 20, "value": values},
    }
    grounding = model.ground(relcrf.Dataset(data)).with_candidates({"edge": (("a", "c"), ("b", "c"))})
    learned = api.fit(model, grounding, "pseudo").learned
    found = build_learned_graph(learned)
    assert found.nodes.rows() == [("value", name) for name in "acb"]
    norms = np.linalg.norm(learned.layout.matrix(learned.vectors["weights"], 0), axis=1)
    assert {(first, second, strength) for first, second, _, strength, *_ in found.edges.rows()} == {
        (0, 1, norms[0]),
        (2, 1, norms[1]),
    }
    assert np.isnan(found.edges["weight"]).all() and np.isnan(found.edges["gain"]).all()
    assert [text for _, text in network.lay_out_graph(found).legend] == ["edges", "value"]
    learned.vectors["weights"][:9] = 0.0
    assert len(build_learned_graph(learned).edges) == 1
    learned.vectors["weights"][:] = 0.0
    with pytest.raises(UsageError, match="E398"):
        require_edges(build_learned_graph(learned))


@generated(40)
@given(st.integers(2, 40), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=80), st.integers(0, 9))
def test_boxes_do_not_overlap(n, pairs, seed):
    boxes = np.random.default_rng(seed).uniform(4, 90, (n, 2)) * [1.0, 0.3]
    pairs = np.array([(a % n, b % n) for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    positions = position_nodes(pairs, boxes)
    np.testing.assert_array_equal(positions, position_nodes(pairs, boxes))
    first, second = np.triu_indices(n, 1)
    apart = np.abs(positions[first] - positions[second]) - (boxes[first] + boxes[second]) / 2
    assert (apart.max(axis=1) > 0).all() and (positions - boxes / 2).min() >= -1e-9


def test_large_components_use_a_force_layout(monkeypatch):
    monkeypatch.setattr(node_positions, "MAX_EXACT_NODES", 5)
    pairs = np.array([(0, k) for k in range(1, 9)] + [(8, k) for k in range(9, 16)] + [(16, 17)])
    boxes = np.full((18, 2), 10.0)
    positions = position_nodes(pairs, boxes)
    np.testing.assert_array_equal(positions, position_nodes(pairs, boxes))
    far = np.linalg.norm(positions[8] - positions[1:8], axis=1).mean()
    assert (
        np.linalg.norm(positions[0] - positions[1:8], axis=1).mean()
        < far
        > np.linalg.norm(positions[8] - positions[9:16], axis=1).mean()
    )


def test_nodes_with_fewest_edges_have_no_label(monkeypatch):
    monkeypatch.setattr(network, "MAX_LABELS", 3)
    star = graph_of("abcdef", [(0, k) for k in range(1, 6)] + [(3, 5)], [1.0, 2.0, 3.0, 5.0, 4.0, 1.0])
    drawing = network.lay_out_graph(star)
    assert drawing.labels == ("a", "", "", "d", "", "f")
    assert drawing.diameters.argmax() == 0 and drawing.diameters[3] > drawing.diameters[1]
    monkeypatch.setattr(network, "MAX_LABELS", 150)
    assert network.lay_out_graph(graph_of(["x" * 99, "y"], [(0, 1)], [1.0])).labels == ("x" * 25 + "…", "y")


@pytest.mark.parametrize(("max_nodes", "max_edges", "n_edges"), [(4, 99, 3), (3, 99, 2), (99, 4, 4), (99, 99, 6)])
def test_large_graphs_are_drawn_by_their_strongest_edges(monkeypatch, tmp_path, max_nodes, max_edges, n_edges):
    monkeypatch.setattr(network, "MAX_NODES", max_nodes)
    monkeypatch.setattr(network, "MAX_EDGES", max_edges)
    pairs = [(0, 1), (1, 5), (5, 2), (2, 3), (3, 3), (4, 0)]
    whole = graph_of("abcdef", pairs, [9.0, -8.0, 7.0, 6.0, 5.0, 4.0])
    drawing = network.lay_out_graph(whole)
    names = drawing.graph.nodes["name"]
    edges = [(names[a], names[b], weight) for a, b, _, _, weight, _ in drawing.graph.edges.rows()]
    assert (
        edges
        == [("abcdef"[a], "abcdef"[b], w) for (a, b), w in zip(pairs, whole.edges["weight"], strict=True)][:n_edges]
    )
    assert set(names) == {name for edge in edges for name in edge[:2]} and len(drawing.positions) == len(names)
    omitted = "" if n_edges == 6 else f"; {6 - n_edges} weaker edges are not drawn"
    assert network.plot_graph(whole, "6 nodes").title == f"6 nodes{omitted}"
    network.save_graph(whole, tmp_path / "graph.svg")


@pytest.mark.parametrize("ending", PICTURE_EXTENSIONS)
def test_equal_graphs_have_equal_pictures(hostile, tmp_path, ending):
    for name in ("one", "two"):
        network.save_graph(hostile, tmp_path / f"{name}{ending}")
    one, two = ((tmp_path / f"{name}{ending}").read_bytes() for name in ("one", "two"))
    assert one == two and len(one) > 4000 and len(list(tmp_path.iterdir())) == 2
    network.save_graph(graph_of(HOSTILE, [(0, 1), (3, 4)], [1.0, -2.0]), tmp_path / f"one{ending}")
    assert (tmp_path / f"one{ending}").read_bytes() != two


def test_picture_on_a_page_uses_the_colours_of_the_page(hostile):
    drawing = network.plot_graph(hostile, "the graph")
    texts = [node.text for node in ElementTree.fromstring(drawing.svg).iter() if node.tag.endswith("text")]
    assert set(texts) == {escape_unprintable(name) for name in HOSTILE if name}
    assert drawing.legend == (("--first", "positive weight"), ("--second", "negative weight"), ("--ink", "has"))
    assert all(f"var({name})" in drawing.svg for name in ("--first", "--second", "--ink", "--paper"))
    assert "aa01" not in drawing.svg and "aa06" not in drawing.svg


def test_escape_unprintable():
    assert escape_unprintable("a\x00\x1b\n\u202e\ud800\\") == "a\\x00\\x1b\\n\\u202e\\ud800\\"
    assert escape_unprintable("été 右 \u00a0x") == "été 右 \u00a0x"


def test_graphml_round_trip(hostile, traits, tmp_path):
    path = tmp_path / "deep" / "g.graphml"
    graph_files.write_graphml(hostile, path)
    assert [p.name for p in path.parent.iterdir()] == ["g.graphml"]
    read = nx.read_graphml(path, force_multigraph=True)
    assert [name or "" for _, name in read.nodes(data="name")] == [escape_unprintable(name) for name in HOSTILE]
    found = {(min(a, b), max(a, b)): facts for a, b, facts in read.edges(data=True)}
    assert len(found) == len(hostile.edges)
    for first, second, _, strength, weight, _ in hostile.edges.rows():
        ends = tuple(sorted((f"n{first}", f"n{second}")))
        sign = 1 if weight > 0 else -1
        assert found[ends] == {"template": "t", "strength": strength, "weight": weight, "sign": sign}
    whole = build_learned_graph(traits)
    graph_files.write_graphml(whole, path)
    read = nx.read_graphml(path, force_multigraph=True)
    assert dict(read.degree()) == dict(read.nodes(data="degree"))
    assert sorted(gain for *_, gain in read.edges(data="gain")) == sorted(whole.edges["gain"])


def test_dot_quotes_names(hostile):
    lines = graph_files.as_dot(hostile).splitlines()
    assert lines[0] == "graph learned {" and lines[-1] == "}" and len(lines) == 3 + len(HOSTILE) + len(hostile.edges)
    labels = [line.partition("label=")[2].removesuffix("]") for line in lines if "label=" in line]
    # DOT strings are escaped like JSON strings here: quotes and backslashes have a backslash before them.
    assert [json.loads(label) for label in labels] == [escape_unprintable(name) for name in HOSTILE]
    assert sum("dashed" in line for line in lines) == sum(hostile.edges["weight"] < 0)
