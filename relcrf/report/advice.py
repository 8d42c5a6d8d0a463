"""Warnings and recommended next steps of a report: sentences derived from the results of a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from relcrf.backends.base import MORE_ITERATIONS
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.unseen_templates import BACKENDS_WITH_PROPAGATION, unseen_template_warnings
from relcrf.data.frame import Frame
from relcrf.data.split_plan import SplitPlan
from relcrf.errors import listing
from relcrf.evaluation.leakage import held_out_label_warnings
from relcrf.language.check import check
from relcrf.printable import escape_unprintable
from relcrf.report import moments, reproduction
from relcrf.report.confusion import Confusion
from relcrf.report.holdout import HoldoutEvaluation
from relcrf.report.results import MIN_LABELS, AbstractSection, CategorySection, NumberSection

MISMATCH_FRACTION = 0.05
"""Fraction of mismatched moments (see `report/moments.py`) above which a report warns; chance level: about 0.05."""


@dataclass(frozen=True)
class Advice:
    """A recommendation, and the commands that carry it out, if there are any."""

    text: str
    commands: tuple[str, ...] = ()


def warnings(
    learned: LearnedModel,
    templates: Frame,
    moment_summary: moments.MomentSummary | None,
    holdout: HoldoutEvaluation | None,
    sections: Sequence[AbstractSection],
) -> list[str]:
    """Return the warnings that readers must consider before they rely on the results."""
    out = _training_warnings(learned, templates, moment_summary)
    if holdout is None:
        return out
    if holdout.verdict is not None and not holdout.verdict.is_good:
        out.append(f"Inference did not converge: {holdout.verdict}. The probabilities are approximate.")
    if holdout.labels and sections:
        out += held_out_label_warnings(learned, sum(one.n_labelled for one in holdout.labels), "The run")
    out += [
        f"{count:,} keys of template '{name}' do not occur in the training data; they have no learned weights."
        for name, count in holdout.unseen_keys.items()
    ]
    changed = [f"{one.name} ({one.distance:.0%} of the rows)" for one in holdout.drift if one.is_clear]
    if changed:
        out.append(
            f"The tables differ from the training data in {listing(changed)}: predictions may be less accurate than the "
            "held-out labels of the training data suggest. See 'Changes since training'."
        )
    few = [
        f"{section.labels.name} ({section.labels.n_held_out:,})"
        for section in sections
        if section.labels.n_held_out < MIN_LABELS
    ]
    if few:
        out.append(f"Too few labels are held out to detect small differences: {listing(few)}.")
    linked = [section.labels.name for section in sections if section.resampling_unit == "labels"]
    if linked:
        out.append(
            f"The bootstrap intervals of {listing(linked)} assume independent labels, because there are too few connected "
            "components to resample: linked labels are dependent, so that the intervals are too narrow."
        )
    if holdout.predictions is not None and holdout.no_local_reason:
        out.append(f"The run is not compared with the local model: {holdout.no_local_reason}.")
    return out


def _training_warnings(
    learned: LearnedModel, templates: Frame, moment_summary: moments.MomentSummary | None
) -> list[str]:
    out = [f"The model: {one.message} ({one.code})." for one in check(learned.spec) if not one.is_error]
    if not learned.converged:
        out.append("Learning did not converge: the weights are not optimal.")
    for name, _, bindings, _, nonzero in templates.rows():
        if not bindings:
            out.append(f"Template '{name}' has no bindings in the training data: its weights were not learned.")
        elif not nonzero and learned.backend not in BACKENDS_WITH_PROPAGATION:
            out.append(f"All weights of template '{name}' are 0: it has no effect.")
    out += [f"{one.message[0].upper()}{one.message[1:]} ({one.code})." for one in unseen_template_warnings(learned)]
    if moment_summary is not None and moment_summary.n_mismatched > MISMATCH_FRACTION * moment_summary.n_moments:
        out.append(
            f"{moment_summary.n_mismatched:,} of {moment_summary.n_moments:,} expected moments differ from the "
            f"empirical ones by more than {moment_summary.limit:g} standard errors: the penalty is strong, or the objective "
            "is not the likelihood."
        )
    return out


def next_steps(
    learned: LearnedModel,
    path: str,
    moment_summary: moments.MomentSummary | None,
    holdout: HoldoutEvaluation | None,
    sections: Sequence[AbstractSection],
    split: SplitPlan | None,
) -> list[Advice]:
    """Return recommended next steps, the most useful first.

    Args:
        path: The path of the run folder, see `reproduction.run_words`.
    """
    run, options = shlex.quote(path), _options(learned, path, holdout)
    data, all_options = shlex.join(reproduction.table_options(options)), shlex.join(options)
    out = []
    if not learned.converged:
        text = "Increase the number of iterations until learning converges; if it does not, increase l2."
        more_iterations = ("--set", MORE_ITERATIONS)
        out.append(Advice(text, (reproduction.variant_command(learned, path, options, more_iterations, "longer"),)))
    if not sections:
        out.append(unscored(learned, path, holdout, split))
    variant = (reproduction.variant_command(learned, path, options, ("--calibrate", "5"), "calibrated"),)
    categories = [section.calibration for section in sections if isinstance(section, CategorySection)]
    if any(one.is_overconfident or one.is_underconfident for one in categories):
        text = "Calibrate the probabilities: cross-validation selects a factor by which all weights are multiplied."
        out.append(Advice(text, variant))
    numbers = [section.calibration for section in sections if isinstance(section, NumberSection)]
    if any((one.is_overconfident or one.is_underconfident) and one.calibrated_coverage is None for one in numbers):
        text = "Calibrate the intervals: predicted intervals then contain the number with the chosen probability."
        out.append(Advice(text, variant))
    for section in sections:
        out += _section_steps(section, f"relcrf explain {run}", all_options)
    if (
        moment_summary is not None
        and moment_summary.n_mismatched > MISMATCH_FRACTION * moment_summary.n_moments
        and "l2" in learned.settings
    ):
        text = "Select the strength of the penalty on held-out labels."
        grid = ("--select", "l2=0.1,0.3,1,3")
        out.append(Advice(text, (reproduction.variant_command(learned, path, options, grid, "selected"),)))
    if sections:
        text = "Cross-validate before you compare models or publish results: a single split has a high variance."
        out.append(Advice(text, (_evaluation_command(learned, path, data),)))
    text = "Inspect the weights: list, filter and sort them by name."
    out.append(Advice(text, (f"relcrf weights {run} {all_options}",)))
    return list(dict.fromkeys(out))


def unscored(learned: LearnedModel, path: str, holdout: HoldoutEvaluation | None, split: SplitPlan | None) -> Advice:
    """Return how to score a run on labels that it has not seen.

    Args:
        path: The path of the run folder, see `reproduction.run_words`.
        split: The split of the training; None if training used all labels.
    """
    run, options = shlex.quote(path), reproduction.table_options(_options(learned, path, holdout))
    data = shlex.join(options)
    placeholder = " Replace DATA with the folder of the tables." if holdout is None else ""
    if split is not None and holdout is None:
        return Advice(f"Evaluate the run on the labels that its training held out.{placeholder}",
                      (f"relcrf report {run} {data}",))  # fmt: skip
    text = "Cross-validate the model, or train it again without a fifth of the labels and evaluate it on these labels."
    held_out = f"{path}-hide"
    train = reproduction.variant_command(learned, path, options, ("--split", "hide=0.2"), "hide")
    report = f"relcrf report {shlex.quote(held_out)} {data}"
    return Advice(f"{text}{placeholder}", (_evaluation_command(learned, path, data), train, report))


def _options(learned: LearnedModel, path: str, holdout: HoldoutEvaluation | None) -> tuple[str, ...]:
    """Return the options that name the data and the held-out labels."""
    return reproduction.placeholder_options(learned, path) if holdout is None else holdout.options


def _evaluation_command(learned: LearnedModel, path: str, data: str) -> str:
    """Return the command that cross-validates the run's backend."""
    return f"relcrf evaluate {reproduction.model_path(path)} {data} --folds 5 --backend {shlex.quote(learned.backend)}"


def _section_steps(section: AbstractSection, explain: str, options: str) -> list[Advice]:
    """Return the recommendations for one attribute.

    Args:
        explain: The beginning of a command that explains a prediction.
        options: The command-line options that name the data and the held-out labels.
    """
    out = []
    name = section.labels.name
    if section.gain is not None and section.gain.is_loss:
        text = f"{name}: the local model is better and simpler. Use it, or revise the templates that join labels."
        out.append(Advice(text))
    elif section.gain is not None and not section.gain.is_gain:
        text = f"{name}: the relations have no significant effect. Add labels or links, or use the simpler local model."
        out.append(Advice(text))
    if isinstance(section, CategorySection):
        out += _confusion_steps(name, section.confusion, explain, options)
    if isinstance(section, NumberSection):
        for variable, truth, mean, _, error, residual in section.errors.rows(1):
            truth, mean, error = (f"{number:{section.format}}" for number in (truth, mean, abs(error)))
            text = (
                f"{variable} is predicted as {mean}, but its value is {truth}: the largest error, {error}, or "
                f"{abs(residual):.1f} standard deviations. Examine the explanation, and check the value."
            )
            out.append(_explanation_step(variable, text, explain, options))
    return out


def _confusion_steps(name: str, confusion: Confusion, explain: str, options: str) -> list[Advice]:
    """Return the recommendations for the errors of one category."""
    out = []
    for truth, answer, count, labels, _ in confusion.pairs.rows(1):
        text = (
            f"{name}: {count:,} of {labels:,} labels '{truth}' are predicted as '{answer}' (the most frequent error). "
            "Add features or links that distinguish these two values."
        )
        out.append(Advice(text))
    for variable, truth, answer, probability, _ in confusion.mistakes.rows(1):
        text = (
            f"{variable} is predicted as '{answer}' with probability {probability:.1%}, but labelled '{truth}'. Examine the "
            "explanation, and check the label."
        )
        out.append(_explanation_step(variable, text, explain, options))
    return out


def _explanation_step(variable: str, text: str, explain: str, options: str) -> Advice:
    """Return the recommendation to explain a prediction."""
    return Advice(text, (f"{explain} {shlex.quote(escape_unprintable(variable))} {options}",))
