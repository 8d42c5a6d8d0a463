"""A plan as a SELECT, written through SQLGlot from an allow-list of nodes; every column is aliased."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from sqlglot import exp

from relcrf.data.names import FOREIGN
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding import plan as p

TYPES = {"integer": "INTEGER", "bigint": "BIGINT", "double": "DOUBLE", "text": "VARCHAR"}
"""SQLGlot's name of each type of an output."""

Printed = Callable[..., exp.Expr]
"""From the printed arguments of a function to the printed call."""

_COMPARISONS = {"==": exp.EQ, "!=": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE}
_LONG = 2**63
"""Whole numbers from here on are printed as floating point, which every engine has."""


class AbstractDialect(ABC):
    """What differs between the engines' SQL.

    Attributes:
        name: of the engine, for messages.
        writer: SQLGlot's name of the dialect.
        calls: how each function of the language prints. Outside its domain a function is missing, never an error.
        lacking: functions that the engine has no equal of.
    """

    name: ClassVar[str]
    writer: ClassVar[str]
    calls: ClassVar[Mapping[str, Printed]]
    lacking: ClassVar[frozenset[str]] = frozenset()

    def block(self, plan: p.Plan) -> Block:
        """A SELECT of a plan in the making."""
        return Block(self, plan)

    def text(self, select: exp.Expr) -> str:
        """A statement as SQL; the statement is used up."""
        return select.sql(dialect=self.writer, copy=False)

    def rows(self, plan: p.Plan) -> str:
        """All outputs of all bindings, nothing missing: missing evidence becomes -1 and a feature 0."""
        block = self.block(plan)
        values = [
            _complete(name, exp.cast(block.term(term), TYPES[kind])).as_(name, quoted=True)
            for name, term, kind in plan.outputs
        ]
        if not plan.is_distinct:
            return self.text(block.select(values))
        names = [exp.column(name, quoted=True).as_(name, quoted=True) for name, _, _ in plan.outputs]
        inner = block.select([*values, *block.bindings()]).distinct()
        return self.text(exp.select(*names).from_(inner.subquery("bindings")))

    def call(self, name: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
        """A function of the language.

        Raises:
            UsageError: where the engine has no equal of it.
        """
        if name in self.lacking or name not in self.calls:
            told = name.removeprefix(FOREIGN)
            message = f"the engine '{self.name}' has no function that gives what '{told}' gives"
            hint = f"ground with the engine 'duckdb', or put the values of {told} in a column of the data"
            raise UsageError(Diagnostic("E370", message, hint=hint))
        return self.calls[name](*arguments)

    def string(self, value: str) -> exp.Expr:
        """A text; texts compare by their code points."""
        return exp.Literal.string(value)

    @abstractmethod
    def component(self, vector: exp.Expr, index: int) -> exp.Expr:
        """One number of a vector, counted from 0."""

    def combination(self, terms: list[exp.Expr]) -> exp.Expr:
        """Several terms as one value, to be counted."""
        return call("row", *terms)

    def total(self, value: exp.Expr) -> exp.Expr:
        """The sum of a column; missing where there is none."""
        return exp.Sum(this=value)

    def mean(self, value: exp.Expr) -> exp.Expr:
        """The mean of a column; missing where there is none."""
        return exp.Avg(this=value)


@dataclass
class Block:
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

    def bindings(self) -> list[exp.Expr]:
        """The columns that tell bindings apart."""
        return [column(c).as_(f"b{k}", quoted=True) for k, (_, c) in enumerate(self.plan.bindings)]

    def condition(self, node: p.Condition) -> exp.Expr:
        """A condition; conditions under `not` are made two-valued first, since a missing value makes them not hold."""
        match node:
            case p.Compare(operator, left, right):
                return _COMPARISONS[operator](this=self.term(left), expression=self.term(right))
            case p.Holds(inner):
                return self.term(inner)
            case p.Present(inner):
                return present(self.term(inner))
            case p.Combine("not", (part,)):
                return exp.Not(this=exp.Paren(this=self._decided(part)))
            case p.Combine("or", parts):
                return exp.Paren(this=exp.or_(*(self.condition(part) for part in parts)))
            case p.Combine(_, parts):
                return exp.Paren(this=exp.and_(*(self.condition(part) for part in parts)))
            case p.Exists(plan):
                return self.exists(plan)
        raise AssertionError(f"{node} is no condition")

    def _decided(self, node: p.Condition) -> exp.Expr:
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
                return self.dialect.string(text)
            case p.Constant(int() | float() as value):
                return number(value)
            case p.Component(vector, index):
                return self.dialect.component(self.term(vector), index)
            case p.Call(name, arguments):
                return self.dialect.call(name, [self.term(a) for a in arguments])
            case p.Looked():
                return self.looked(node)
            case p.Decided(decided):
                return exp.cast(self._decided(decided), "INTEGER")
            case p.Figure():
                figure = self.figure(node)
                is_total = node.function in ("count", "sum")
                return exp.Coalesce(this=figure, expressions=[number(0)]) if is_total else figure
        raise AssertionError(f"{node} is no term")

    def exists(self, plan: p.Plan) -> exp.Expr:
        """Whether a plan inside this one has a row."""
        return exp.Exists(this=self.dialect.block(plan).select([exp.Literal.number(1).as_("one")]))

    def looked(self, node: p.Looked) -> exp.Expr:
        """A column of another table, by the value of a column."""
        same = exp.EQ(this=exp.column(node.where, table="looked", quoted=True), expression=self.term(node.equals))
        source = table(p.Scan(node.table, "looked"))
        return exp.select(exp.column(node.column, table="looked", quoted=True)).from_(source).where(same).subquery()

    def figure(self, node: p.Figure) -> exp.Expr:
        """A figure of a plan inside this one; missing where there is nothing."""
        inner = self.dialect.block(node.plan)
        return inner.select([inner.aggregate(node)]).subquery()

    def aggregate(self, node: p.Figure) -> exp.Expr:
        """What a figure adds up, as a column of the plan inside it."""
        terms = [self.term(t) for t in node.terms]
        if node.function == "count":
            counted: exp.Expr = exp.Star()
            if terms:
                counted = exp.Distinct(expressions=[terms[0] if len(terms) == 1 else self.dialect.combination(terms)])
            value: exp.Expr = exp.Count(this=counted)
        else:
            one = real(terms[0])
            match node.function:
                case "sum":
                    value = self.dialect.total(one)
                case "mean":
                    value = self.dialect.mean(one)
                case _:
                    value = exp.Min(this=one) if node.function == "min" else exp.Max(this=one)
        return value.as_("found", quoted=True)


def _complete(output: str, value: exp.Expr) -> exp.Expr:
    """An output that cannot be missing; scopes and keys never are."""
    fill = {"e": number(-1), "f": number(0)}.get(output[0])
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


def present(value: exp.Expr) -> exp.Expr:
    """A value is not missing."""
    return exp.Not(this=exp.Is(this=value, expression=exp.Null()))


def number(value: int | float) -> exp.Expr:
    """A number; what is no integer of 64 bits is floating point in every engine, where a bare `0.5` may be a decimal."""
    literal: exp.Expr = exp.Literal.number(repr(abs(value)))
    if value < 0:
        literal = exp.Paren(this=exp.Neg(this=literal))
    return literal if isinstance(value, int) and abs(value) < _LONG else real(literal)


def real(value: exp.Expr) -> exp.Expr:
    """A number as floating point."""
    return exp.cast(value, "DOUBLE")
