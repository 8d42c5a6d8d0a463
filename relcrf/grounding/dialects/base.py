"""Rendering of plans as SELECT statements by SQLGlot. The set of node types is closed, and every column name is qualified."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from sqlglot import exp

from relcrf.data.names import PLUGIN_PREFIX
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding import plan as p

TYPES = {
    "integer": exp.DataType.Type.INT,
    "bigint": exp.DataType.Type.BIGINT,
    "double": exp.DataType.Type.DOUBLE,
    "text": exp.DataType.Type.VARCHAR,
}
"""SQLGlot's type of each output type; SQLGlot would parse a name again for each cast."""

CallWriter = Callable[..., exp.Expr]
"""Function that returns the SQL expression of a function call, given the SQL expressions of the arguments."""

_COMPARISONS = {"==": exp.EQ, "!=": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE}
_INT64_LIMIT = 2**63
"""Smallest absolute value of integers that are rendered as doubles; some engines have no integers beyond 64 bits."""


class AbstractDialect(ABC):
    """The engine-specific part of rendering SQL.

    Attributes:
        name: name of the engine, for messages.
        sqlglot_dialect: SQLGlot name of the dialect.
        functions: writer of each function of the modelling language; the SQL returns null outside the function's domain.
        unsupported: functions without an equivalent in the engine.
        has_defined_functions: whether the engine has the functions of `DefinedCall`.
    """

    name: ClassVar[str]
    sqlglot_dialect: ClassVar[str]
    functions: ClassVar[Mapping[str, CallWriter]]
    unsupported: ClassVar[frozenset[str]] = frozenset()
    has_defined_functions: ClassVar[bool] = False

    def select_builder(self, plan: p.Plan) -> SelectBuilder:
        """Return a builder of the SELECT of a plan."""
        return SelectBuilder(self, plan)

    def render(self, select: exp.Expr) -> str:
        """Render a statement as SQL; the statement must not be used afterwards."""
        return select.sql(dialect=self.sqlglot_dialect, copy=False)

    def rows_query(self, plan: p.Plan) -> str:
        """Return SQL that selects all outputs of all bindings; a null is replaced by -1 in evidence, by 0 in features."""
        builder = self.select_builder(plan)
        values = [
            _fill_missing(name, exp.cast(builder.term(term), TYPES[kind], copy=False)).as_(
                name, quoted=True, copy=False
            )
            for name, term, kind in plan.outputs
        ]
        if not plan.is_distinct:
            return self.render(builder.select(values))
        names = [exp.column(name, quoted=True).as_(name, quoted=True, copy=False) for name, _, _ in plan.outputs]
        bindings = builder.select([*values, *builder.binding_columns()]).distinct()
        return self.render(exp.select(*names).from_(bindings.subquery("bindings")))

    def function_call(self, name: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
        """Return a call of a function of the modelling language.

        Raises:
            UsageError: if the engine has no equivalent function.
        """
        if name in self.unsupported or name not in self.functions:
            function = name.removeprefix(PLUGIN_PREFIX)
            message = f"the engine '{self.name}' has no equivalent of the function '{function}'"
            hint = f"ground with the engine 'duckdb', or add the values of {function} to the data as a column"
            raise UsageError(Diagnostic("E370", message, hint=hint))
        return self.functions[name](*arguments)

    def string_literal(self, value: str) -> exp.Expr:
        """Return a string literal; strings are compared by code points."""
        return exp.Literal.string(value)

    @abstractmethod
    def vector_component(self, vector: exp.Expr, index: int) -> exp.Expr:
        """Return a component of a vector; indices start at 0."""

    def tuple_value(self, terms: list[exp.Expr]) -> exp.Expr:
        """Return an expression that combines several terms into one value, for COUNT(DISTINCT ...)."""
        return call("row", *terms)

    def sum_column(self, value: exp.Expr) -> exp.Expr:
        """Return the sum of a column, which is null for an empty column."""
        return exp.Sum(this=value)

    def mean_column(self, value: exp.Expr) -> exp.Expr:
        """Return the mean of a column, which is null for an empty column."""
        return exp.Avg(this=value)


@dataclass
class SelectBuilder:
    """A builder of the SELECT of a plan. Subplans become correlated subqueries.

    Args:
        sources: tables and subqueries in FROM before the scans of the plan.
    """

    dialect: AbstractDialect
    plan: p.Plan
    sources: tuple[exp.Expr, ...] = field(default=())

    def select(self, columns: Sequence[exp.Expr]) -> exp.Select:
        """Return `SELECT columns FROM scans WHERE conditions`; the equalities of joins are conditions in WHERE."""
        conditions: list[exp.Expr] = [exp.EQ(this=column(a), expression=column(b)) for a, b in self.plan.equalities]
        conditions += [self.condition(f) for f in self.plan.filters]
        select = exp.Select(expressions=list(columns))
        for k, source in enumerate((*(s.copy() for s in self.sources), *map(table, self.plan.scans))):
            if k:
                select.append("joins", exp.Join(this=source, kind="CROSS"))  # `Select.join` parses "CROSS JOIN"
            else:
                select = select.from_(source, copy=False)
        return select.where(*conditions, copy=False) if conditions else select

    def binding_columns(self) -> list[exp.Expr]:
        """Return the columns that identify a binding."""
        return [column(c).as_(f"b{k}", quoted=True, copy=False) for k, (_, c) in enumerate(self.plan.bindings)]

    def condition(self, node: p.Condition) -> exp.Expr:
        """Return the SQL of a condition. Conditions on nulls are false in plans, so `not` treats unknown as false."""
        match node:
            case p.Compare(operator, left, right):
                return _COMPARISONS[operator](this=self.term(left), expression=self.term(right))
            case p.IsTrue(inner):
                return self.term(inner)
            case p.IsNotNull(inner):
                return is_not_null(self.term(inner))
            case p.LogicalCondition("not", (operand,)):
                return exp.Not(this=exp.Paren(this=self._two_valued(operand)))
            case p.LogicalCondition("or", operands):
                return exp.Paren(this=exp.or_(*(self.condition(operand) for operand in operands)))
            case p.LogicalCondition(_, operands):
                return exp.Paren(this=exp.and_(*(self.condition(operand) for operand in operands)))
            case p.Exists(plan):
                return self.exists(plan)
        raise AssertionError(f"{node} is not a condition")

    def _two_valued(self, node: p.Condition) -> exp.Expr:
        """Return a condition as true or false, never null."""
        return exp.Coalesce(this=exp.Paren(this=self.condition(node)), expressions=[exp.false()])

    def term(self, node: p.Term) -> exp.Expr:
        """Return the SQL of a term."""
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
            case p.DefinedCall(name, arguments, definition):
                if not self.dialect.has_defined_functions:
                    return self.term(definition)
                return call(exp.to_identifier(name, quoted=True), *(self.term(a) for a in arguments))
            case p.Lookup():
                return self.lookup(node)
            case p.Indicator(condition):
                return exp.cast(self._two_valued(condition), TYPES["integer"], copy=False)
            case p.AggregateTerm():
                aggregate = self.aggregate_subquery(node)
                zero = [number_literal(0)]
                return exp.Coalesce(this=aggregate, expressions=zero) if node.is_zero_if_empty else aggregate
        raise AssertionError(f"{node} is not a term")

    def exists(self, plan: p.Plan) -> exp.Expr:
        """Return the condition that a subplan has a row."""
        return exp.Exists(this=self.dialect.select_builder(plan).select([exp.Literal.number(1).as_("one")]))

    def lookup(self, node: p.Lookup) -> exp.Expr:
        """Return a subquery that reads one column of another table, in the row with a given key."""
        has_key = exp.EQ(this=exp.column(node.key_column, table="lookup", quoted=True), expression=self.term(node.key))
        source = table(p.Scan(node.table, "lookup"))
        return exp.select(exp.column(node.column, table="lookup", quoted=True)).from_(source).where(has_key).subquery()

    def aggregate_subquery(self, node: p.AggregateTerm) -> exp.Expr:
        """Return a subquery for an aggregate over a subplan; its value is null if the subplan has no rows."""
        subplan_builder = self.dialect.select_builder(node.plan)
        return subplan_builder.select([subplan_builder.aggregate_column(node)]).subquery()

    def aggregate_column(self, node: p.AggregateTerm) -> exp.Expr:
        """Return the aggregate expression as a column of the subplan's SELECT."""
        terms = [self.term(t) for t in node.terms]
        if node.function == "count":
            counted: exp.Expr = exp.Star()
            if terms:
                counted = exp.Distinct(expressions=[terms[0] if len(terms) == 1 else self.dialect.tuple_value(terms)])
            value: exp.Expr = exp.Count(this=counted)
        else:
            term = as_double(terms[0])
            match node.function:
                case "sum":
                    value = self.dialect.sum_column(term)
                case "mean":
                    value = self.dialect.mean_column(term)
                case _:
                    value = exp.Min(this=term) if node.function == "min" else exp.Max(this=term)
        return value.as_("result", quoted=True)


def _fill_missing(output: str, value: exp.Expr) -> exp.Expr:
    """Replace nulls in outputs of evidence (`e0`, ...) and features (`f0`, ...); all other outputs are never null."""
    fill = {"e": number_literal(-1), "f": number_literal(0)}.get(output[0])
    return value if fill is None else exp.Coalesce(this=value, expressions=[fill])


def call(name: str | exp.Identifier, *arguments: exp.Expr) -> exp.Expr:
    """Return a call of an engine function."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def table(scan: p.Scan) -> exp.Expr:
    """Return a table with its alias."""
    return exp.alias_(exp.table_(scan.table, quoted=True), scan.alias, table=True, quoted=True, copy=False)


def column(node: p.Column) -> exp.Column:
    """Return a column of a scan."""
    return exp.column(node.name, table=node.alias, quoted=True)


def is_not_null(value: exp.Expr) -> exp.Expr:
    """Return the condition that a value is not null."""
    return exp.Not(this=exp.Is(this=value, expression=exp.Null()))


def number_literal(value: int | float) -> exp.Expr:
    """Return a number as a 64-bit integer or a cast to double, because some engines read a plain `0.5` as a decimal."""
    literal: exp.Expr = exp.Literal.number(repr(abs(value)))
    if value < 0:
        literal = exp.Paren(this=exp.Neg(this=literal))
    return literal if isinstance(value, int) and abs(value) < _INT64_LIMIT else as_double(literal)


def as_double(value: exp.Expr) -> exp.Expr:
    """Return a number cast to double precision."""
    return exp.cast(value, TYPES["double"])
