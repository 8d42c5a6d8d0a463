"""A PostgreSQL server for tests, from Debian's package; the fixture `postgres` skips tests if it is not installed.

def test_something(postgres):
    url = postgres.new_database()
    with psycopg.connect(url) as connection: ...
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import LiteralString

import pytest

SECONDS = 600
"""Timeout of a command of the server; it usually takes a few seconds."""


class PostgresServer:
    """A running server on a port of this machine, reached without a password.

    Args:
        binaries: the folder of `initdb` and `pg_ctl`.
        folder: the data folder; `stop` removes it.
        user: the account that runs the server if this process is root (PostgreSQL does not run as root), otherwise None.
    """

    def __init__(self, binaries: Path, folder: Path, user: str | None) -> None:
        self.binaries, self.folder, self.user = binaries, folder, user
        self.data = folder / "data"
        self._databases = count(1)
        if user is not None:
            shutil.chown(folder, user)
        self._run("initdb", "-D", self.data, "-U", "relcrf", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        log = folder / "log"
        self._run("pg_ctl", "-D", self.data, "-l", log, "-o", options, "-w", "-t", SECONDS, "start")

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self.binaries / program), *map(str, arguments)]
        if self.user is not None:
            command = ["runuser", "-u", self.user, "--", *command]
        # The server inherits file descriptors: a pipe would remain open as long as it runs.
        with (self.folder / "commands").open("a") as output:
            done = subprocess.run(command, cwd=self.folder, stdout=output, stderr=output, timeout=SECONDS)
        assert done.returncode == 0, (self.folder / "commands").read_text()

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database of this server."""
        return f"postgresql://relcrf@127.0.0.1:{self.port}/{database}"

    def new_database(self, options: LiteralString = "") -> str:
        """Create an empty database, with options of `CREATE DATABASE`, and return its URL."""
        psycopg = pytest.importorskip("psycopg")
        name = f"test{next(self._databases)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "-t", SECONDS, "stop")
        shutil.rmtree(self.folder)


def find_binaries() -> Path | None:
    """Return the folder of `initdb`: that of the newest Debian version, or one on the PATH; None if there is none."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = versions[-1] if versions else shutil.which("initdb")
    return Path(found).resolve().parent if found else None


@pytest.fixture(scope="session")
def postgres():
    """Return a `PostgresServer` for the whole test run."""
    pytest.importorskip("psycopg")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("needs a PostgreSQL server: no initdb in /usr/lib/postgresql and on the PATH")
    user = None
    if os.geteuid() == 0:
        if shutil.which("runuser") is None:
            pytest.skip("PostgreSQL does not run as root, and there is no runuser")
        accounts = {account.pw_name for account in pwd.getpwall()}
        user = "postgres" if "postgres" in accounts else "nobody"
    server = PostgresServer(binaries, Path(tempfile.mkdtemp(prefix="relcrf-postgres-")), user)
    yield server
    server.stop()
