"""The HTML page on tables without a model: statistics of the columns, keys and links, and the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relcrf.data.extras import import_extra
from relcrf.files import write_text
from relcrf.graph.labelled_factors import Homophily, measure_homophily
from relcrf.printable import escape_unprintable
from relcrf.proposal.draft import ModelDraft, TableAnalysis
from relcrf.proposal.schema_diagram import schema_svg
from relcrf.proposal.table_statistics import TableStatistics, remarks_on
from relcrf.report.page import page_environment, read_resource
from relcrf.report.plot import EXTRA

PURPOSE = "relcrf profile"
"""Argument of `import_extra` for the package that renders the page."""


def measure_links(draft: ModelDraft) -> list[tuple[str, Homophily]]:
    """Return the agreement of the labels that each template joins, for the templates over pairs of labels."""
    graph, states = draft.grounding.graph, draft.grounding.states
    found = []
    for name in draft.grounding.bindings:
        groups = draft.grounding.groups(name)
        homophily = measure_homophily(groups, states, graph.domains.number) if groups else None
        if homophily is not None and homophily.pairs:
            found.append((name, homophily))
    return found


def write_profile(
    out: Path,
    source: str,
    tables: Sequence[TableStatistics],
    analysis: TableAnalysis | None,
    draft: ModelDraft | None,
    leaks: Sequence[tuple[str, str]] = (),
    reason: str = "",
) -> None:
    """Write the page atomically; create the parent folder.

    Args:
        analysis: The schema and the target, if there is a target.
        draft: The model that `relcrf new` would propose, if it is small enough.
        leaks: See `find_leaks`.
        reason: Why the target or the draft is missing.
    """
    import_extra("jinja2", EXTRA, PURPOSE)
    schema = None if analysis is None else analysis.schema
    html = (
        page_environment(PURPOSE)
        .get_template("profile.html")
        .render(
            css=read_resource("page.css"),
            name=source,
            tables=tables,
            remarks=remarks_on(tables),
            notes=draft.notes if draft else map(str, analysis.near_misses) if analysis else (),
            findings=() if schema is None else schema.findings,
            excluded=() if schema is None else schema.excluded_columns,
            diagram="" if schema is None else schema_svg(schema),
            analysis=analysis,
            draft=draft,
            links=[] if draft is None else measure_links(draft),
            leaks=leaks,
            reason=reason,
        )
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, escape_unprintable(html, allowed="\n\t"))
