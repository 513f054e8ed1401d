"""Dead letters: messages that were received as often as they may be go to the dead-letter queue, and then are done.

The copy is committed there before the message is done here (invariant 44). If this stops in between, the copy is made
again, and the queue that gets it knows it by where it came from.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from headrace.model.errors import HeadraceError
from headrace.queues.engine import Dead, Engine
from headrace.queues.led import LedQueue
from headrace.queues.messages import Message, moved_record
from headrace.records.reader import Record

log = logging.getLogger(__name__)

SendRecords = Callable[[str, Sequence[Record]], Awaitable[None]]
"""Sends to a queue, wherever it is led."""

_AT_A_TIME = 100
_AT_A_TIME_BYTES = 512 * 1024
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 10.0


class Burial:
    def __init__(self, queue: LedQueue, send: SendRecords) -> None:
        self._queue = queue
        self._send = send
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
        host = self._queue.host
        if host.has_engine and host.engine.has_dead and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._bury_all())

    async def _bury_all(self) -> None:
        host = self._queue.host
        backoff_s = _BACKOFF_FIRST_S
        while host.has_engine and host.engine.has_dead and host.settings.dead_letter:
            try:
                await self._bury(host.engine.dead(_AT_A_TIME), host.settings.dead_letter)
            except Exception as error:
                if not self._is_failing:
                    self._is_failing = True
                    log.warning(
                        "messages of %s cannot go to the dead-letter queue %s for now: %s",
                        self._queue.name,
                        host.settings.dead_letter,
                        error,
                        exc_info=None if isinstance(error, HeadraceError) else error,
                    )
                await asyncio.sleep(backoff_s)
                backoff_s = min(_BACKOFF_MAX_S, backoff_s * 2)
            else:
                backoff_s = _BACKOFF_FIRST_S
                self._is_failing = False

    async def _bury(self, dead: Sequence[Dead], destination: str) -> None:
        queue, host = self._queue, self._queue.host
        messages = await queue.bodies.read([each.offset for each in dead], host.settings)
        dead = _together(dead, messages)
        records = [
            moved_record(
                messages[each.offset],
                queue=queue.name,
                topic_id=host.partition.topic_id,
                reason=each.reason or f"received {each.attempt} times without being deleted",
                attempts=each.attempt,
                now_ms=host.now_ms(),
                keeps_time=not host.settings.is_fifo,
            )
            for each in dead
            if each.offset in messages
        ]
        # What led to this must be known to whoever leads next before anybody sees the copy.
        await host.kept()
        if records:
            await self._send(destination, records)

        def buried(engine: Engine, now_ms: int) -> None:
            for each in dead:
                engine.buried(each.offset)

        await host.decide(buried)
        for each in dead:
            queue.bodies.drop(each.offset)


def _together(dead: Sequence[Dead], messages: Mapping[int, Message]) -> Sequence[Dead]:
    """As many of them as go with one send, at least one."""
    size_bytes = 0
    for at, each in enumerate(dead):
        message = messages.get(each.offset)
        size_bytes += 0 if message is None else message.size_bytes
        if at and size_bytes > _AT_A_TIME_BYTES:
            return dead[:at]
    return dead
