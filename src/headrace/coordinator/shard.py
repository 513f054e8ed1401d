"""One shard of a coordinator: a state machine and the partition of the internal topic with its records.

Guarantees:
- an answer is given only when everything it depends on is committed: the records of its own operation, and for a read
  everything written before it;
- a shard's operations run one after the other, in the order of the calls;
- the records of all operations in one event loop turn go into one batch (of up to a MiB, then another one): many
  commits cost one append and one flush. The log entries of one record are never split between batches;
- if records cannot be committed, all callers waiting for them get an error, and the shard is reloaded from the log,
  since its state is ahead of it;
- if this broker no longer leads the partition, all callers get `NotCoordinator`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from headrace.coordinator.machine import InternalRecord, Machine, Operation
from headrace.coordinator.result import Result
from headrace.model.errors import CoordinatorLoading, CoordinatorNotAvailable, HeadraceError, NotCoordinator, NotLeader
from headrace.model.invariants import invariant
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


class Shard(Generic[M]):
    """Runs operations on a machine and appends their records to its partition."""

    def __init__(self, partition: Partition, machine: M, clock: Clock, *, reload: Callable[["Shard[M]"], None]) -> None:
        """`reload` is called when the machine is ahead of the log and must be reloaded."""
        self.partition = partition
        self.epoch = partition.leader_epoch
        """The leader epoch: a shard exists for one, which fences its predecessors' late requests."""
        self.machine = machine
        self.state = ShardState.LOADING
        self._clock = clock
        self._reload = reload
        self._entries: list[Sequence[InternalRecord]] = []
        """The log entries of each record not appended yet."""
        self._waiting: list[Callable[[HeadraceError | None], None]] = []
        self._is_append_due = False

    # -- operations

    def run(self, operation: Operation[A]) -> Deferred[Result[A]]:
        """Run an operation; the result resolves when its records are committed."""
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
        """Write transactional records, which take effect if the producer's transaction commits, as a separate batch."""
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
            result.resolve(Result(error=self._not_coordinator()))
            return result
        except HeadraceError as error:
            result.resolve(Result(error=error))
            return result
        for record in records:
            self.machine.apply(record, producer_id)

        def settled(error: BaseException | None) -> None:
            self._check_committed(end, error)
            result.resolve(Result(answer, None if error is None else self._failed(error)))

        if self.partition.when_committed(end, settled):
            settled(None)
        return result

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply or drop a transaction's records, once its marker on this partition is committed."""
        if self.state is ShardState.ACTIVE:
            self.machine.replay_end(producer_id, committed=committed)

    @property
    def is_active(self) -> bool:
        return self.state is ShardState.ACTIVE

    def check(self) -> None:
        """Raise `CoordinatorLoading` or `NotCoordinator` unless the shard is active."""
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def _refusal(self) -> HeadraceError | None:
        if self.state is ShardState.LOADING:
            return CoordinatorLoading(f"the coordinator on {self.partition} is loading")
        if self.state is ShardState.CLOSED:
            return self._not_coordinator()
        return None

    def _not_coordinator(self) -> NotCoordinator:
        return NotCoordinator(f"the coordinator on {self.partition} has moved")

    def close(self) -> None:
        """Stop writing and fail all waiting callers: this broker no longer leads the partition."""
        self.state = ShardState.CLOSED
        waiting, self._waiting, self._entries = self._waiting, [], []
        for settle in waiting:
            settle(self._not_coordinator())

    # -- writing

    def _when_committed(self, settle: Callable[[HeadraceError | None], None]) -> None:
        """Call `settle` when everything applied so far is committed."""
        partition = self.partition
        if not self._entries:
            end = partition.log.end_offset

            def settled(error: BaseException | None) -> None:
                self._check_committed(end, error)
                settle(None if error is None else self._failed(error))

            if partition.when_committed(end, settled):
                settled(None)
            return
        self._waiting.append(settle)
        if not self._is_append_due:
            self._is_append_due = True
            asyncio.get_running_loop().call_soon(self._append_now)

    def _append_now(self) -> None:
        """Append the records of this event loop turn as one batch."""
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

        def committed(error: BaseException | None) -> None:
            self._check_committed(end, error)
            settled(error)

        if self.partition.when_committed(end, committed):
            committed(None)

    def _check_committed(self, end: int, error: BaseException | None) -> None:
        is_committed = end <= self.partition.high_watermark
        invariant(is_committed or error is not None, 17, "what an answer rests on is committed")

    def _append(
        self, entries: Iterable[Sequence[InternalRecord]], producer_id: int = -1, producer_epoch: int = -1
    ) -> int:
        """Append the records, as one batch unless it would be too large; returns the end offset."""
        now_ms = self._clock.wall_ms()
        end = self.partition.log.end_offset
        for some in _batches(entries):
            batch = build_batch(
                [Record(0, now_ms, key, value) for key, value in some],
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=producer_id >= 0,
            )
            end = self.partition.append(batch, read_header(batch)).last_offset + 1
        return end

    def _failed(self, error: BaseException) -> HeadraceError:
        """Reload the shard, since its state is ahead of the log; returns the error for the callers, who may retry."""
        if isinstance(error, NotLeader):
            self.close()
        if self.state is ShardState.CLOSED:
            return self._not_coordinator()
        if self.state is ShardState.ACTIVE:
            log.warning("the coordinator on %s is being reloaded: %s", self.partition, error)
            self.state = ShardState.LOADING
            # Records applied since but not appended yet must not reach the log: the new machine would miss them.
            waiting, self._waiting, self._entries = self._waiting, [], []
            self._reload(self)
            for settle in waiting:
                settle(self._not_written(error))
        return self._not_written(error)

    def _not_written(self, error: BaseException) -> CoordinatorNotAvailable:
        return CoordinatorNotAvailable(f"the coordinator on {self.partition} could not write: {error}")


def _batches(entries: Iterable[Sequence[InternalRecord]]) -> Iterator[list[InternalRecord]]:
    """The records in batches of at most `_BATCH_MAX_BYTES`, unless a single one is larger."""
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
