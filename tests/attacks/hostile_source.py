"""A source cluster that answers a link with whatever a test says, over real sockets."""

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self
from uuid import UUID, uuid4

from kio.index import load_response_schema

from headrace.protocol.codec import is_flexible, peek_api, read_request, read_request_header, write_response
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from tests.entities import build
from tests.interop.raw_client import (
    API_VERSIONS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CONFIGS,
    FETCH,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
)

Answer = Mapping[str, Any] | bytes
"""Of an API: its fields, or the bytes of the whole response behind the correlation id."""
_SERVED = (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    LIST_GROUPS,
    API_VERSIONS,
    OFFSET_FOR_LEADER_EPOCH,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    DESCRIBE_CLIENT_QUOTAS,
)


def batch(offset: int, value: bytes = b"tea", *, epoch: int = 0, at_ms: int = 1000, producer_id: int = -1) -> bytes:
    return build_batch(
        [Record(0, at_ms, None, value)],
        base_offset=offset,
        leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
    )


class HostileSource:
    """One broker with one topic by default. Set `answers` to lie about an API, and `records` about a partition."""

    def __init__(self) -> None:
        self.cluster_id = "hostile"
        self.topics: dict[str, UUID] = {"orders": uuid4()}
        self.partitions = 1
        self.leader_epoch = 0
        self.answers: dict[int, Callable[[Any], Answer]] = {}
        self.records: Callable[[int, int], Mapping[str, Any]] = lambda partition, offset: {}
        """The fields of a partition in an answer to Fetch, by partition and offset."""
        self.requests: list[int] = []
        self.is_closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in (self._thread, *self._threads):
            thread.join(30)

    # -- answers of an honest source

    def metadata(self, **changes: Any) -> Mapping[str, Any]:
        parts = [
            {"partition_index": index, "leader_id": 0, "leader_epoch": self.leader_epoch, "replica_nodes": [0]}
            for index in range(self.partitions)
        ]
        honest = {
            "cluster_id": self.cluster_id,
            "controller_id": 0,
            "brokers": [{"node_id": 0, "host": "127.0.0.1", "port": self.port}],
            "topics": [{"name": name, "topic_id": each, "partitions": parts} for name, each in self.topics.items()],
        }
        return {**honest, **changes}

    def fetched(self, request: Any) -> Mapping[str, Any]:
        found = [
            {
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition_index": part.partition,
                        "high_watermark": part.fetch_offset,
                        "last_stable_offset": part.fetch_offset,
                        "log_start_offset": 0,
                        "aborted_transactions": [],
                        **self.records(part.partition, part.fetch_offset),
                    }
                    for part in topic.partitions
                ],
            }
            for topic in request.topics
        ]
        return {"session_id": 0, "responses": found}

    def _honest(self, key: int, request: Any) -> Answer:
        match key:
            case 18:
                return {"api_keys": [{"api_key": each, "min_version": 0, "max_version": 20} for each in _SERVED]}
            case 3:
                return self.metadata()
            case 1:
                return self.fetched(request)
            case 32:
                names = [{"resource_type": 2, "resource_name": each.resource_name} for each in request.resources]
                return {"results": names}
        return {}

    # -- sockets

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection.makefile("rb") as stream:
            while head := stream.read(4):
                frame = stream.read(struct.unpack(">i", head)[0])
                key, version, correlation_id = peek_api(frame)
                header = read_request_header(frame, flexible=is_flexible(key, version))
                self.requests.append(key)
                request = read_request(frame, header)
                found = self.answers[key](request) if key in self.answers else self._honest(key, request)
                if isinstance(found, bytes):
                    response = struct.pack(">i", correlation_id) + found
                else:
                    response = write_response(header, build(load_response_schema(key, version), found))
                connection.sendall(struct.pack(">i", len(response)) + response)
