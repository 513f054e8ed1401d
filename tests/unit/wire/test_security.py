"""Connections that end without an answer: retried, unless the server shows that it expects TLS or a user."""

import socket
import struct

import pytest

from headrace.wire import (
    AuthenticationFailed,
    BrokerUnreachable,
    Cluster,
    Credentials,
    Timeouts,
    TlsFailed,
    WireError,
)

from .test_misbehaving import server

ONCE = Timeouts(connect_s=60, request_s=60, patience_s=0.0)
ALERT = b"\x15\x03\x03\x00\x02\x02\x28"
API_VERSIONS, SASL_HANDSHAKE = 18, 17


def failure(bootstrap: str, **credentials: object) -> WireError:
    given = Credentials(**credentials)  # type: ignore[arg-type]
    with pytest.raises(WireError) as caught, Cluster(bootstrap, timeouts=ONCE, credentials=given) as cluster:
        cluster.metadata(())
    return caught.value


def closing(connection: socket.socket) -> None:
    connection.recv(4096)


def test_a_server_that_only_hangs_up_may_be_one_that_restarts() -> None:
    with server(closing) as address:
        assert isinstance(failure(address), BrokerUnreachable)
        assert isinstance(failure(address, tls=True), BrokerUnreachable)
        assert isinstance(failure(address, user="alice", password="hunter2"), BrokerUnreachable)


def alerting(connection: socket.socket) -> None:
    """A server with TLS, which refuses what is not, and handshakes as well."""
    connection.recv(4096)
    connection.sendall(ALERT)


def test_an_alert_of_tls_is_recognised() -> None:
    with server(alerting) as address:
        error = failure(address)
        assert isinstance(error, TlsFailed)
        assert "expects TLS" in str(error)
        error = failure(address, tls=True)
        assert isinstance(error, TlsFailed)
        assert "handshake failure" in str(error)


def other(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_another_protocol_than_tls_is_no_reason_to_retry() -> None:
    with server(other) as address:
        error = failure(address, tls=True)
    assert isinstance(error, TlsFailed)
    assert "the TLS handshake with" in str(error)


def secured(connection: socket.socket) -> None:
    """A broker that answers nobody who has not logged in, and refuses every mechanism."""
    while len(head := connection.recv(4, socket.MSG_WAITALL)) == 4:
        request = connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
        key, version = struct.unpack_from(">hh", request)
        if key == API_VERSIONS and version > 0:
            body = struct.pack(">hi", 35, 0)
        elif key == API_VERSIONS:
            body = struct.pack(">hi", 0, 3) + b"".join(struct.pack(">hhh", each, 0, 4) for each in (3, 17, 18))
        elif key == SASL_HANDSHAKE:
            body = struct.pack(">hi", 33, 1) + struct.pack(">h", 7) + b"UNKNOWN"
        else:
            return
        answer = request[4:8] + body
        connection.sendall(struct.pack(">i", len(answer)) + answer)


def test_a_broker_that_wants_a_login_is_recognised() -> None:
    with server(secured) as address:
        error = failure(address)
        assert isinstance(error, AuthenticationFailed)
        assert "expects a user and a password, or a token (UNKNOWN)" in str(error)
        error = failure(address, user="alice", password="hunter2")
        assert isinstance(error, AuthenticationFailed)
        assert "SCRAM-SHA-512 is not enabled there; enabled: UNKNOWN" in str(error)
        assert "hunter2" not in str(error)
