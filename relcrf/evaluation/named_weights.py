"""Weights with their names, how often they were seen, and how sure they are: as a table that is filtered and sorted."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np

from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.problems import training_problem
from relcrf.backends.weight_names import NAME_COLUMNS, largest_indices, weight_table
from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.evaluation.standard_errors import StandardErrors, standard_errors
from relcrf.grounding.grounding import Grounding


def named_weights(learned: LearnedModel, errors: StandardErrors | None = None) -> Frame:
    """All weights, one a row: template, key, feature, pattern, weight; with errors standard_error and z; and support.

    Support is the sum of the feature where the pattern holds in the training labels, a count where features are 1; the column
    is missing where the training kept none.
    """
    columns = dict(weight_table(learned).columns)
    if errors is not None:
        columns["standard_error"] = errors.values
        columns["z"] = columns["weight"] / np.where(errors.values > 0.0, errors.values, np.nan)
    support = learned.vectors.get("support") if learned.moments is None else learned.moments.empirical
    return Frame(columns if support is None else {**columns, "support": support})


def named_moments(learned: LearnedModel, offsets: np.ndarray | None = None) -> Frame:
    """Return how often each weight's feature goes with its pattern in the labels and as the model expects it, one a row:
    template, key, feature, pattern, empirical, expected, and their difference in standard errors. See docs/explanation/classical.md.

    Args:
        offsets: of the weights, offsets in the layout; None is those that were learned.

    Raises:
        UsageError: where the training kept none.
    """
    found = learned.moments
    if found is None:
        message = f"this training by backend '{learned.backend}' kept no moments"
        raise UsageError(Diagnostic("E387", message, hint="train with dense, ess, local, pseudo, chow-liu or ipf"))
    offsets = np.flatnonzero(learned.layout.learnable_mask()) if offsets is None else offsets
    names = weight_table(learned, offsets)
    moments = {"empirical": found.empirical, "expected": found.expected, "standard_errors": found.differences}
    return Frame({n: names[n] for n in NAME_COLUMNS} | {name: column[offsets] for name, column in moments.items()})


def standard_errors_from_data(
    learned: LearnedModel, grounding: Grounding, hidden: np.ndarray | None = None, requested: np.ndarray | None = None
) -> StandardErrors:
    """Standard errors by the training's tables.

    Args:
        hidden: as it was in training. asked: see `standard_errors`.

    Raises:
        UsageError: where these cannot be the tables, or the backend maximises no exact likelihood.
    """
    grounding = learned.extend_grounding(grounding)
    size = grounding.graph.layout.size
    if size != learned.layout.size:
        message = f"the model has {size:,} weights on these tables and has learned {learned.layout.size:,}"
        raise UsageError(Diagnostic("E357", message, hint="give the tables that it was trained on"))
    return standard_errors(learned, training_problem(grounding, hidden), learned.vectors_for(grounding), requested)


def select_rows(
    learned: LearnedModel, frame: Frame, template: str | None = None, key: str | None = None, min_support: float = 0.0
) -> np.ndarray:
    """Which rows of `named_weights` are asked for, shape (n,), bool.

    Args:
        key: a pattern of file names: `*`, `?` and `[...]` stand for other letters.

    Raises:
        UsageError: for an unknown template, or where there is no support.
    """
    kept = np.ones(len(frame), dtype=bool)
    if template is not None:
        names = [info.name for info in learned.templates]
        if template not in names:
            hint = suggestion(template, names) or f"the templates are {listing(names)}"
            raise UsageError(Diagnostic("E316", f"there is no template '{template}'", hint=hint))
        kept &= frame["template"] == template
    if key is not None:
        kept &= np.array([fnmatchcase(text, key) for text in frame["key"].tolist()], dtype=bool)
    if min_support > 0.0:
        kept &= _column(frame, "support") >= min_support
    return kept


def sort_rows(frame: Frame, mask: np.ndarray, by: str) -> np.ndarray:
    """The chosen rows, the largest magnitude first; those without a number last.

    Args:
        mask: see `selected`. by: `weight`, `z` or `support`.

    Raises:
        UsageError: where the frame has no such column.
    """
    rows = np.flatnonzero(mask)
    return np.asarray(rows[largest_indices(_column(frame, by)[rows], len(rows))])


def _column(frame: Frame, name: str) -> np.ndarray:
    if name not in frame.columns:
        message, hint = {
            "z": ("z is known where standard errors are", "give --data, the tables that it was trained on"),
            "support": (
                "this training kept no support",
                "train with local, ess, dense, pseudo, chow-liu, ipf or trmrf",
            ),
        }[name]
        raise UsageError(Diagnostic("E358", message, hint=hint))
    return frame[name]
