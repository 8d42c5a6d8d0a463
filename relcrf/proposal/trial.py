"""Trials of proposed models: training without a part of the labels, and the scores of the predictions of that part."""

from __future__ import annotations

from dataclasses import dataclass

from relcrf import api
from relcrf.data.split_plan import parse_split
from relcrf.errors import RelcrfError
from relcrf.evaluation.measures import Score
from relcrf.evaluation.predictions import LOCAL, MAJORITY
from relcrf.grounding.derive import Progress
from relcrf.proposal.draft import ModelDraft

MAX_VARIABLES = 20_000
"""Maximum number of variables of a model that is tried; larger models take minutes to train."""

HELD_OUT = "hide=0.2"
"""The held-out labels: a random fifth."""

BACKEND = "auto"


@dataclass(frozen=True)
class ModelTrial:
    """The scores of a proposed model on held-out labels, or the reason why there are none.

    Args:
        scores: The score of each system: the majority value, `local` (without relations) and the model.
    """

    scores: dict[str, Score]
    reason: str = ""


def try_model(draft: ModelDraft, progress: Progress = lambda name: None) -> ModelTrial:
    """Train a proposed model without a fifth of the labels, and score its predictions of them."""
    if draft.n_variables > MAX_VARIABLES:
        return ModelTrial({}, f"it has more than {MAX_VARIABLES:,} variables")
    progress("trial")
    try:
        found = api.evaluate(draft.grounding, [BACKEND], parse_split(HELD_OUT), settings={BACKEND: {"effort": "quick"}})
    except RelcrfError as error:
        return ModelTrial({}, error.diagnostics[0].message)
    attribute = found.predictions.attributes[0]
    return ModelTrial({name: found.predictions.score(name, attribute) for name in (MAJORITY, LOCAL, BACKEND)})
