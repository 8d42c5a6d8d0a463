"""The headline of a report: whether the run predicts held-out labels better than its baselines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relcrf.evaluation.intervals import MIN_CLUSTERS
from relcrf.evaluation.predictions import LOCAL, MAJORITY, MeasureDifference, Predictions

BASELINES = {MAJORITY: "majority", LOCAL: "local (no links)"}
"""Texts of the baselines, in the order in which the headline names them."""


@dataclass(frozen=True)
class BaselineComparison:
    """The paired difference in accuracy between a run and a baseline or another run.

    Args:
        baseline: The text that names the baseline or the other run.
        log_loss: The difference in log-loss; it is part of the verdict if the accuracies do not differ clearly.
        is_reliable: Whether the bootstrap resamples enough units for a verdict.
    """

    baseline: str
    accuracy: MeasureDifference
    log_loss: MeasureDifference
    is_reliable: bool

    @property
    def tone(self) -> str:
        """The style class: `good` or `bad` if the interval excludes 0, otherwise `unclear`."""
        if self.is_reliable and self.accuracy.low > 0.0:
            return "good"
        return "bad" if self.is_reliable and self.accuracy.high < 0.0 else "unclear"

    @property
    def text(self) -> str:
        """The verdict with the difference and its 95 % interval, in percentage points."""
        name, value = self.baseline, 100.0 * self.accuracy.value
        low, high = 100.0 * self.accuracy.low, 100.0 * self.accuracy.high
        if self.tone == "good":
            return f"better than {name} by {value:.1f} points of accuracy [{low:.1f}, {high:.1f}]"
        if self.tone == "bad":
            return f"worse than {name} by {-value:.1f} points of accuracy [{-high:.1f}, {-low:.1f}]"
        return f"no clear difference from {name}: {value:+.1f} points of accuracy [{low:+.1f}, {high:+.1f}]"

    @property
    def probability_verdict(self) -> tuple[str, str]:
        """The style class and the verdict on the log-loss; empty if the accuracies differ clearly or the log-losses do not."""
        loss = self.log_loss
        if self.tone != "unclear" or not self.is_reliable or loss.low <= 0.0 <= loss.high:
            return "", ""
        low, high = sorted((abs(loss.low), abs(loss.high)))
        tone, word, change = ("good", "better", "lower") if loss.high < 0.0 else ("bad", "worse", "higher")
        return tone, f"{word} probabilities: log-loss {change} by {abs(loss.value):.3f} [{low:.3f}, {high:.3f}]"


@dataclass(frozen=True)
class Headline:
    """The comparison of a run with its baselines on one attribute.

    Args:
        comparisons: The comparisons in the order of `BASELINES`; empty if no baseline could be trained.
    """

    attribute: str
    accuracy: float
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
            yield "unclear", f"Accuracy {self.accuracy:.1%} without a baseline to compare with"
        folds = f" of {self.n_folds} folds" if self.n_folds > 1 else ""
        yield "", f", on {self.n_labels:,} held-out labels{folds}."


def build_headline(results: Predictions, system: str, attribute: str) -> Headline:
    """Compare the run's predictions of an attribute with the baselines on the same labels."""
    baselines = [name for name in BASELINES if name in results.systems and name != system]
    comparisons = tuple(compare_systems(results, system, name, attribute, BASELINES[name]) for name in baselines)
    score = results.score(system, attribute)
    return Headline(attribute, score.accuracy, comparisons, score.n, len(results.by_system[system]))


def compare_systems(
    results: Predictions, system: str, other: str, attribute: str, other_text: str
) -> BaselineComparison:
    """Compare the predictions of an attribute by two systems on the same labels; `other_text` names the other one."""
    n_units = results.clusters(attribute).index.max(initial=-1) + 1
    differences = results.differences(system, other, attribute)
    return BaselineComparison(
        other_text, differences["accuracy"], differences["log_loss"], bool(n_units >= MIN_CLUSTERS)
    )
