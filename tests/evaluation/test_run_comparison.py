"""Comparison of runs on the same labels: alignment of variables and values, and agreement with the scores of one run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tables import small_web

import relcrf
from relcrf import api
from relcrf.data.split_plan import parse_split
from relcrf.errors import UsageError
from relcrf.evaluation import run_comparison
from relcrf.evaluation.evaluations import evaluate_run
from relcrf.evaluation.predictions import MAJORITY
from relcrf.evaluation.run_comparison import GroundedRun, score_runs
from relcrf.evaluation.runner import predict_fold_with_model
from relcrf.evaluation.splits import hold_out, labelled_in_grounding
from relcrf.resources import resource_path

PLAN = replace(parse_split("school"), holdout=("s1",))
OPEN = """
domain Category = open
entity Page { school: School  predict category: Category }
domain School = open
relation Link(source: Page, target: Page)
template prior(p: Page) over p.category
template linked(p: Page, q: Page) where Link(p, q) over p.category, q.category
"""


def grounded(model, data, backend="ess", name=None):
    """Return a run that was trained without the held-out labels, with its grounding."""
    grounding = model.ground(data)
    fit = api.fit(model, grounding, backend, hidden=hold_out(grounding, PLAN).hidden)
    return GroundedRun(name or backend, fit.learned, fit.ground(data))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return relcrf.Dataset(small_web(tmp_path_factory.mktemp("web"), 120))


@pytest.fixture(scope="module")
def web():
    return relcrf.load(resource_path("models", "webkb.rcrf"))


def test_scores_equal_those_of_each_run_alone(data, web):
    runs = [grounded(web, data, backend) for backend in ("local", "ess")]
    scores = score_runs(runs, PLAN)
    assert scores.predictions.systems == (MAJORITY, "local", "ess") and scores.n_unmatched == 0
    for run in runs:
        alone = evaluate_run(run.learned, run.grounding, PLAN).predictions
        assert scores.predictions.score(run.name, "Page.category") == alone.score(run.learned.backend, "Page.category")
        assert scores.verdicts[run.name].is_good
    assert scores.predictions.differences("ess", "local", "Page.category")["log_loss"].value < 0.0


def test_values_in_another_order(data, web):
    """The states of an open domain are in the order of the data; of the other model, in the order of its declaration."""
    first, second = grounded(web, data), grounded(relcrf.parse(OPEN), data, name="open")
    values = [run.grounding.blocks[0].values for run in (first, second)]
    assert tuple(values[0]) != tuple(values[1]) and set(values[0]) == set(values[1])
    for runs in ([first, second], [second, first]):
        scores = score_runs(runs, PLAN)
        for run in runs:
            alone = evaluate_run(run.learned, run.grounding, PLAN).predictions.score("ess", "Page.category")
            assert scores.predictions.score(run.name, "Page.category") == alone


def without_pages(folder, removed):
    """Remove pages, with their words and links, from the tables of a folder."""
    for name in ("page", "page_words", "link"):
        header, *rows = (folder / f"{name}.csv").read_text().splitlines()
        kept = [row for row in rows if not removed & {*row.split(",")[:2]}]
        (folder / f"{name}.csv").write_text("\n".join([header, *kept]) + "\n")
    return relcrf.Dataset(folder)


def test_variables_in_another_order(web, tmp_path):
    """Only pages that both groundings have are scored; the second one lacks pages, so that the indices differ."""
    part = without_pages(small_web(tmp_path / "part", 90), {f"p{k}" for k in range(1, 90, 4)})
    first = grounded(web, relcrf.Dataset(small_web(tmp_path / "all", 90)))
    second = grounded(web, part, name="part")
    scores = score_runs([first, second], PLAN)
    alone = evaluate_run(second.learned, second.grounding, PLAN).predictions
    assert scores.predictions.score("part", "Page.category") == alone.score("ess", "Page.category")
    n_first = evaluate_run(first.learned, first.grounding, PLAN).predictions.score("ess", "Page.category").n
    assert scores.n_unmatched == n_first - scores.predictions.score("ess", "Page.category").n > 0


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("split", ["hide=0.4,of=*", "school"])
def test_labels_that_a_training_used_are_not_scored(data, web, split, order):
    """The second model predicts schools, too, so that a random split holds out other categories of it."""
    plan = replace(parse_split(split), holdout=() if "hide" in split else ("s1",))
    both = relcrf.parse(OPEN.replace("school: School", "predict school: School"))
    runs = []
    for name, model in (("one", web), ("both", both)):
        grounding = model.ground(data)
        held_out = hold_out(grounding, plan)
        fit = api.fit(model, grounding, "local", hidden=held_out.hidden)
        runs.append((GroundedRun(name, fit.learned, fit.ground(data)), held_out))
    folds = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            run_comparison,
            "predict_fold_with_model",
            lambda learned, grounding, fold, observe: (
                folds.update({id(grounding): fold}) or predict_fold_with_model(learned, grounding, fold, observe)
            ),
        )
        scores = score_runs([run for run, _ in runs][::order], plan)
    for run, held_out in runs:
        fold, labelled = folds[id(run.grounding)], labelled_in_grounding(run.grounding)
        assert fold.n_test and not (fold.test & ~held_out.hidden).any()
        assert not (held_out.hidden & labelled & ~(fold.test | fold.hidden)).any()
    if order == 1:
        assert (scores.n_unmatched > 0) == (split != "school")


def test_no_held_out_label_is_common(web, tmp_path):
    first = grounded(web, relcrf.Dataset(small_web(tmp_path / "all", 90)))
    part = without_pages(small_web(tmp_path / "part", 90), {f"p{k}" for k in range(1, 90, 3)})
    fit = web.fit(part, "ess")
    with pytest.raises(UsageError, match=r"E464.*no labels are held out that all runs predict"):
        score_runs([first, GroundedRun("part", fit.learned, fit.ground(part))], PLAN)


def test_runs_without_a_common_attribute(data, web):
    other = relcrf.parse(
        "entity Page { predict spam: bool }\nrelation Link(source: Page, target: Page)\ntemplate t(p: Page) over p.spam"
    )
    pages = {"page": {"id": ["a", "b"], "spam": [True, False]}, "link": {"source": ["a"], "target": ["b"]}}
    fit = other.fit(pages, "local")
    with pytest.raises(UsageError, match=r"E464.*ess predicts Page\.category; spam predicts Page\.spam"):
        score_runs([grounded(web, data), GroundedRun("spam", fit.learned, fit.ground(pages))], PLAN)
