"""The buffers of accepted connections: `socket.send.buffer.bytes` and `socket.receive.buffer.bytes`."""

import os
import socket
import stat
from contextlib import suppress

import pytest

from headrace.testing import Broker
from tests.waiting import until


def accepted(client: socket.socket) -> socket.socket:
    """A duplicate of the broker's end of the connection, which is in this process."""
    peer = client.getsockname()
    found = until(lambda: [each for fd in os.listdir("/proc/self/fd") if (each := _connected_to(peer, int(fd)))])
    return found[0]


def _connected_to(peer: object, fd: int) -> socket.socket | None:
    with suppress(OSError):  # closed meanwhile, or not connected
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            with socket.socket(fileno=os.dup(fd)) as found:
                if found.getpeername() == peer:
                    return found.dup()
    return None


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_has_the_buffers_of_the_settings(tls: bool) -> None:
    settings = {"socket.send.buffer.bytes": 70_000, "socket.receive.buffer.bytes": 50_000}
    with Broker(settings=settings, tls=tls) as broker:
        host, port = broker.bootstrap.split(":")
        with socket.create_connection((host, int(port))) as client, accepted(client) as server:
            # Linux doubles what is set, for its own needs.
            assert server.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 140_000
            assert server.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 100_000


def test_minus_one_leaves_the_size_to_the_operating_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as untouched:
        size = untouched.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    with Broker(settings={"socket.send.buffer.bytes": -1}) as broker:
        host, port = broker.bootstrap.split(":")
        with socket.create_connection((host, int(port))) as client, accepted(client) as server:
            assert server.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= size
