"""Priors of agreement weights that `relcrf new` writes into models."""

import json
import re

import numpy as np
import pytest
from tables import small_web, write_tables
from typer.testing import CliRunner

import relcrf
from relcrf.cli.commands import app
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.graph.agreement_prior import MAX_CRITICAL_AGREEMENT
from relcrf.graph.labelled_factors import measure_homophily
from relcrf.proposal import proposal, trial


def web_with_few_labels(folder, n_labelled, *, with_words=True, seed=0):
    """Write tables of 300 pages with 3 categories: 70 % of the links are within a category, words depend on it."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=300)
    page = [{"id": f"p{k}", "category": "abc"[kind[k]] if k < n_labelled else None} for k in range(300)]
    link = []
    for source in range(300):
        for _ in range(3):
            same = rng.random() < 0.7
            target = rng.choice(np.flatnonzero((kind == kind[source]) == same))
            link.append({"source": f"p{source}", "target": f"p{target}"})
    words = [
        {"page": f"p{k}", "word": f"w{kind[k] * rng.integers(2) * 8 + rng.integers(8)}"}
        for k in range(300)
        for _ in range(8)
    ]
    return write_tables(folder, page=page, link=link, **({"page_words": words} if with_words else {}))


def propose(folder):
    made = proposal.propose(str(folder), folder / "model.rcrf", "page.category", DEFAULT_MEMORY, force=False)
    made.write()
    return made


def template(project, name):
    return next(each for each in project.draft.templates if each.name == name)


def declared(project, name):
    """Return the mean and the L2 strength that the text of a template declares; None if it declares none."""
    found = re.search(r"init (\S+)\s+l2 (\S+)$", template(project, name).text)
    return None if found is None else (float(found[1]), float(found[2]))


def test_prior_of_linked_labels_is_written_and_trains(tmp_path):
    project = propose(small_web(tmp_path / "web"))
    grounding = project.draft.grounding
    homophily = measure_homophily(grounding.groups("co_link"), grounding.states, grounding.graph.domains.number)
    mean, l2 = declared(project, "co_link")
    assert 0 < mean <= MAX_CRITICAL_AGREEMENT and l2 > 0.1
    block = next(each for each in grounding.graph.layout.blocks if each.name == "co_link")
    assert (block.initial, block.l2) == (mean, l2)
    comment = f"prior from {homophily.pairs} labelled pairs: {homophily.fraction:.0%} equal, "
    assert comment in template(project, "co_link").comment and comment in project.model.read_text()
    model, data = relcrf.load(project.model), relcrf.Dataset(project.data)
    assert model.warnings == ()
    model.check(data)
    assert len(model.fit(data, "ess").predict(data).table()) >= 12


def test_table_is_replaced_if_few_labels_are_linked(tmp_path):
    many, few = (propose(web_with_few_labels(tmp_path / f"web{n}", n)) for n in (300, 40))
    assert declared(many, "link") is None and "over  a.category, b.category" in many.model.read_text()
    mean, _ = declared(few, "link")
    assert mean > 0 and "one weight for equality; prior from" in template(few, "link").comment
    weights = {plan.name: plan.weights for plan in few.draft.plans}
    assert (weights["link"], weights["co_link"]) == (1, 1)


def test_features_replace_labels_of_linked_pages(tmp_path):
    folder = web_with_few_labels(tmp_path / "web", 300)
    page = (folder / "page.csv").read_text().splitlines()
    links = [line.split(",") for line in (folder / "link.csv").read_text().splitlines()[1:]]
    labelled = []
    for k in range(300):  # an independent set keeps its labels; pages with a common neighbour too
        name = f"p{k}"
        near = {other for pair in links if name in pair for other in pair}
        near |= {other for pair in links if near & set(pair) for other in pair}
        if not near & set(labelled):
            labelled.append(name)
    rows = [row if row.split(",")[0] in {"id", *labelled} else row.split(",")[0] + "," for row in page]
    (folder / "page.csv").write_text("\n".join(rows) + "\n")
    project = propose(folder)
    assert declared(project, "link") is not None
    assert "prior from the features of linked pairs" in template(project, "link").comment
    (folder / "page_words.csv").unlink()
    (folder / "model.rcrf").unlink()
    assert "init" not in propose(folder).model.read_text()


def test_command_prints_the_prior(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "MAX_VARIABLES", 0)
    folder = small_web(tmp_path / "web")
    result = CliRunner().invoke(app, ["new", str(folder), "--out", str(tmp_path / "m.rcrf"), "--json"])
    assert result.exit_code == 0
    comments = {each["name"]: each["description"] for each in json.loads(result.stdout)["templates"]}
    assert re.search(r"prior from \d+ labelled pairs: \d+% equal, \d+% by chance", comments["co_link"])


@pytest.mark.parametrize("command", ["check", "train"])
def test_commands_accept_the_model(tmp_path, command):
    folder = web_with_few_labels(tmp_path / "web", 40)
    project = propose(folder)
    options = ["--out", str(tmp_path / "run"), "--backend", "pseudo"] if command == "train" else []
    result = CliRunner().invoke(app, [command, str(project.model), "--data", str(folder), *options])
    assert result.exit_code == 0, result.output
