"""Messages of a topic as they arrive (SSE), and downloaded as lines of JSON.

A tail shows at most `MAX_PER_ROUND` matching messages of each round of fetches and `MAX_ROUND_BYTES`, the latest, and
says how many it skipped; a reader that is slow gets them later, not more of them at a time. A download has at most
`MAX_DOWNLOAD_MESSAGES` messages and `MAX_DOWNLOAD_BYTES`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError, admin_error
from headrace.admin.kafka_requests import FetchedPart, fetch_partitions
from headrace.admin.message_scan import Found, Scan, ScanBounds, in_time_order, size_of
from headrace.admin.messages import (
    MAX_VALUE_BYTES,
    MessageQuery,
    decode_cursor,
    encode_cursor,
    entries,
    partition_bounds,
    start_positions,
)
from headrace.admin.routes import READ_TOPIC, AdminReply, AdminRequest, route
from headrace.admin.streams import HEARTBEAT, NDJSON, RETRY, SSE, ByteStream, event
from headrace.model.errors import HeadraceError
from headrace.records.fetched import next_offset, read_records
from headrace.records.reader import Record

MAX_PER_ROUND = 200
MAX_ROUND_BYTES = 8 * 1024 * 1024
MAX_DOWNLOAD_MESSAGES = 100_000
MAX_DOWNLOAD_BYTES = 256 * 1024 * 1024
_WAIT_MS = 1_000
_ROUND_BYTES = 1024 * 1024
_TAIL_VALUE_BYTES = 16 * 1024
_PER_PIECE = 200


class TailProgress(msgspec.Struct, frozen=True):
    scanned: int
    """How many messages were looked at since the stream began."""
    skipped: int
    """How many matched and were not shown, because too many came at once."""


class TailQuery(MessageQuery, frozen=True, forbid_unknown_fields=True):
    """Like that of messages; `from` says where to begin, and the end is the default."""

    max_value_bytes: Annotated[int, Meta(ge=1, le=MAX_VALUE_BYTES)] = _TAIL_VALUE_BYTES


@route("GET", "/topics/{topic}/tail", needs=READ_TOPIC, query=TailQuery, media_type=SSE)
async def tail_messages(request: AdminRequest) -> AdminReply:
    """Messages of a topic as they arrive: each an event, and `progress` events in between."""
    query, topic = request.query(TailQuery), request.parameters["topic"]
    matches = query.filter().matches
    request.services.streams.check(request.subject.principal)
    bounds = await partition_bounds(request, topic, query.partition)
    cursor = request.headers.get("last-event-id") or query.cursor
    if cursor:
        known = decode_cursor(cursor).positions
        positions = {index: max(known.get(str(index), each.end), each.start) for index, each in bounds.items()}
    else:
        positions = await start_positions(request, topic, query.start, bounds)
    pieces = _tail(request, topic, positions, matches, query.max_value_bytes)
    return AdminReply(ByteStream(SSE, pieces, request.services.streams, request.subject.principal))


async def _tail(
    request: AdminRequest,
    topic: str,
    positions: dict[int, int],
    matches: Callable[[Record], bool],
    most_bytes: int,
) -> AsyncIterator[bytes]:
    scanned = skipped = 0
    sessions = request.services.sessions
    yield RETRY
    while request.session is None or sessions.find(request.session.session_id) is not None:
        try:
            fetched = await fetch_partitions(request, topic, positions, max_bytes=_ROUND_BYTES, wait_ms=_WAIT_MS)
        except (AdminError, HeadraceError) as error:
            refusal = error if isinstance(error, AdminError) else admin_error(error)
            if refusal.status >= 500:
                yield HEARTBEAT
                await asyncio.sleep(_WAIT_MS / 1000)
                continue
            yield event(msgspec.json.encode({"error": refusal.code, "message": str(refusal)}), name="over")
            return
        found, count, matching = await asyncio.to_thread(_matching, fetched, positions, matches)
        scanned += count
        skipped += matching - len(found)
        shown = await entries(request, topic, in_time_order(found, newest_first=False), most_bytes)
        lines = [event(msgspec.json.encode(each)) for each in shown]
        progress = msgspec.json.encode(TailProgress(scanned, skipped))
        lines.append(event(progress, name="progress", event_id=encode_cursor("f", positions)))
        yield b"".join(lines)


def _matching(
    fetched: dict[int, FetchedPart], positions: dict[int, int], matches: Callable[[Record], bool]
) -> tuple[Sequence[Found], int, int]:
    """The last records that match, how many there were and how many matched; moves the positions."""
    found: deque[Found] = deque()
    count = matching = held_bytes = 0
    for index, part in fetched.items():
        at = positions[index]
        for record in read_records(part.records, first_offset=at, aborted=part.aborted):
            count += 1
            if not matches(record):
                continue
            matching += 1
            held_bytes += size_of(record)
            found.append((index, record))
            while len(found) > MAX_PER_ROUND or (held_bytes > MAX_ROUND_BYTES and len(found) > 1):
                held_bytes -= size_of(found.popleft()[1])
        positions[index] = max(at, next_offset(part.records, at), part.start_offset)
    return found, count, matching


class DownloadQuery(MessageQuery, frozen=True, forbid_unknown_fields=True):
    """Like that of messages, in the order of offsets in each partition."""

    start: Annotated[str, Meta(max_length=64, description="earliest, offset:N, or time:ISO 8601.")] = msgspec.field(
        name="from", default="earliest"
    )
    limit: Annotated[int, Meta(ge=1, le=MAX_DOWNLOAD_MESSAGES)] = 10_000
    max_value_bytes: Annotated[int, Meta(ge=1, le=MAX_VALUE_BYTES)] = MAX_VALUE_BYTES


@route("GET", "/topics/{topic}/download", needs=READ_TOPIC, query=DownloadQuery, media_type=NDJSON)
async def download_messages(request: AdminRequest) -> AdminReply:
    """Messages of a topic as a file, one JSON object on each line."""
    query, topic = request.query(DownloadQuery), request.parameters["topic"]
    matches = query.filter().matches
    request.services.streams.check(request.subject.principal)
    bounds = await partition_bounds(request, topic, query.partition)
    positions = await start_positions(request, topic, query.start, bounds)
    positions = {index: min(max(at, bounds[index].start), bounds[index].end) for index, at in positions.items()}
    pieces = _lines(request, topic, bounds, positions, matches, query)
    stream = ByteStream(NDJSON, pieces, request.services.streams, request.subject.principal)
    return AdminReply(stream, headers={"content-disposition": f'attachment; filename="{topic}.ndjson"'})


async def _lines(
    request: AdminRequest,
    topic: str,
    bounds: dict[int, ScanBounds],
    positions: dict[int, int],
    matches: Callable[[Record], bool],
    query: DownloadQuery,
) -> AsyncIterator[bytes]:
    left, left_bytes = query.limit, MAX_DOWNLOAD_BYTES
    while left > 0 and left_bytes > 0 and any(at < bounds[index].end for index, at in positions.items()):
        try:
            async with request.services.scanning:
                scan = Scan(request, topic, bounds, positions, matches, query.has_filter)
                found = await scan.forward(min(left, _PER_PIECE))
        except (AdminError, HeadraceError) as error:
            refusal = error if isinstance(error, AdminError) else admin_error(error)
            yield msgspec.json.encode({"error": refusal.code, "message": str(refusal)}) + b"\n"
            return
        left -= len(found)
        shown = await entries(request, topic, in_time_order(found, newest_first=False), query.max_value_bytes)
        piece = b"".join(msgspec.json.encode(each) + b"\n" for each in shown)
        left_bytes -= len(piece)
        if piece:
            yield piece
