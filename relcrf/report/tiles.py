"""The few figures at the top of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.backends.checkpoints import Timings
from relcrf.backends.learned import LearnedModel
from relcrf.report.results import Section


@dataclass(frozen=True)
class Tile:
    """A figure, what it is, and how far it may be off or what it is of.

    Args:
        tone: `good` or `bad` where the figure is one of these beyond chance, else empty.
    """

    value: str
    title: str
    note: str
    tone: str = ""


def tiles(learned: LearnedModel, timings: Timings, judged: Sequence[Section]) -> list[Tile]:
    """Of the first attribute what held-out labels say, if any are; and of the training."""
    of = f" ({judged[0].labels.name})" if len(judged) > 1 else ""
    found = _of_section(judged[0], of) if judged else []
    learnt = learned.layout.learned()
    nonzero = int(np.count_nonzero(learned.vectors["weights"][learnt]))
    found.append(Tile(f"{nonzero:,}", "weights other than 0", f"of {int(learnt.sum()):,} that are learned"))
    seconds = sum(timings.phases.values())
    found.append(Tile(f"{seconds:,.1f} s", "to train", ", ".join(timings.phases)))
    return found


def _of_section(section: Section, of: str) -> list[Tile]:
    accuracy, loss = section.of_run["accuracy"], section.of_run["log_loss"]
    low, high = accuracy.low, accuracy.high
    found = [
        Tile(f"{accuracy.value:.1%}", f"of the answers are right{of}", f"95 %: {100 * low:.1f} to {100 * high:.1f}"),
        Tile(f"{loss.value:.3f}", "log-loss, nats", f"95 %: {loss.low:.3f} to {loss.high:.3f}"),
    ]
    if section.gain is not None:
        gain = section.gain.accuracy
        tone = "good" if section.gain.is_seen else "bad" if section.gain.is_loss else ""
        low, high = gain.low, gain.high
        title = "points of accuracy by the relations"
        found.append(Tile(f"{100 * gain.value:+.1f}", title, f"95 %: {100 * low:+.1f} to {100 * high:+.1f}", tone))
    sure = section.calibration
    text = "too sure" if sure.is_too_sure else "too unsure" if sure.is_too_unsure else "as sure as it may be"
    tone = "bad" if sure.is_too_sure or sure.is_too_unsure else "good"
    gap = 100 * (sure.confidence - sure.accuracy)
    found.append(Tile(f"{gap:+.1f}", "points of confidence above accuracy", text, tone))
    return found
