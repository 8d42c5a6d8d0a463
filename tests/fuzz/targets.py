"""The fuzz targets: for each a function of bytes that raises if relcrf handles an input incorrectly, and seed inputs."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
from promise import EXIT_CODES, allow_diagnostics, require_printable
from pyarrow import feather, parquet

import relcrf
from relcrf.backends import run_folder
from relcrf.cli.main import run as run_command
from relcrf.data.dataset import Dataset
from relcrf.editor.completion import complete
from relcrf.editor.diagnostics import locate_diagnostics
from relcrf.editor.hover import hover
from relcrf.editor.outline import outline
from relcrf.editor.positions import PositionMap
from relcrf.editor.quick_fixes import quick_fixes
from relcrf.editor.rename import RenameError, find_renameable, require_available_name
from relcrf.editor.workspace import Workspace
from relcrf.errors import DataError, Diagnostic, UsageError
from relcrf.graph.conditioning import condition
from relcrf.graph.uai import read_evidence, read_model
from relcrf.grounding.block_cache import BlockCache
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.language.check import check
from relcrf.language.format import format_text
from relcrf.language.parse import parse_with_errors
from relcrf.language.render import render
from relcrf.resources import resource_path


@dataclass(frozen=True)
class Target:
    """A fuzz target: code that reads untrusted input.

    Args:
        run: function of an input that raises if the input is handled incorrectly; see `promise.py`.
        seeds: function that returns valid inputs.
        words: fragments of which inputs of this kind consist.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    words: tuple[bytes, ...]


@functools.cache
def _scratch() -> Path:
    """Return a temporary folder for the inputs of this process."""
    folder = tempfile.TemporaryDirectory(prefix="relcrf-fuzz-")
    _scratch.folder = folder
    return Path(folder.name)


@contextlib.contextmanager
def _folder():
    """Provide an empty folder with a constant name, so that messages that contain it are deterministic."""
    folder = _scratch() / "at"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder


# The language


def language(data: bytes) -> None:
    """Parse, check, render and format a model."""
    text = data.decode("utf-8", errors="surrogateescape")
    with allow_diagnostics():
        spec, problems = parse_with_errors(text, "fuzzed.rcrf")
        diagnostics = [*problems, *check(spec, problems)]
        for diagnostic in diagnostics:
            require_printable(diagnostic.render())
        if not any(d.is_error for d in diagnostics):
            rendered = render(spec)
            assert not parse_with_errors(rendered)[1], rendered
            assert format_text(format_text(text)) == format_text(text)


def _models() -> list[bytes]:
    good_models = Path(__file__).parents[1] / "models" / "good"
    models = (resource_path("models", "webkb.rcrf").parent, good_models)
    return [path.read_bytes() for folder in models for path in sorted(folder.glob("*.rcrf"))]


LANGUAGE = (
    b"domain entity relation derive predict latent template rule gate candidates include where over per by and or not "
    b'bag of open vector real int text date bool { } ( ) , : => <=> = == != < <= > >= .. . + - * / "a" 0 1 1e9 -1 '
    b"exists count sum min max mean nearest symmetric hard l1 l2 init weight in # \n"
).split(b" ")


def editor(data: bytes) -> None:
    """Run the requests of an editor on a text and on a model that includes it; the first two bytes are the cursor position."""
    cursor, text = data[:2], data[2:].decode("utf-8", errors="surrogateescape")
    with _folder() as folder, allow_diagnostics():
        workspace = Workspace()
        workspace.open_document(
            "main", 'include "open.rcrf"\ntemplate t(x: Page) over x.category', folder / "main.rcrf"
        )
        document = workspace.open_document("open", text, folder / "open.rcrf")
        workspace.roots = [folder]
        positions = PositionMap(text)
        offset = min(positions.offset(int.from_bytes(cursor[:1], "big"), int.from_bytes(cursor[1:], "big")), len(text))
        assert positions.offset(*positions.position(offset)) == offset
        for opened in workspace.open_documents.values():
            for report in locate_diagnostics(opened):
                assert report.message and 0 <= report.start <= report.stop
            for fix in quick_fixes(opened, 0, len(opened.text.text)):
                assert all(0 <= change.start <= change.stop <= len(opened.text.text) for change in fix.changes)
        assert all(0 <= h.start <= h.name_start <= h.name_stop <= h.stop <= len(text) for h in outline(document))
        hover(document, offset, workspace.roots)
        for after_space in (False, True):
            if found := complete(document, offset, after_space=after_space):
                assert 0 <= found.start <= found.stop <= len(text)
        document.included_path_at(offset)
        with contextlib.suppress(RenameError):
            occurrence = find_renameable(document, offset)
            assert workspace.occurrences(document, occurrence.symbol)
            require_available_name(document, occurrence.symbol, "another")


def _edited() -> list[bytes]:
    return [bytes([3 * k % 40, 5 * k % 60]) + model for k, model in enumerate(_models())]


# Tables

MODEL = """
domain Label = { a, b, c }
domain Word = open
entity Thing {
    predict label : Label
    score : real
    n : 0..9
    day : date
    flag : bool
    word : Word
    words : bag of Word
    place : vector
}
relation Next(x: Thing, y: Thing)
template one(t: Thing) over t.label per t.word by t.score
template two(t: Thing, u: Thing) where Next(t, u) and t.day <= u.day and t.flag over t.label, u.label by t.n
template three(t: Thing, w: Word) where w in t.words over t.label per w
"""

COLUMNS = {
    "id": ["t1", "t2", "t3"],
    "label": ["a", None, "c"],
    "score": [0.5, -1e3, 2.0],
    "n": [0, 9, 4],
    "day": ["2001-02-03", "1999-12-31", "2020-02-29"],
    "flag": [True, False, True],
    "word": ["x", "it's", "ünï"],
    "words": [["x", "y"], [], ["y"]],
    "place": [[0.0, 1.0], [1.0, 0.5], [-2.0, 3.0]],
}
FLAT = {"place_0": [0.0, 1.0, -2.0], "place_1": [1.0, 0.5, 3.0]}
NEXT = {"x": ["t1", "t2"], "y": ["t2", "t3"]}
WITH_LISTS = (".jsonl", ".parquet", ".arrow")
"""Suffixes of the files whose seeds contain lists of words."""


@functools.cache
def _model() -> relcrf.Model:
    return relcrf.parse(MODEL)


def _grounded(source: object) -> None:
    """Ground the model on tables."""
    data = Dataset(source, memory="200MB")
    _model().ground(data, budget=100_000)


def table(suffix: str) -> Callable[[bytes], None]:
    """Return a target for a file with the table `thing`."""

    def one(data: bytes) -> None:
        with _folder() as folder, allow_diagnostics():
            path = folder / f"thing{suffix}"
            path.write_bytes(data)
            tables = {"thing": path, "next": NEXT}
            if suffix not in WITH_LISTS:
                tables["thing_words"] = {"thing": ["t1"], "word": ["x"]}
            _grounded(tables)

    return one


def database(suffix: str) -> Callable[[bytes], None]:
    """Return a target for a file with all tables."""

    def one(data: bytes) -> None:
        with _folder() as folder, allow_diagnostics():
            path = folder / f"all{suffix}"
            path.write_bytes(data)
            _grounded(path)

    return one


def _csv(delimiter: str) -> Callable[[], list[bytes]]:
    def seeds() -> list[bytes]:
        columns = {name: values for name, values in {**COLUMNS, **FLAT}.items() if name not in ("words", "place")}
        rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
        text = "\n".join(delimiter.join("" if cell is None else str(cell) for cell in row) for row in rows) + "\n"
        quoted = text.replace("it's", '"it""s,\n"')
        return [text.encode(), quoted.encode(), b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()]

    return seeds


def _jsonl() -> list[bytes]:
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    return [("\n".join(map(json.dumps, rows)) + "\n").encode(), b'{"id": {"a": [1]}, "label": null}\n']


def _written(write: Callable[[pa.Table, io.BytesIO], None]) -> bytes:
    out = io.BytesIO()
    write(pa.table(COLUMNS), out)
    return out.getvalue()


def _parquet() -> list[bytes]:
    kinds = ("none", "snappy", "zstd")
    return [_written(lambda t, out, kind=kind: parquet.write_table(t, out, compression=kind)) for kind in kinds]


def _arrow() -> list[bytes]:
    def stream(found: pa.Table, out: io.BytesIO) -> None:
        with pa.ipc.new_stream(out, found.schema) as writer:
            writer.write_table(found)

    return [_written(lambda t, out: feather.write_feather(t, out, compression="uncompressed")), _written(stream)]


def _sqlite() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all.sqlite"
        flat = {name: values for name, values in {**COLUMNS, **FLAT}.items() if name not in ("words", "place")}
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute(f"CREATE TABLE thing ({', '.join(flat)})")
            database.executemany(
                f"INSERT INTO thing VALUES ({', '.join('?' * len(flat))})", zip(*flat.values(), strict=True)
            )
            database.execute("CREATE TABLE next (x, y)")
            database.executemany("INSERT INTO next VALUES (?, ?)", zip(*NEXT.values(), strict=True))
            database.execute("CREATE VIEW thing_words AS SELECT id AS thing, word FROM thing")
            database.commit()
        return [path.read_bytes()]


ATOMS = b"""// friends
Next(t1, t2)
!Next(t2, t3)
Thing("t1")
Thing("t\\"2")
Label(t1) = "a"
?Next(t3, t1)
"""

# Manifests


def manifest(data: bytes) -> None:
    """Read a dataset.toml in a folder with tables, without access to servers."""

    def refuse(*_: object, **__: object) -> None:
        raise DataError(Diagnostic("E235", "no server"))

    with _folder() as folder, allow_diagnostics(), contextlib.ExitStack() as stack:
        for name in ("read_tables", "read_query"):
            stack.enter_context(mock.patch(f"relcrf.data.dataset.{name}", refuse))
        (folder / "things.csv").write_bytes(_csv(",")()[0])
        (folder / "next.csv").write_text("x,y\nt1,t2\n")
        (folder / "all.db").write_bytes(_all_tables())
        (folder / "dataset.toml").write_bytes(data)
        _grounded(folder)


@functools.cache
def _all_tables() -> bytes:
    return _sqlite()[0]


MANIFEST = b"""[tables.thing]
file = "things.csv"
columns = { label = "label", "n" = "n" }

[tables.next]
sqlite = "all.db"
table = "next"
open = false

[tables.thing_words]
sql = "SELECT id AS thing, word FROM thing WHERE score <> ''"

[split]
folds = 3
seed = 1
holdout = ["1"]
"""
FAR = b"""
[tables.far]
postgres = "postgresql://user@host/base"
schema = "public"
"""

# UAI

UAI = (
    b"MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n\n4\n 4.0 2.4\n 1.0 0.0\n\n6\n 2.25 3.25 3.75\n 0 0.0e0 1e1\n",
    b"BAYES 3 2 2 2 3 1 0 2 0 1 3 0 1 2 2 .3 .7 4 .9 .1 .2 .8 8 .5 .5 .1 .9 .6 .4 0 1",
    b"MARKOV 2 1 10 2 1 1 2 0 1 10 1 2 3 4 5 6 7 8 9 10 10 1 1 1 1 1 1 1 1 1 1",
)


def uai(data: bytes) -> None:
    """Read a UAI model and run three iterations of belief propagation."""
    with _folder() as folder, allow_diagnostics():
        path = folder / "model.uai"
        path.write_bytes(data)
        model = read_model(path)
        if len(model.potentials.nodes) < 10_000:
            left = condition(model.scopes, model.potentials, np.full(model.scopes.n_nodes, -1))
            BeliefPropagation(left.scopes, max_iterations=3).marginals(left.potentials)


def evidence(data: bytes) -> None:
    """Read evidence of a UAI model."""
    with _folder() as folder, allow_diagnostics():
        path = folder / "model.evid"
        path.write_bytes(data)
        read_evidence(path, np.array([2, 2, 3], dtype=np.int32))


# Run folders and block caches


@functools.cache
def _trained() -> tuple[Path, relcrf.Model, dict[str, object]]:
    """Return a folder with a run folder and a block cache, with their model and tables."""
    folder = _scratch() / "made"
    model = relcrf.parse(MODEL)
    tables: dict[str, object] = {"thing": COLUMNS, "next": NEXT}
    data = Dataset(tables)
    fit = relcrf.api.fit(model, model.ground(data, cache=folder / "blocks"), "ess")
    fit.save(folder / "run")
    return folder, model, tables


def _files(kind: str) -> list[Path]:
    return sorted(path for path in (_trained()[0] / kind).rglob("*") if path.is_file())


def _spoilt(kind: str, data: bytes) -> Path:
    """Return a copy of a folder in which the remaining bytes replace the file that the first byte selects."""
    files = _files(kind)
    folder, original = _scratch() / kind, _trained()[0] / kind
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    (folder / files[data[0] % len(files)].relative_to(original)).write_bytes(data[1:])
    return folder


def _as_inputs(kind: str) -> Callable[[], list[bytes]]:
    return lambda: [bytes([k]) + path.read_bytes() for k, path in enumerate(_files(kind))]


def run(data: bytes) -> None:
    """Load a run folder with one replaced file, and predict with it."""
    with allow_diagnostics():
        folder = _spoilt("run", data or b"\0")
        names = [path.name for path in _files("run")]
        if names[(data or b"\0")[0] % len(names)] != run_folder.MANIFEST:
            # Otherwise the hashes reveal the change immediately; an attacker would update them.
            (folder / run_folder.MANIFEST).unlink()
        run_folder.load_timings(folder)
        run_folder.load_provenance(folder)
        fit = relcrf.api.load_fit(folder)
        fit.weights()
        fit.predict(Dataset(_trained()[2]))


def blocks(data: bytes) -> None:
    """Use a block cache with one replaced file."""
    with allow_diagnostics():
        folder = _spoilt("blocks", data or b"\0")
        _, model, tables = _trained()
        grounding = model.ground(Dataset(tables), cache=BlockCache(folder))
        relcrf.api.fit(model, grounding, "ess", max_iterations=2)


# The command line

ALONE = "lsp"
"""The command that waits for an editor; the target `editor` covers its requests."""

WORDS = """
check plan ground train predict ask evaluate cv infer report moments graph explain weights diff fmt new explain-error completion
reproduce demo warmup compare pareto --message-costs --compare-gates --against --jobs --timeout --limit --plot p.png
m.rcrf data run x.uai x.evid --data --json --out out.csv --split folds=2 hide=0.5 --holdout --set l2=1 max_iterations=2 --backend
ess local dense --budget 10 --memory 100MB --select l2=1,2 --cache kept --task MAR PR MPE --method bp --show one Thing/t1 --top 3
--sort z --key * --min-support --depth 2 --folds --seed --strict --check bash zsh fish E101 --help
-1 0 nan [red] {0} %s 1e400 - -- = a=b=c
"""


def command(data: bytes) -> None:
    """Run arguments, separated by zero bytes, in a folder with a model, tables and a run. Paths outside it are excluded."""
    arguments = [os.fsdecode(piece) for piece in data.split(b"\0")][:12]
    if not arguments or ALONE in arguments:
        return
    if any("/" in a.replace("Thing/t1", "") or ".." in a or a.startswith("~") for a in arguments):
        return
    place = _workplace()
    with _folder() as folder, allow_diagnostics():
        shutil.copytree(place, folder, dirs_exist_ok=True)
        code, said = _called(folder, arguments)
        assert code in EXIT_CODES, (arguments, code, said)
        assert "Traceback" not in said, said
        require_printable(said)


def _called(folder: Path, arguments: list[str]) -> tuple[int, str]:
    """Run the command in a folder; return its exit code and standard error."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["relcrf", *arguments]))
        stack.enter_context(contextlib.chdir(folder))
        # These functions take minutes and do not depend on the arguments.
        stack.enter_context(mock.patch("relcrf.cli.demo.run_split", side_effect=UsageError(Diagnostic("E300", "late"))))
        stack.enter_context(mock.patch("relcrf.cli.warmup.compile_kernels", return_value=()))
        stack.enter_context(mock.patch.object(sys, "stdin", io.StringIO("entity A")))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        try:
            run_command()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    return code, err.getvalue()


@functools.cache
def _workplace() -> Path:
    """Return a folder with a model, tables of a dozen entities (one of them unlabelled), a run and a UAI model."""
    folder = _scratch() / "place"
    (folder / "data").mkdir(parents=True)
    (folder / "m.rcrf").write_text(MODEL)
    (folder / "x.uai").write_bytes(UAI[0])
    (folder / "x.evid").write_bytes(b"1 0 1\n")
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    with (folder / "data" / "thing.jsonl").open("w", encoding="utf-8") as file:
        for k in range(12):
            label = None if k == 1 else "abc"[k % 3]
            file.write(json.dumps(rows[k % 3] | {"id": f"t{k + 1}", "label": label}) + "\n")
    links = "".join(f"t{k},t{k + 1}\n" for k in (1, 2, 4, 5, 7, 10))
    (folder / "data" / "next.csv").write_text("x,y\n" + links)
    code, said = _called(
        folder, ["train", "m.rcrf", "--backend", "ess", "--data", "data", "--out", "run", "--set", "max_iterations=5"]
    )
    assert not code, said
    return folder


COMMANDS = """
check m.rcrf --data data --json
plan m.rcrf --data data --exact
ground m.rcrf --data data --show one
train m.rcrf --data data --out new --set max_iterations=2
predict run --data data --out out.csv
weights run --sort support
infer x.uai --task MAR --evidence x.evid
explain run Thing/t1 --data data
ask run --data data --budget 2 --output out.csv
graph run --dot
diff run run
fmt m.rcrf
explain-error E101
new data --out n.rcrf
completion bash
moments run
reproduce run --data data
demo --splits 1 --seed 3
warmup --json
compare m.rcrf --data data --backend local --split folds=2
pareto m.rcrf --data data --message-costs 0,1e-3 --split folds=2 --set max_iterations=2
cv m.rcrf --data data --folds 2
evaluate m.rcrf --data data --split folds=2 --backend local
"""


def _lists() -> list[bytes]:
    return [b"\0".join(word.encode() for word in line.split()) for line in COMMANDS.strip().splitlines()]


TABLE_WORDS = (b",", b"\n", b'"', b"\t", b"\0", b"t1", b"label", b"nan", b"inf", b"1e999", b"0x", b"\xff", b"\x1b[31m")

TARGETS = {
    target.name: target
    for target in (
        Target("language", language, _models, tuple(LANGUAGE)),
        Target("editor", editor, _edited, tuple(LANGUAGE)),
        Target("csv", table(".csv"), _csv(","), TABLE_WORDS),
        Target("tsv", table(".tsv"), _csv("\t"), TABLE_WORDS),
        Target("jsonl", table(".jsonl"), _jsonl, (*TABLE_WORDS, b"{", b"[", b"}", b"]", b":", b"null")),
        Target("parquet", table(".parquet"), _parquet, (b"PAR1", b"\xff\xff\xff\xff")),
        Target("arrow", table(".arrow"), _arrow, (b"ARROW1", b"\xff\xff\xff\xff")),
        Target("sqlite", database(".sqlite"), _sqlite, (b"CREATE", b"SELECT", b"text", b"blob")),
        Target("alchemy", database(".db"), lambda: [ATOMS], tuple(b'( ) ! ? " \\ = //'.split())),
        Target(
            "manifest",
            manifest,
            lambda: [MANIFEST, MANIFEST + FAR],
            tuple(b"[tables. [split] file sql sqlite ' ../".split()),
        ),
        Target("uai", uai, lambda: list(UAI), tuple(b"MARKOV BAYES 1e308 - nan inf \nc 0".split(b" "))),
        Target("evidence", evidence, lambda: [b"1 0 1\n", b"1\n2 0 1 2 2\n"], (b"-1", b"1e9", b"nan")),
        Target("run", run, _as_inputs("run"), tuple(b"null NaN 1e999 { [ \x93NUMPY 'O' -1 ../".split())),
        Target("blocks", blocks, _as_inputs("blocks"), tuple(b"null -1 \x93NUMPY <i4 ../ [ {".split())),
        Target("command", command, _lists, tuple(word.encode() for word in WORDS.split())),
    )
}
