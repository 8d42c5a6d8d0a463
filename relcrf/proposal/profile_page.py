"""The HTML page on tables without a model."""

from __future__ import annotations

from pathlib import Path

from relcrf.data.extras import import_extra
from relcrf.files import write_text
from relcrf.printable import escape_unprintable
from relcrf.proposal.data_profile import DataProfile
from relcrf.proposal.schema_picture import schema_svg
from relcrf.proposal.templates import MAX_NEIGHBOURS
from relcrf.report.page import page_environment, read_resource
from relcrf.report.plot import EXTRA

PURPOSE = "relcrf profile"
"""Argument of `import_extra` for the package that renders the page."""


def write_profile(out: Path, profile: DataProfile) -> None:
    """Write the page atomically; create the parent folder."""
    import_extra("jinja2", EXTRA, PURPOSE)
    analysis = profile.analysis
    html = (
        page_environment(PURPOSE)
        .get_template("profile.html")
        .render(
            css=read_resource("page.css"),
            name=profile.source,
            profile=profile,
            diagram="" if analysis is None else schema_svg(analysis.schema, analysis.target.names),
            roles=_column_roles(profile),
            n_missing=sum(column.rows - column.present for table in profile.tables for column in table.columns),
            n_cells=sum(column.rows for table in profile.tables for column in table.columns),
            max_neighbours=MAX_NEIGHBOURS,
        )
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, escape_unprintable(html, allowed="\n\t"))


def _column_roles(profile: DataProfile) -> dict[str, list[str]]:
    """Return the roles of keys and links, such as `key` and `→ shop.id`, by `table.column`."""
    roles: dict[str, list[str]] = {key.column: ["key"] for key in profile.keys}
    for link in profile.links:
        roles.setdefault(link.column, []).append(f"→ {link.target}")
    return roles
