"""Suspected leaks: attributes of the predicted entities that determine the label, or whose name contains its name."""

from __future__ import annotations

import math

from relcrf.data.coding import datetime_sql, time_sql
from relcrf.data.dataset import quoted
from relcrf.model.spec import fold_name
from relcrf.proposal.draft import TableAnalysis
from relcrf.proposal.schema import ProposedAttribute

LEAK_ACCURACY, MIN_LEAK_GAIN, MIN_LEAK_ROWS = 0.98, 0.05, 20
"""An attribute is suspected to be a leak if it predicts that fraction of the labels in rows that were held out, at least
that much more than the most frequent label does, and if there are at least that many such rows."""

N_QUANTILES = 20
"""Number of groups of equal size into which the numbers of an attribute are divided."""

MAX_LEAK_ROWS = 200_000
"""Approximate maximum number of labelled rows that are tested; more rows would hardly change a fraction of 98 %."""

_SAMPLE = "temp.leak_sample"
"""Temporary table of the tested rows."""


def find_leaks(analysis: TableAnalysis) -> list[tuple[str, str]]:
    """Return the attributes of the predicted entities that may contain a label, as pairs (attribute, reason).

    For each value of an attribute (or each of 20 groups of its numbers), the most frequent label of a half of the rows is
    compared with the labels of the other half. The labels of a number are 20 groups, too.
    """
    entity, targets = analysis.target.entity, analysis.target.attributes
    if entity is None:
        return []
    tested = [a for a in entity.attributes if a not in targets and a.type != "vector"]
    connection, found = analysis.tables[0].connection, []
    scan = targets[0].scan
    is_labelled = " OR ".join(f"{quoted(a.column)} IS NOT NULL" for a in targets if a.scan == scan)
    ((n_labelled,),) = connection.execute(f"SELECT count(*) FROM {scan} WHERE {is_labelled}").fetchall()
    n_parts = max(1, math.ceil(n_labelled / MAX_LEAK_ROWS))
    connection.execute(_sample_sql(targets, tested, is_labelled, n_parts))
    sampled = f", in a sample of {n_labelled // n_parts:,} rows" if n_parts > 1 else ""
    for k, target in enumerate(targets):
        label = _group_sql(target, f"y{k}")
        for j, attribute in enumerate(tested):
            value = _group_sql(attribute, f"a{j}")
            ((rows, right, frequent),) = connection.execute(
                f"WITH t AS (SELECT {value} AS a, {label} AS y, half FROM {_SAMPLE} "
                f"WHERE a{j} IS NOT NULL AND y{k} IS NOT NULL), "
                "g AS (SELECT a, mode(y) AS guess FROM t WHERE half = 0 GROUP BY a) "
                "SELECT count(*), count(*) FILTER (g.guess = t.y), "
                "count(*) FILTER (t.y = (SELECT mode(y) FROM t WHERE half = 0)) "
                "FROM t JOIN g ON g.a = t.a WHERE half = 1"
            ).fetchall()
            if rows >= MIN_LEAK_ROWS and right >= max(LEAK_ACCURACY * rows, frequent + MIN_LEAK_GAIN * rows):
                reason = f"it predicts {right / rows:.1%} of {rows:,} held-out labels of {target.name}{sampled}"
                found.append((f"{entity.name}.{attribute.name}", reason))
            elif len(fold_name(target.name)) > 2 and fold_name(target.name) in fold_name(attribute.name):
                found.append((f"{entity.name}.{attribute.name}", f"its name contains '{target.name}'"))
    connection.execute(f"DROP TABLE {_SAMPLE}")
    return found


def _sample_sql(
    targets: tuple[ProposedAttribute, ...], tested: list[ProposedAttribute], is_labelled: str, n_parts: int
) -> str:
    """Return SQL that stores labelled entities: labels `y0`, `y1`, ..., attributes `a0`, `a1`, ..., and a random half.

    Args:
        n_parts: Number of parts into which the rows are divided at random; the first part is stored.
    """
    scan, key = targets[0].scan, targets[0].key
    named = [(f"y{k}", a) for k, a in enumerate(targets)] + [(f"a{k}", a) for k, a in enumerate(tested)]
    others = list(dict.fromkeys((a.scan, a.key) for _, a in named if a.scan != scan))
    alias = {scan: "h"} | {other: f"s{k}" for k, (other, _) in enumerate(others)}
    selected = ", ".join(f"{alias[a.scan]}.{quoted(a.column)} AS {name}" for name, a in named)
    joins = "".join(
        f" LEFT JOIN {other} AS {alias[other]} ON {alias[other]}.{quoted(other_key or '')} = h.{quoted(key or '')}"
        for other, other_key in others
    )
    row = f"hash({'h' if key is None else f'h.{quoted(key)}'})"
    return (
        f"CREATE TEMP TABLE {_SAMPLE} AS SELECT {selected}, {row} // {n_parts} % 2 AS half "
        f"FROM (FROM {scan} WHERE {is_labelled}) AS h{joins} WHERE {row} % {n_parts} = 0"
    )


def _group_sql(attribute: ProposedAttribute, cell: str) -> str:
    """Return SQL of the value of a discrete attribute, or of the group of another one, whose cells are in a column."""
    return cell if attribute.is_discrete else f"ntile({N_QUANTILES}) OVER (ORDER BY {_order_sql(attribute, cell)})"


def _order_sql(attribute: ProposedAttribute, cell: str) -> str:
    """Return SQL of a value that orders the cells of an attribute."""
    match attribute.type:
        case "integer" | "real":
            return f"TRY_CAST({cell} AS DOUBLE)"
        case "datetime":
            return datetime_sql(cell)
        case "time":
            return time_sql(cell)
    return cell
