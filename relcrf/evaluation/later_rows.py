"""Counts of the bindings, tuples and values that use rows which are not earlier than their target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import duckdb

from relcrf.data.dataset import quoted
from relcrf.data.names import relation_table
from relcrf.grounding import sql
from relcrf.grounding.dependencies import model_dependencies
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.lower import LoweringContext, lower_derived, lower_template, lower_values
from relcrf.grounding.plan import Plan
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model.as_of import apply_as_of, later_rows, uses_all_rows, uses_other_rows
from relcrf.model.formula import scope_terms
from relcrf.model.rules import all_templates
from relcrf.model.typing import NameScope


@dataclass(frozen=True)
class LaterRows:
    """The results of one declaration that use rows which are not earlier than their target.

    Args:
        declaration: the declaration in messages, such as `template 'rate'`.
        results: `bindings` of a template, `tuples` of a derived relation, or `values` of a feature.
        target: the binder with whose time the times of rows are compared; empty if no binder has a time.
        total: the number of results.
        later: the number of results that use a row of the same time as the target, of a later time, or without a time.
    """

    declaration: str
    results: str
    target: str
    total: int
    later: int

    def __str__(self) -> str:
        count = f"{self.later:,} of {self.total:,} {self.results} of {self.declaration}"
        hint = f"add 'as of {self.target}'" if self.target else "add an argument with a time, and 'as of'"
        return f"{count} use rows that are not earlier than their target: {hint}"


def count_later_rows(grounding: Grounding) -> tuple[LaterRows, ...]:
    """Count, for each declaration of a model with times, the results that use rows not earlier than their target.

    A declaration with `as of` is counted in its restricted form, which is ground. Templates whose random variables have no
    time, and derived relations and features that the model does not use, are left out.
    """
    spec = grounding.spec
    owners: tuple[s.Entity | s.Relation, ...] = (*spec.entities, *spec.relations)
    if not any(spec.time_attribute(owner.name) for owner in owners):
        return ()
    context = make_lowering_context(grounding.bound)
    counter = _Counter(spec, apply_as_of(spec), context, grounding.bound.connection)
    used = model_dependencies(context.spec)
    return (
        *counter.count_templates(),
        *(counter.count_derived(derived) for derived in spec.derived_relations if derived.name in used),
        *(counter.count_feature(feature) for feature in spec.features if feature.name in used),
    )


@dataclass(frozen=True)
class _Counter:
    """A counter of the results of declarations.

    Args:
        spec: the model.
        restricted: the model in which `as of` is explicit.
        context: the inputs of lowering, with the model that is ground.
        connection: the database with the coded tables.
    """

    spec: s.ModelSpec
    restricted: s.ModelSpec
    context: LoweringContext
    connection: duckdb.DuckDBPyConnection

    def count_templates(self) -> Iterator[LaterRows]:
        ground = {template.name: template for template in self.context.spec.templates if not template.is_candidate}
        for declared, restricted in zip(all_templates(self.spec), self.restricted.templates, strict=True):
            target = declared.as_of or self._target_of_template(declared)
            if target is None or declared.name not in ground:
                continue
            template = ground[declared.name]
            (condition,) = later_rows(self.restricted, restricted, target)
            total = later = self._count(lower_template(_without_features(template), self.context).plan)
            if not uses_all_rows(self.restricted, restricted):
                parts = [*e.conjuncts(template.where), *e.conjuncts(condition)]
                changed = replace(_without_features(template), where=e.optional_conjunction(parts))
                later = 0 if condition is None else self._count(lower_template(changed, self.context).plan)
            yield LaterRows(f"template '{declared.name}'", "bindings", target.name, total, later)

    def _target_of_template(self, template: s.Template) -> e.Name | None:
        """Return the first name with a time in the random terms of a template, or None."""
        scope = NameScope(self.spec, template.parameters, template.where)
        for term in scope_terms(template.over, scope):
            names = e.names_in(term)
            for parameter in template.parameters:
                if parameter.name in names and self.spec.time_attribute(parameter.type_name):
                    return e.Name(parameter.name)
        return None

    def count_derived(self, derived: s.DerivedRelation) -> LaterRows:
        """Count the tuples of a derived relation; without an argument with a time, all tuples of rows with times."""
        target = derived.as_of or self._first_with_time(derived)
        (total,) = self._fetch(f"SELECT count(*) FROM {quoted(relation_table(derived.name))}")
        later = total if uses_other_rows(self.spec, replace(derived, as_of=None)) else 0
        restricted = next(d for d in self.restricted.derived_relations if d.name == derived.name)
        ground = next(d for d in self.context.spec.derived_relations if d.name == derived.name)
        if later and target is not None and not uses_all_rows(self.restricted, restricted):
            assert not isinstance(ground.definition, s.NearestNeighbours)
            cases = [
                e.conjunction([case, condition])
                for case, condition in zip(
                    e.disjuncts(ground.definition), later_rows(self.restricted, restricted, target), strict=True
                )
                if condition is not None
            ]
            later = 0
            if cases:
                plans = lower_derived(replace(ground, definition=e.disjunction(cases)), self.context)
                self.connection.execute(sql.create_union(plans, _LATER_TABLE))
                (later,) = self._fetch(f"SELECT count(*) FROM {quoted(_LATER_TABLE)}")
                self.connection.execute(f"DROP TABLE {quoted(_LATER_TABLE)}")
        return LaterRows(f"relation '{derived.name}'", "tuples", target.name if target else "", total, later)

    def count_feature(self, feature: s.Feature) -> LaterRows:
        """Count the values of a feature; without a time of its entity, all values that depend on rows with times."""
        (parameter,) = feature.parameters
        target = feature.as_of or self._first_with_time(feature)
        total = self._count(lower_values(e.Number(1), parameter, self.context))
        later = total if uses_other_rows(self.spec, replace(feature, as_of=None)) else 0
        restricted = next(f for f in self.restricted.features if f.name == feature.name)
        if later and target is not None and not uses_all_rows(self.restricted, restricted):
            (condition,) = later_rows(self.restricted, restricted, target)
            plan = lower_values(e.Number(1), parameter, self.context, where=condition)
            later = 0 if condition is None else self._count(plan)
        return LaterRows(f"feature '{feature.name}'", "values", target.name if target else "", total, later)

    def _first_with_time(self, declared: s.DerivedRelation | s.Feature) -> e.Name | None:
        names = (p.name for p in declared.parameters if self.spec.time_attribute(p.type_name))
        return next((e.Name(name) for name in names), None)

    def _count(self, plan: Plan) -> int:
        return self._fetch(sql.count(plan))[0]

    def _fetch(self, query: str) -> tuple[int, ...]:
        (row,) = self.connection.execute(query).fetchall()
        return tuple(row)


_LATER_TABLE = "later rows"
"""The name of the temporary table of the tuples of a derived relation that use later rows."""


def _without_features(template: s.Template) -> s.Template:
    return replace(template, per=(), by=(), options=s.WeightOptions())
