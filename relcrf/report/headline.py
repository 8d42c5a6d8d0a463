"""The headline of a report: whether the run predicts held-out labels better than its baselines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relcrf.evaluation.intervals import MIN_CLUSTERS
from relcrf.evaluation.number_evidence import number_format
from relcrf.evaluation.predictions import LOCAL, MAJORITY, MeasureDifference, Predictions

BASELINES = {MAJORITY: "majority", LOCAL: "local (no links)"}
"""Texts of the baselines, in the order in which the headline names them."""


@dataclass(frozen=True)
class HeadlineMeasure:
    """The measure by which a headline compares two systems, and its text.

    Args:
        name: The name of the measure.
        scale: The factor of a difference in the text; negative if lower values are better.
        text: The unit or the name that follows a difference.
        format: The format of a difference, without a sign.
        of_distributions: The noun for what the log-loss measures.
    """

    name: str
    scale: float
    text: str
    format: str
    of_distributions: str

    @classmethod
    def for_numbers(cls, error: float) -> HeadlineMeasure:
        """Return the mean absolute error, written with the decimals with which `error` has three significant digits."""
        return cls("mae", -1.0, "in mean absolute error", number_format(error), "distributions")


ACCURACY = HeadlineMeasure("accuracy", 100.0, "points of accuracy", ",.1f", "probabilities")
"""The measure of categories."""


@dataclass(frozen=True)
class BaselineComparison:
    """The paired difference in accuracy or mean absolute error between a run and a baseline or another run.

    Args:
        baseline: The text that names the baseline or the other run.
        difference: The difference in the measure.
        log_loss: The difference in log-loss; it is part of the verdict if the measures do not differ clearly.
        is_reliable: Whether the bootstrap resamples enough units for a verdict.
    """

    baseline: str
    difference: MeasureDifference
    log_loss: MeasureDifference
    is_reliable: bool
    measure: HeadlineMeasure = ACCURACY

    @property
    def _gain(self) -> tuple[float, float, float]:
        """The improvement with its limits, in the unit of the text."""
        scale, one = self.measure.scale, self.difference
        low, high = (scale * one.low, scale * one.high) if scale > 0.0 else (scale * one.high, scale * one.low)
        return scale * one.value, low, high

    @property
    def tone(self) -> str:
        """The style class: `good` or `bad` if the interval excludes 0, otherwise `unclear`."""
        _, low, high = self._gain
        if self.is_reliable and low > 0.0:
            return "good"
        return "bad" if self.is_reliable and high < 0.0 else "unclear"

    @property
    def text(self) -> str:
        """The verdict with the difference and its 95 % interval."""
        name, sign, (value, low, high) = self.baseline, "+", self._gain
        verdict = f"no clear difference from {name}: "
        if self.tone == "good":
            verdict, sign = f"better than {name} by ", ""
        if self.tone == "bad":
            verdict, sign, (value, low, high) = f"worse than {name} by ", "", (-value, -high, -low)
        value_text, low_text, high_text = (format(one, f"{sign}{self.measure.format}") for one in (value, low, high))
        return f"{verdict}{value_text} {self.measure.text} [{low_text}, {high_text}]"

    @property
    def probability_verdict(self) -> tuple[str, str]:
        """The style class and the verdict on the log-loss; empty if the measures differ clearly or the log-losses do not."""
        loss = self.log_loss
        if self.tone != "unclear" or not self.is_reliable or loss.low <= 0.0 <= loss.high:
            return "", ""
        low, high = sorted((abs(loss.low), abs(loss.high)))
        tone, word, change = ("good", "better", "lower") if loss.high < 0.0 else ("bad", "worse", "higher")
        noun = self.measure.of_distributions
        return tone, f"{word} {noun}: log-loss {change} by {abs(loss.value):.3f} [{low:.3f}, {high:.3f}]"


@dataclass(frozen=True)
class Headline:
    """The comparison of a run with its baselines on one attribute.

    Args:
        score: The score of the run, for a sentence without a baseline.
        comparisons: The comparisons in the order of `BASELINES`; empty if no baseline could be trained.
    """

    attribute: str
    score: str
    comparisons: tuple[BaselineComparison, ...]
    n_labels: int
    n_folds: int

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The clauses of the sentence, each with its style class (empty for plain text); their concatenation is `text`."""
        return tuple(self._clauses())

    @property
    def text(self) -> str:
        """The sentence."""
        return "".join(text for _, text in self.parts)

    def _clauses(self) -> Iterator[tuple[str, str]]:
        for k, one in enumerate(self.comparisons):
            yield "", ", and " if k else ""
            yield one.tone, one.text if k else one.text[0].upper() + one.text[1:]
            tone, verdict = one.probability_verdict
            if verdict:
                yield "", ", but "
                yield tone, verdict
        if not self.comparisons:
            yield "unclear", f"{self.score} without a baseline to compare with"
        folds = f" of {self.n_folds} folds" if self.n_folds > 1 else ""
        yield "", f", on {self.n_labels:,} held-out labels{folds}."


def build_headline(results: Predictions, system: str, attribute: str) -> Headline:
    """Compare the run's predictions of an attribute with the baselines on the same labels."""
    baselines = [name for name in BASELINES if name in results.systems and name != system]
    comparisons = tuple(compare_systems(results, system, name, attribute, BASELINES[name]) for name in baselines)
    measure, score = headline_measure(results, system, attribute), results.score(system, attribute)
    text = f"Accuracy {score.accuracy:.1%}"
    if measure != ACCURACY:
        error = results.estimates(system, attribute)[measure.name].value
        text = f"Mean absolute error {error:{measure.format}}"
    return Headline(attribute, text, comparisons, score.n, len(results.by_system[system]))


def headline_measure(results: Predictions, system: str, attribute: str) -> HeadlineMeasure:
    """Return the measure of the headline of an attribute: the accuracy, or the mean absolute error of a number."""
    if not results.is_numeric(attribute):
        return ACCURACY
    return HeadlineMeasure.for_numbers(results.estimates(system, attribute)["mae"].value)


def compare_systems(
    results: Predictions, system: str, other: str, attribute: str, other_text: str
) -> BaselineComparison:
    """Compare the predictions of an attribute by two systems on the same labels; `other_text` names the other one."""
    n_units = results.clusters(attribute).index.max(initial=-1) + 1
    differences, measure = results.differences(system, other, attribute), headline_measure(results, system, attribute)
    return BaselineComparison(
        other_text, differences[measure.name], differences["log_loss"], bool(n_units >= MIN_CLUSTERS), measure
    )
