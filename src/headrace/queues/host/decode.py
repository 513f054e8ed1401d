"""Decoding of a slice of the log: which offsets are messages, and their properties. Pure.

Like a read_committed consumer: markers and records of aborted transactions are no messages, nor are offsets that
compaction removed. The caller does not ask for records past the last stable offset.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from headrace.config.queue import QueueSettings
from headrace.model.errors import RecordError
from headrace.model.queued import NORMAL_PRIORITY, MessageIds
from headrace.queues.engine.chunk_index import LogMessage
from headrace.queues.host.codec import DecodedMessage, dedupe_key, message_of, place_of, plain_message
from headrace.records.batch import BatchHeader, Buffer, iter_headers
from headrace.records.markers import read_marker
from headrace.records.reader import Record, decompressed, fields_in

_HEAVY_MESSAGES = 5_000
_MANY_RECORDS = 16
_OWN_HEADERS = b"hr."
"""The names of all headers with properties of a message begin with this."""


class PlainRange(NamedTuple):
    """Messages without properties other than their send time."""

    first: int
    last: int
    sent_ms: int


class SkippedRange(NamedTuple):
    """Offsets without messages."""

    first: int
    last: int


IndexStep = PlainRange | SkippedRange | LogMessage


class DecodedSlice(NamedTuple):
    steps: Sequence[IndexStep]
    next_offset: int
    messages: Sequence[DecodedMessage]
    """The decoded messages of the slice, up to a few thousand."""


def is_plain(message: DecodedMessage) -> bool:
    """Whether a standard queue needs only the send time of a message."""
    return (
        message.priority == NORMAL_PRIORITY
        and message.due_at_ms is None
        and message.expires_at_ms is None
        and message.origin is None
    )


def log_message_of(message: DecodedMessage, settings: QueueSettings) -> LogMessage:
    """The properties of a message that the engine needs."""
    dedupe = dedupe_key(message, settings)
    return LogMessage(
        message.offset,
        message.sent_at_ms,
        message.priority,
        message.due_at_ms,
        message.expires_at_ms,
        message.group,
        dedupe,
        "" if dedupe is None else message.id,
        place_of(message),
    )


def read_messages(
    data: Buffer,
    offset: int,
    below: int,
    aborted: Sequence[tuple[int, int]],
    topic_id: UUID,
    settings: QueueSettings,
    *,
    is_for_index: bool = False,
) -> DecodedSlice:
    """The messages from `offset` on in whole batches; `aborted` has producers and first offsets of their transactions.

    A batch that cannot be decoded is skipped, as a consumer could do no better. For the index a large batch of plain
    messages is a range, and its records are not decoded.
    """
    walk = _BatchWalk(offset, aborted)
    ids = MessageIds(topic_id)
    messages: list[DecodedMessage] = []
    for position, header in iter_headers(data):
        if header.next_offset <= offset or header.base_offset >= below:
            continue
        batch = data[position : position + header.size]
        if not walk.enters(header, batch):
            continue
        with suppress(RecordError):
            records = decompressed(batch, header)
            if is_for_index and not settings.is_fifo and _is_plain_batch(records, header):
                first = max(walk.at, header.base_offset)
                walk.takes(first, header.last_offset, PlainRange(first, header.last_offset, header.max_timestamp))
            else:
                _take(walk, records, header, ids, settings, messages)
        walk.leaves(header)
    return DecodedSlice(walk.steps, walk.at, messages)


def _is_plain_batch(records: bytes, header: BatchHeader) -> bool:
    """Whether a batch has many messages, and no header of a queue in any of them. A body that has the name of one is no
    harm: its batch is decoded."""
    return (
        _MANY_RECORDS <= header.record_count == header.last_offset_delta + 1
        and header.base_timestamp <= header.max_timestamp
        and _OWN_HEADERS not in records
    )


def _take(
    walk: "_BatchWalk",
    data: bytes,
    header: BatchHeader,
    ids: MessageIds,
    settings: QueueSettings,
    messages: list[DecodedMessage],
) -> None:
    """Decode the messages of one batch. Plain messages become ranges."""
    is_fifo = settings.is_fifo
    start = walk.at
    first, last, sent_ms = 0, -1, 0
    try:
        for offset, time_ms, key, value, headers in fields_in(data, header):
            if offset < start:
                continue
            if headers or is_fifo:
                message = message_of(Record(offset, time_ms, key, value, headers), ids, is_fifo=is_fifo)
            else:
                message = plain_message(offset, time_ms, key, value, ids)
            if len(messages) < _HEAVY_MESSAGES:
                messages.append(message)
            if (headers or is_fifo) and (is_fifo or not is_plain(message)):
                if first <= last:
                    walk.takes(first, last, PlainRange(first, last, sent_ms))
                    first, last = 0, -1
                walk.takes(offset, offset, log_message_of(message, settings))
            elif offset == last + 1 and first <= last:
                last = offset
                if time_ms > sent_ms:
                    sent_ms = time_ms
            else:
                if first <= last:
                    walk.takes(first, last, PlainRange(first, last, sent_ms))
                first, last, sent_ms = offset, offset, time_ms
    finally:
        if first <= last:
            walk.takes(first, last, PlainRange(first, last, sent_ms))


class _BatchWalk:
    """Walks through the batches of a slice, so that each offset is in one step."""

    def __init__(self, offset: int, aborted: Sequence[tuple[int, int]]) -> None:
        self.at = offset
        self.steps: list[IndexStep] = []
        self._to_abort = sorted(aborted, key=lambda each: each[1], reverse=True)
        self._aborting: set[int] = set()

    def enters(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether the batch has messages. If not, its offsets are skipped."""
        while self._to_abort and self._to_abort[-1][1] <= header.last_offset:
            self._aborting.add(self._to_abort.pop()[0])
        if header.is_control:
            if _is_abort(batch, header):
                self._aborting.discard(header.producer_id)
            self.leaves(header)
            return False
        if header.is_transactional and header.producer_id in self._aborting:
            self.leaves(header)
            return False
        return True

    def takes(self, first: int, last: int, step: IndexStep) -> None:
        self._skip_to(first)
        last_step = self.steps[-1] if self.steps else None
        if isinstance(step, PlainRange) and isinstance(last_step, PlainRange) and last_step.last + 1 == first:
            self.steps[-1] = PlainRange(last_step.first, last, max(last_step.sent_ms, step.sent_ms))
        else:
            self.steps.append(step)
        self.at = last + 1

    def leaves(self, header: BatchHeader) -> None:
        self._skip_to(header.next_offset)

    def _skip_to(self, offset: int) -> None:
        if offset > self.at:
            last_step = self.steps[-1] if self.steps else None
            if isinstance(last_step, SkippedRange):
                self.steps[-1] = SkippedRange(last_step.first, offset - 1)
            else:
                self.steps.append(SkippedRange(self.at, offset - 1))
            self.at = offset


def _is_abort(batch: Buffer, header: BatchHeader) -> bool:
    try:
        marker = read_marker(batch, header)
    except RecordError:
        return False
    return marker is not None and not marker.committed
