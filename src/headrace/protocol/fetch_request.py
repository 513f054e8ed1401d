"""A hand-written encoder of Fetch requests of a replica, sent thousands of times a second, and of a link. Version 15.

    max wait, min bytes, max bytes, isolation, session id, session epoch, [topic id [index, leader epoch, offset,
    last fetched epoch, log start, max bytes]], forgotten [topic id [index]], rack, tag 1: replica id and its epoch

15 is the first version with the replica's broker epoch. A link to another cluster fetches as a consumer, with version
13, the first that names topics by id: it has a replica id of -1 before everything else, and no tag.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from headrace.protocol.client_codec import request_header
from headrace.runtime.varint import encode_uvarint

FETCH_KEY = 1
REPLICA_FETCH_VERSION = 15
LINK_FETCH_VERSION = 13

_HEAD = Struct(">iiibii")
_LINK_HEAD = Struct(">iiiibii")
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_CONSUMER = -1
_WANTED = Struct(">iiqiqiB")
_INDEX = Struct(">i")
_TAIL = Struct(">BBBBiqB")
"""An empty rack; one tagged field, tag 1, 13 bytes: replica id and epoch, no tags of its own."""
_REPLICA_STATE_TAG, _REPLICA_STATE_BYTES = 1, 13


class WantedByReplica(NamedTuple):
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


def write_replica_fetch(
    correlation_id: int,
    client_id: str,
    *,
    replica_id: int,
    replica_epoch: int,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    session_id: int,
    session_epoch: int,
    wanted: Mapping[UUID, Sequence[WantedByReplica]],
    forgotten: Mapping[UUID, Iterable[int]],
) -> bytes:
    """Encode a request with its header, without the frame length."""
    out = bytearray(request_header(FETCH_KEY, REPLICA_FETCH_VERSION, correlation_id, client_id))
    out += _HEAD.pack(max_wait_ms, min_bytes, max_bytes, _READ_UNCOMMITTED, session_id, session_epoch)
    _write_partitions(out, wanted, forgotten)
    out += _TAIL.pack(1, 1, _REPLICA_STATE_TAG, _REPLICA_STATE_BYTES, replica_id, replica_epoch, 0)
    return bytes(out)


def write_link_fetch(
    correlation_id: int,
    client_id: str,
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    session_id: int,
    session_epoch: int,
    wanted: Mapping[UUID, Sequence[WantedByReplica]],
    forgotten: Mapping[UUID, Iterable[int]],
) -> bytes:
    """Encode the request of a read_committed consumer with its header, without the frame length."""
    out = bytearray(request_header(FETCH_KEY, LINK_FETCH_VERSION, correlation_id, client_id))
    out += _LINK_HEAD.pack(_CONSUMER, max_wait_ms, min_bytes, max_bytes, _READ_COMMITTED, session_id, session_epoch)
    _write_partitions(out, wanted, forgotten)
    out += b"\x01\x00"  # An empty rack, and no tagged fields.
    return bytes(out)


def _write_partitions(
    out: bytearray, wanted: Mapping[UUID, Sequence[WantedByReplica]], forgotten: Mapping[UUID, Iterable[int]]
) -> None:
    out += encode_uvarint(len(wanted) + 1)
    for topic_id, parts in wanted.items():
        out += topic_id.bytes
        out += encode_uvarint(len(parts) + 1)
        for part in parts:
            out += _WANTED.pack(*part, 0)
        out.append(0)
    out += encode_uvarint(len(forgotten) + 1)
    for topic_id, indexes in forgotten.items():
        out += topic_id.bytes
        packed = b"".join(map(_INDEX.pack, indexes))
        out += encode_uvarint(len(packed) // _INDEX.size + 1)
        out += packed
        out.append(0)
