"""What to be careful about, and what to do next: plain sentences made from the figures of a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from relcrf.backends.learned_model import LearnedModel
from relcrf.data.frame import Frame
from relcrf.errors import listing
from relcrf.language.check import check
from relcrf.printable import escape_unprintable
from relcrf.report import moments, reproduction
from relcrf.report.holdout import HoldoutEvaluation
from relcrf.report.results import MIN_LABELS, AttributeSection

MISMATCH_FRACTION = 0.05
"""Share of the moments, beyond which so many lie apart that it is no chance."""


@dataclass(frozen=True)
class Advice:
    """A sentence, and a command that does what it says; empty where there is none."""

    text: str
    command: str = ""


def warnings(
    learned: LearnedModel,
    templates: Frame,
    matched: moments.MomentSummary | None,
    trial: HoldoutEvaluation | None,
    sections: Sequence[AttributeSection],
) -> list[str]:
    """What a reader must know before the figures are believed."""
    out = _training_warnings(learned, templates, matched)
    if trial is None:
        return out
    if trial.verdict is not None and not trial.verdict.is_good:
        out.append(f"The inference had not settled: {trial.verdict}. The probabilities are what there was.")
    if trial.labels and learned.summary.get("variables") == sum(one.n_labelled for one in trial.labels) and sections:
        out.append(
            f"The run has learned from {learned.summary['variables']:,} labels, which is as many as these data have with what "
            "is held out: it has probably seen what it is asked here, and the figures flatter. Train it with the same --split "
            "and --holdout."
        )
    out += [
        f"{count:,} keys of template '{name}' were never seen in training; their weights are 0."
        for name, count in trial.unseen_keys.items()
    ]
    few = [
        f"{section.labels.name} ({section.labels.n_held_out:,})"
        for section in sections
        if section.labels.n_held_out < MIN_LABELS
    ]
    if few:
        out.append(f"Few labels are held out, too few for small differences: {listing(few)}.")
    linked = [section.labels.name for section in sections if section.resampling_unit == "labels"]
    if linked:
        out.append(
            "The connected components are too few to draw them again, so intervals take labels for independent, which linked "
            f"ones are not: figures may be further off. This is of {listing(linked)}."
        )
    if trial.predictions is not None and trial.no_local_reason:
        out.append(f"There is no local model beside the run: {trial.no_local_reason}.")
    return out


def _training_warnings(learned: LearnedModel, templates: Frame, matched: moments.MomentSummary | None) -> list[str]:
    out = [f"The model: {one.message} ({one.code})." for one in check(learned.spec) if not one.is_error]
    if not learned.converged:
        out.append("Learning stopped before it converged: other weights may be better.")
    for name, _, bindings, _, nonzero in templates.rows():
        if not bindings:
            out.append(f"Template '{name}' has no bindings in the training data: nothing was learned of it.")
        elif not nonzero:
            out.append(f"All weights of template '{name}' are 0: it says nothing.")
    if matched is not None and matched.n_mismatched > MISMATCH_FRACTION * matched.n_moments:
        out.append(
            f"{matched.n_mismatched:,} of {matched.n_moments:,} moments of the model are more than {matched.limit:g} standard errors from "
            "those of the labels: the penalty is strong, or the objective is not the likelihood."
        )
    return out


def next_steps(
    learned: LearnedModel,
    name: str,
    matched: moments.MomentSummary | None,
    trial: HoldoutEvaluation | None,
    sections: Sequence[AttributeSection],
) -> list[Advice]:
    """What would be done next by somebody who knows relcrf, the most useful first.

    Args:
        name: of the run folder.
    """
    run, options = shlex.quote(name), reproduction.DATA_PLACEHOLDER if trial is None else trial.options
    data, asked = shlex.join(options[:2]), shlex.join(options)
    out = []
    if not learned.converged:
        text = "Let it learn until it converges; if it does not, raise l2."
        longer = ("--set", "max_iterations=1000")
        out.append(Advice(text, reproduction.variant_command(learned, name, options, longer, "longer")))
    if not sections:
        text = (
            "See what it is worth on labels that it has not seen: give the data, and hold out what training held out."
        )
        out.append(Advice(text, f"relcrf report {run} {data} --split COLUMN --holdout VALUE"))
    if any(section.calibration.is_overconfident or section.calibration.is_underconfident for section in sections):
        text = "Make the probabilities honest: by one number, from labels that are held out of the training."
        out.append(
            Advice(text, reproduction.variant_command(learned, name, options, ("--calibrate", "5"), "calibrated"))
        )
    for section in sections:
        out += _section_steps(section, f"relcrf explain {run}", asked)
    if (
        matched is not None
        and matched.n_mismatched > MISMATCH_FRACTION * matched.n_moments
        and "l2" in learned.settings
    ):
        text = "Let held-out labels choose the strength of the penalty."
        grid = ("--select", "l2=0.1,0.3,1,3")
        out.append(Advice(text, reproduction.variant_command(learned, name, options, grid, "selected")))
    if sections:
        text = "One part that is held out is one throw of the dice: cross-validate before you compare or publish."
        model, backend = shlex.quote(f"{name}/model.rcrf"), shlex.quote(learned.backend)
        out.append(Advice(text, f"relcrf cv {model} {data} --backend {backend}"))
    out.append(Advice("Look at the weights by name, and filter and sort them.", f"relcrf weights {run} {asked}"))
    return list(dict.fromkeys(out))


def _section_steps(section: AttributeSection, explain: str, asked: str) -> list[Advice]:
    """What is to be said of one attribute.

    Args:
        explain: the beginning of a command that explains an answer. asked: the options that say the data and what is held out.
    """
    out = []
    name, confused = section.labels.name, section.confusion
    if section.gain is not None and section.gain.is_loss:
        text = f"{name}: the local model is better, and simpler. Take it, or mend the templates that join labels."
        out.append(Advice(text))
    elif section.gain is not None and not section.gain.is_gain:
        text = f"{name}: more labels, or other links, would show whether the relations pay; until then the local model will do."
        out.append(Advice(text))
    for truth, answer, count, labels in confused.pairs.rows(1):
        text = (
            f"{name}: {count:,} of {labels:,} '{truth}' are taken for '{answer}', the most common "
            "mistake: features or links that tell these two apart would help most."
        )
        out.append(Advice(text))
    for who, truth, answer, probability, _ in confused.mistakes.rows(1):
        text = (
            f"{who} is taken for '{answer}' at {probability:.1%}, and labelled '{truth}': see why, "
            "or whether the label is right."
        )
        out.append(Advice(text, f"{explain} {shlex.quote(escape_unprintable(who))} {asked}"))
    return out
