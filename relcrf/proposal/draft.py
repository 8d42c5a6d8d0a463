"""A first model of tables: proposed, and verified by parsing it, checking it and grounding it on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relcrf import api
from relcrf.api import Model
from relcrf.data.dataset import Dataset
from relcrf.grounding.derive import Progress
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.preview import TemplatePlan
from relcrf.proposal.entity_candidates import find_candidates
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.model_text import model_text
from relcrf.proposal.profile import profile_tables
from relcrf.proposal.schema import ProposedSchema
from relcrf.proposal.schema_inference import infer_schema
from relcrf.proposal.target import PredictionTarget, choose_target
from relcrf.proposal.templates import ProposedTemplate, propose_templates

MAX_BINDINGS = 5_000_000
"""Bindings that a proposed template may have; a larger one is left as a comment."""

MAX_CANDIDATE_BINDINGS = 50_000_000
"""As MOST, of candidates, which nothing is written down for before they are chosen."""


@dataclass(frozen=True)
class TableAnalysis:
    """What tables are, and what is predicted of them.

    Args:
        alternatives: what else could be predicted.
    """

    schema: ProposedSchema
    target: PredictionTarget
    alternatives: tuple[str, ...]


@dataclass(frozen=True)
class ModelDraft:
    """A model that was proposed, and verified on its tables.

    Args:
        templates: also those that are comments in its text.
        plans: what each template of the model grounds into.
        notes: what reading the tables took for granted.
    """

    analysis: TableAnalysis
    text: str
    model: Model
    templates: tuple[ProposedTemplate, ...]
    plans: tuple[TemplatePlan, ...]
    grounding: Grounding
    notes: tuple[str, ...]

    @property
    def n_variables(self) -> int:
        return len(self.grounding.states)

    @property
    def n_labelled(self) -> int:
        return int((self.grounding.states >= 0).sum())

    def __str__(self) -> str:
        """What it predicts, why, and from what."""
        target, names = self.analysis.target, [each.name for each in self.templates if each.is_active]
        return f"predicts {target.name} ({target.reason}); templates {', '.join(names)}"


def analyse_tables(
    dataset: Dataset, predicted: str | None, manifest: ManifestBuilder, progress: Progress = lambda name: None
) -> TableAnalysis:
    """Looks at tables that nobody has described.

    Args:
        predicted: `Table.column`, or a relation's table; None where the tables are to say it.
        manifest: takes the tables that the model needs in another shape.

    Raises:
        UsageError: where nothing, or not that, can be predicted.
        DataError: where the tables cannot be read.
    """
    progress("tables")
    tables = profile_tables(dataset)
    progress("references")
    scheme = infer_schema(tables, find_candidates(tables), manifest)
    target, others = choose_target(scheme, predicted)
    return TableAnalysis(scheme, target, tuple(others))


def draft_model(
    name: str,
    analysis: TableAnalysis,
    dataset: Dataset,
    commands: tuple[str, ...] = (),
    progress: Progress = lambda name: None,
) -> ModelDraft:
    """The model of an idea, verified.

    Args:
        name: of its file. commands: what its text says is to be run next.
        dataset: the tables in the shape that the model needs.
    """
    pieces = propose_templates(analysis.schema, analysis.target)

    progress("plan")
    plans = api.parse(
        model_text(name, analysis.schema, analysis.target, pieces, analysis.alternatives, commands), name
    ).plan(dataset)
    heavy = {
        plan.name for plan in plans if plan.bindings > (MAX_CANDIDATE_BINDINGS if plan.is_candidate else MAX_BINDINGS)
    }
    empty = {plan.name for plan in plans if not plan.bindings}
    pieces = [replace(p, is_active=p.name not in heavy) for p in pieces if p.name not in empty]
    text = model_text(name, analysis.schema, analysis.target, pieces, analysis.alternatives, commands)
    model = api.parse(text, name)
    progress("ground")
    _, notes = model.check(dataset)
    grounding = model.ground(dataset, progress=progress)
    kept = tuple(plan for plan in plans if plan.name not in heavy | empty)
    return ModelDraft(analysis, text, model, tuple(pieces), kept, grounding, tuple(notes))


def propose_model(dataset: Dataset, predicted: str | None = None, progress: Progress = lambda name: None) -> ModelDraft:
    """A model of tables as they are; nothing is written. For the rest see `look` and `draft`."""
    idea = analyse_tables(dataset, predicted, ManifestBuilder(None), progress)
    return draft_model("model.rcrf", idea, dataset, progress=progress)
