"""Grounds a model on its bound tables: the mega-sample, one factor graph of everything."""

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
from relcrf.grounding.estimate import DEFAULT_BUDGET, check_budget
from relcrf.grounding.gates import GateGrounder
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.lower import LoweringContext, lower_template
from relcrf.grounding.lowered_model import LoweredModel
from relcrf.grounding.row_repetition import reduce_to_one_row
from relcrf.grounding.variables import build_variable_blocks, create_random_tables, read_states
from relcrf.model.functions import external_function
from relcrf.model.rules import all_templates
from relcrf.model.spec import Template


@reraises_plugin_errors
def create_relation_tables(
    bound: BoundModel, budget: int = DEFAULT_BUDGET, progress: Progress = lambda name: None
) -> None:
    """Makes the tables of the derived and random relations.

    Raises:
        BudgetError: where one has more tuples than the budget.
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
    """Grounds every template, but no candidates nor gates. Derived and random relations are made first.

    Args:
        engine: who joins; by default DuckDB, where the tables are.
        cache: blocks of before, to take from and to add to.
        max_factors: that all templates together may have; None is any number.
        lowered_model: the lowered model; nothing is estimated, and the budget is not applied to templates.

    Raises:
        BudgetError: before anything large is made, where a template has more bindings than the budget; and after the template
            with which there are too many factors.
        DataError: where a feature is not finite, or a random attribute has no values.
    """
    others = sorted(name for name in bound.spec.functions if external_function(name))
    if others and cache is not None:
        cache = None
        bound.notes.append(f"groundings are not kept: what {listing(others)} computes may change with its package")
    if lowered_model is None:
        create_relation_tables(bound, budget, progress)
    else:
        lowered_model.create_relation_tables(bound)
    _note_exclusions(bound)
    variables = build_variable_blocks(bound)
    cardinality = np.repeat([len(b.values) for b in variables], [b.count for b in variables]).astype(np.int32)
    states = [read_states(bound, block) for block in variables]
    if engine is None:
        engine = DuckDbEngine(bound.cursor)
    maker = BlockGrounder(bound, engine, variables, progress)
    made = (
        lowered_model.ground_blocks(maker)
        if lowered_model
        else _ground_blocks(maker, budget, cache, cardinality, max_factors)
    )
    groups = [replace(group, block=k) for k, block in enumerate(made) for group in block.groups]
    return Grounding(
        bound.spec,
        bound,
        FactorGraph(cardinality, tuple(groups), WeightLayout(tuple(block.weights for block in made))),
        tuple(variables),
        np.concatenate(states) if states else np.empty(0, dtype=np.int32),
        tuple(block.info for block in made),
        tuple(name for block in made for name in block.group_names),
        {name: count for block in made for name, count in block.bindings.items()},
        dict(bound.domains),
        GateGrounder(bound, variables, cache, lowered_model),
    )


def _ground_blocks(
    grounder: BlockGrounder,
    budget: int,
    cache: BlockCache | None,
    cardinality: np.ndarray,
    max_factors: int | None,
) -> list[GroundBlock]:
    """The blocks of a model, from the store where it has them. All that must be made is measured before any is."""
    bound, facts, degrees = grounder.bound, make_lowering_context(grounder.bound), DegreeCache(grounder.bound)
    sharing: dict[str, list[Template]] = {}
    for template in facts.spec.templates:
        if not template.is_candidate:
            sharing.setdefault(template.weights, []).append(template)
    found: dict[str, GroundBlock] = {}
    tasks: dict[str, list[GroundingTask]] = {}
    identities = {}
    if cache is not None:
        identities = {name: compute_cache_key(bound, facts.spec, m, grounder.variables) for name, m in sharing.items()}
        # What was hashed may not be what was bound.
        if changed := bound.dataset.changed_files():
            bound.notes.append(f"groundings are not kept: {listing(changed)} changed after the dataset was opened")
            cache = None
    for name, members in sharing.items():
        if cache is not None:
            kept = cache.load(identities[name], partial(_has_cardinalities, cardinality=cardinality))
            if kept is not None:
                found[name] = kept
                continue
        tasks[name] = [_make_task(degrees, facts, template, budget) for template in members]
    for name, work in tasks.items():
        if cache is None:
            found[name] = grounder.ground(name, work, bound.dataset.storage)
        else:
            found[name] = cache.ground(identities[name], partial(grounder.ground, name, work))
        _check_factor_limit(found, max_factors)
    _check_factor_limit(found, max_factors)
    return [found[name] for name in sharing]


def _check_factor_limit(blocks: Mapping[str, GroundBlock], max_factors: int | None) -> None:
    """
    Raises:
        BudgetError: where blocks have more factors than they may.
    """
    factors = {name: sum(group.n_factors for group in block.groups) for name, block in blocks.items()}
    total = sum(factors.values())
    if max_factors is None or total <= max_factors:
        return
    largest = sorted(factors.items(), key=lambda item: -item[1])[:3]
    notes = tuple(f"'{name}' has {count:,}" for name, count in largest)
    message = f"the model has {total:,} factors or more, over the {max_factors:,} that it may have"
    hint = "narrow the largest template's 'where', or raise --max-factors"
    raise BudgetError(Diagnostic("E433", message, hint=hint, notes=notes))


def _has_cardinalities(block: GroundBlock, cardinality: np.ndarray) -> bool:
    """Return True if the factors of a block are over variables of these cardinalities, shape (n_variables,)."""
    return all(matches_cardinality(group, cardinality) for group in block.groups)


def _make_task(degrees: DegreeCache, context: LoweringContext, template: Template, budget: int) -> GroundingTask:
    """A template, lowered and within the budget."""
    lowered, repeated = reduce_to_one_row(degrees.bound, context, lower_template(template, context))
    size = check_budget(degrees, lowered.plan, budget, template.name, template.span)
    return GroundingTask(lowered, repeated, size.join_rows)


def _note_exclusions(bound: BoundModel) -> None:
    """Tells what the model says and the graph does not hold."""
    candidates = [t.name for t in bound.spec.templates if t.is_candidate]
    gates = [g.template for g in bound.spec.gates]
    lasso = [t.name for t in all_templates(bound.spec) if t.options.l1]
    reasons = (
        (candidates, "candidates", "no part of the graph; backends trmrf and grafting choose among them"),
        ([name for name in gates if name not in candidates], "gates of", "learned by backend gated alone"),
        ([name for name in gates if name in candidates], "gates of", "left out, for candidates have none"),
        (lasso, "l1 of", "applied by backends trmrf and grafting alone"),
    )
    for names, what, why in reasons:
        text = f"{what} {listing(names)}: {why}"
        if names and text not in bound.notes:
            bound.notes.append(text)
