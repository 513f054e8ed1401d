"""A real etcd for tests: one member on free ports of 127.0.0.1, which can be killed, paused and started again.

    with EtcdProcess() as etcd:
        broker = BrokerProcess(path, settings={"etcd.endpoints": etcd.endpoint})

It needs Debian's packages etcd-server and, for `ctl`, etcd-client; see `is_installed`.
"""

import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from headrace.testing.child import ChildProcess

_PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral ports: a port is still free when etcd is restarted on it."""
_ATTEMPTS = 10


def is_installed() -> bool:
    """True if etcd and etcdctl are installed."""
    return shutil.which("etcd") is not None and shutil.which("etcdctl") is not None


def free_port() -> int:
    """A free port that is not ephemeral, and that no other test process gets until it is bound: an abstract Unix socket
    reserves it for a while."""
    for _ in range(1_000):
        port = random.choice(_PORTS)
        with socket.socket() as candidate, socket.socket(socket.AF_UNIX) as claim:
            try:
                claim.bind(f"\0headrace-port-{port}")
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            if len(_CLAIMS) == _CLAIMED_AT_ONCE:
                os.close(_CLAIMS.popleft())
            _CLAIMS.append(claim.detach())
            return port
    raise RuntimeError("there is no free port for etcd")


_CLAIMS: deque[int] = deque()
_CLAIMED_AT_ONCE = 32


class EtcdProcess(ChildProcess):
    """An etcd of one member. The ports and the data stay the same over restarts.

    `data_dir` is a temporary directory unless one is given. `args` are passed on to etcd as they are; with TLS,
    `scheme` is https and the caller passes the certificates. `prefix` is put before the command, to run it elsewhere:
    `["ip", "netns", "exec", "e1"]`, where `host` is its address.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        host: str = "127.0.0.1",
        args: Sequence[str] = (),
        scheme: str = "http",
        name: str = "test",
        prefix: Sequence[str] = (),
    ) -> None:
        super().__init__("etcd")
        self._temporary = tempfile.TemporaryDirectory(prefix="headrace-etcd-") if data_dir is None else None
        self.data_dir = Path(self._temporary.name) if self._temporary is not None else data_dir or Path()
        self.host = host
        self.name = name
        self.args = list(args)
        self.scheme = scheme
        self.prefix = list(prefix)
        self.port = 0
        self._peer_port = 0
        self._together: Sequence[EtcdProcess] = (self,)

    @property
    def endpoint(self) -> str:
        """HOST:PORT, as the setting etcd.endpoints takes it."""
        return f"{self.host}:{self.port}"

    @property
    def as_member(self) -> str:
        """NAME=URL, as etcd lists the members of a cluster."""
        return f"{self.name}=http://127.0.0.1:{self._peer_port}"

    def start(self, timeout_s: float = 60.0) -> Self:
        """Returns when etcd answers."""
        is_first = not self.port
        for attempt in range(_ATTEMPTS):
            if is_first:
                self.port, self._peer_port = free_port(), free_port()
            self.launch()
            if self._wait_until_ready(time.monotonic() + timeout_s):
                return self
            self.kill()
            if not is_first or attempt == _ATTEMPTS - 1 or "address already in use" not in self.stderr:
                break
        raise RuntimeError(f"etcd did not get ready; it printed:\n{self.stderr}")

    def launch(self) -> None:
        """Start the process without waiting until it is ready: a member of several is not before the others run."""
        self._spawn(self._command(), stdout=subprocess.DEVNULL)

    def wait_until_ready(self, timeout_s: float = 60.0) -> None:
        if not self._wait_until_ready(time.monotonic() + timeout_s):
            raise RuntimeError(f"etcd did not get ready; it printed:\n{self.stderr}")

    def _command(self) -> list[str]:
        client, peer = f"{self.scheme}://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        return [
            *self.prefix,
            "etcd",
            f"--name={self.name}",
            f"--data-dir={self.data_dir / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={','.join(member.as_member for member in self._together)}",
            "--logger=zap",
            "--log-level=warn",
            *self.args,
        ]

    def _wait_until_ready(self, deadline: float) -> bool:
        """Poll until etcd is healthy. With TLS a bound port suffices: the caller may have no client certificate."""
        opener = build_opener(ProxyHandler({}))
        while self.is_running and time.monotonic() < deadline:
            try:
                if self.scheme == "https":
                    socket.create_connection((self.host, self.port), 1).close()
                    return True
                with opener.open(f"http://{self.endpoint}/health", timeout=5) as answer:
                    if b'"true"' in answer.read():
                        return True
            except (OSError, URLError):
                time.sleep(0.02)
        return False

    def restart(self) -> Self:
        """kill -9 and start again, on the same port with the same data."""
        self.kill()
        return self.start()

    def ctl(self, *args: str, timeout_s: float = 60.0) -> str:
        """Run etcdctl with these arguments and return its output."""
        patience = [f"--command-timeout={timeout_s:g}s", f"--dial-timeout={timeout_s:g}s"]
        command = ["etcdctl", f"--endpoints={self.scheme}://{self.endpoint}", *patience, *args]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=2 * timeout_s, env=environment
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")
        return done.stdout

    def compact(self) -> None:
        """Compact the history up to now, as etcd does periodically."""
        revision = self.ctl("get", "/", "--write-out=fields").split('"Revision" :')[1].split()[0]
        self.ctl("compact", revision, "--physical")

    def close(self) -> None:
        """Kill it and release its resources."""
        super().close()
        if self._temporary is not None:
            self._temporary.cleanup()


class EtcdCluster:
    """An etcd of several members, each an `EtcdProcess` to be killed and paused."""

    def __init__(self, size: int = 3) -> None:
        self.members = [EtcdProcess(name=f"member{number}") for number in range(size)]

    @property
    def endpoints(self) -> str:
        """As the setting etcd.endpoints takes them."""
        return ",".join(member.endpoint for member in self.members)

    def __enter__(self) -> Self:
        for member in self.members:
            member.port, member._peer_port = free_port(), free_port()
            member._together = self.members
        try:
            for member in self.members:
                member.launch()
            for member in self.members:
                member.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for member in self.members:
            member.close()
