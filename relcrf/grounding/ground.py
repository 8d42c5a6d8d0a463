"""Grounding of a model on its bound tables into one factor graph of all variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from relcrf.data.bound_model import BoundModel, reraises_plugin_errors
from relcrf.errors import BudgetError, Diagnostic, listing
from relcrf.graph.factor_files import matches_cardinality
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.weights import WeightLayout
from relcrf.grounding.block_cache import BlockCache, compute_cache_key
from relcrf.grounding.blocks import BlockGrounder, GroundBlock, GroundingTask
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.derive import Progress, create_derived_tables, make_lowering_context
from relcrf.grounding.engines.base import AbstractEngine
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.entity_values import create_value_tables, has_statistics
from relcrf.grounding.estimate import DEFAULT_BUDGET, check_budget
from relcrf.grounding.extreme_values import note_extreme_values
from relcrf.grounding.gates import GateGrounder
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.lower import LoweringContext, lower_template
from relcrf.grounding.lowered_model import LoweredModel
from relcrf.grounding.row_repetition import reduce_to_one_row
from relcrf.grounding.similar_values import note_similar_values
from relcrf.grounding.variables import build_variable_blocks, create_random_tables, read_states
from relcrf.model.functions import external_function
from relcrf.model.rules import all_templates
from relcrf.model.spec import Template


@reraises_plugin_errors
def create_relation_tables(
    bound: BoundModel, budget: int = DEFAULT_BUDGET, progress: Progress = lambda name: None
) -> None:
    """Create the tables of the derived and random relations.

    Raises:
        BudgetError: if a relation has more tuples than the budget.
    """
    create_derived_tables(bound, budget, progress)
    create_random_tables(bound, make_lowering_context(bound), budget)


@reraises_plugin_errors
def ground(
    bound: BoundModel,
    budget: int = DEFAULT_BUDGET,
    progress: Progress = lambda name: None,
    *,
    engine: AbstractEngine | None = None,
    cache: BlockCache | None = None,
    max_factors: int | None = None,
    lowered_model: LoweredModel | None = None,
) -> Grounding:
    """Create the derived and random relations and ground all templates; candidates and gates are grounded on demand.

    Args:
        engine: engine that runs the joins; by default DuckDB, which stores the tables.
        cache: cache of ground blocks; new blocks are added to it.
        max_factors: maximum number of factors of all templates together; None means no limit.
        lowered_model: the templates, already lowered to join plans. If it is given, the sizes of the templates are
            neither estimated nor checked against the budget.

    Raises:
        BudgetError: if a template has more bindings than the budget (raised before anything large is built), or if the
            graph has more than `max_factors` factors (raised after the first block that exceeds the limit).
        DataError: if a feature is infinite or above 1e300, or a random attribute has no values.
    """
    plugins = sorted(name for name in bound.spec.functions if external_function(name))
    if plugins and cache is not None:
        cache = None
        bound.notes.append(f"groundings are not cached: results of {listing(plugins)} may change with the plugins")
    if lowered_model is None:
        create_relation_tables(bound, budget, progress)
        note_extreme_values(bound)
        note_similar_values(bound)
    else:
        lowered_model.create_relation_tables(bound)
    _note_exclusions(bound)
    variables = build_variable_blocks(bound)
    cardinality = np.repeat([len(b.values) for b in variables], [b.count for b in variables]).astype(np.int32)
    states = [read_states(bound, block) for block in variables]
    if engine is None:
        engine = DuckDbEngine(bound.cursor)
    grounder = BlockGrounder(bound, engine, variables, progress)
    blocks = (
        lowered_model.ground_blocks(grounder)
        if lowered_model
        else _ground_blocks(grounder, budget, cache, cardinality, max_factors)
    )
    groups = [replace(group, block=k) for k, block in enumerate(blocks) for group in block.groups]
    return Grounding(
        bound.spec,
        bound,
        FactorGraph(
            cardinality,
            tuple(groups),
            WeightLayout(tuple(block.weights for block in blocks)),
            numeric=tuple((block.start, block.start + block.count) for block in variables if block.is_numeric),
        ),
        tuple(variables),
        np.concatenate(states) if states else np.empty(0, dtype=np.int32),
        tuple(block.info for block in blocks),
        tuple(name for block in blocks for name in block.group_names),
        {name: count for block in blocks for name, count in block.bindings.items()},
        dict(bound.domains),
        GateGrounder(bound, variables, budget, cache, lowered_model),
        budget,
    )


def _ground_blocks(
    grounder: BlockGrounder,
    budget: int,
    cache: BlockCache | None,
    cardinality: np.ndarray,
    max_factors: int | None,
) -> list[GroundBlock]:
    """Return the ground blocks of a model, from the cache if possible; check all templates against the budget first."""
    bound, context, degrees = grounder.bound, make_lowering_context(grounder.bound), DegreeCache(grounder.bound)
    weight_groups: dict[str, list[Template]] = {}
    for template in context.spec.templates:
        if not template.is_candidate:
            weight_groups.setdefault(template.weights, []).append(template)
    blocks: dict[str, GroundBlock] = {}
    tasks: dict[str, list[GroundingTask]] = {}
    cache_keys = {}
    if cache is not None:
        cache_keys = {
            name: compute_cache_key(bound, context.spec, templates, grounder.variables)
            for name, templates in weight_groups.items()
        }
        # If a file has changed since the tables were bound, the hashed contents may differ from the bound tables.
        if changed := bound.dataset.changed_files():
            bound.notes.append(f"groundings are not cached: {listing(changed)} changed after the dataset was opened")
            cache = None
    for name, templates in weight_groups.items():
        features = [(template, template.by) for template in templates]
        if has_statistics(context.spec, features):
            create_value_tables(bound, context, features, budget)  # the trained model contains the statistics
        if cache is not None:
            cached = cache.load(cache_keys[name], partial(_has_cardinalities, cardinality=cardinality))
            if cached is not None:
                blocks[name] = cached
                continue
        create_value_tables(bound, context, features, budget)
        tasks[name] = [make_task(degrees, context, template, budget) for template in templates]
    for name, block_tasks in tasks.items():
        if cache is None:
            blocks[name] = grounder.ground(name, block_tasks, bound.dataset.storage)
        else:
            blocks[name] = cache.ground(cache_keys[name], partial(grounder.ground, name, block_tasks))
        _check_factor_limit(blocks, max_factors)
    _check_factor_limit(blocks, max_factors)
    return [blocks[name] for name in weight_groups]


def _check_factor_limit(blocks: Mapping[str, GroundBlock], max_factors: int | None) -> None:
    """Raise BudgetError if the blocks have more than `max_factors` factors in total."""
    factors = {name: sum(group.n_factors for group in block.groups) for name, block in blocks.items()}
    total = sum(factors.values())
    if max_factors is None or total <= max_factors:
        return
    largest = sorted(factors.items(), key=lambda item: -item[1])[:3]
    notes = tuple(f"'{name}' has {count:,} factors" for name, count in largest)
    message = f"the model has at least {total:,} factors, more than the limit of {max_factors:,}"
    hint = "restrict the 'where' of the largest template, or raise --max-factors"
    raise BudgetError(Diagnostic("E433", message, hint=hint, notes=notes))


def _has_cardinalities(block: GroundBlock, cardinality: np.ndarray) -> bool:
    """Return True if the factors of a block fit the cardinalities of the variables, shape (n_variables,)."""
    return all(matches_cardinality(group, cardinality) for group in block.groups)


def make_task(degrees: DegreeCache, context: LoweringContext, template: Template, budget: int) -> GroundingTask:
    """Return the task of grounding a template; raise BudgetError if the template exceeds the budget."""
    lowered, repetition = reduce_to_one_row(degrees.bound, context, lower_template(template, context))
    size = check_budget(degrees, lowered.plan, budget, template.name, template.span)
    return GroundingTask(lowered, repetition, size.join_rows)


def _note_exclusions(bound: BoundModel) -> None:
    """Add a note for each part of the model that is not in the ground graph."""
    candidates = [t.name for t in bound.spec.templates if t.is_candidate]
    gates = [g.template for g in bound.spec.gates]
    l1_templates = [t.name for t in all_templates(bound.spec) if t.options.l1]
    reasons = (
        (candidates, "candidates", "not in the graph; only the backends 'trmrf' and 'grafting' choose among them"),
        ([name for name in gates if name not in candidates], "gates of", "learned only by the backend 'gated'"),
        ([name for name in gates if name in candidates], "gates of", "ignored because candidates have no gates"),
        (l1_templates, "l1 of", "applied only by the backends 'trmrf' and 'grafting'"),
    )
    for names, prefix, reason in reasons:
        text = f"{prefix} {listing(names)}: {reason}"
        if names and text not in bound.notes:
            bound.notes.append(text)
