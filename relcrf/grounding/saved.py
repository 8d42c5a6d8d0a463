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
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from relcrf.columns.growing import Storage
from relcrf.data.bound import Bound
from relcrf.data.contents import content_of
from relcrf.errors import DataError, DataPlace, Diagnostic
from relcrf.graph.files import Columns, read_group
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
    places = sorted(set().union(*(bound.sources.get(name, set()) for name in names)))
    facts = {
        "format": FORMAT,
        "templates": [declaration(template) for template in members],
        "hard": [template.is_hard for template in members],
        "declarations": sorted(declaration(d) for d in spec.everything if getattr(d, "name", None) in names),
        "tables": [content_of(bound.dataset, place) for place in places],
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
        self.folder.mkdir(parents=True, exist_ok=True)
        self.made: list[str] = []
        self.found: list[str] = []

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
        partial = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=self.folder))
        try:
            block = make(Storage(partial, 0))
            _write(block, partial)
            os.replace(partial, self.folder / name)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        self.made.append(block.info.name)
        return _read(self.folder / name)


def _write(block: Block, folder: Path) -> None:
    """Writes what of a block is not there yet, and its description."""
    columns = Columns(folder)
    groups = [columns.group(group) for group in block.groups]
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
    columns.remove_others()


def _read(folder: Path) -> Block:
    facts = json.loads((folder / "block.json").read_text(encoding="utf-8"))

    info, keys = facts["info"], facts["keys"]
    dictionary = KeyDictionary(keys["domain"], _tuples(keys["values"])) if keys else None
    return Block(
        WeightBlock(**facts["weights"]),
        TemplateInfo(info["name"], tuple(info["features"]), tuple(info["patterns"]), dictionary, info["bindings"]),
        tuple(read_group(folder, group) for group in facts["groups"]),
        tuple(facts["group_names"]),
        facts["bindings"],
    )


def _tuples(values: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(value) for value in values)
