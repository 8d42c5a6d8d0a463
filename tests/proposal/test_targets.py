"""Prediction targets of proposals: labels that are partly unknown come before known properties."""

from relcrf.data.dataset import Dataset
from relcrf.proposal.draft import analyse_tables
from relcrf.proposal.manifest import ManifestBuilder


def analyse(tables):
    return analyse_tables(Dataset(tables), None, ManifestBuilder(None))


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
