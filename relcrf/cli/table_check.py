"""The part of the check command that checks tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from relcrf import api
from relcrf.cli.check import LoadedModel
from relcrf.cli.output import print_json, print_line, print_note, print_warnings
from relcrf.data.dataset import Dataset


def check_tables(
    models: Sequence[LoadedModel], data: str, *, manifest: Path | None, memory: str, as_json: bool
) -> None:
    """Check tables against each model, and print the results."""
    dataset = Dataset(data, manifest=manifest, memory=memory)
    checks = [api.Model(model.spec, tuple(model.warnings)).check_tables(dataset) for model in models]
    if as_json:
        tables = [asdict(table) for checked in checks for table in checked.tables]
        warnings = [warning.as_dict() for checked in checks for warning in checked.warnings]
        print_json(
            {"errors": [], "warnings": warnings, "notes": [n for c in checks for n in c.notes], "tables": tables}
        )
        return
    for model, checked in zip(models, checks, strict=True):
        _print_check(model, checked)


def _print_check(model: LoadedModel, checked: api.TableCheck) -> None:
    print_warnings(checked.warnings)
    for table in checked.tables:
        print_line(str(table))
    formats = tuple(f"{table.location}: read with" for table in checked.tables)  # the lines of the tables contain these
    for text in checked.notes:
        if not text.startswith(formats):
            print_note(text)
    model.print_summary()
