"""Delivery of a share partition's dead records to the group's dead-letter topic, in the background.

A dead record holds back the group's start offset until its letter is committed; then it is acked. Failed writes are
retried. A topic that does not accept letters is a mistake in the settings: the records are acked without a letter, as
in Kafka, with a warning in the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import HeadraceError
from headrace.queues.share.dead_letters import DeadLetter, DeadLettersRefused, LetterWriter
from headrace.queues.share.engine import ShareEngine
from headrace.replication.partition import Partition

log = logging.getLogger(__name__)

_LETTERS_AT_ONCE = 100
_RETRY_DELAY_S = ExponentialDelay(0.1, 10.0)


async def _nothing_to_commit() -> None:
    """For a delivery that is closed."""


def _always() -> bool:
    """For a delivery that is closed: it is void."""
    return True


class DeadLetterDelivery:
    def __init__(
        self,
        partition: Partition,
        group_id: str,
        engine: ShareEngine,
        writer: LetterWriter,
        *,
        committed: Callable[[], Awaitable[None]],
        is_void: Callable[[], bool],
    ) -> None:
        """`committed` returns when all decisions of the engine are; `is_void` is true once nothing may be written."""
        self._partition = partition
        self._group_id = group_id
        self._engine = engine
        self._writer = writer
        self._committed = committed
        self._is_void = is_void
        self._task: asyncio.Task[None] | None = None
        self._reported = ""

    def look(self) -> None:
        """Start the delivery if there are dead records."""
        if self._is_wanted and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._deliver_all())

    def close(self) -> None:
        """The state is void: nothing is written any more. The callbacks are dropped, which refer to the partition."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._committed, self._is_void = _nothing_to_commit, _always

    @property
    def _is_wanted(self) -> bool:
        return not self._is_void() and self._engine.has_dead

    async def _deliver_all(self) -> None:
        delays = RetryDelays(_RETRY_DELAY_S)
        while self._is_wanted:
            try:
                # First persist that they are dead: a rejection that is not committed must not be in a letter.
                await self._committed()
                await self._deliver()
            except Exception as error:
                if self._is_void():
                    return
                self._report("are delayed", error)
                await asyncio.sleep(delays.next())
            else:
                delays.reset()

    async def _deliver(self) -> None:
        letters = sorted(
            DeadLetter(dead.offset, dead.attempt, self._engine.is_rejected(dead.offset))
            for dead in self._engine.dead(_LETTERS_AT_ONCE)
        )
        if not letters:
            return
        written = len(letters)
        try:
            written = await self._writer.write(self._partition, self._group_id, letters)
            self._reported = ""
        except DeadLettersRefused as error:
            self._report("are dropped", error)
        for letter in letters[:written]:
            self._engine.moved(letter.offset)
        await self._committed()

    def _report(self, what: str, error: Exception) -> None:
        """Log each reason once."""
        if str(error) != self._reported:
            self._reported = str(error)
            log.warning(
                "dead letters of the share group %s in %s %s: %s",
                self._group_id,
                self._partition,
                what,
                error,
                exc_info=None if isinstance(error, HeadraceError) else error,
            )
