"""Event tables in proposals: rows such as payments are summarised per entity, and link the entities of an event."""

import csv

import numpy as np
import pandas as pd
import pytest
from tables import write_tables

import relcrf
from relcrf.data.frame import Frame
from relcrf.data.store import Store
from relcrf.datasets.fraud import fraud_tables, write_exports
from relcrf.estimators import RelationalCRF
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.proposal import proposal
from relcrf.proposal.draft import analyse_tables
from relcrf.proposal.manifest import ManifestBuilder


def propose(folder, out, predicted=None):
    made = proposal.propose(str(folder), out, predicted, DEFAULT_MEMORY, force=True)
    made.write()
    return made


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Return a folder with 60 customers, 200 payments and 40 devices."""
    rng = np.random.default_rng(0)
    customer = [{"id": f"C{k}", "age": int(rng.integers(18, 80)), "fraud": ("yes", "no", "")[k % 3]} for k in range(60)]
    device = [{"id": f"D{k}", "system": "ab"[k % 2]} for k in range(40)]
    payment = [
        {
            "payment_id": f"P{k}",
            "customer": f"C{rng.integers(55)}",
            "device": f"D{rng.integers(40)}",
            "amount": round(float(rng.gamma(2, 20)), 2),
            "channel": ("web", "app")[int(rng.integers(2))],
            "time": f"2025-01-{1 + k % 28:02}T{k % 24:02}:30:00",
        }
        for k in range(200)
    ]
    return write_tables(tmp_path_factory.mktemp("shop"), customer=customer, device=device, payment=payment)


@pytest.fixture(scope="module")
def shop_project(shop, tmp_path_factory):
    """Return the proposal for the shop."""
    return propose(shop, tmp_path_factory.mktemp("proposal") / "m.rcrf")


def names(project):
    return [template.name for template in project.draft.templates if template.is_active]


def roles(project):
    return [(f.table, f.role) for f in project.draft.analysis.schema.findings]


def test_payments_are_summarised_for_each_customer(shop, shop_project):
    assert shop_project.draft.analysis.target.name == "Customer.fraud"
    assert {("payment", "events"), ("payment", "relation CustomerDevice")} <= set(roles(shop_project))
    dataset = relcrf.Dataset(shop_project.data, manifest=shop_project.manifest[0])
    columns = ["id", "n_payment", "n_device", "mean_amount", "max_amount", "share_channel_web", "share_time_at_night"]
    assert set(columns) <= set(dataset.tables["customer"].columns)
    selected = ", ".join(columns)
    found = dataset.connection.execute(f"SELECT {selected} FROM {dataset.tables['customer'].scan} AS raw").fetchall()
    with open(shop / "payment.csv", newline="") as file:
        payments = list(csv.DictReader(file))
    assert len(found) == 60
    for key, n, devices, mean, high, web, night in found:
        own = [row for row in payments if row["customer"] == key]
        assert int(n) == len(own) and int(devices) == len({row["device"] for row in own})
        if not own:
            assert mean is high is web is night is None
            continue
        amounts = [float(row["amount"]) for row in own]
        assert float(mean) == pytest.approx(np.mean(amounts)) and float(high) == max(amounts)
        assert float(web) == pytest.approx(np.mean([row["channel"] == "web" for row in own]))
        assert float(night) == pytest.approx(np.mean([int(row["time"][11:13]) < 6 for row in own]))


def test_summaries_have_other_names_than_columns(shop, tmp_path):
    """The query selects all columns of customers, also those that are left out of the model, such as a constant one."""
    folder = tmp_path / "d"
    folder.mkdir()
    for path in shop.glob("*.csv"):
        (folder / path.name).write_text(path.read_text())
    header, *lines = (shop / "customer.csv").read_text().splitlines()
    rows = [f"{header},n_payment", *(f"{line},7" for line in lines)]
    (folder / "customer.csv").write_text("\n".join(rows) + "\n")
    project = propose(folder, tmp_path / "m.rcrf", "customer.fraud")
    assert {"n_payment2", "n_device"} <= set(names(project))


def test_check_names_the_use_of_each_table(shop_project):
    data = relcrf.Dataset(shop_project.data, manifest=shop_project.manifest[0])
    tables = shop_project.draft.model.check_tables(data).tables
    used = {table.name: table.used_by for table in tables}
    assert any(str(table).endswith("used by the queries of the manifest") for table in tables)
    assert used["payment_rows"] == used["customer_rows"] == ("queries",)
    assert "CustomerDevice" in used["customer_device"] and "Customer" in used["Customer"]


def test_customers_with_a_common_device_are_paired(shop, shop_project):
    with open(shop / "payment.csv", newline="") as file:
        used = {(row["customer"], row["device"]) for row in csv.DictReader(file)}
    pairs = {frozenset((a, b)) for a, d in used for b, e in used if d == e and a != b}
    plan = next(plan for plan in shop_project.draft.plans if plan.name == "same_customer_device")
    assert plan.bindings == len(pairs) > 0


def test_comments_do_not_depend_on_singular_and_plural(shop_project):
    comments = {template.name: template.comment for template in shop_project.draft.templates}
    assert comments["age"] == "fraud depends on age"
    assert comments["customer_device_system"] == "fraud depends on system of each Device entity in CustomerDevice"
    assert "Customer entities with a common Device entity tend to have equal labels" in comments["same_customer_device"]


def test_summaries_do_not_contain_the_target(shop_project):
    (entity,) = (e for e in shop_project.draft.analysis.schema.entities if e.name == "Customer")
    assert not [a.name for a in entity.attributes if "fraud" in a.name and a.name != "fraud"]


def test_events_with_the_requested_target_are_entities(shop):
    analysis = analyse_tables(relcrf.Dataset(shop), "payment.channel", ManifestBuilder(shop))
    assert analysis.target.name == "Payment.channel"
    assert ("payment", "entity Payment") in [(f.table, f.role) for f in analysis.schema.findings]


def test_dates_without_times_are_not_events(tmp_path):
    rng = np.random.default_rng(1)
    city = [{"id": f"T{k}", "size": int(rng.integers(9))} for k in range(5)]
    person = [
        {"id": f"P{k}", "city": f"T{k % 5}", "born": f"19{60 + k % 40}-05-17", "label": "xy"[k % 2]} for k in range(50)
    ]
    project = propose(write_tables(tmp_path / "d", city=city, person=person), tmp_path / "m.rcrf")
    assert ("person", "entity Person") in roles(project)


def test_exports_of_a_company_become_a_model(tmp_path):
    """The model has the same tuples as one of the clean tables, except for those that the exports lack."""
    tables = fraud_tables(1)
    (tmp_path / "exports").mkdir()
    write_exports(tables, tmp_path / "exports")
    project = propose(tmp_path / "exports", tmp_path / "m.rcrf")
    assert project.draft.analysis.target.name == "Customers.Fraud"
    notes = "\n".join(project.draft.notes)
    for text in (
        "'C00003' stands in rows 4 and 401",
        "customers_rows: dropped 1 row with the Customer ID of another row: 'C00003' in rows 4 and 401 (duplicates",
        "contains numbers or dates and 'n/a'",
        "the encoding cp1252, decimal commas in Credit limit, dates %d.%m.%Y in Sign-up date",
        "rows without a known Customers or Devices entity, such as 'C00007', 'D01340' (orphans",
    ):
        assert text in notes
    bound = project.draft.grounding.bound
    found = bound.connection.execute(
        'SELECT key, "x.Age", "x.credit_limit", make_timestamp("x.sign_up_date")::DATE::VARCHAR FROM "ent.Customers" ORDER BY 1'
    )
    customer = tables["customer"]
    expected = [
        (key, None if k % 97 == 5 else age, limit, day)
        for k, (key, age, limit, day) in enumerate(
            zip(*(customer[c] for c in ("id", "age", "limit", "signup")), strict=True)
        )
    ]
    assert found.fetchall() == expected
    used = set(zip(tables["payment"]["customer"], tables["payment"]["device"], strict=True))
    known = set(tables["device"]["id"][np.arange(len(tables["device"]["id"])) % 400 != 7])
    ((n_links,),) = bound.connection.execute('SELECT count(*) FROM "rel.CustomersDevices"').fetchall()
    assert n_links == len({pair for pair in used if pair[1] in known})


@pytest.fixture(scope="module")
def repeated_customers(shop, tmp_path_factory):
    """Return a folder with the payments of the shop and many customers, of whom 50 have a second row; and both lists."""
    with open(shop / "customer.csv", newline="") as file:
        first = list(csv.DictReader(file))
    rng = np.random.default_rng(1)
    first += [{"id": f"D{k}", "age": str(18 + k % 60), "fraud": ""} for k in range(200_000)]
    repeated = [first[k] | {"age": "99"} for k in rng.choice(len(first), 50, replace=False)]
    folder = tmp_path_factory.mktemp("repeated") / "d"
    write_tables(folder, customer=first + repeated)
    (folder / "payment.csv").write_bytes((shop / "payment.csv").read_bytes())
    manifest = propose_manifest(folder)
    assert manifest.count("duplicates") == 1 and 'key = "id"' in manifest
    (folder / "dataset.toml").write_text(manifest)
    return folder, first, repeated


@pytest.mark.parametrize("threads", [1, 8])
def test_first_row_of_the_file_with_a_repeated_key_is_read(repeated_customers, threads, monkeypatch):
    """The rows of a join have any order; the policy therefore applies to the rows of the file."""
    folder, first, repeated = repeated_customers
    number = 1 + next(k for k, row in enumerate(first) if row["id"] == repeated[0]["id"])
    expected = {(row["id"], row["age"]) for row in first}
    monkeypatch.setattr(Store, "new_database", with_threads(Store.new_database, threads))
    for _ in range(min(threads, 2)):
        dataset = relcrf.Dataset(folder)
        (repair,) = dataset.repairs
        assert repair.count == 50 and repair.location == str(folder / "customer.csv")
        assert repair.example == f"'{repeated[0]['id']}' in rows {number} and {len(first) + 1}"
        scan = dataset.tables["customer"].scan
        found = dataset.connection.execute(f"SELECT id, CAST(age AS VARCHAR) FROM {scan}").fetchall()
        assert len(found) == len(first) and set(found) == expected


def test_means_do_not_depend_on_threads(shop, tmp_path, monkeypatch):
    """The last bits of a sum depend on the order of the numbers, which DuckDB's threads read in any order."""
    rng = np.random.default_rng(0)
    for name in ("customer", "device"):
        (tmp_path / f"{name}.csv").write_bytes((shop / f"{name}.csv").read_bytes())
    n = 250_000
    payments = pd.DataFrame({"payment_id": np.arange(n), "amount": rng.gamma(2, 20, n), "time": "2025-01-01T12:30:00"})
    payments["customer"], payments["device"], payments["channel"] = (
        np.array(["C0", "C1"])[np.arange(n) % 2],
        "D1",
        "web",
    )
    payments.to_csv(tmp_path / "payment.csv", index=False)
    (tmp_path / "dataset.toml").write_text(propose_manifest(shop))
    found = set()
    for threads in (1, 8, 8):
        with monkeypatch.context() as patch:
            patch.setattr(Store, "new_database", with_threads(Store.new_database, threads))
            dataset = relcrf.Dataset(tmp_path)
        query = f"SELECT mean_amount FROM {dataset.tables['customer'].scan} WHERE mean_amount > 0 ORDER BY id"
        found.add(tuple(dataset.connection.execute(query).fetchall()))
    assert len(found) == 1 and len(found.pop()) == 2


def propose_manifest(folder):
    """Return the manifest that `relcrf new` writes, without the trial and the grounding of the model."""
    manifest = ManifestBuilder(folder)
    analyse_tables(relcrf.Dataset(folder), "customer.fraud", manifest)
    return manifest.to_toml("m.rcrf")


def with_threads(new_database, threads):
    def limited(store, path):
        connection = new_database(store, path)
        connection.execute(f"SET threads = {threads}")
        return connection

    return limited


def test_fraud_exports_are_reproducible(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        paths = write_exports(fraud_tables(3), tmp_path / name)
    contents = [[(tmp_path / name / path.name).read_bytes() for path in paths] for name in "ab"]
    assert contents[0] == contents[1]
    text = contents[0][0].decode("cp1252")
    assert text.startswith("Customer ID;Name;") and "Müller" in text


def test_estimator_proposes_the_model_of_the_command(tmp_path):
    """Data frames are reshaped as the files are, in training and in prediction."""
    tables = fraud_tables(2)
    tables["payment"]["payment_id"] = tables["payment"].pop("id")
    chosen = {"customer": np.arange(len(tables["customer"]["id"])) < 1000}
    chosen["payment"] = np.isin(tables["payment"]["customer"], tables["customer"]["id"][chosen["customer"]])
    tables |= {name: {c: column[rows] for c, column in tables[name].items()} for name, rows in chosen.items()}
    (tmp_path / "files").mkdir()
    for name, columns in tables.items():
        Frame(columns).write(tmp_path / "files" / f"{name}.csv")
    command = propose(tmp_path / "files", tmp_path / "m.rcrf")
    frames = {name: pd.DataFrame(columns) for name, columns in tables.items()}
    estimator = RelationalCRF(backend="local").fit(frames)
    assert [t.name for t in estimator.model_.spec.templates] == names(command)
    assert {"share_time_at_night", "same_customer_device"} <= set(names(command))
    found = estimator.predict(frames)
    assert len(found) == sum(verdict is None for verdict in tables["customer"]["fraud"])
    fewer = {**frames, "customer": frames["customer"].iloc[:500]}
    fewer["payment"] = frames["payment"][frames["payment"]["customer"].isin(fewer["customer"]["id"])]
    assert 0 < len(estimator.predict(fewer)) < len(found)


def test_summaries_of_dated_rows_have_a_warning(shop, shop_project, tmp_path):
    """Later payments are a leak, also if no aggregates are tried."""
    (warning,) = [note for note in shop_project.draft.notes if "later than a prediction" in note]
    assert "that summarise payment" in warning and "column 'time'" in warning and "docs/how-to/time.md" in warning
    assert f"# Warning: {warning}." in shop_project.model.read_text()
    undated = {
        name: list(csv.DictReader((shop / f"{name}.csv").read_text().splitlines())) for name in ("customer", "payment")
    }
    payments = [
        {name: cell for name, cell in row.items() if name not in ("time", "payment_id")} for row in undated["payment"]
    ]
    folder = write_tables(tmp_path / "d", customer=undated["customer"], payment=payments)
    assert not analyse_tables(relcrf.Dataset(folder), "customer.fraud", ManifestBuilder(folder)).schema.warnings


def test_dated_rows_of_an_entity_have_a_time(tmp_path):
    visit = [
        {"id": f"V{k}", "patient": f"P{k % 10}", "day": f"2025-01-{1 + k % 28:02}", "back": ("yes", "no", "")[k % 3]}
        for k in range(60)
    ]
    patient = [{"id": f"P{k}", "born": f"19{50 + k}-05-01", "ward": "abc"[k % 3]} for k in range(10)]
    folder = write_tables(tmp_path / "d", visit=visit, patient=patient)
    visits, patients = (
        analyse_tables(relcrf.Dataset(folder), target, ManifestBuilder(folder)).schema.warnings
        for target in ("visit.back", "patient.ward")
    )
    assert "declare 'time day'" in visits[0] and "--split folds=4,time=day" in visits[0] and not patients


@pytest.mark.parametrize("column", ["age", "age in years"])
def test_files_whose_names_are_not_names_of_the_language_are_summarised(column, tmp_path):
    """Several queries read a file that has another name in the model, and possibly columns with other names."""
    customer = [
        {"id": f"C{k}", column: 18 + k % 50, "zip": f"Z{k % 40}", "fraud": ("yes", "no", "")[k % 3]} for k in range(90)
    ]
    payment = [
        {"customer": f"C{k % 80}", "amount": k / 7, "time": f"2025-01-{1 + k % 28:02} {k % 24:02}:30:00"}
        for k in range(200)
    ]
    tables = {"my-customers": customer, "2025 payments": payment}
    project = propose(write_tables(tmp_path / "d", **tables), tmp_path / "m.rcrf")
    bindings = {plan.name: plan.bindings for plan in project.draft.plans}
    expected = {column.replace(" ", "_"), "my_customers_zip", "n_2025_payments"}
    assert {name: bindings.get(name) for name in expected} == dict.fromkeys(expected, 90), bindings
