"""The transaction coordinator of a broker: routes to shards, completes decided transactions, enforces timeouts.

A decision (PrepareCommit, PrepareAbort) is a committed record before the first marker is written, and the markers are
committed before the transaction is complete. After a crash in between, the decision is in the log, and the shard
finishes the transaction when it is loaded, on this broker or another: rewriting markers before completion has no
effect, and markers of a superseded coordinator are fenced. A marker without a response may arrive after the next
transaction has begun: the marker sent in its place fences it.

A request waits for a limited time while the previous transaction is completed; otherwise the client would only have to
retry.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import ProducerIds
from headrace.config.broker import BrokerSettings
from headrace.coordinator.completion import committed
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.coordinator.shard import Shard
from headrace.model.backoff import ExponentialDelay
from headrace.model.errors import (
    ConcurrentTransactions,
    FencedCoordinator,
    FencedProducer,
    HeadraceError,
    PeerUnavailable,
    UnknownPartition,
    UnknownTopic,
)
from headrace.model.ids import BrokerId, ProducerIdAndEpoch
from headrace.model.image import TRANSACTIONS_TOPIC
from headrace.records.markers import Marker, coordinator_epoch
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock
from headrace.runtime.deferred import Deferred
from headrace.transactions.add_partitions import PartitionAdder
from headrace.transactions.machine import NO_TIMEOUT_MS, Decision, ResumedProducer, TransactionMachine, is_exhausted
from headrace.transactions.marker_sender import MarkerSender
from headrace.transactions.markers import MarkerWriter
from headrace.transactions.records import Place, TransactionEntry
from headrace.transactions.states import DECIDED, TransactionState

A = TypeVar("A")
TransactionShard = Shard[TransactionMachine]

log = logging.getLogger(__name__)

_PATIENCE_MS = 5_000
"""How long a request waits for the previous transaction's completion before CONCURRENT_TRANSACTIONS."""
_MARKER_RETRY_DELAY_MS = ExponentialDelay(50, 1_000)
_EXPIRY_TIMER = "expiry"


class _Completion:
    """A decided transaction whose markers are being written."""

    __slots__ = ("left", "shard", "transaction", "tries")

    def __init__(self, shard: TransactionShard, transaction: TransactionEntry) -> None:
        self.shard = shard
        self.transaction = transaction
        self.left = set(transaction.partitions)
        self.tries: Counter[Place] = Counter()


@dataclass(slots=True)
class TransactionCounts:
    """Transactions that ended on this broker since it started."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    """Aborted by the broker, because they took too long."""


class TransactionService:
    """Serves the transaction APIs for the transactional ids that this broker coordinates."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        metadata: Metadata,
        partitions: PartitionTable,
        producer_ids: ProducerIds,
        markers: MarkerWriter,
        clock: Clock,
        workers: Executor,
        peers: Peers | None = None,
    ) -> None:
        """`markers` writes to the partitions of this broker; `peers` is None on a single node."""
        self.markers = markers
        self.partition_adder = PartitionAdder(self, metadata, peers)
        self._marker_sender = MarkerSender(markers, metadata, peers)
        self._clock = clock
        self._producer_ids = producer_ids
        self._id_expiration_ms = settings.transactional_id_expiration_ms
        self._expiry_check_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self.counts = TransactionCounts()
        self._completing: dict[str, _Completion] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._unanswered_markers: Counter[int] = Counter()
        """Per producer id, how many markers were sent without a response. Never reset: they may still arrive."""
        max_timeout_ms = settings.transaction_max_timeout_ms
        self.coordinator: Coordinator[TransactionMachine] = Coordinator(
            TRANSACTIONS_TOPIC,
            partition_count=settings.transaction_state_log_num_partitions,
            topic_settings=_topic_settings(settings),
            make_machine=lambda _: TransactionMachine(max_timeout_ms),
            metadata=metadata,
            partitions=partitions,
            clock=clock,
            workers=workers,
            on_loaded=self._loaded,
            on_lost=self._lost,
        )

    # -- lifecycle

    def start(self) -> None:
        self.coordinator.start()
        self._arm_expiry()

    async def stop(self) -> None:
        await self.partition_adder.stop()
        await self._marker_sender.stop()
        await self.coordinator.stop()

    # -- routing

    def is_here(self, transactional_id: str) -> bool:
        """True if this broker coordinates a transactional id, or is loading its shard."""
        return self.coordinator.is_here(transactional_id)

    def leader_for(self, transactional_id: str) -> BrokerId:
        """The broker that coordinates a transactional id."""
        return self.coordinator.leader_for(transactional_id)

    # -- client requests

    async def init(
        self, transactional_id: str, timeout_ms: int, claimed: ProducerIdAndEpoch, *, two_phase: bool = False
    ) -> ProducerIdAndEpoch:
        """InitProducerId: fence the previous instance, abort its open transaction, return the new id and epoch.

        With `two_phase` its transactions have no timeout.
        """
        fresh_id = await self._producer_ids.next()
        for _ in range(2):
            producer = await self._run_patiently(
                transactional_id,
                lambda machine: machine.init(
                    transactional_id, timeout_ms, claimed, fresh_id, self._clock.wall_ms(), two_phase=two_phase
                ),
            )
            if producer is not None:
                return producer
            await self._wait_for_completion(transactional_id)
        raise ConcurrentTransactions(f"the last transaction of {transactional_id} is still being aborted")

    async def resume(
        self, transactional_id: str, timeout_ms: int, claimed: ProducerIdAndEpoch, *, two_phase: bool = False
    ) -> ResumedProducer:
        """Like `init`, but the new instance takes over an open transaction (KIP-939)."""
        fresh_id = await self._producer_ids.next()
        return await self._run_patiently(
            transactional_id,
            lambda machine: machine.resume(
                transactional_id, timeout_ms, claimed, fresh_id, self._clock.wall_ms(), two_phase=two_phase
            ),
        )

    async def add(
        self, transactional_id: str, producer: ProducerIdAndEpoch, places: Iterable[Place], *, patient: bool = True
    ) -> None:
        """Add partitions to the transaction; the first one begins it.

        With `patient`, waits while the previous transaction is being completed.
        """
        places = tuple(places)

        def operation(machine: TransactionMachine) -> Decision[None]:
            return machine.add(transactional_id, producer, places, self._clock.wall_ms())

        if patient:
            await self._run_patiently(transactional_id, operation)
        else:
            await committed(self._run(transactional_id, operation))

    def verify(self, transactional_id: str, producer: ProducerIdAndEpoch, place: Place) -> None:
        """Raise unless the partition was added to this producer's open transaction."""
        shard = self.coordinator.shard(transactional_id)
        shard.check()
        shard.machine.verify(transactional_id, producer, place)

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool, bumps_epoch: bool
    ) -> ProducerIdAndEpoch:
        """EndTxn: decide a transaction, wait a limited time for its completion; the producer from now on."""
        needs_id = bumps_epoch and is_exhausted(producer.epoch)
        fresh_id = int(await self._producer_ids.next()) if needs_id else -1
        answer = await self._run_patiently(
            transactional_id,
            lambda machine: machine.end(
                transactional_id,
                producer,
                committed=committed,
                bumps_epoch=bumps_epoch,
                fresh_producer_id=fresh_id,
                now_ms=self._clock.wall_ms(),
            ),
        )
        await self._wait_for_completion(transactional_id)
        return answer

    async def find(self, transactional_id: str) -> TransactionEntry | None:
        """The state of a transactional id, once it is committed."""
        shard = self.coordinator.shard(transactional_id)
        return await committed(shard.run(lambda _: Outcome((), shard.machine.transactions.get(transactional_id))))

    def all(self) -> Iterator[tuple[str, TransactionEntry]]:
        """Every transactional id that this broker coordinates. `CoordinatorLoading` while a shard is loading."""
        for shard in self.coordinator.shards():
            shard.check()
        for shard in self.coordinator.shards():
            yield from shard.machine.transactions.items()

    # -- operations

    async def _run_patiently(self, transactional_id: str, operation: Callable[[TransactionMachine], Decision[A]]) -> A:
        """Run an operation; if the previous transaction is still being completed, wait once and retry."""
        try:
            return await committed(self._run(transactional_id, operation))
        except ConcurrentTransactions:
            await self._wait_for_completion(transactional_id)
        return await committed(self._run(transactional_id, operation))

    def _run(
        self, transactional_id: str, operation: Callable[[TransactionMachine], Decision[A]]
    ) -> Deferred[Result[A]]:
        done: Deferred[Result[A]] = Deferred()
        try:
            shard = self.coordinator.shard(transactional_id)
        except HeadraceError as error:
            done.resolve(Result(error=error))
            return done
        ran = shard.run(lambda _: operation(shard.machine))
        # The state as of this operation: later decisions are committed later.
        transaction = shard.machine.transactions.get(transactional_id)

        def settled(result: Result[A]) -> None:
            if result.error is None:
                self._act_on(shard, transactional_id, transaction)
            done.resolve(result)

        ran.then(settled)
        return done

    def _act_on(self, shard: TransactionShard, transactional_id: str, transaction: TransactionEntry | None) -> None:
        """Act on a committed state, unless there is a newer one: set the timeout, or write the markers."""
        if transaction is None or shard.machine.transactions.get(transactional_id) is not transaction:
            return
        if not shard.is_active:
            return
        timers = self.coordinator.timers
        if transaction.state is TransactionState.ONGOING and transaction.timeout_ms != NO_TIMEOUT_MS:
            due_ms = transaction.started_ms + transaction.timeout_ms - self._clock.wall_ms()
            deadline_ms = self._clock.monotonic_ms() + max(0, due_ms)
            timers.set(transactional_id, deadline_ms, partial(self._on_timeout, shard, transactional_id))
            return
        timers.cancel(transactional_id)
        if transaction.state in DECIDED and transactional_id not in self._completing:
            self._write_markers(shard, transactional_id, transaction)

    # -- completion

    def _write_markers(self, shard: TransactionShard, transactional_id: str, transaction: TransactionEntry) -> None:
        completion = self._completing[transactional_id] = _Completion(shard, transaction)
        for place in sorted(transaction.partitions):
            self._write_marker(transactional_id, completion, place)
        if not transaction.partitions:
            self._complete(transactional_id, completion)

    def _write_marker(self, transactional_id: str, completion: _Completion, place: Place) -> None:
        if self._completing.get(transactional_id) is not completion:
            return
        transaction = completion.transaction
        epoch = coordinator_epoch(completion.shard.epoch, self._unanswered_markers[transaction.producer_id])
        marker = Marker(transaction.state is TransactionState.PREPARE_COMMIT, epoch)
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        written = self._marker_sender.write(place, producer, marker)
        written.then(partial(self._marker_written, transactional_id, completion, place))

    def _marker_written(
        self, transactional_id: str, completion: _Completion, place: Place, error: HeadraceError | None
    ) -> None:
        if isinstance(error, PeerUnavailable) and error.may_have_arrived:
            self._unanswered_markers[completion.transaction.producer_id] += 1
        if self._completing.get(transactional_id) is not completion:
            return
        if isinstance(error, FencedProducer | FencedCoordinator):
            log.warning(
                "the marker on %s-%d for the transaction of %s was refused: %s", *place, transactional_id, error
            )
        elif error is not None and not isinstance(error, UnknownTopic | UnknownPartition):
            retry = partial(self._write_marker, transactional_id, completion, place)
            wait_ms = _MARKER_RETRY_DELAY_MS.after(completion.tries[place] + 1)
            completion.tries[place] += 1
            self.coordinator.timers.set((transactional_id, place), self._clock.monotonic_ms() + wait_ms, retry)
            return
        completion.left.discard(place)
        if not completion.left:
            self._complete(transactional_id, completion)

    def _complete(self, transactional_id: str, completion: _Completion) -> None:
        shard = completion.shard
        del self._completing[transactional_id]
        if completion.transaction.state is TransactionState.PREPARE_COMMIT:
            self.counts.committed += 1
        else:
            self.counts.aborted += 1
        # No need to wait for this record: if it is lost, the markers are written again, to no effect.
        shard.run(lambda _: shard.machine.complete(transactional_id, self._clock.wall_ms()))
        self._wake_waiters(transactional_id)

    def _wake_waiters(self, transactional_id: str) -> None:
        for waiting in self._waiting.pop(transactional_id, ()):
            _resolve(waiting, None)

    async def _wait_for_completion(self, transactional_id: str) -> None:
        """Wait until a decided transaction is complete, at most `_PATIENCE_MS`."""
        transaction = self.coordinator.shard(transactional_id).machine.transactions.get(transactional_id)
        if transaction is None or transaction.state not in DECIDED:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(transactional_id, []).append(future)
        deadline_ms = self._clock.monotonic_ms() + _PATIENCE_MS
        self.coordinator.timers.set(future, deadline_ms, lambda: _resolve(future, None))
        try:
            await future
        finally:
            self.coordinator.timers.cancel(future)

    # -- timeouts and expiration

    def _on_timeout(self, shard: TransactionShard, transactional_id: str) -> None:
        if not shard.is_active:
            return
        transaction = shard.machine.transactions.get(transactional_id)
        if transaction is not None and transaction.state is TransactionState.ONGOING:
            log.warning(
                "aborting the transaction of %s: it exceeded its timeout of %d ms",
                transactional_id,
                transaction.timeout_ms,
            )
            self.counts.timed_out += 1
            aborted = self._run(
                transactional_id, lambda machine: machine.abort_overdue(transactional_id, self._clock.wall_ms())
            )
            aborted.then(partial(self._recheck_timeout, shard, transactional_id))

    def _recheck_timeout(self, shard: TransactionShard, transactional_id: str, result: Result[bool]) -> None:
        """Set the timeout again if the transaction was not overdue by the wall clock."""
        if result.error is None and not result.get():
            self._act_on(shard, transactional_id, shard.machine.transactions.get(transactional_id))

    def _arm_expiry(self) -> None:
        deadline_ms = self._clock.monotonic_ms() + self._expiry_check_ms
        self.coordinator.timers.set(_EXPIRY_TIMER, deadline_ms, self._expire)

    def _expire(self) -> None:
        """Remove transactional ids unused for `transactional.id.expiration.ms`."""
        before_ms = self._clock.wall_ms() - self._id_expiration_ms
        for shard in self.coordinator.shards():
            for transactional_id in tuple(shard.machine.expired(before_ms)) if shard.is_active else ():
                self._run(transactional_id, partial(_forget, transactional_id, before_ms))
        self._arm_expiry()

    # -- shards

    def _loaded(self, shard: TransactionShard) -> None:
        for transactional_id, transaction in tuple(shard.machine.transactions.items()):
            self._act_on(shard, transactional_id, transaction)

    def _lost(self, shard: TransactionShard) -> None:
        for transactional_id, transaction in shard.machine.transactions.items():
            self._completing.pop(transactional_id, None)
            self.coordinator.timers.cancel(transactional_id)
            for place in transaction.partitions:
                self.coordinator.timers.cancel((transactional_id, place))
            self._wake_waiters(transactional_id)


def _topic_settings(settings: BrokerSettings) -> dict[str, str]:
    own = {
        "cleanup.policy": "compact",
        "segment.bytes": str(settings.transaction_state_log_segment_bytes),
    }
    if "transaction.state.log.min.isr" in settings.given:
        own["min.insync.replicas"] = str(settings.transaction_state_log_min_isr)
    return own


def _forget(transactional_id: str, before_ms: int, machine: TransactionMachine) -> Decision[None]:
    return machine.forget(transactional_id, before_ms)


def _resolve(future: asyncio.Future[A], value: A) -> None:
    """Set the result, unless the waiting task was cancelled."""
    if not future.done():
        future.set_result(value)
