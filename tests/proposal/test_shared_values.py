"""Values that entities share, such as households, are relations in proposals; codes are not numbers."""

import numpy as np
import polars as pl
import pytest
from tables import write_tables

import relcrf
from relcrf.data.dataset import Dataset
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.proposal import proposal
from relcrf.proposal.draft import analyse_tables
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.names import names_key


def survey(household):
    return [
        {
            "id": f"S{k}",
            "household_id": household(k // 3),
            "height": 150 + k % 45,
            "owns_car": ("yes", "no", "")[k // 3 % 3],
        }
        for k in range(150)
    ]


def analyse(folder, predicted=None):
    return analyse_tables(Dataset(folder), predicted, ManifestBuilder(folder))


@pytest.mark.parametrize("household", [lambda k: f"H{k}", lambda k: 1000 + k])
def test_people_of_one_household_are_linked(household, tmp_path):
    folder, out = write_tables(tmp_path / "d", survey=survey(household)), tmp_path / "m.rcrf"
    project = proposal.propose(str(folder), out, None, DEFAULT_MEMORY)
    project.write()
    plans = {plan.name: plan.bindings for plan in project.draft.plans}
    assert plans == {
        "prior": 150, "height": 150, "survey_household_id": 150, "same_survey_household_id": 150,
    }  # fmt: skip
    model = relcrf.load(out)
    assert model.warnings == () and "household_id" not in project.draft.text.split("entity Survey {")[1].split("}")[0]
    grounding = model.ground(relcrf.Dataset(folder, manifest=out.with_suffix(".toml")))
    assert len(grounding.states) == 150


def test_shared_values_are_attributes_if_they_are_the_target_or_few(tmp_path):
    folder = write_tables(tmp_path / "d", survey=survey(lambda k: f"H{k}"))
    found = analyse(folder, "survey.household_id")
    assert found.target.name == "Survey.household_id" and not found.schema.relations
    few = write_tables(tmp_path / "few", survey=survey(lambda k: f"H{k % 20}"))
    found = analyse(few)
    assert not found.schema.relations and "household_id" in {a.name for a in found.schema.entities[0].attributes}


def test_numbers_that_are_not_named_like_codes_remain_numbers(tmp_path):
    rows = [{**row, "order_no": 10 * (k // 2)} for k, row in enumerate(survey(lambda k: f"H{k}"))]
    rows = [{**row, "amount_paid": 100 * (k // 2), "branch_code": 7 * (k % 40)} for k, row in enumerate(rows)]
    found = analyse(write_tables(tmp_path / "d", survey=rows)).schema
    types = {a.name: a.type for a in found.entities[0].attributes}
    assert types["height"] == types["order_no"] == types["amount_paid"] == "integer"
    assert [relation.name for relation in found.relations] == ["SurveyHouseholdId", "SurveyBranchCode"]


@pytest.mark.parametrize("name", ["household_id", "customerId", "PostCode", "zip", "Phone No."])
def test_names_of_keys(name):
    assert names_key(name)


@pytest.mark.parametrize("name", ["id", "paid", "amount_paid", "grid", "hockey", "code", "piano"])
def test_names_that_only_end_like_those_of_keys(name):
    assert not names_key(name)


def test_references_that_are_nan_are_missing(tmp_path):
    """Whole numbers beside missing ones are stored as real numbers, and some programs store NaN for a missing one."""
    n = 120
    shop = {"id": list(range(30)), "city": ["ab"[k % 2] for k in range(30)]}
    owner = {
        "owner_id": [float(k % 35) if k % 3 else np.nan for k in range(n)],
        "churn": ["yn"[k % 2] for k in range(n)],
    }
    customer = {"id": list(range(n)), "shop_id": [float(k % 30) if k % 4 else np.nan for k in range(n)]} | owner
    for name, table in {"shop": shop, "customer": customer}.items():
        pl.DataFrame(table).write_parquet(tmp_path / f"{name}.parquet")
    project = proposal.propose(str(tmp_path), tmp_path / "m.rcrf", "customer.churn", DEFAULT_MEMORY)
    plans = {plan.name: plan.bindings for plan in project.draft.plans}
    assert plans["customer_shop_id_city"] == n - 30 and plans["customer_owner_id"] == n - 40
