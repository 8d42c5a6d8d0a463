"""What grounding works out before it reads a row, kept for a model that grounds again and again on small tables.

Lowering, printing SQL and measuring joins take ten times longer than the joins of a dozen rows do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import duckdb

from relcrf.data.bound import Bound
from relcrf.data.names import relation_table
from relcrf.data.stream import stream
from relcrf.grounding import sql
from relcrf.grounding.blocks import Block, BlockMaker, Task
from relcrf.grounding.derive import derive_all, used_relations
from relcrf.grounding.engines.base import AbstractEngine, Batch, dtypes
from relcrf.grounding.engines.memory import MemoryEngine, MemoryTables, Program, compiled, is_supported
from relcrf.grounding.engines.tables import tables_of
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.lower import Facts, lower_derived, lower_random, lower_template
from relcrf.grounding.plan import Plan, Scan, walk
from relcrf.grounding.variables import make_random_relations
from relcrf.language.recursion import is_recursive, layers
from relcrf.model.spec import Nearest
from relcrf.model.types import Bool, DomainType, EntityType


class KeptTexts(AbstractEngine):
    """DuckDB on one connection, which prints each plan of one model once. A result must be read before the next one."""

    name = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection, texts: dict[Plan, str]) -> None:
        self._connection, self._texts = connection, texts

    def rows(self, plan: Plan) -> Iterator[Batch]:
        if plan not in self._texts:
            self._texts[plan] = sql.DUCKDB.rows(plan)
        yield from stream(self._connection.sql(self._texts[plan]), dtypes(plan))

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class Recipe:
    """A model lowered, for tables with the same codes of the model's constants.

    Args:
        tasks: the templates that share weights, by the weights' name.
        gates: by the template's name, templates with their gates.
        derived: the plans of each derived relation, in order; None where they are recursive or nearest neighbours, which no plans
            alone make.
        plans: all of them.
        is_in_memory: whether the memory engine can do all that there is to do.
    """

    facts: Facts
    tasks: Mapping[str, tuple[Task, ...]]
    gates: Mapping[str, Task]
    derived: Mapping[str, tuple[Plan, ...]] | None
    plans: tuple[Plan, ...]
    is_in_memory: bool
    texts: dict[Plan, str] = field(default_factory=dict)
    statements: dict[str, str] = field(default_factory=dict)
    programs: dict[Plan, Program] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Facts) -> Recipe:
        """The recipe of a model."""
        spec = facts.spec
        tasks: dict[str, tuple[Task, ...]] = {}
        for template in spec.templates:
            if not template.is_candidate:
                lowered = lower_template(template, facts)
                tasks[template.weights] = (*tasks.get(template.weights, ()), Task(lowered, None, 0))
        named = {template.name: template for template in spec.templates if not template.is_candidate}
        pairs = [gate for gate in spec.gates if gate.template in named]
        gates = {g.template: Task(lower_template(named[g.template], facts, g), None, 0) for g in pairs}
        used = used_relations(spec)
        steps = [layer for layer in layers(spec) if used & {d.name for d in layer}]
        derived: dict[str, tuple[Plan, ...]] = {}
        for each in (d for layer in steps for d in layer):
            if not isinstance(each.definition, Nearest):
                derived[relation_table(each.name)] = tuple(lower_derived(each, facts))
        random = [lower_random(relation, facts) for relation in spec.random_relations]
        one_by_one = not any(is_recursive(layer) or isinstance(layer[0].definition, Nearest) for layer in steps)
        lowered_templates = [task.lowered for members in (*tasks.values(), gates.values()) for task in members]
        plans = [*(one.plan for one in lowered_templates), *(p for made in derived.values() for p in made), *random]
        has_codes = all(isinstance(k.kind, CODED) for one in lowered_templates for k in one.keys)
        has_candidates = any(template.is_candidate for template in spec.templates)
        return cls(
            facts,
            tasks,
            gates,
            derived if one_by_one else None,
            tuple(plans),
            one_by_one and has_codes and not (random or has_candidates) and all(map(is_supported, plans)),
        )

    @cached_property
    def tables(self) -> frozenset[str]:
        """The tables that the plans read."""
        return frozenset(name for plan in self.plans for name in tables_of(plan))

    def most_rows(self, sizes: Mapping[str, int]) -> int:
        """More rows than any plan looks at, however it joins: all combinations of the rows of its tables.

        Args:
            sizes: rows of each table.
        """
        scans = ([node for node in walk(plan) if isinstance(node, Scan) and not node.is_lookup] for plan in self.plans)
        return max((math.prod(max(sizes[scan.table], 1) for scan in each) for each in scans), default=0)

    def blocks(self, maker: BlockMaker) -> list[Block]:
        """The ground blocks, in the order of the model."""
        return [maker.make(name, tasks, maker.bound.dataset.storage) for name, tasks in self.tasks.items()]


CODED = (EntityType, DomainType, Bool)
"""The types of keys that are codes as they stand; others get a table of their own in the database."""


@dataclass(frozen=True)
class AbstractUse(ABC):
    """A recipe at work on the tables of one binding."""

    recipe: Recipe

    @abstractmethod
    def prepare(self, bound: Bound) -> None:
        """Makes the tables of the derived and random relations."""

    @abstractmethod
    def engine(self, bound: Bound) -> AbstractEngine:
        """Who joins."""


@dataclass(frozen=True)
class InDatabase(AbstractUse):
    """All coded tables are in the binding's database."""

    def prepare(self, bound: Bound) -> None:
        if self.recipe.derived is None:
            derive_all(bound)
        else:
            kept = self.recipe.statements
            for name, plans in self.recipe.derived.items():
                if name not in kept:
                    kept[name] = sql.create_union(plans, name)
                bound.connection.execute(kept[name])
        make_random_relations(bound, self.recipe.facts, DEFAULT_BUDGET)

    def engine(self, bound: Bound) -> KeptTexts:
        return KeptTexts(bound.connection, self.recipe.texts)


@dataclass(frozen=True)
class InMemory(AbstractUse):
    """All coded tables are here, and the recipe is one for memory."""

    tables: MemoryTables

    def prepare(self, bound: Bound) -> None:
        programs = self.recipe.programs
        for name, plans in (self.recipe.derived or {}).items():
            found: dict[tuple[int, ...], None] = {}
            for plan in plans:
                if plan not in programs:
                    programs[plan] = compiled(plan)
                found.update(dict.fromkeys(programs[plan].distinct(self.tables)))
            self.tables.rows[name] = [{f"a{k}": code for k, code in enumerate(row)} for row in found]

    def engine(self, bound: Bound) -> MemoryEngine:
        return MemoryEngine(self.tables, self.recipe.programs)
