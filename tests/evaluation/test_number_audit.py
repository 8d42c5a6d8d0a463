"""Audits of numbers, compared with predictions of each number alone, and on tables with wrong numbers."""

import json

import numpy as np
import pytest
from houses import DECLARATIONS, KIND_LEVELS, MIXED, NEAR_PRICES, houses
from scipy.stats import norm
from tables import write_tables

import relcrf
from relcrf import api
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.audit import AuditSettings
from relcrf.evaluation.number_audit import FALSE_DISCOVERY_RATE, audit_numbers

MODEL = DECLARATIONS + KIND_LEVELS + NEAR_PRICES


@pytest.fixture(scope="module")
def wrong():
    """Return tables in which the prices of four houses are too large by 15, and the indices of these houses."""
    tables = houses(120, 0, unknown=0.2)
    known = [k for k, price in enumerate(tables["house"]["price"]) if price is not None]
    chosen = known[5::25]
    for k in chosen:
        tables["house"]["price"][k] += 15.0
    return tables, chosen


@pytest.fixture(scope="module")
def grounding(wrong):
    return relcrf.parse(MODEL).ground(relcrf.Dataset(wrong[0]))


@pytest.fixture(scope="module")
def fit(grounding):
    return api.fit(relcrf.parse(MODEL), grounding, "dense")


@pytest.mark.parametrize(
    ("backend", "settings"),
    [("dense", {}), ("local", {}), ("ess", {"edges": "tree"}), ("ess", {"edges": "all"})],
    ids=["dense", "local", "tree", "all"],
)
def test_distributions_are_predictions_without_the_number(backend, settings):
    tables = houses(40, 1, unknown=0.0)
    fit = relcrf.parse(MODEL).fit(relcrf.Dataset(tables), backend, **settings)
    found = audit_numbers(fit.learned, fit.ground(relcrf.Dataset(tables)), AuditSettings(folds=0))
    assert found.backend == backend
    for house in (0, 7, 39):
        prices = [None if k == house else price for k, price in enumerate(tables["house"]["price"])]
        alone = fit.predict(relcrf.Dataset({**tables, "house": {**tables["house"], "price": prices}}))
        assert found.scored.means[house] == pytest.approx(alone.means()[0])
        assert found.scored.deviations[house] == pytest.approx(alone.deviations()[0])
        assert found.scored.truth[house] == tables["house"]["price"][house]


@pytest.mark.parametrize("backend", ["auto", "dense", "ess", "pseudo", "local"])
def test_wrong_numbers_are_found(wrong, grounding, backend):
    tables, chosen = wrong
    settings = {"effort": "quick"} if backend == "auto" else {}
    table = api.fit(relcrf.parse(MODEL), grounding, backend, **settings).audit(grounding)
    assert sorted(int(key) for key in table["id"][: len(chosen)]) == chosen
    assert table["improbable"][: len(chosen)].all() and table["improbable"].sum() <= len(chosen) + 2
    assert len(table) == sum(price is not None for price in tables["house"]["price"])
    assert (np.diff(np.abs(table["distance"])) <= 0).all()
    np.testing.assert_allclose(table["distance"], (table["observed"] - table["expected"]) / table["deviation"])


def test_improbable_numbers_are_those_of_benjamini_and_hochberg(fit, grounding):
    found = audit_numbers(fit.learned, grounding, AuditSettings(folds=0))
    (block,) = found.blocks
    table, n_improbable = found.table(block), 0
    p = 2.0 * norm.sf(np.abs(table["distance"]))
    for k in range(len(p)):
        if p[k] <= FALSE_DISCOVERY_RATE * (k + 1) / len(p):
            n_improbable = k + 1
    assert found.summary(block).improbable == n_improbable > 0
    assert table["improbable"].tolist() == [True] * n_improbable + [False] * (len(p) - n_improbable)


def test_numbers_of_unknown_kinds_are_not_audited():
    tables = houses(60, 0, unknown=0.1, unknown_kinds=0.3)
    data = relcrf.Dataset(tables)
    fit = relcrf.parse(MIXED + NEAR_PRICES).fit(data, "dense")
    table = fit.audit(data, "House.price")
    expected = [
        str(k)
        for k, (price, kind) in enumerate(zip(tables["house"]["price"], tables["house"]["kind"], strict=True))
        if price is not None and kind is not None
    ]
    assert sorted(map(str, table["id"])) == sorted(expected)
    with pytest.raises(UsageError) as error:
        fit.audit(data, "House.kind")
    assert error.value.diagnostics[0].code == "E379"


def test_too_few_numbers(wrong, fit):
    tables, _ = wrong
    empty = {**tables, "house": {**tables["house"], "price": [None] * 120}}
    with pytest.raises(DataError) as error:
        fit.audit(relcrf.Dataset(empty))
    assert error.value.diagnostics[0].code == "E225"


def test_command(wrong, fit, tmp_path, relcrf_):
    tables, chosen = wrong
    fit.save(tmp_path / "run")
    rows = {
        name: [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        for name, columns in tables.items()
    }
    folder = write_tables(tmp_path / "tables", **rows)
    arguments = ("audit", str(tmp_path / "run"), "--data", str(folder), "--top", str(len(chosen)))
    code, out, _ = relcrf_(*arguments, "--json", "--out", str(tmp_path / "numbers.csv"))
    facts = json.loads(out)["audited"]["House.price"]
    assert code == 0 and {row["variable"] for row in facts["top"]} == {f"House({k}).price" for k in chosen}
    assert len((tmp_path / "numbers.csv").read_text().splitlines()) == facts["numbers"] + 1
    code, out, _ = relcrf_(*arguments)
    assert code == 0 and f"audited {facts['numbers']} numbers" in out
    code, _, err = relcrf_(*arguments, "--observed", "flat")
    assert code == 2 and "E379" in err


def test_python_interface(wrong, fit, grounding):
    found = audit_numbers(fit.learned, grounding, AuditSettings())
    assert repr(found) == f"NumberAudit({len(found.variables)} numbers)"
    assert len(fit.audit(relcrf.Dataset(wrong[0]))) == len(found.variables)
