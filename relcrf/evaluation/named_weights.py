"""Tables of weights with names, support and standard errors; functions that filter and sort these tables."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np

from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.problems import training_problem
from relcrf.backends.weight_names import NAME_COLUMNS, largest_indices, weight_table
from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.evaluation.number_standard_errors import standard_errors
from relcrf.evaluation.standard_errors import StandardErrors
from relcrf.grounding.grounding import Grounding


def named_weights(learned: LearnedModel, errors: StandardErrors | None = None) -> Frame:
    """Return one row per weight: template, key, feature, pattern, weight, (with `errors`) standard_error and z, and
    support.

    The support of a weight is the sum of its feature over the training labels for which its state pattern holds. It is
    a count if the feature is always 1. The column `support` is missing if the training run did not store it.
    """
    columns = dict(weight_table(learned).columns)
    if errors is not None:
        columns["standard_error"] = errors.values
        columns["z"] = columns["weight"] / np.where(errors.values > 0.0, errors.values, np.nan)
    support = learned.vectors.get("support") if learned.moments is None else learned.moments.empirical
    return Frame(columns if support is None else {**columns, "support": support})


def named_moments(learned: LearnedModel, offsets: np.ndarray | None = None) -> Frame:
    """Return the empirical and expected moment of each weight, one row per weight. See docs/explanation/classical.md.

    The columns are template, key, feature, pattern, empirical (the sum of the feature over the labels for which the
    pattern holds), expected (the expectation of this sum under the model) and standard_errors (the difference of these
    two moments in units of its standard error).

    Args:
        offsets: Indices of the weights in the weight vector. Default: all weights that are not fixed.

    Raises:
        UsageError: The training run did not store moments (E387).
    """
    stored = learned.moments
    if stored is None:
        message = f"the training run of backend '{learned.backend}' did not store moments"
        raise UsageError(
            Diagnostic("E387", message, hint="train with backend dense, ess, local, pseudo, chow-liu or ipf")
        )
    offsets = np.flatnonzero(learned.layout.learnable_mask()) if offsets is None else offsets
    names = weight_table(learned, offsets)
    moments = {"empirical": stored.empirical, "expected": stored.expected, "standard_errors": stored.differences}
    return Frame({n: names[n] for n in NAME_COLUMNS} | {name: column[offsets] for name, column in moments.items()})


def standard_errors_from_data(
    learned: LearnedModel, grounding: Grounding, hidden: np.ndarray | None = None, requested: np.ndarray | None = None
) -> StandardErrors:
    """Compute standard errors of the weights from the training tables.

    Args:
        hidden: Mask of the labels that were held out in training, shape (n_variables,), bool.
        requested: See `standard_errors`.

    Raises:
        UsageError: The tables are not the training tables, or the backend does not maximise an exact likelihood (E357).
    """
    grounding = learned.extend_grounding(grounding)
    size = grounding.graph.layout.size
    if size != learned.layout.size:
        message = f"the model has {size:,} weights on these tables, but {learned.layout.size:,} were learned"
        raise UsageError(Diagnostic("E357", message, hint="pass the training tables"))
    return standard_errors(learned, training_problem(grounding, hidden), learned.vectors_for(grounding), requested)


def select_rows(
    learned: LearnedModel, frame: Frame, template: str | None = None, key: str | None = None, min_support: float = 0.0
) -> np.ndarray:
    """Return a mask of the rows of `named_weights` that match the filters, shape (n,).

    Args:
        key: A glob pattern for the key, with `*`, `?` and `[...]`.

    Raises:
        UsageError: The template is unknown (E316), or the frame has no support (E358).
    """
    mask = np.ones(len(frame), dtype=bool)
    if template is not None:
        names = [info.name for info in learned.templates]
        if template not in names:
            hint = suggestion(template, names) or f"the templates are {listing(names)}"
            raise UsageError(Diagnostic("E316", f"unknown template '{template}'", hint=hint))
        mask &= frame["template"] == template
    if key is not None:
        mask &= np.array([fnmatchcase(text, key) for text in frame["key"].tolist()], dtype=bool)
    if min_support > 0.0:
        mask &= _column(frame, "support") >= min_support
    return mask


def sort_rows(frame: Frame, mask: np.ndarray, by: str) -> np.ndarray:
    """Return the indices of the selected rows, by descending magnitude of a column, nan last, or in the order of the model.

    Args:
        mask: See `select_rows`.
        by: `weight`, `z`, `support` or `model`, i.e. by templates in the order of the model, and by keys in ascending order.

    Raises:
        UsageError: The frame does not have the column (E358).
    """
    rows = np.flatnonzero(mask)
    if by == "model":
        return rows
    return np.asarray(rows[largest_indices(_column(frame, by)[rows], len(rows))])


def _column(frame: Frame, name: str) -> np.ndarray:
    if name not in frame.columns:
        message, hint = {
            "z": ("z needs standard errors, which need data", "pass the training tables with --data"),
            "support": (
                "the training run did not store the support",
                "train with backend local, ess, dense, pseudo, chow-liu, ipf or trmrf, without calibration (auto calibrates)",
            ),
        }[name]
        raise UsageError(Diagnostic("E358", message, hint=hint))
    return frame[name]
