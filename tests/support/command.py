"""Functions that run the `relcrf` command in the process of the test."""

from __future__ import annotations

import json
import sys


def relcrf_command(capsys, monkeypatch, *arguments):
    """Run the command; return its exit code, standard output and standard error."""
    from relcrf.cli.main import run

    monkeypatch.setattr(sys, "argv", ["relcrf", *map(str, arguments)])
    code = 0
    try:
        run()
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def json_command(capsys, monkeypatch, *arguments):
    """Run the command with --json; return its exit code and the object that it prints."""
    code, out, _ = relcrf_command(capsys, monkeypatch, *arguments, "--json")
    assert out.count("\n") == 1, out
    return code, json.loads(out)
