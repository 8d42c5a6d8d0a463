"""The digits demo on one split: train a local classifier and an ESS-CRF (evidence-specific structure), and compare them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relcrf import api
from relcrf.data.dataset import Dataset
from relcrf.demo.digits import Digits, make_digits
from relcrf.evaluation.measures import Score
from relcrf.evaluation.splits import partition_variables
from relcrf.resources import resource_path


@dataclass(frozen=True)
class AutomaticResult:
    """The result of the backend `auto` on one split: the score, the name of the chosen backend, and seconds of training."""

    score: Score
    backend: str
    seconds: float


@dataclass(frozen=True)
class SplitResult:
    """The results of the local classifier and of the ESS-CRF on one seeded split.

    Args:
        before, after: The digits of unlabelled images that the classifier (`before`) and the ESS-CRF (`after`) predict.
        forest: The pairs of images that the edges of the ESS-CRF's forest connect.
        seconds: The durations of the phases `ground`, `learn` and `infer` of the ESS-CRF, in seconds.
        auto: The result of the backend `auto`; None if it was not requested.
    """

    seed: int
    digits: Digits
    local: Score
    ess: Score
    before: np.ndarray
    after: np.ndarray
    forest: np.ndarray
    seconds: dict[str, float]
    auto: AutomaticResult | None = None


def run_split(seed: int, phase: Callable[[str], None] = lambda name: None, *, with_auto: bool = False) -> SplitResult:
    """Predict the digits of the unlabelled images of one split.

    Args:
        with_auto: Whether the backend `auto` is also trained.
    """
    phase(f"split {seed}: grounding")
    digits = make_digits(seed)
    rest = ~digits.labelled
    model = api.load(resource_path("models", "digits.rcrf"))
    data = Dataset({"image": digits.table()})
    started = time.perf_counter()
    grounding = model.ground(data)
    seconds_ground = time.perf_counter() - started
    hidden = partition_variables(grounding, "part").holdout_mask(["rest"])
    phase(f"split {seed}: training the classifier")
    local = api.predict(api.fit(model, grounding, "local", hidden=hidden), grounding, hidden=hidden)
    phase(f"split {seed}: learning the ESS-CRF")
    fit = api.fit(model, grounding, "ess", hidden=hidden)
    phase(f"split {seed}: labelling {int(rest.sum()):,} images")
    prediction = api.predict(fit, grounding, hidden=hidden)
    automatic = None
    if with_auto:
        phase(f"split {seed}: comparing backends")
        chosen = api.fit(model, grounding, "auto", hidden=hidden)
        predicted = api.predict(chosen, grounding, hidden=hidden)
        automatic = AutomaticResult(predicted.score(subset=hidden), chosen.learned.backend, chosen.seconds)
    return SplitResult(
        seed,
        digits,
        local.score(subset=hidden),
        prediction.score(subset=hidden),
        local.probabilities().argmax(axis=1),
        prediction.probabilities().argmax(axis=1),
        prediction.inferred.edges,
        {"ground": seconds_ground, "learn": fit.seconds, "infer": prediction.seconds},
        automatic,
    )
