"""A queue that this broker leads: the hosted queue, its dead letters, its move tasks and its schedule."""

from collections.abc import Awaitable, Sequence
from dataclasses import replace

from headrace.model.queue_wire import AllReceived, Counts, Filter, Move, OutgoingMessage, Peeked, Received, Sent
from headrace.queues.api import Failures, RangeAcks, RangeFailures, ReceiveOptions
from headrace.queues.host.host import QueueHost
from headrace.queues.host.periodic import PeriodicSender
from headrace.queues.host.queue import HostedQueue
from headrace.queues.move.dead_letters import DeadLetterMover
from headrace.queues.move.redrive import MoveTasks
from headrace.records.reader import Record


class LocalQueue:
    """Implements `operations.QueueOperations`."""

    __slots__ = ("dead_letters", "hosted", "move_tasks", "schedule")

    def __init__(
        self, hosted: HostedQueue, dead_letters: DeadLetterMover, move_tasks: MoveTasks, schedule: PeriodicSender
    ) -> None:
        self.hosted = hosted
        self.dead_letters = dead_letters
        self.move_tasks = move_tasks
        self.schedule = schedule

    @property
    def host(self) -> QueueHost:
        return self.hosted.host

    async def stopped(self) -> None:
        await self.dead_letters.stopped()
        await self.move_tasks.stopped()
        await self.host.stopped()

    def send(self, messages: Sequence[OutgoingMessage]) -> Awaitable[list[Sent]]:
        return self.hosted.send(messages)

    async def send_records(self, records: Sequence[Record]) -> None:
        await self.hosted.send_records(records)

    def receive(self, options: ReceiveOptions) -> Awaitable[list[Received]]:
        return self.hosted.receive(options)

    def acknowledge(self, receipts: Sequence[str], *, any_receipt: bool) -> Awaitable[Failures]:
        return self.hosted.acknowledge(receipts, any_receipt=any_receipt)

    def receive_batches(self, options: ReceiveOptions) -> Awaitable[list[Received] | AllReceived]:
        return self.hosted.receive_batches(options)

    def acknowledge_ranges(self, acks: RangeAcks) -> Awaitable[RangeFailures]:
        return self.hosted.acknowledge_ranges(acks)

    async def extend(self, wanted: Sequence[tuple[str, int]], *, any_receipt: bool) -> Failures:
        return await self.hosted.extend(wanted, any_receipt=any_receipt)

    async def nack(self, wanted: Sequence[tuple[str, int | None, str]]) -> Failures:
        return await self.hosted.nack(wanted)

    async def peek(self, wanted: Filter, after_offset: int) -> list[Peeked]:
        return await self.hosted.peek(wanted, after_offset)

    async def purge(self, purge_id: str) -> None:
        await self.hosted.purge(purge_id)

    async def counts(self) -> Counts:
        return replace(await self.hosted.counts(), last_due_at_ms=self.schedule.last_due_ms)

    async def start_move(self, destination: str | None, wanted: Filter, per_second: int | None) -> Move:
        return await self.move_tasks.start(destination, wanted, per_second)

    async def cancel_move(self, move_id: str) -> Move:
        return await self.move_tasks.cancel(move_id)

    async def moves(self) -> list[Move]:
        return await self.move_tasks.all()
