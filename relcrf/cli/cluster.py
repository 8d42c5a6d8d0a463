"""The cluster command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from relcrf import api
from relcrf.cli.frame_output import write_frame
from relcrf.cli.help_panels import CLUSTERING
from relcrf.cli.options import (
    GroundingOptions,
    HoldoutOptions,
    OverrideSetOption,
    RunArgument,
    SafeCsvOption,
    SessionOptions,
)
from relcrf.cli.output import parse_settings, print_json, print_line, print_note, print_notes, print_table
from relcrf.cli.time_limit import exit_interrupted
from relcrf.clustering import METHODS, Clustering, cluster_prediction, parse_costs
from relcrf.clustering.partition import DEFAULT_UNLISTED, check_options
from relcrf.clustering.records import column_numbers, find_pair_relation, record_types
from relcrf.data.frame import require_writable
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.cluster_measures import ClusterMeasure, cluster_measures

SIZES = (1, 2, 3, 6, 11, 101)
"""Lowest sizes of the classes of clusters in the summary."""


@dataclass(frozen=True, kw_only=True)
class ClusteringOptions:
    """The pairs to cluster, the method, the threshold and the constraint."""

    relation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel=CLUSTERING, help="Relation of pairs of records, if several are predicted."
        ),
    ] = None
    method: Annotated[
        str,
        typer.Option(
            "--method", "-m", metavar="NAME", rich_help_panel=CLUSTERING, help=f"Method: {', '.join(METHODS)}."
        ),
    ] = METHODS[0]
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            rich_help_panel=CLUSTERING,
            show_default="0.5",
            help="Probability above which a pair speaks for a common cluster.",
        ),
    ] = None
    cost: Annotated[
        str | None,
        typer.Option(
            metavar="COSTS",
            rich_help_panel=CLUSTERING,
            help="Costs of a separated match and of a joined non-match, e.g. fn=10,fp=1, instead of a threshold.",
        ),
    ] = None
    unlisted: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            rich_help_panel=CLUSTERING,
            show_default=str(DEFAULT_UNLISTED),
            help="Probability that a pair matches that the model does not compare, for average and correlation.",
        ),
    ] = None
    distinct: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            rich_help_panel=CLUSTERING,
            help="Column whose equal values never share a cluster, e.g. the source.",
        ),
    ] = None
    truth: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", rich_help_panel=CLUSTERING, help="Column with the true clusters; prints measures."
        ),
    ] = None

    def chosen_threshold(self) -> float:
        """Return the threshold of the options.

        Raises:
            UsageError: An option is invalid (E443, E444, E445), both --threshold and --cost are given, or --unlisted has no
                effect (E444).
        """
        if self.threshold is not None and self.cost is not None:
            message = "--threshold cannot be combined with --cost, which determines the threshold"
            raise UsageError(Diagnostic("E444", message, hint="remove one of the two options"))
        threshold = parse_costs(self.cost) if self.cost is not None else self.threshold
        threshold = 0.5 if threshold is None else threshold
        check_options(self.method, threshold, self.chosen_unlisted)
        if self.unlisted is not None and self.method == "components":
            message = "--unlisted has no effect with method 'components'"
            raise UsageError(Diagnostic("E444", message, hint="add --method average or --method correlation"))
        return threshold

    @property
    def chosen_unlisted(self) -> float:
        """The probability that the records of an unlisted pair match."""
        return DEFAULT_UNLISTED if self.unlisted is None else self.unlisted


def cluster(
    run: RunArgument,
    tables: GroundingOptions,
    options: ClusteringOptions,
    holdout: HoldoutOptions,
    session: SessionOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="Write clusters: .csv, .tsv, .jsonl, .parquet or .arrow."),
    ] = None,
    merged: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Write one row per cluster, with the most frequent value of each column: the deduplicated table.",
        ),
    ] = None,
    setting: OverrideSetOption = None,
    safe_csv: SafeCsvOption = False,
) -> None:
    """Group records into clusters by the predicted probabilities that pairs of records match.

    Example: relcrf cluster runs/entities --data records/ --cost fn=10,fp=1 --out clusters.csv
    """
    threshold = options.chosen_threshold()
    files = [path for path in (out, merged) if path is not None]
    for path in files:
        require_writable(path)
    if len({path.resolve() for path in files}) < len(files):
        message = f"--out and --merged name the same file '{out}'"
        raise UsageError(Diagnostic("E312", message, hint="write the clusters and the merged rows to two files"))
    fit, tables = api.load_fit(run), tables.for_run(run)
    chosen: dict[str, Any] = dict(parse_settings(setting))
    fit.learned.configure_backend(**chosen)  # validates the settings before any work is done
    with session.show_progress() as display:
        grounding = tables.ground(fit, display)
        block = find_pair_relation(grounding, options.relation)
        relation, types = block.name, record_types(block)
        truth, _ = (
            None if column is None else column_numbers(grounding.bound, types, column)  # errors before inference
            for column in (options.truth, options.distinct)
        )
        display.start_phase("inferring")
        hidden = holdout.hidden(grounding)
        prediction = api.predict(fit, grounding, hidden=hidden, observe=display.report_inference, **chosen)
        display.start_phase("clustering")
        found = cluster_prediction(
            prediction,
            relation,
            method=options.method,
            threshold=threshold,
            unlisted=options.chosen_unlisted,
            distinct=options.distinct,
        )
        measures: Mapping[str, ClusterMeasure] = {}
        if truth is not None:
            display.start_phase("scoring")
            measures = cluster_measures(truth, found.clustering.cluster)
    frame, clustering, verdict = found.table(), found.clustering, prediction.verdict
    for path in files:
        written = frame if path is out else found.merged()
        grounding.bound.notes += write_frame(written, path, safe_csv=safe_csv, sync=not tables.no_sync)
    if session.as_json:
        print_json(
            {
                "relation": relation,
                "clusters": None if out else frame.to_dicts(),
                "summary": _summary(clustering),
                "measures": {name: asdict(one) for name, one in measures.items()},
                "notes": grounding.bound.notes,
                "verdict": asdict(verdict),
                "out": out,
                "merged": merged,
            }
        )
    else:
        holdout.note_held_out_labels(grounding)
        tables.note_cache_use()
        print_notes(grounding.bound.notes)
        print_table(f"clusters of {relation}", ("quantity", "number"), list(_summary(clustering).items()))
        if measures:
            rows = [(_measure_title(name), one.value, one.low, one.high) for name, one in measures.items()]
            print_table("comparison with the true clusters, 95 % intervals", ("measure", "value", "low", "high"), rows)
        text = f"clustered by {clustering.method} with threshold {threshold:.4g} ({verdict})"
        print_line(text + (f"; wrote {listing(map(str, files))}" if files else ""))
        if not (verdict.is_good or verdict.status == "interrupted"):
            print_note("inference did not converge; select another method with --set inference=...")
    if verdict.status == "interrupted":
        exit_interrupted()


def _measure_title(name: str) -> str:
    return name.replace("b_cubed", "B-cubed").replace("v_measure", "V-measure").replace("_f1", "_F1").replace("_", " ")


def _summary(clustering: Clustering) -> dict[str, int]:
    """Return the numbers of records, pairs and clusters, and the number of clusters of each class of sizes that occurs."""
    sizes = clustering.sizes
    summary = {
        "records": len(clustering.cluster),
        "pairs": clustering.n_pairs,
        "clusters": len(sizes),
        "largest cluster": int(sizes.max(initial=0)),
    }
    counts = np.bincount(np.searchsorted(SIZES, sizes, side="right"), minlength=len(SIZES) + 1)[1:]
    for low, high, count in zip(SIZES, (*SIZES[1:], 0), counts.tolist(), strict=True):
        name = f"{low} or more" if not high else str(low) if high == low + 1 else f"{low} to {high - 1}"
        if count:
            summary[f"clusters of size {name}"] = count
    return summary
