"""The profile of a dataset without a model: statistics of the tables, keys and links, the target and suspected leaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from relcrf.data.dataset import Dataset
from relcrf.errors import UsageError
from relcrf.graph.labelled_factors import Homophily
from relcrf.grounding.derive import Progress
from relcrf.proposal.draft import TableAnalysis
from relcrf.proposal.entity_candidates import EntityCandidate, find_candidates
from relcrf.proposal.key_statistics import KeyStatistics, LinkStatistics, list_keys, list_links
from relcrf.proposal.label_statistics import LabelBalance, count_labels, measure_links
from relcrf.proposal.leaks import find_leaks
from relcrf.proposal.near_misses import NearMiss, find_near_misses
from relcrf.proposal.profile import TableProfile, profile_tables
from relcrf.proposal.proposal import analyse_source
from relcrf.proposal.table_statistics import TableStatistics, describe_table, remarks_on
from relcrf.proposal.table_warnings import find_warnings


@dataclass(frozen=True)
class DataProfile:
    """The profile of a dataset.

    Args:
        notes: Messages on the repairs of tables, their formats, duplicate rows and mixed types.
        remarks: What is unusual about the columns.
        analysis: The schema and the target; None if nothing can be predicted, for which `reason` is the reason.
        agreement: See `measure_links`.
        leaks: See `find_leaks`.
    """

    source: str
    tables: tuple[TableStatistics, ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...]
    keys: tuple[KeyStatistics, ...]
    links: tuple[LinkStatistics, ...]
    reason: str = ""
    analysis: TableAnalysis | None = None
    labels: list[LabelBalance] = field(default_factory=list)
    agreement: list[tuple[str, str, Homophily]] = field(default_factory=list)
    leaks: list[tuple[str, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the facts of the profile as values for JSON."""
        agreement = [
            {"label": label, "link": link, "pairs": found.pairs, "equal": found.fraction, "by_chance": found.by_chance}
            for label, link, found in self.agreement
        ]
        names = ("tables", "keys", "links", "labels")
        return {
            "predict": None if self.analysis is None else self.analysis.target.name,
            "note": self.reason,
            "leaks": self.leaks,
            "notes": self.notes,
            "agreement": agreement,
            **{name: [asdict(each) for each in getattr(self, name)] for name in names},
        }


def profile_data(
    source: str, predicted: str | None, memory: str, progress: Progress = lambda name: None
) -> DataProfile:
    """Return the profile of a dataset.

    Args:
        predicted: The target: `Table.column`, or the table of a relation; None to choose the most plausible target.

    Raises:
        UsageError: `predicted` cannot be predicted.
        DataError: The tables cannot be read.
    """
    try:
        analysis, _ = analyse_source(source, predicted, memory, progress)
    except UsageError as error:
        if predicted is not None or error.diagnostics[0].code != "E369":
            raise
        dataset = Dataset(source, memory=memory)
        tables = profile_tables(dataset)
        candidates = find_candidates(tables)
        near_misses, reason = find_near_misses(tables, candidates), error.diagnostics[0].message
        return _describe(source, tables, candidates, near_misses, dataset.notes, progress, reason)
    return _describe(
        source, analysis.tables, analysis.schema.candidates, analysis.near_misses, analysis.notes, progress, "", analysis
    )  # fmt: skip


def _describe(
    source: str,
    tables: Sequence[TableProfile],
    candidates: Sequence[EntityCandidate],
    near_misses: Sequence[NearMiss],
    data_notes: Sequence[str],
    progress: Progress,
    reason: str,
    analysis: TableAnalysis | None = None,
) -> DataProfile:
    progress("statistics")
    statistics = tuple(describe_table(table) for table in tables)
    keys = tuple(list_keys(candidates, near_misses))
    notes = dict.fromkeys([*map(str, near_misses), *data_notes])
    progress("warnings")
    found = DataProfile(
        source,
        statistics,
        (*notes, *(warning for table in tables for warning in find_warnings(table))),
        tuple(remarks_on(statistics, [key.column for key in keys])),
        keys,
        tuple(list_links(tables, candidates, near_misses)),
        reason,
    )
    if analysis is None:
        return found
    progress("labels")
    return replace(
        found, analysis=analysis, labels=count_labels(analysis), agreement=measure_links(analysis), leaks=find_leaks(analysis)
    )  # fmt: skip
