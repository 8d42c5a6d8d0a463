"""The choice of the backend `auto`: the candidates that it compared, and the reason for the choice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.registry import backend_names, make_backend
from relcrf.errors import listing
from relcrf.evaluation.automatic import AutoBackend, describe_settings
from relcrf.evaluation.predictions import LOCAL

COMPARISON_VALUES = (
    "chosen_without_comparison",
    "held_out_labels",
    "compared_training_labels",
    "calibrated_log_likelihood",
    "gain_over_local",
    "standard_error_of_gain",
)
"""Names of the summary values that describe the comparison of the candidates."""

MAX_SHOWN_TRIALS = 12
"""Maximum number of displayed candidates; a comparison has up to 30, most of which differ in one setting only."""


@dataclass(frozen=True)
class BackendChoice:
    """The backend that `auto` chose, and the candidates that it compared.

    Args:
        backend: Name of the chosen backend.
        settings: The settings of the chosen backend that differ from the defaults, as text.
        trials: The candidates in the order of their training, as table rows; see `FitResult.trials`.
        summary: The summary values named in `COMPARISON_VALUES`.
    """

    backend: str
    settings: str
    trials: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any]

    @classmethod
    def from_model(cls, learned: LearnedModel, trial_seconds: Sequence[float] = ()) -> BackendChoice | None:
        """Return the choice of a training run; None if the run named the backend.

        Args:
            trial_seconds: CPU seconds of the candidates, for a model that was read from a run folder.
        """
        if learned.request is None or learned.request.backend != AutoBackend.name:
            return None
        is_installed = learned.backend in backend_names()
        settings = describe_settings(make_backend(learned.backend, **learned.settings)) if is_installed else ""
        trials = learned.trials
        if len(trial_seconds) == len(trials):
            trials = tuple({**row, "seconds": seconds} for row, seconds in zip(trials, trial_seconds, strict=True))
        summary = {name: value for name, value in learned.summary.items() if name in COMPARISON_VALUES}
        return cls(learned.backend, settings, trials, summary)

    @property
    def reason(self) -> str:
        """Why no candidates were compared; empty if candidates were compared."""
        return str(self.summary.get("chosen_without_comparison", ""))

    @property
    def labels_text(self) -> str:
        """The number and the kind of the labels on which the candidates were compared."""
        if n_training := self.summary.get("compared_training_labels", 0):  # of a large graph
            return f"{n_training:,} training labels"
        return f"{self.summary.get('held_out_labels', 0):,} held-out labels"

    @property
    def shown_trials(self) -> list[Mapping[str, Any]]:
        """The best candidates that accepted the problem, best first, with the chosen one and the best `local` included."""
        ranked = sorted(self._accepted, key=lambda row: -_score(row))
        best_local = next((k for k, row in enumerate(ranked) if row["backend"] == LOCAL), None)
        required = {k for k, row in enumerate(ranked) if self.is_chosen(row) or k == best_local}
        others = [k for k in range(len(ranked)) if k not in required]
        shown = {*required, *others[: max(MAX_SHOWN_TRIALS - len(required), 0)]}
        return [ranked[k] for k in sorted(shown)]

    @property
    def n_omitted(self) -> int:
        """The number of candidates that accepted the problem, but are not in `shown_trials`."""
        return len(self._accepted) - len(self.shown_trials)

    @property
    def _accepted(self) -> list[Mapping[str, Any]]:
        return [row for row in self.trials if "rejected" not in row]

    def is_chosen(self, row: Mapping[str, Any]) -> bool:
        """Return True if a row of `trials` is the chosen candidate."""
        return (row["backend"], row["settings"]) == (self.backend, self.settings)

    @property
    def sentence(self) -> str:
        """The choice and the gain over `local`, as one sentence without a full stop."""
        name = f"{self.backend} ({self.settings})" if self.settings else self.backend
        if self.reason:
            return f"auto trained {name} without a comparison: {self.reason}"
        gain, error = (float(self.summary.get(each, 0.0)) for each in ("gain_over_local", "standard_error_of_gain"))
        difference = (
            f"log-likelihood {gain:.4f} per label above that of local (standard error {error:.4f}, {self.labels_text})"
        )
        if self.backend != LOCAL:
            return f"auto chose {name}: {difference}"
        if all(row["backend"] == LOCAL for row in self.trials):
            ending = f"no relation joins predicted values ({self.labels_text})"
        else:
            ending = f"relations do not improve the predictions of {self.labels_text}"
        if gain > 0.0:  # the settings include self-training, which the best `local` candidate does without
            ending = f"{difference.replace('local', 'local without self-training')}; {ending}"
        return f"auto chose {name}: {ending}"

    @property
    def rejections(self) -> list[str]:
        """One sentence without a full stop for each reason for which candidates were rejected."""
        accepted = {row["backend"] for row in self._accepted}
        by_reason: dict[str, list[str]] = {}
        for row in self.trials:
            if "rejected" in row:
                name = str(row["backend"])
                name = f"{name} ({row['settings']})" if name in accepted and row["settings"] else name
                by_reason.setdefault(str(row["rejected"]), []).append(name)
        return [f"rejected {listing(dict.fromkeys(names))}: {reason}" for reason, names in by_reason.items()]

    def as_dict(self) -> dict[str, Any]:
        """Return the choice as a JSON object."""
        return {"backend": self.backend, "settings": self.settings, **self.summary}


def _score(row: Mapping[str, Any]) -> float:
    """Return the log-likelihood of a candidate; -inf if it is undefined."""
    score = float(row.get("log_likelihood", -math.inf))
    return -math.inf if math.isnan(score) else score
