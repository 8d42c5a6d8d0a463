"""The lowering of a model, cached for a server that grounds small tables again and again.

Lowering, rendering SQL and estimating joins take ten times longer than the joins of a dozen rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from relcrf.data.bound_model import BoundModel
from relcrf.data.names import relation_table
from relcrf.grounding import sql
from relcrf.grounding.blocks import BlockGrounder, GroundBlock, GroundingTask
from relcrf.grounding.collect import is_bag_scan
from relcrf.grounding.dependencies import model_dependencies
from relcrf.grounding.derive import create_derived_tables
from relcrf.grounding.engines.duckdb import Statements
from relcrf.grounding.engines.renamed_tables import find_tables
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.lower import LoweringContext, lower_derived, lower_random_relation, lower_template
from relcrf.grounding.plan import Plan, Scan
from relcrf.grounding.variables import create_random_tables
from relcrf.language.recursion import dependency_layers, is_recursive
from relcrf.model.nodes import walk
from relcrf.model.spec import NearestNeighbours


@dataclass(frozen=True)
class LoweredModel:
    """A lowered model, for all tables in which the model's constants have the same codes.

    Args:
        tasks: the templates that share weights, by the weights' name.
        gates: by the template's name, templates with their gates.
        derived: the plans of each derived relation, each after those that it reads; None where one is recursive or holds
            nearest neighbours, which plans alone do not make.
        statements: parsed statements of the plans, filled as they run.
    """

    context: LoweringContext
    tasks: Mapping[str, tuple[GroundingTask, ...]]
    gates: Mapping[str, GroundingTask]
    derived: Mapping[str, tuple[Plan, ...]] | None
    plans: tuple[Plan, ...]
    statements: Statements = field(default_factory=dict)

    @classmethod
    def from_context(cls, context: LoweringContext) -> LoweredModel:
        """Lower a model."""
        spec = context.spec
        tasks: dict[str, tuple[GroundingTask, ...]] = {}
        for template in spec.templates:
            if not template.is_candidate:
                lowered = lower_template(template, context)
                tasks[template.weights] = (*tasks.get(template.weights, ()), GroundingTask(lowered, None, 0))
        named = {template.name: template for template in spec.templates if not template.is_candidate}
        pairs = [gate for gate in spec.gates if gate.template in named]
        gates = {g.template: GroundingTask(lower_template(named[g.template], context, g), None, 0) for g in pairs}
        used = model_dependencies(spec)
        steps = [layer for layer in dependency_layers(spec) if used & {d.name for d in layer}]
        derived: dict[str, tuple[Plan, ...]] = {}
        for each in (d for layer in steps for d in layer):
            if not isinstance(each.definition, NearestNeighbours):
                derived[relation_table(each.name)] = tuple(lower_derived(each, context))
        plans = [task.lowered.plan for members in (*tasks.values(), gates.values()) for task in members]
        plans += [plan for made in derived.values() for plan in made]
        plans += [lower_random_relation(relation, context) for relation in spec.random_relations]
        are_views = not any(
            is_recursive(layer) or isinstance(layer[0].definition, NearestNeighbours) for layer in steps
        )
        return cls(context, tasks, gates, derived if are_views else None, tuple(plans))

    @cached_property
    def tables(self) -> frozenset[str]:
        """The tables that the plans read in the database; a plan that is one bag reads its columns where they are."""
        return frozenset(name for plan in self.plans if not is_bag_scan(plan) for name in find_tables(plan))

    @cached_property
    def _joined_tables(self) -> list[list[str]]:
        """The tables that each plan joins."""
        return [[n.table for n in walk(p) if isinstance(n, Scan) and not n.is_lookup] for p in self.plans]

    def max_join_rows(self, sizes: Mapping[str, int]) -> int:
        """Return an upper bound of the rows of any join of any plan: all combinations of the rows of its tables.

        Args:
            sizes: rows of each table.
        """
        return max((math.prod(max(sizes[table], 1) for table in tables) for tables in self._joined_tables), default=0)

    def create_views(self, bound: BoundModel) -> None:
        """Create the derived relations as views, which stay valid when the tables are replaced."""
        for name, plans in (self.derived or {}).items():
            bound.connection.execute(sql.create_union(plans, name, kind="VIEW"))

    def create_relation_tables(self, bound: BoundModel) -> None:
        """Create the tables of random relations, and those of derived relations that are not views."""
        if self.derived is None:
            create_derived_tables(bound)
        create_random_tables(bound, self.context, DEFAULT_BUDGET)

    def ground_blocks(self, grounder: BlockGrounder) -> list[GroundBlock]:
        """Return the ground blocks, in the order of the model."""
        return [grounder.ground(name, tasks, grounder.bound.dataset.storage) for name, tasks in self.tasks.items()]
