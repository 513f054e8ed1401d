"""Dead letters: messages at the receive limit are moved to the dead-letter queue."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import HeadraceError
from headrace.model.queued import DEAD_LETTERS
from headrace.model.reply_headers import failed_headers, reply_address
from headrace.queues.engine.inventory import DeadMessage
from headrace.queues.host.codec import DecodedMessage
from headrace.queues.host.queue import HostedQueue
from headrace.queues.move.transfer import NO_ROOM, PAGE_BYTES, SendRecords, TransferMessage, TransferStream
from headrace.records.reader import Record

log = logging.getLogger(__name__)

_RETRY_DELAY_S = ExponentialDelay(0.1, 10.0)


class DeadLetterMover:
    def __init__(self, queue: HostedQueue, send: SendRecords, send_reply: SendRecords) -> None:
        self._queue = queue
        self._send_reply = send_reply
        self._transfer = TransferStream(
            queue, send, DEAD_LETTERS, keeps_send_time=lambda: not queue.host.settings.is_fifo
        )
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False
        queue.host.on_change.append(self._look)
        queue.host.on_close.append(lambda _: self._cancel())

    async def stopped(self) -> None:
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _look(self) -> None:
        if self._is_wanted and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._move_all())

    @property
    def _is_wanted(self) -> bool:
        host = self._queue.host
        return host.has_engine and (host.engine.has_dead or self._transfer.page is not None)

    async def _move_all(self) -> None:
        host = self._queue.host
        delays = RetryDelays(_RETRY_DELAY_S)
        while self._is_wanted and (self._transfer.page is not None or host.settings.dead_letter):
            try:
                if self._transfer.page is not None:
                    await self._transfer.deliver()
                else:
                    await self._move(host.engine.dead(self._transfer.most), host.settings.dead_letter)
            except Exception as error:
                has_room_for_fewer = isinstance(error, NO_ROOM) and self._transfer.most > 1
                if not self._is_failing and not has_room_for_fewer:
                    self._is_failing = True
                    log.warning(
                        "messages of %s cannot be moved to the dead-letter queue %s for now: %s",
                        self._queue.name,
                        host.settings.dead_letter,
                        error,
                        exc_info=None if isinstance(error, HeadraceError) else error,
                    )
                await asyncio.sleep(delays.next())
            else:
                delays.reset()
                self._is_failing = False

    async def _move(self, dead: Sequence[DeadMessage], destination: str) -> None:
        messages = await self._queue.reader.read([each.offset for each in dead], self._queue.host.settings)
        letters = [_letter(each, messages.get(each.offset)) for each in _together(dead, messages)]
        await self._transfer.transfer(destination, letters)
        self._queue.host.messages.dead_lettered += len(letters)
        if replies := _replies(letters, messages, self._queue.host.now_ms()):
            self._queue.host.in_background(self._reply(replies))

    async def _reply(self, replies: Sequence[tuple[str, Record]]) -> None:
        """Send the failures to the callers, each once: a caller that gets none waits for its own timeout."""
        for queue, record in replies:
            try:
                await self._send_reply(queue, [record])
            except HeadraceError as error:
                log.info("no reply to the caller of a dead letter in %s: %s", queue, error)


def _replies(
    letters: Sequence[TransferMessage], messages: Mapping[int, DecodedMessage], now_ms: int
) -> list[tuple[str, Record]]:
    """For each dead letter that was a call: its reply queue, and the reply."""
    found = []
    for letter in letters:
        message = messages.get(letter.offset)
        address = None if message is None else reply_address(message.headers)
        if address is not None:
            headers = tuple(failed_headers(address[1], letter.reason, letter.attempts))
            found.append((address[0], Record(0, now_ms, None, b"", headers)))
    return found


def _letter(dead: DeadMessage, message: DecodedMessage | None) -> TransferMessage:
    group = b"" if message is None else message.group or b""
    times = "once" if dead.attempt == 1 else f"{dead.attempt} times"
    reason = dead.reason or f"received {times} without being deleted"
    return TransferMessage(dead.offset, group, dead.attempt, reason)


def _together(dead: Sequence[DeadMessage], messages: Mapping[int, DecodedMessage]) -> Sequence[DeadMessage]:
    """As many of them as fit into one page, at least one."""
    size_bytes = 0
    for at, each in enumerate(dead):
        message = messages.get(each.offset)
        size_bytes += 0 if message is None else message.size_bytes
        if at and size_bytes > PAGE_BYTES:
            return dead[:at]
    return dead
