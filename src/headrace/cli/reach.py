"""Checks that a broker is reachable before a client library is used, which would retry for seconds.

All addresses are tried at the same time, and all of it takes at most `ANSWER_WITHIN_S`, a slow DNS included. One that
accepts connections gets an ApiVersions request, which every Kafka broker answers, so that an HTTP or TLS server is
recognised; then one for metadata, which a broker with users does not answer. A broker that is too busy to answer in
time passes, and is left to the client. With credentials the command logs in instead, by `headrace.wire`.
"""

import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.config.address import parse_address
from headrace.config.client_connection import resolve_credentials
from headrace.config.credentials import Credentials
from headrace.model.errors import SettingsError
from headrace.model.image import Endpoint
from headrace.security.tls.probe import speaks_tls

CONNECT_TIMEOUT_S = 5.0
"""For a client that has reached a broker before."""
ANSWER_WITHIN_S = 2.0
_CORRELATION_ID = b"head"
_API_VERSIONS = struct.pack(">hh", 18, 0) + _CORRELATION_ID + struct.pack(">h", -1)
_METADATA = struct.pack(">hh", 3, 4) + _CORRELATION_ID + struct.pack(">hi?", -1, 0, False)
"""Version 4, no topics: the brokers only."""
_TLS_NEEDED = "set HEADRACE_TLS=true, or HEADRACE_CA_FILE to the CA of its certificate, or give --profile"
_USER_NEEDED = "it may expect a user; set HEADRACE_USER and HEADRACE_PASSWORD, or give --profile"
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")


class _NotKafka(Exception):
    """The peer is not a Kafka broker; the text says what it is."""


class _NeedsCredentials(_NotKafka):
    """The peer expects TLS, or a user."""


def check_reachable(bootstrap: str) -> None:
    """`CommandFailed` if no broker is at any of these addresses."""
    addresses = [_parsed(each) for each in bootstrap.split(",") if each.strip()]
    if not addresses:
        raise BadArgument("no broker is named: give --bootstrap HOST:PORT")
    credentials = resolve_credentials()
    reason = _first_success(_speaks_kafka if credentials.is_plain else _accepts_connections, addresses)
    if reason is None and not credentials.is_plain:
        _log_in(bootstrap, credentials)
    if isinstance(reason, _NeedsCredentials):
        raise CommandFailed(str(reason))
    if isinstance(reason, _NotKafka):
        raise CommandFailed(f"{reason}; give the address that Kafka clients use with --bootstrap, usually port 9092")
    if reason is not None:
        raise CommandFailed(unreachable_text(bootstrap))


def _log_in(bootstrap: str, credentials: Credentials) -> None:
    """`CommandFailed` if no broker lets us in; librdkafka would try for ever."""
    from headrace.wire import BrokerUnreachable, Cluster, Timeouts, WireError

    limits = Timeouts(ANSWER_WITHIN_S, CONNECT_TIMEOUT_S, 0.0)
    try:
        with Cluster(bootstrap, client_id="headrace-cli", timeouts=limits, credentials=credentials) as cluster:
            cluster.metadata(())
    except BrokerUnreachable:
        raise CommandFailed(unreachable_text(bootstrap)) from None
    except WireError as error:
        raise CommandFailed(str(error)) from None


def check_advertised(bootstrap: str, brokers: Iterable[Endpoint]) -> None:
    """`CommandFailed` if none of the addresses that the brokers tell clients to use accepts connections.

    A client uses those for everything but its first request, and would try them for half a minute.
    """
    advertised = list(brokers)
    dialled = {_parsed(each) for each in bootstrap.split(",") if each.strip()}
    if not advertised or not dialled.isdisjoint(advertised) or _first_success(_accepts_connections, advertised) is None:
        return
    addresses = ", ".join(map(str, advertised))
    raise CommandFailed(
        f"the broker at {bootstrap} tells clients to use {addresses}, where no broker answers from here: start it with "
        f"--advertise and an address that clients can reach; `headrace doctor --bootstrap {bootstrap}` tells more"
    )


def unreachable_text(bootstrap: str) -> str:
    return f"no broker answers at {bootstrap}; `headrace doctor --bootstrap {bootstrap}` finds out why"


def check_http_reachable(urls: str) -> None:
    """`CommandFailed` if none of these addresses of queues accepts connections."""
    addresses = [_parsed(_host_and_port(each.strip())) for each in urls.split(",") if each.strip()]
    if not addresses or _first_success(_accepts_connections, addresses) is not None:
        raise CommandFailed(f"no broker serves queues at {urls}; without --http and HEADRACE_HTTP the broker is asked")


def is_loopback(bootstrap: str) -> bool:
    """Whether a broker is on this machine, by its address."""
    hosts = [_parsed(each).host for each in bootstrap.split(",") if each.strip()]
    return any(host == "localhost" or host == "::1" or host.startswith("127.") for host in hosts)


def _parsed(address: str) -> Endpoint:
    try:
        found = parse_address(address.strip(), default_port=9092)
    except SettingsError as error:
        raise BadArgument(f"--bootstrap: {error}") from None
    if not found.host:
        raise BadArgument(f"--bootstrap {address} names no host: write localhost:{found.port}")
    return found


def _host_and_port(url: str) -> str:
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.port is not None or parts.scheme not in ("http", "https"):
        return parts.netloc
    return f"{parts.netloc}:{443 if parts.scheme == 'https' else 80}"


def _first_success(attempt: Callable[[Endpoint], None], addresses: Iterable[Endpoint]) -> Exception | None:
    """None as soon as one attempt succeeds; otherwise why not, at the latest after `ANSWER_WITHIN_S`.

    In threads of their own, since looking up a name cannot be interrupted; the process does not wait for them.
    """
    results: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def run(address: Endpoint) -> None:
        try:
            attempt(address)
        except (OSError, UnicodeError, _NotKafka) as error:
            results.put(error)
        else:
            results.put(None)

    threads = [threading.Thread(target=run, args=(each,), daemon=True) for each in addresses]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + ANSWER_WITHIN_S + 0.2
    reason: Exception = TimeoutError()
    for _ in threads:
        try:
            found = results.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            return reason
        if found is None:
            return None
        # What is known of one that answers says more than that another does not.
        reason = found if not isinstance(reason, _NotKafka) else reason
    return reason


def _accepts_connections(address: Endpoint) -> None:
    socket.create_connection((address.host, address.port), ANSWER_WITHIN_S).close()


def _speaks_kafka(address: Endpoint) -> None:
    with socket.create_connection((address.host, address.port), ANSWER_WITHIN_S) as connection:
        try:
            connection.settimeout(ANSWER_WITHIN_S / 2)
            answer = _answer_to(connection, _API_VERSIONS)
            if answer[4:] == _CORRELATION_ID:
                _received(connection, int.from_bytes(answer[:4]) - 4)
                if not _answer_to(connection, _METADATA):
                    raise _NeedsCredentials(f"{address} closes the connection: {_USER_NEEDED}")
        except TimeoutError:
            return  # It listens, and may be a broker that is busy: the client will find out.
        except OSError:
            answer = b""
    if answer[4:] == _CORRELATION_ID:
        return
    if answer.startswith(b"HTTP"):
        raise _NotKafka(f"{address} is an HTTP server and not a Kafka broker")
    if answer.startswith(_TLS_RECORDS) or (not answer and speaks_tls(address.host, address.port, ANSWER_WITHIN_S / 2)):
        raise _NeedsCredentials(f"{address} expects TLS: {_TLS_NEEDED}")
    if answer:
        raise _NotKafka(f"{address} is something else than a Kafka broker")
    raise _NotKafka(f"{address} is no Kafka broker, or one that is just stopping: it ends the connection")


def _answer_to(connection: socket.socket, request: bytes) -> bytes:
    """The size and the correlation id of the answer; less if the connection ends."""
    connection.sendall(struct.pack(">i", len(request)) + request)
    return _received(connection, 8)


def _received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (piece := connection.recv(size - len(found))):
        found += piece
    return found
