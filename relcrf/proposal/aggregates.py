"""Aggregates of proposed models: counts, sums, means, minima and maxima over the links of the predicted entities.

Source: Kanter & Veeramachaneni, Deep feature synthesis (2015); links of one and two hops.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from relcrf.data.dataset import quoted
from relcrf.proposal.draft import TableAnalysis
from relcrf.proposal.names import NamePool, argument_name, attribute_name, snake_case
from relcrf.proposal.schema import ProposedAttribute, ProposedEntity, ProposedRelation, RelationArgument
from relcrf.proposal.templates import binder_name, binder_names, render_atom

MAX_AGGREGATES = 96
"""Maximum number of aggregates whose values are computed; those of one hop come first."""

MAX_VALUES = 12
"""Maximum number of values of a column for which the entities with each value are counted."""

_EPOCH = "2000-01-01"
"""The date from which days are counted; any date gives the same order."""


@dataclass(frozen=True)
class ProposedAggregate:
    """An aggregate of the predicted entities.

    Args:
        name: The name of its feature in the model.
        text: The expression.
        comment: One-line summary.
        column: The evidence that is aggregated; see `ProposedTemplate.column`. Empty for numbers of links.
    """

    name: str
    text: str
    comment: str
    column: str = ""


@dataclass(frozen=True)
class _Path:
    """Links of one or two hops from the predicted entity.

    Args:
        condition: The condition that the names satisfy.
        names: The names of all entities and values after the predicted entity.
        relation, atom: The last relation, and its tuple in the condition.
        ends: The arguments of the last relation at which the path ends, with their names.
        label: The name of the path, for names of features.
        title: The names of the relations, for comments.
    """

    condition: str
    names: tuple[str, ...]
    relation: ProposedRelation
    atom: str
    ends: tuple[tuple[RelationArgument, str], ...]
    label: str
    title: str

    @property
    def is_first(self) -> bool:
        return len(self.names) == len(self.ends)


def enumerate_aggregates(analysis: TableAnalysis) -> list[ProposedAggregate]:
    """Return at most MAX_AGGREGATES aggregates over one and two hops from the predicted entities.

    The predicted attribute is not aggregated, because its values are not evidence.
    """
    builder = _AggregateBuilder(analysis)
    if analysis.target.entity is None:
        return []
    for _, aggregate in zip(range(MAX_AGGREGATES), builder.run(analysis.target.entity), strict=False):
        builder.found.append(aggregate)
    return builder.found


def enumerate_label_counts(analysis: TableAnalysis) -> list[ProposedAggregate]:
    """Return the numbers of labels of each value over one and two hops, which are allowed as inputs of a classifier.

    There are none if the target is a number.
    """
    entity = analysis.target.entity
    if entity is None or len(analysis.target.attributes) != 1 or analysis.target.is_number:
        return []
    (label,) = analysis.target.attributes
    return [
        ProposedAggregate("", f"sum {{ {name}.{label.name} where {path.condition} }}", f"labels by {path.title}")
        for path in _AggregateBuilder(analysis).paths(entity)
        for argument, name in path.ends
        if argument.type_name == entity.name
    ]


class _AggregateBuilder:
    def __init__(self, analysis: TableAnalysis) -> None:
        self.target = analysis.target
        self.relations = [relation for relation in analysis.schema.relations if relation.value_column is None]
        self.names = NamePool(analysis.schema.names)
        self.connection = analysis.tables[0].connection
        self.found: list[ProposedAggregate] = []

    def run(self, entity: ProposedEntity) -> Iterator[ProposedAggregate]:
        """Yield the aggregates of an entity type: numbers of links first, and those of one hop before those of two."""
        x = binder_name(entity.name)
        for bag in entity.bags:
            w = binder_name(bag.domain, x)
            text = f"count {{ {w} where {w} in {x}.{bag.name} }}"
            yield self._aggregate(f"n_{bag.name}", text, f"number of different values in {bag.name}")
        paths = self.paths(entity)
        for of_length in ([path for path in paths if path.is_first], [path for path in paths if not path.is_first]):
            for path in of_length:
                yield from self._count_links(path)
            for path in of_length:
                yield from self._summarise_columns(path)

    def paths(self, entity: ProposedEntity) -> list[_Path]:
        """Return the paths of one hop and then those of two hops from an entity type."""
        x = binder_name(entity.name)
        first = list(self._extend(None, entity.name, x, x))
        second = [
            longer
            for path in first
            for argument, y in path.ends
            for longer in self._extend(path, argument.type_name, y, x)
        ]
        return first + second

    def _extend(self, path: _Path | None, type_name: str, own_name: str, x: str) -> Iterator[_Path]:
        """Yield the paths with one more hop from the entity or value `own_name`.

        Args:
            path: The path so far; None for the first hop.
            x: The name of the predicted entity.
        """
        taken = {f" {k}": name for k, name in enumerate((x, *(path.names if path else ())))}
        for relation in self.relations:
            own_arguments = [argument for argument in relation.arguments if argument.type_name == type_name]
            for own in own_arguments[:1] if relation.is_symmetric else own_arguments:
                others = [argument for argument in relation.arguments if argument is not own]
                names = binder_names(others, taken | {own.name: own_name})
                atom = render_atom(relation, names)
                ends = tuple((argument, names[argument.name]) for argument in others)
                if not ends:
                    continue
                is_directed = len(own_arguments) > 1 and not relation.is_symmetric
                label = snake_case(relation.name) + (f"_{own.name.strip('_')}" if is_directed else "")
                title = relation.name + (f" ({own.name.strip('_')})" if is_directed else "")
                if path is None:
                    yield _Path(atom, tuple(name for _, name in ends), relation, atom, ends, label, title)
                    continue
                entity = self.target.entity
                other_entities = [
                    f" and {name} != {x}" for end, name in ends if entity and end.type_name == entity.name
                ]
                yield _Path(
                    f"{path.condition} and {atom}{''.join(other_entities)}",
                    (*path.names, *(name for _, name in ends)),
                    relation, atom, ends, f"{path.label}_{label}", f"{path.title}, then {title}",
                )  # fmt: skip

    def _count_links(self, path: _Path) -> Iterator[ProposedAggregate]:
        ends = ", ".join(name for _, name in path.ends)
        types = " and ".join(argument.type_name for argument, _ in path.ends)
        comment = f"number of different {types} by {path.title}"
        yield self._aggregate(f"n_{path.label}", f"count {{ {ends} where {path.condition} }}", comment)
        if not path.is_first:
            text = f"count {{ {', '.join(path.names)} where {path.condition} }}"
            yield self._aggregate(f"n_paths_{path.label}", text, f"number of paths by {path.title}")

    def _summarise_columns(self, path: _Path) -> Iterator[ProposedAggregate]:
        for attribute in path.relation.attributes:
            column = f"{path.relation.name}.{attribute.name}"
            yield from self._summarise(path, attribute, f"{path.atom}.{attribute.name}", path.names, column)
        for argument, name in path.ends:
            if argument.entity is None:
                continue
            for attribute in argument.entity.attributes:
                if attribute not in self.target.attributes and attribute.name not in (argument.entity.sequence or ()):
                    column = f"{path.relation.name}.{argument.name}.{attribute.name}" if path.is_first else ""
                    yield from self._summarise(path, attribute, f"{name}.{attribute.name}", (name,), column)

    def _summarise(
        self, path: _Path, attribute: ProposedAttribute, term: str, counted: tuple[str, ...], column: str
    ) -> Iterator[ProposedAggregate]:
        """Yield the numbers of links with each value of a discrete attribute, or statistics of a number or a date."""
        label = f"{path.label}_{attribute.name}"
        names = ", ".join(counted)
        if attribute.type == "bool":
            text = f"count {{ {names} where {path.condition} and {term} }}"
            yield self._aggregate(f"n_{label}", text, f"number by {path.title} with {attribute.name}", column)
        elif attribute.is_discrete and attribute.distinct <= MAX_VALUES:
            for value in _frequent_values(self.connection, attribute):
                equals = f"{term} == {json.dumps(value, ensure_ascii=False)}"
                text = f"count {{ {names} where {path.condition} and {equals} }}"
                comment = f"number by {path.title} with {attribute.name} {value}"
                yield self._aggregate(f"n_{label}_{attribute_name(value, 'value')}", text, comment, column)
        elif attribute.is_number:
            for function in ("mean", "max", "min", "sum"):
                text = f"{function} {{ {term} where {path.condition} }}"
                yield self._aggregate(
                    f"{function}_{label}", text, f"{function} of {attribute.name} by {path.title}", column
                )
        elif attribute.type == "datetime":
            for function, word in (("max", "latest"), ("min", "earliest")):
                text = f'{function} {{ {term} - "{_EPOCH}" where {path.condition} }}'
                comment = f"{word} {attribute.name} by {path.title}, in days from {_EPOCH}"
                yield self._aggregate(f"{word}_{label}", text, comment, column)

    def _aggregate(self, name: str, text: str, comment: str, column: str = "") -> ProposedAggregate:
        return ProposedAggregate(self.names.reserve(argument_name(name)), text, comment, column)


def _frequent_values(connection: duckdb.DuckDBPyConnection, attribute: ProposedAttribute) -> list[str]:
    """Return the values of a discrete attribute, the most frequent ones first."""
    if not attribute.scan:
        return list(attribute.values)
    cell = quoted(attribute.column)
    rows = connection.execute(
        f"SELECT {cell}, count(*) FROM {attribute.scan} WHERE {cell} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {MAX_VALUES}"
    ).fetchall()
    return [str(value) for value, _ in rows]
