"""The moments command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from relcrf import api
from relcrf.backends.weight_names import largest
from relcrf.cli.options import JsonOption, RunArgument
from relcrf.cli.output import print_json, say, table
from relcrf.data.frame import require_writable


def moments(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write all: .csv, .tsv, .jsonl, .parquet, .arrow.")
    ] = None,
    most: Annotated[int, typer.Option(min=0, help="How many to show, the farthest apart first.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Compare how often each feature is in the labels with how often the trained model expects it.

    Example: relcrf moments runs/webkb --out moments.csv
    """
    if out is not None:
        require_writable(out)
    frame = api.load_fit(run).moments()
    if out is not None:
        frame.write(out)
    apart = np.abs(np.nan_to_num(frame["standard_errors"]))
    worst = frame.chosen(largest(apart, most))
    if as_json:
        print_json({"run": run, "moments": len(apart), "worst": worst.to_dicts(), "out": out})
        return
    texts = [[*row[:4], *(f"{value:,.6g}" for value in row[4:])] for row in worst.rows()]
    table(
        f"moments: {len(worst):,} of {len(apart):,}, the farthest apart",
        [c.replace("_", " ") for c in frame.columns],
        texts,
    )
    say(f"the largest difference is {apart.max(initial=0.0):.3g} standard errors")
