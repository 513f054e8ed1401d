"""A PostgreSQL server of the tests' own, from Debian's package, in a directory that goes away."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from headrace.testing.etcd import free_port

USER = "headrace"


def binaries() -> Path | None:
    """Where initdb and postgres are, of the newest version there is."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def unprivileged() -> list[str]:
    """What to put before a command so that root does not run it: PostgreSQL refuses to be run by root."""
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []


@contextmanager
def server() -> Iterator[str]:
    """A running server; its URL."""
    where = binaries()
    assert where is not None
    # Not below pytest's own folders: each run of pytest closes them to other users, also under those that go on.
    directory = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    data = directory / "pg"
    data.mkdir()
    if os.getuid() == 0:
        directory.chmod(0o755)
        os.chown(data, 65534, 65534)
    initdb = [*unprivileged(), str(where / "initdb"), "-D", str(data), "-U", USER]
    initdb += ["-A", "trust", "-N", "--no-instructions"]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, timeout=240, cwd="/")
    port = free_port()
    settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"]
    process = subprocess.Popen(
        [*unprivileged(), where / "postgres", "-D", data, "-p", str(port), *settings],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )
    url = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
    try:
        _wait(process, url)
        yield url
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(60)
        shutil.rmtree(directory, ignore_errors=True)


def _wait(process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        try:
            psycopg.connect(url, connect_timeout=30).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"PostgreSQL did not start; its exit code is {process.poll()}")
