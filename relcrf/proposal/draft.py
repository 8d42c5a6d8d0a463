"""Drafts of models for tables without a schema. A draft is parsed, checked, and grounded on the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relcrf import api
from relcrf.api import Model
from relcrf.data.binding import bind
from relcrf.data.dataset import Dataset
from relcrf.grounding.candidates import ground_candidates
from relcrf.grounding.derive import Progress
from relcrf.grounding.ground import create_relation_tables, ground
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.preview import TemplatePlan, plan_templates
from relcrf.proposal.agreement import with_agreement_priors
from relcrf.proposal.entity_candidates import find_candidates
from relcrf.proposal.event_tables import add_events, find_event_tables, time_warning
from relcrf.proposal.list_tables import split_lists
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.model_text import model_text
from relcrf.proposal.near_misses import NearMiss, find_near_misses
from relcrf.proposal.profile import TableProfile, profile_tables
from relcrf.proposal.repairs import repair_tables
from relcrf.proposal.schema import ProposedSchema
from relcrf.proposal.schema_inference import infer_schema
from relcrf.proposal.shared_values import add_shared_values
from relcrf.proposal.split_columns import exclude_split_columns
from relcrf.proposal.target import PredictionTarget, choose_target
from relcrf.proposal.templates import ProposedTemplate, propose_templates
from relcrf.proposal.text_words import add_words

MAX_BINDINGS = 5_000_000
"""Maximum number of bindings of a proposed template; a template with more bindings is written as a comment."""

MAX_CANDIDATE_BINDINGS = 50_000_000
"""Maximum number of bindings of a `candidates` declaration. Only bindings of selected candidates are stored."""


@dataclass(frozen=True)
class TableAnalysis:
    """The inferred schema of tables and the chosen prediction target.

    Args:
        alternatives: Names of other possible targets.
        near_misses: Columns that are keys or references except for a few invalid rows.
        tables: The profiles of the tables.
        notes: Messages about tables that cannot be read and about assumed formats.
    """

    schema: ProposedSchema
    target: PredictionTarget
    alternatives: tuple[str, ...]
    near_misses: tuple[NearMiss, ...] = ()
    tables: tuple[TableProfile, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelDraft:
    """A proposed model that was checked and grounded on its tables.

    Args:
        templates: All proposed templates, including those that the text contains only as comments.
        plans: The grounding plan of each template of the model.
        notes: Messages about assumptions made while reading the tables.
        name, commands: See `draft_model`.
    """

    analysis: TableAnalysis
    text: str
    model: Model
    templates: tuple[ProposedTemplate, ...]
    plans: tuple[TemplatePlan, ...]
    grounding: Grounding
    notes: tuple[str, ...]
    name: str = "model.rcrf"
    commands: tuple[str, ...] = ()

    @property
    def n_variables(self) -> int:
        return len(self.grounding.states)

    @property
    def n_labelled(self) -> int:
        return int((self.grounding.states >= 0).sum())

    def __str__(self) -> str:
        """Return the prediction target with its reason, and the templates, as text."""
        target, names = self.analysis.target, [each.name for each in self.templates if each.is_active]
        return f"predicts {target.name} ({target.reason}); templates {', '.join(names)}"


def analyse_tables(
    dataset: Dataset, predicted: str | None, manifest: ManifestBuilder, progress: Progress = lambda name: None
) -> TableAnalysis:
    """Infer the schema and the prediction target from tables alone.

    Args:
        predicted: The target: `Table.column`, or the table of a relation; None to choose the most plausible target.
        manifest: Builder of the manifest, to which queries that reshape tables are added.

    Raises:
        UsageError: `predicted`, or every column and relation, is unsuitable as a target.
        DataError: The tables cannot be read.
    """
    progress("tables")
    tables = profile_tables(dataset)
    without_rows = {table.name for table in dataset.tables.values()} - {profile.name for profile in tables}
    progress("references")
    tables, repairs = repair_tables(dataset, tables, manifest)
    tables, dropped = split_lists(dataset, tables, manifest)
    candidates = find_candidates(tables)
    near_misses = [*repairs, *dropped, *find_near_misses(tables, candidates)]
    events = find_event_tables(tables, candidates, manifest, predicted)
    schema = infer_schema(tables, candidates, manifest, events)
    schema.excluded_columns += [(name, "the table has no rows") for name in sorted(without_rows)]
    exclude_split_columns(schema, tables, predicted)
    target, alternatives = choose_target(schema, predicted)
    schema.excluded_columns += [
        (
            f"{each.table} ({each.name})",
            f"its values are not evidence; they can be predicted with --predict {each.name}",
        )
        for each in schema.relations
        if each.value_column is not None and each is not target.relation
    ]
    add_events(schema, target, events, manifest)
    add_shared_values(schema, target, tables, manifest)
    add_words(schema, target, manifest)
    schema.warnings += filter(None, [time_warning(schema, target)])
    return TableAnalysis(schema, target, tuple(alternatives), tuple(near_misses), tuple(tables), tuple(dataset.notes))


def draft_model(
    name: str,
    analysis: TableAnalysis,
    dataset: Dataset,
    commands: tuple[str, ...] = (),
    progress: Progress = lambda name: None,
    with_known_labels: Callable[[Grounding], Grounding] = lambda grounding: grounding,
) -> ModelDraft:
    """Build a model of analysed tables, check it, and ground it on the tables.

    Args:
        name: The model's file name.
        dataset: The tables, reshaped by the queries of the manifest.
        commands: Commands for the user to run next, which are written into the text.
        with_known_labels: Function that returns a ground graph with the labels from which priors are estimated.
    """
    templates = propose_templates(analysis.schema, analysis.target)

    def render() -> str:
        return model_text(name, analysis.schema, analysis.target, templates, analysis.alternatives, commands)

    progress("plan")
    text = render()
    model = api.parse(text, name)
    bound = bind(model.spec, dataset)
    create_relation_tables(bound)
    plans = plan_templates(bound)
    # A template with at most one binding per variable is not larger than the variables themselves.
    max_bindings = max([MAX_BINDINGS, *(plan.bindings for plan in plans if plan.name.startswith("prior"))])
    too_large = {
        plan.name for plan in plans if plan.bindings > (MAX_CANDIDATE_BINDINGS if plan.is_candidate else max_bindings)
    }
    empty = {plan.name for plan in plans if not plan.bindings}
    possible = [replace(p, is_active=p.name not in too_large) for p in templates if p.name not in empty]
    progress("ground")
    if possible != templates:
        templates = possible
        text = render()
        model = api.parse(text, name)
        bound = bind(model.spec, dataset)
    grounding = ground(bound, progress=progress)
    progress("agreement")
    with_priors = with_agreement_priors(templates, with_known_labels(grounding))
    if with_priors != templates:
        templates = with_priors
        text = render()
        model = api.parse(text, name)
        grounding = ground(bind(model.spec, dataset), progress=progress)
        plans = plan_templates(grounding.bound)  # uses the values that were computed for the ground graph
    ground_candidates(grounding.bound, grounding.blocks)  # raises an error if a candidate declaration is invalid
    warnings = (*map(str, analysis.near_misses), *analysis.schema.warnings)
    notes = tuple(dict.fromkeys((*warnings, *analysis.notes, *grounding.bound.notes)))
    active_plans = tuple(plan for plan in plans if plan.name not in too_large | empty)
    return ModelDraft(
        analysis, text, model, tuple(templates), active_plans, grounding, notes, name, commands
    )  # fmt: skip


def ground_templates(draft: ModelDraft, templates: Sequence[ProposedTemplate]) -> tuple[Model, Grounding]:
    """Return the model of the draft with other templates, checked and grounded on the same tables."""
    analysis = draft.analysis
    text = model_text(
        draft.name, analysis.schema, analysis.target, list(templates), analysis.alternatives, draft.commands
    )
    model = api.parse(text, draft.name)
    return model, model.ground(draft.grounding.bound.dataset)


def replace_templates(draft: ModelDraft, templates: Sequence[ProposedTemplate]) -> ModelDraft:
    """Return the draft with other templates; empty templates are not removed."""
    model, grounding = ground_templates(draft, templates)
    plans = tuple(plan_templates(grounding.bound))  # uses the values that were computed for the ground graph
    return replace(
        draft, text=model.text, model=model, templates=tuple(templates), plans=plans, grounding=grounding
    )  # fmt: skip


def propose_model(
    tables: Dataset | Mapping[str, Any],
    predicted: str | None = None,
    progress: Progress = lambda name: None,
    with_known_labels: Callable[[Grounding], Grounding] = lambda grounding: grounding,
) -> ModelDraft:
    """Build a model of tables without writing files; see `analyse_tables` and `draft_model`.

    Args:
        tables: Data frames by name (see `Dataset`), which are reshaped as `relcrf new` reshapes tables; the dataset of the
            grounding then has a `mapping` for further data frames. The tables of a `Dataset` are not reshaped.
    """
    if isinstance(tables, Dataset):
        analysis = analyse_tables(tables, predicted, ManifestBuilder(None, is_possible=False), progress)
        return draft_model("model.rcrf", analysis, tables, (), progress, with_known_labels)
    manifest = ManifestBuilder(None)
    analysis = analyse_tables(Dataset(tables), predicted, manifest, progress)
    mapping = manifest.to_toml("model.rcrf") if manifest.is_needed else None
    dataset = Dataset.from_mapping(tables, mapping)
    return draft_model("model.rcrf", analysis, dataset, (), progress, with_known_labels)
