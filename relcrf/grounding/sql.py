"""Plans as SQL, written through SQLGlot from an allow-list of nodes; every column is aliased."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from relcrf.grounding.plan import (
    Call,
    Column,
    Combine,
    Compare,
    Component,
    Condition,
    Constant,
    Decided,
    Exists,
    Figure,
    Holds,
    Looked,
    Plan,
    Present,
    Scan,
    Term,
    substituted,
)

_COMPARISONS = {"==": exp.EQ, "!=": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE}
_TYPES = {"integer": "INTEGER", "bigint": "BIGINT", "double": "DOUBLE", "text": "VARCHAR"}


def rows(plan: Plan) -> str:
    """All outputs of all bindings, nothing missing: missing evidence becomes -1 and a feature 0."""
    values = [_complete(name, exp.cast(term(t), _TYPES[kind])).as_(name, quoted=True) for name, t, kind in plan.outputs]
    if not plan.is_distinct:
        return _text(_body(plan, values))
    names = [exp.column(name, quoted=True).as_(name, quoted=True) for name, _, _ in plan.outputs]
    return _text(exp.select(*names).from_(_body(plan, [*values, *_bindings(plan)]).distinct().subquery("bindings")))


def _complete(output: str, value: exp.Expr) -> exp.Expr:
    """An output that cannot be missing; scopes and keys never are."""
    fill = {"e": exp.Neg(this=exp.Literal.number(1)), "f": exp.Literal.number(0)}.get(output[0])
    return value if fill is None else exp.Coalesce(this=value, expressions=[fill])


def create(plan: Plan, table: str) -> str:
    """Makes a table of the distinct bindings, its columns a0, a1, ..."""
    return create_union([plan], table)


def create_union(plans: Sequence[Plan], table: str) -> str:
    """Makes a table of the distinct bindings of several plans, its columns a0, a1, ..."""
    texts = []
    for plan in plans:
        columns = [_column(c).as_(f"a{k}", quoted=True) for k, (_, c) in enumerate(plan.bindings)]
        texts.append(_text(_body(plan, columns).distinct()))
    name = table.replace('"', '""')
    return f'CREATE OR REPLACE TABLE "{name}" AS {" UNION ".join(texts)}'


def count(plan: Plan, limit: int | None = None) -> str:
    """The number of bindings, as `n`; counted no further than a limit."""
    if not plan.is_distinct and limit is None:
        return _text(_body(plan, [exp.Count(this=exp.Star()).as_("n")]))
    inner = _body(plan, _bindings(plan) or [exp.Literal.number(1).as_("one")])
    inner = inner.distinct() if plan.is_distinct else inner
    inner = inner.limit(limit) if limit is not None else inner
    return _text(exp.select(exp.Count(this=exp.Star()).as_("n")).from_(inner.subquery("bindings")))


def distinct(plan: Plan, names: Sequence[str]) -> str:
    """The distinct combinations of some outputs."""
    return _text(_body(plan, _named(plan, names)).distinct())


def count_distinct(plan: Plan, names: Sequence[str]) -> str:
    """The number of distinct combinations of some outputs, as `n`."""
    inner = _body(plan, _named(plan, names)).distinct()
    return _text(exp.select(exp.Count(this=exp.Star()).as_("n")).from_(inner.subquery("bindings")))


def count_by(plan: Plan, names: Sequence[str], output: str) -> str:
    """For each combination of some outputs: the number of distinct values of another output, and of bindings."""
    inner = _body(plan, [*_named(plan, [*names, output]), *_bindings(plan)])
    inner = inner.distinct() if plan.is_distinct else inner
    by = [exp.column(name, quoted=True) for name in names]
    counted = exp.Count(this=exp.Distinct(expressions=[exp.column(output, quoted=True)])).as_("variables")
    select = exp.select(*by, counted, exp.Count(this=exp.Star()).as_("n")).from_(inner.subquery("bindings"))
    return _text(select.group_by(*(column.copy() for column in by)))


def condition_text(node: Condition) -> str:
    """A condition on the aliases of its columns."""
    return _text(condition(node))


def _named(plan: Plan, names: Sequence[str]) -> list[exp.Expr]:
    terms = {name: (t, kind) for name, t, kind in plan.outputs}
    return [exp.cast(term(terms[n][0]), _TYPES[terms[n][1]]).as_(n, quoted=True) for n in names]


def _text(select: exp.Expr) -> str:
    return select.sql(dialect="duckdb")


def _bindings(plan: Plan) -> list[exp.Expr]:
    return [_column(c).as_(f"binder_{name}", quoted=True) for name, c in plan.bindings]


def _body(plan: Plan, columns: list[exp.Expr]) -> exp.Select:
    """SELECT ... FROM ... WHERE, joins as equalities of columns."""
    select = exp.select(*columns)
    if plan.scans:
        select = select.from_(_table(plan.scans[0]))
    return _joined(select, plan, list(plan.scans[1:]))


def _joined(select: exp.Select, plan: Plan, scans: list[Scan]) -> exp.Select:
    """Joins more scans of a plan, and adds its conditions."""
    for scan in scans:
        select = select.join(_table(scan), join_type="cross")
    conditions: list[exp.Expr] = [exp.EQ(this=_column(a), expression=_column(b)) for a, b in plan.equalities]
    conditions += [condition(f) for f in plan.filters]
    return select.where(*conditions) if conditions else select


def _table(scan: Scan) -> exp.Expr:
    return exp.alias_(exp.table_(scan.table, quoted=True), scan.alias, table=True, quoted=True)


def _column(column: Column) -> exp.Column:
    return exp.column(column.name, table=column.alias, quoted=True)


def condition(node: Condition) -> exp.Expr:
    """A condition; conditions under `not` are made two-valued first, since a missing value makes them not hold."""
    match node:
        case Compare(operator, left, right):
            return _COMPARISONS[operator](this=term(left), expression=term(right))
        case Holds(inner):
            return term(inner)
        case Present(inner):
            return exp.Not(this=exp.Is(this=term(inner), expression=exp.Null()))
        case Combine("not", (part,)):
            return exp.Not(
                this=exp.Paren(this=exp.Coalesce(this=exp.Paren(this=condition(part)), expressions=[exp.false()]))
            )
        case Combine("or", parts):
            return exp.Paren(this=exp.or_(*(condition(p) for p in parts)))
        case Combine(_, parts):
            return exp.Paren(this=exp.and_(*(condition(p) for p in parts)))
        case Exists(plan):
            return exp.Exists(this=_body(plan, [exp.Literal.number(1).as_("one")]))
    raise AssertionError(f"{node} is no condition")


def term(node: Term) -> exp.Expr:
    """A term."""
    match node:
        case Column():
            return _column(node)
        case Constant(value):
            if isinstance(value, bool):
                return exp.true() if value else exp.false()
            if isinstance(value, str):
                return exp.Literal.string(value)
            literal = exp.Literal.number(repr(abs(value)))
            return exp.Paren(this=exp.Neg(this=literal)) if value < 0 else literal
        case Component(vector, index):
            return exp.Anonymous(this="array_extract", expressions=[term(vector), exp.Literal.number(index + 1)])
        case Call(name, arguments):
            return _CALLS[name](*(term(a) for a in arguments))
        case Looked(table, column, where, equals):
            looked = exp.EQ(this=exp.column(where, table="looked", quoted=True), expression=term(equals))
            source = exp.alias_(exp.table_(table, quoted=True), "looked", table=True, quoted=True)
            return exp.select(exp.column(column, table="looked", quoted=True)).from_(source).where(looked).subquery()
        case Decided(decided):
            holds = exp.Coalesce(this=exp.Paren(this=condition(decided)), expressions=[exp.false()])
            return exp.cast(holds, "INTEGER")
        case Figure():
            return _figure(node)
    raise AssertionError(f"{node} is no term")


def _figure(node: Figure) -> exp.Expr:
    """A figure; the sum of nothing is 0, the least and the mean of nothing is missing."""
    value = _grouped(node) if node.base is not None else _body(node.plan, [_aggregate(node)]).subquery()
    return exp.Coalesce(this=value, expressions=[exp.Literal.number(0)]) if node.function in ("count", "sum") else value


def _aggregate(node: Figure) -> exp.Expr:
    terms = [term(t) for t in node.terms]
    if node.function == "count":
        counted: exp.Expr = exp.Star()
        if terms:
            row = terms[0] if len(terms) == 1 else exp.Anonymous(this="row", expressions=terms)
            counted = exp.Distinct(expressions=[row])
        return exp.Count(this=counted).as_("figure", quoted=True)
    kinds = {"sum": exp.Sum, "min": exp.Min, "max": exp.Max, "mean": exp.Avg}
    return kinds[node.function](this=_real(terms[0])).as_("figure", quoted=True)


def _grouped(node: Figure) -> exp.Expr:
    """A figure for each combination of its keys in the base plan, looked up by the keys."""
    assert node.base is not None
    names = [f"k{k}" for k in range(len(node.keys))]
    keys = _body(node.base, [_column(c).as_(n, quoted=True) for n, c in zip(names, node.keys, strict=True)]).distinct()
    inner = substituted(node, {column: Column("keys", n) for n, column in zip(names, node.keys, strict=True)})
    columns = [exp.column(n, table="keys", quoted=True) for n in names]
    select = exp.select(*(c.as_(n, quoted=True) for n, c in zip(names, columns, strict=True)), _aggregate(inner))
    select = _joined(select.from_(keys.subquery("keys")), inner.plan, list(inner.plan.scans))
    select = select.group_by(*(c.copy() for c in columns))
    same = [
        exp.EQ(this=exp.column(n, table="figures", quoted=True), expression=_column(c))
        for n, c in zip(names, node.keys, strict=True)
    ]
    return (
        exp.select(exp.column("figure", table="figures", quoted=True))
        .from_(select.subquery("figures"))
        .where(*same)
        .subquery()
    )


def _case(condition: exp.Expr, then: exp.Expr) -> exp.Expr:
    """`then` where the condition holds, else missing."""
    return exp.Case(ifs=[exp.If(this=condition, true=then)])


def _real(node: exp.Expr) -> exp.Expr:
    return exp.cast(node, "DOUBLE")


def _function(name: str) -> Callable[..., exp.Expr]:
    return lambda *arguments: exp.Anonymous(this=name, expressions=list(arguments))


def _binary(kind: type[exp.Binary]) -> Callable[..., exp.Expr]:
    return lambda left, right: exp.Paren(this=kind(this=_real(left), expression=_real(right)))


def _above(bound: int, name: str) -> Callable[..., exp.Expr]:
    """A function of numbers above a bound."""
    limit = exp.Literal.number(0) if bound == 0 else exp.Neg(this=exp.Literal.number(-bound))
    return lambda x: _case(exp.GT(this=_real(x), expression=limit), exp.Anonymous(this=name, expressions=[_real(x)]))


def _log1p(x: exp.Expr) -> exp.Expr:
    shifted = exp.Paren(this=exp.Add(this=exp.Literal.number(1), expression=_real(x)))
    above = exp.GT(this=_real(x.copy()), expression=exp.Neg(this=exp.Literal.number(1)))
    return _case(above, exp.Anonymous(this="ln", expressions=[shifted]))


def _sqrt(x: exp.Expr) -> exp.Expr:
    above = exp.GTE(this=_real(x), expression=exp.Literal.number(0))
    return _case(above, exp.Anonymous(this="sqrt", expressions=[_real(x.copy())]))


def _divide(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    nonzero = exp.NEQ(this=_real(right), expression=exp.Literal.number(0))
    return _case(nonzero, exp.Paren(this=exp.Div(this=_real(left), expression=_real(right.copy()))))


def _cosine(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    def squared(v: exp.Expr) -> exp.Expr:
        return exp.Anonymous(this="array_inner_product", expressions=[v.copy(), v.copy()])

    both = exp.and_(*(exp.GT(this=squared(v), expression=exp.Literal.number(0)) for v in (a, b)))
    value = exp.Anonymous(this="array_cosine_similarity", expressions=[a, b])
    return exp.Case(ifs=[exp.If(this=both, true=value)], default=exp.Literal.number(0))


def _jaccard(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    """0 where a text is empty, which DuckDB's own refuses."""
    lengths = [
        exp.GT(this=exp.Anonymous(this="length", expressions=[x.copy()]), expression=exp.Literal.number(0))
        for x in (a, b)
    ]
    empty = [
        exp.EQ(this=exp.Anonymous(this="length", expressions=[x.copy()]), expression=exp.Literal.number(0))
        for x in (a, b)
    ]
    value = exp.Anonymous(this="jaccard", expressions=[a, b])
    return exp.Case(
        ifs=[exp.If(this=exp.and_(*lengths), true=value), exp.If(this=exp.or_(*empty), true=exp.Literal.number(0))]
    )


_CALLS: dict[str, Callable[..., exp.Expr]] = {
    "+": _binary(exp.Add),
    "-": _binary(exp.Sub),
    "*": _binary(exp.Mul),
    "/": _divide,
    "negative": lambda x: exp.Paren(this=exp.Neg(this=_real(x))),
    "log": _above(0, "ln"),
    "log1p": _log1p,
    "exp": lambda x: exp.Anonymous(this="exp", expressions=[_real(x)]),
    "sqrt": _sqrt,
    "abs": lambda x: exp.Anonymous(this="abs", expressions=[_real(x)]),
    "least": lambda a, b: _either(exp.LTE, a, b),
    "greatest": lambda a, b: _either(exp.GTE, a, b),
    "cosine": _cosine,
    "dot": _function("array_inner_product"),
    "distance": _function("array_distance"),
    "number": _real,
    "date": lambda x: exp.cast(x, "DATE"),
    "lower": _function("lower"),
    "length": _function("length"),
    "prefix": lambda text, size: exp.Anonymous(this="left", expressions=[text, exp.cast(size, "BIGINT")]),
    "contains": _function("contains"),
    "starts_with": _function("starts_with"),
    "levenshtein": _function("levenshtein"),
    "jaro_winkler": _function("jaro_winkler_similarity"),
    "jaccard": _jaccard,
}
"""How each function of the language prints. Outside its domain a function is missing, never an error."""


def _either(kind: type[exp.Binary], a: exp.Expr, b: exp.Expr) -> exp.Expr:
    """The one of two numbers that the comparison prefers; missing where either is (SQL's own LEAST skips it)."""
    better = exp.If(this=kind(this=_real(a), expression=_real(b)), true=_real(a.copy()))
    worse = exp.If(this=exp.Not(this=kind(this=_real(a.copy()), expression=_real(b.copy()))), true=_real(b.copy()))
    return exp.Case(ifs=[better, worse])
