"""A thread that interrupts running queries when a signal arrives.

Python runs the handler of a signal in the main thread, and only when a running query has ended. The C code of Python writes a
byte to a socket immediately; the thread reads the other end. On Windows, Python can only write to and wait for sockets.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from relcrf.execution.interruption import interrupt_queries

INTERVAL = 0.05
"""Seconds until queries are interrupted, and interrupted again. Meanwhile the handler runs, if no query is running."""

_read_ends: list[socket.socket] = []
"""The read ends of the sockets of the active contexts."""

_handled_at = -1.0
"""The time at which a handler ran last."""


def acknowledge_signals() -> None:
    """Interrupt running queries for the last time for the signals received so far; to be called by their handlers.

    A handler may run within a query: DuckDB then ends the query with an error, but first waits for its tasks to end.
    """
    global _handled_at
    interrupt_queries()
    _handled_at = time.monotonic()
    for read_end in _read_ends:
        _drain(read_end)


def _drain(read_end: socket.socket) -> None:
    with suppress(BlockingIOError):
        while read_end.recv(4096):
            pass


@contextmanager
def watch_signals() -> Iterator[None]:
    """From the arrival of a signal until its handler calls `acknowledge_signals`, interrupt all queries repeatedly.

    An interruption that precedes the start of a query is lost; hence the repetition.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal handler runs in another thread
        return
    read_end, write_end = socket.socketpair()
    stop_read, stop_write = socket.socketpair()
    for end in (read_end, write_end):
        end.setblocking(False)
    thread = threading.Thread(target=_watch, args=(read_end, stop_read), name="relcrf-signals", daemon=True)
    _read_ends.append(read_end)
    previous = signal.set_wakeup_fd(write_end.fileno(), warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        stop_write.close()
        thread.join()
        _read_ends.remove(read_end)
        for end in (read_end, write_end, stop_read):
            end.close()


def _watch(read_end: socket.socket, stop: socket.socket) -> None:
    """Interrupt queries while a socket has bytes, until the other end of `stop` is closed."""
    while stop not in select.select([read_end, stop], [], [])[0]:
        if time.monotonic() - _handled_at < INTERVAL:  # the thread that received the signal wrote after the handler ran
            _drain(read_end)
        if not select.select([stop], [], [], INTERVAL)[0] and select.select([read_end], [], [], 0)[0]:
            interrupt_queries()
