"""The transaction coordinator of a broker: finds the shard of an id, completes what is decided, keeps time.

A decision (PrepareCommit, PrepareAbort) is a committed record before the first marker is written, and the markers are
committed before the transaction is complete. Whoever stops in between leaves a record that says what is to be done, and
the shard does it when it is loaded again, on this broker or another: markers that are written a second time before the
transaction is complete change nothing, and those of a coordinator that has a successor are refused. A marker of which
nothing was heard may arrive when the next transaction has begun: the one that is sent in its place fences it.

A client is kept waiting while a transaction is completed, for a little while: it would only have to ask again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import ProducerIds
from headrace.config.broker import BrokerSettings
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.machine import Outcome
from headrace.coordinator.shard import Result, Shard
from headrace.model.errors import (
    ConcurrentTransactions,
    FencedCoordinator,
    FencedProducer,
    HeadraceError,
    PeerUnavailable,
    UnknownPartition,
    UnknownTopic,
)
from headrace.model.ids import BrokerId, ProducerIdAndEpoch, TopicName
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

TRANSACTIONS_TOPIC = TopicName("__transaction_state")
_PATIENCE_MS = 5_000
"""How long a client waits for its last transaction to be completed before it is told to ask again."""
_MARKER_RETRY_FIRST_MS = 50
_MARKER_RETRY_MAX_MS = 1_000
_EXPIRY_TIMER = "expiry"


class _Settlement:
    """A decided transaction whose markers are being written."""

    __slots__ = ("left", "shard", "transaction", "tries")

    def __init__(self, shard: TransactionShard, transaction: TransactionEntry) -> None:
        self.shard = shard
        self.transaction = transaction
        self.left = set(transaction.partitions)
        self.tries: Counter[Place] = Counter()


class TransactionService:
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
        """`markers` writes to the partitions of this broker. Without `peers` there is no other."""
        self.markers = markers
        self.joining = PartitionAdder(self, metadata, peers)
        self._router = MarkerSender(markers, metadata, peers)
        self._clock = clock
        self._producer_ids = producer_ids
        self._id_expiration_ms = settings.transactional_id_expiration_ms
        self._expiry_check_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._settling: dict[str, _Settlement] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._doubts: Counter[int] = Counter()
        """By producer id, how many markers were sent of which nothing was heard. Never forgotten: they may arrive."""
        max_timeout_ms = settings.transaction_max_timeout_ms
        self.coordinator: Coordinator[TransactionMachine] = Coordinator(
            TRANSACTIONS_TOPIC,
            partition_count=settings.transaction_state_log_num_partitions,
            topic_settings=_topic_settings(settings),
            replication_factor=settings.transaction_state_log_replication_factor,
            make_machine=lambda _: TransactionMachine(max_timeout_ms),
            metadata=metadata,
            partitions=partitions,
            clock=clock,
            workers=workers,
            on_loaded=self._loaded,
            on_lost=self._lost,
        )

    # -- life

    def start(self) -> None:
        self.coordinator.start()
        self._arm_expiry()

    async def stop(self) -> None:
        await self.joining.stop()
        await self._router.stop()
        await self.coordinator.stop()

    # -- where

    def is_here(self, transactional_id: str) -> bool:
        """Whether this broker coordinates a transactional id, or is about to."""
        return self.coordinator.is_here(transactional_id)

    def leader_for(self, transactional_id: str) -> BrokerId:
        """The broker that coordinates a transactional id."""
        return self.coordinator.leader_for(transactional_id)

    # -- what clients ask for

    async def init(
        self, transactional_id: str, timeout_ms: int, claimed: ProducerIdAndEpoch, *, two_phase: bool = False
    ) -> ProducerIdAndEpoch:
        """Who a new instance of a producer is; its predecessor's open transaction is aborted, and it is fenced.

        In two-phase commit its transactions have no time limit.
        """
        fresh_id = await self._producer_ids.next()
        for _ in range(2):
            producer = await self._patiently(
                transactional_id,
                lambda machine: machine.init(
                    transactional_id, timeout_ms, claimed, fresh_id, self._clock.wall_ms(), two_phase=two_phase
                ),
            )
            if producer is not None:
                return producer
            await self._when_over(transactional_id)
        raise ConcurrentTransactions(f"the last transaction of {transactional_id} is still being aborted")

    async def resume(
        self, transactional_id: str, timeout_ms: int, claimed: ProducerIdAndEpoch, *, two_phase: bool = False
    ) -> ResumedProducer:
        """As `init`, but a predecessor's open transaction stays open, and the new instance has it."""
        fresh_id = await self._producer_ids.next()
        return await self._patiently(
            transactional_id,
            lambda machine: machine.resume(
                transactional_id, timeout_ms, claimed, fresh_id, self._clock.wall_ms(), two_phase=two_phase
            ),
        )

    async def add(
        self, transactional_id: str, producer: ProducerIdAndEpoch, places: Iterable[Place], *, patient: bool = True
    ) -> None:
        """Make partitions part of the transaction, which begins with the first one.

        If the last one is still being completed that is waited for, unless whoever asks is not `patient`.
        """
        places = tuple(places)

        def operation(machine: TransactionMachine) -> Decision[None]:
            return machine.add(transactional_id, producer, places, self._clock.wall_ms())

        if patient:
            await self._patiently(transactional_id, operation)
        else:
            (await _result(self._do(transactional_id, operation))).get()

    def verify(self, transactional_id: str, producer: ProducerIdAndEpoch, place: Place) -> None:
        """Raise unless a partition is part of this producer's open transaction."""
        shard = self.coordinator.shard(transactional_id)
        shard.check()
        shard.machine.verify(transactional_id, producer, place)

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool, bumps_epoch: bool
    ) -> ProducerIdAndEpoch:
        """Decide a transaction, and see it completed unless that takes long; who the producer is from now on."""
        needs_id = bumps_epoch and is_exhausted(producer.epoch)
        fresh_id = int(await self._producer_ids.next()) if needs_id else -1
        answer = await self._patiently(
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
        await self._when_over(transactional_id)
        return answer

    async def find(self, transactional_id: str) -> TransactionEntry | None:
        """What is known of a transactional id, once it is committed."""
        shard = self.coordinator.shard(transactional_id)
        return (await _result(shard.run(lambda _: Outcome((), shard.machine.transactions.get(transactional_id))))).get()

    def all(self) -> Iterator[tuple[str, TransactionEntry]]:
        """Every transactional id that this broker coordinates. `CoordinatorLoading` if not all are known yet."""
        for shard in self.coordinator.shards():
            shard.check()
        for shard in self.coordinator.shards():
            yield from shard.machine.transactions.items()

    # -- operations

    async def _patiently(self, transactional_id: str, operation: Callable[[TransactionMachine], Decision[A]]) -> A:
        """Do an operation; if the last transaction is still being completed, wait for that once."""
        try:
            return (await _result(self._do(transactional_id, operation))).get()
        except ConcurrentTransactions:
            await self._when_over(transactional_id)
        return (await _result(self._do(transactional_id, operation))).get()

    def _do(self, transactional_id: str, operation: Callable[[TransactionMachine], Decision[A]]) -> Deferred[Result[A]]:
        done: Deferred[Result[A]] = Deferred()
        try:
            shard = self.coordinator.shard(transactional_id)
        except HeadraceError as error:
            done.resolve(Result(error=error))
            return done
        ran = shard.run(lambda _: operation(shard.machine))
        # As of this operation: what is decided later is committed later.
        transaction = shard.machine.transactions.get(transactional_id)

        def settled(result: Result[A]) -> None:
            if result.error is None:
                self._go_on(shard, transactional_id, transaction)
            done.resolve(result)

        ran.then(settled)
        return done

    def _go_on(self, shard: TransactionShard, transactional_id: str, transaction: TransactionEntry | None) -> None:
        """Do what a committed state asks for, unless there is a newer one."""
        if transaction is None or shard.machine.transactions.get(transactional_id) is not transaction:
            return
        if not shard.is_active:
            return
        timers = self.coordinator.timers
        if transaction.state is TransactionState.ONGOING and transaction.timeout_ms != NO_TIMEOUT_MS:
            due_ms = transaction.started_ms + transaction.timeout_ms - self._clock.wall_ms()
            deadline_ms = self._clock.monotonic_ms() + max(0, due_ms)
            timers.set(transactional_id, deadline_ms, partial(self._time_is_up, shard, transactional_id))
            return
        timers.cancel(transactional_id)
        if transaction.state in DECIDED and transactional_id not in self._settling:
            self._settle(shard, transactional_id, transaction)

    # -- completing

    def _settle(self, shard: TransactionShard, transactional_id: str, transaction: TransactionEntry) -> None:
        settlement = self._settling[transactional_id] = _Settlement(shard, transaction)
        for place in sorted(transaction.partitions):
            self._write_marker(transactional_id, settlement, place)
        if not transaction.partitions:
            self._complete(transactional_id, settlement)

    def _write_marker(self, transactional_id: str, settlement: _Settlement, place: Place) -> None:
        if self._settling.get(transactional_id) is not settlement:
            return
        transaction = settlement.transaction
        epoch = coordinator_epoch(settlement.shard.epoch, self._doubts[transaction.producer_id])
        marker = Marker(transaction.state is TransactionState.PREPARE_COMMIT, epoch)
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        written = self._router.write(place, producer, marker)
        written.then(partial(self._marker_written, transactional_id, settlement, place))

    def _marker_written(
        self, transactional_id: str, settlement: _Settlement, place: Place, error: HeadraceError | None
    ) -> None:
        if isinstance(error, PeerUnavailable) and error.may_have_arrived:
            self._doubts[settlement.transaction.producer_id] += 1
        if self._settling.get(transactional_id) is not settlement:
            return
        if isinstance(error, FencedProducer | FencedCoordinator):
            log.warning("%s-%d has no marker of %s's transaction: %s", *place, transactional_id, error)
        elif error is not None and not isinstance(error, UnknownTopic | UnknownPartition):
            retry = partial(self._write_marker, transactional_id, settlement, place)
            wait_ms = min(_MARKER_RETRY_MAX_MS, _MARKER_RETRY_FIRST_MS * 2 ** min(settlement.tries[place], 10))
            settlement.tries[place] += 1
            self.coordinator.timers.set((transactional_id, place), self._clock.monotonic_ms() + wait_ms, retry)
            return
        settlement.left.discard(place)
        if not settlement.left:
            self._complete(transactional_id, settlement)

    def _complete(self, transactional_id: str, settlement: _Settlement) -> None:
        shard = settlement.shard
        del self._settling[transactional_id]
        # Nobody needs to wait for this record: if it is lost, the markers are written again, to no effect.
        shard.run(lambda _: shard.machine.complete(transactional_id, self._clock.wall_ms()))
        self._over(transactional_id)

    def _over(self, transactional_id: str) -> None:
        for waiting in self._waiting.pop(transactional_id, ()):
            _resolve(waiting, None)

    async def _when_over(self, transactional_id: str) -> None:
        """Wait while a transaction is decided and not complete, for as long as a client may be kept waiting."""
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

    # -- time

    def _time_is_up(self, shard: TransactionShard, transactional_id: str) -> None:
        if not shard.is_active:
            return
        transaction = shard.machine.transactions.get(transactional_id)
        if transaction is not None and transaction.state is TransactionState.ONGOING:
            log.warning(
                "aborting the transaction of %s: it is open for longer than %d ms",
                transactional_id,
                transaction.timeout_ms,
            )
            aborted = self._do(
                transactional_id, lambda machine: machine.abort_overdue(transactional_id, self._clock.wall_ms())
            )
            aborted.then(partial(self._looked_at_overdue, shard, transactional_id))

    def _looked_at_overdue(self, shard: TransactionShard, transactional_id: str, result: Result[bool]) -> None:
        """If it was not overdue by the wall clock after all, look again when it is."""
        if result.error is None and not result.get():
            self._go_on(shard, transactional_id, shard.machine.transactions.get(transactional_id))

    def _arm_expiry(self) -> None:
        deadline_ms = self._clock.monotonic_ms() + self._expiry_check_ms
        self.coordinator.timers.set(_EXPIRY_TIMER, deadline_ms, self._expire)

    def _expire(self) -> None:
        """Forget transactional ids that nobody has used for long."""
        before_ms = self._clock.wall_ms() - self._id_expiration_ms
        for shard in self.coordinator.shards():
            for transactional_id in tuple(shard.machine.expired(before_ms)) if shard.is_active else ():
                self._do(transactional_id, partial(_forget, transactional_id, before_ms))
        self._arm_expiry()

    # -- shards

    def _loaded(self, shard: TransactionShard) -> None:
        for transactional_id, transaction in tuple(shard.machine.transactions.items()):
            self._go_on(shard, transactional_id, transaction)

    def _lost(self, shard: TransactionShard) -> None:
        for transactional_id, transaction in shard.machine.transactions.items():
            self._settling.pop(transactional_id, None)
            self.coordinator.timers.cancel(transactional_id)
            for place in transaction.partitions:
                self.coordinator.timers.cancel((transactional_id, place))
            self._over(transactional_id)


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


async def _result(deferred: Deferred[Result[A]]) -> Result[A]:
    future: asyncio.Future[Result[A]] = asyncio.get_running_loop().create_future()
    deferred.then(lambda result: _resolve(future, result))
    return await future


def _resolve(future: asyncio.Future[A], value: A) -> None:
    """Who waited may be gone."""
    if not future.done():
        future.set_result(value)
