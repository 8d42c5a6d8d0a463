"""The Uvicorn server of `relcrf serve`. It requires the extra `serve`."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import FrameType

from starlette.types import ASGIApp
from uvicorn import Config, Server

from relcrf.errors import Diagnostic, UsageError
from relcrf.execution.interruption import INTERRUPT_MERGE_SECONDS

_STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""Signals after which the server stops, as far as the system has them."""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Return True if only programs of the same machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_host(host: str) -> str:
    """Return an address as it is written in URLs, in which an IPv6 address is in brackets."""
    return f"[{host}]" if ":" in host else host


def accepted_hosts(host: str) -> tuple[str, ...]:
    """Return the host names of requests that a service on an address should accept; see `service.create_app`."""
    return tuple(dict.fromkeys((*LOOPBACK_NAMES, url_host(host).lower()))) if is_loopback(host) else ()


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        UsageError: The name is unknown, or the address is in use or not permitted (E463).
    """
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)  # with the protocol, asyncio sends answers without delay
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1024)
        except BaseException:
            listener.close()
            raise
        return listener
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        message = f"the service cannot listen on {host}, port {port}: {reason}"
        raise UsageError(Diagnostic("E463", message, hint="choose another --host or --port")) from None


def serve(app: ASGIApp, listener: socket.socket, shutdown_seconds: float, on_start: Callable[[], None]) -> None:
    """Serve an application until SIGINT, SIGTERM or SIGHUP; requests in flight are answered first.

    Args:
        shutdown_seconds: Maximum time for the requests in flight.

    Raises:
        KeyboardInterrupt: The signal was SIGINT.
    """
    config = Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=max(1, round(shutdown_seconds)),
    )
    server = _GracefulServer(config, on_start)
    with closing(listener):
        asyncio.run(server.serve(sockets=[listener]))
    if signal.SIGINT in server.received:
        raise KeyboardInterrupt


class _GracefulServer(Server):
    """A server that records signals and does not send them again when it has shut down."""

    def __init__(self, config: Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start
        self.received: list[int] = []
        self._interrupted_at = math.inf
        """Time of the first SIGINT, in seconds of a monotonic clock."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals of the context; queries of requests in flight are not interrupted meanwhile."""
        wakeup = signal.set_wakeup_fd(-1)
        numbers = [getattr(signal, name) for name in _STOP_SIGNALS if hasattr(signal, name)]
        handlers = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after the requests in flight, or at once if a second SIGINT arrives later than the copies of the first."""
        self.received.append(sig)
        if sig == signal.SIGINT:
            now = time.monotonic()
            self._interrupted_at = min(self._interrupted_at, now)
            self.force_exit |= self.should_exit and now > self._interrupted_at + INTERRUPT_MERGE_SECONDS
        self.should_exit = True
