"""A check that every skipped test is expected; active if RELCRF_EXPECTED_SKIPS names a file with a list of reasons.

Each line of the list is a regular expression that matches a whole reason; lines that start with `#` are comments.
The skipped tests are printed by reason at the end of the run, which fails for a reason that is not in the list.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

LIST = "RELCRF_EXPECTED_SKIPS"


def reasons(reporter: pytest.TerminalReporter) -> Counter[str]:
    """Return the number of skipped tests by reason."""
    skipped = (report.longrepr for report in reporter.stats.get("skipped", []))
    return Counter(place[2].removeprefix("Skipped: ") for place in skipped)


def unexpected(found: Counter[str]) -> list[str]:
    """Return the reasons that are not in the list."""
    lines = Path(os.environ[LIST]).read_text(encoding="utf-8").splitlines()
    expected = [line for line in lines if line and not line.startswith("#")]
    return [reason for reason in sorted(found) if not any(re.fullmatch(one, reason) for one in expected)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if LIST not in os.environ:
        return
    found = reasons(terminalreporter)
    for reason, number in sorted(found.items()):
        terminalreporter.write_line(f"skipped {number}: {reason}")
    for reason in unexpected(found):
        terminalreporter.write_line(f"not expected in {os.environ[LIST]}: {reason}", red=True)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if LIST in os.environ and reporter is not None and unexpected(reasons(reporter)):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
