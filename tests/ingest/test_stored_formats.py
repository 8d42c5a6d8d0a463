"""The CSV formats of the training data, which a run stores and applies to columns that do not show their format."""

import json
import pickle

import pytest

import relcrf
from relcrf.data.dataset import Dataset
from relcrf.errors import DataError

MODEL = """
domain Fraud = { no, yes }
entity Customer { amount: real  since: date  predict fraud: Fraud }
template prior(c: Customer) over c.fraud
template amount(c: Customer) over c.fraud by standardise(c.amount)
"""

HEADER = "id;amount;since;fraud\n"


def german(number):
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


def training_rows():
    """Return rows in which amounts above 5,000 are frauds, with decimal commas and dates that begin with the day."""
    rows = []
    for k in range(40):
        amount = 1000.25 + 37 * k if k % 2 else 8000.5 + 37 * k
        rows.append(f"{k};{german(amount)};{k % 28 + 1:02d}/{k % 12 + 1:02d}/2024;{'no' if k % 2 else 'yes'}\n")
    return HEADER + "".join(rows)


def write(folder, text, name="customer.csv"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder that was trained on a file whose formats are visible."""
    folder = tmp_path_factory.mktemp("stored")
    fit = relcrf.parse(MODEL).fit(write(folder / "train", training_rows()), "ess")
    fit.save(folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def fit(run):
    return relcrf.load_fit(run)


def read(fit, data):
    """Return the amounts, the dates and the notes of tables that a run reads."""
    bound = fit.ground(data).bound
    sql = 'SELECT "x.amount", "x.since"::VARCHAR FROM "ent.Customer" ORDER BY key'
    amounts, dates = zip(*bound.connection.execute(sql).fetchall(), strict=True)
    return list(amounts), list(dates), bound.notes


def test_file_without_decimals_is_read_as_in_training(fit, tmp_path):
    new = write(tmp_path / "new", HEADER + "900;8.500;28/04/2024;\n901;1.100;05/06/2024;\n")
    full = write(tmp_path / "full", HEADER + "900;8.500,00;28/04/2024;\n901;1.100,00;05/06/2024;\n")
    amounts, _, notes = read(fit, new)
    assert amounts == [8500.0, 1100.0]
    assert any(note.endswith("read as in the training data: decimal commas in amount") for note in notes)
    frames = [fit.predict(data).table().to_dicts() for data in (new, full)]
    assert frames[0] == frames[1]
    assert [row["fraud"] for row in frames[0]] == ["yes", "no"]


def test_ambiguous_dates_have_the_order_of_training(fit, tmp_path):
    new = write(tmp_path / "new", HEADER + "900;8.500,5;03/04/2024;\n901;1,5;05/06/2024;\n")
    with pytest.raises(DataError, match="E215"):
        relcrf.parse(MODEL).ground(new)
    assert read(fit, new)[1] == ["2024-04-03", "2024-06-05"]


@pytest.mark.parametrize("kind", ["folder", "dataset", "pickled dataset", "table by name", "manifest"])
def test_every_source_has_the_formats(fit, tmp_path, kind):
    new = write(tmp_path / "new", HEADER + "900;8.500;03/04/2024;\n")
    data = {
        "folder": lambda: new,
        "dataset": lambda: Dataset(new),
        "pickled dataset": lambda: pickle.loads(pickle.dumps(Dataset(new).with_formats(fit.learned.formats))),
        "table by name": lambda: {"customer": (new / "customer.csv").rename(new / "export.csv")},
        "manifest": lambda: Dataset(new, manifest=tmp_path / "m.toml"),
    }
    (tmp_path / "m.toml").write_text('[tables.customer]\nfile = "customer.csv"\ncolumns = { Amount = "amount" }\n')
    assert read(fit, data[kind]())[:2] == ([8500.0], ["2024-04-03"])


CONTRADICTIONS = {
    "points": ("900;8.5;28/04/2024;\n901;1.100;05/06/2024;\n", [8.5, 1.1], "amount is not converted"),
    "thousands": (
        "900;8,500.25;28/04/2024;\n901;1,100;05/06/2024;\n",
        [8500.25, 1100.0],
        "amount is read with ',' between thousands",
    ),
    "months first": ("900;1,5;04/28/2024;\n901;2,5;05/06/2024;\n", [1.5, 2.5], "since is read with dates %m/%d/%Y"),
    "ISO dates": ("900;1,5;2024-04-28;\n901;2,5;2024-05-06;\n", [1.5, 2.5], "since is not converted"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_file_with_another_format_is_read_by_its_own(fit, tmp_path, case):
    rows, expected, problem = CONTRADICTIONS[case]
    amounts, dates, notes = read(fit, write(tmp_path / "new", HEADER + rows))
    assert amounts == expected and dates[0] == "2024-04-28"
    (note,) = [note for note in notes if "in the training data" in note]
    assert problem in note and "state this in a manifest: [tables.customer.csv] " in note


def test_stated_format_needs_no_note(fit, tmp_path):
    new = write(tmp_path / "new", HEADER + "900;8.500;28/04/2024;\n901;1.100;05/06/2024;\n")
    (new / "dataset.toml").write_text('[tables.customer.csv]\ndecimal = "."\n')
    amounts, _, notes = read(fit, new)
    assert amounts == [8.5, 1.1] and not any("training data" in note for note in notes)


def test_contradiction_in_one_column_holds_for_the_numbers_of_the_file(tmp_path):
    model = relcrf.parse(
        "domain Kind = { red, blue }\nentity Shop { a: real  b: real  predict kind: Kind }\n"
        "template bias(s: Shop) over s.kind by s.a"
    )
    train = write(tmp_path / "train", "id;a;b;kind\n1;1.234,5;2.500,5;red\n2;0,5;1,5;blue\n", "shop.csv")
    new = write(tmp_path / "new", "id;a;b\n1;2.5;8.500\n", "shop.csv")
    bound = model.fit(train, "ess").ground(new).bound
    assert bound.connection.execute('SELECT "x.a", "x.b" FROM "ent.Shop"').fetchall() == [(2.5, 8.5)]
    (note,) = [note for note in bound.notes if "training data" in note]
    assert "a is not converted" in note and "b is not converted" in note


@pytest.mark.parametrize(
    ("cells", "problem"),
    [("8\n901;9", "amount is not converted, and had the unit 'EUR'"), ("8 USD\n901;9 USD", "the unit 'USD'"), ("", "")],
)
def test_other_units_are_reported(tmp_path, cells, problem):
    model = relcrf.parse(
        "entity Customer { amount: real  predict fraud: bool }\ntemplate t(c: Customer) over c.fraud by c.amount"
    )
    train = write(tmp_path / "train", "id;amount;fraud\n1;2,5 EUR;true\n2;1.000 EUR;false\n")
    new = write(tmp_path / "new", f"id;amount\n900;{cells}\n")
    bound = model.fit(train, "ess").ground(new).bound
    notes = [note for note in bound.notes if "training data" in note]
    assert len(notes) == bool(problem) and problem in "".join(notes)
    assert not notes or notes[0].endswith('[tables.customer.csv] units = ["EUR"]')


def test_visible_formats_open_the_tables_once(fit, tmp_path):
    dataset = Dataset(write(tmp_path / "new", HEADER + "900;8.500,5;28/04/2024;\n"))
    assert dataset.with_formats(fit.learned.formats) is dataset
    frames = Dataset({"customer": {"id": [1], "amount": [1.5]}})
    assert frames.with_formats(fit.learned.formats) is frames


def edit_run(run, target, change):
    """Copy a run folder with other content of `run.json`."""
    target.mkdir()
    for path in run.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    content = json.loads((target / "run.json").read_text())
    change(content)
    (target / "run.json").write_text(json.dumps(content))
    manifest = json.loads((target / "manifest.json").read_text())
    del manifest["files"]["run.json"]
    (target / "manifest.json").write_text(json.dumps(manifest))
    return target


def test_run_of_an_earlier_version_has_no_formats(run, tmp_path):
    old = relcrf.load_fit(edit_run(run, tmp_path / "old", lambda content: content.pop("formats")))
    new = write(tmp_path / "new", HEADER + "900;8.500;28/04/2024;\n")
    assert old.learned.formats == () and read(old, new)[0] == [8.5]


@pytest.mark.parametrize("change", [{"format": "1;2"}, {"key": "decimals"}, {"key": "dates"}, {"table": 1}])
def test_invalid_formats_of_a_run_are_rejected(run, tmp_path, change):
    with pytest.raises(DataError, match="E336"):
        relcrf.load_fit(edit_run(run, tmp_path / "damaged", lambda content: content["formats"][0].update(change)))


def test_commands_read_new_files_as_in_training(tmp_path, relcrf_, relcrf_json):
    (tmp_path / "m.rcrf").write_text(MODEL)
    train, out = write(tmp_path / "train", training_rows()), tmp_path / "run"
    assert relcrf_("train", tmp_path / "m.rcrf", "--data", train, "--out", out, "-b", "ess")[0] == 0
    assert relcrf_("reproduce", out, "--data", train)[0] == 0
    new = write(tmp_path / "new", HEADER + "900;8.500;03/04/2024;\n901;1.100;05/06/2024;\n")
    for command in (("predict", out), ("explain", out, "Customer/900")):
        code, _, err = relcrf_(*command, "--data", new)
        assert code == 0 and "read as in the training data: decimal commas in amount, dates" in err, err
    rows = new / "customer.csv"
    rows.write_text(rows.read_text().replace("2024;", "2024;yes"))
    code, _, err = relcrf_("update", out, "--data", new, "--out", tmp_path / "updated")
    assert code == 0 and "read as in the training data" in err
    stored = [json.loads((folder / "run.json").read_text())["formats"] for folder in (out, tmp_path / "updated")]
    assert stored[0] == stored[1]
