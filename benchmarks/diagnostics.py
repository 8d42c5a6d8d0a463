"""Diagnostics of single mistakes in the shipped models: how many give exactly one diagnostic, and on the right line.

A mutation that results in another valid model is not a mistake and is not counted.
"""

from __future__ import annotations

import json
import random
import sys
import traceback

from rich.console import Console
from rich.table import Table
from support import ROOT, BenchmarkParser, sized

from relcrf.errors import Span
from relcrf.language.check import check
from relcrf.language.parse import parse_with_errors

sys.path.insert(0, str(ROOT / "tests" / "support"))

from mutations import KINDS


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="a sample of 1,500 mutations")
    parser.add_argument("--show", type=int, default=0, help="number of failures to print")
    arguments = parser.parse_args()
    slips = []
    for path in sorted((ROOT / "models").glob("*.rcrf")):
        text = path.read_text(encoding="utf-8")
        slips += [(kind.__name__, path.stem, slip) for kind in KINDS for slip in kind(text)]
    if arguments.quick:
        slips = random.Random(0).sample(slips, min(sized(arguments, None, 1_500, 100), len(slips)))
    counts = {kind.__name__: [0, 0, 0] for kind in KINDS}
    sound, tracebacks, missed = 0, 0, []
    for kind, model, slip in slips:
        try:
            spec, problems = parse_with_errors(slip.text)
            found = [*problems, *check(spec, problems)]
            texts = [d.render() for d in found]
        except Exception:
            tracebacks += 1
            traceback.print_exc()
            continue
        if not found:
            sound += 1
            continue
        one = len(found) == 1
        right = one and isinstance(found[0].location, Span) and found[0].location.line in slip.lines
        for k, holds in enumerate((True, one, right)):
            counts[kind][k] += holds
        if not right:
            missed.append((kind, model, slip.what, texts))
    table = Table(
        "mutation", "mistakes", "one diagnostic", "on the right line", title="mutations of the shipped models"
    )
    for kind, (n, one, right) in counts.items():
        table.add_row(kind, f"{n:,}", f"{one / max(n, 1):.3f}", f"{right / max(n, 1):.3f}")
    total = [sum(c[k] for c in counts.values()) for k in range(3)]
    table.add_row("all", f"{total[0]:,}", f"{total[1] / total[0]:.3f}", f"{total[2] / total[0]:.3f}")
    console = Console()
    console.print(table)
    console.print(f"{sound:,} mutations resulted in another valid model")
    for kind, model, what, texts in random.Random(1).sample(missed, min(arguments.show, len(missed))):
        console.print(f"\n[bold]{kind} {model}: {what}[/]")
        for text in texts:
            console.print(text, markup=False, highlight=False)
    result = {
        "mutations": total[0],
        "one_diagnostic_share": round(total[1] / total[0], 4),
        "right_line_share": round(total[2] / total[0], 4),
        "tracebacks": tracebacks,
        "sound": sound,
        "kinds": {kind: {"mutations": n, "one": one, "right": right} for kind, (n, one, right) in counts.items()},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
