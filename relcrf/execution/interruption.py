"""Interruption of running queries from another thread. Python runs signal handlers only when a query has ended."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Protocol, TypeVar

INTERRUPT_MERGE_SECONDS = 0.3
"""Seconds during which several SIGINT count as one: `timeout` sends it to the process group and to the supervisor, which
forwards it."""


class Interruptible(Protocol):
    """A connection whose query another thread can interrupt."""

    def interrupt(self) -> None:
        """Interrupt the running query; without one, do nothing."""


C = TypeVar("C", bound=Interruptible)

_connections: dict[int, weakref.ref[Interruptible]] = {}
"""The living connections of all databases, by identity."""


def register_connection(connection: C) -> C:
    """Let `interrupt_queries` interrupt the queries of a connection as long as it exists, and return the connection."""
    key = id(connection)
    _connections[key] = weakref.ref(connection, lambda reference: _connections.pop(key, None))
    return connection


def interrupt_queries() -> None:
    """Interrupt the running queries of all connections; they raise the error of their database."""
    for reference in tuple(_connections.values()):
        connection = reference()
        if connection is not None:
            with suppress(Exception):  # the connection was closed by its thread
                connection.interrupt()
