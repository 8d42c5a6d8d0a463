"""Templates of proposals for entities whose owners share something, such as orders of customers with one address."""

import numpy as np
import pytest

import relcrf
from relcrf.proposal.draft import analyse_tables, propose_model
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.templates import propose_templates


def shop(streets_per_customer=1):
    """Return orders of customers who live in 40 streets, one address per row; a street has about four customers.

    The first customer has an old address, so that the addresses are not attributes of the customers.
    """
    rng = np.random.default_rng(0)
    customer = {"id": [f"C{k}" for k in range(160)], "segment": [("a", "b")[k % 2] for k in range(160)]}
    order = {
        "id": [f"O{k}" for k in range(400)],
        "customer": [f"C{rng.integers(160)}" for _ in range(400)],
        "is_fraud": [None if k % 2 else bool(rng.random() < 0.3) for k in range(400)],
    }
    rows = [(f"C{k}", f"Street {(k + j) % 40}") for k in range(160) for j in range(streets_per_customer)]
    rows.append(("C0", "Street 39"))
    address = {"customer": [one for one, _ in rows], "street": [other for _, other in rows]}
    return {"customer": customer, "order": order, "address": address}


def test_orders_of_customers_with_one_address_are_paired():
    tables = shop()
    draft = propose_model(tables)
    assert draft.analysis.target.name == "Order.is_fraud"
    bindings = {plan.name: plan.bindings for plan in draft.plans}
    owner, streets, n = tables["order"]["customer"], {}, 400
    for one, street in zip(*tables["address"].values(), strict=True):
        streets.setdefault(one, set()).add(street)
    pairs = [(k, j) for k in range(n) for j in range(k + 1, n) if owner[k] != owner[j]]
    assert bindings["same_order_customer_street"] == sum(bool(streets[owner[k]] & streets[owner[j]]) for k, j in pairs)
    comment = next(each.comment for each in draft.templates if each.name == "same_order_customer_street")
    assert comment.startswith(
        "one weight: Order entities whose Customer entities have a common Street value tend to have"
    )
    assert relcrf.parse(draft.text).warnings == ()


@pytest.mark.parametrize(("streets", "target"), [(6, "order.is_fraud"), (1, "customer.segment")])
def test_frequent_values_and_other_targets_are_not_paired(streets, target):
    found = analyse_tables(relcrf.Dataset(shop(streets)), target, ManifestBuilder(None))
    names = [template.name for template in propose_templates(found.schema, found.target)]
    assert "prior" in names and "same_order_customer_street" not in names
