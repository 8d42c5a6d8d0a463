"""The provenance of a run: the versions, data, split and settings with which the run can be reproduced."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import binding

from relcrf import plugins
from relcrf.backends.base import Problem
from relcrf.backends.registry import backend_class
from relcrf.columns.storage import read_rows
from relcrf.data.bound_model import BoundModel
from relcrf.data.row_repairs import RowRepair
from relcrf.data.split_plan import SplitPlan, parse_split
from relcrf.data.table_hash import hash_rows
from relcrf.graph.factor_graph import RepeatedScope
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.grounding import Grounding

HASH_CHUNK_ROWS = 1 << 20

PACKAGES = ("relcrf", "numpy", "scipy", "numba", "duckdb")
"""Packages whose version may affect the last bits of a result."""

READ_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class TrainingProtocol:
    """The held-out labels, resource limits and workers of a training run.

    Args:
        split, holdout, train, valid, test: Values of these options; None and empty if training used all labels.
        calibrate: Number of folds for temperature calibration; 0 disables it.
        workers, memory, budget: Values of these options of `relcrf train`.
        spark_master: URL of the Spark master, if training ran on Spark.
    """

    split: str | None = None
    holdout: tuple[str, ...] = ()
    calibrate: int = 0
    workers: int = 0
    memory: str = ""
    budget: int = DEFAULT_BUDGET
    spark_master: str | None = None
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    @property
    def split_plan(self) -> SplitPlan | None:
        """The split with the folds to hold out; None if training used all labels.

        Raises:
            UsageError: The split is invalid (E349).
        """
        if self.split is None:
            return None
        plan = parse_split(self.split)
        return replace(plan, holdout=self.holdout or plan.holdout, train=self.train, valid=self.valid, test=self.test)

    def with_split(self, plan: SplitPlan) -> TrainingProtocol:
        """Return the protocol with another split."""
        return replace(self, split=plan.text, holdout=plan.holdout, train=plan.train, valid=plan.valid, test=plan.test)


@dataclass(frozen=True)
class TableDigest:
    """The number of rows of a table, and an order-independent hash of the rows that depends on DuckDB's version."""

    rows: int
    hash: str


@dataclass(frozen=True)
class Provenance:
    """The inputs of a run.

    Args:
        fingerprint: The `fingerprint` of the training run.
        tables: Digests of the tables that the model reads, by name.
        versions: Versions of relcrf, Python, numerical packages and plugins, and the machine type.
        notes: What reading the tables assumed, and the rows that the policies of the data's manifest repaired.
        repairs: The repairs among the notes, with examples; empty for a run of a version that did not store them.
    """

    fingerprint: str
    protocol: TrainingProtocol
    tables: Mapping[str, TableDigest]
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    repairs: tuple[RowRepair, ...] = ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The notes that do not report a repair of rows."""
        texts = {str(repair) for repair in self.repairs}
        return tuple(note for note in self.notes if note not in texts)

    @classmethod
    def collect(cls, fingerprint: str, protocol: TrainingProtocol, bound: BoundModel) -> Provenance:
        """Return the provenance of a training run in the current process."""
        return cls(fingerprint, protocol, table_digests(bound), versions(), tuple(bound.notes), tuple(bound.repairs))

    def as_dict(self) -> dict[str, Any]:
        """Return the provenance in a form that JSON can represent."""
        return asdict(self)


def versions() -> dict[str, str]:
    """Return the versions of software and hardware that may affect the last bits of a result."""
    machine = f"{platform.system()} {platform.machine()} {binding.get_host_cpu_name()}"
    packages = {name: version(name) for name in PACKAGES} | plugins.plugin_versions(entry_points)
    return {"python": platform.python_version(), **packages, "machine": machine}


def table_digests(bound: BoundModel) -> dict[str, TableDigest]:
    """Return the digests of the tables that the model reads, by name."""
    locations = set().union(*bound.sources.values())
    tables = [table for table in bound.dataset.tables.values() if table.location in locations]
    hashes = {table.name: hash_rows(bound.dataset, table).split("-", 1) for table in tables}
    return {name: TableDigest(int(rows), content) for name, (rows, content) in hashes.items()}


def file_hashes(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 hashes of files in a folder."""
    hashes = {}
    for name in names:
        digest = hashlib.sha256()
        with (folder / name).open("rb") as file:
            while block := file.read(READ_CHUNK_BYTES):
                digest.update(block)
        hashes[name] = digest.hexdigest()
    return hashes


def _iter_graph_names(grounding: Grounding, *, with_candidates: bool) -> Iterator[object]:
    """Yield the values of domains and the names of features and keys; keys that are values of a domain are omitted."""
    yield sorted(grounding.domains.items())
    for info in grounding.templates:
        yield info.features, None if info.keys is None or info.keys.domain is not None else info.keys.values
    if with_candidates:
        for space in grounding.candidates:
            yield space.pairs.name, [space.key_texts(side) for side in range(len(space.coded_keys))]


def fingerprint(
    model_text: str, backend: str, settings: Mapping[str, Any], problem: Problem, grounding: Grounding
) -> str:
    """Return a hash of the model, settings and data of a training run; the hash also identifies the run's checkpoints.

    Args:
        grounding: The grounding of the problem, with the names of the graph's states, keys and features.
    """
    digest = hashlib.sha256()
    layout = [asdict(block) for block in problem.graph.layout.blocks]
    digest.update(json.dumps([model_text, backend, dict(settings), layout], sort_keys=True).encode())
    for values in _iter_graph_names(grounding, with_candidates=bool(problem.candidates)):
        digest.update(json.dumps(values, default=list).encode())  # long sequences of texts are not tuples
    for side in (side for space in problem.candidates for side in space.sides):
        for array in side.kernel_cells:
            digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(problem.graph.cardinality.tobytes())
    for group in grounding.graph.groups:
        scope = group.scope
        scope_arrays = (scope.rows, *scope.offsets) if isinstance(scope, RepeatedScope) else scope
        for array in (*scope_arrays, *group.features.arrays()):
            for start in range(0, len(array), HASH_CHUNK_ROWS):
                digest.update(read_rows(array, start, start + HASH_CHUNK_ROWS).tobytes())
    if backend_class(backend).uses_gates:
        digest.update(json.dumps([asdict(block) for block in problem.gates.layout.blocks]).encode())
        digest.update(json.dumps([info.features for info in grounding.gate_templates]).encode())
        features = [gates.features for gates in problem.gates.groups.values() if gates.features is not None]
        for array in (array for values in features for array in values.arrays()):
            digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(problem.roles.tobytes())
    digest.update(problem.states.tobytes())
    if problem.numbers is not None:
        digest.update(problem.numbers.values.tobytes())
    if problem.validation is not None:
        digest.update(problem.validation.tobytes())
    return digest.hexdigest()
