"""What relcrf promises of any input: an answer, or diagnostics that can be shown; in time."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from relcrf.errors import RelcrfError

SECONDS = 60.0
"""Of the processor, within which any small input has its answer: a hundred times what the slowest takes."""

EXIT_CODES = frozenset({0, 2, 3, 4, 130, 141})


class Overdue(BaseException):
    """An input takes far longer than it should: no `except Exception` on the way may take it for a mistake of the input."""


@contextmanager
def kept() -> Iterator[None]:
    """Lets diagnostics of relcrf pass that are as they should be; everything else that is raised breaks the promise."""

    def late(*_: object) -> None:
        raise Overdue(f"no answer in {SECONDS:.0f} s of the processor")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    except RelcrfError as error:
        require_shown(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def require_shown(error: RelcrfError) -> None:
    """Whether the diagnostics are some, have codes, and show nothing that a terminal would take for a command."""
    assert error.exit_code in EXIT_CODES - {0}
    assert error.diagnostics
    for diagnostic in error.diagnostics:
        assert diagnostic.code[0] in "EW" and diagnostic.message
        url_problem(diagnostic.render())
        json.dumps(diagnostic.as_dict())


def url_problem(text: str) -> None:
    """Whether a text for a terminal has no escapes, marks of direction or halves of characters."""
    wrong = {c for c in text if not c.isprintable() and c not in "\n\t\u00a0\u200c\u200d\u3000"}
    assert not wrong, f"{text!r} has {sorted(map(ascii, wrong))}"
