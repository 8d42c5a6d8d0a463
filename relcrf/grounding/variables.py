"""Random variables of a bound model: one per entity and random attribute, and one per tuple of a random relation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.data.empty_domain import empty_domain_error
from relcrf.data.names import listed_table, relation_table
from relcrf.grounding import sql
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.estimate import check_budget
from relcrf.grounding.lower import LoweringContext, lower_random_relation
from relcrf.model.expressions import Atom, Attribute
from relcrf.model.spec import RandomRelation
from relcrf.model.types import BOOL_VALUES, Bool, Real, ValueType
from relcrf.model.typing import NameScope

NUMERIC_VALUES = ("number",)
"""The values of a predicted number. For all that counts states, it has the single state 0, which is unknown (-1) if the number is
missing; `Grounding.numbers` contains the number itself."""


@dataclass(frozen=True)
class VariableBlock:
    """The variables of one random attribute or relation.

    `start + vid` is the index of the variable of the entity or tuple with the dense index `vid`.

    Args:
        owner: name of the entity type or relation.
        attribute: name of the attribute; None for a relation.
        start: index of the first variable.
        count: number of variables.
        values: values of the states.
        argument_types: type names of the arguments that identify a variable: the entity type, or the types of the
            relation's parameters.
        argument_names: names of the arguments: the key column in the table of the entity type, or the parameters of
            the relation.
        is_latent: True if the variables are never observed.
    """

    owner: str
    attribute: str | None
    start: int
    count: int
    values: Sequence[str]
    argument_types: tuple[str, ...]
    argument_names: tuple[str, ...]
    is_latent: bool = False

    @property
    def is_numeric(self) -> bool:
        """True if the variables are numbers."""
        return self.values == NUMERIC_VALUES

    @property
    def name(self) -> str:
        """The name of the block: the name of the attribute, such as `Page.category`, or of the relation."""
        return self.owner if self.attribute is None else f"{self.owner}.{self.attribute}"

    def index_slice(self, variables: np.ndarray) -> slice:
        """Return the slice of an ascending array of variables that contains the variables of the block."""
        return slice(*np.searchsorted(variables, (self.start, self.start + self.count)))

    def format_name(self, arguments: tuple[str, ...]) -> str:
        """Return the name of a variable, such as `Page(12).category` or `Smokes(anna)`."""
        name = f"{self.owner}({', '.join(arguments)})"
        return name if self.attribute is None else f"{name}.{self.attribute}"


def find_block(term: Attribute | Atom, scope: NameScope, blocks: Sequence[VariableBlock]) -> VariableBlock:
    """Return the block of the variables of a random term."""
    owner = (term.relation, None) if isinstance(term, Atom) else (scope.type_names[term.binder], term.attribute)
    return next(block for block in blocks if (block.owner, block.attribute) == owner)


def domain_values(bound: BoundModel, value_type: ValueType) -> Sequence[str]:
    """Return the values of a random term's type, in the order of its states."""
    if isinstance(value_type, Real):
        return NUMERIC_VALUES
    return BOOL_VALUES if isinstance(value_type, Bool) else bound.domains[getattr(value_type, "domain", "")]


def create_random_tables(bound: BoundModel, context: LoweringContext, budget: int) -> None:
    """Create a table for each random relation: the tuples that satisfy `where`, with dense indices (vids) and states.

    Raises:
        BudgetError: if a relation has more tuples than the budget.
    """
    for relation in context.spec.random_relations:
        plan = lower_random_relation(relation, context)
        check_budget(DegreeCache(bound), plan, budget, relation.name, relation.span)
        table, listed = quoted(relation_table(relation.name)), quoted(listed_table(relation.name))
        bound.connection.execute(sql.create(plan, relation_table(relation.name)))
        names = [f"a{k}" for k in range(len(relation.parameters))]
        same_arguments = " AND ".join(f"l.{a} = r.{a}" for a in names)
        unlisted = 0 if relation.name in bound.closed_world else -1
        vid = f"(row_number() OVER (ORDER BY {', '.join(f'r.{a}' for a in names)}) - 1)::INTEGER AS vid"
        state = f"CASE WHEN l.a0 IS NULL THEN {unlisted} ELSE coalesce(l.state, -1) END::INTEGER AS state"
        bound.connection.execute(
            f"CREATE OR REPLACE TABLE {table} AS SELECT {vid}, {', '.join(f'r.{a}' for a in names)}, {state} "
            f"FROM {table} AS r LEFT JOIN {listed} AS l ON {same_arguments}"
        )
        n_possible = math.prod(bound.size(parameter.type_name) for parameter in relation.parameters)
        if bound.count_rows(relation_table(relation.name)) == n_possible:
            bound.product_relations.add(relation.name)
        _note_rejected_tuples(bound, relation, table, listed, same_arguments)


def _note_rejected_tuples(
    bound: BoundModel, relation: RandomRelation, table: str, listed: str, same_arguments: str
) -> None:
    query = f"SELECT count(*) FROM {listed} AS l WHERE NOT EXISTS (SELECT 1 FROM {table} AS r WHERE {same_arguments})"
    ((count,),) = bound.connection.execute(query).fetchall()
    text = f"{count:,} tuples of {relation.name} do not satisfy its 'where' and are ignored"
    if count and text not in bound.notes:
        bound.notes.append(text)


def build_variable_blocks(bound: BoundModel) -> list[VariableBlock]:
    """Return the blocks of all random attributes, entity by entity, and then of all random relations.

    Raises:
        DataError: if the domain of a random attribute or relation has no values.
    """
    blocks = []
    for entity in bound.spec.entities:
        for declared in filter(lambda attribute: attribute.is_random, entity.attributes):
            values, count, key = domain_values(bound, declared.type), bound.sizes[entity.name], bound.key_name(entity)
            block = VariableBlock(entity.name, declared.name, 0, count, values, (entity.name,), (key,), declared.latent)
            blocks.append(block)
    for relation in bound.spec.random_relations:
        type_names, names = (tuple(getattr(p, field) for p in relation.parameters) for field in ("type_name", "name"))
        count, values = bound.count_rows(relation_table(relation.name)), domain_values(bound, relation.type)
        blocks.append(VariableBlock(relation.name, None, 0, count, values, type_names, names))
    for block in blocks:
        if not block.values:
            raise empty_domain_error(bound, block.owner, block.attribute)
    starts = offsets([block.count for block in blocks])
    return [replace(block, start=int(start)) for block, start in zip(blocks, starts[:-1], strict=True)]


def read_states(bound: BoundModel, block: VariableBlock) -> np.ndarray:
    """Return the states of a block's variables in the data, shape (count,), int32; -1 if unknown."""
    if block.is_numeric:
        return np.where(np.isnan(read_numbers(bound, block)), -1, 0).astype(np.int32)
    if block.attribute is not None:
        return bound.codes(block.owner, block.attribute)
    query = f"SELECT state FROM {quoted(relation_table(block.owner))} ORDER BY vid"
    return np.asarray(bound.connection.execute(query).fetchnumpy()["state"], dtype=np.int32)


def read_numbers(bound: BoundModel, block: VariableBlock) -> np.ndarray:
    """Return the values of a block of numbers in the data, shape (count,), float64; nan if unknown."""
    return bound.numbers(block.owner, block.attribute or "")


def read_argument_codes(bound: BoundModel, block: VariableBlock) -> list[np.ndarray]:
    """Return, for each argument of a block, the vids (dense indices) or codes of all variables, shape (count,)."""
    if block.attribute is not None:
        return [np.arange(block.count, dtype=np.int32)]
    names = ", ".join(f"a{k}" for k in range(len(block.argument_types)))
    query = f"SELECT {names} FROM {quoted(relation_table(block.owner))} ORDER BY vid"
    columns = bound.connection.execute(query).fetchnumpy()
    return [np.asarray(columns[f"a{k}"], dtype=np.int32) for k in range(len(block.argument_types))]


def read_argument_texts(bound: BoundModel, block: VariableBlock) -> list[np.ndarray]:
    """Return, for each argument of a block, the keys or values of all variables as texts, shape (count,)."""
    texts = {type_name: bound.texts(type_name) for type_name in set(block.argument_types)}
    return [
        texts[type_name][codes]
        for type_name, codes in zip(block.argument_types, read_argument_codes(bound, block), strict=True)
    ]
