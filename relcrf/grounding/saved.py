"""Groundings that are kept: every block in a folder of its own, found again by what it was made of.

The name of a block's folder is a hash of the templates and of all that they read: declarations, the content of the
tables behind them, and where their variables stand. So a changed template is grounded anew and the others are not, a
changed table makes anew what reads it, and the same inputs give the same bytes. A folder holds `.npy` columns and
`block.json`, and gets its name when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import Timeout

from relcrf.columns.growing import DAMAGED, Storage
from relcrf.data.bound import Bound
from relcrf.data.contents import content_of
from relcrf.errors import DataError, DataPlace, Diagnostic
from relcrf.files import locked
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.files import ColumnWriter, read_group
from relcrf.graph.weights import WeightBlock
from relcrf.grounding.blocks import GroundBlock, TemplateInfo
from relcrf.grounding.reads import tables_read
from relcrf.grounding.variables import VariableBlock
from relcrf.language.render import declaration
from relcrf.model.spec import Gate, ModelSpec, Template
from relcrf.plain import from_plain

FORMAT = 3
"""Version of the folders' layout; another one is another name."""

LOCK = ".lock"
"""Name of the lock file of a folder of blocks."""


def identity(
    bound: Bound,
    spec: ModelSpec,
    members: Sequence[Template],
    variables: Sequence[VariableBlock],
    gate: Gate | None = None,
) -> str:
    """The name of the block that some templates share; or with a gate, of the features of the gate on the only template."""
    digest = hashlib.sha256()
    # A gate reads what its template would with the gate's features.
    shadows = [replace(template, by=gate.by) for template in members if gate is not None]
    names = tables_read(spec, [*members, *shadows])
    # Of a domain only its values count, wherever they were found.
    places = {name: sorted(bound.sources[name]) for name in sorted(names - set(bound.domains)) if name in bound.sources}
    facts = {
        "format": FORMAT,
        "templates": [declaration(template) for template in members],
        "gate": None if gate is None else declaration(gate),
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

    def load(self, name: str, fits: Callable[[GroundBlock], bool]) -> GroundBlock | None:
        """A block; None where it is not there.

        Args:
            fits: whether a block is of the graph that it will be of.

        Raises:
            DataError: where its files are damaged.
        """
        folder = self.folder / name
        if not folder.is_dir():
            return None
        try:
            block = _read(folder)
            if not fits(block):
                raise ValueError("its factors are of another graph")
        except DAMAGED as error:
            note = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            hint = "remove the folder, and it will be grounded anew"
            message = f"the saved grounding '{folder}' is damaged"
            raise DataError(Diagnostic("E227", message, DataPlace(str(folder)), hint, (note,))) from None
        self.found.append(block.info.name)
        return block

    def add(self, name: str, make: Callable[[Storage], GroundBlock]) -> GroundBlock:
        """Makes a block and keeps it; nothing is left of one that was not finished."""
        with self._new_folder(name) as partial:
            block = make(Storage(partial, 0))
            _write(block, partial)
            with locked(self.folder / LOCK):
                if not (self.folder / name).is_dir():  # else another process was faster
                    os.replace(partial, self.folder / name)
        self.made.append(block.info.name)
        return _read(self.folder / name)

    @contextmanager
    def _new_folder(self, name: str) -> Iterator[Path]:
        """Make a folder for a new block, and lock it while its maker lives; remove it where it was not renamed."""
        with ExitStack() as claims:
            with locked(self.folder / LOCK):
                folder = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=self.folder))
                claims.enter_context(locked(_lock_of(folder)))
            claims.callback(shutil.rmtree, folder, ignore_errors=True)
            yield folder

    def _remove_abandoned(self) -> None:
        """Remove what killed processes left: locks that nobody holds, and the folders of new blocks that they were for."""
        known = (re.fullmatch(r"(\.[0-9a-f]{32}\.[^.]+)(\.lock)?", path.name) for path in self.folder.iterdir())
        names = {found[1] for found in known if found}
        if not names and not (self.folder / LOCK).exists():
            return
        with locked(self.folder / LOCK):
            for folder in (self.folder / name for name in names):
                if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                    continue  # it has the name of a new block, and is none
                with suppress(Timeout), locked(_lock_of(folder), timeout=0.0):
                    shutil.rmtree(folder, ignore_errors=True)


def _lock_of(folder: Path) -> Path:
    """Return the path of the lock file of a new block."""
    return folder.with_name(f"{folder.name}.lock")


def _write(block: GroundBlock, folder: Path) -> None:
    """Writes what of a block is not there yet, and its description."""
    columns, keys = ColumnWriter(folder), block.info.keys
    described_block = {
        "weights": asdict(block.weights),
        "info": {**block.info.as_plain(), "keys": None if keys is None else keys.as_plain()},
        "groups": [columns.group(group) for group in block.groups],
        "group_names": block.group_names,
        "bindings": dict(block.bindings),
    }
    (folder / "block.json").write_text(json.dumps(described_block, ensure_ascii=False), encoding="utf-8")
    columns.remove_others()


def _read(folder: Path) -> GroundBlock:
    path = folder / "block.json"
    if path.is_symlink():
        raise ValueError("block.json is a link")
    facts = json.loads(path.read_text(encoding="utf-8"))
    weights: WeightBlock = from_plain(WeightBlock, facts["weights"])
    return GroundBlock(
        weights,
        from_plain(TemplateInfo, facts["info"]),
        tuple(_group(folder, group, weights) for group in facts["groups"]),
        from_plain(tuple[str, ...], facts["group_names"]),
        from_plain(Mapping[str, int], facts["bindings"]),
    )


def _group(folder: Path, facts: Mapping[str, Any], weights: WeightBlock) -> FactorGroup:
    """
    Raises:
        ValueError: where a group does not fit its weights.
    """
    group = read_group(folder, facts)
    if (group.features.n_features, group.n_patterns) != (weights.n_features, weights.n_patterns):
        raise ValueError("a group of factors does not fit its weights")
    return group
