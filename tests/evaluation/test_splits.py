"""Splits by a column, by folds and by a fraction: a variable's fold depends only on its key."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from command import json_command, relcrf_command
from generated import generated
from hypothesis import given
from hypothesis import strategies as st
from tables import small_web, write_tables

import relcrf
from relcrf.data.split_plan import RANDOM_KINDS, SplitPlan, parse_split
from relcrf.errors import UsageError
from relcrf.evaluation.splits import hold_out, make_folds, partition_variables
from relcrf.resources import resource_path

MODEL = """
domain D = { red, blue }
entity E { predict colour : D, predict other : D }
relation R(a: E, b: E)
predict relation P(x: E, y: E) where R(x, y)
template c(e: E) over e.colour
template o(e: E) over e.other
template p(x: E, y: E) over P(x, y)
"""
WEBKB = resource_path("models", "webkb.rcrf")


def ground(keys):
    e = pd.DataFrame({"id": keys, "colour": "red", "other": "blue"})
    r = pd.DataFrame({"a": keys[:-1], "b": keys[1:]})
    return relcrf.parse(MODEL).ground(relcrf.Dataset({"e": e, "r": r}))


def folds(grounding, plan):
    """Return the fold of each variable by its name."""
    split = partition_variables(grounding, plan)
    names = grounding.variable_names(np.arange(len(split.fold)))
    return {name: split.fold_names[f] for name, f in zip(names, split.fold, strict=True)}


KEYS = [f"k{i}" for i in range(300)]


@pytest.mark.parametrize("plan", ["folds=5", "hide=0.2", "folds=5,seed=3", "hide=0.2, seed=3"])
def test_fold_depends_only_on_the_key(plan):
    whole = folds(ground(KEYS), plan)
    reversed_folds = folds(ground(KEYS[:100][::-1]), plan)
    same = [name for name in reversed_folds if name in whole]
    assert len(same) == 200  # tuples of other keys
    assert all(reversed_folds[name] == whole[name] for name in same)


def test_folds_are_balanced_and_keep_entities_together():
    found = folds(ground(KEYS), "folds=5")
    assert set(found.values()) == {"1", "2", "3", "4", "5"}
    for key in KEYS:
        assert found[f"E({key}).colour"] == found[f"E({key}).other"]
    sizes = [sum(found[f"E({key}).colour"] == str(k + 1) for key in KEYS) for k in range(5)]
    assert min(sizes) > 35 and max(sizes) < 85
    assert len({found[f"P({a}, {b})"] for a, b in pairwise(KEYS)}) == 5


def test_attributes_are_hidden_independently():
    found = folds(ground(KEYS), "hide=0.2")
    hidden = {name for name, fold in found.items() if fold == "hidden"}
    assert 0.14 < len(hidden) / len(found) < 0.26
    assert any((f"E({k}).colour" in hidden) != (f"E({k}).other" in hidden) for k in KEYS)
    assert hidden != {name for name, fold in folds(ground(KEYS), "hide=0.2,seed=1").items() if fold == "hidden"}


def test_hashes_are_stable():
    """Compare with recorded folds: published results by folds and a seed must remain reproducible."""
    found = folds(ground(["a", "b", "c", "d"]), "folds=10,seed=7")
    assert [found[f"E({k}).colour"] for k in "abcd"] == ["2", "10", "10", "7"]


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("school", SplitPlan("column", "school")),
        ("folds=10", SplitPlan("folds", folds=10)),
        ("folds = 3, seed = 7", SplitPlan("folds", folds=3, seed=7)),
        ("hide=0.1", SplitPlan("hide", fraction=0.1)),
        ("seed=7,hide=.5", None),
        ("hide=0.5,folds=3", None),
        ("folds=1", None),
        ("folds=2.5", None),
        ("hide=1", None),
        ("hide=nan", None),
        ("hide=", None),
        ("fold=3", None),
    ],
)
def test_split_text(text, plan):
    if plan is not None:
        assert parse_split(text) == plan
        return
    with pytest.raises(UsageError) as caught:
        parse_split(text)
    (problem,) = caught.value.diagnostics
    assert problem.code == "E349" and problem.hint


@pytest.fixture
def web(tmp_path):
    return small_web(tmp_path / "web")


def manifest(web, split):
    tables = "".join(f'[tables.{name}]\nfile = "{name}.csv"\n' for name in ("page", "page_words", "link"))
    (web / "dataset.toml").write_text(f"{tables}[split]\n{split}\n")
    return web


def test_evaluate_uses_the_split_of_the_manifest(web, capsys, monkeypatch):
    manifest(web, 'column = "school"\nholdout = ["s1"]')
    command = ("evaluate", WEBKB, "--data", web / "dataset.toml", "--backend", "local")
    code, found = json_command(capsys, monkeypatch, *command)
    assert (code, [f["fold"] for f in found["folds"]]) == (0, ["s1"])
    code, found = json_command(capsys, monkeypatch, *command, "--split", "folds=3")
    assert [f["fold"] for f in found["folds"]] == ["1", "2", "3"]
    assert found["folds"][0]["scores"]["Page.category"]["n"] > 0
    assert sum(f["scores"]["Page.category"]["n"] for f in found["folds"]) == 48  # each labelled page once
    code, found = json_command(capsys, monkeypatch, *command, "--split", "hide=0.3")
    assert [f["fold"] for f in found["folds"]] == ["hidden"]
    found = relcrf.load(WEBKB).evaluate(relcrf.Dataset(web), backend="local")
    assert [fold.name for fold in found.folds] == ["s1"]


def test_train_and_predict_use_the_split_of_the_manifest(web, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    train = ("train", WEBKB, "--data", web, "--out", run, "--backend", "local", "--force")
    predict = ("predict", run, "--data", web)

    def queries():
        return json_command(capsys, monkeypatch, *predict)[1]["queries"]["Page.category"]

    assert relcrf_command(capsys, monkeypatch, *train)[0] == 0
    assert queries() == 12
    manifest(web, "hide = 0.3")
    code, _, err = relcrf_command(capsys, monkeypatch, *train)
    assert code == 0 and "the split of dataset.toml holds out" in err
    assert 15 < queries() < 40
    manifest(web, "folds = 3")
    assert queries() == 12  # a plan without a fold to hold out hides nothing
    (code, found) = json_command(capsys, monkeypatch, *predict, "--holdout", "2")
    assert found["queries"]["Page.category"] > 15


def test_later_periods_are_not_used_in_training():
    years = np.repeat([2000, 2001, 2002, 2003], 20)
    page = pd.DataFrame({"id": [f"p{k:02}" for k in range(80)], "year": years, "topic": np.tile(["a", "b"], 40)})
    model = relcrf.parse(
        "domain Topic = { a, b }\nentity Page { year: integer, predict topic: Topic }\ntemplate prior(p: Page) over p.topic"
    )
    grounding = model.ground(relcrf.Dataset({"page": page}))
    plan = replace(parse_split("folds=3,time=Page.year"), holdout=("2001",))
    held_out = hold_out(grounding, plan)
    np.testing.assert_array_equal(held_out.hidden, years >= 2001)
    np.testing.assert_array_equal(held_out.test, years == 2001)
    (fold,) = make_folds(grounding, plan)
    np.testing.assert_array_equal(fold.train_mask(np.ones(80, dtype=bool)), ~held_out.hidden)


def test_seed_replaces_that_of_the_manifest(web, capsys, monkeypatch):
    def held_out(*arguments):
        command = ("evaluate", WEBKB, "--data", web, "--backend", "local", *arguments)
        return json_command(capsys, monkeypatch, *command)[1]["folds"][0]["scores"]["Page.category"]

    manifest(web, "hide = 0.3")
    found = [held_out(), held_out("--seed", "0"), held_out("--seed", "7"), held_out("--split", "hide=0.3,seed=7")]
    assert found[0] == found[1] != found[2] == found[3]


def test_a_run_is_not_scored_on_its_training_labels(web, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    train = ("train", WEBKB, "--data", web, "--out", run, "--backend", "local", "--force")
    evaluate = ("evaluate", run, "--data", web)
    manifest(web, "folds = 3")
    assert relcrf_command(capsys, monkeypatch, *train)[0] == 0
    code, _, err = relcrf_command(capsys, monkeypatch, *evaluate)
    assert code == 2 and "E341" in err
    code, _, err = relcrf_command(capsys, monkeypatch, *evaluate, "--split", "folds=3")
    assert code == 0 and "the run was trained on 48 labels" in err
    assert relcrf_command(capsys, monkeypatch, *train, "--hide", "0.3")[0] == 0
    code, _, err = relcrf_command(capsys, monkeypatch, *evaluate)
    assert code == 0 and "the run was trained on" not in err
    code, _, err = relcrf_command(capsys, monkeypatch, *evaluate, "--seed", "7")
    assert code == 2 and "E349" in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--split", "folds=0"), "E349"),
        (("--holdout", "s1"), "E341"),
        (("--split", "folds=3"), "E341"),
        (("--split", "folds=3", "--holdout", "4"), "E340"),
    ],
)
def test_invalid_options_raise_error(web, tmp_path, capsys, monkeypatch, arguments, code):
    command = ("train", WEBKB, "--backend", "ess", "--data", web, "--out", tmp_path / "run", *arguments)
    found, _, err = relcrf_command(capsys, monkeypatch, *command)
    assert (found, err.count("error[")) == (2, 1)
    assert code in err


def test_relation_without_entities_can_be_split_by_folds(tmp_path):
    model = relcrf.parse("predict relation Rain(day: 1..9) template t(d: 1..9) over Rain(d)")
    data = relcrf.Dataset(write_tables(tmp_path, rain=[{"day": 1}]))
    assert len(np.unique(partition_variables(model.ground(data), "folds=3").fold)) == 3


COLUMNS = st.text() | st.sampled_from(["a=b", "=", "column=", "folds=2", "hide=0.1,seed=1", "column", "random"])
FOLDS, SEEDS, REPEATS = st.integers(2, 10_000), st.integers(0), st.integers(1, 9)
FRACTIONS = st.floats(0, 1, exclude_min=True, exclude_max=True)
PLANS = st.one_of(
    st.builds(SplitPlan, st.just("column"), COLUMNS),
    st.builds(SplitPlan, st.just("column"), COLUMNS, folds=FOLDS, seed=SEEDS, repeats=REPEATS),
    st.builds(SplitPlan, st.just("time"), st.just("Page.year"), folds=FOLDS),
    st.builds(SplitPlan, st.just("folds"), folds=FOLDS, seed=st.integers(), repeats=REPEATS),
    st.builds(SplitPlan, st.sampled_from(RANDOM_KINDS), folds=FOLDS, seed=SEEDS, repeats=REPEATS),
    st.builds(SplitPlan, st.just("hide"), fraction=FRACTIONS, seed=st.integers()),
    st.builds(
        SplitPlan, st.just("hide"), fraction=FRACTIONS, attribute=st.sampled_from(["*", "Page.topic"]), seed=SEEDS
    ),
)


@generated(100)
@given(PLANS)
def test_text_of_a_plan_is_parsed_to_the_same_plan(plan):
    assert parse_split(plan.text) == plan
