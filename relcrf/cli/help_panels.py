"""The layout of help texts: panels of commands and options, and command classes that hide the type of switches."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

CLUSTERING = "Clustering"
HOLDOUT = "Held-out labels"
LEARNING = "Learning"
RESOURCES = "Resources"

PANELS = (None, LEARNING, CLUSTERING, HOLDOUT, RESOURCES)
"""The panels of options in their order in help texts; None is the panel of the main options, which is printed first."""


class PlainCommand(TyperCommand):
    """A command whose help shows no type for switches, because switches have no value."""

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        """Return the parameters, with an empty metavar for each switch."""
        return _without_switch_types(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands whose help shows no type for switches."""

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        """Return the parameters, with an empty metavar for each switch."""
        return _without_switch_types(super().get_params(ctx))


def _without_switch_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters
