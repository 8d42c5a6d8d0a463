"""The lowering of a model, cached for a server that grounds small tables again and again.

Lowering, rendering SQL and estimating joins take ten times longer than the joins of a dozen rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from relcrf.data.bound import Bound
from relcrf.data.names import relation_table
from relcrf.grounding import sql
from relcrf.grounding.blocks import BlockMaker, GroundBlock, GroundingTask
from relcrf.grounding.collect import reads_one_bag
from relcrf.grounding.derive import derive_all
from relcrf.grounding.engines.duckdb import Statements
from relcrf.grounding.engines.tables import tables_of
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.lower import Facts, lower_derived, lower_random, lower_template
from relcrf.grounding.plan import Plan, Scan
from relcrf.grounding.reads import relations_used
from relcrf.grounding.variables import make_random_relations
from relcrf.language.recursion import is_recursive, layers
from relcrf.model.nodes import walk
from relcrf.model.spec import Nearest


@dataclass(frozen=True)
class Recipe:
    """A lowered model, for all tables in which the model's constants have the same codes.

    Args:
        tasks: the templates that share weights, by the weights' name.
        gates: by the template's name, templates with their gates.
        derived: the plans of each derived relation, each after those that it reads; None where one is recursive or holds
            nearest neighbours, which plans alone do not make.
        statements: parsed statements of the plans, filled as they run.
    """

    facts: Facts
    tasks: Mapping[str, tuple[GroundingTask, ...]]
    gates: Mapping[str, GroundingTask]
    derived: Mapping[str, tuple[Plan, ...]] | None
    plans: tuple[Plan, ...]
    statements: Statements = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Facts) -> Recipe:
        """Lower a model."""
        spec = facts.spec
        tasks: dict[str, tuple[GroundingTask, ...]] = {}
        for template in spec.templates:
            if not template.is_candidate:
                lowered = lower_template(template, facts)
                tasks[template.weights] = (*tasks.get(template.weights, ()), GroundingTask(lowered, None, 0))
        named = {template.name: template for template in spec.templates if not template.is_candidate}
        pairs = [gate for gate in spec.gates if gate.template in named]
        gates = {g.template: GroundingTask(lower_template(named[g.template], facts, g), None, 0) for g in pairs}
        used = relations_used(spec)
        steps = [layer for layer in layers(spec) if used & {d.name for d in layer}]
        derived: dict[str, tuple[Plan, ...]] = {}
        for each in (d for layer in steps for d in layer):
            if not isinstance(each.definition, Nearest):
                derived[relation_table(each.name)] = tuple(lower_derived(each, facts))
        plans = [task.lowered.plan for members in (*tasks.values(), gates.values()) for task in members]
        plans += [plan for made in derived.values() for plan in made]
        plans += [lower_random(relation, facts) for relation in spec.random_relations]
        are_views = not any(is_recursive(layer) or isinstance(layer[0].definition, Nearest) for layer in steps)
        return cls(facts, tasks, gates, derived if are_views else None, tuple(plans))

    @cached_property
    def tables(self) -> frozenset[str]:
        """The tables that the plans read in the database; a plan that is one bag reads its columns where they are."""
        return frozenset(name for plan in self.plans if not reads_one_bag(plan) for name in tables_of(plan))

    @cached_property
    def _scanned(self) -> list[list[str]]:
        """The tables that each plan joins."""
        return [[n.table for n in walk(p) if isinstance(n, Scan) and not n.is_lookup] for p in self.plans]

    def most_rows(self, sizes: Mapping[str, int]) -> int:
        """Return an upper bound of the rows of any join of any plan: all combinations of the rows of its tables.

        Args:
            sizes: rows of each table.
        """
        return max((math.prod(max(sizes[table], 1) for table in tables) for tables in self._scanned), default=0)

    def make_views(self, bound: Bound) -> None:
        """Create the derived relations as views, which stay valid when the tables are replaced."""
        for name, plans in (self.derived or {}).items():
            bound.connection.execute(sql.create_union(plans, name, kind="VIEW"))

    def prepare(self, bound: Bound) -> None:
        """Create the tables of random relations, and those of derived relations that are not views."""
        if self.derived is None:
            derive_all(bound)
        make_random_relations(bound, self.facts, DEFAULT_BUDGET)

    def blocks(self, maker: BlockMaker) -> list[GroundBlock]:
        """Return the ground blocks, in the order of the model."""
        return [maker.make(name, tasks, maker.bound.dataset.storage) for name, tasks in self.tasks.items()]
