"""A cache of ground blocks in files, keyed by a hash of the inputs of each block.

A *ground block* contains the factors of all templates that share weights. Each block has a separate folder. The name of the
folder is a hash of the inputs: the templates, the declarations and the table contents on which the templates depend, and the
indices of the variables. A change of a template or table therefore invalidates only the blocks that depend on the change.
Equal inputs give bitwise identical files. A folder contains `.npy` columns and `block.json`. It has a temporary name until
it is complete.
"""

from __future__ import annotations

import hashlib
import json
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
from relcrf.files import file_lock, make_folder, replace_folder
from relcrf.graph.factor_files import ColumnWriter, read_group
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.weights import WeightBlock
from relcrf.grounding.blocks import GroundBlock, TemplateInfo
from relcrf.grounding.dependencies import template_dependencies
from relcrf.grounding.variables import VariableBlock
from relcrf.json_values import from_json_value
from relcrf.language.render import render_declaration
from relcrf.model.spec import Gate, ModelSpec, Template

FORMAT_VERSION = 4
"""Version of the file layout and of the rules by which inputs determine blocks. It is part of the hash, so that folders of
another version are not read."""

LOCK_NAME = ".lock"
"""Name of the lock file of the cache folder."""


def compute_cache_key(
    bound: BoundModel,
    spec: ModelSpec,
    templates: Sequence[Template],
    variables: Sequence[VariableBlock],
    gate: Gate | None = None,
) -> str:
    """Return the cache key of the block of templates that share weights or, with a gate, of the gate's features."""
    digest = hashlib.sha256()
    # A gate depends on the same tables as a copy of the template with the features of the gate.
    gate_templates = [replace(template, by=gate.by) for template in templates if gate is not None]
    names = template_dependencies(spec, [*templates, *gate_templates])
    # A block depends on the values of a domain, but not on the tables that contain the values.
    locations = {
        name: sorted(bound.sources[name]) for name in sorted(names - set(bound.domains)) if name in bound.sources
    }
    inputs = {
        "format": FORMAT_VERSION,
        "templates": [render_declaration(template) for template in templates],
        "gate": None if gate is None else render_declaration(gate),
        "hard": [template.is_hard for template in templates],
        "declarations": sorted(
            render_declaration(d) for d in spec.all_declarations if getattr(d, "name", None) in names
        ),
        "tables": {
            name: [table_content_hash(bound, location) for location in table_locations]
            for name, table_locations in locations.items()
        },
        "domains": {name: [*bound.domains[name]] for name in sorted(names) if name in bound.domains},
        "variables": [[v.name, v.start, v.count, list(v.values)] for v in variables if v.owner in names],
        "statistics": {name: values.tolist() for name, values in sorted(bound.given_statistics.items())},
        "tokens": {name: bound.tokens.get(name) for name in sorted(bound.given_statistics)},
        "closed": sorted(bound.closed_world & names),
    }
    digest.update(json.dumps(inputs, sort_keys=True, ensure_ascii=False).encode())
    return digest.hexdigest()[:32]


@dataclass
class BlockCache:
    """A cache of ground blocks in a folder.

    Args:
        sync: Flush new blocks to disk, so that a power cut cannot damage them.

    Attributes:
        misses: names of the blocks that were grounded.
        hits: names of the blocks that were read from the cache.
    """

    folder: Path
    sync: bool = True

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        make_folder(self.folder, sync=self.sync)
        self.misses: list[str] = []
        self.hits: list[str] = []
        self._remove_stale_folders()

    def load(self, name: str, is_valid: Callable[[GroundBlock], bool]) -> GroundBlock | None:
        """Return a cached block, or None if the cache does not contain the block.

        Args:
            is_valid: function that returns True if a block fits the graph.

        Raises:
            DataError: if the files of the block are damaged.
        """
        folder = self.folder / name
        if not folder.is_dir():
            return None
        try:
            block = _read_block(folder)
            if not is_valid(block):
                raise ValueError("the factors of the block do not fit the graph")
        except READ_ERRORS as error:
            note = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            hint = "remove the folder; the block is then grounded again"
            message = f"the cached grounding '{folder}' is damaged"
            raise DataError(Diagnostic("E227", message, DataLocation(str(folder)), hint, (note,))) from None
        self.hits.append(block.info.name)
        return block

    def ground(self, name: str, make: Callable[[Storage], GroundBlock]) -> GroundBlock:
        """Ground a block and add it to the cache. If grounding fails, remove the files of the block."""
        with self._create_folder(name) as partial:
            block = make(Storage(partial, 0))
            _write_block(block, partial)
            with file_lock(self.folder / LOCK_NAME):
                if not (self.folder / name).is_dir():  # otherwise another process has added the block
                    replace_folder(partial, self.folder / name, sync=self.sync)
        self.misses.append(block.info.name)
        return _read_block(self.folder / name)

    @contextmanager
    def _create_folder(self, name: str) -> Iterator[Path]:
        """Create a folder for a new block and lock it during the context; at the end, remove it unless it was renamed."""
        with ExitStack() as stack:
            with file_lock(self.folder / LOCK_NAME):
                folder = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=self.folder))
                stack.enter_context(file_lock(_lock_path(folder)))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            yield folder

    def _remove_stale_folders(self) -> None:
        """Remove the files of killed processes: locks that no process holds, and incomplete folders with these locks."""
        matches = (re.fullmatch(r"(\.[0-9a-f]{32}\.[^.]+)(\.lock)?", path.name) for path in self.folder.iterdir())
        names = {match_[1] for match_ in matches if match_}
        if not names and not (self.folder / LOCK_NAME).exists():
            return
        with file_lock(self.folder / LOCK_NAME):
            for folder in (self.folder / name for name in names):
                if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                    continue  # not an incomplete block, in spite of its name
                with suppress(Timeout), file_lock(_lock_path(folder), timeout=0.0):
                    shutil.rmtree(folder, ignore_errors=True)


def _lock_path(folder: Path) -> Path:
    """Return the path of the lock file of an incomplete block."""
    return folder.with_name(f"{folder.name}.lock")


def _write_block(block: GroundBlock, folder: Path) -> None:
    """Write the description of a block, and the columns of the block that are not in the folder yet."""
    columns, keys = ColumnWriter(folder), block.info.keys
    description = {
        "weights": asdict(block.weights),
        "info": {**block.info.as_dict(), "keys": None if keys is None else keys.as_dict()},
        "groups": [columns.describe_group(group) for group in block.groups],
        "group_names": block.group_names,
        "bindings": dict(block.bindings),
    }
    (folder / "block.json").write_text(json.dumps(description, ensure_ascii=False), encoding="utf-8")
    columns.remove_unused()


def _read_block(folder: Path) -> GroundBlock:
    path = folder / "block.json"
    if path.is_symlink():
        raise ValueError("block.json is a symbolic link")
    description = json.loads(path.read_text(encoding="utf-8"))
    weights: WeightBlock = from_json_value(WeightBlock, description["weights"])
    return GroundBlock(
        weights,
        from_json_value(TemplateInfo, description["info"]),
        tuple(_read_group(folder, group, weights) for group in description["groups"]),
        from_json_value(tuple[str, ...], description["group_names"]),
        from_json_value(Mapping[str, int], description["bindings"]),
    )


def _read_group(folder: Path, description: Mapping[str, Any], weights: WeightBlock) -> FactorGroup:
    """Read a factor group; raise ValueError if the group and the weights have different shapes."""
    group = read_group(folder, description)
    if (group.features.n_features, group.n_patterns) != (weights.n_features, weights.n_patterns):
        raise ValueError("a factor group and its weights have different shapes")
    return group
