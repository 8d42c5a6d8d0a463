"""Coverage-guided fuzzing of relcrf with atheris; the targets are defined in `tests/fuzz/targets.py`.

    pip install -r benchmarks/requirements.txt
    python benchmarks/fuzz.py --seconds 3600            # all targets share the time
    python benchmarks/fuzz.py --seconds 600 --target language --target uai

Inputs that violate a target's contract are written to `--out`, in a folder for each target with one file for each location in
the code. Copy such a file to `tests/fuzz/found/TARGET/` when it is fixed. The corpus is stored in the same folder, so that
the next run resumes from it. The last line is JSON: inputs, seconds, coverage and findings of each target.

Native code (DuckDB, pyarrow, SQLite, compiled kernels) is executed but not instrumented: its crashes are found, but only
branches in Python guide the search.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from support import ROOT, BenchmarkParser, is_installed, sized

SUPPORT = (ROOT / "tests" / "fuzz", ROOT / "tests" / "support")
MAX_INPUT_BYTES = 1 << 14
MEMORY_LIMIT_MB = 4096
"""Memory limit of a process in megabytes; an input that exceeds it is a finding."""


def work(name: str, arguments: list[str], found: Path) -> None:
    """Run libFuzzer's loop for one target; it does not return."""
    import atheris

    sys.path[:0] = map(str, SUPPORT)
    kernels = [f"relcrf.kernels.{path.stem}" for path in (ROOT / "relcrf" / "kernels").glob("*.py")]
    with atheris.instrument_imports(include=["relcrf", "lark", "tomllib", "json"], exclude=kernels):
        from targets import TARGETS
    known: set[str] = set()

    def one(data: bytes) -> None:
        try:
            TARGETS[name].run(data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            place = error_location(error)
            if place not in known:
                known.add(place)
                found.mkdir(parents=True, exist_ok=True)
                stem = re.sub(r"\W+", "-", place)[:120]
                (found / stem).write_bytes(data)
                (found / f"{stem}.txt").write_text("".join(traceback.format_exception(error)), encoding="utf-8")

    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


def error_location(error: BaseException) -> str:
    """Return the type of an error and the last line of relcrf in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/relcrf/" in f.filename] or frames
    return f"{type(error).__name__}-{Path(own[-1].filename).name}-{own[-1].lineno}"


def fuzz(name: str, seconds: int, out: Path) -> dict[str, object]:
    """Fuzz one target; a process that dies is a finding, and the next one resumes."""
    sys.path[:0] = map(str, SUPPORT)
    from targets import TARGETS

    target = TARGETS[name]
    corpus, found = out / "corpus" / name, out / "found" / name
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    for k, seed in enumerate(target.seeds()):
        (corpus / f"seed{k}").write_bytes(seed)
    inputs = features = died = 0
    started = time.monotonic()
    with tempfile.NamedTemporaryFile("w", suffix=".dict") as words:
        for word in filter(None, target.words):
            words.write('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n')
        words.flush()
        while (left := seconds - (time.monotonic() - started)) > 5:
            options = [
                f"-max_total_time={int(left)}",
                f"-max_len={MAX_INPUT_BYTES}",
                f"-rss_limit_mb={MEMORY_LIMIT_MB}",
                "-timeout=120",
            ]
            options += [f"-dict={words.name}", f"-artifact_prefix={found}/died-", "-print_final_stats=1", str(corpus)]
            child = [sys.executable, __file__, "--work", name, str(found), *options]
            done = subprocess.run(child, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
            inputs += sum(map(int, re.findall(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)))
            features = max([features, *map(int, re.findall(r"\bcov: (\d+)", done.stderr))])
            if done.returncode:
                died += 1
                (found / f"died-{died}.txt").write_text(done.stderr[-20_000:], encoding="utf-8")
                if died > 20:
                    break
    places = sorted(p.stem for p in found.glob("*.txt"))
    return {"inputs": inputs, "seconds": round(time.monotonic() - started), "branches": features, "found": places}


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="45 seconds")
    parser.add_argument("--seconds", type=int, default=3600, help="total time of all targets")
    parser.add_argument("--target", action="append", help="target to fuzz; repeatable, default: all")
    parser.add_argument("--out", type=Path, default=Path("fuzzing"), help="folder for the corpus and the findings")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.seconds = sized(chosen, None, 45, 6)
    sys.path[:0] = map(str, SUPPORT)
    from targets import TARGETS

    names = chosen.target or list(TARGETS)[: sized(chosen, None, None, 1)]
    if unknown := set(names) - set(TARGETS):
        parser.error(f"unknown targets {sorted(unknown)}; the targets are {', '.join(TARGETS)}")
    answers: dict[str, dict[str, object] | None] = dict.fromkeys(names)
    for name in names if is_installed("atheris") else ():
        answers[name] = fuzz(name, chosen.seconds // len(names), chosen.out.resolve())
        print(f"{name}: {answers[name]}", flush=True)
    print(json.dumps(answers))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[4:], Path(sys.argv[3]))
    else:
        main()
