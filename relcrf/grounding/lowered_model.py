"""Models lowered to relational plans, cached by servers that ground small tables repeatedly.

Lowering a model, rendering the plans as SQL and estimating the sizes of joins takes ten times as long as joining a dozen rows.
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
    """A lowered model, valid for all data in which the constants of the model have the same codes (indices in domains).

    Args:
        tasks: templates that share weights, by the name of the weights.
        gates: templates with their gates, by the name of the template.
        derived: plans of each derived relation, by table name; a relation follows the relations on which it depends.
            None if a relation is recursive or consists of nearest neighbours, because plans do not define such a relation.
        plans: all plans of the model.
        statements: cache of the parsed statements of the plans, filled when the plans run.
    """

    context: LoweringContext
    tasks: Mapping[str, tuple[GroundingTask, ...]]
    gates: Mapping[str, GroundingTask]
    derived: Mapping[str, tuple[Plan, ...]] | None
    plans: tuple[Plan, ...]
    statements: Statements = field(default_factory=dict)

    @classmethod
    def from_context(cls, context: LoweringContext) -> LoweredModel:
        """Lower all declarations of a model."""
        spec = context.spec
        tasks: dict[str, tuple[GroundingTask, ...]] = {}
        for template in spec.templates:
            if not template.is_candidate:
                lowered = lower_template(template, context)
                tasks[template.weights] = (*tasks.get(template.weights, ()), GroundingTask(lowered, None, 0))
        declared = {template.name: template for template in spec.templates if not template.is_candidate}
        known_gates = [gate for gate in spec.gates if gate.template in declared]
        gates = {
            g.template: GroundingTask(lower_template(declared[g.template], context, g), None, 0) for g in known_gates
        }
        used = model_dependencies(spec)
        used_layers = [layer for layer in dependency_layers(spec) if used & {d.name for d in layer}]
        derived: dict[str, tuple[Plan, ...]] = {}
        for derived_relation in (d for layer in used_layers for d in layer):
            if not isinstance(derived_relation.definition, NearestNeighbours):
                derived[relation_table(derived_relation.name)] = tuple(lower_derived(derived_relation, context))
        plans = [task.lowered.plan for group in (*tasks.values(), gates.values()) for task in group]
        plans += [plan for relation_plans in derived.values() for plan in relation_plans]
        plans += [lower_random_relation(relation, context) for relation in spec.random_relations]
        are_views = not any(
            is_recursive(layer) or isinstance(layer[0].definition, NearestNeighbours) for layer in used_layers
        )
        return cls(context, tasks, gates, derived if are_views else None, tuple(plans))

    @cached_property
    def tables(self) -> frozenset[str]:
        """The tables that the plans read in the database. A plan that only scans a bag reads arrays instead of tables."""
        return frozenset(name for plan in self.plans if not is_bag_scan(plan) for name in find_tables(plan))

    @cached_property
    def _joined_tables(self) -> list[list[str]]:
        """The tables that each plan joins, without lookups, because a lookup does not change the number of rows."""
        return [[n.table for n in walk(p) if isinstance(n, Scan) and not n.is_lookup] for p in self.plans]

    def max_join_rows(self, sizes: Mapping[str, int]) -> int:
        """Return an upper bound of the number of rows of any join: the largest product of the sizes of the joined tables.

        Args:
            sizes: number of rows of each table.
        """
        return max((math.prod(max(sizes[table], 1) for table in tables) for tables in self._joined_tables), default=0)

    def create_views(self, bound: BoundModel) -> None:
        """Create the derived relations as views. A view remains valid when the tables are replaced."""
        for name, plans in (self.derived or {}).items():
            bound.connection.execute(sql.create_union(plans, name, kind="VIEW"))

    def create_relation_tables(self, bound: BoundModel) -> None:
        """Create the tables of the random relations and, if derived relations are not views, of the derived relations."""
        if self.derived is None:
            create_derived_tables(bound)
        create_random_tables(bound, self.context, DEFAULT_BUDGET)

    def ground_blocks(self, grounder: BlockGrounder) -> list[GroundBlock]:
        """Return the ground blocks, in the order of the model."""
        return [grounder.ground(name, tasks, grounder.bound.dataset.storage) for name, tasks in self.tasks.items()]
