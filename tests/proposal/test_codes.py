"""Codes with leading zeros, padded texts and nested objects in proposals: tables are linked although keys differ in form."""

import json

import numpy as np
import pytest
from tables import write_tables

from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.proposal import proposal


def propose(folder, tmp_path):
    made = proposal.propose(str(folder), tmp_path / "model.rcrf", "Customer.churn", DEFAULT_MEMORY)
    made.write()
    return made


def analyse(folder):
    """Return the schema and the target of a proposal, and the text of its manifest, without a model."""
    analysis, manifest = proposal.analyse_source(str(folder), "Customer.churn", DEFAULT_MEMORY)
    return analysis, manifest.to_toml("model.rcrf")


def roles(made):
    return {f.table: f.role for f in made.draft.analysis.schema.findings}


def bind_proposal(made):
    """Return the bound tables of a proposal, which were read with its manifest."""
    return made.draft.grounding.bound


def tables(key=str, reference=str, n=120):
    """Return customers with keys and 3 calls each that refer to them, in the forms of two functions of a number."""
    rng = np.random.default_rng(0)
    customer = [
        {"Customer No.": key(k), "churn": "yn"[int(rng.integers(2))] if k % 3 else None, "plan": "abc"[k % 3]}
        for k in range(n)
    ]
    call = [{"call": f"x{k}", "customer": reference(k % n), "topic": "pqr"[int(rng.integers(3))]} for k in range(3 * n)]
    return {"customer": customer, "call": call}


def code(number):
    return f"{number:06d}"


@pytest.mark.parametrize(
    ("key", "reference", "padded"), [(code, str, "call"), (str, code, "customer"), (code, code, "")]
)
def test_numbers_refer_to_codes_with_leading_zeros(key, reference, padded, tmp_path):
    made = propose(write_tables(tmp_path / "d", **tables(key, reference)), tmp_path)
    assert roles(made)["call"] == "relation CallCustomer"
    assert ("digits = { " in made.manifest[1]) == bool(padded)
    assert any("lacks the leading zeros of" in note for note in made.draft.notes) == bool(padded)
    bound = bind_proposal(made)
    (count,) = bound.connection.execute('SELECT count(*) FROM "rel.CallCustomer"').fetchone()
    assert count == 360


def test_numbers_with_another_name_do_not_refer_to_codes(tmp_path):
    found = tables(code)
    found["call"] = [{"call": row["call"], "minutes": row["customer"], "topic": row["topic"]} for row in found["call"]]
    analysis, manifest = analyse(write_tables(tmp_path / "d", **found))
    assert not [f.role for f in analysis.schema.findings if "CallMinutes" in f.role] and "digits" not in manifest


def test_codes_with_leading_zeros_are_not_numbers(tmp_path):
    found = tables(code)
    for k, row in enumerate(found["customer"]):
        row["branch"] = f"{k % 7:03d}"
    made = propose(write_tables(tmp_path / "d", **found), tmp_path)
    assert "branch" in {template.name for template in made.draft.templates} and "per  c.branch" in made.draft.text


def test_attributes_of_padded_keys_are_joined(tmp_path):
    found = tables(code)
    found["region"] = [{"customer": f" {code(k)} ", "region": "nsw"[k % 3]} for k in range(120)]
    made = propose(write_tables(tmp_path / "d", **found), tmp_path)
    assert roles(made)["region"] == "attributes of Customer" and "per  c.region" in made.draft.text
    bound = bind_proposal(made)
    (count,) = bound.connection.execute('SELECT count("x.region") FROM "ent.Customer"').fetchone()
    assert count == 120


def test_fields_of_json_objects_are_references(tmp_path):
    found = tables(code, code)
    calls = found.pop("call")
    folder = write_tables(tmp_path / "d", **found)
    lines = [
        json.dumps({"call": row["call"], "customer": {"no": row["customer"], "since": {"year": 2020}}}) for row in calls
    ]
    (folder / "call.jsonl").write_text("\n".join(lines))
    made = propose(folder, tmp_path)
    assert roles(made)["call"] == "relation CallCustomerNo"
    assert any(
        "the fields of objects are columns: customer_no, customer_since_year" in note for note in made.draft.notes
    )


@pytest.mark.parametrize(("others", "is_missing"), [("red blue", True), ("+ 0", False)])
def test_signs_for_missing_categories(others, is_missing, tmp_path):
    found = tables()
    values = [*others.split(), "-", "n/a"]
    for k, row in enumerate(found["customer"]):
        row["colour"] = values[k % 4]
    _, manifest = analyse(write_tables(tmp_path / "d", **found))
    assert ('missing = ["-", "n/a"]' in manifest) == is_missing


@pytest.mark.parametrize(("text", "others"), [("none", ["card", "identity"]), ("NA", ["DE", "FR"]), ("-", "+=")])
def test_text_is_missing_among_numbers_and_a_value_elsewhere(text, others, tmp_path):
    found = tables()
    for k, row in enumerate(found["customer"]):
        row |= {"income": text if k % 20 == 3 else 1000 + 17 * k, "kind": [text, *others][k % 3]}
    made = propose(write_tables(tmp_path / "d", **found), tmp_path)
    assert f'missing = {{ income = ["{text}"] }}\n' in made.manifest[1]
    assert any(f"customer.kind contains {text!r}, which remains a value" in note for note in made.draft.notes)
    bound = bind_proposal(made)
    sql = 'SELECT count("x.income"), count("x.kind"), count(DISTINCT "x.kind") FROM "ent.Customer"'
    assert bound.connection.execute(sql).fetchall() == [(114, 120, 3)]


def test_text_without_another_meaning_is_missing_in_all_columns(tmp_path):
    found = tables()
    for k, row in enumerate(found["customer"]):
        row |= {"income": "n/a" if k % 20 == 3 else 1000 + 17 * k, "kind": ["n/a", "a", "b"][k % 3], "empty": "n/a"}
    _, manifest = analyse(write_tables(tmp_path / "d", **found))
    assert 'missing = ["n/a"]\n' in manifest


def test_whole_numbers_that_pandas_writes_as_floats_are_keys_and_labels(tmp_path):
    found = tables(str, lambda k: "" if k % 40 == 7 else f"{k}.0")
    for k, row in enumerate(found["customer"]):
        row |= {"churn": f"{k % 2}.0" if k % 3 else "", "score": "" if k == 5 else f"{k}.0", "version": f"{k % 3}.0"}
    made = propose(write_tables(tmp_path / "d", **found), tmp_path)
    assert roles(made)["call"].startswith("relation CallCustomer")
    assert 'formats = { customer = "1.0" }' in made.manifest[1] and 'formats = { churn = "1.0" }' in made.manifest[1]
    assert any("whole numbers such as 1.0" in note for note in made.draft.notes)
    bound = bind_proposal(made)
    (count,) = bound.connection.execute('SELECT count(*) FROM "rel.CallCustomer"').fetchone()
    assert count == 351
    types = {a.column: a.type for entity in made.draft.analysis.schema.entities for a in entity.attributes}
    assert (types["churn"], types["score"], types["version"]) == ("bool", "real", "real")


@pytest.mark.parametrize("text", ["n/a", "NA", "unknown"])
def test_formats_beside_missing_texts_are_found(text, tmp_path):
    lines = ["id;sum;since;churn"]
    for k in range(120):
        date = text if k % 30 == 9 else f"{1 + k % 28:02d}.{1 + k % 12:02d}.2020"
        lines.append(
            f"c{k};{text if k % 20 == 3 else f'{1000 + 17 * k},5{k % 10}'};{date};{'yn'[k % 2] if k % 3 else ''}"
        )
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "customer.csv").write_text("\n".join(lines) + "\n")
    made = propose(folder, tmp_path)
    assert f'missing = ["{text}"]\n' in made.manifest[1] and "formats" not in made.manifest[1]
    types = {a.column: a.type for a in made.draft.analysis.schema.entities[0].attributes}
    assert (types["sum"], types["since"]) == ("real", "datetime")
    sql = 'SELECT count("x.sum"), count("x.since") FROM "ent.Customer"'
    assert bind_proposal(made).connection.execute(sql).fetchall() == [(114, 116)]


def test_column_of_another_meaning_keeps_its_signs(tmp_path):
    found = tables()
    for k, row in enumerate(found["customer"]):
        row |= {"colour": ["red", "blue", "-"][k % 3], "trend": "+-="[k % 3]}
    _, manifest = analyse(write_tables(tmp_path / "d", **found))
    assert "missing =" not in manifest
