"""Grounds a model on its bound tables: the mega-sample, one factor graph of everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from relcrf.data.bound import Bound, telling_failures
from relcrf.errors import BudgetError, Diagnostic, listing
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.files import is_over
from relcrf.graph.weights import WeightLayout
from relcrf.grounding.blocks import BlockMaker, GroundBlock, GroundingTask
from relcrf.grounding.degrees import Degrees
from relcrf.grounding.derive import Progress, derive_all, facts_of
from relcrf.grounding.engines.base import AbstractEngine
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.estimate import DEFAULT_BUDGET, require
from relcrf.grounding.gates import GateGrounder
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.lower import Facts, lower_template
from relcrf.grounding.recipe import Recipe
from relcrf.grounding.repeated import on_one_row
from relcrf.grounding.saved import SavedBlocks, identity
from relcrf.grounding.variables import make_random_relations, states_of, variable_blocks
from relcrf.model.functions import foreign
from relcrf.model.rules import all_templates
from relcrf.model.spec import Template


@telling_failures
def prepare(bound: Bound, budget: int = DEFAULT_BUDGET, progress: Progress = lambda name: None) -> None:
    """Makes the tables of the derived and random relations.

    Raises:
        BudgetError: where one has more tuples than the budget.
    """
    derive_all(bound, budget, progress)
    make_random_relations(bound, facts_of(bound), budget)


@telling_failures
def ground(
    bound: Bound,
    budget: int = DEFAULT_BUDGET,
    progress: Progress = lambda name: None,
    *,
    engine: AbstractEngine | None = None,
    saved: SavedBlocks | None = None,
    most_factors: int | None = None,
    recipe: Recipe | None = None,
) -> Grounding:
    """Grounds every template, but no candidates nor gates. Derived and random relations are made first.

    Args:
        engine: who joins; by default DuckDB, where the tables are.
        saved: blocks of before, to take from and to add to.
        most_factors: that all templates together may have; None is any number.
        recipe: the lowered model; nothing is estimated, and the budget is not applied to templates.

    Raises:
        BudgetError: before anything large is made, where a template has more bindings than the budget; and after the template
            with which there are too many factors.
        DataError: where a feature is not finite, or a random attribute has no values.
    """
    others = sorted(name for name in bound.spec.functions if foreign(name))
    if others and saved is not None:
        saved = None
        bound.notes.append(f"groundings are not kept: what {listing(others)} computes may change with its package")
    if recipe is None:
        prepare(bound, budget, progress)
    else:
        recipe.prepare(bound)
    _note_left_out(bound)
    variables = variable_blocks(bound)
    cardinality = np.repeat([len(b.values) for b in variables], [b.count for b in variables]).astype(np.int32)
    states = [states_of(bound, block) for block in variables]
    if engine is None:
        engine = DuckDbEngine(bound.cursor)
    maker = BlockMaker(bound, engine, variables, progress)
    made = recipe.blocks(maker) if recipe else _blocks(maker, budget, saved, cardinality, most_factors)
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
        GateGrounder(bound, variables, saved, recipe),
    )


def _blocks(
    maker: BlockMaker,
    budget: int,
    saved: SavedBlocks | None,
    cardinality: np.ndarray,
    most_factors: int | None,
) -> list[GroundBlock]:
    """The blocks of a model, from the store where it has them. All that must be made is measured before any is."""
    bound, facts, degrees = maker.bound, facts_of(maker.bound), Degrees(maker.bound)
    sharing: dict[str, list[Template]] = {}
    for template in facts.spec.templates:
        if not template.is_candidate:
            sharing.setdefault(template.weights, []).append(template)
    found: dict[str, GroundBlock] = {}
    tasks: dict[str, list[GroundingTask]] = {}
    identities = {}
    if saved is not None:
        identities = {name: identity(bound, facts.spec, m, maker.variables) for name, m in sharing.items()}
        # What was hashed may not be what was bound.
        if changed := bound.dataset.changed():
            bound.notes.append(f"groundings are not kept: {listing(changed)} changed after the dataset was opened")
            saved = None
    for name, members in sharing.items():
        if saved is not None:
            kept = saved.load(identities[name], partial(_is_over, cardinality=cardinality))
            if kept is not None:
                found[name] = kept
                continue
        tasks[name] = [_task(degrees, facts, template, budget) for template in members]
    for name, work in tasks.items():
        if saved is None:
            found[name] = maker.make(name, work, bound.dataset.storage)
        else:
            found[name] = saved.add(identities[name], partial(maker.make, name, work))
        _require_few(found, most_factors)
    _require_few(found, most_factors)
    return [found[name] for name in sharing]


def _require_few(found: Mapping[str, GroundBlock], most: int | None) -> None:
    """
    Raises:
        BudgetError: where blocks have more factors than they may.
    """
    factors = {name: sum(group.n_factors for group in block.groups) for name, block in found.items()}
    total = sum(factors.values())
    if most is None or total <= most:
        return
    largest = sorted(factors.items(), key=lambda item: -item[1])[:3]
    notes = tuple(f"'{name}' has {count:,}" for name, count in largest)
    message = f"the model has {total:,} factors or more, over the {most:,} that it may have"
    hint = "narrow the largest template's 'where', or raise --max-factors"
    raise BudgetError(Diagnostic("E433", message, hint=hint, notes=notes))


def _is_over(block: GroundBlock, cardinality: np.ndarray) -> bool:
    """Return True if the factors of a block are over variables of these cardinalities, shape (n_variables,)."""
    return all(is_over(group, cardinality) for group in block.groups)


def _task(degrees: Degrees, facts: Facts, template: Template, budget: int) -> GroundingTask:
    """A template, lowered and within the budget."""
    lowered, repeated = on_one_row(degrees.bound, facts, lower_template(template, facts))
    size = require(degrees, lowered.plan, budget, template.name, template.span)
    return GroundingTask(lowered, repeated, size.rows)


def _note_left_out(bound: Bound) -> None:
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
