"""A queue on the broker that leads its partition: its operations.

The engine decides, and the answer is given when the decision is persisted; messages that were leased to a receiver
which has disconnected meanwhile are returned at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar, cast

from headrace.config.queue import MAX_VISIBILITY_MS
from headrace.coordinator.completion import PendingResult
from headrace.coordinator.result import Result
from headrace.model.errors import (
    HeadraceError,
    InvalidReceipt,
    LeaseTooLong,
    NotInFlight,
    PurgeInProgress,
    TooManyInFlight,
)
from headrace.model.queue_state import OWN_KEYS
from headrace.model.queue_wire import AllReceived, Counts, Filter, LeasedRange, OutgoingMessage, Peeked, Received, Sent
from headrace.queues.api import Failures, RangeAcks, RangeFailures, ReceiveOptions
from headrace.queues.engine.engine import Engine, Lease, LeaseRange
from headrace.queues.host.batches import batches_of, count_of, leases_of
from headrace.queues.host.codec import DecodedMessage, check_message, peeked, received, record_of
from headrace.queues.host.filters import MessageMatcher
from headrace.queues.host.host import QueueHost
from headrace.queues.host.message_cache import MessageReader
from headrace.queues.host.receipts import Receipt, Receipts
from headrace.queues.host.receive import Leases, Receivers
from headrace.queues.host.send import MessageSender, SendBudget
from headrace.records.reader import Record

T = TypeVar("T")

MOST_MESSAGES = 1_000
"""The most messages of one receive, or of one call to acknowledge."""
_ANSWER_BYTES = 16 * 1024 * 1024
_MAX_WAIT_MS = 20_000
_PURGE_EVERY_MS = 60_000
_PURGED = b"purged"
_PEEK_DEFAULT = 100
_PEEK_MOST = 1_000
_PEEK_BYTES = 8 * 1024 * 1024
_PEEK_PAGE = 200
_SAME_ATTEMPT_MS = 5 * 60 * 1000
_ATTEMPTS_MAX = 1_000
_BATCHES_FROM = 128
"""So many messages are sent as batches even if they are cached."""


class HostedQueue:
    def __init__(self, name: str, host: QueueHost, budget: SendBudget) -> None:
        self.name = name
        self.host = host
        self.reader = MessageReader(host.partition, host.context.cache, host.context.workers)
        self._sender = MessageSender(host, budget)
        self._receivers = Receivers(host)
        self._receipts = Receipts(host.partition.topic_id)
        self._attempts: dict[str, tuple[int, Sequence[Lease]]] = {}
        self._asked_ms = host.now_ms()

    # -- sending

    def send(self, messages: Sequence[OutgoingMessage]) -> Awaitable[list[Sent]]:
        settings, now_ms = self.host.settings, self.host.now_ms()
        for message in messages:
            check_message(message, settings, now_ms)
        records = [record_of(message, settings, now_ms) for message in messages]
        if settings.is_fifo and not self.host.has_engine:
            return self._send_when_opened(records)
        return self._sender.send(records)

    async def _send_when_opened(self, records: Sequence[Record]) -> list[Sent]:
        await self.host.opened()
        return await self._sender.send(records)

    async def send_records(self, records: Sequence[Record]) -> None:
        """Append messages that come from another queue."""
        await self._sender.send(records, is_moved=True)

    # -- receiving

    @property
    def is_abandoned(self) -> bool:
        """Whether no receiver has asked for messages for `queue.idle.delete.ms`, since this broker leads the queue."""
        idle_ms = self.host.settings.idle_delete_ms
        return 0 < idle_ms <= self.host.now_ms() - self._asked_ms

    def receive(self, options: ReceiveOptions) -> Awaitable[list[Received]]:
        host = self.host
        self._asked_ms = host.now_ms()
        wait_ms = self._wait_ms(options)
        if options.attempt_id is not None or not host.has_engine or not host.engine.has_available:
            return self._receive(options, wait_ms)
        # The usual case: messages are there.
        count, visibility_ms = self._count_of(options), min(self._visibility_ms(options), MAX_VISIBILITY_MS)
        try:
            leases = self._receivers.lease_now(count, visibility_ms)
        except TooManyInFlight:
            if wait_ms <= 0:
                raise
            leases = ()
        if not leases:
            return self._receive(options, wait_ms)
        return self._begin_delivery(leases)

    def _begin_delivery(self, leases: Sequence[Lease]) -> Awaitable[list[Received]]:
        """The answer to a receive once the leases are persisted: without a coroutine if the messages are cached."""
        found = self.reader.cached(lease.offset for lease in leases)
        if found is None:
            return self._delivered(leases, None)
        messages = self._leased(leases, found)

        def deliver() -> list[Received]:
            delivered = self._bounded(messages)
            self._count(delivered)
            return delivered

        return self._when_persisted(leases, deliver)

    def _when_persisted(self, leases: Leases, deliver: Callable[[], T]) -> PendingResult[T]:
        def abandon() -> None:
            self._receivers.undo(leases)
            answer.resolve(cast("Result[T]", Result([])))

        answer: PendingResult[T] = PendingResult(abandon)

        def persisted(result: "Result[None]") -> None:
            if answer.done:
                return
            if result.error is not None:
                self._receivers.undo(leases)
                answer.resolve(Result(error=result.error))
                return
            answer.resolve(Result(deliver()))

        self.host.when_persisted(persisted)
        return answer

    def _wait_ms(self, options: ReceiveOptions) -> int:
        wait_ms = options.wait_ms
        return self.host.settings.receive_wait_ms if wait_ms is None else min(wait_ms, _MAX_WAIT_MS)

    def _visibility_ms(self, options: ReceiveOptions) -> int:
        visibility_ms = options.visibility_ms
        return self.host.settings.visibility_timeout_ms if visibility_ms is None else visibility_ms

    @staticmethod
    def _count_of(options: ReceiveOptions) -> int:
        return max(1, min(options.max_messages, MOST_MESSAGES))

    async def _receive(self, options: ReceiveOptions, wait_ms: int) -> list[Received]:
        await self.host.opened()
        visibility_ms = self._visibility_ms(options)
        leases = self._same_attempt(options.attempt_id, visibility_ms)
        if not leases:
            if not self.host.engine.has_available:
                await self.host.log.caught_up()
            count = self._count_of(options)
            leases = await self._receivers.lease(count, min(visibility_ms, MAX_VISIBILITY_MS), wait_ms)
        if not leases:
            self.host.messages.empty_receives += 1
            return []
        return await self._delivered(leases, options.attempt_id)

    async def _delivered(self, leases: Sequence[Lease], attempt_id: str | None) -> list[Received]:
        """Read leased messages; the answer once the leases are persisted."""
        try:
            messages = await self._read(leases)
            await self.host.persisted()
        except BaseException:
            self._receivers.undo(leases)
            raise
        self._remember_attempt(attempt_id, leases)
        delivered = self._bounded(messages)
        self._count(delivered)
        return delivered

    def _count(self, delivered: Sequence[Received]) -> None:
        counts = self.host.messages
        counts.received += len(delivered)
        counts.redelivered += sum(message.attempt > 1 for message in delivered)
        counts.last_received_ms = self.host.now_ms()
        if (traffic := self.host.partition.traffic) is not None:
            traffic.messages_out += len(delivered)
            traffic.bytes_out += sum(len(message.body) for message in delivered)

    def _bounded(self, messages: list[Received]) -> list[Received]:
        """As many messages as fit into an answer; the others are returned."""
        size_bytes = 0
        for at, message in enumerate(messages):
            size_bytes += len(message.body)
            if at and size_bytes > _ANSWER_BYTES:
                over = [self._receipts.read(each.receipt) for each in messages[at:]]
                self._receivers.undo([Lease(receipt.offset, receipt.attempt, 0, 0) for receipt in over])
                return messages[:at]
        return messages

    async def _read(self, leases: Sequence[Lease]) -> list[Received]:
        found = await self.reader.read([lease.offset for lease in leases], self.host.settings)
        if len(found) < len(leases):
            # The log has lost some, by DeleteRecords or its own retention: they can never be received.
            gone = [(lease.offset, lease.attempt) for lease in leases if lease.offset not in found]
            self.host.decide_now(lambda engine, now_ms: engine.acknowledge(gone, now_ms))
        return self._leased(leases, found)

    def _leased(self, leases: Sequence[Lease], found: Mapping[int, DecodedMessage]) -> list[Received]:
        receipt_for = self._receipts.write
        return [
            received(
                found[offset],
                receipt_for(offset, attempt),
                attempt=attempt,
                first_received_at_ms=first_received_ms,
                deadline_at_ms=deadline_ms,
            )
            for offset, attempt, deadline_ms, first_received_ms in leases
            if offset in found
        ]

    def _same_attempt(self, attempt_id: str | None, visibility_ms: int) -> Sequence[Lease]:
        """The messages that this receive attempt got before, leased again, if they are all still in flight with it."""
        known = None if attempt_id is None or not self.host.settings.is_fifo else self._attempts.get(attempt_id)
        if known is None:
            return ()
        began_ms, leases = known
        engine = self.host.engine
        if self.host.now_ms() - began_ms < _SAME_ATTEMPT_MS:
            for lease in leases:
                look = engine.look(lease.offset)
                if look is None or look.state != "in flight" or look.attempt != lease.attempt:
                    break
            else:
                return [self._renewed(lease, visibility_ms) for lease in leases]
        return ()

    def _renewed(self, lease: Lease, visibility_ms: int) -> Lease:
        if visibility_ms <= 0:
            return lease
        try:
            deadline_ms = self.host.decide_now(
                lambda engine, now_ms: engine.extend(lease.offset, lease.attempt, visibility_ms, now_ms)
            )
        except (LeaseTooLong, NotInFlight):
            return lease
        return lease._replace(deadline_ms=deadline_ms)

    def _remember_attempt(self, attempt_id: str | None, leases: Sequence[Lease]) -> None:
        if attempt_id is not None and self.host.settings.is_fifo:
            self._attempts.pop(attempt_id, None)
            self._attempts[attempt_id] = (self.host.now_ms(), leases)
            while len(self._attempts) > _ATTEMPTS_MAX:
                del self._attempts[next(iter(self._attempts))]

    # -- receiving ranges

    def receive_batches(self, options: ReceiveOptions) -> Awaitable[list[Received] | AllReceived]:
        """Like `receive`; neighbours as ranges, with the batches of the log that have them."""
        host = self.host
        if options.attempt_id is not None or host.settings.is_fifo:
            return self.receive(options)
        self._asked_ms = host.now_ms()
        wait_ms = self._wait_ms(options)
        if not host.has_engine or not host.engine.has_available:
            return self._receive_ranges(options, wait_ms)
        try:
            ranges = self._receivers.lease_ranges_now(*self._wanted(options))
        except TooManyInFlight:
            if wait_ms <= 0:
                raise
            ranges = ()
        if not ranges:
            return self._receive_ranges(options, wait_ms)
        batches = self._batches_of(ranges)
        if batches is None:
            return self._begin_delivery(leases_of(ranges))
        return self._when_persisted(ranges, lambda: self._received(ranges, batches))

    async def _receive_ranges(self, options: ReceiveOptions, wait_ms: int) -> list[Received] | AllReceived:
        host = self.host
        await host.opened()
        if not host.engine.has_available:
            await host.log.caught_up()
        ranges = await self._receivers.lease_ranges(*self._wanted(options), wait_ms)
        if not ranges:
            host.messages.empty_receives += 1
            return []
        batches = self._batches_of(ranges)
        if batches is None:
            return await self._delivered(leases_of(ranges), None)
        try:
            await host.persisted()
        except BaseException:
            self._receivers.undo(ranges)
            raise
        return self._received(ranges, batches)

    def _batches_of(self, ranges: Sequence[LeaseRange]) -> bytes | None:
        """The batches that have these messages; None for single messages: some that are cached, or far apart."""
        if count_of(ranges) < _BATCHES_FROM and self.reader.holds(ranges[0].first):
            return None
        return batches_of(self.host.partition, ranges)

    def _wanted(self, options: ReceiveOptions) -> tuple[int, int]:
        return self._count_of(options), min(self._visibility_ms(options), MAX_VISIBILITY_MS)

    def _received(self, ranges: Sequence[LeaseRange], batches: bytes) -> AllReceived:
        leased = [
            LeasedRange(first, last, attempt, first_received_ms, deadline_ms)
            for first, last, attempt, deadline_ms, first_received_ms in ranges
        ]
        self._count_ranges(ranges, len(batches))
        return AllReceived([], leased, batches, str(self.host.partition.topic_id))

    def _count_ranges(self, ranges: Sequence[LeaseRange], size_bytes: int) -> None:
        counts, count = self.host.messages, count_of(ranges)
        counts.received += count
        counts.redelivered += count_of([each for each in ranges if each.attempt > 1])
        counts.last_received_ms = self.host.now_ms()
        if (traffic := self.host.partition.traffic) is not None:
            traffic.messages_out += count
            traffic.bytes_out += size_bytes

    # -- messages in flight

    def acknowledge_ranges(self, acks: RangeAcks) -> Awaitable[RangeFailures]:
        """Like `acknowledge`, of messages that were received as ranges. The failures by offset."""
        host = self.host
        if acks.topic_id != str(host.partition.topic_id):
            raise InvalidReceipt("the messages are of another queue")
        if not host.has_engine:
            return self._acknowledge_ranges_when_opened(acks)

        def decide(engine: Engine, now_ms: int) -> RangeFailures:
            failures: RangeFailures = []
            for first, last, attempt in acks.ranges:
                failures += engine.acknowledge_range(first, last, attempt, now_ms).items()
            return failures

        def finish(failures: RangeFailures) -> RangeFailures:
            for first, last, _ in acks.ranges:
                self.reader.drop_range(first, last)
            host.messages.deleted += acks.count - len(failures)
            return failures

        return host.decide(decide, finish)

    async def _acknowledge_ranges_when_opened(self, acks: RangeAcks) -> RangeFailures:
        await self.host.opened()
        return await self.acknowledge_ranges(acks)

    def acknowledge(self, receipts: Sequence[str], *, any_receipt: bool = False) -> Awaitable[Failures]:
        if not self.host.has_engine:
            return self._acknowledge_when_opened(receipts, any_receipt=any_receipt)
        parsed = list(map(self._receipts.parse, receipts))
        wanted = [each for each in parsed if isinstance(each, Receipt)]

        def decide(engine: Engine, now_ms: int) -> list[NotInFlight | None]:
            return engine.acknowledge(wanted, now_ms, any_attempt=any_receipt)

        def finish(outcomes: list[NotInFlight | None]) -> Failures:
            self.reader.drop([offset for offset, _ in wanted])
            failures: Failures = [*outcomes]
            if len(wanted) < len(parsed):
                found = iter(outcomes)
                failures = [next(found) if isinstance(each, Receipt) else each for each in parsed]
            self.host.messages.deleted += failures.count(None)
            return failures

        return self.host.decide(decide, finish)

    async def _acknowledge_when_opened(self, receipts: Sequence[str], *, any_receipt: bool) -> Failures:
        await self.host.opened()
        return await self.acknowledge(receipts, any_receipt=any_receipt)

    async def extend(self, wanted: Sequence[tuple[str, int]], *, any_receipt: bool = False) -> Failures:
        def extend(engine: Engine, at: int, receipt: Receipt, now_ms: int) -> None:
            look = engine.look(receipt.offset) if any_receipt else None
            engine.extend(receipt.offset, receipt.attempt if look is None else look.attempt, wanted[at][1], now_ms)

        return await self._settle([receipt for receipt, _ in wanted], extend)

    async def nack(self, wanted: Sequence[tuple[str, int | None, str]]) -> Failures:
        failures = await self._settle(
            [receipt for receipt, _, _ in wanted],
            lambda engine, at, receipt, now_ms: engine.nack(
                receipt.offset, receipt.attempt, now_ms, wanted[at][1], wanted[at][2]
            ),
        )
        self.host.messages.returned += failures.count(None)
        return failures

    async def _settle(
        self, receipts: Sequence[str], decision: Callable[[Engine, int, Receipt, int], object]
    ) -> Failures:
        await self.host.opened()
        read = self._receipts.read

        def decide(engine: Engine, now_ms: int) -> Failures:
            failures: Failures = [None] * len(receipts)
            for at, text in enumerate(receipts):
                try:
                    decision(engine, at, read(text), now_ms)
                except HeadraceError as error:
                    failures[at] = error
            return failures

        return await self.host.decide(decide, lambda failures: failures)

    # -- reading

    async def counts(self) -> Counts:
        await self.host.opened()
        await self.host.log.caught_up()
        self.host.engine.due(self.host.now_ms())
        return self.host.engine.counts()

    async def peek(self, wanted: Filter, after_offset: int) -> list[Peeked]:
        await self.host.opened()
        await self.host.log.caught_up()
        most = _PEEK_DEFAULT if wanted.limit is None else max(0, min(wanted.limit, _PEEK_MOST))
        found: list[Peeked] = []
        size_bytes = 0
        matcher = MessageMatcher(wanted)
        settings = self.host.settings
        offset = after_offset + 1
        while len(found) < most:
            offsets = []
            for live in self.host.engine.live(offset):
                offsets.append(live)
                if len(offsets) == _PEEK_PAGE:
                    break
            if not offsets:
                break
            offset = offsets[-1] + 1
            messages = await self.reader.read(offsets, settings)
            for each in offsets:
                message, look = messages.get(each), self.host.engine.look(each)
                if message is None or look is None or not matcher.matches(message):
                    continue
                until_ms = look.until_ms
                if until_ms is None and look.state == "delayed":
                    until_ms = message.due_at_ms
                    if until_ms is None:
                        until_ms = message.sent_at_ms + settings.delay_ms
                size_bytes += message.size_bytes
                if found and size_bytes > _PEEK_BYTES:
                    return found
                found.append(peeked(message, attempt=look.attempt, state=look.state, until_at_ms=until_ms))
                if len(found) == most:
                    break
            await asyncio.sleep(0)
        return found

    async def purge(self, purge_id: str) -> None:
        """`purge_id` is new for each purge, and the same when a purge is repeated."""
        host = self.host
        await host.opened()
        await host.log.caught_up()
        last, now_ms = host.own_entries.get(OWN_KEYS + _PURGED), host.now_ms()
        if last is not None:
            purged_ms, _, last_id = last.decode().partition(" ")
            if purge_id == last_id:
                await host.persisted()
                return
            if now_ms - int(purged_ms) < _PURGE_EVERY_MS:
                raise PurgeInProgress(f"{self.name} was purged less than a minute ago: try again later")
        host.decide_now(lambda engine, _: engine.purge())
        host.persist_own(_PURGED, f"{now_ms} {purge_id}".encode())
        await host.persisted()
