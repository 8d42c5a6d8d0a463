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

from relcrf.columns.storage import READ_ERRORS, Storage
from relcrf.data.bound_model import BoundModel
from relcrf.data.table_hash import table_content_hash
from relcrf.errors import DataError, DataLocation, Diagnostic
from relcrf.files import file_lock
from relcrf.graph.factor_files import ColumnWriter, read_group
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.weights import WeightBlock
from relcrf.grounding.blocks import GroundBlock, TemplateInfo
from relcrf.grounding.dependencies import template_dependencies
from relcrf.grounding.variables import VariableBlock
from relcrf.json_values import from_json_value
from relcrf.language.render import render_declaration
from relcrf.model.spec import Gate, ModelSpec, Template

FORMAT_VERSION = 3
"""Version of the folders' layout; another one is another name."""

LOCK_NAME = ".lock"
"""Name of the lock file of a folder of blocks."""


def compute_cache_key(
    bound: BoundModel,
    spec: ModelSpec,
    templates: Sequence[Template],
    variables: Sequence[VariableBlock],
    gate: Gate | None = None,
) -> str:
    """The name of the block that some templates share; or with a gate, of the features of the gate on the only template."""
    digest = hashlib.sha256()
    # A gate reads what its template would with the gate's features.
    shadows = [replace(template, by=gate.by) for template in templates if gate is not None]
    names = template_dependencies(spec, [*templates, *shadows])
    # Of a domain only its values count, wherever they were found.
    places = {name: sorted(bound.sources[name]) for name in sorted(names - set(bound.domains)) if name in bound.sources}
    facts = {
        "format": FORMAT_VERSION,
        "templates": [render_declaration(template) for template in templates],
        "gate": None if gate is None else render_declaration(gate),
        "hard": [template.is_hard for template in templates],
        "declarations": sorted(
            render_declaration(d) for d in spec.all_declarations if getattr(d, "name", None) in names
        ),
        "tables": {name: [table_content_hash(bound, place) for place in read] for name, read in places.items()},
        "domains": {name: bound.domains[name] for name in sorted(names) if name in bound.domains},
        "variables": [[v.name, v.start, v.count, list(v.values)] for v in variables if v.owner in names],
        "closed": sorted(bound.closed_world & names),
    }
    digest.update(json.dumps(facts, sort_keys=True, ensure_ascii=False).encode())
    return digest.hexdigest()[:32]


@dataclass
class BlockCache:
    """A folder of blocks.

    Args:
        misses, hits: names of the blocks that were grounded and of those that were there.
    """

    folder: Path

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.misses: list[str] = []
        self.hits: list[str] = []
        self._remove_stale_folders()

    def load(self, name: str, is_valid: Callable[[GroundBlock], bool]) -> GroundBlock | None:
        """A block; None where it is not there.

        Args:
            is_valid: whether a block is of the graph that it will be of.

        Raises:
            DataError: where its files are damaged.
        """
        folder = self.folder / name
        if not folder.is_dir():
            return None
        try:
            block = _read_block(folder)
            if not is_valid(block):
                raise ValueError("its factors are of another graph")
        except READ_ERRORS as error:
            note = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            hint = "remove the folder, and it will be grounded anew"
            message = f"the saved grounding '{folder}' is damaged"
            raise DataError(Diagnostic("E227", message, DataLocation(str(folder)), hint, (note,))) from None
        self.hits.append(block.info.name)
        return block

    def ground(self, name: str, make: Callable[[Storage], GroundBlock]) -> GroundBlock:
        """Makes a block and keeps it; nothing is left of one that was not finished."""
        with self._create_folder(name) as partial:
            block = make(Storage(partial, 0))
            _write_block(block, partial)
            with file_lock(self.folder / LOCK_NAME):
                if not (self.folder / name).is_dir():  # else another process was faster
                    os.replace(partial, self.folder / name)
        self.misses.append(block.info.name)
        return _read_block(self.folder / name)

    @contextmanager
    def _create_folder(self, name: str) -> Iterator[Path]:
        """Make a folder for a new block, and lock it while its maker lives; remove it where it was not renamed."""
        with ExitStack() as claims:
            with file_lock(self.folder / LOCK_NAME):
                folder = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=self.folder))
                claims.enter_context(file_lock(_lock_path(folder)))
            claims.callback(shutil.rmtree, folder, ignore_errors=True)
            yield folder

    def _remove_stale_folders(self) -> None:
        """Remove what killed processes left: locks that nobody holds, and the folders of new blocks that they were for."""
        known = (re.fullmatch(r"(\.[0-9a-f]{32}\.[^.]+)(\.lock)?", path.name) for path in self.folder.iterdir())
        names = {found[1] for found in known if found}
        if not names and not (self.folder / LOCK_NAME).exists():
            return
        with file_lock(self.folder / LOCK_NAME):
            for folder in (self.folder / name for name in names):
                if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                    continue  # it has the name of a new block, and is none
                with suppress(Timeout), file_lock(_lock_path(folder), timeout=0.0):
                    shutil.rmtree(folder, ignore_errors=True)


def _lock_path(folder: Path) -> Path:
    """Return the path of the lock file of a new block."""
    return folder.with_name(f"{folder.name}.lock")


def _write_block(block: GroundBlock, folder: Path) -> None:
    """Writes what of a block is not there yet, and its description."""
    columns, keys = ColumnWriter(folder), block.info.keys
    described_block = {
        "weights": asdict(block.weights),
        "info": {**block.info.as_plain(), "keys": None if keys is None else keys.as_plain()},
        "groups": [columns.describe_group(group) for group in block.groups],
        "group_names": block.group_names,
        "bindings": dict(block.bindings),
    }
    (folder / "block.json").write_text(json.dumps(described_block, ensure_ascii=False), encoding="utf-8")
    columns.remove_unused()


def _read_block(folder: Path) -> GroundBlock:
    path = folder / "block.json"
    if path.is_symlink():
        raise ValueError("block.json is a link")
    facts = json.loads(path.read_text(encoding="utf-8"))
    weights: WeightBlock = from_json_value(WeightBlock, facts["weights"])
    return GroundBlock(
        weights,
        from_json_value(TemplateInfo, facts["info"]),
        tuple(_read_group(folder, group, weights) for group in facts["groups"]),
        from_json_value(tuple[str, ...], facts["group_names"]),
        from_json_value(Mapping[str, int], facts["bindings"]),
    )


def _read_group(folder: Path, description: Mapping[str, Any], weights: WeightBlock) -> FactorGroup:
    """
    Raises:
        ValueError: where a group does not fit its weights.
    """
    group = read_group(folder, description)
    if (group.features.n_features, group.n_patterns) != (weights.n_features, weights.n_patterns):
        raise ValueError("a group of factors does not fit its weights")
    return group
