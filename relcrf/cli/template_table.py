"""The table of the templates of a training run: their factors, and how many of them training saw."""

from __future__ import annotations

from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.template_statistics import TemplateStatistics
from relcrf.cli.output import print_table


def print_template_table(learned: LearnedModel) -> None:
    """Print the number of factors per template and, for links between labels of one domain, how many labels are equal."""
    statistics = learned.template_statistics
    if not statistics:
        return
    columns, rows = ["template", "factors", "seen", "fraction"], [_count_cells(each) for each in statistics]
    if any(each.homophily is not None for each in statistics):
        columns += ["equal labels", "by chance"]
        rows = [[*row, *_homophily_cells(each)] for row, each in zip(rows, statistics, strict=True)]
    print_table("factors seen in training", columns, rows)


def _count_cells(statistics: TemplateStatistics) -> list[object]:
    factors, seen = statistics.factors, statistics.seen
    return [statistics.name, factors, seen, f"{seen / factors:.1%}" if factors else ""]


def _homophily_cells(statistics: TemplateStatistics) -> list[object]:
    found = statistics.homophily
    if found is None:
        return ["", ""]
    low, high = found.interval
    return [f"{found.fraction:.0%} [{low:.0%}, {high:.0%}]", f"{found.by_chance:.0%}"]
