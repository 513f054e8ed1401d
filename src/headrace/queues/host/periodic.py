"""Messages of a queue's own schedule (`queue.schedule`), sent by the broker that leads the queue when they are due.

Each due time has one message (invariant 85), whatever is killed when. A message is the page of its due time in a stream
of the queue (`engine.moved_pages`), and a page is a message only if its number is higher than the last one's. So the
leader need not know whether an attempt to append succeeded: it appends again, and a copy does not count. The last page
is part of the queue's state and of its log, so every later leader continues after it.

The time since which a rule is in force is persisted before its first message: a changed rule has no due times in the
past, and a leader that takes over makes up for those that its predecessor did not get to.
"""

import asyncio
import logging

import msgspec

from headrace.config.queue import QueueSettings
from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import HeadraceError, NotLeader
from headrace.model.invariants import invariant
from headrace.model.queue_state import OWN_KEYS
from headrace.model.queued import SCHEDULE
from headrace.model.timetable import Timetable, read_timetable
from headrace.queues.host.codec import periodic_record, stream_number
from headrace.queues.host.queue import HostedQueue
from headrace.records.reader import Record

log = logging.getLogger(__name__)

MOST_MISSED = 1_000
"""So many due times are made up for under `queue.schedule.missed=all`: the latest."""
LATE_MS = 60_000
"""A message is too late after this time, or when the next is due, under `queue.schedule.missed=skip`."""
_KEY = b"schedule"
_RETRY_DELAY_S = ExponentialDelay(0.05, 2.0)


class _RuleInForce(msgspec.Struct, array_like=True, frozen=True):
    rule: str
    timezone: str
    since_ms: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_RuleInForce).decode


class PeriodicSender:
    def __init__(self, queue: HostedQueue) -> None:
        self._queue = queue
        self._host = queue.host
        self._stream = stream_number(queue.host.partition.topic_id.hex, SCHEDULE)
        self._settings: QueueSettings | None = None
        self._timetable: Timetable | None = None
        self._since_ms = 0
        self._done_to_ms = 0
        """Due times up to this one are sent, or left out."""
        self._is_sending = False
        self._host.on_change.append(self._look)
        self._host.on_close.append(lambda _: self._host.context.timers.cancel(self))

    @property
    def last_due_ms(self) -> int | None:
        """The due time of the last message."""
        return self._host.engine.last_page(self._stream)

    def _look(self) -> None:
        """Something has changed: the settings, perhaps."""
        settings = self._host.settings
        if settings is not self._settings and self._host.has_engine:
            self._settings = settings
            self._follow(settings)

    def _follow(self, settings: QueueSettings) -> None:
        host = self._host
        stored = host.own_entries.get(OWN_KEYS + _KEY)
        if not settings.schedule:
            self._timetable = None
            if stored is not None:
                host.persist_own(_KEY, None)
            host.context.timers.cancel(self)
            return
        known = None if stored is None else _decode(stored)
        rule, timezone = settings.schedule, settings.schedule_timezone
        if known is None or (known.rule, known.timezone) != (rule, timezone):
            known = _RuleInForce(rule, timezone, host.now_ms())
            host.persist_own(_KEY, _encode(known))
        self._timetable = read_timetable(rule, timezone)
        self._since_ms = self._done_to_ms = known.since_ms
        self._arm()

    def _arm(self) -> None:
        """Wake up when the next message is due."""
        host = self._host
        next_ms = None if self._timetable is None else self._timetable.next_after(self._sent_to_ms())
        if next_ms is None:
            host.context.timers.cancel(self)
        else:
            host.context.timers.set(self, host.context.time.monotonic_ms(next_ms), self._due)

    def _sent_to_ms(self) -> int:
        return max(self._since_ms, self._done_to_ms, self.last_due_ms or 0)

    def _due(self) -> None:
        if self._host.has_engine and not self._is_sending:
            self._is_sending = True
            self._host.in_background(self._send_due())

    async def _send_due(self) -> None:
        delays = RetryDelays(_RETRY_DELAY_S)
        said = ""
        while self._host.has_engine and self._timetable is not None:
            try:
                await self._send(self._timetable)
                break
            except NotLeader:
                return
            except HeadraceError as error:
                # Its outcome may be unknown: what is sent again does not count twice.
                if said != str(error):
                    said = str(error)
                    log.warning("the schedule of %s cannot send for now, retrying: %s", self._queue.name, error)
                await asyncio.sleep(delays.next())
        self._is_sending = False
        if self._host.has_engine:
            self._arm()

    async def _send(self, timetable: Timetable) -> None:
        host = self._host
        await host.persisted()
        now_ms = host.now_ms()
        for record in self._records(timetable, now_ms):
            # One by one: together they may be more than the queue's backlog, or than a batch, may ever have.
            if timetable is self._timetable:
                await self._queue.send_records([record])
        if timetable is self._timetable:
            self._done_to_ms = max(self._done_to_ms, now_ms)

    def _records(self, timetable: Timetable, now_ms: int) -> list[Record]:
        """The messages that are due by now, but for those that were missed."""
        missed, partition = self._host.settings.schedule_missed, self._host.partition
        sent_to_ms = self._sent_to_ms()
        most = MOST_MISSED if missed == "all" else 1
        records = []
        for due_ms in timetable.latest(sent_to_ms, now_ms, most):
            invariant(due_ms > sent_to_ms, 85, "a schedule sends no due time again, nor an earlier one")
            next_ms = timetable.next_after(due_ms)
            expires_ms = None if missed == "all" else next_ms
            if missed == "skip":
                expires_ms = due_ms + LATE_MS if next_ms is None else min(next_ms, due_ms + LATE_MS)
            if expires_ms is None or expires_ms > now_ms:
                records.append(periodic_record(self._queue.name, partition.topic_id, due_ms, expires_ms, now_ms))
        return records
