"""Random pairs of entities that the `where` of a random relation does not admit, with the factors that they would have.

The admitted pairs are selected: if records are compared because their names are equal, nearly all of these pairs agree in
the name. Random pairs show how often the evidence of unrelated entities agrees.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.data.names import relation_table
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.features import Keyed
from relcrf.grounding.blocks import BlockGrounder, GroundBlock, GroundingTask, TemplateInfo
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.estimate import DEFAULT_BUDGET, check_budget
from relcrf.grounding.lower import LoweredTemplate, LoweringContext, lower_template
from relcrf.grounding.variables import VariableBlock
from relcrf.model.expressions import Atom, Attribute, Name, conjuncts, optional_conjunction
from relcrf.model.nodes import map_children
from relcrf.model.spec import ModelSpec, RandomRelation, Template
from relcrf.model.types import BOOL_VALUES, Bool

T = TypeVar("T")

SAMPLE_SIZE = 1_000_000
"""Number of pairs that are drawn; admitted pairs, duplicates and pairs of an entity with itself are dropped."""

SEED = 0


@dataclass(frozen=True, eq=False)
class RandomPairs:
    """Random pairs of one random relation, with their factors over one variable.

    Args:
        relation: name of the random relation.
        n_pairs: number of the random pairs.
        n_possible: number of all pairs that are not admitted, of which these are a sample.
        groups: the factors of the random pairs; variable v is the v-th pair. Weight blocks and keys are those of the model.
    """

    relation: str
    n_pairs: int
    n_possible: int
    groups: tuple[FactorGroup, ...]


def ground_random_pairs(
    bound: BoundModel, templates: tuple[TemplateInfo, ...], budget: int = DEFAULT_BUDGET
) -> tuple[RandomPairs, ...]:
    """Return random pairs for each Boolean random relation of two entities that does not admit all pairs.

    Args:
        bound: the bound model, which has been grounded.
        templates: the description of each weight block of its graph.
    """
    relations = [r for r in bound.spec.random_relations if isinstance(r.type, Bool) and len(r.parameters) == 2]
    entities = {entity.name for entity in bound.spec.entities}
    found = []
    for relation in relations:
        sizes = [bound.size(parameter.type_name) for parameter in relation.parameters]
        is_of_entities = all(parameter.type_name in entities for parameter in relation.parameters)
        if is_of_entities and relation.where is not None and all(sizes):
            sampled = replace(relation, name=f"{relation.name}, random pairs", where=None)
            n_pairs, n_possible = _create_sample(bound, relation, sampled, sizes)
            if n_pairs:
                groups = _ground_groups(bound, relation, sampled, n_pairs, templates, budget)
                found.append(RandomPairs(relation.name, n_pairs, n_possible, groups))
            bound.connection.execute(f"DROP TABLE {quoted(relation_table(sampled.name))}")
    return tuple(found)


def _create_sample(
    bound: BoundModel, relation: RandomRelation, sampled: RandomRelation, sizes: list[int]
) -> tuple[int, int]:
    """Create the table of random pairs; return their number and the number of all pairs that are not admitted.

    Of entities of one type, no entity is paired with itself, and a pair is not admitted if `where` admits it in neither order.
    If `where` admits each pair in one order only, both orders of a random pair are the same pair.

    Args:
        sizes: the numbers of entities of both parameters.
    """
    admitted = quoted(relation_table(relation.name))
    query = f"SELECT count(*), count(*) FILTER (a0 <> a1), count(*) FILTER (a0 > a1) FROM {admitted}"
    ((n_admitted, n_different, n_descending),) = bound.connection.execute(query).fetchall()
    pairs = np.random.default_rng(SEED).integers(sizes, size=(SAMPLE_SIZE, 2), dtype=np.int32)
    n_possible, orders = sizes[0] * sizes[1] - n_admitted, [("a0", "a1")]
    if relation.parameters[0].type_name == relation.parameters[1].type_name:
        orders.append(("a1", "a0"))
        n_both = _count_both_orders(bound, admitted) if 0 < n_descending < n_different else 0
        n_possible = sizes[0] * (sizes[0] - 1) - (2 * n_different - n_both)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        if not n_both:
            n_possible //= 2
            pairs.sort(axis=1)
            pairs = pairs[:, ::-1] if n_descending else pairs
    is_new = " AND ".join(
        f"NOT EXISTS (SELECT 1 FROM {admitted} AS r WHERE r.a0 = d.{first} AND r.a1 = d.{second})"
        for first, second in orders
    )
    table = quoted(relation_table(sampled.name))
    bound.connection.register("drawn pairs", {"a0": pairs[:, 0].copy(), "a1": pairs[:, 1].copy()})
    bound.connection.execute(
        f"CREATE OR REPLACE TABLE {table} AS SELECT (row_number() OVER (ORDER BY a0, a1) - 1)::INTEGER AS vid, a0, a1, "
        f'-1::INTEGER AS state FROM (SELECT DISTINCT a0, a1 FROM "drawn pairs") AS d WHERE {is_new}'
    )
    bound.connection.unregister("drawn pairs")
    return bound.count_rows(relation_table(sampled.name)), int(n_possible)


def _count_both_orders(bound: BoundModel, admitted: str) -> int:
    """Return the number of admitted pairs of different entities whose reverse is also admitted."""
    is_reversed = f"EXISTS (SELECT 1 FROM {admitted} AS s WHERE s.a0 = r.a1 AND s.a1 = r.a0)"
    query = f"SELECT count(*) FROM {admitted} AS r WHERE a0 <> a1 AND {is_reversed}"
    ((count,),) = bound.connection.execute(query).fetchall()
    return int(count)


def _ground_groups(
    bound: BoundModel,
    relation: RandomRelation,
    sampled: RandomRelation,
    n_pairs: int,
    infos: tuple[TemplateInfo, ...],
    budget: int,
) -> tuple[FactorGroup, ...]:
    """Ground the templates over one variable of the relation for the random pairs."""
    twin = copy.copy(bound)
    declarations = _rename_relation(bound.spec.all_declarations, relation.name, sampled.name)
    twin.spec = ModelSpec((*declarations, sampled), source=bound.spec.source)
    context = make_lowering_context(twin)
    types, names = (tuple(getattr(p, field) for p in relation.parameters) for field in ("type_name", "name"))
    block = VariableBlock(sampled.name, None, 0, n_pairs, BOOL_VALUES, types, names)
    grounder = BlockGrounder(twin, DuckDbEngine(twin.cursor), [block])
    position = {info.name: k for k, info in enumerate(infos)}
    groups: list[FactorGroup] = []
    for template in context.spec.templates:
        lowered = _lower_unary(template, context, relation, sampled.name)
        if lowered is not None and template.weights in position:
            size = check_budget(DegreeCache(twin), lowered.plan, budget, template.name, template.span)
            task = GroundingTask(lowered, None, size.join_rows)
            ground = grounder.ground(template.weights, [task], bound.dataset.storage)
            groups += _with_blocks(ground, position[template.weights], infos[position[template.weights]])
    return tuple(groups)


def _lower_unary(
    template: Template, context: LoweringContext, relation: RandomRelation, sampled: str
) -> LoweredTemplate | None:
    """Lower a template for the random pairs; return None unless it is over one variable of the relation and has no `by`."""
    atom = next((node for node in template.over if isinstance(node, Atom) and node.relation == sampled), None)
    if template.is_candidate or template.by or atom is None:
        return None
    lowered = lower_template(_without_admission(template, relation, atom), context)
    return lowered if len(lowered.terms) == 1 else None


def _without_admission(template: Template, relation: RandomRelation, atom: Atom) -> Template:
    """Return a template without the conditions that admit the pairs of the relation, which random pairs do not satisfy."""
    names = {
        parameter.name: argument.name
        for parameter, argument in zip(relation.parameters, atom.arguments, strict=True)
        if isinstance(argument, Name)
    }
    admission = {_rename_entities(condition, names) for condition in conjuncts(relation.where)}
    rest = [condition for condition in conjuncts(template.where) if condition not in admission]
    return replace(template, where=optional_conjunction(rest))


def _rename_entities(node: T, names: Mapping[str, str]) -> T:
    """Return a condition about other entities: the names of `names` are replaced."""
    renamed = map_children(node, lambda child: _rename_entities(child, names))
    if isinstance(renamed, Name):
        return replace(renamed, name=names.get(renamed.name, renamed.name))
    if isinstance(renamed, Attribute):
        return replace(renamed, binder=names.get(renamed.binder, renamed.binder))
    return renamed


def _rename_relation(node: T, old: str, new: str) -> T:
    """Return a node or tuple in which all atoms of a relation have another name."""
    renamed = map_children(node, lambda child: _rename_relation(child, old, new))
    return replace(renamed, relation=new) if isinstance(renamed, Atom) and renamed.relation == old else renamed


def _with_blocks(ground: GroundBlock, number: int, info: TemplateInfo) -> list[FactorGroup]:
    """Return the groups of a block with the number and the keys of the model's block; factors with other keys are dropped."""
    groups = [replace(group, block=number) for group in ground.groups]
    if info.keys is None or ground.info.keys is None or tuple(info.keys.values) == tuple(ground.info.keys.values):
        return groups
    index = {value: k for k, value in enumerate(info.keys.values)}
    key_of = np.array([index.get(value, -1) for value in ground.info.keys.values], dtype=np.int32)
    found = []
    for group in groups:
        if not isinstance(group.features, Keyed):
            continue  # a comparison with several keys for a pair, which no backend accepts
        key = key_of[group.features.key]
        known = np.flatnonzero(key >= 0)
        features = Keyed(key[known], group.features.values[:0], len(info.keys.values))
        found.append(replace(group, scope=[variables[known] for variables in group.scope], features=features))
    return found
