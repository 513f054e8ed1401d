"""One shard: a machine and the partition of the internal topic that holds its records.

Promises:
- an answer is given only when everything it rests on is committed: the records of its own operation, and for a read
  everything written before it;
- operations of a shard happen one after the other, in the order in which they were asked for;
- records of operations in one turn of the event loop go into one batch (of up to a MiB, then another one): many commits
  cost one append and one flush. What the log has of one record is never split between batches;
- if records cannot be committed, everybody who waits for them gets an error, and the shard loads again from the log,
  since its state is ahead of what is there;
- if this broker does not lead the partition any more, everybody is told that the coordinator has moved.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from headrace.coordinator.machine import InternalRecord, Machine, Operation
from headrace.model.errors import CoordinatorLoading, CoordinatorNotAvailable, HeadraceError, NotCoordinator, NotLeader
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.partition import Partition
from headrace.runtime.clock import Clock
from headrace.runtime.deferred import Deferred

A = TypeVar("A")
M = TypeVar("M", bound=Machine[Any])

log = logging.getLogger(__name__)

_BATCH_MAX_BYTES = 1024 * 1024


class ShardState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


class Result(Generic[A]):
    """How an operation ended: an answer, or the error to tell."""

    __slots__ = ("answer", "error")

    def __init__(self, answer: A | None = None, error: HeadraceError | None = None) -> None:
        self.answer = answer
        self.error = error

    def get(self) -> A:
        if self.error is not None:
            raise self.error
        return self.answer  # type: ignore[return-value]


class Shard(Generic[M]):
    def __init__(self, partition: Partition, machine: M, clock: Clock, *, reload: Callable[["Shard[M]"], None]) -> None:
        """`reload` is called when the machine is ahead of the log and must be loaded again."""
        self.partition = partition
        self.epoch = partition.leader_epoch
        """Of the leader: a shard lives for one, and fences what its predecessors may still send."""
        self.machine = machine
        self.state = ShardState.LOADING
        self._clock = clock
        self._reload = reload
        self._entries: list[Sequence[InternalRecord]] = []
        """Of each record."""
        self._waiting: list[Callable[[HeadraceError | None], None]] = []
        self._is_append_due = False

    # -- asking

    def run(self, operation: Operation[A]) -> Deferred[Result[A]]:
        """Do an operation; its answer comes when its records are committed."""
        result: Deferred[Result[A]] = Deferred()
        refusal = self._refusal()
        if refusal is not None:
            result.resolve(Result(error=refusal))
            return result
        try:
            outcome = operation(self._clock.monotonic_ms())
        except HeadraceError as error:
            result.resolve(Result(error=error))
            return result
        try:
            for record in outcome.records:
                self._entries.append(self.machine.encode(record))
                self.machine.apply(record, -1)
        except HeadraceError as error:
            result.resolve(Result(error=self._failed(error)))
            return result
        self._when_committed(lambda error: result.resolve(Result(outcome.answer, error)))
        return result

    def write_in_transaction(
        self, records: Iterable[Any], producer_id: int, producer_epoch: int, answer: A
    ) -> Deferred[Result[A]]:
        """Write records that count only if a producer's transaction commits: a batch of their own."""
        result: Deferred[Result[A]] = Deferred()
        self._append_now()
        refusal = self._refusal()
        if refusal is not None:
            result.resolve(Result(error=refusal))
            return result
        records = tuple(records)
        try:
            entries = [self.machine.encode_in_transaction(record) for record in records]
            end = self._append(entries, producer_id, producer_epoch)
        except NotLeader:
            result.resolve(Result(error=self._moved()))
            return result
        except HeadraceError as error:
            result.resolve(Result(error=error))
            return result
        for record in records:
            self.machine.apply(record, producer_id)

        def settled(error: BaseException | None) -> None:
            result.resolve(Result(answer, None if error is None else self._failed(error)))

        if self.partition.when_committed(end, settled):
            settled(None)
        return result

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A marker for this partition was written (and committed): what the transaction wrote counts, or is dropped."""
        if self.state is ShardState.ACTIVE:
            self.machine.replay_end(producer_id, committed=committed)

    @property
    def is_active(self) -> bool:
        return self.state is ShardState.ACTIVE

    def check(self) -> None:
        """Raise what to tell somebody who asks now, unless the shard is active."""
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def _refusal(self) -> HeadraceError | None:
        if self.state is ShardState.LOADING:
            return CoordinatorLoading(f"the coordinator on {self.partition} is loading")
        if self.state is ShardState.CLOSED:
            return self._moved()
        return None

    def _moved(self) -> NotCoordinator:
        return NotCoordinator(f"the coordinator on {self.partition} has moved")

    def close(self) -> None:
        """This broker does not lead the partition any more: write nothing, and tell everybody who waits."""
        self.state = ShardState.CLOSED
        waiting, self._waiting, self._entries = self._waiting, [], []
        for settle in waiting:
            settle(self._moved())

    # -- writing

    def _when_committed(self, settle: Callable[[HeadraceError | None], None]) -> None:
        """Settle when everything replayed so far is committed."""
        partition = self.partition
        if not self._entries:
            end = partition.log.end_offset

            def settled(error: BaseException | None) -> None:
                settle(None if error is None else self._failed(error))

            if partition.when_committed(end, settled):
                settle(None)
            return
        self._waiting.append(settle)
        if not self._is_append_due:
            self._is_append_due = True
            asyncio.get_running_loop().call_soon(self._append_now)

    def _append_now(self) -> None:
        """Write the records of this turn as one batch."""
        self._is_append_due = False
        entries, self._entries = self._entries, []
        waiting, self._waiting = self._waiting, []
        if not entries:
            return

        def settled(error: BaseException | None) -> None:
            problem = None if error is None else self._failed(error)
            for settle in waiting:
                settle(problem)

        try:
            end = self._append(entries)
        except HeadraceError as error:
            settled(error)
            return
        if self.partition.when_committed(end, settled):
            settled(None)

    def _append(
        self, entries: Iterable[Sequence[InternalRecord]], producer_id: int = -1, producer_epoch: int = -1
    ) -> int:
        """Append the records, as one batch unless that would be large; the offset behind them."""
        now_ms = self._clock.wall_ms()
        end = self.partition.log.end_offset
        for some in _parts(entries):
            batch = build_batch(
                [Record(0, now_ms, key, value) for key, value in some],
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=producer_id >= 0,
            )
            end = self.partition.append(batch, read_header(batch)).last_offset + 1
        return end

    def _failed(self, error: BaseException) -> HeadraceError:
        """The machine has replayed what the log does not have: load again, and let everybody ask again."""
        if isinstance(error, NotLeader):
            self.close()
        if self.state is ShardState.CLOSED:
            return self._moved()
        if self.state is ShardState.ACTIVE:
            log.warning("the coordinator on %s loads again: %s", self.partition, error)
            self.state = ShardState.LOADING
            # What was replayed since, and is not in the log yet, would get there behind the back of the new machine.
            waiting, self._waiting, self._entries = self._waiting, [], []
            self._reload(self)
            for settle in waiting:
                settle(self._not_written(error))
        return self._not_written(error)

    def _not_written(self, error: BaseException) -> CoordinatorNotAvailable:
        return CoordinatorNotAvailable(f"the coordinator on {self.partition} could not write: {error}")


def _parts(entries: Iterable[Sequence[InternalRecord]]) -> Iterator[list[InternalRecord]]:
    """The records in batches of a size that readers and replicas can take, unless a single one is larger."""
    part: list[InternalRecord] = []
    size_bytes = 0
    for unit in entries:
        length = sum(len(key) + len(value or b"") for key, value in unit)
        if part and size_bytes + length > _BATCH_MAX_BYTES:
            yield part
            part, size_bytes = [], 0
        part.extend(unit)
        size_bytes += length
    if part:
        yield part
