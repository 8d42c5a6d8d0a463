"""Run folders: the files that training writes, and from which an interrupted training run resumes.

A run folder contains `run.json` (backend, settings, summary, the layout of the weights), `model.rcrf`,
`dictionaries.json` (the vocabulary, and the values of `per` for each template), one `.npy` file for each weight vector,
`log.jsonl` (the optimiser's log), `tables.toml` if the training data had a manifest, `feature.NAME.skops` for each
learned feature, `columns.json` (the distributions of the columns of the training data), `calibration_labels.npy` (the predicted
probabilities of labels that were held out), `moments.npy` and `histograms.json` if the backend provides them,
`timings.json`, and `manifest.json` (the hashes of the other files except the timings, and the provenance of the run). All
files except the timings are bitwise reproducible. During training, the folder is called `NAME.partial` and contains
`checkpoint/`; a complete run is renamed to `NAME`.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from filelock import Timeout

from relcrf.backends.calibration_labels import calibration_numbers, calibration_sections, parse_calibration_labels
from relcrf.backends.checkpoints import Timings, WallCpuSeconds, parse_seconds
from relcrf.backends.damaged_files import damaged_file_error
from relcrf.backends.learned_model import SEPARATE_LAYOUTS, BackendRequest, LearnedModel, WeightSchema
from relcrf.backends.provenance import Provenance, file_hashes
from relcrf.backends.template_statistics import TemplateStatistics
from relcrf.columns.storage import READ_ERRORS, open_column
from relcrf.data.distributions import ColumnDistribution
from relcrf.data.manifest import is_applicable
from relcrf.data.readers.base import StoredFormat
from relcrf.data.readers.stored_formats import require_valid_formats
from relcrf.errors import DataError, DataLocation, Diagnostic, UsageError, listing, path_suggestion
from relcrf.files import (
    file_lock,
    make_folder,
    move_aside,
    remove_folder,
    remove_unfinished,
    replace_folder,
    write_array,
    write_bytes,
    write_text,
)
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.grounding.blocks import TemplateInfo
from relcrf.json_values import from_json_value
from relcrf.language.check import require_valid
from relcrf.language.parse import parse
from relcrf.language.render import model_text
from relcrf.learning.histogram import Histogram
from relcrf.learning.moments import Moments
from relcrf.unaries import storage
from relcrf.unaries.fitting import FittedFeature

FORMAT_VERSION = 2
"""Version of the format of run folders; `load` rejects folders of other versions."""

MANIFEST = "manifest.json"

_write_text = functools.partial(write_text, sync=False)
_write_bytes = functools.partial(write_bytes, sync=False)
_write_array = functools.partial(write_array, sync=False)
"""Functions that write files of the partial folder; `replace_folder` flushes these files to disk."""

TABLES = "tables.toml"
"""The tables of the manifest of the training data, which are also applied to other folders."""

CALIBRATION_LABELS = "calibration_labels.npy"
"""The variable, state, predicted probability and group of each label that was held out in training, shape (4, n)."""

COLUMNS = "columns.json"
"""The distributions of the columns of the training data."""


def _resolve(folder: Path) -> Path:
    """Return the absolute path of a run folder, with links and `.` resolved."""
    return Path(os.path.realpath(folder))


def partial_folder(folder: Path) -> Path:
    """Return the path of the partial folder, which contains the unfinished run."""
    whole = _resolve(folder)
    return whole.with_name(whole.name + ".partial")


def require_writable(folder: Path, *, resume: bool, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Require that a run can be written to a folder without loss of other files; this function changes no files.

    Args:
        inputs: Inputs of the run; they must not be located in the run folder, which the run replaces.

    Raises:
        UsageError: If the folder contains other files, a complete run, or an interrupted run that would be lost; if
            there is nothing to resume; or if another process is training in the folder.
    """
    if not folder.name or folder.name == "..":
        message = f"'{folder}' cannot be a run folder"
        raise UsageError(Diagnostic("E331", message, hint="name a new folder, such as runs/first"))
    partial = partial_folder(folder)
    if folder.exists() and not (folder / "run.json").is_file():
        message = f"'{folder}' exists and is not a run folder; it is not replaced"
        raise UsageError(Diagnostic("E331", message, hint="choose another --out"))
    if folder.exists() and not force:
        hint = "choose another --out, or replace the run with --force"
        raise UsageError(Diagnostic("E330", f"run folder '{folder}' already exists", hint=hint))
    whole = _resolve(folder)
    for path in map(_resolve, inputs):
        if whole in (path, *path.parents) or partial in (path, *path.parents):
            message = f"'{path}' is inside the run folder '{folder}', which would be replaced"
            raise UsageError(Diagnostic("E331", message, hint="choose another --out"))
    if foreign := _foreign_files(whole):
        message = f"'{folder}' contains files that training did not write: {listing(foreign)}"
        raise UsageError(Diagnostic("E331", message, hint="move these files, or choose another --out"))
    if partial.exists() and not _is_partial_run(partial):
        message = f"'{partial}' has the name of an unfinished run but does not contain one"
        raise UsageError(Diagnostic("E331", message, hint="rename this folder, or choose another --out"))
    if partial.is_dir():
        with _lock_partial(partial):
            pass  # only check that no other process trains there
    if resume and not partial.is_dir():
        hint = "omit --resume to start a new run"
        raise UsageError(
            Diagnostic("E332", f"cannot resume: the interrupted run '{partial}' does not exist", hint=hint)
        )
    if (partial / "checkpoint" / "identity").exists() and not resume and not force:
        hint = "resume the run with --resume, or start over with --force"
        raise UsageError(Diagnostic("E337", f"there is an interrupted run '{partial}'", hint=hint))


def _is_partial_run(partial: Path) -> bool:
    """Return True if training wrote this folder; a kill or a power cut after its creation leaves an empty folder."""
    if (partial / "checkpoint").is_dir() or (partial / "run.json").is_file():
        return True
    return partial.is_dir() and not any(partial.iterdir())


def _foreign_files(folder: Path) -> list[str]:
    """Return the names of files in a run folder that the manifest does not list; an empty list without a manifest."""
    if not folder.is_dir() or not (hashes := manifest_hashes(folder)):
        return []
    expected = {*hashes, MANIFEST, "timings.json"}
    return sorted(path.name for path in folder.iterdir() if path.name not in expected)


@contextmanager
def claim_folder(folder: Path, *, resume: bool, force: bool, sync: bool = True) -> Iterator[Path]:
    """Yield the partial folder of a new or resumed run; the folder is locked against other processes.

    Args:
        sync: Flush the names of new folders to disk.

    Raises:
        UsageError: If `require_writable` rejects the folder, which may have changed since an earlier check.
    """
    require_writable(folder, resume=resume, force=force)
    partial = partial_folder(folder)
    make_folder(partial.parent, sync=sync)
    with _lock_partial(partial):
        yield prepare_partial_folder(folder, resume=resume, sync=sync)


@contextmanager
def _lock_partial(partial: Path) -> Iterator[None]:
    """Hold the lock file next to a partial folder, and remove the file when the context ends.

    Raises:
        UsageError: If another process holds the lock.
    """
    try:
        with file_lock(partial.with_name(f".{partial.name}.lock"), timeout=0.0):
            yield
    except Timeout:
        message = f"another process is training in '{partial}'"
        hint = "wait until that process ends, or choose another --out"
        raise UsageError(Diagnostic("E407", message, hint=hint)) from None


def prepare_partial_folder(folder: Path, *, resume: bool, sync: bool = True) -> Path:
    """Create the partial folder of a run; an existing one is kept if the run resumes, and removed otherwise."""
    partial = partial_folder(folder)
    if not resume and partial.parent.is_dir():
        remove_folder(partial)
    make_folder(partial / "checkpoint", sync=sync)
    return partial


def save(
    learned: LearnedModel,
    folder: Path,
    timings: Mapping[str, float],
    step_seconds: Sequence[WallCpuSeconds] = (),
    provenance: Provenance | None = None,
    *,
    sync: bool = True,
) -> None:
    """Write a run to its partial folder; when all files are written, this folder replaces an existing run folder.

    Args:
        timings, step_seconds: See `Timings`.
        provenance: Inputs of the run; None if the run cannot be reproduced because it was started from Python with
            arguments that the command line does not have.
        sync: Flush the run to disk, so that after a power cut the folder contains the old run or the new one.
    """
    partial = partial_folder(folder)
    make_folder(partial / "checkpoint", sync=sync)
    remove_unfinished(partial)
    run = {
        "format": FORMAT_VERSION,
        "backend": learned.backend,
        "settings": dict(learned.settings),
        "chosen_settings": dict(learned.chosen_settings),
        "request": None if learned.request is None else asdict(learned.request),
        "trials": [_trial_to_json(row) for row in learned.trials],
        "summary": dict(learned.summary),
        "converged": learned.converged,
        "template_statistics": [asdict(each) for each in learned.template_statistics],
        "vectors": sorted(learned.vectors),
        "calibration_labels": calibration_sections(learned.calibration_labels),
        **_schema_to_json(WeightSchema(learned.layout, learned.templates)),
    }
    dictionaries: dict[str, Any] = {
        "domains": dict(learned.vocabulary),
        "keys": dict(zip((t.name for t in learned.templates), _keys_to_json(learned.templates), strict=True)),
    }
    for name, separate in learned.schemas.items():
        run[name] = _schema_to_json(separate)
        dictionaries[f"{name}_keys"] = _keys_to_json(separate.templates)
    if learned.formats:
        run["formats"] = [asdict(each) for each in learned.formats]
    if learned.learned_features:
        run["learned_features"] = [storage.to_json(each) for each in learned.learned_features]
    for each in learned.learned_features:
        _write_bytes(partial / storage.file_name(each.name), storage.dump_estimator(each))
    if learned.statistics:
        dictionaries["statistics"] = {name: values.tolist() for name, values in sorted(learned.statistics.items())}
    _write_text(partial / "model.rcrf", model_text(learned.spec))
    _write_text(partial / "dictionaries.json", json.dumps(dictionaries, ensure_ascii=False))
    if learned.mapping is not None:
        _write_text(partial / TABLES, learned.mapping)
    if learned.columns:
        _write_text(partial / COLUMNS, json.dumps([asdict(each) for each in learned.columns], ensure_ascii=False))
    for name, vector in learned.vectors.items():
        _write_array(partial / f"{name}.npy", vector)
    _write_text(partial / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in learned.log))
    if learned.moments is not None:
        moments = learned.moments
        _write_array(partial / "moments.npy", np.stack((moments.empirical, moments.expected, moments.variance)))
    if learned.calibration_labels:
        _write_array(partial / CALIBRATION_LABELS, calibration_numbers(learned.calibration_labels))
    if learned.histograms:
        _write_text(partial / "histograms.json", json.dumps(_histograms_to_json(learned.histograms)))
    seconds = {k: round(v, 3) for k, v in timings.items()}
    rounded_steps = [[round(v, 4) for v in step] for step in step_seconds]
    trial_seconds = [round(float(row.get("seconds", 0.0)), 3) for row in learned.trials]
    all_timings = {**seconds, "steps": rounded_steps, **({"trials": trial_seconds} if trial_seconds else {})}
    _write_text(partial / "timings.json", json.dumps(all_timings))
    _write_text(partial / "run.json", json.dumps(run, indent=1, ensure_ascii=False))
    names = sorted(p.name for p in partial.iterdir() if p.is_file() and p.name not in ("timings.json", MANIFEST))
    manifest = {
        "format": FORMAT_VERSION,
        "files": file_hashes(partial, names),
        "provenance": provenance and provenance.as_dict(),
    }
    _write_text(partial / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False))
    # The checkpoint is removed after all files are written, so that no earlier failure loses the checkpoint.
    move_aside(partial / "checkpoint", partial)
    replace_folder(partial, _resolve(folder), sync=sync)
    remove_folder(partial)


def is_run(folder: Path) -> bool:
    """Return True if a folder contains the main file of a run."""
    return (folder / "run.json").is_file()


def load(folder: Path) -> LearnedModel:
    """Return the learned model of a run folder.

    Raises:
        DataError: If the folder is not a run folder, is damaged, has another format version, or contains an unfinished
            run.
        ModelError: If the model of the run is invalid.
    """
    if not is_run(folder):
        hint = path_suggestion(folder, is_run) or "use a folder that 'relcrf train' wrote"
        if partial_folder(folder).is_dir():
            hint = f"training was interrupted; resume it with: relcrf train ... --out {folder} --resume"
        raise DataError(Diagnostic("E334", f"'{folder}' is not a run folder", hint=hint))
    with _checked_path(folder, "run.json") as path:
        run = json.loads(path.read_text(encoding="utf-8"))
        version = run["format"]
        if version != FORMAT_VERSION:
            message = (
                f"the run folder '{folder}' has format {version}; this version of relcrf reads format {FORMAT_VERSION}"
            )
            raise DataError(Diagnostic("E335", message, hint="use the relcrf version of the folder, or train again"))
        _require_unchanged(folder)
        backend = from_json_value(str, run["backend"])
        settings, chosen_settings = dict(run["settings"]), dict(run["chosen_settings"])
        summary, converged = dict(run["summary"]), bool(run["converged"])
        request = from_json_value(BackendRequest | None, run.get("request"))
        trials = tuple(map(_parse_trial, run.get("trials", [])))
        factor_statistics: tuple[TemplateStatistics, ...] = from_json_value(
            tuple[TemplateStatistics, ...], run.get("template_statistics", [])
        )
        formats: tuple[StoredFormat, ...] = from_json_value(tuple[StoredFormat, ...], run.get("formats", []))
        require_valid_formats(formats)
    with _checked_path(folder, "dictionaries.json") as path:
        dictionaries = json.loads(path.read_text(encoding="utf-8"))
        schema = _parse_schema(run, [dictionaries["keys"][template["name"]] for template in run["templates"]])
        schemas = {
            name: _parse_schema(run[name], dictionaries[f"{name}_keys"]) for name in SEPARATE_LAYOUTS if name in run
        }
        vocabulary = from_json_value(Mapping[str, tuple[str, ...]], dictionaries["domains"])
        numbers = from_json_value(Mapping[str, tuple[float, ...]], dictionaries.get("statistics", {}))
        statistics = {name: np.array(values) for name, values in numbers.items()}
        sizes = dict.fromkeys(("weights", *run["vectors"]), schema.layout.size)
        sizes |= {name: separate.layout.size for name, separate in schemas.items()}
    features = [_load_feature(folder, plain) for plain in run.get("learned_features", [])]
    with _checked_path(folder, "model.rcrf") as path:
        spec = parse(path.read_text(encoding="utf-8"), str(path))
        require_valid(spec)
    with _checked_path(folder, TABLES) as path:
        mapping = path.read_text(encoding="utf-8") if path.exists() else None
        is_applicable(mapping or "tables = {}", folder)  # raises an error if the file is damaged
    with _checked_path(folder, COLUMNS) as path:
        columns = _read_columns(path)
    with _checked_path(folder, CALIBRATION_LABELS) as path:
        sections = list(run.get("calibration_labels", []))
        n_labels = sum(from_json_value(int, section["labels"]) for section in sections)
        calibration_labels = parse_calibration_labels(sections, _read_floats(path, (4, n_labels))) if sections else {}
    vectors = {}
    for name, size in sorted(sizes.items()):
        with _checked_path(folder, f"{name}.npy") as path:
            vectors[name] = _read_floats(path, (size,))
    with _checked_path(folder, "log.jsonl") as path:
        log = tuple(_parse_log_entry(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())
    with _checked_path(folder, "moments.npy") as path:
        moments = _read_moments(path, schema.layout.size)
    with _checked_path(folder, "histograms.json") as path:
        histograms = _read_histograms(path)
    return LearnedModel(
        spec=spec,
        backend=backend,
        settings=settings,
        chosen_settings=chosen_settings,
        vectors=vectors,
        layout=schema.layout,
        templates=schema.templates,
        vocabulary=vocabulary,
        statistics=statistics,
        summary=summary,
        converged=converged,
        log=log,
        histograms=histograms,
        schemas=schemas,
        moments=moments,
        template_statistics=factor_statistics,
        request=request,
        trials=trials,
        mapping=mapping,
        formats=formats,
        learned_features=tuple(features),
        columns=columns,
        calibration_labels=calibration_labels,
    )


def _load_feature(folder: Path, plain: Mapping[str, Any]) -> FittedFeature:
    """Return a learned feature.

    Raises:
        UsageError: If scikit-learn or skops is not installed.
        DataError: If its file is damaged, or cannot be loaded safely.
    """
    with _checked_path(folder, storage.file_name(str(plain["name"]))) as path:
        content = path.read_bytes()
    with _checked_path(folder, "run.json"):
        return storage.from_json(plain, content)


def _require_unchanged(folder: Path) -> None:
    """Compare the hashes of the files with the manifest; a folder without a manifest is accepted.

    Raises:
        DataError: If a file has changed.
    """
    for name, expected in manifest_hashes(folder).items():
        with _checked_path(folder, name):
            if file_hashes(folder, [name])[name] != expected:
                raise ValueError("the content of the file does not match the manifest")


def manifest_hashes(folder: Path) -> dict[str, str]:
    """Return the hashes that the manifest contains, by file name; an empty dictionary without a manifest.

    Raises:
        DataError: If the manifest is damaged.
    """
    return {str(name): str(digest) for name, digest in _manifest(folder).get("files", {}).items()}


def load_provenance(folder: Path) -> Provenance | None:
    """Return the provenance of a run; None if the manifest contains no provenance or does not exist.

    Raises:
        DataError: If the manifest is damaged.
    """
    plain = _manifest(folder).get("provenance")
    with _checked_path(folder, MANIFEST):
        return None if plain is None else from_json_value(Provenance, plain)


def _manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a run folder; an empty dictionary if the file does not exist.

    Raises:
        DataError: If the manifest is damaged.
    """
    with _checked_path(folder, MANIFEST) as path:
        if not path.exists():
            return {}
        manifest = json.loads(path.read_text(encoding="utf-8"))
        return {"files": dict(manifest["files"]), "provenance": manifest["provenance"]}


@contextmanager
def _checked_path(folder: Path, name: str) -> Iterator[Path]:
    """Yield the path of a file in a run folder; a read error in the context is raised as DataError for this file.

    Raises:
        DataError: If the file is damaged, or `contained_path` rejects it.
    """
    path = contained_path(folder, name)
    try:
        yield path
    except READ_ERRORS as error:
        raise damaged_file_error(path, error) from None


def contained_path(folder: Path, name: str) -> Path:
    """Return the path of a file in a run folder from an untrusted source; the file may be missing.

    Raises:
        DataError: If the path leads out of the folder, is part of a cycle of links, or is not a regular file (reading a
            pipe or a device may block).
    """
    path = folder / name
    real = os.path.realpath(path)
    # `realpath` returns a link only if links form a cycle.
    if os.path.dirname(real) != os.path.realpath(folder) or os.path.islink(real):
        message = f"'{name}' points outside the run folder '{folder}'"
        raise DataError(Diagnostic("E421", message, DataLocation(str(path)), "train again, or copy the file there"))
    if path.exists() and not path.is_file():
        raise damaged_file_error(path, ValueError("the path is not a regular file"))
    return path


def _read_floats(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Read an array of floats.

    Raises:
        ValueError: If the array in the file has another shape or type.
    """
    column = open_column(path)
    if column.shape != shape or column.dtype != np.float64:
        raise ValueError(f"the file does not contain {' x '.join(map(str, shape))} numbers")
    return np.array(column)


def _parse_log_entry(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of the log with its values converted to the types that `CheckpointMonitor.step` writes."""
    names = ("iteration", "weights", "chosen") if "chosen" in plain else ("iteration", "weights")
    integers = {name: int(np.int64(plain[name])) for name in names}
    return {
        "stage": str(plain["stage"]),
        "value": float(plain["value"]),
        "gradient": float(plain["gradient"]),
        **integers,
    }


def load_timings(folder: Path) -> Timings:
    """Return the durations of the phases and steps of a training run.

    Raises:
        DataError: If `timings.json` is damaged.
    """
    with _checked_path(folder, "timings.json") as path:
        plain = json.loads(path.read_text(encoding="utf-8"))
        steps = parse_seconds(plain.pop("steps", ()))
        trials = tuple(float(seconds) for seconds in plain.pop("trials", ()))
        return Timings({str(name): float(seconds) for name, seconds in plain.items()}, tuple(steps), trials)


def _trial_to_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `LearnedModel.trials` without its time, which differs between runs, and without undefined scores."""
    return {
        name: value
        for name, value in row.items()
        if name != "seconds" and not (isinstance(value, float) and not math.isfinite(value))
    }


def _parse_trial(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial that `_trial_to_json` wrote."""
    types = {"backend": str, "settings": str, "rejected": str}
    required = {
        "backend": "",
        "settings": "",
        **({} if "rejected" in row else {"log_likelihood": 0.0, "accuracy": 0.0}),
    }
    if missing := required.keys() - row.keys():
        raise ValueError(f"a trial has no {listing(sorted(missing))}")
    return {name: from_json_value(types.get(name, float), value) for name, value in row.items()}


def _read_columns(path: Path) -> tuple[ColumnDistribution, ...]:
    """Read distributions of columns from a file; return an empty tuple if the file does not exist."""
    if not path.exists():
        return ()
    plain = json.loads(path.read_text(encoding="utf-8"))
    columns: tuple[ColumnDistribution, ...] = from_json_value(tuple[ColumnDistribution, ...], plain)
    for column in columns:
        column.require_valid()
    return columns


def _read_moments(path: Path, size: int) -> Moments | None:
    """Read moments from a file; return None if the file does not exist."""
    if not path.exists():
        return None
    rows = _read_floats(path, (3, size))
    if (rows[2] < 0.0).any():
        raise ValueError("a variance of the moments is negative")
    return Moments(*rows)


def _histograms_to_json(by_quantity: Mapping[str, Mapping[str, Histogram]]) -> dict[str, Any]:
    return {
        quantity: {phase: histogram.as_dict() for phase, histogram in by_phase.items()}
        for quantity, by_phase in by_quantity.items()
    }


def _read_histograms(path: Path) -> dict[str, dict[str, Histogram]]:
    """Read histograms from a file; return an empty dictionary if the file does not exist."""
    if not path.exists():
        return {}
    return {
        quantity: {phase: Histogram.from_dict(plain) for phase, plain in by_phase.items()}
        for quantity, by_phase in json.loads(path.read_text(encoding="utf-8")).items()
    }


def _schema_to_json(schema: WeightSchema) -> dict[str, Any]:
    return {
        "blocks": [asdict(block) for block in schema.layout.blocks],
        "templates": [template.as_dict() for template in schema.templates],
    }


def _keys_to_json(templates: Sequence[TemplateInfo]) -> list[dict[str, Any] | None]:
    return [None if template.keys is None else template.keys.as_dict() for template in templates]


def _parse_schema(plain: Mapping[str, Any], keys: Sequence[Mapping[str, Any] | None]) -> WeightSchema:
    """Return the schema with the JSON form `plain`; `keys` contains the JSON form of each template's keys.

    Raises:
        ValueError: If the size of a template differs from the size of its weight block.
        TypeError: If a size is not an integer.
    """
    layout = WeightLayout(from_json_value(tuple[WeightBlock, ...], plain["blocks"]))
    complete = [
        {**template, "keys": template_keys} for template, template_keys in zip(plain["templates"], keys, strict=True)
    ]
    templates: tuple[TemplateInfo, ...] = from_json_value(tuple[TemplateInfo, ...], complete)
    for info, block in zip(templates, layout.blocks, strict=True):
        n_features = len(info.features) * (1 if info.keys is None else len(info.keys.values))
        if (n_features, len(info.patterns)) != (block.n_features, block.n_patterns):
            sizes = f"{n_features} features and {len(info.patterns)} patterns"
            expected = f"{block.n_features} and {block.n_patterns}"
            raise ValueError(f"'{info.name}' has {sizes}, but its weight block has {expected}")
    return WeightSchema(layout, templates)
