"""Groundings that are kept: every block in a folder of its own, found again by what it was made of.

The name of a block's folder is a hash of the templates and of all that they read: declarations, the content of the
tables behind them, and where their variables stand. So a changed template is grounded anew and the others are not, a
changed table makes anew what reads it, and the same inputs give the same bytes. A folder holds `.npy` columns and
`block.json`, and gets its name when it is whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.columns.growing import Storage, file_of, open_column
from relcrf.data.bound import Bound
from relcrf.data.contents import content_of
from relcrf.errors import DataError, DataPlace, Diagnostic
from relcrf.graph.factor_graph import FactorGroup, RepeatedScope
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Ones, Sparse, Tiled
from relcrf.graph.weights import WeightBlock
from relcrf.grounding.blocks import Block, TemplateInfo
from relcrf.grounding.keys import KeyDictionary
from relcrf.grounding.reads import tables_read
from relcrf.grounding.variables import VariableBlock
from relcrf.language.render import declaration
from relcrf.model.spec import ModelSpec, Template

FORMAT = 1
"""Version of the folders' layout; another one is another name."""


def identity(bound: Bound, spec: ModelSpec, members: Sequence[Template], variables: Sequence[VariableBlock]) -> str:
    """The name of the block that some templates share."""
    digest = hashlib.sha256()
    names = tables_read(spec, members)
    # Of a domain only its values count, wherever they were found.
    places = {name: sorted(bound.sources[name]) for name in sorted(names - set(bound.domains)) if name in bound.sources}
    facts = {
        "format": FORMAT,
        "templates": [declaration(template) for template in members],
        "hard": [template.is_hard for template in members],
        "declarations": sorted(declaration(d) for d in spec.everything if getattr(d, "name", None) in names),
        "tables": {name: [content_of(bound, place) for place in read] for name, read in places.items()},
        "domains": {name: bound.domains[name] for name in sorted(names) if name in bound.domains},
        "variables": [[v.name, v.start, v.count, list(v.values)] for v in variables if v.owner in names],
        "closed": sorted(bound.closed & names),
    }
    digest.update(json.dumps(facts, sort_keys=True, ensure_ascii=False).encode())
    return digest.hexdigest()[:32]


@dataclass
class SavedBlocks:
    """A folder of blocks.

    Args:
        made, found: names of the blocks that were grounded and of those that were there.
    """

    folder: Path

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.made: list[str] = []
        self.found: list[str] = []
        self._remove_abandoned()

    def load(self, name: str) -> Block | None:
        """A block; None where it is not there.

        Raises:
            DataError: where its files are damaged.
        """
        folder = self.folder / name
        if not folder.is_dir():
            return None
        try:
            block = _read(folder)
        except (OSError, ValueError, TypeError, KeyError, EOFError) as error:
            note = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            hint = "remove the folder, and it will be grounded anew"
            message = f"the saved grounding '{folder}' is damaged"
            raise DataError(Diagnostic("E227", message, DataPlace(str(folder)), hint, (note,))) from None
        self.found.append(block.info.name)
        return block

    def add(self, name: str, make: Callable[[Storage], Block]) -> Block:
        """Makes a block and keeps it; nothing is left of one that was not finished."""
        with self._new_folder(name) as partial:
            block = make(Storage(partial, 0))
            _write(block, partial)
            with _locked(self.folder):
                if not (self.folder / name).is_dir():  # else another process was faster
                    os.replace(partial, self.folder / name)
        self.made.append(block.info.name)
        return _read(self.folder / name)

    @contextmanager
    def _new_folder(self, name: str) -> Iterator[Path]:
        """A folder for a block in the making, locked for as long as its maker lives; what is not renamed goes."""
        with _locked(self.folder):
            folder = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=self.folder))
            held = os.open(folder, os.O_RDONLY)
            fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)

    def _remove_abandoned(self) -> None:
        """Removes what killed processes left: folders of blocks in the making that nobody has locked."""
        with _locked(self.folder):
            for folder in self.folder.iterdir():
                if re.fullmatch(r"\.[0-9a-f]{32}\..+", folder.name):
                    held = os.open(folder, os.O_RDONLY)
                    with suppress(BlockingIOError):
                        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(folder)
                    os.close(held)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps other processes from adding folders."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _write(block: Block, folder: Path) -> None:
    """Writes what of a block is not there yet, and its description."""
    files = _Files(folder)
    groups = []
    for group in block.groups:
        scope = group.scope
        described: dict[str, Any] = {
            "cardinalities": list(group.cardinalities),
            "features": files.features(group.features),
        }
        described["patterns"] = None if group.patterns is None else files.add(group.patterns)
        if isinstance(scope, RepeatedScope):
            described["repeated"] = {
                "rows": files.add(scope.rows),
                "starts": list(scope.starts),
                "strides": list(scope.strides),
                "offsets": [files.add(column) for column in scope.offsets],
            }
        else:
            described["scope"] = [files.add(column) for column in scope]
        groups.append(described)
    info = block.info
    described_block = {
        "weights": asdict(block.weights),
        "info": {"name": info.name, "features": info.features, "patterns": info.patterns, "bindings": info.bindings},
        "keys": {"domain": info.keys.domain, "values": info.keys.values} if info.keys else None,
        "groups": groups,
        "group_names": block.group_names,
        "bindings": dict(block.bindings),
    }
    (folder / "block.json").write_text(json.dumps(described_block, ensure_ascii=False), encoding="utf-8")
    files.remove_others()


class _Files:
    """The columns of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: set[str] = set()

    def add(self, array: np.ndarray) -> str:
        """The file of an array, which is written unless it is a map of one."""
        path = file_of(array)
        if path is None or path.parent != self.folder:
            path = self.folder / f"array{len(self.kept)}.npy"
            np.save(path, np.asarray(array), allow_pickle=False)
        self.kept.add(path.name)
        return path.name

    def features(self, features: AbstractFeatures) -> dict[str, Any]:
        """The description of a feature matrix."""
        match features:
            case Ones(n_rows):
                return {"kind": "ones", "n_rows": n_rows}
            case Dense(values):
                return {"kind": "dense", "values": self.add(values)}
            case Keyed(key, values, n_keys):
                return {"kind": "keyed", "key": self.add(key), "values": self.add(values), "n_keys": n_keys}
            case Sparse(row_start, column, values, n_features):
                names = {"row_start": self.add(row_start), "column": self.add(column), "values": self.add(values)}
                return {"kind": "sparse", **names, "n_features": n_features}
            case Tiled(tile, times):
                return {"kind": "tiled", "tile": self.features(tile), "times": times}
        raise AssertionError(f"{type(features).__name__} is no feature matrix that is kept")

    def remove_others(self) -> None:
        """Removes columns that served only on the way."""
        for path in self.folder.glob("*.npy"):
            if path.name not in self.kept:
                path.unlink()


def _read(folder: Path) -> Block:
    facts = json.loads((folder / "block.json").read_text(encoding="utf-8"))

    def column(name: str) -> np.ndarray:
        if "/" in name or name.startswith("."):
            raise ValueError(f"'{name}' is no file of the folder")
        return open_column(folder / name)

    def features(facts: Mapping[str, Any]) -> AbstractFeatures:
        match facts["kind"]:
            case "ones":
                return Ones(facts["n_rows"])
            case "dense":
                return Dense(column(facts["values"]))
            case "keyed":
                return Keyed(column(facts["key"]), column(facts["values"]), facts["n_keys"])
            case "sparse":
                row_start, columns, values = (column(facts[name]) for name in ("row_start", "column", "values"))
                return Sparse(row_start, columns, values.reshape(-1), facts["n_features"])
            case "tiled":
                return Tiled(features(facts["tile"]), facts["times"])
        raise ValueError(f"unknown features '{facts['kind']}'")

    def group(facts: Mapping[str, Any]) -> FactorGroup:
        repeated = facts.get("repeated")
        scope: Sequence[np.ndarray] = (
            RepeatedScope(
                column(repeated["rows"]),
                tuple(repeated["starts"]),
                tuple(repeated["strides"]),
                tuple(column(name) for name in repeated["offsets"]),
            )
            if repeated
            else tuple(column(name) for name in facts["scope"])
        )
        patterns = None if facts["patterns"] is None else column(facts["patterns"])
        read = FactorGroup(scope, tuple(facts["cardinalities"]), features(facts["features"]), patterns, 0)
        _require_whole(read, weights)
        return read

    info, keys, weights = facts["info"], facts["keys"], WeightBlock(**facts["weights"])
    dictionary = KeyDictionary(keys["domain"], _tuples(keys["values"])) if keys else None
    return Block(
        weights,
        TemplateInfo(info["name"], tuple(info["features"]), tuple(info["patterns"]), dictionary, info["bindings"]),
        tuple(group(g) for g in facts["groups"]),
        tuple(facts["group_names"]),
        facts["bindings"],
    )


def _require_whole(group: FactorGroup, weights: WeightBlock) -> None:
    """
    Raises:
        ValueError: where the columns of a group do not fit together.
    """
    scope, features = group.scope, group.features
    tile = features.tile if isinstance(features, Tiled) else features
    columns = scope.offsets if isinstance(scope, RepeatedScope) else scope
    n_rows = tile.n_rows * (len(scope.rows) if isinstance(scope, RepeatedScope) else 1)
    fits = [len(columns) == len(group.cardinalities), n_rows == features.n_rows]
    fits += [column.dtype == np.int32 and column.shape == (tile.n_rows,) for column in columns]
    fits += [features.n_features == weights.n_features, group.n_patterns == weights.n_patterns]
    if group.patterns is not None:
        fits.append(len(group.patterns) == group.n_joint_states)
    if isinstance(tile, Keyed):
        fits.append(len(tile.values) in (0, tile.n_rows))
    elif isinstance(tile, Sparse):
        fits += [tile.n_rows >= 0 and int(tile.row_start[-1]) == len(tile.column)]
        fits.append(len(tile.values) in (0, len(tile.column)))
    if not all(fits):
        raise ValueError("its columns do not fit together")


def _tuples(values: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(value) for value in values)
