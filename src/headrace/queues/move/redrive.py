"""Move tasks: move messages from one queue to another, mostly out of a dead-letter queue (redrive).

The progress of a task is persisted with the queue's state: the next leader continues from there. Messages in flight are
not moved, nor are messages of a fifo queue that could not be received now: the rest of a group with a message in flight
or hidden. The tasks of a queue take turns.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import HeadraceError, InvalidMessage, QueueUnavailable, UnknownMove, UnknownQueue
from headrace.model.queue_state import OWN_KEYS
from headrace.model.queue_wire import Filter, Move
from headrace.model.queued import read_origin
from headrace.queues.host.codec import DecodedMessage
from headrace.queues.host.filters import MessageMatcher
from headrace.queues.host.queue import HostedQueue
from headrace.queues.move.transfer import (
    NO_ROOM,
    PAGE_BYTES,
    SendRecords,
    TransferMessage,
    TransferPage,
    TransferStream,
)

log = logging.getLogger(__name__)

_KEY = b"move:"
_KNOWN_MAX = 10
_STEPS_PER_S = 10
_RETRY_S = 0.2
_RETRIES = 50
_ROOM_DELAY_S = ExponentialDelay(0.1, 5.0)
RUNNING, COMPLETED, CANCELLING, CANCELLED, FAILED = "RUNNING", "COMPLETED", "CANCELLING", "CANCELLED", "FAILED"
_ACTIVE = (RUNNING, CANCELLING)


class MoveTask(msgspec.Struct, array_like=True):
    """A move task as it is persisted."""

    move: Move
    wanted: Filter
    next_offset: int
    end_offset: int
    """Messages that are sent after its start are not moved."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(MoveTask).decode


class MoveTasks:
    def __init__(self, queue: HostedQueue, send: SendRecords, new_id: Callable[[], str]) -> None:
        self._queue = queue
        self._transfer = TransferStream(queue, send, "move", keeps_send_time=lambda: False, delivered=self._delivered)
        self._turn = asyncio.Lock()
        self._new_id = new_id
        self._tasks: dict[str, MoveTask] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        queue.host.on_open.append(self._resume)
        queue.host.on_close.append(lambda _: self._stop())

    # -- operations

    async def start(self, destination: str | None, wanted: Filter, per_second: int | None) -> Move:
        await self._queue.host.opened()
        await self._queue.host.log.caught_up()
        engine, now_ms = self._queue.host.engine, self._queue.host.now_ms()
        if sum(task.move.status in _ACTIVE for task in self._tasks.values()) >= _KNOWN_MAX:
            raise QueueUnavailable(
                f"{_KNOWN_MAX} tasks move messages of {self._queue.name} already: wait until one has ended"
            )
        move = Move(
            id=f"{self._queue.host.partition.topic_id.hex}-{self._new_id()}",
            source=self._queue.name,
            destination=destination,
            status=RUNNING,
            started_at_ms=now_ms,
            moved=0,
            to_move=engine.counts().available,
            per_second=per_second,
        )
        task = self._tasks[move.id] = MoveTask(move, wanted, 0, self._queue.host.partition.last_stable_offset)
        self._forget_oldest()
        self._persist(task)
        self._run(task)
        await self._queue.host.persisted()
        return task.move

    async def cancel(self, move_id: str) -> Move:
        await self._queue.host.opened()
        task = self._tasks.get(move_id)
        if task is None:
            raise UnknownMove(f"no task {move_id} moves messages of {self._queue.name}")
        if task.move.status == RUNNING:
            self._set(task, status=CANCELLING)
            await self._queue.host.persisted()
        return task.move

    async def all(self) -> list[Move]:
        await self._queue.host.opened()
        return [task.move for task in sorted(self._tasks.values(), key=_age, reverse=True)][:_KNOWN_MAX]

    # -- life

    def _resume(self) -> None:
        if self._transfer.page is not None:
            self._start_running("", self._deliver())
        for key, value in self._queue.host.own_entries.items():
            if key.startswith(OWN_KEYS + _KEY):
                try:
                    task = _decode(value)
                except msgspec.MsgspecError as error:
                    log.error("a task that moves messages of %s cannot be read: %s", self._queue.name, error)
                    continue
                self._tasks[task.move.id] = task
                if task.move.status in _ACTIVE:
                    self._run(task)

    def _stop(self) -> None:
        for running in self._running.values():
            running.cancel()

    async def stopped(self) -> None:
        for running in tuple(self._running.values()):
            with suppress(asyncio.CancelledError):
                await running
        self._transfer.forget_owner()

    def _run(self, task: MoveTask) -> None:
        self._start_running(task.move.id, self._move(task))

    def _start_running(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        running = self._running[name] = asyncio.get_running_loop().create_task(work)
        running.add_done_callback(lambda _: self._running.pop(name, None))

    def _forget_oldest(self) -> None:
        over = [task for task in sorted(self._tasks.values(), key=_age) if task.move.status not in _ACTIVE]
        for task in over[: max(0, len(self._tasks) - _KNOWN_MAX)]:
            del self._tasks[task.move.id]
            self._queue.host.persist_own(_KEY + task.move.id.encode(), None)

    def _persist(self, task: MoveTask) -> None:
        self._queue.host.persist_own(_KEY + task.move.id.encode(), _encode(task))

    def _set(self, task: MoveTask, **changes: object) -> None:
        task.move = msgspec.structs.replace(task.move, **changes)
        self._persist(task)

    # -- moving

    async def _deliver(self) -> None:
        """Deliver the page that was in transit when the leader changed."""
        async with self._turn:
            # If it never can be delivered, its messages stay here, and the task fails with the same error.
            with suppress(HeadraceError):
                await self._transfer.deliver()

    def _delivered(self, page: TransferPage) -> None:
        task = self._tasks.get(page.purpose)
        if task is not None:
            self._set(task, moved=task.move.moved + len(page.messages))

    async def _move(self, task: MoveTask) -> None:
        failures, room_delays = 0, RetryDelays(_ROOM_DELAY_S)
        while task.move.status == RUNNING:
            began_ms = self._queue.host.context.clock.monotonic_ms()
            try:
                async with self._turn:
                    moved = await self._move_some(task)
            except (UnknownQueue, InvalidMessage) as error:
                self._set(task, status=FAILED, failure=str(error))
                return
            except NO_ROOM:
                # However long that takes: the task can be cancelled.
                await asyncio.sleep(room_delays.next())
                continue
            except HeadraceError as error:
                if not self._queue.host.has_engine:
                    return
                failures += 1
                if failures > _RETRIES:
                    self._set(task, status=FAILED, failure=str(error))
                    return
                await asyncio.sleep(_RETRY_S)
                continue
            except Exception as error:
                log.exception("messages of %s cannot be moved", self._queue.name)
                self._set(task, status=FAILED, failure=f"an unexpected error, see the broker's log: {error}")
                return
            failures = 0
            room_delays.reset()
            if moved is None:
                self._set(task, status=COMPLETED)
                return
            if task.move.per_second:
                took_s = (self._queue.host.context.clock.monotonic_ms() - began_ms) / 1000
                await asyncio.sleep(max(0.0, moved / task.move.per_second - took_s))
            else:
                await asyncio.sleep(0)
        if task.move.status == CANCELLING:
            # Not before the page in transit is delivered.
            async with self._turn:
                self._set(task, status=CANCELLED)

    async def _move_some(self, task: MoveTask) -> int | None:
        """How many messages were moved; None if there are none left."""
        queue, host = self._queue, self._queue.host
        limit = task.wanted.limit
        most = self._transfer.most if limit is None else min(self._transfer.most, limit - task.move.moved)
        if task.move.per_second:
            most = min(most, max(1, task.move.per_second // _STEPS_PER_S))
        if most <= 0:
            return None
        offsets: list[int] = []
        for offset in host.engine.live(task.next_offset):
            if offset >= task.end_offset or len(offsets) == most:
                break
            offsets.append(offset)
        if not offsets:
            if host.engine.indexed_to >= min(task.end_offset, host.partition.last_stable_offset):
                return None
            # There are messages in the log that are not indexed yet.
            await host.log.caught_up()
            return 0
        messages = await queue.reader.read(offsets, host.settings)
        picked, passed_to = self._pick(task, offsets, messages)
        moved = 0
        for destination, some in picked.items():
            moved += await self._transfer.transfer(destination, some, task.move.id)
        task.next_offset = passed_to
        self._persist(task)
        return moved

    def _pick(
        self, task: MoveTask, offsets: Sequence[int], messages: Mapping[int, DecodedMessage]
    ) -> tuple[dict[str, list[TransferMessage]], int]:
        """The messages that match the filter, by destination; and the offset behind the last one that was checked."""
        engine = self._queue.host.engine
        matcher = MessageMatcher(task.wanted)
        picked: dict[str, list[TransferMessage]] = {}
        size_bytes = 0
        for offset in offsets:
            message, look = messages.get(offset), engine.look(offset)
            if message is None or look is None or look.state != "available" or not matcher.matches(message):
                continue
            destination = task.move.destination or _source_of(message)
            if destination is None:
                continue
            size_bytes += message.size_bytes
            if picked and size_bytes > PAGE_BYTES:
                return picked, offset
            picked.setdefault(destination, []).append(
                TransferMessage(offset, message.group or b"", look.attempt, "moved")
            )
        return picked, offsets[-1] + 1


def _source_of(message: DecodedMessage) -> str | None:
    """The queue that a message comes from."""
    source = read_origin(message.origin).get("queue")
    return source if isinstance(source, str) else None


def _age(task: MoveTask) -> int:
    return task.move.started_at_ms
