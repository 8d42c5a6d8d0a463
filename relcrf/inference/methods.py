"""Inference methods by name, and the settings of the methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.graph.scopes import Scopes
from relcrf.inference.auto import Auto
from relcrf.inference.belief_propagation import BeliefPropagation, TreeReweighted
from relcrf.inference.dual_decomposition import DualDecomposition
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.forest import ForestInference
from relcrf.inference.gibbs import Gibbs
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.map_search import MapSearch
from relcrf.inference.mean_field import MeanField
from relcrf.inference.mini_bucket import MiniBucket
from relcrf.inference.result import AbstractInference, Observer, ignore_progress
from relcrf.settings import convert_settings, field_types, setting_names

METHODS: Mapping[str, type[AbstractInference]] = {
    "auto": Auto,
    "bp": BeliefPropagation,
    "dual": DualDecomposition,
    "enumeration": Enumeration,
    "forest": ForestInference,
    "gibbs": Gibbs,
    "jt": JunctionTree,
    "mf": MeanField,
    "search": MapSearch,
    "trw": TreeReweighted,
    "wmb": MiniBucket,
}


def text_setting_names(method: type[AbstractInference]) -> list[str]:
    """Return the names of a method's settings that can be written as text: numbers, truth values and strings."""
    types = field_types(method)
    return [name for name in setting_names(method) if types[name] in (int, float, bool, str)]


def create_inference(
    name: str, scopes: Scopes, settings: Mapping[str, Any], observe: Observer = ignore_progress
) -> AbstractInference:
    """Create an inference method by name.

    Args:
        name: Name of the method, a key of `METHODS`.
        scopes: Scopes of the graph.
        settings: Settings that differ from their defaults.
        observe: Callback that receives the verdicts of an iterative method during the run.

    Raises:
        UsageError: If the method or a setting is unknown, or a value has the wrong type.
    """
    if name not in METHODS:
        hint = suggestion(name, METHODS) or f"the methods are {listing(METHODS)}"
        raise UsageError(Diagnostic("E380", f"unknown inference method '{name}'", hint=hint))
    method = METHODS[name]
    values = {"scopes": scopes} | convert_settings(method, f"method '{name}'", settings, text_setting_names(method))
    if "observe" in setting_names(method):
        values["observe"] = observe
    try:
        return method(**values)
    except ValueError as error:
        raise UsageError(
            Diagnostic("E305", f"method '{name}': {error}", hint="see docs/explanation/inference")
        ) from None
