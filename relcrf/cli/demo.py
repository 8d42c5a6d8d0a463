"""The demo command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from relcrf.cli.flat_options import JsonOption
from relcrf.cli.output import console, print_json, print_line, print_table
from relcrf.cli.progress import show_progress
from relcrf.data.frame import Frame
from relcrf.demo.picture import as_text, changed_predictions, draw
from relcrf.demo.run import SplitResult, run_split
from relcrf.files import write_text
from relcrf.resources import resource_path

MODEL = "digits.rcrf"


def demo(
    splits: Annotated[int, typer.Option(metavar="INT", min=1, help="Number of splits, with consecutive seeds.")] = 5,
    seed: Annotated[int, typer.Option(metavar="INT", min=0, help="Seed of the first split.")] = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="PATH", help="Folder for the plot, the tables and the model.")
    ] = Path("demo"),
    with_auto: Annotated[bool, typer.Option("--auto", help="Also train the backend auto.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Predict 1,697 handwritten digits from 100 labelled digits, without and with relations.

    Example: relcrf demo --splits 5
    """
    results = []
    with show_progress(quiet=as_json) as display:
        for number in range(seed, seed + splits):
            results.append(run_split(number, display.start_phase, with_auto=with_auto))
        display.start_phase("writing the plot and the tables")
        for result in results:
            folder = out / f"split{result.seed}"
            folder.mkdir(parents=True, exist_ok=True)
            Frame(result.digits.table()).write(folder / "image.parquet")
        first = results[0]
        draw(first, out / "changes.png")
        write_text(out / MODEL, resource_path("models", MODEL).read_text(encoding="utf-8"))
    if as_json:
        print_json(
            {
                "splits": [
                    {
                        "seed": r.seed,
                        "local": {"accuracy": r.local.accuracy, "log_likelihood": r.local.log_likelihood},
                        "ess": {"accuracy": r.ess.accuracy, "log_likelihood": r.ess.log_likelihood},
                        **_automatic_as_dict(r),
                        "seconds": r.seconds,
                        "n": r.ess.n,
                        "forest_edges": len(r.forest),
                    }
                    for r in results
                ],
                "picture": str(out / "changes.png"),
            }
        )
        return
    rows: list[tuple[object, ...]] = []
    for r in results:
        rows.append((f"{r.seed}", "local classifier", r.local.accuracy, r.local.log_likelihood, ""))
        rows.append(("", "ESS-CRF", r.ess.accuracy, r.ess.log_likelihood, f"{sum(r.seconds.values()):.2f}"))
        if r.auto is not None:
            score, name = r.auto.score, f"auto: {r.auto.backend}"
            rows.append(("", name, score.accuracy, score.log_likelihood, f"{r.auto.seconds:.2f}"))
    scores_by_name = {"local classifier": [r.local for r in results], "ESS-CRF": [r.ess for r in results]}
    if with_auto:
        scores_by_name["auto"] = [r.auto.score for r in results if r.auto is not None]
    for name, scores in scores_by_name.items():
        mean = (float(np.mean([getattr(s, what) for s in scores])) for what in ("accuracy", "log_likelihood"))
        rows.append(("mean" if name == "local classifier" else "", name, *mean, ""))
    columns = ("split", "", "accuracy", "log-likelihood", "seconds")
    n_labelled = int(results[0].digits.labelled.sum())
    print_table(f"{results[0].ess.n:,} digits, predicted from {n_labelled} labelled digits", columns, rows)
    corrected, newly_wrong, _ = changed_predictions(first)
    console.print(as_text(first), markup=False, highlight=False)
    console.print(
        f"[bold]Split {first.seed}:[/] the ESS-CRF corrects {len(corrected)} errors and adds {len(newly_wrong)} errors."
    )
    folder = out / f"split{seed}"
    print_line(f"Wrote {out / 'changes.png'}, and the tables and the model to {out}/. Next, run:")
    print_line(f"  relcrf evaluate {out / MODEL} --data {folder} --split part --holdout rest --backend ess")


def _automatic_as_dict(result: SplitResult) -> dict[str, object]:
    """Return the entry of the backend `auto` in the JSON object of a split, if this backend was trained."""
    if result.auto is None:
        return {}
    score = result.auto.score
    values = {"accuracy": score.accuracy, "log_likelihood": score.log_likelihood, "backend": result.auto.backend}
    return {"auto": {**values, "seconds": result.auto.seconds}}
