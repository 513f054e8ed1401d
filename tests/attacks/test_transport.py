"""The wrong protocol on a port: it is refused quickly, with few lines in the log and no traceback."""

import logging
import socket
import ssl
import struct
import time
from collections.abc import Iterator

import pytest

from headrace.testing import Broker
from tests.interop.raw_client import API_VERSIONS, Error, encode

from .wire import PASSWORD, Client, trusting

_BODY = {"client_software_name": "wire", "client_software_version": "1"}
_REQUEST = encode(API_VERSIONS, 3, _BODY, correlation_id=7)
API_VERSIONS_FRAME = struct.pack(">i", len(_REQUEST)) + _REQUEST
SOON_S = 5.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(tls=True, users={"alice": PASSWORD}) as running:
        yield running


@pytest.fixture(scope="module")
def plain() -> Iterator[Broker]:
    with Broker(users={"alice": PASSWORD}) as running:
        yield running


@pytest.mark.parametrize(
    "garbage",
    [
        API_VERSIONS_FRAME,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 1000,
        b"\xff" * 70_000,
        b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000,
        b"\x80\x2e\x01\x03\x00" + b"\x00" * 43,
    ],
    ids=["kafka", "http", "zeros", "ones", "long record", "sslv2"],
)
def test_bytes_that_are_no_tls_end_the_connection(
    broker: Broker, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clients = [Client(broker.bootstrap) for _ in range(20)]
    try:
        for client in clients:
            client.send_bytes(garbage)
        assert all(client.wait_closed(SOON_S) for client in clients)
    finally:
        for client in clients:
            client.close()
    # One at once, and one with the number of the others for each second that it took.
    lines = [record for record in caplog.records if "handshake" in record.getMessage()]
    assert len(lines) <= 3, caplog.text
    assert "Traceback" not in caplog.text


def test_garbage_in_an_encrypted_connection_ends_it(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with Client(broker.bootstrap, trusting(broker)) as client:
        assert client.call(API_VERSIONS, 3, _BODY).error_code == Error.none
        with socket.socket(fileno=socket.dup(client.raw_socket.fileno())) as beneath:
            beneath.sendall(b"\x17\x03\x03\x00\x20" + b"\x00" * 32)
            assert _ends(beneath)
    assert "Traceback" not in caplog.text


def test_tls_on_a_port_without_it(plain: Broker, caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    before = time.monotonic()
    with pytest.raises((ssl.SSLError, OSError)):
        Client(plain.bootstrap, context)
    assert time.monotonic() - before < SOON_S
    assert "Traceback" not in caplog.text


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_of_tls_are_refused(broker: Broker, version: ssl.TLSVersion) -> None:
    context = trusting(broker)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        Client(broker.bootstrap, context)


def test_sslv3_is_refused(broker: Broker) -> None:
    hello = b"\x03\x00" + bytes(32) + b"\x00" + b"\x00\x02\x00\x2f" + b"\x01\x00"
    handshake = b"\x01" + len(hello).to_bytes(3, "big") + hello
    with Client(broker.bootstrap) as client:
        client.send_bytes(b"\x16\x03\x00" + struct.pack(">H", len(handshake)) + handshake)
        alert = client.raw_socket.recv(7)
        assert alert[:1] == b"\x15"
        assert alert[5] == 2, "a fatal alert"
        assert client.wait_closed(SOON_S)


def test_a_request_in_the_same_segment_as_the_handshakes_end(broker: Broker) -> None:
    """No attack: a quick client's first request must not be lost between the handshake and the connection."""
    context = trusting(broker)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=broker.host)
    with Client(broker.bootstrap) as client:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                client.send_bytes(outgoing.read())
                incoming.write(client.raw_socket.recv(1 << 16))
        tls.write(API_VERSIONS_FRAME)
        client.send_bytes(outgoing.read())
        answer = b""
        while len(answer) < 8:
            try:
                answer += tls.read(1 << 16)
            except ssl.SSLWantReadError:
                incoming.write(client.raw_socket.recv(1 << 16))
        assert answer[4:8] == struct.pack(">i", 7)


def _ends(connection: socket.socket) -> bool:
    connection.settimeout(SOON_S)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True
