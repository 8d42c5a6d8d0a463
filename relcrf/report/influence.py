"""The links with the largest contributions to a sample of predictions, and interactive pictures of neighbourhoods."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from relcrf.evaluation.contributions import Contribution
from relcrf.evaluation.explanation import Explanation

MAX_LINKS = 15
"""Maximum number of rows of the table of links."""

MAX_NEIGHBOURS = 12
"""Maximum number of neighbours of a picture, largest contributions first."""

RADIUS = 150.0
"""Distance of the neighbours from the variable, in units of the picture."""


@dataclass(frozen=True)
class Link:
    """A contribution of neighbours to the prediction of a variable."""

    explanation: Explanation
    contribution: Contribution

    @property
    def variable(self) -> str:
        """The name of the variable."""
        return self.explanation.variable

    @property
    def answer(self) -> str:
        """The prediction."""
        return self.explanation.short_answer

    @property
    def amount(self) -> str:
        """The contribution as text."""
        return self.explanation.format_amount(self.contribution.amount, 3)

    @property
    def magnitude(self) -> float:
        """The size of the contribution in nats or, for numbers, in standard deviations of the prediction."""
        return abs(self.contribution.amount) / self.explanation.amount_scale

    @property
    def neighbours(self) -> str:
        """The neighbours with their values, and their probabilities if they are not observed."""
        return ", ".join(map(str, self.contribution.neighbours))

    @property
    def templates(self) -> str:
        """The names of the templates."""
        return ", ".join(self.contribution.templates)


@dataclass(frozen=True)
class NeighbourDisc:
    """A neighbour in the picture: position, line width, colour (a CSS variable), and description."""

    x: float
    y: float
    width: float
    colour: str
    is_observed: bool
    text: str


@dataclass(frozen=True)
class Neighbourhood:
    """A picture of the neighbours that contribute to a prediction; `effects` are those of positive and negative amounts."""

    variable: str
    prediction: str
    effects: tuple[str, str]
    discs: tuple[NeighbourDisc, ...]


def largest_links(explanations: Sequence[Explanation]) -> list[Link]:
    """Return the links with the largest contributions in absolute value."""
    links = [Link(one, part) for one in explanations for part in _neighbour_contributions(one)]
    return sorted(links, key=lambda link: -link.magnitude)[:MAX_LINKS]


def draw_neighbourhoods(explanations: Sequence[Explanation]) -> list[Neighbourhood]:
    """Return the pictures of those variables to which neighbours contribute."""
    return [_neighbourhood(one) for one in explanations if _neighbour_contributions(one)]


def _neighbourhood(explanation: Explanation) -> Neighbourhood:
    shown = _neighbour_contributions(explanation)[:MAX_NEIGHBOURS]
    largest = max(abs(one.amount) for one in shown) or 1.0
    discs = []
    for number, one in enumerate(shown):
        angle = 2.0 * math.pi * number / len(shown) - math.pi / 2.0
        effect = explanation.effects[0 if one.amount >= 0 else 1]
        amount = f"{explanation.format_amount(one.amount, 3)} {explanation.unit}"
        text = f"{', '.join(map(str, one.neighbours))}: {amount}, {effect} ({', '.join(one.templates)})"
        discs.append(
            NeighbourDisc(
                round(RADIUS * math.cos(angle), 1),
                round(RADIUS * math.sin(angle), 1),
                round(1.0 + 7.0 * abs(one.amount) / largest, 1),
                "--first" if one.amount >= 0 else "--second",
                all(neighbour.is_observed for neighbour in one.neighbours),
                text,
            )
        )
    prediction = "; ".join(filter(None, (explanation.summary, explanation.truth_text)))
    return Neighbourhood(explanation.variable, prediction, explanation.effects, tuple(discs))


def _neighbour_contributions(explanation: Explanation) -> list[Contribution]:
    """Return the contributions of neighbours, largest first."""
    return [one for one in explanation.contributions if one.kind in ("evidence", "neighbour")]


def script_hash(script: str) -> str:
    """Return the source expression of a content security policy that allows exactly this script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
