"""The first contact with a cluster: a wrong address is an error within seconds and says what was tried.

Once a broker has answered, nothing is checked here any more: an unreachable broker is waited for.
"""

import errno
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from typing import Any
from urllib.parse import urlsplit

from headrace.client.errors import Unreachable
from headrace.client.threads import DaemonThreads
from headrace.security.tls.probe import speaks_tls

TIMEOUT_S = 2.5
ANSWER_FACTOR = 4
"""A broker that has accepted the connection exists: it may take so many times as long to answer, for it may be busy."""

_AGAIN_S = 0.1
_MOST_ADDRESSES = 16
_KAFKA_PORT = 9092
_HTTP_PORTS = {"http": 80, "https": 443}
_API_VERSIONS = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"
"""A request that any broker answers to anyone: its size, API 18, version 0, correlation id 7, no client id."""
_METADATA = b"\x00\x00\x00\x0f\x00\x03\x00\x04\x00\x00\x00\x07\xff\xff\x00\x00\x00\x00\x00"
"""API 3, version 4, no topics: the brokers only."""
_CORRELATION_ID = b"\x00\x00\x00\x07"
_TLS_ALERT = b"\x15\x03"
_MOST_ANSWER_BYTES = 1024 * 1024

Address = tuple[str, int]
Probe = Callable[[Address, float], None]
"""Returns if the address answers; raises `OSError`, or `NotABroker`. The seconds are those to connect in."""


class NotABroker(Exception):
    """The peer is not a broker: a retry cannot help."""


class SilentBroker(OSError):
    """The connection was accepted, but there is no answer: a retry would take as long again."""


class FirstContact:
    """Checks once that a broker is reachable: `make` returns at once after the first success. Thread-safe."""

    def __init__(self, where: str, addresses: Sequence[Address], probe: Probe, timeout_s: float, advice: str) -> None:
        self._where = where
        self._addresses = addresses[:_MOST_ADDRESSES]
        self._probe = probe
        self._timeout_s = timeout_s
        self._advice = advice
        self._lock = threading.Lock()
        self._is_made = not addresses

    def make(self) -> None:
        """Try all addresses until one answers. Raises `Unreachable` when none does within the time."""
        if self._is_made:
            return
        with self._lock:
            if not self._is_made:
                self._try()
                self._is_made = True

    def _try(self) -> None:
        began_s = time.monotonic()
        give_up_at_s = began_s + self._timeout_s
        reasons: dict[Address, str] = {}
        threads = DaemonThreads(len(self._addresses), "headrace-contact")
        try:
            while (left_s := give_up_at_s - time.monotonic()) > 0:
                if self._try_once(threads, reasons, left_s):
                    return
                time.sleep(max(0.0, min(_AGAIN_S, give_up_at_s - time.monotonic())))
        finally:
            threads.shutdown(wait=False)
        self._fail(reasons, f"after {round(time.monotonic() - began_s, 1):g} seconds")

    def _try_once(self, threads: DaemonThreads, reasons: dict[Address, str], left_s: float) -> bool:
        tries = {threads.submit(self._probe, each, left_s): each for each in self._addresses}
        others = 0
        try:
            for done in as_completed(tries, timeout=(1 + ANSWER_FACTOR) * left_s):
                error = done.exception()
                if error is None:
                    return True
                others += isinstance(error, NotABroker)
                reasons[tries[done]] = _words(error, tries[done])
        except TimeoutError:
            for each in tries.values():
                reasons.setdefault(each, "no answer")
        if others == len(self._addresses):
            self._fail(reasons, "")
        return False

    def _fail(self, reasons: Mapping[Address, str], when: str) -> None:
        failures = ", ".join(f"{_text(each)}: {reasons.get(each, 'no answer')}" for each in self._addresses)
        raise Unreachable(f"no broker answers at {self._where}{when and ' '}{when} ({failures}). {self._advice}")


def kafka_contact(bootstrap: str, settings: Mapping[str, Any], timeout_s: float) -> FirstContact:
    """Contact over the Kafka protocol; with TLS or SASL, no more than that the port is open (see `SecureContact`)."""
    where = str(settings.get("bootstrap.servers") or settings.get("metadata.broker.list") or bootstrap)
    advice = (
        "Is a broker running there? `headrace serve` starts one on localhost:9092; Client('HOST:PORT') says where "
        f"it is, `headrace doctor --bootstrap {where}` finds out more, and Client(connect_timeout=60) waits longer"
    )
    return FirstContact(
        where, kafka_addresses(where), connect if is_secure(settings) else ask_broker, timeout_s, advice
    )


def is_secure(settings: Mapping[str, Any]) -> bool:
    """Whether settings of librdkafka ask for TLS or SASL."""
    return str(settings.get("security.protocol", "plaintext")).lower() != "plaintext"


def http_contact(urls: Sequence[str], timeout_s: float) -> FirstContact:
    """Contact with the addresses that a user gave for queues: that the port is open."""
    addresses = []
    for each in urls:
        parts = urlsplit(each if "//" in each else f"http://{each}")
        if parts.hostname:
            addresses.append((parts.hostname, parts.port or _HTTP_PORTS.get(parts.scheme, 80)))
    advice = "Client(http=…) is the address for queues (`http.listen` of the broker); without it the broker is asked"
    return FirstContact(",".join(urls), addresses, connect, timeout_s, advice)


def kafka_addresses(bootstrap: str) -> list[Address]:
    """The addresses of `bootstrap.servers`. Those that cannot be understood are left to librdkafka."""
    found = []
    for each in bootstrap.split(","):
        try:
            parts = urlsplit("//" + each.strip().rpartition("//")[2])
            if parts.hostname:
                found.append((parts.hostname, parts.port or _KAFKA_PORT))
        except ValueError:
            continue
    return found


def connect(address: Address, timeout_s: float) -> None:
    socket.create_connection(address, timeout_s).close()


def ask_broker(address: Address, timeout_s: float) -> None:
    """Ask which versions of the Kafka protocol it speaks, then for its metadata, for which it may require a login."""
    with socket.create_connection(address, timeout_s) as connection:
        connection.settimeout(ANSWER_FACTOR * timeout_s)
        if not _is_answered(connection, _API_VERSIONS):
            if speaks_tls(*address, timeout_s):
                raise NotABroker("it expects TLS: Client(tls=True), or tls= with the CA file of its certificate")
            raise ConnectionResetError(errno.ECONNRESET, "it closes the connection")
        if not _is_answered(connection, _METADATA):
            text = "it closes the connection; does it expect a user (Client(user=…, password=…))?"
            raise ConnectionResetError(errno.ECONNRESET, text)


def _is_answered(connection: socket.socket, request: bytes) -> bool:
    """Whether there is an answer; False if the connection is closed, or TLS is expected."""
    connection.sendall(request)
    head = _received(connection, 8)
    if len(head) < 8 or head.startswith(_TLS_ALERT):
        return False
    size = int.from_bytes(head[:4])
    if head[4:] != _CORRELATION_ID or not 6 <= size <= _MOST_ANSWER_BYTES:
        raise NotABroker("what answers there does not speak the Kafka protocol; is it the port of something else?")
    _received(connection, size - 4)
    return True


def _received(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer if the connection ends."""
    found = b""
    while len(found) < size:
        try:
            data = connection.recv(size - len(found))
        except ConnectionResetError:
            data = b""
        except TimeoutError:
            raise SilentBroker(errno.ETIMEDOUT, "it accepts connections, but does not answer") from None
        if not data:
            break
        found += data
    return found


def _words(error: BaseException, address: Address) -> str:
    if isinstance(error, socket.gaierror):
        return f"the host name {address[0]} is not known"
    if isinstance(error, TimeoutError):
        return "no answer"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
