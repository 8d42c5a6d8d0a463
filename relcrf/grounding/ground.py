"""Grounds a model on its bound tables: the mega-sample, one factor graph of everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from relcrf.data.bound import Bound, telling_failures
from relcrf.errors import BudgetError, Diagnostic, listing
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.gates import GateGroup, Gates
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.grounding.blocks import Block, BlockMaker, Task
from relcrf.grounding.degrees import Degrees
from relcrf.grounding.derive import Progress, derive_all, facts_of
from relcrf.grounding.engines.base import AbstractEngine
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.estimate import DEFAULT_BUDGET, require
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.lower import Facts, lower_template
from relcrf.grounding.recipe import AbstractUse
from relcrf.grounding.repeated import on_one_row
from relcrf.grounding.saved import SavedBlocks, identity
from relcrf.grounding.variables import make_random_relations, states_of, variable_blocks
from relcrf.model.functions import foreign
from relcrf.model.rules import all_templates
from relcrf.model.spec import Gate, Template


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
    with_gates: bool = False,
    most_factors: int | None = None,
    use: AbstractUse | None = None,
) -> Grounding:
    """Grounds every template, but no candidates. Derived and random relations are made first.

    Args:
        engine: who joins; by default DuckDB, where the tables are.
        saved: blocks of before, to take from and to add to.
        with_gates: ground the features of the model's gates, too.
        most_factors: that all templates together may have; None is any number.
        use: what is known of the model before; it has its own engine, nothing is measured, and the budget does not count.

    Raises:
        BudgetError: before anything large is made, where a template has more bindings than the budget; and after the template
            with which there are too many factors.
        DataError: where a feature is not finite, or a random attribute has no values.
    """
    others = sorted(name for name in bound.spec.functions if foreign(name))
    if others and saved is not None:
        saved = None
        bound.notes.append(f"groundings are not kept: what {listing(others)} computes may change with its package")
    if use is None:
        prepare(bound, budget, progress)
    else:
        use.prepare(bound)
    _note_left_out(bound, with_gates=with_gates)
    variables = variable_blocks(bound)
    cardinality = np.repeat([len(b.values) for b in variables], [b.count for b in variables]).astype(np.int32)
    states = [states_of(bound, block) for block in variables]
    if engine is None:
        engine = DuckDbEngine(bound.cursor) if use is None else use.engine(bound)
    maker = BlockMaker(bound, engine, variables, progress)
    gates = {gate.template: gate for gate in bound.spec.gates} if with_gates else {}
    made = _blocks(maker, budget, saved, gates, cardinality, most_factors) if use is None else use.recipe.blocks(maker)
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
        _gates_of(made) if with_gates else None,
        tuple(gates.info for block in made for gates in block.gates),
    )


def _gates_of(made: Sequence[Block]) -> Gates:
    """The gates of all blocks, each group's with its place in the graph."""
    groups: list[GateGroup] = []
    weights: list[WeightBlock] = []
    before = 0
    for block in made:
        for gates in block.gates:
            places = [before + k for k, name in enumerate(block.group_names) if name == gates.info.name]
            groups += [
                GateGroup(place, features, len(weights)) for place, features in zip(places, gates.features, strict=True)
            ]
            weights.append(gates.weights)
        before += len(block.groups)
    return Gates(tuple(groups), WeightLayout(tuple(weights)))


def _blocks(
    maker: BlockMaker,
    budget: int,
    saved: SavedBlocks | None,
    gates: Mapping[str, Gate],
    cardinality: np.ndarray,
    most_factors: int | None,
) -> list[Block]:
    """The blocks of a model, from the store where it has them. All that must be made is measured before any is."""
    bound, facts, degrees = maker.bound, facts_of(maker.bound), Degrees(maker.bound)
    sharing: dict[str, list[Template]] = {}
    for template in facts.spec.templates:
        if not template.is_candidate:
            sharing.setdefault(template.weights, []).append(template)
    found: dict[str, Block] = {}
    tasks: dict[str, list[Task]] = {}
    identities = {}
    if saved is not None:
        identities = {name: identity(bound, facts.spec, m, maker.variables, gates) for name, m in sharing.items()}
        # What was hashed may not be what was bound.
        if changed := bound.dataset.changed():
            bound.notes.append(f"groundings are not kept: {listing(changed)} changed after the dataset was opened")
            saved = None
    for name, members in sharing.items():
        if saved is not None:
            kept = saved.load(identities[name], cardinality)
            if kept is not None:
                found[name] = kept
                continue
        tasks[name] = [_task(degrees, facts, template, budget, gates.get(template.name)) for template in members]
    for name, work in tasks.items():
        if saved is None:
            found[name] = maker.make(name, work, bound.dataset.storage)
        else:
            found[name] = saved.add(identities[name], partial(maker.make, name, work))
        _require_few(found, most_factors)
    _require_few(found, most_factors)
    return [found[name] for name in sharing]


def _require_few(found: Mapping[str, Block], most: int | None) -> None:
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


def _task(degrees: Degrees, facts: Facts, template: Template, budget: int, gate: Gate | None) -> Task:
    """A template with its gate, lowered and within the budget."""
    lowered, repeated = on_one_row(degrees.bound, facts, lower_template(template, facts, gate))
    size = require(degrees, lowered.plan, budget, template.name, template.span)
    return Task(lowered, repeated, size.rows)


def _note_left_out(bound: Bound, *, with_gates: bool) -> None:
    """Tells what the model says and the graph does not hold."""
    candidates = [t.name for t in bound.spec.templates if t.is_candidate]
    gates = [g.template for g in bound.spec.gates if not with_gates or g.template in candidates]
    lasso = [t.name for t in all_templates(bound.spec) if t.options.l1]
    reasons = (
        (candidates, "candidates", "no part of the graph; backends trmrf and grafting choose among them"),
        (
            gates,
            "gates of",
            "left out; backend gated learns them" if not with_gates else "left out, for candidates have none",
        ),
        (lasso, "l1 of", "applied by backends trmrf and grafting alone"),
    )
    for names, what, why in reasons:
        text = f"{what} {listing(names)}: {why}"
        if names and text not in bound.notes:
            bound.notes.append(text)
