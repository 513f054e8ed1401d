"""Transfer of messages from one queue to another, each exactly once, across failures and restarts.

Messages are sent in pages. A page is persisted in the source queue, with a number higher than the last, before it is
sent; its messages cannot be received while it is in transit; and they are acked, and the page removed, when it is
committed at the destination (invariant 44). The outcome of an attempt that failed is unknown, so the page is sent again
until an attempt succeeds, also by the next leader: the destination recognizes a copy by its number
(`engine.moved_pages`).

All of a page is appended at once. One for which the destination certainly has no room is taken back, and the next one
is smaller (`TransferStream.most`): a large one might never fit.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec

from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import BacklogBlocked, BacklogFull, HeadraceError, InvalidMessage, UnknownQueue
from headrace.model.invariants import invariant
from headrace.model.queue_state import MOVED_TO, OWN_KEYS
from headrace.queues.engine.engine import Engine
from headrace.queues.host.codec import Origin, moved_record
from headrace.queues.host.queue import HostedQueue
from headrace.records.reader import Record

log = logging.getLogger(__name__)

PAGE_MESSAGES = 100
PAGE_BYTES = 512 * 1024
_RETRY_DELAY_S = ExponentialDelay(0.1, 5.0)

NO_ROOM = (BacklogBlocked, BacklogFull)
"""The destination has no room: nothing was written."""

_KEY = b"carry:"

SendRecords = Callable[[str, Sequence[Record]], Awaitable[None]]
"""Sends records to a queue, on any broker. `NO_ROOM` and `InvalidMessage` mean that this attempt wrote nothing."""


class TransferMessage(msgspec.Struct, array_like=True, frozen=True):
    offset: int
    group: bytes
    attempts: int
    reason: str


class TransferPage(msgspec.Struct, array_like=True, frozen=True):
    number: int
    destination: str
    messages: Sequence[TransferMessage]
    purpose: str
    """Set by the sender: for move tasks, the id of the task."""


class _TransferState(msgspec.Struct, array_like=True, frozen=True):
    last_number: int
    page: TransferPage | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_TransferState).decode


def _nothing(page: TransferPage) -> None:
    """For a stream without an owner."""


class TransferStream:
    """One stream of pages out of a queue, one in transit at a time."""

    def __init__(
        self,
        queue: HostedQueue,
        send: SendRecords,
        stream: str,
        *,
        keeps_send_time: Callable[[], bool],
        delivered: Callable[[TransferPage], None] = _nothing,
    ) -> None:
        """`keeps_send_time`: whether messages keep their send time. `delivered` is called when a page is committed at
        the destination; the entries that it persists are written together with that."""
        self._queue = queue
        self._send = send
        self._stream = stream
        self._key = _KEY + stream.encode()
        self._keeps_send_time = keeps_send_time
        self._delivered = delivered
        self._last_number = 0
        self.page: TransferPage | None = None
        """The page in transit."""
        self._is_in_doubt = False
        """Whether it may be committed at the destination already."""
        self.most = PAGE_MESSAGES
        """How many messages the next page is to have at most."""
        queue.host.on_open.append(self._open)

    def forget_owner(self) -> None:
        """Drop the callback: the queue is closed, and nothing is in transit."""
        self._delivered = _nothing

    def _open(self) -> None:
        """Load the persisted page. No message was received yet: those in transit stay hidden."""
        value = self._queue.host.own_entries.get(OWN_KEYS + self._key)
        if value is not None:
            stored = _decode(value)
            self._last_number, self.page = stored.last_number, stored.page
            if self.page is not None:
                self._is_in_doubt = True
                self._hold(self.page.messages)

    def _hold(self, messages: Sequence[TransferMessage]) -> set[int]:
        host = self._queue.host
        return set(host.engine.hold([(each.offset, each.group) for each in messages], host.now_ms()))

    def _persist(self) -> None:
        self._queue.host.persist_own(self._key, _encode(_TransferState(self._last_number, self.page)))

    def _note_destination(self, destination: str) -> None:
        """Persist the name of the destination with the first page that goes there: links copy that the messages are
        acked only when they have what is there (invariant 97)."""
        key = MOVED_TO + destination.encode()
        if OWN_KEYS + key not in self._queue.host.own_entries:
            self._queue.host.persist_own(key, b"1")

    async def transfer(self, destination: str, messages: Sequence[TransferMessage], purpose: str = "") -> int:
        """Move the messages that are available now, or dead; how many. Errors as of `deliver`."""
        engine = self._queue.host.engine
        dead = {each.offset for each in messages if (look := engine.look(each.offset)) and look.state == "dead"}
        held = self._hold([each for each in messages if each.offset not in dead])
        going = [each for each in messages if each.offset in held or each.offset in dead]
        if going:
            invariant(self.page is None, 44, "one page of a stream is in transit at a time")
            self._last_number += 1
            self.page = TransferPage(self._last_number, destination, going, purpose)
            self._is_in_doubt = False
            self._note_destination(destination)
            self._persist()
            await self.deliver()
        return len(going)

    async def deliver(self) -> None:
        """Send the page in transit until it is committed. `UnknownQueue` or `InvalidMessage` if it never can be, or
        `NO_ROOM` if it cannot be now: then none of it is, and its messages stay in this queue. Any other error means
        that this broker does not lead the queue any more."""
        page, host = self.page, self._queue.host
        assert page is not None
        delays, is_reported = RetryDelays(_RETRY_DELAY_S), False
        while True:
            try:
                # The next leader must know the page before a copy can be received.
                await host.persisted()
                refusal = await self._send_page(page)
                # No await from here on, so that all of it is persisted together.
                host.decide_now(partial(_moved if refusal is None else _released, page))
                break
            except Exception as error:
                if not host.has_engine:
                    raise
                self._is_in_doubt = True
                if delays.is_at_limit and not is_reported:
                    is_reported = True
                    log.warning(
                        "messages of %s cannot be moved to %s for now: %s",
                        self._queue.name,
                        page.destination,
                        error,
                        exc_info=None if isinstance(error, HeadraceError) else error,
                    )
            await asyncio.sleep(delays.next())
        self.page = None
        self._persist()
        if refusal is not None:
            if isinstance(refusal, NO_ROOM):
                self.most = max(1, min(self.most, len(page.messages)) // 2)
            raise refusal
        self.most = min(self.most + 1, PAGE_MESSAGES)
        self._delivered(page)
        self._queue.reader.drop(each.offset for each in page.messages)

    async def _send_page(self, page: TransferPage) -> HeadraceError | None:
        """None when the page is committed; or why it cannot be, if certainly none of it is."""
        queue, host = self._queue, self._queue.host
        messages = await queue.reader.read([each.offset for each in page.messages], host.settings)
        # Messages that the log has lost meanwhile cannot be copied.
        found = [each for each in page.messages if each.offset in messages]
        records = [
            moved_record(
                messages[each.offset],
                Origin(queue.name, host.partition.topic_id, self._stream, page.number, at),
                reason=each.reason,
                attempts=each.attempts,
                now_ms=host.now_ms(),
                keeps_send_time=self._keeps_send_time(),
            )
            for at, each in enumerate(found)
        ]
        try:
            if records:
                await self._send(page.destination, records)
        except UnknownQueue as error:
            # A copy that may have arrived was deleted with the queue.
            return error
        except (InvalidMessage, *NO_ROOM) as error:
            if self._is_in_doubt:
                raise
            return error
        return None


def without_pages(own_entries: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The entries of the transfers of a queue that is not led here any more, without the pages in transit. The numbers
    stay: a destination takes a page with a lower one for a copy."""
    found = {}
    for key, value in own_entries.items():
        if key.startswith(OWN_KEYS + _KEY):
            found[key] = _encode(_TransferState(_decode(value).last_number, None))
    return found


def _moved(page: TransferPage, engine: Engine, now_ms: int) -> None:
    for each in page.messages:
        engine.moved(each.offset)


def _released(page: TransferPage, engine: Engine, now_ms: int) -> None:
    for each in page.messages:
        engine.release(each.offset, now_ms)
