"""Construction of training problems and query problems from ground graphs."""

from __future__ import annotations

import numpy as np

from relcrf.backends.base import Problem
from relcrf.backends.learned_model import LearnedModel
from relcrf.errors import DataError, Diagnostic, listing
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding


def training_problem(
    grounding: Grounding,
    hidden: np.ndarray | None = None,
    evidence: np.ndarray | None = None,
    *,
    with_candidates: bool = False,
) -> Problem:
    """Return a problem with labelled and latent variables free, `evidence` clamped, and all others absent.

    Raises:
        DataError: If no variable is labelled.
    """
    labelled = grounding.states >= 0
    if hidden is not None:
        labelled = labelled & ~hidden
    if not labelled.any():
        names = listing(block.name for block in grounding.blocks)
        hint = "give some things a label to learn from"
        raise DataError(Diagnostic("E225", f"no value of {names} is known", hint=hint))
    roles = np.where(labelled | grounding.latent, Role.FREE, Role.ABSENT).astype(np.int8)
    if evidence is not None:
        roles[labelled & evidence] = Role.CLAMPED
    candidates = tuple(space.pairs for space in grounding.candidates) if with_candidates else ()
    return Problem(grounding.graph, roles, grounding.states, candidates=candidates, lazy_gates=grounding.lazy_gates)


def query_problem(
    learned: LearnedModel, grounding: Grounding, hidden: np.ndarray | None = None, queries: np.ndarray | None = None
) -> tuple[Grounding, dict[str, np.ndarray], Problem]:
    """Return the graph with the chosen candidates, its weights, and a problem with the unknown variables as queries.

    Args:
        hidden, queries: See `relcrf.api.predict`.

    Raises:
        DataError: If a weight is NaN, so that predictions are undefined.
    """
    for name, vector in learned.vectors.items():
        if broken := int(np.isnan(vector).sum()):
            message = f"{broken:,} of the {len(vector):,} {name} are no numbers: the optimiser ran away, or their file is damaged"
            hint = "train again with a larger l2, or with features of smaller numbers; 'relcrf report' shows how learning went"
            raise DataError(Diagnostic("E422", message, hint=hint))
    grounding = learned.extend_grounding(grounding)
    known = grounding.states >= 0
    if hidden is not None:
        known = known & ~hidden
    roles = np.where(known, Role.CLAMPED, Role.FREE).astype(np.int8)
    wanted = ~grounding.latent if queries is None else queries
    problem = Problem(grounding.graph, roles, grounding.states, lazy_gates=grounding.lazy_gates, queries=wanted)
    return grounding, learned.vectors_for(grounding), problem
