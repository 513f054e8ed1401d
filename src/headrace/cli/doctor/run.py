"""The steps of `headrace doctor`. Each yields findings; a step that fails ends those that need it.

Sockets and the protocol are used directly: a client library would retry, fall back and hide what went wrong.
"""

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from types import ModuleType
from typing import Any

from headrace.cli.doctor.findings import CheckStatus, Finding, problem
from headrace.cli.doctor.login import (
    check_login,
    check_permissions,
    expects_login,
    opened,
    refused_certificate,
    sees_nothing,
)
from headrace.cli.doctor.tls import check_tls
from headrace.cli.output import human_bytes, human_duration
from headrace.cli.port_probe import who_is_there
from headrace.config.address import parse_address
from headrace.config.client_connection import resolve_credentials
from headrace.model.errors import ProtocolError, SettingsError
from headrace.model.image import Endpoint
from headrace.protocol.codec import make
from headrace.wire import AuthenticationFailed, NotKafka, Unsupported, WireError
from headrace.wire.connection import WireConnection
from headrace.wire.security import WireSecurity

_METADATA, _LIST_OFFSETS, _DESCRIBE_LOG_DIRS = 3, 2, 35
_NEEDED = {0: "Produce", 1: "Fetch", _LIST_OFFSETS: "ListOffsets", _METADATA: "Metadata"}
_MAX_TIMESTAMP = -3
_LOW_DISK_SHARE, _LOW_DISK_BYTES = 0.05, 1024**3
_FUTURE_MS = 60_000
_LOOPBACK = ("127.", "::1")


def diagnose(
    bootstrap: str, timeout_s: float, *, topic: str | None = None, group: str | None = None
) -> Iterator[Finding]:
    """Every finding, as it is made. A client is fine if none is a `PROBLEM`.

    The credentials are those of the environment and its profile. `topic` and `group` are checked for permissions.
    """
    try:
        security = WireSecurity(resolve_credentials())
    except SettingsError as error:
        yield problem(f"The credentials cannot be used: {error}.", "Check the environment (HEADRACE_…) or the profile.")
        return
    for text in bootstrap.split(","):
        try:
            dialled = parse_address(text, default_port=9092)
        except SettingsError as error:
            yield Finding(CheckStatus.PROBLEM, f"{error}.")
            continue
        yield from _diagnose_one(dialled, security, timeout_s, topic, group)


def _diagnose_one(
    dialled: Endpoint, security: WireSecurity, timeout_s: float, topic: str | None, group: str | None
) -> Iterator[Finding]:
    addresses, finding = _resolve(dialled)
    yield finding
    if not addresses:
        return
    finding = _connect(dialled, addresses, timeout_s)
    yield finding
    if finding.status is CheckStatus.PROBLEM:
        return
    for finding in _contact(dialled, security, timeout_s):
        yield finding
        if finding.status is CheckStatus.PROBLEM:
            return
    try:
        with closing(opened(dialled, security, timeout_s)) as connection:
            metadata = _metadata(connection)
            yield from _advertised(dialled, connection.peer, metadata, security, timeout_s)
            yield from check_permissions(connection, security.credentials, topic, group)
            if topic is None and group is None:
                yield from sees_nothing(connection, security.credentials, metadata)
            yield from _disk(connection)
            yield from _clock(connection, metadata)
    except AuthenticationFailed as error:
        yield expects_login(error)
    except (OSError, WireError, ProtocolError) as error:
        yield problem(f"{dialled} broke off in the middle: {error}.", "Look at the broker's log.")


def _contact(where: Endpoint, security: WireSecurity, timeout_s: float) -> Iterator[Finding]:
    """TLS, the protocol and the login, as far as the credentials use them. A problem ends it."""
    if security.credentials.uses_tls:
        for finding in check_tls(where, security.credentials, timeout_s):
            yield finding
            if finding.status is CheckStatus.PROBLEM:
                return
    finding = _speak(where, security, timeout_s)
    yield finding
    if finding.status is CheckStatus.PROBLEM:
        return
    try:
        yield from check_login(where, security, timeout_s)
    except (OSError, WireError, ProtocolError) as error:
        yield problem(f"{where} broke off during the login: {error}.", "Look at the broker's log.")


def _resolve(where: Endpoint) -> tuple[list[str], Finding]:
    try:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        return [], Finding(
            CheckStatus.PROBLEM,
            f"The name {where.host} has no address: DNS does not know it here.",
            "Check the spelling, or add it to DNS or to /etc/hosts on this machine.",
        )
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if addresses == [where.host]:
        return addresses, Finding(CheckStatus.OK, f"{where.host} is an address, no DNS is needed.")
    return addresses, Finding(CheckStatus.OK, f"The name {where.host} is {', '.join(addresses)}.")


def _connect(where: Endpoint, addresses: list[str], timeout_s: float) -> Finding:
    """TCP to every address of the name: clients try them in turn, so one that answers is enough."""
    errors: dict[str, OSError] = {}
    for address in addresses:
        try:
            socket.create_connection((address, where.port), timeout_s).close()
        except OSError as error:
            errors[address] = error
    if len(errors) < len(addresses):
        silent = f" No process listens on {', '.join(errors)}; clients try the next address." if errors else ""
        return Finding(CheckStatus.OK, f"Port {where.port} accepts connections.{silent}")
    return _refusal(where, addresses, next(iter(errors.values())))


def _refusal(where: Endpoint, addresses: list[str], error: OSError) -> Finding:
    local = all(address.startswith(_LOOPBACK) for address in addresses)
    if isinstance(error, ConnectionRefusedError):
        advice = (
            "Start a broker with `headrace serve`, or give the port it uses with --bootstrap HOST:PORT."
            if local
            else f"Is the broker running there, and not only for its own machine? --kafka-listen :{where.port} "
            "lets it listen on every address."
        )
        return Finding(CheckStatus.PROBLEM, f"{where} refuses connections: nothing listens on that port.", advice)
    if isinstance(error, TimeoutError):
        return Finding(
            CheckStatus.PROBLEM,
            f"{where} does not answer at all: packets to it are lost.",
            "A firewall, a security group or a wrong address is the usual reason.",
        )
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return Finding(
            CheckStatus.PROBLEM, f"There is no route from here to {where}.", "Check the network and the address."
        )
    return Finding(CheckStatus.PROBLEM, f"Connecting to {where} failed: {error.strerror or error}.")


def _speak(where: Endpoint, security: WireSecurity, timeout_s: float) -> Finding:
    """Whether Kafka is spoken there, and enough of it."""
    try:
        with closing(opened(where, security, timeout_s, authenticates=False)) as connection:
            versions = connection.served.versions
    except NotKafka as error:
        return who_is_not_kafka(where, error.sample, timeout_s)
    except (OSError, WireError, ProtocolError) as error:
        # With TLS 1.3 a client sees only after the handshake that its certificate is refused.
        if security.credentials.uses_tls and "alert" in str(error):
            return refused_certificate(where)
        return who_is_not_kafka(where, b"", timeout_s)
    lacking = [name for key, name in _NEEDED.items() if key not in versions]
    if lacking:
        return Finding(
            CheckStatus.PROBLEM,
            f"{where} speaks Kafka but lacks {', '.join(lacking)}.",
            "It is not a broker for clients; a port of Kafka's controller looks like this. Use the broker's port.",
        )
    return Finding(CheckStatus.OK, f"It speaks Kafka and offers {len(versions)} APIs.")


def who_is_not_kafka(where: Endpoint, sample: bytes, timeout_s: float) -> Finding:
    kind = who_is_there(where, sample, timeout_s)
    advice = {
        "TLS": "This listener is encrypted: set HEADRACE_TLS=true, or HEADRACE_CA_FILE to the CA of its certificate; "
        "or use its plain port.",
        "HTTP": "That is a web server's port. Kafka's is usually 9092.",
    }.get(kind, "Check the port: another service may have it.")
    what = {
        "TLS": "a TLS server",
        "HTTP": "an HTTP server",
        "silence": "something that accepts connections and says nothing",
    }.get(kind, "something else")
    return Finding(CheckStatus.PROBLEM, f"{where} is not a Kafka broker but {what}.", advice)


def _metadata(connection: WireConnection) -> Any:
    return connection.call(
        _METADATA,
        12,
        lambda schema: make(
            schema.MetadataRequest,
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        ),
        lowest=1,
    )


def _advertised(
    dialled: Endpoint, peer: str, metadata: Any, security: WireSecurity, timeout_s: float
) -> Iterator[Finding]:
    """The step that newcomers trip over: clients go to the advertised address, wherever they connected first."""
    if not metadata.brokers:
        yield Finding(
            CheckStatus.PROBLEM, f"{dialled} knows of no broker, itself included.", "Look at the broker's log."
        )
    for broker in metadata.brokers:
        endpoint = Endpoint(str(broker.host), int(broker.port))
        who = f"Broker {broker.node_id} tells clients to use {endpoint}"
        if endpoint == dialled:
            yield Finding(CheckStatus.OK, f"{who}, as you did.")
            continue
        fix = (
            f"Start that broker with --advertise and an address that clients can reach, here --advertise {dialled}."
            if len(metadata.brokers) == 1
            else "Start that broker with --advertise and an address that clients can reach."
        )
        addresses, finding = _resolve(endpoint)
        if addresses:
            finding = _connect(endpoint, addresses, timeout_s)
            if finding.status is CheckStatus.OK:
                found = _contact(endpoint, security, timeout_s)
                finding = next((each for each in found if each.status is CheckStatus.PROBLEM), finding)
        if finding.status is CheckStatus.PROBLEM:
            yield problem(f"{who}, and from here that fails. {finding.what}", fix)
        elif any(address.startswith(_LOOPBACK) for address in addresses) and not peer.startswith(_LOOPBACK):
            yield Finding(
                CheckStatus.PROBLEM,
                f"{who}, which is each client's own machine: what answers there is not the broker you asked.",
                fix,
            )
        else:
            yield Finding(CheckStatus.OK, f"{who}, not {dialled}; that works from here.")


def _disk(connection: WireConnection) -> Iterator[Finding]:
    try:
        answer = connection.call(
            _DESCRIBE_LOG_DIRS, 4, lambda schema: make(schema.DescribeLogDirsRequest, topics=()), lowest=4
        )
    except Unsupported:
        return
    for directory in answer.results:
        total, usable = int(directory.total_bytes), int(directory.usable_bytes)
        if directory.error_code:
            advice = "Look at the broker's log and at the disk."
            yield Finding(CheckStatus.PROBLEM, f"The broker's data directory {directory.log_dir} has failed.", advice)
        elif total <= 0:
            continue
        elif usable < _LOW_DISK_BYTES or usable < total * _LOW_DISK_SHARE:
            yield Finding(
                CheckStatus.WARNING,
                f"The broker's disk is nearly full: {human_bytes(usable)} of {human_bytes(total)} are left.",
                "Lower retention.ms or retention.bytes of large topics, or give it a larger disk.",
            )
        else:
            yield Finding(CheckStatus.OK, f"The broker's disk has {human_bytes(usable)} of {human_bytes(total)} left.")


def _clock(connection: WireConnection, metadata: Any) -> Iterator[Finding]:
    """Kafka has no way to ask for the time: the youngest timestamps are compared with the clock here."""
    if not metadata.topics:
        return

    def build(schema: ModuleType) -> Any:
        topics: tuple[Any, ...] = tuple(
            make(
                schema.ListOffsetsTopic,
                name=topic.name,
                partitions=tuple(
                    make(
                        schema.ListOffsetsPartition,
                        partition_index=partition.partition_index,
                        current_leader_epoch=-1,
                        timestamp=_MAX_TIMESTAMP,
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in metadata.topics
        )
        return make(schema.ListOffsetsRequest, replica_id=-1, isolation_level=0, topics=topics)

    try:
        answer = connection.call(_LIST_OFFSETS, 8, build, lowest=7)
    except Unsupported:
        return
    youngest = [
        (_ms(partition.timestamp), str(topic.name)) for topic in answer.topics for partition in topic.partitions
    ]
    latest_ms, name = max(youngest, default=(-1, ""))
    ahead_ms = latest_ms - time.time() * 1000
    if ahead_ms > _FUTURE_MS:
        yield Finding(
            CheckStatus.WARNING,
            f"{name} has a message from {human_duration(ahead_ms / 1000)} in the future.",
            "A producer's clock or the one here is wrong: check that both machines run NTP.",
        )
    elif latest_ms >= 0:
        yield Finding(CheckStatus.OK, "No message is from the future: the clocks agree.")


def _ms(timestamp: Any) -> int:
    return int(timestamp.timestamp() * 1000) if hasattr(timestamp, "timestamp") else int(timestamp)
