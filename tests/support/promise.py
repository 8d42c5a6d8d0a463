"""Requirements for every input: relcrf returns a result or printable diagnostics, within a time limit."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from relcrf.errors import RelcrfError

SECONDS = 60.0
"""Maximum processor time in seconds for a small input, a hundred times that of the slowest one."""

EXIT_CODES = frozenset({0, 2, 3, 4, 130, 141})


class InputTimeout(BaseException):
    """An input exceeds the time limit; not an Exception, so that no handler treats it as an error of the input."""


@contextmanager
def allow_diagnostics() -> Iterator[None]:
    """Allow exceptions of relcrf with valid diagnostics; all other exceptions propagate."""

    def late(*_: object) -> None:
        raise InputTimeout(f"no answer in {SECONDS:.0f} s of the processor")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    except RelcrfError as error:
        require_valid_error(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def require_valid_error(error: RelcrfError) -> None:
    """Assert that an error has diagnostics with codes and without terminal control sequences."""
    assert error.exit_code in EXIT_CODES - {0}
    assert error.diagnostics
    for diagnostic in error.diagnostics:
        assert diagnostic.code[0] in "EW" and diagnostic.message
        require_printable(diagnostic.render())
        json.dumps(diagnostic.as_dict())


def require_printable(text: str) -> None:
    """Assert that a text for a terminal has no escape sequences, direction marks or surrogates."""
    wrong = {c for c in text if not c.isprintable() and c not in "\n\t\u00a0\u200c\u200d\u3000"}
    assert not wrong, f"{text!r} has {sorted(map(ascii, wrong))}"
