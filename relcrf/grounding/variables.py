"""The random variables of a model on its tables: one a thing and random attribute, one a tuple of a random relation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.data.bound import Bound
from relcrf.data.dataset import quoted
from relcrf.data.names import listed_table, relation_table
from relcrf.errors import DataError, Diagnostic
from relcrf.grounding import sql
from relcrf.grounding.degrees import Degrees
from relcrf.grounding.estimate import require
from relcrf.grounding.lower import Facts, lower_random
from relcrf.model.expressions import Atom, Attribute
from relcrf.model.spec import RandomRelation
from relcrf.model.types import Bool, ValueType
from relcrf.model.typing import Scope

BOOL_VALUES = ("false", "true")


@dataclass(frozen=True)
class VariableBlock:
    """The variables of one random attribute or relation: variable `start + vid` is the thing's or the tuple's.

    Args:
        owner: the entity, or the relation.
        attribute: None for a relation.
        sorts: the sorts of what tells the variables apart: the entity, or the relation's arguments.
        columns: what these are called: the entity's key column, or the arguments.
        is_latent: never observed.
    """

    owner: str
    attribute: str | None
    start: int
    count: int
    values: tuple[str, ...]
    sorts: tuple[str, ...]
    columns: tuple[str, ...]
    is_latent: bool = False

    @property
    def name(self) -> str:
        """`Page.category`, or the relation's name."""
        return self.owner if self.attribute is None else f"{self.owner}.{self.attribute}"

    def among(self, variables: np.ndarray) -> slice:
        """Return where the variables of the block are among some variables, ascending."""
        return slice(*np.searchsorted(variables, (self.start, self.start + self.count)))

    def spell(self, arguments: tuple[str, ...]) -> str:
        """A variable as people name it: `Page(12).category`, `Smokes(anna)`."""
        name = f"{self.owner}({', '.join(arguments)})"
        return name if self.attribute is None else f"{name}.{self.attribute}"


def block_of(term: Attribute | Atom, scope: Scope, blocks: Sequence[VariableBlock]) -> VariableBlock:
    """Return the block of the variables of a random term."""
    owner = (term.relation, None) if isinstance(term, Atom) else (scope.sorts[term.binder], term.attribute)
    return next(block for block in blocks if (block.owner, block.attribute) == owner)


def values_of(bound: Bound, kind: ValueType) -> tuple[str, ...]:
    """The values of a random term's type, in the order of its states."""
    return BOOL_VALUES if isinstance(kind, Bool) else bound.domains[getattr(kind, "domain", "")]


def make_random_relations(bound: Bound, facts: Facts, budget: int) -> None:
    """Makes the tables of the random relations: their admitted tuples, numbered, each with its state.

    Raises:
        BudgetError: where one admits more tuples than the budget.
    """
    for relation in bound.spec.random_relations:
        plan = lower_random(relation, facts)
        require(Degrees(bound), plan, budget, relation.name, relation.span)
        table, listed = quoted(relation_table(relation.name)), quoted(listed_table(relation.name))
        bound.connection.execute(sql.create(plan, relation_table(relation.name)))
        names = [f"a{k}" for k in range(len(relation.parameters))]
        same = " AND ".join(f"l.{a} = r.{a}" for a in names)
        unlisted = 0 if relation.name in bound.closed else -1
        numbered = f"(row_number() OVER (ORDER BY {', '.join(f'r.{a}' for a in names)}) - 1)::INTEGER AS vid"
        state = f"CASE WHEN l.a0 IS NULL THEN {unlisted} ELSE coalesce(l.state, -1) END::INTEGER AS state"
        bound.connection.execute(
            f"CREATE OR REPLACE TABLE {table} AS SELECT {numbered}, {', '.join(f'r.{a}' for a in names)}, {state} "
            f"FROM {table} AS r LEFT JOIN {listed} AS l ON {same}"
        )
        n_possible = math.prod(bound.size(parameter.sort) for parameter in relation.parameters)
        if bound.count_rows(relation_table(relation.name)) == n_possible:
            bound.products.add(relation.name)
        _note_refused(bound, relation, table, listed, same)


def _note_refused(bound: Bound, relation: RandomRelation, table: str, listed: str, same: str) -> None:
    refused = f"SELECT count(*) FROM {listed} AS l WHERE NOT EXISTS (SELECT 1 FROM {table} AS r WHERE {same})"
    ((count,),) = bound.connection.execute(refused).fetchall()
    text = f"{count:,} tuples of {relation.name} are not what its 'where' admits, and are left out"
    if count and text not in bound.notes:
        bound.notes.append(text)


def variable_blocks(bound: Bound) -> list[VariableBlock]:
    """Return the blocks of all random attributes, entity by entity, and then of all random relations.

    Raises:
        DataError: where a random attribute or relation has no value.
    """
    found = []
    for entity in bound.spec.entities:
        for declared in filter(lambda attribute: attribute.is_random, entity.attributes):
            values, count, own = values_of(bound, declared.type), bound.sizes[entity.name], (entity.name,)
            block = VariableBlock(entity.name, declared.name, 0, count, values, own, (entity.key,), declared.latent)
            found.append(block)
    for relation in bound.spec.random_relations:
        sorts, names = (tuple(getattr(p, what) for p in relation.parameters) for what in ("sort", "name"))
        count, values = bound.count_rows(relation_table(relation.name)), values_of(bound, relation.type)
        found.append(VariableBlock(relation.name, None, 0, count, values, sorts, names))
    for block in found:
        if not block.values:
            hint = "label some things, or give the domain's values in the model"
            raise DataError(Diagnostic("E221", f"the domain of {block.name} has no value in the data", hint=hint))
    starts = offsets([block.count for block in found])
    return [replace(block, start=int(start)) for block, start in zip(found, starts[:-1], strict=True)]


def states_of(bound: Bound, block: VariableBlock) -> np.ndarray:
    """The states of a block's variables in the data, shape (count,), int32; -1 where missing."""
    if block.attribute is not None:
        return bound.codes(block.owner, block.attribute)
    query = f"SELECT state FROM {quoted(relation_table(block.owner))} ORDER BY vid"
    return np.asarray(bound.connection.execute(query).fetchnumpy()["state"], dtype=np.int32)


def argument_codes(bound: Bound, block: VariableBlock) -> list[np.ndarray]:
    """For each argument, the vid or code that each of a block's variables has there, shape (count,)."""
    if block.attribute is not None:
        return [np.arange(block.count, dtype=np.int32)]
    names = ", ".join(f"a{k}" for k in range(len(block.sorts)))
    query = f"SELECT {names} FROM {quoted(relation_table(block.owner))} ORDER BY vid"
    found = bound.connection.execute(query).fetchnumpy()
    return [np.asarray(found[f"a{k}"], dtype=np.int32) for k in range(len(block.sorts))]


def argument_texts(bound: Bound, block: VariableBlock) -> list[np.ndarray]:
    """For each argument, its key or value as text for each of a block's variables, shape (count,)."""
    known = {sort: bound.texts(sort) for sort in set(block.sorts)}
    return [known[sort][codes] for sort, codes in zip(block.sorts, argument_codes(bound, block), strict=True)]
