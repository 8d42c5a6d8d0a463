"""Prediction targets of proposals: labels that are partly unknown come before known properties."""

import numpy as np
import pytest

from relcrf.data.dataset import Dataset
from relcrf.errors import UsageError
from relcrf.proposal import entity_candidates
from relcrf.proposal.draft import analyse_tables
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.profile import profile_tables
from relcrf.proposal.schema import RelationArgument
from relcrf.proposal.templates import binder_names, propose_templates


def analyse(tables, predicted=None):
    return analyse_tables(Dataset(tables), predicted, ManifestBuilder(None))


def columns_of(rows):
    """Return a table as columns."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def shop(n=60):
    """Return orders of products; 9 of 10 orders have no label, and the category of each product is known."""
    product = {"id": [f"P{k}" for k in range(12)], "category": [("book", "toy", "food")[k % 3] for k in range(12)]}
    order = {
        "id": [f"O{k}" for k in range(n)],
        "payment": [("card", "cash")[k % 2] for k in range(n)],
        "is_fraud": [k % 20 == 0 if k % 10 == 0 else None for k in range(n)],
    }
    line = {"order": [f"O{k % n}" for k in range(2 * n)], "product": [f"P{k * 7 % 12}" for k in range(2 * n)]}
    return {"product": product, "order": order, "line": line}


def test_unknown_labels_come_before_known_properties():
    found = analyse(shop())
    assert found.target.name == "Order.is_fraud" and "missing for 54 of 60" in found.target.reason
    assert found.alternatives[0] == "Product.category"


def test_known_properties_are_targets_without_other_labels():
    tables = shop()
    tables["order"]["is_fraud"] = [k % 20 == 0 for k in range(60)]
    assert analyse(tables).target.name == "Product.category"


def test_labels_come_before_optional_properties():
    page = {
        "id": range(40),
        "licence": [("free", None)[k % 2] if k % 4 else "paid" for k in range(40)],
        "label": ["ab"[k % 2] for k in range(40)],
    }
    assert analyse({"page": page}).target.name == "Page.label"


def test_columns_with_some_empty_cells_follow_labels():
    answer = {f"has_{name}": [("y", "n", "maybe")[k % 3] if k % 25 else None for k in range(50)] for name in "abc"}
    answer["owns_car"] = [("y", "n")[k % 2] if k % 3 else None for k in range(50)]
    answer["income"] = [("low", "high")[k % 2] if k % 5 else None for k in range(50)]
    survey = {"id": range(50), "income": answer.pop("income"), **answer}
    found = analyse({"survey": survey})
    assert found.target.name == "Survey.owns_car" and found.alternatives[0] == "Survey.income"


NUMBERS_NAMED_AFTER_ENTITIES = {
    "team_size": False, "total_teams": False, "team_rating": False, "home_team": True, "team2": True, "team_from": True,
    "guest_team_id": True, "team": True,
}  # fmt: skip


@pytest.mark.parametrize("own", [False, True])
def test_numbers_named_after_entities_are_references_only_with_the_name_of_a_key(own):
    """All numbers are keys of teams by chance, but `team_size` is a number and `home_team` a reference."""
    rng = np.random.default_rng(0)
    rows = [{name: int(rng.integers(1, 16)) for name in NUMBERS_NAMED_AFTER_ENTITIES} for _ in range(60)]
    teams = [{"id": k, "kind": "ab"[k % 2]} | (rows[k - 1] if own else {}) for k in range(1, 61)]
    games = [{"id": f"G{k}"} | row | {"won": "yn"[k % 2]} for k, row in enumerate(rows)]
    tables = {"team": teams} if own else {"team": teams, "game": games}
    schema = analyse({name: columns_of(rows) for name, rows in tables.items()}, "team.kind").schema
    (team,) = (candidate for candidate in schema.candidates if candidate.name == "team")
    expected = {name for name, is_reference in NUMBERS_NAMED_AFTER_ENTITIES.items() if is_reference}
    assert {column for _, column in team.references} == expected


def test_label_called_target_is_not_an_end_of_a_link():
    """A label 0 or 1 is a key of the rows with the keys 0, 1, ... by chance."""
    rows = [{"id": k, "age": 18 + k * 7 % 50, "target": k % 2} for k in range(60)]
    found = analyse({"train": columns_of(rows)})
    assert found.target.name == "Train.target" and not found.schema.relations
    links = [{"source": k, "target": k * 7 % 60} for k in range(60)]
    found = analyse({"train": columns_of(rows), "link": columns_of(links)})
    assert [relation.name for relation in found.schema.relations] == ["Link"]


@pytest.mark.parametrize(("gaps", "expected"), [(0, {"f"}), (1, {f"f{j}" for j in range(5)}), (40, set())])
def test_numbered_columns_with_some_empty_cells_are_evidence(gaps, expected):
    """A few empty cells do not make ratings of numbered columns, of which no cell would be evidence."""
    numbers = np.random.default_rng(0).normal(size=(5, 60)).round(3).tolist()
    rows = {"id": [f"S{k}" for k in range(60)]} | {f"f{j}": column for j, column in enumerate(numbers)}
    rows["f3"] = [None] * gaps + rows["f3"][gaps:]
    found = analyse({"sample": rows | {"label": ["ab"[k % 2] for k in range(60)]}}, "sample.label")
    templates = {template.name: template.text for template in propose_templates(found.schema, found.target)}
    assert templates.keys() == {"prior", *expected}
    assert all(f"by standardise(s.{name})" in templates[name] for name in expected)
    reason = "its values are not evidence; they can be predicted with --predict SampleValue"
    assert (("sample (SampleValue)", reason) in found.schema.excluded_columns) == (not expected)


def test_vectors_of_truth_values_are_not_standardised():
    rows = {"id": [f"S{k}" for k in range(60)]} | {f"w{j}": [k // (j + 1) % 2 for k in range(60)] for j in range(5)}
    found = analyse({"sample": rows | {"label": ["ab"[k % 2] for k in range(60)]}})
    assert [t.text.splitlines()[-1] for t in propose_templates(found.schema, found.target)][1:] == ["    by s.w"]


def friends(n=60):
    """Return people in teams, whose friends are in the same team, with the date and the medium of each friendship."""
    k = range(n)
    person = {
        "id": [f"P{j}" for j in k],
        "team": ["abc"[j % 3] for j in k],
        "nick": [f"N{j}" if j < 9 else None for j in k],
    }
    friend = {"a": person["id"], "b": [f"P{(j + 3 * (1 + j % 7)) % n}" for j in k], "medium": ["web"] * n}
    return {"person": person, "friend": friend | {"since": [f"2024-01-{1 + j % 28:02}" for j in k]}}


def test_columns_of_links_that_are_not_attributes_are_reported():
    excluded = dict(analyse(friends(), "friend").schema.excluded_columns)
    assert excluded["friend.since"] == "proposed relations have no attributes of type datetime"
    assert excluded["friend.medium"] == "at most one distinct value"


def test_requested_target_is_not_a_split():
    reason = "no link connects different values: use it with --split"
    assert ("person.team", reason) in analyse(friends()).schema.excluded_columns
    assert analyse(friends(), "person.team").target.name == analyse(friends(), "team").target.name == "Person.team"


@pytest.mark.parametrize("requested", ["person.nick", "nick", "Person.Nick"])
def test_message_states_why_a_column_cannot_be_predicted(requested):
    with pytest.raises(UsageError, match="only 9 cells have a value, with 9 different texts"):
        analyse(friends(), requested)


@pytest.mark.parametrize("requested", ["payment.refused", "refused"])
def test_events_with_a_requested_column_are_not_summarised(requested):
    k = range(90)
    times = [f"2024-01-{1 + j % 28:02} {j % 24:02}:30:00" for j in k]
    refused = {"refused": ["yn"[j % 2] for j in k]}
    payment = {"id": [f"T{j}" for j in k], "person": [f"P{j % 30}" for j in k], "time": times} | refused
    assert analyse({"person": friends()["person"], "payment": payment}, requested).target.name == "Payment.refused"


def test_references_are_not_positions():
    """The key of an order and a product identify a line of an order, but the lines of a product are not a sequence."""
    k = range(120)
    line = {
        "id": [*k],
        "order": [j // 4 for j in k],
        "product": [j * 7 % 50 for j in k],
        "returned": ["yn"[j % 2] for j in k],
    }
    tables = {"line": line, "order": {"id": [*range(30)], "city": ["ab"[j % 2] for j in range(30)]}}
    found = analyse(tables, "line.returned")
    assert found.target.entity.sequence is None
    assert "same_line_order" in {template.name for template in propose_templates(found.schema, found.target)}
    found = analyse(tables | {"line": line | {"step": [j % 4 for j in k]}}, "line.returned")
    assert found.target.entity.sequence == ("order", "step")


@pytest.mark.parametrize(("n_unique", "expected"), [(0, 0), (1, 8)])
def test_texts_are_compared_only_with_possible_keys(n_unique, expected, monkeypatch):
    """The time does not grow with the square of the number of columns of repeated texts."""
    compared = []
    monkeypatch.setattr(entity_candidates, "_values_overlap", lambda one, other: bool(compared.append((one, other))))
    rows = {"id": [f"S{k}" for k in range(60)], "label": ["ab"[k % 2] for k in range(60)]}
    rows |= {f"t{chr(97 + j)}": [f"v{k % (5 + j)}" for k in range(60)] for j in range(8)}
    rows |= {f"u{j}": [f"v{k}" for k in range(60)] for j in range(n_unique)}
    tables = profile_tables(Dataset({"sample": rows}))
    entity_candidates.find_candidates(tables)
    assert len(compared) == expected


def test_names_of_binders_do_not_collide():
    """A song is called s, like a common neighbour by default; a relation may have more arguments than there are letters."""
    k = np.arange(60)
    tables = {
        "song": {"id": [f"S{j}" for j in k], "genre": ["ab"[j % 2] for j in k]},
        "user": {"id": [f"U{j}" for j in k], "country": ["xyz"[j % 3] for j in k]},
        "artist": {"id": [f"A{j}" for j in k[:12]], "style": ["pq"[j % 2] for j in k[:12]]},
        "performs": {"song": [f"S{j}" for j in k], "artist": [f"A{j * 5 % 12}" for j in k]},
        "follows": {"user": [f"U{j}" for j in k], "artist": [f"A{j * 7 % 12}" for j in k]},
        "likes": {"user": [f"U{j}" for j in k], "song": [f"S{j * 11 % 60}" for j in k]},
    }
    found = analyse(tables, "likes")
    texts = [template.text for template in propose_templates(found.schema, found.target)]
    assert any("where Follows(u, x) and Performs(s, x)" in text for text in texts)
    arguments = [RelationArgument(f"a{j}", "Answer", None, f"a{j}", 4) for j in range(30)]
    names = binder_names(arguments, {"survey": "s"})
    assert len({*names.values()}) == len(names) == 31


def test_tables_without_rows_are_named():
    tables = shop() | {"refund": {"order": [], "amount": []}}
    assert ("refund", "the table has no rows") in analyse(tables).schema.excluded_columns
    with pytest.raises(UsageError) as caught:
        analyse(tables, "refund")
    assert caught.value.diagnostics[0].notes == ("refund: the table has no rows",)
