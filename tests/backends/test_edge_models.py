"""Tests of candidate edges after learning: on other tables, and as a model file that trains and predicts again."""

import numpy as np
import pytest
from command import relcrf_command

import relcrf
from relcrf import api
from relcrf.backends.export import render_learned_model
from relcrf.backends.learned_model import LearnedModel
from relcrf.data.frame import Frame
from relcrf.errors import DataError, UsageError

TEXT = """
domain Node = open
entity Row
predict relation value(r: Row, n: Node) : 1..3
template prior(r: Row, n: Node) over value(r, n) per n
candidates edge(r: Row, s: Node, t: Node) where s < t over value(r, s), value(r, t) per s, t l2 0.5
"""
NODES = ("n 1", 'n"2', "n3", "n4")
EDGES = ((NODES[0], NODES[2]), (NODES[1], NODES[3]))


def rows(n=200, seed=0, nodes=NODES):
    """Return rows in which the third node is usually the first plus one, and the other nodes are independent."""
    rng = np.random.default_rng(seed)
    value = rng.integers(3, size=(n, 4))
    tied = rng.random(n) < 0.9
    value[tied, 2] = (value[tied, 0] + 1) % 3
    listed = [(r, node, int(value[r, NODES.index(node)]) + 1) for r in range(n) for node in nodes]
    r, node, states = (list(column) for column in zip(*listed, strict=True))
    return {"row": {"id": list(range(n))}, "value": {"r": r, "n": node, "value": states}}


@pytest.fixture(scope="module")
def fitted():
    model = relcrf.parse(TEXT)
    grounding = model.ground(relcrf.Dataset(rows())).with_candidates({"edge": EDGES})
    return model, api.fit(model, grounding, "pseudo", l2=0.1)


def edge_weights(learned: LearnedModel, layout, templates, vectors):
    block = next(k for k, info in enumerate(templates) if info.name == "edge")
    keys = templates[block].keys.values
    return dict(zip(keys, layout.matrix(vectors["weights"], block), strict=True))


def third(grounding):
    """Return the variables of the third node."""
    return np.char.find(grounding.variable_names(np.arange(len(grounding.states))).astype(str), ", n3)") >= 0


def test_an_edge_keeps_its_table_on_other_tables(fitted):
    model, fit = fitted
    learned = fit.learned
    trained = edge_weights(learned, learned.layout, learned.templates, learned.vectors)
    assert set(trained) == set(EDGES) and np.linalg.norm(trained[EDGES[0]]) > 5 * np.linalg.norm(trained[EDGES[1]])
    # Other rows, in another order, that lack a node.
    other = model.ground(relcrf.Dataset(rows(50, seed=1, nodes=(NODES[3], NODES[2], NODES[0]))))
    ground = learned.extend_grounding(other)
    found = edge_weights(learned, ground.graph.layout, ground.templates, learned.vectors_for(ground))
    for edge in EDGES:
        np.testing.assert_array_equal(found[edge], trained[edge])
    assert third(other).sum() == 50
    assert api.predict(fit, other, hidden=third(other)).score().accuracy > 0.8


def test_unseen_states_raise_error(fitted):
    model = relcrf.parse(TEXT.replace("1..3", "Level").replace("domain", "domain Level = open\ndomain", 1))
    data = rows()
    fit = api.fit(model, model.ground(relcrf.Dataset(data)).with_candidates({"edge": EDGES}), "pseudo")
    data["value"]["value"][0] = 4
    ground = fit.learned.extend_grounding(model.ground(relcrf.Dataset(data)))
    with pytest.raises(DataError, match="E223"):
        fit.learned.vectors_for(ground)


@pytest.mark.parametrize("symmetric", ["", "symmetric "])
def test_the_exported_model_is_the_learned_one(symmetric, tmp_path, capsys, monkeypatch):
    model = relcrf.parse(TEXT.replace("over value(r, s)", f"over {symmetric}value(r, s)"))
    grounding = model.ground(relcrf.Dataset(rows())).with_candidates({"edge": EDGES})
    fit = api.fit(model, grounding, "pseudo", l2=0.1)
    learned = fit.learned
    text = render_learned_model(learned)
    strong = edge_weights(learned, learned.layout, learned.templates, learned.vectors)[EDGES[0]]
    assert f'over {symmetric}value(r, "n 1"), value(r, "n3")' in text
    assert f"# strength {np.linalg.norm(strong):.4g}\n" in text and "gain" not in text
    read = relcrf.parse(text)
    first, second = (t for t in read.spec.templates if t.name != "prior")
    assert (first.name, second.name, first.options.l2) == ("edge_1", "edge_2", 0.5)
    assert first.options.init == tuple(np.round(strong, 6)) and second.options.init != first.options.init
    # It starts at the learned weights, and predicts the same after training.
    ground = read.ground(relcrf.Dataset(rows()))
    start = ground.graph.layout.initial()
    np.testing.assert_allclose(start[12:], learned.vectors["weights"][12:], atol=5e-7)
    again = api.fit(read, ground, "pseudo", l2=0.1)
    assert third(ground).sum() == 200
    scores = [
        api.predict(trained, graph, hidden=third(graph)).score().log_likelihood
        for trained, graph in ((fit, model.ground(relcrf.Dataset(rows()))), (again, ground))
    ]
    # The penalty pulls the weights of the exported model to their initial values, which are the learned weights.
    assert scores[0] == pytest.approx(scores[1], abs=5e-3) and scores[0] > -0.9
    # And as files, on the command line.
    for name, table in rows(60).items():
        Frame({k: np.asarray(v, dtype=object) for k, v in table.items()}).write(tmp_path / f"{name}.csv")
    (tmp_path / "learned.rcrf").write_text(text)
    run = tmp_path / "run"
    code, _, err = relcrf_command(
        capsys, monkeypatch, "train", tmp_path / "learned.rcrf", "-d", tmp_path, "-o", run, "-b", "pseudo"
    )
    assert code == 0, err
    code, _, err = relcrf_command(capsys, monkeypatch, "predict", run, "-d", tmp_path, "-o", tmp_path / "p.csv")
    assert code == 0, err


def test_literal_learner_rejects_tables():
    model = relcrf.parse(TEXT)
    with pytest.raises(UsageError, match=r"E396[\s\S]*'edge' are edges[\s\S]*--backend grafting"):
        api.fit(model, model.ground(relcrf.Dataset(rows(20))), "trmrf")
