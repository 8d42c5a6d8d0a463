"""The expansion of a model into the templates and relations that grounding evaluates."""

from __future__ import annotations

from relcrf.model.as_of import apply_as_of
from relcrf.model.disjunctions import extract_disjunctions
from relcrf.model.spec import ModelSpec


def expand_model(spec: ModelSpec) -> ModelSpec:
    """Inline includes, convert rules, make `as of` explicit, extract disjunctions, and return the new model."""
    return extract_disjunctions(apply_as_of(spec))
