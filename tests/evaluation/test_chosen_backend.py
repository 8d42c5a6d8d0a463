"""The choice of backend `auto` as a ranked table and one sentence."""

import pytest

from relcrf.evaluation.chosen_backend import MAX_SHOWN_TRIALS, BackendChoice

SUMMARY = {
    "held_out_labels": 1200,
    "calibrated_log_likelihood": -0.25,
    "gain_over_local": 0.125,
    "standard_error_of_gain": 0.03,
}


def trial(backend, log_likelihood, settings=""):
    return {"backend": backend, "settings": settings, "log_likelihood": log_likelihood, "accuracy": 0.9, "seconds": 1.0}


def rejected(backend, reason):
    return {**trial(backend, float("-inf")), "accuracy": float("nan"), "rejected": reason}


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (
            BackendChoice("ess", "l2=3", (trial("local", -0.375), trial("ess", -0.25, "l2=3")), SUMMARY),
            "auto chose ess (l2=3): log-likelihood 0.1250 per label above that of local (standard error 0.0300, "
            "1,200 held-out labels)",
        ),
        (
            BackendChoice(
                "local", "", (trial("local", -0.25), trial("ess", -0.5)), {**SUMMARY, "gain_over_local": 0.0}
            ),
            "auto chose local: relations do not improve the predictions of 1,200 held-out labels",
        ),
        (
            BackendChoice("local", "", (trial("local", -0.25),), {**SUMMARY, "gain_over_local": 0.0}),
            "auto chose local: no relation joins predicted values (1,200 held-out labels)",
        ),
        (
            BackendChoice(
                "local", "unlabelled=em", (trial("local", -0.25, "unlabelled=em"), trial("ess", -1)), SUMMARY
            ),
            "auto chose local (unlabelled=em): log-likelihood 0.1250 per label above that of local without self-training "
            "(standard error 0.0300, 1,200 held-out labels); relations do not improve the predictions of 1,200 held-out "
            "labels",
        ),
        (
            BackendChoice(
                "ess",
                "",
                (trial("local", -0.375), trial("ess", -0.25)),
                {"compared_training_labels": 60_000, "gain_over_local": 0.125, "standard_error_of_gain": 0.03},
            ),
            "auto chose ess: log-likelihood 0.1250 per label above that of local (standard error 0.0300, "
            "60,000 training labels)",
        ),
        (
            BackendChoice("ess", "", (), {"chosen_without_comparison": "the graph exceeds the memory limit"}),
            "auto trained ess without a comparison: the graph exceeds the memory limit",
        ),
    ],
)
def test_sentence(choice, sentence):
    assert choice.sentence == sentence


def test_shown_trials_are_ranked_and_include_the_chosen_one_and_local():
    many = [trial("dense", -0.1 - k / 100, f"l2={k}") for k in range(20)]
    trials = (trial("local", -0.9), *many, trial("ess", -0.8), rejected("smooth", "no links"))
    choice = BackendChoice("ess", "", trials, SUMMARY)
    shown = choice.shown_trials
    assert len(shown) == MAX_SHOWN_TRIALS and choice.n_omitted == 10
    assert [row["backend"] for row in shown[-2:]] == ["ess", "local"]
    scores = [row["log_likelihood"] for row in shown]
    assert scores == sorted(scores, reverse=True)
    assert [choice.is_chosen(row) for row in shown].count(True) == 1


def test_rejections_are_grouped_by_reason():
    trials = (rejected("smooth", "no links"), rejected("propagate", "no links"), rejected("dense", "no memory"))
    choice = BackendChoice("local", "", trials, SUMMARY)
    assert choice.rejections == ["rejected smooth, propagate: no links", "rejected dense: no memory"]
    trials = (trial("ess", -1.0), {**rejected("ess", "worse"), "settings": "unlabelled=em"})
    assert BackendChoice("ess", "", trials, SUMMARY).rejections == ["rejected ess (unlabelled=em): worse"]
