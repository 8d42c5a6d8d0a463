"""The language: parsed lines per second of a large generated model, and the time of `import relcrf`.

    python benchmarks/language.py --lines 20000

`import_ratio` is the time of `import relcrf` divided by that of `import duckdb, numpy, lark`, medians over new processes.
Positions of all nodes are recorded, as the checker requires. Checking is timed separately.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from rich.console import Console
from rich.table import Table
from support import BenchmarkParser, sized


def large_model(lines: int) -> str:
    """Return a model with a number of lines that uses all constructs; no two templates are equal."""
    head = """domain Category = { course, faculty, student, project, other }
domain Word = open
entity Page {
    predict category : Category
    latent kind : 1..4
    words : bag of Word
    length : real
    title : string
}
relation Link(source: Page, target: Page) { score : real }
predict relation same(a: Page, b: Page) where Link(a, b)
"""
    block = """
# number {k}
derive Near{k}(a: Page, b: Page)
    where Link(a, m) and Link(m, b) and a.length > {k} and (a != b or count {{ q where Link(q, a) }} > 2)

template word{k}(p: Page, w: Word)
    where w in p.words and p.length >= {k}
    over  p.category
    per   w

template near{k}(a: Page, b: Page)
    where Near{k}(a, b) and not Link(a, b)
    over  a.category == b.category and (a.kind == 1 => b.kind == {kind})
    by    1, log(a.length), jaro_winkler(a.title, b.title) * {k}.5
    l2 0.5

rule {k}.25 rule{k}: Link(a, b) and same(a, b) and b.length > {k} => a.category == b.category
"""
    parts, count, k = [head], head.count("\n"), 0
    while count < lines:
        part = block.format(k=k, kind=k % 4 + 1)
        parts.append(part)
        count += part.count("\n")
        k += 1
    return "".join(parts)


def import_seconds(statement: str, repeats: int) -> float:
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for _ in range(repeats)
    ]
    return statistics.median(runs)


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="4,000 lines, fewer repetitions")
    parser.add_argument("--lines", type=int, default=20_000)
    arguments = parser.parse_args()
    from relcrf.language.check import check
    from relcrf.language.format import format_text
    from relcrf.language.parse import parse_with_errors

    text = large_model(sized(arguments, arguments.lines, 4_000, 40))
    n = text.count("\n")
    parse_with_errors("entity A { predict x : bool }")  # load the grammar once
    seconds = {}
    started = time.perf_counter()
    spec, problems = parse_with_errors(text)
    seconds["parse"] = time.perf_counter() - started
    assert not problems
    started = time.perf_counter()
    assert not [d for d in check(spec) if d.is_error]
    seconds["check"] = time.perf_counter() - started
    started = time.perf_counter()
    format_text(text)
    seconds["format"] = time.perf_counter() - started
    repeats = sized(arguments, 15, 5, 1)
    ours = import_seconds("import relcrf", repeats)
    theirs = import_seconds("import duckdb, numpy, lark", repeats)
    whole = import_seconds("import relcrf; relcrf.load", repeats)

    table = Table("", f"{n:,} lines, seconds", "lines per second", title="the language")
    for name, value in seconds.items():
        table.add_row(name, f"{value:.3f}", f"{n / value:,.0f}")
    console = Console()
    console.print(table)
    console.print(
        f"import relcrf {ours:.4f} s; duckdb, numpy and lark {theirs:.3f} s; relcrf with its Python API {whole:.3f} s"
    )
    result = {
        "lines_per_second": round(n / seconds["parse"]),
        "import_ratio": round(ours / theirs, 4),
        "import_ratio_with_api": round(whole / theirs, 3),
        "lines": n,
        "seconds_check": round(seconds["check"], 3),
        "seconds_format": round(seconds["format"], 3),
        "check_lines_per_second": round(n / seconds["check"]),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
