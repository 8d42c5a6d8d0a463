"""A first model of tables: proposed, and verified by parsing it, checking it and grounding it on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relcrf import api
from relcrf.api import Model
from relcrf.data.dataset import Dataset
from relcrf.grounding.derive import Progress
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.preview import TemplatePlan
from relcrf.proposal.manifest import Shaping
from relcrf.proposal.profile import profiles
from relcrf.proposal.scheme import Scheme
from relcrf.proposal.survey import survey
from relcrf.proposal.target import Target, choose
from relcrf.proposal.templates import ProposedTemplate, templates
from relcrf.proposal.text import model_text
from relcrf.proposal.things import find_things

MOST = 5_000_000
"""Bindings that a proposed template may have; a larger one is left as a comment."""

MOST_CANDIDATES = 50_000_000
"""As MOST, of candidates, which nothing is written down for before they are chosen."""


@dataclass(frozen=True)
class Idea:
    """What tables are, and what is predicted of them.

    Args:
        others: what else could be predicted.
    """

    scheme: Scheme
    target: Target
    others: tuple[str, ...]


@dataclass(frozen=True)
class Draft:
    """A model that was proposed, and verified on its tables.

    Args:
        templates: also those that are comments in its text.
        plans: what each template of the model grounds into.
        notes: what reading the tables took for granted.
    """

    idea: Idea
    text: str
    model: Model
    templates: tuple[ProposedTemplate, ...]
    plans: tuple[TemplatePlan, ...]
    grounding: Grounding
    notes: tuple[str, ...]

    @property
    def variables(self) -> int:
        return len(self.grounding.states)

    @property
    def labelled(self) -> int:
        return int((self.grounding.states >= 0).sum())

    def __str__(self) -> str:
        """What it predicts, why, and from what."""
        target, names = self.idea.target, [each.name for each in self.templates if each.is_active]
        return f"predicts {target.name} ({target.reason}); templates {', '.join(names)}"


def look(dataset: Dataset, predicted: str | None, shaping: Shaping, progress: Progress = lambda name: None) -> Idea:
    """Looks at tables that nobody has described.

    Args:
        predicted: `Table.column`, or a relation's table; None where the tables are to say it.
        shaping: takes the tables that the model needs in another shape.

    Raises:
        UsageError: where nothing, or not that, can be predicted.
        DataError: where the tables cannot be read.
    """
    progress("tables")
    tables = profiles(dataset)
    progress("references")
    scheme = survey(tables, find_things(tables), shaping)
    target, others = choose(scheme, predicted)
    return Idea(scheme, target, tuple(others))


def draft(
    name: str, idea: Idea, given: Dataset, commands: tuple[str, ...] = (), progress: Progress = lambda name: None
) -> Draft:
    """The model of an idea, verified.

    Args:
        name: of its file. commands: what its text says is to be run next.
        given: the tables in the shape that the model needs.
    """
    pieces = templates(idea.scheme, idea.target)

    progress("plan")
    plans = api.parse(model_text(name, idea.scheme, idea.target, pieces, idea.others, commands), name).plan(given)
    heavy = {plan.name for plan in plans if plan.bindings > (MOST_CANDIDATES if plan.is_candidate else MOST)}
    empty = {plan.name for plan in plans if not plan.bindings}
    pieces = [replace(p, is_active=p.name not in heavy) for p in pieces if p.name not in empty]
    text = model_text(name, idea.scheme, idea.target, pieces, idea.others, commands)
    model = api.parse(text, name)
    progress("ground")
    _, notes = model.check(given)
    grounding = model.ground(given, progress=progress)
    kept = tuple(plan for plan in plans if plan.name not in heavy | empty)
    return Draft(idea, text, model, tuple(pieces), kept, grounding, tuple(notes))


def proposed(dataset: Dataset, predicted: str | None = None, progress: Progress = lambda name: None) -> Draft:
    """A model of tables as they are; nothing is written. For the rest see `look` and `draft`."""
    idea = look(dataset, predicted, Shaping(None), progress)
    return draft("model.rcrf", idea, dataset, progress=progress)
