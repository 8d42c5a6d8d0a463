"""The serve command."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Annotated, Any

import typer

from relcrf.cli.flat_options import ManifestOption
from relcrf.cli.options import OverrideSetOption, RunArgument, run_manifest
from relcrf.cli.output import parse_settings, print_line, print_note
from relcrf.data.extras import require_extra
from relcrf.data.store import parse_size


class _NoteHandler(logging.Handler):
    """A handler that prints log records as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        print_note(self.format(record))


def serve(
    run: RunArgument,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="INT", min=0, max=65535, help="Port; 0: a free one.")] = 8000,
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", metavar="SOURCE", help="Tables for the web page and for explanations by name."),
    ] = None,
    manifest: ManifestOption = None,
    setting: OverrideSetOption = None,
    max_body: Annotated[
        str, typer.Option("--max-body", metavar="SIZE", help="Maximum size of a request, e.g. 500KB.")
    ] = "1MB",
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.001, max=1e6, help="Time limit of a request.")
    ] = 30.0,
    batch: Annotated[
        int, typer.Option("--batch", metavar="INT", min=1, help="Maximum number of predictions computed at once.")
    ] = 32,
    queue: Annotated[
        int, typer.Option("--queue", metavar="INT", min=1, help="Maximum number of requests that wait.")
    ] = 256,
) -> None:
    """Serve predictions and explanations of a run over HTTP, with a web page if --data is given.

    Example: relcrf serve runs/web --data web --port 8000
    """
    for package in ("starlette", "uvicorn"):
        require_extra(package, "serve", "relcrf serve")
    service: Any = import_module("relcrf.serving.service")  # imported here, because the dependencies are optional
    server: Any = import_module("relcrf.serving.server")
    for name, level in (("relcrf.serving", logging.WARNING), ("uvicorn.error", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [_NoteHandler(level)], False
    limits = service.ServiceLimits(parse_size(max_body), timeout, batch, queue)
    app = service.create_app(
        run,
        data=data,
        manifest=None if data is None else run_manifest(run, data, manifest),
        limits=limits,
        hosts=server.accepted_hosts(host),
        settings=parse_settings(setting),
        owns_process=True,
    )
    listener = server.open_socket(host, port)
    if not server.is_loopback(host):
        print_note("the service has no authentication: everyone who can reach this address can use it")
    url = f"http://{server.url_host(host)}:{listener.getsockname()[1]}"
    server.serve(app, listener, timeout, lambda: print_line(f"serving {run} on {url}; stop with Ctrl-C"))
    print_line("stopped; all requests are answered")
