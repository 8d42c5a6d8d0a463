"""Output of tables to files."""

from __future__ import annotations

from pathlib import Path

from relcrf.data.frame import Frame


def write_frame(frame: Frame, out: Path, *, safe_csv: bool, sync: bool) -> list[str]:
    """Write a table to a file atomically, and return notes on texts that spreadsheets would execute.

    Args:
        safe_csv: Whether such texts are escaped in text files.
        sync: See `Frame.write`.
    """
    is_csv = out.suffix in (".csv", ".tsv")
    (frame.without_formulas() if safe_csv and is_csv else frame).write(out, sync=sync)
    cells = frame.formula_cells() if is_csv and not safe_csv else []
    if not cells:
        return []
    texts = f"{len(cells):,} text{'s' * (len(cells) > 1)}, such as {cells[0][:40]!r}"
    return [f"spreadsheets execute {texts}, in '{out}' as formulas; see --safe-csv"]
