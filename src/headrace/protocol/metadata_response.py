"""Hand-written encoder of Metadata responses: kio takes 5 µs for each partition, so thousands hold up the event loop.

Layout (a name in brackets says from which version on; compact encodings and tag sections from version 9):

    throttle (3), [node id, host, port, rack (1)], cluster id (2), controller id (1),
    [error, name, topic id (10), is internal (1), [error, index, leader, leader epoch (7), [replica], [in sync],
     [offline replica] (5)], topic operations (8)], cluster operations (8-10), error (13)

A name is null in version 12 and newer if the topic was asked for by an id that is unknown.
"""

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO
from uuid import UUID

from headrace.runtime.varint import encode_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable

    from kio.schema.metadata.v13.response import (
        MetadataResponse,
        MetadataResponseBroker,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

KEY = 3
_FLEXIBLE_FROM = 9
_I16, _I32 = Struct(">h"), Struct(">i")
_PARTITION, _PARTITION_V0 = Struct(">hiii"), Struct(">hii")
_NODES_CACHED = 1024


def write_metadata_response(version: int) -> "Callable[[BinaryIO, MetadataResponse], None]":
    """The function that writes responses of this version, as kio's `entity_writer` returns one."""
    layout = _Layout(version)

    def write(buffer: BinaryIO, response: "MetadataResponse") -> None:
        buffer.write(layout.response(response))

    return write


class _Layout:
    """Encodes the parts of a response of one version."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._is_flexible = version >= _FLEXIBLE_FROM
        self._tags = b"\x00" if self._is_flexible else b""
        # Most partitions have one of a few lists of replicas.
        self._nodes = lru_cache(_NODES_CACHED)(self._encoded_nodes)

    def response(self, response: "MetadataResponse") -> bytes:
        version = self._version
        out: list[bytes] = []
        if version >= 3:
            out.append(_I32.pack(round(response.throttle_time.total_seconds() * 1000)))
        out.append(self._count(len(response.brokers)))
        out.extend(map(self._broker, response.brokers))
        if version >= 2:
            out.append(self._nullable(response.cluster_id))
        if version >= 1:
            out.append(_I32.pack(response.controller_id))
        out.append(self._count(len(response.topics)))
        for topic in response.topics:
            self._topic(topic, out)
        if 8 <= version <= 10:
            out.append(_I32.pack(response.cluster_authorized_operations))  # type: ignore[attr-defined]
        if version >= 13:
            out.append(_I16.pack(response.error_code))
        out.append(self._tags)
        return b"".join(out)

    def _broker(self, broker: "MetadataResponseBroker") -> bytes:
        rack = self._nullable(broker.rack) if self._version >= 1 else b""
        return _I32.pack(broker.node_id) + self._string(broker.host) + _I32.pack(broker.port) + rack + self._tags

    def _topic(self, topic: "MetadataResponseTopic", out: list[bytes]) -> None:
        version = self._version
        out.append(_I16.pack(topic.error_code))
        out.append(self._nullable(topic.name))
        if version >= 10:
            out.append((topic.topic_id or _NO_ID).bytes)
        if version >= 1:
            out.append(b"\x01" if topic.is_internal else b"\x00")
        out.append(self._count(len(topic.partitions)))
        partition = self._partition
        out.extend([partition(each) for each in topic.partitions])
        if version >= 8:
            out.append(_I32.pack(topic.topic_authorized_operations))
        out.append(self._tags)

    def _partition(self, each: "MetadataResponsePartition") -> bytes:
        nodes = self._nodes
        if self._version >= 7:
            head = _PARTITION.pack(each.error_code, each.partition_index, each.leader_id, each.leader_epoch)
        else:
            head = _PARTITION_V0.pack(each.error_code, each.partition_index, each.leader_id)
        offline = nodes(each.offline_replicas) if self._version >= 5 else b""
        return head + nodes(each.replica_nodes) + nodes(each.isr_nodes) + offline + self._tags

    def _encoded_nodes(self, nodes: tuple[int, ...]) -> bytes:
        return self._count(len(nodes)) + b"".join(map(_I32.pack, nodes))

    def _count(self, count: int) -> bytes:
        return encode_uvarint(count + 1) if self._is_flexible else _I32.pack(count)

    def _string(self, text: str) -> bytes:
        data = text.encode()
        return (encode_uvarint(len(data) + 1) if self._is_flexible else _I16.pack(len(data))) + data

    def _nullable(self, text: str | None) -> bytes:
        if text is None:
            return b"\x00" if self._is_flexible else b"\xff\xff"
        return self._string(text)


_NO_ID = UUID(int=0)
