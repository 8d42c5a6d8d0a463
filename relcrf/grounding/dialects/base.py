"""A plan as a SELECT, written through SQLGlot from an allow-list of nodes; every column is aliased."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from sqlglot import exp

from relcrf.data.names import PLUGIN_PREFIX
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding import plan as p

TYPES = {"integer": "INTEGER", "bigint": "BIGINT", "double": "DOUBLE", "text": "VARCHAR"}
"""SQLGlot's name of each type of an output."""

CallWriter = Callable[..., exp.Expr]
"""From the printed arguments of a function to the printed call."""

_COMPARISONS = {"==": exp.EQ, "!=": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE}
_INT64_LIMIT = 2**63
"""Whole numbers from here on are printed as floating point, which every engine has."""


class AbstractDialect(ABC):
    """What differs between the engines' SQL.

    Attributes:
        name: of the engine, for messages.
        sqlglot_dialect: SQLGlot's name of the dialect.
        functions: how each function of the language prints. Outside its domain a function is missing, never an error.
        unsupported: functions that the engine has no equal of.
    """

    name: ClassVar[str]
    sqlglot_dialect: ClassVar[str]
    functions: ClassVar[Mapping[str, CallWriter]]
    unsupported: ClassVar[frozenset[str]] = frozenset()

    def select_builder(self, plan: p.Plan) -> SelectBuilder:
        """A SELECT of a plan in the making."""
        return SelectBuilder(self, plan)

    def render(self, select: exp.Expr) -> str:
        """A statement as SQL; the statement is used up."""
        return select.sql(dialect=self.sqlglot_dialect, copy=False)

    def rows_query(self, plan: p.Plan) -> str:
        """All outputs of all bindings, nothing missing: missing evidence becomes -1 and a feature 0."""
        block = self.select_builder(plan)
        values = [
            _fill_missing(name, exp.cast(block.term(term), TYPES[kind])).as_(name, quoted=True)
            for name, term, kind in plan.outputs
        ]
        if not plan.is_distinct:
            return self.render(block.select(values))
        names = [exp.column(name, quoted=True).as_(name, quoted=True) for name, _, _ in plan.outputs]
        inner = block.select([*values, *block.binding_columns()]).distinct()
        return self.render(exp.select(*names).from_(inner.subquery("bindings")))

    def function_call(self, name: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
        """A function of the language.

        Raises:
            UsageError: where the engine has no equal of it.
        """
        if name in self.unsupported or name not in self.functions:
            told = name.removeprefix(PLUGIN_PREFIX)
            message = f"the engine '{self.name}' has no function that gives what '{told}' gives"
            hint = f"ground with the engine 'duckdb', or put the values of {told} in a column of the data"
            raise UsageError(Diagnostic("E370", message, hint=hint))
        return self.functions[name](*arguments)

    def string_literal(self, value: str) -> exp.Expr:
        """A text; texts compare by their code points."""
        return exp.Literal.string(value)

    @abstractmethod
    def vector_component(self, vector: exp.Expr, index: int) -> exp.Expr:
        """One number of a vector, counted from 0."""

    def tuple_value(self, terms: list[exp.Expr]) -> exp.Expr:
        """Several terms as one value, to be counted."""
        return call("row", *terms)

    def sum_column(self, value: exp.Expr) -> exp.Expr:
        """The sum of a column; missing where there is none."""
        return exp.Sum(this=value)

    def mean_column(self, value: exp.Expr) -> exp.Expr:
        """The mean of a column; missing where there is none."""
        return exp.Avg(this=value)


@dataclass
class SelectBuilder:
    """A SELECT of a plan in the making. Plans inside the plan are subqueries that name the columns around them.

    Args:
        sources: what stands in FROM before the plan's scans.
    """

    dialect: AbstractDialect
    plan: p.Plan
    sources: tuple[exp.Expr, ...] = field(default=())

    def select(self, columns: Sequence[exp.Expr]) -> exp.Select:
        """SELECT columns FROM scans WHERE conditions; joins are equalities of columns."""
        conditions: list[exp.Expr] = [exp.EQ(this=column(a), expression=column(b)) for a, b in self.plan.equalities]
        conditions += [self.condition(f) for f in self.plan.filters]
        select = exp.select(*columns)
        for k, source in enumerate((*(s.copy() for s in self.sources), *map(table, self.plan.scans))):
            select = select.join(source, join_type="cross", copy=False) if k else select.from_(source, copy=False)
        return select.where(*conditions, copy=False) if conditions else select

    def binding_columns(self) -> list[exp.Expr]:
        """The columns that tell bindings apart."""
        return [column(c).as_(f"b{k}", quoted=True) for k, (_, c) in enumerate(self.plan.bindings)]

    def condition(self, node: p.Condition) -> exp.Expr:
        """A condition; conditions under `not` are made two-valued first, since a missing value makes them not hold."""
        match node:
            case p.Compare(operator, left, right):
                return _COMPARISONS[operator](this=self.term(left), expression=self.term(right))
            case p.IsTrue(inner):
                return self.term(inner)
            case p.IsNotNull(inner):
                return is_not_null(self.term(inner))
            case p.LogicalCondition("not", (part,)):
                return exp.Not(this=exp.Paren(this=self._two_valued(part)))
            case p.LogicalCondition("or", parts):
                return exp.Paren(this=exp.or_(*(self.condition(part) for part in parts)))
            case p.LogicalCondition(_, parts):
                return exp.Paren(this=exp.and_(*(self.condition(part) for part in parts)))
            case p.Exists(plan):
                return self.exists(plan)
        raise AssertionError(f"{node} is no condition")

    def _two_valued(self, node: p.Condition) -> exp.Expr:
        """A condition as true or false, never missing."""
        return exp.Coalesce(this=exp.Paren(this=self.condition(node)), expressions=[exp.false()])

    def term(self, node: p.Term) -> exp.Expr:
        """A term."""
        match node:
            case p.Column():
                return column(node)
            case p.Constant(bool() as truth):
                return exp.true() if truth else exp.false()
            case p.Constant(str() as text):
                return self.dialect.string_literal(text)
            case p.Constant(int() | float() as value):
                return number_literal(value)
            case p.VectorComponent(vector, index):
                return self.dialect.vector_component(self.term(vector), index)
            case p.Call(name, arguments):
                return self.dialect.function_call(name, [self.term(a) for a in arguments])
            case p.Lookup():
                return self.lookup(node)
            case p.Indicator(decided):
                return exp.cast(self._two_valued(decided), "INTEGER")
            case p.AggregateTerm():
                figure = self.aggregate_subquery(node)
                is_total = node.function in ("count", "sum")
                return exp.Coalesce(this=figure, expressions=[number_literal(0)]) if is_total else figure
        raise AssertionError(f"{node} is no term")

    def exists(self, plan: p.Plan) -> exp.Expr:
        """Whether a plan inside this one has a row."""
        return exp.Exists(this=self.dialect.select_builder(plan).select([exp.Literal.number(1).as_("one")]))

    def lookup(self, node: p.Lookup) -> exp.Expr:
        """A column of another table, by the value of a column."""
        same = exp.EQ(this=exp.column(node.key_column, table="looked", quoted=True), expression=self.term(node.key))
        source = table(p.Scan(node.table, "looked"))
        return exp.select(exp.column(node.column, table="looked", quoted=True)).from_(source).where(same).subquery()

    def aggregate_subquery(self, node: p.AggregateTerm) -> exp.Expr:
        """A figure of a plan inside this one; missing where there is nothing."""
        inner = self.dialect.select_builder(node.plan)
        return inner.select([inner.aggregate_column(node)]).subquery()

    def aggregate_column(self, node: p.AggregateTerm) -> exp.Expr:
        """What a figure adds up, as a column of the plan inside it."""
        terms = [self.term(t) for t in node.terms]
        if node.function == "count":
            counted: exp.Expr = exp.Star()
            if terms:
                counted = exp.Distinct(expressions=[terms[0] if len(terms) == 1 else self.dialect.tuple_value(terms)])
            value: exp.Expr = exp.Count(this=counted)
        else:
            one = as_double(terms[0])
            match node.function:
                case "sum":
                    value = self.dialect.sum_column(one)
                case "mean":
                    value = self.dialect.mean_column(one)
                case _:
                    value = exp.Min(this=one) if node.function == "min" else exp.Max(this=one)
        return value.as_("found", quoted=True)


def _fill_missing(output: str, value: exp.Expr) -> exp.Expr:
    """An output that cannot be missing; scopes and keys never are."""
    fill = {"e": number_literal(-1), "f": number_literal(0)}.get(output[0])
    return value if fill is None else exp.Coalesce(this=value, expressions=[fill])


def call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A call of a function of the engine."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def table(scan: p.Scan) -> exp.Expr:
    """A table under its alias."""
    return exp.alias_(exp.table_(scan.table, quoted=True), scan.alias, table=True, quoted=True)


def column(node: p.Column) -> exp.Column:
    """A column of a scan."""
    return exp.column(node.name, table=node.alias, quoted=True)


def is_not_null(value: exp.Expr) -> exp.Expr:
    """A value is not missing."""
    return exp.Not(this=exp.Is(this=value, expression=exp.Null()))


def number_literal(value: int | float) -> exp.Expr:
    """A number; what is no integer of 64 bits is floating point in every engine, where a bare `0.5` may be a decimal."""
    literal: exp.Expr = exp.Literal.number(repr(abs(value)))
    if value < 0:
        literal = exp.Paren(this=exp.Neg(this=literal))
    return literal if isinstance(value, int) and abs(value) < _INT64_LIMIT else as_double(literal)


def as_double(value: exp.Expr) -> exp.Expr:
    """A number as floating point."""
    return exp.cast(value, "DOUBLE")
