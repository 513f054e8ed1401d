"""Carrying messages from one queue to another, each once, whenever that is interrupted and taken up again.

Messages go in pages. A page is kept here, with a number that is larger than that of the last one, before any of it is
sent; nobody receives its messages while it is on its way; and they are done here, and the page forgotten, when it is
committed there (invariant 44). Whether an attempt that failed, or was cut off, has got there is not known. So the page
is sent again until one is answered, by whoever leads the queue then: who gets it knows by its number whether it is
there already (`engine.moved_pages`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from headrace.model.errors import HeadraceError, InvalidMessage, UnknownQueue
from headrace.model.invariants import invariant
from headrace.queues.engine.engine import Engine
from headrace.queues.host.codec import Origin, moved_record
from headrace.queues.host.host import OWN_KEYS
from headrace.queues.host.queue import HostedQueue
from headrace.records.reader import Record

log = logging.getLogger(__name__)

PAGE_MESSAGES = 100
PAGE_BYTES = 512 * 1024
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0

SendRecords = Callable[[str, Sequence[Record]], Awaitable[None]]
"""Sends to a queue, wherever it is led."""


class TransferMessage(msgspec.Struct, array_like=True, frozen=True):
    offset: int
    group: bytes
    attempts: int
    reason: str


class TransferPage(msgspec.Struct, array_like=True, frozen=True):
    number: int
    destination: str
    messages: Sequence[TransferMessage]
    errand: str
    """For what they go, as whoever sends them calls it."""


class _TransferState(msgspec.Struct, array_like=True, frozen=True):
    last_number: int
    page: TransferPage | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_TransferState).decode


class TransferStream:
    """One stream of pages out of a queue, one at a time."""

    def __init__(
        self,
        queue: HostedQueue,
        send: SendRecords,
        stream: str,
        *,
        keeps_time: Callable[[], bool],
        delivered: Callable[[TransferPage], None] = lambda _: None,
    ) -> None:
        """`keeps_time`: whether messages are as old there as here. `delivered` is called when a page is there, and what
        it keeps is kept together with that."""
        self._queue = queue
        self._send = send
        self._stream = stream
        self._key = b"carry:" + stream.encode()
        self._keeps_time = keeps_time
        self._delivered = delivered
        self._last_number = 0
        self.page: TransferPage | None = None
        """What is on its way."""
        self._is_in_doubt = False
        """Whether it may be there already."""
        queue.host.on_open.append(self._open)

    def _open(self) -> None:
        """Go on from what was kept. Nobody has received anything yet: what is on its way stays hidden."""
        value = self._queue.host.own_entries.get(OWN_KEYS + self._key)
        if value is not None:
            kept = _decode(value)
            self._last_number, self.page = kept.last_number, kept.page
            if self.page is not None:
                self._is_in_doubt = True
                self._hold(self.page.messages)

    def _hold(self, messages: Sequence[TransferMessage]) -> set[int]:
        host = self._queue.host
        return set(host.engine.hold([(each.offset, each.group) for each in messages], host.now_ms()))

    def _keep(self) -> None:
        self._queue.host.keep_own(self._key, _encode(_TransferState(self._last_number, self.page)))

    async def carry(self, destination: str, messages: Sequence[TransferMessage], errand: str = "") -> int:
        """Carry those that are available now, or dead: how many. Errors as of `deliver`."""
        engine = self._queue.host.engine
        dead = {each.offset for each in messages if (look := engine.look(each.offset)) and look.state == "dead"}
        held = self._hold([each for each in messages if each.offset not in dead])
        going = [each for each in messages if each.offset in held or each.offset in dead]
        if going:
            invariant(self.page is None, 44, "one page of a stream is in transit at a time")
            self._last_number += 1
            self.page = TransferPage(self._last_number, destination, going, errand)
            self._is_in_doubt = False
            self._keep()
            await self.deliver()
        return len(going)

    async def deliver(self) -> None:
        """Until the page on its way is there. `UnknownQueue` or `InvalidMessage` if it never can be: then nothing of it
        is, and its messages are here as before. Any other error means that this broker leads the queue no more."""
        page, host = self.page, self._queue.host
        assert page is not None
        backoff_s, is_told = _BACKOFF_FIRST_S, False
        while True:
            try:
                # Whoever leads next must know of it before anybody sees a copy.
                await host.kept()
                refusal = await self._send_page(page)
                # From here on nothing is waited for, so that all of it is kept together.
                host.decide_now(partial(_moved if refusal is None else _released, page))
                break
            except Exception as error:
                if not host.has_engine:
                    raise
                self._is_in_doubt = True
                if backoff_s == _BACKOFF_MAX_S and not is_told:
                    is_told = True
                    log.warning(
                        "messages of %s cannot go to %s for now: %s",
                        self._queue.name,
                        page.destination,
                        error,
                        exc_info=None if isinstance(error, HeadraceError) else error,
                    )
            await asyncio.sleep(backoff_s)
            backoff_s = min(_BACKOFF_MAX_S, backoff_s * 2)
        self.page = None
        self._keep()
        if refusal is not None:
            raise refusal
        self._delivered(page)
        self._queue.bodies.drop(each.offset for each in page.messages)

    async def _send_page(self, page: TransferPage) -> HeadraceError | None:
        """None when it is there; or why it never can be, if certainly nothing of it is."""
        queue, host = self._queue, self._queue.host
        messages = await queue.bodies.read([each.offset for each in page.messages], host.settings)
        # What the log has lost meanwhile, nobody can copy.
        there = [each for each in page.messages if each.offset in messages]
        records = [
            moved_record(
                messages[each.offset],
                Origin(queue.name, host.partition.topic_id, self._stream, page.number, at),
                reason=each.reason,
                attempts=each.attempts,
                now_ms=host.now_ms(),
                keeps_time=self._keeps_time(),
            )
            for at, each in enumerate(there)
        ]
        try:
            if records:
                await self._send(page.destination, records)
        except UnknownQueue as error:
            # What may have been there is gone with the queue.
            return error
        except InvalidMessage as error:
            if self._is_in_doubt:
                raise
            return error
        return None


def _moved(page: TransferPage, engine: Engine, now_ms: int) -> None:
    for each in page.messages:
        engine.moved(each.offset)


def _released(page: TransferPage, engine: Engine, now_ms: int) -> None:
    for each in page.messages:
        engine.let_go(each.offset, now_ms)
