"""A Kafka client that does exactly what it is told: any API, any version, any bytes, one plain socket.

Bodies are given as nested dicts. Fields that a version does not have are left out and those that are missing get a
neutral value, so that one dict serves all versions of an API.
"""

import itertools
import socket
import struct
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple, Self

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from tests.entities import build

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE = 8, 9, 47
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS = 11, 12, 13, 14, 15, 16, 42
FIND_COORDINATOR, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 10, 18, 19, 20, 21
INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 22, 23
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = 24, 25, 26, 27, 28
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
DESCRIBE_CONFIGS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 35, 37, 44
DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 60, 75
UPDATE_FEATURES = 57
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
ALTER_REPLICA_LOG_DIRS, UNREGISTER_BROKER = 34, 64
CREATE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN, DESCRIBE_DELEGATION_TOKEN = 38, 39, 40, 41
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
DESCRIBE_USER_SCRAM_CREDENTIALS, ALTER_USER_SCRAM_CREDENTIALS = 50, 51
ELECT_LEADERS, LIST_CONFIG_RESOURCES, ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS = 43, 74, 45, 46
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 77, 78, 79
DESCRIBE_SHARE_GROUP_OFFSETS, ALTER_SHARE_GROUP_OFFSETS, DELETE_SHARE_GROUP_OFFSETS = 90, 91, 92
STREAMS_GROUP_HEARTBEAT, STREAMS_GROUP_DESCRIBE = 88, 89

Error = ErrorCode
_correlation_ids = itertools.count(1)


class Closed(Exception):
    """The broker closed the connection."""


class Pending(NamedTuple):
    key: int
    version: int
    correlation_id: int


@cache
def _writer(entity: Any) -> Any:
    return entity_writer(entity)


@cache
def _reader(key: int, version: int) -> Any:
    return entity_reader(load_response_schema(key, version))


def encode(key: int, version: int, body: Mapping[str, Any], *, correlation_id: int, client_id: str = "wire") -> bytes:
    """A request, from API key to the end of the body, without the length in front."""
    schema = load_request_schema(key, version)
    buffer = BytesIO()
    header: Any = schema.__header_schema__
    fields = {
        "request_api_key": key,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    _writer(header)(buffer, build(header, fields))
    _writer(schema)(buffer, build(schema, body))
    return buffer.getvalue()


def decode(pending: Pending, frame: bytes) -> Any:
    """The answer to a request; every byte of it must be accounted for."""
    (correlation_id,) = struct.unpack_from(">i", frame)
    assert correlation_id == pending.correlation_id, f"answer {correlation_id} to request {pending.correlation_id}"
    at = 4
    if pending.key != API_VERSIONS and load_response_schema(pending.key, pending.version).__flexible__:
        assert frame[at] == 0, "tagged fields in a response header"
        at += 1
    response, size = _reader(pending.key, pending.version)(frame, at)
    assert at + size == len(frame), f"{len(frame) - at - size} bytes left over"
    return response


class Connection:
    """One TCP connection to a broker."""

    def __init__(
        self, bootstrap: str, timeout_s: float = 60.0, *, client_id: str = "wire", source: str | None = None
    ) -> None:
        """`source` is the address of this machine that it connects from."""
        host, port = bootstrap.rsplit(":", 1)
        self._client_id = client_id
        origin = None if source is None else (source, 0)
        self._socket = socket.create_connection((host, int(port)), timeout_s, origin)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Close with RST, as a crashed client's kernel does."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def set_timeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send(self, key: int, version: int, body: Mapping[str, Any] | None = None, **fields: Any) -> Pending:
        pending = Pending(key, version, next(_correlation_ids))
        fields = {**(body or {}), **fields}
        self.send_frame(encode(key, version, fields, correlation_id=pending.correlation_id, client_id=self._client_id))
        return pending

    def receive(self, pending: Pending) -> Any:
        return decode(pending, self.receive_frame())

    def call(self, key: int, version: int, body: Any = None, **fields: Any) -> Any:
        return self.receive(self.send(key, version, body, **fields))

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        assert size >= 0
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError as error:
                raise Closed from error
            if not part:
                raise Closed(f"{len(data)} of {size} bytes came")
            data += part
        return bytes(data)

    def is_silent(self, seconds: float) -> bool:
        """Whether the broker sends nothing, and keeps the connection open, for that long."""
        before = self._socket.gettimeout()
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
            return False
        except (TimeoutError, BlockingIOError):
            return True
        except ConnectionResetError:
            return False
        finally:
            self._socket.settimeout(before)

    def wait_closed(self, seconds: float) -> bool:
        """Whether the broker closes the connection within that time; anything it sends before is dropped."""
        end = time.monotonic() + seconds
        with suppress(TimeoutError):
            while (left := end - time.monotonic()) > 0:
                self._socket.settimeout(left)
                try:
                    if not self._socket.recv(1 << 16):
                        return True
                except ConnectionResetError:
                    return True
        return False


def advertised(bootstrap: str) -> dict[int, tuple[int, int]]:
    """API key -> lowest and highest version, as the broker says."""
    with Connection(bootstrap) as connection:
        answer = connection.call(API_VERSIONS, 3, client_software_name="wire", client_software_version="1")
    assert answer.error_code == Error.none
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
) -> uuid.UUID:
    """Create a topic, wait until the broker leads all of its partitions, and return its id."""
    configs = [{"name": key, "value": value} for key, value in (settings or {}).items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": configs}
    with Connection(bootstrap) as connection:
        answer = connection.call(CREATE_TOPICS, 7, topics=[topic], timeout=60_000)
        assert answer.topics[0].error_code == Error.none, answer.topics[0]
        return wait_topic(connection, name, partitions)


def wait_topic(connection: Connection, name: str, partitions: int, timeout_s: float = 60) -> uuid.UUID:
    """Wait until all partitions of a topic answer; its id. Apache Kafka may list a partition before it serves it."""
    end = time.monotonic() + timeout_s
    while True:
        (found,) = connection.call(METADATA, 12, topics=[{"name": name}], allow_auto_topic_creation=False).topics
        listed = found.error_code == Error.none and len(found.partitions) == partitions
        if listed and all(_is_served(connection, name, at) for at in range(partitions)):
            return found.topic_id
        assert time.monotonic() < end, f"{name} is not ready: {found}"
        time.sleep(0.02)


def _is_served(connection: Connection, topic: str, partition: int) -> bool:
    code: Error = offset_at(connection, topic, -1, partition=partition).error_code
    return code == Error.none


def produce_body(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, topic_id: uuid.UUID | None = None
) -> dict[str, Any]:
    data = [{"index": partition, "records": records}]
    return {
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "topic_id": topic_id, "partition_data": data}],
    }


def produce(
    connection: Connection, topic: str, records: bytes | None, *, version: int = 9, partition: int = 0, acks: int = -1
) -> Any:
    """Produce to one partition; its part of the answer."""
    answer = connection.call(PRODUCE, version, produce_body(topic, records, partition=partition, acks=acks))
    return answer.responses[0].partition_responses[0]


def fetch_body(
    topic: str | uuid.UUID, offset: int = 0, *, partition: int = 0, partition_max_bytes: int = 1 << 20, **fields: Any
) -> dict[str, Any]:
    which = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    one = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes}
    body: dict[str, Any] = {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 26,
        "topics": [{**which, "partitions": [one]}],
    }
    return body | fields


def fetch(
    connection: Connection, topic: str | uuid.UUID, offset: int = 0, *, version: int | None = None, **fields: Any
) -> Any:
    """Fetch one partition without a session; its part of the answer."""
    version = version if version is not None else (12 if isinstance(topic, str) else 13)
    answer = connection.call(FETCH, version, fetch_body(topic, offset, **fields))
    return answer.responses[0].partitions[0]


def offset_at(
    connection: Connection, topic: str, timestamp: int, *, version: int = 7, partition: int = 0, **fields: Any
) -> Any:
    """ListOffsets for one partition; its part of the answer."""
    from kio.static.primitive import i64

    one = {"partition_index": partition, "timestamp": i64(timestamp), **fields}
    body = {"replica_id": -1, "topics": [{"name": topic, "partitions": [one]}]}
    return connection.call(LIST_OFFSETS, version, body).topics[0].partitions[0]


def until_coordinated(connection: Connection, key_type: int = 0, name: str = "g") -> None:
    """Wait until there is a coordinator, and it has loaded what it knows of that name."""
    end = time.monotonic() + 60
    while True:
        found = connection.call(FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=[name]).coordinators[0]
        if found.error_code == ErrorCode.none:
            answer = connection.call(OFFSET_FETCH, 7, group_id=name, topics=None)
            if answer.error_code == ErrorCode.none:
                return
        assert time.monotonic() < end, found.error_code
        time.sleep(0.05)
