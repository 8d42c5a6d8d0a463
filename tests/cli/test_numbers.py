"""Predicted numbers on the command line: training, predictions, intervals, evaluation, and instances of templates."""

import csv
import shutil

import pytest
from houses import MIXED, NEAR_PRICES, houses
from tables import write_tables

TABLES = houses(60, 0, unknown_kinds=0.2)
PRICES = TABLES["house"]["price"]
UNKNOWN = [str(house) for house, price in enumerate(PRICES) if price is None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with tables and a model of prices and kinds."""

    def rows(columns):
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    folder = write_tables(tmp_path_factory.mktemp("houses"), **{name: rows(table) for name, table in TABLES.items()})
    (folder / "prices.rcrf").write_text(MIXED + NEAR_PRICES)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder of runs, each of which is trained once."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def train(relcrf_, folder, runs, tmp_path):
    """Return a function that returns a run folder with the given options, which a test may change."""

    def train(*options, backend="dense"):
        run = runs / "_".join(map(str, (backend, *options)))
        if not run.exists():
            code, out, err = relcrf_(
                "train", folder / "prices.rcrf", "--data", folder, "--out", run, "--backend", backend, *options
            )
            assert code == 0 and "all numbers iterations" in out, err
        return shutil.copytree(run, tmp_path / "run", dirs_exist_ok=True)

    return train


def test_table_of_predictions(relcrf_, relcrf_json, folder, train, tmp_path):
    run = train()
    code, out, _ = relcrf_("predict", run, "--data", folder, "--attribute", "price", "--out", tmp_path / "p.csv")
    assert code == 0 and f"first 10 of {len(UNKNOWN)} predictions" in out
    assert all(name in out for name in ("price", "deviation", "low", "high"))
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "price", "deviation", "low", "high"] and [row["id"] for row in rows] == UNKNOWN
    code, found = relcrf_json("predict", run, "--data", folder)
    assert code == 0 and list(found["predictions"]) == ["House.price", "House.kind"]
    code, found = relcrf_json("predict", run, "--data", folder, "--attribute", "price", "--coverage", 0.5)
    assert code == 0
    for row, wide in zip(found["predictions"]["House.price"], rows, strict=True):
        assert row["price"] == pytest.approx(float(wide["price"])) and row["deviation"] > 0.0
        assert float(wide["low"]) < row["low"] < row["price"] < row["high"] < float(wide["high"])


def test_coverage(relcrf_, relcrf_json, folder, train):
    predict = ("predict", train(), "--data", folder, "--attribute", "price", "--coverage", 0.8)
    assert "with probability 0.8, if the model is right; mean width" in " ".join(relcrf_(*predict)[2].split())
    assert relcrf_json(*predict)[1]["sets"]["House.price"]["labels"] == 0
    both = ("predict", train("--calibrate", 3), "--data", folder, "--coverage", 0.8, "--each-value")
    code, _, err = relcrf_(*both)
    assert code == 0 and "true House.price with probability 0.8, calibrated on" in " ".join(err.split())
    code, found = relcrf_json(*both)
    sets = found["sets"]
    widths = [row["high"] - row["low"] for row in found["predictions"]["House.price"]]
    assert sets["House.price"]["mean_width"] == pytest.approx(sum(widths) / len(widths))
    n_known = sum(p is not None for p in PRICES)
    nearby = relcrf_json(*both[:-1], "--nearby")[1]["sets"]["House.price"]
    assert nearby == {**sets["House.price"], "nearby": True, "n_nearby": 0, "n_others": len(UNKNOWN)}
    assert sets["House.price"]["labels"] == n_known and sets["House.kind"]["each_value"] is True


def test_evaluation(relcrf_, relcrf_json, folder, tmp_path):
    ask = ("cv", folder / "prices.rcrf", "--data", folder, "--backend", "local", "--folds", 3)
    more = ("--coverage", 0.8, "--group-by", "area")
    code, out, err = relcrf_(*ask, *more)
    assert code == 0, err
    for text in ("crps", "coverage 90", "House.price, intervals for a coverage of 0.8", "contain the number", "bias"):
        assert text in out + err, text
    code, found = relcrf_json(*ask, *more, "--out", tmp_path)
    assert code == 0 and set(found["attributes"]["House.price"]["systems"]) == {"majority", "local"}
    assert found["sets"]["House.price"]["local"]["fraction_certain"] is None
    assert {row["area"] for row in found["groups"]["House.price"]["local"]} == set("wxyz")
    code, again = relcrf_json(*ask, "--out", tmp_path)
    assert again["folds_loaded"] == 3 and again["attributes"] == found["attributes"]
    code, out, _ = relcrf_("compare", *ask[1:])
    assert code == 0 and "RMSE" in out and "CRPS" in out and "cal. error" in out


def test_instances_have_the_numbers_of_the_data(relcrf_, relcrf_json, folder):
    ground = ("ground", folder / "prices.rcrf", "--data", folder, "--show")
    code, found = relcrf_json(*ground, "size")
    assert code == 0 and [row["h.price"] for row in found["instances"]] == PRICES[: len(found["instances"])]
    code, found = relcrf_json(*ground, "near")
    row = found["instances"][0]
    assert (row["a.price"], row["b.price"]) == (PRICES[int(row["a"])], PRICES[int(row["b"])])
    code, out, _ = relcrf_(*ground, "House(3).price")
    assert code == 0 and "factors of House(3).price" in out and "House(3).price, House(3).kind" in out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("explain", "RUN", "House/0.price", "--data", "DATA", "--depth", "2"), "E379"),
        (("audit", "RUN", "--data", "DATA", "--attribute", "kind"), "E379"),
        (("train", "MODEL", "--data", "DATA", "--backend", "trmrf", "--out", "OUT/other"), "E378"),
        (("pareto", "MODEL", "--data", "DATA", "--message-costs", "0.1"), "E379"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_commands_that_do_not_support_numbers(relcrf_, folder, train, tmp_path, arguments, error):
    paths = {"RUN": train(), "DATA": folder, "MODEL": folder / "prices.rcrf"}
    told = [paths.get(argument, argument.replace("OUT", str(tmp_path))) for argument in arguments]
    code, _, err = relcrf_(*told)
    assert code != 0 and error in err, err


def test_report_of_a_run_and_its_weights(relcrf_, relcrf_json, folder, train, tmp_path):
    run = train()
    assert relcrf_("report", run, "--out", tmp_path / "report.html")[0] == 0
    code, out, err = relcrf_("report", run, "--data", folder, "--split", "hide=0.3", "--out", tmp_path / "data.html")
    assert code == 0 and "better than majority by" in out.lower() and "House.kind" in out, err
    code, out, err = relcrf_("weights", run)
    assert code == 0 and "log difference" in out and "barn, mean" in out
    assert "House.price: the weights are added to a mean of" in " ".join(err.split())
    known = [price for price in PRICES if price is not None]
    mean, log_precision = relcrf_json("weights", run)[1]["numbers"]["House.price"]
    assert min(known) < mean < max(known) and log_precision < 0.0


def test_explanation_of_a_number(relcrf_, relcrf_json, folder, train, tmp_path):
    """The rows of the table add up to the mean, and are drawn as a waterfall."""
    run, name = train(), f"House/{UNKNOWN[0]}.price"
    picture, neighbours = tmp_path / "waterfall.svg", tmp_path / "neighbours.svg"
    code, found = relcrf_json("explain", run, name, "--data", folder, "--waterfall", picture, "--picture", neighbours)
    assert code == 0 and found["flips"] is None
    amounts = [one["amount"] for one in found["contributions"]]
    assert sum(amounts) == pytest.approx(found["mean"], abs=1e-9)
    assert sum(found["by_template"].values()) == pytest.approx(found["mean"], abs=1e-9)
    _, predicted = relcrf_json("predict", run, "--data", folder)
    (row,) = (one for one in predicted["predictions"]["House.price"] if one["id"] == UNKNOWN[0])
    assert found["mean"] == pytest.approx(row["price"], abs=0.01)
    code, out, err = relcrf_("explain", run, name, "--data", folder, "--top", 100)
    assert code == 0, err
    assert f"House({UNKNOWN[0]}).price is {found['mean']:.2f}" in out and "contributions to the mean of price" in out
    assert "constant" in out and "its mean" in out and "reduce the standard deviation from" in out
    drawn = picture.read_text() + neighbours.read_text()
    assert "constant" in drawn and "raises price" in drawn


def test_explanation_of_a_category_by_numbers(relcrf_, folder, train):
    house = next(k for k, kind in enumerate(TABLES["house"]["kind"]) if kind is None and PRICES[k] is not None)
    code, out, err = relcrf_("explain", train(), f"House/{house}.kind", "--data", folder)
    assert code == 0 and f"House({house}).price" in out and "log odds" in out, err


def test_forest_of_numbers(relcrf_, relcrf_json, folder, train, tmp_path):
    run = train("--set", "min_information=0.001", backend="ess")
    code, found = relcrf_json("predict", run, "--data", folder)
    rows = found["predictions"]["House.price"]
    assert code == 0 and [row["id"] for row in rows] == UNKNOWN
    code, out, err = relcrf_("report", run, "--data", folder, "--split", "hide=0.3", "--out", tmp_path / "report.html")
    assert code == 0 and "House.kind" in out, err
    code, found = relcrf_json("explain", run, f"House/{UNKNOWN[0]}.price", "--data", folder)
    assert code == 0 and found["mean"] == pytest.approx(rows[0]["price"], abs=0.01)
    code, found = relcrf_json("weights", run, "--template", "near")
    assert {row["pattern"] for row in found["shown"]} == {"log difference", "log sum"}
    code, _, err = relcrf_("update", run, "--data", folder, "--out", tmp_path / "updated")
    assert code == 0, err
    _, updated = relcrf_json("predict", tmp_path / "updated", "--data", folder)
    assert updated["predictions"]["House.price"] == rows
    text = "entity House { predict price : real  size : real }\ntemplate size(h: House) over h.price by 1, h.size\n"
    text += "relation Near(a: House, b: House)\n" + NEAR_PRICES
    (tmp_path / "alone.rcrf").write_text(text)
    alone = ("train", tmp_path / "alone.rcrf", "--data", folder, "--backend", "ess", "--out", tmp_path / "alone")
    code, _, err = relcrf_(*alone, "--set", "treewidth=2")
    assert code != 0 and "E305" in err and "min_information" in err
    assert relcrf_(*alone)[0] == 0
    code, _, err = relcrf_("predict", tmp_path / "alone", "--data", folder, "--set", "edges=all")
    assert code == 2 and "E305" in err and "train again with --set edges=" in err
