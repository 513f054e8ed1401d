"""The decisions of a transaction coordinator. Pure: an operation gives records and an answer, `apply` changes state.

What it promises:
- a transaction's end is decided once, by one record (PrepareCommit or PrepareAbort); from there it can only complete;
- whoever has an older epoch, or a producer id that is not the current one, changes nothing;
- the retry of a request whose answer was lost gets the same answer: InitProducerId with the epoch before (KIP-360),
  EndTxn with the epoch before (KIP-890).

Two-phase commit (KIP-939) is there for whoever must decide elsewhere and later: a producer may ask that its
transactions have no time limit, and a newer instance may take over an open transaction as it is instead of aborting it.

Follows Kafka 4.1. Two rules are stricter: a producer that names a stale epoch in InitProducerId is fenced even while a
newer instance has a transaction open, where Kafka would abort that one; and a decided transaction is waited for by the
service where Kafka sends the client away with CONCURRENT_TRANSACTIONS.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from headrace.coordinator.formats import FormattedMachine
from headrace.coordinator.machine import Outcome
from headrace.model.errors import (
    ConcurrentTransactions,
    InvalidProducerMapping,
    InvalidTransaction,
    InvalidTransactionTimeout,
    SupersededProducer,
    TransactionAbortable,
)
from headrace.model.ids import NO_PRODUCER, ProducerIdAndEpoch
from headrace.transactions.kafka_records import KafkaTransactionFormat
from headrace.transactions.records import MsgpackTransactionFormat, Place, TransactionEntry, TransactionRecord
from headrace.transactions.states import COMPLETES, DECIDED, IDLE, TransactionState, check_step

A = TypeVar("A")
Decision = Outcome[TransactionRecord, A]

LAST_EPOCH = 2**15 - 1
"""Used by markers alone: a producer gets at most the one before."""

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a producer in two-phase commit, whose transactions wait for their end for as long as it takes."""


class ResumedProducer(NamedTuple):
    """A new instance of a producer, and whose transaction it has taken over: `NO_PRODUCER` if none was open."""

    producer: ProducerIdAndEpoch
    ongoing: ProducerIdAndEpoch


def is_exhausted(epoch: int) -> bool:
    """Whether a producer with this epoch can only go on with another producer id."""
    return epoch >= LAST_EPOCH - 1


class TransactionMachine(FormattedMachine[str, TransactionEntry]):
    """The transactional ids of one shard."""

    def __init__(self, max_timeout_ms: int) -> None:
        super().__init__(MsgpackTransactionFormat(), KafkaTransactionFormat())
        self._max_timeout_ms = max_timeout_ms
        self.transactions: dict[str, TransactionEntry] = {}

    # -- records

    def apply(self, record: tuple[str, TransactionEntry | None], producer_id: int) -> None:
        transactional_id, transaction = record
        if transaction is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = transaction

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """Nothing of this topic is written in transactions."""

    def loaded(self, now_ms: float) -> None:
        """Deadlines follow from what is stored."""

    # -- producers

    def init(
        self,
        transactional_id: str,
        timeout_ms: int,
        claimed: ProducerIdAndEpoch,
        fresh_producer_id: int,
        now_ms: int,
        *,
        two_phase: bool = False,
    ) -> Decision[ProducerIdAndEpoch | None]:
        """A new instance of a producer. None for an answer: its predecessor's transaction is aborted first; ask again.

        `claimed` is who the client says it is, if it says so. `fresh_producer_id` is one that nobody has, for use if
        one is needed. With `two_phase` its transactions have no time limit, whatever `timeout_ms` says.
        """
        timeout_ms = self._timeout_ms(timeout_ms, two_phase=two_phase)
        old = self.transactions.get(transactional_id)
        if old is None:
            new = TransactionEntry(fresh_producer_id, 0, TransactionState.EMPTY, timeout_ms, now_ms)
            return self._write(transactional_id, new, ProducerIdAndEpoch(fresh_producer_id, 0))
        self._check_claim(transactional_id, old, claimed)
        if old.state in DECIDED:
            raise _being_completed(transactional_id)
        if old.state is TransactionState.ONGOING:
            # Whoever has the transaction itself gets the new epoch by asking again; a predecessor's is of no use.
            return self._write(transactional_id, self._fenced(old, now_ms, last_epoch=claimed.epoch), None)
        if claimed is not NO_PRODUCER and claimed != (old.producer_id, old.producer_epoch):
            # A retry: the answer to the first try was lost.
            return Outcome((), ProducerIdAndEpoch(old.producer_id, old.producer_epoch))
        if is_exhausted(old.producer_epoch):
            return self._write(
                transactional_id,
                TransactionEntry(
                    fresh_producer_id,
                    0,
                    TransactionState.EMPTY,
                    timeout_ms,
                    now_ms,
                    last_epoch=old.producer_epoch,
                    previous_producer_id=old.producer_id,
                ),
                ProducerIdAndEpoch(fresh_producer_id, 0),
            )
        epoch = old.producer_epoch + 1
        new = TransactionEntry(
            old.producer_id,
            epoch,
            TransactionState.EMPTY,
            timeout_ms,
            now_ms,
            last_epoch=-1 if claimed is NO_PRODUCER else old.producer_epoch,
        )
        return self._write(transactional_id, new, ProducerIdAndEpoch(old.producer_id, epoch))

    def resume(
        self,
        transactional_id: str,
        timeout_ms: int,
        claimed: ProducerIdAndEpoch,
        fresh_producer_id: int,
        now_ms: int,
        *,
        two_phase: bool = False,
    ) -> Decision[ResumedProducer]:
        """As `init`, but an open transaction stays open, for the new instance to end (KIP-939).

        The answer says who began it, however often it was taken over since. A producer whose epochs have run out keeps
        its last one, so that its predecessor is not fenced until the transaction is ended.
        """
        old = self.transactions.get(transactional_id)
        if old is None or old.state is not TransactionState.ONGOING:
            outcome = self.init(
                transactional_id, timeout_ms, claimed, fresh_producer_id, now_ms, two_phase=two_phase
            )  # fmt: skip
            assert outcome.answer is not None, "nothing is open that would have to be aborted first"
            return Outcome(outcome.records, ResumedProducer(outcome.answer, NO_PRODUCER))
        timeout_ms = self._timeout_ms(timeout_ms, two_phase=two_phase)
        if claimed is not NO_PRODUCER and claimed == _predecessor(old):
            # A retry: the answer to the first try was lost.
            return Outcome((), _resumed(old))
        self._check_claim(transactional_id, old, claimed)
        exhausted = is_exhausted(old.producer_epoch)
        new = msgspec.structs.replace(
            old,
            producer_epoch=old.producer_epoch if exhausted else old.producer_epoch + 1,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
            last_epoch=-1 if claimed is NO_PRODUCER or exhausted else old.producer_epoch,
            opened_epoch=old.producer_epoch if old.opened_epoch < 0 else old.opened_epoch,
        )
        return self._write(transactional_id, new, _resumed(new))

    def _timeout_ms(self, timeout_ms: int, *, two_phase: bool) -> int:
        if two_phase:
            return NO_TIMEOUT_MS
        if not 0 < timeout_ms <= self._max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"a transaction timeout of {timeout_ms} ms is not between 1 and transaction.max.timeout.ms="
                f"{self._max_timeout_ms}"
            )
        return timeout_ms

    def _check_claim(self, transactional_id: str, old: TransactionEntry, claimed: ProducerIdAndEpoch) -> None:
        """Whether somebody who names a producer id and epoch is the current one, or was it until its last request."""
        if claimed is NO_PRODUCER or claimed == (old.producer_id, old.producer_epoch):
            return
        if old.state is TransactionState.ONGOING or claimed != _predecessor(old):
            raise _superseded(transactional_id, claimed)

    # -- partitions

    def add(
        self, transactional_id: str, producer: ProducerIdAndEpoch, places: Iterable[Place], now_ms: int
    ) -> Decision[None]:
        """Partitions (and groups' partitions of offsets) that the transaction is about to write to."""
        old = self._current(transactional_id, producer)
        if old.state in DECIDED:
            raise _being_completed(transactional_id)
        is_open = old.state is TransactionState.ONGOING
        partitions = old.partitions.union(places)
        if is_open and partitions == old.partitions:
            return Outcome((), None)
        new = msgspec.structs.replace(
            old,
            state=TransactionState.ONGOING,
            partitions=partitions,
            updated_ms=now_ms,
            started_ms=old.started_ms if is_open else now_ms,
            # A retry of what came before the transaction is not a retry any more.
            last_epoch=-1,
            previous_producer_id=-1,
        )
        return self._write(transactional_id, new, None)

    def verify(self, transactional_id: str, producer: ProducerIdAndEpoch, place: Place) -> None:
        """Raise unless this producer's transaction is open and has this partition."""
        old = self._current(transactional_id, producer)
        if old.state in DECIDED:
            raise _being_completed(transactional_id)
        if old.state is not TransactionState.ONGOING or place not in old.partitions:
            raise TransactionAbortable(
                f"{place[0]}-{place[1]} is not part of an open transaction of {transactional_id}: abort, and begin anew"
            )

    # -- the end

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        committed: bool,
        bumps_epoch: bool,
        fresh_producer_id: int,
        now_ms: int,
    ) -> Decision[ProducerIdAndEpoch]:
        """Decide a transaction. The answer is who the producer is from now on.

        `bumps_epoch` is transaction version 2: the next transaction has a new epoch, and a retry names the old one.
        """
        old = self._known(transactional_id)
        target = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        if _is_retry_of_end(old, producer):
            if target is old.state:
                raise _being_completed(transactional_id)
            if COMPLETES[target] is not old.state:
                raise InvalidTransaction(f"the transaction of {transactional_id} is {old.state} already")
            return Outcome((), ProducerIdAndEpoch(old.producer_id, old.producer_epoch))
        old = self._current(transactional_id, producer)
        if old.state is TransactionState.ONGOING:
            pass
        elif old.state in DECIDED:
            if target is old.state:
                raise _being_completed(transactional_id)
            raise InvalidTransaction(f"the transaction of {transactional_id} is {old.state} already")
        elif not bumps_epoch and COMPLETES[target] is old.state:
            return Outcome((), producer)
        elif not bumps_epoch or committed:
            raise InvalidTransaction(f"{transactional_id} has no transaction open: it is {old.state}")
        if not bumps_epoch:
            new = msgspec.structs.replace(old, state=target, updated_ms=now_ms, last_epoch=-1, bumps_epoch=False)
            return self._write(transactional_id, new, producer)
        exhausted = is_exhausted(old.producer_epoch)
        new = msgspec.structs.replace(
            old,
            state=target,
            updated_ms=now_ms,
            producer_epoch=old.producer_epoch + 1,
            last_epoch=old.producer_epoch,
            previous_producer_id=-1,
            next_producer_id=fresh_producer_id if exhausted else -1,
            bumps_epoch=True,
        )
        return self._write(
            transactional_id,
            new,
            ProducerIdAndEpoch(fresh_producer_id, 0)
            if exhausted
            else ProducerIdAndEpoch(new.producer_id, new.producer_epoch),
        )

    def abort_overdue(self, transactional_id: str, now_ms: int) -> Decision[bool]:
        """Abort a transaction that is open for longer than its timeout, and fence its producer; says whether."""
        old = self.transactions.get(transactional_id)
        if old is None or old.state is not TransactionState.ONGOING or old.timeout_ms == NO_TIMEOUT_MS:
            return Outcome((), False)
        if now_ms < old.started_ms + old.timeout_ms:
            return Outcome((), False)
        return self._write(transactional_id, self._fenced(old, now_ms), True)

    def complete(self, transactional_id: str, now_ms: int) -> Decision[None]:
        """Every marker of a decided transaction is committed."""
        old = self.transactions[transactional_id]
        rotates = old.next_producer_id >= 0
        new = msgspec.structs.replace(
            old,
            state=COMPLETES[old.state],
            updated_ms=now_ms,
            started_ms=-1,
            partitions=frozenset(),
            producer_id=old.next_producer_id if rotates else old.producer_id,
            producer_epoch=0 if rotates else old.producer_epoch,
            previous_producer_id=old.producer_id if rotates else -1,
            next_producer_id=-1,
            opened_epoch=-1,
        )
        return self._write(transactional_id, new, None)

    # -- forgetting

    def expired(self, before_ms: int) -> Iterator[str]:
        """Transactional ids that nobody has used since `before_ms`."""
        for transactional_id, transaction in self.transactions.items():
            if transaction.state in IDLE and transaction.updated_ms < before_ms:
                yield transactional_id

    def forget(self, transactional_id: str, before_ms: int) -> Decision[None]:
        old = self.transactions.get(transactional_id)
        if old is None or old.state not in IDLE or old.updated_ms >= before_ms:
            return Outcome((), None)
        check_step(old.state, TransactionState.DEAD)
        return Outcome(((transactional_id, None),), None)

    # -- helpers

    def _known(self, transactional_id: str) -> TransactionEntry:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise InvalidProducerMapping(f"no producer has the transactional id {transactional_id}: initialize it")
        return transaction

    def _current(self, transactional_id: str, producer: ProducerIdAndEpoch) -> TransactionEntry:
        """What is known of a transactional id, for the producer that has it now and nobody else."""
        transaction = self._known(transactional_id)
        if transaction.producer_id != producer.producer_id:
            raise InvalidProducerMapping(
                f"the transactional id {transactional_id} belongs to producer {transaction.producer_id}, not to "
                f"{producer.producer_id}"
            )
        if transaction.producer_epoch != producer.epoch:
            raise _superseded(transactional_id, producer)
        return transaction

    @staticmethod
    def _fenced(old: TransactionEntry, now_ms: int, *, last_epoch: int = -1) -> TransactionEntry:
        """The abort of an open transaction whose producer may not go on: nobody has the epoch of its markers."""
        return msgspec.structs.replace(
            old,
            state=TransactionState.PREPARE_ABORT,
            updated_ms=now_ms,
            producer_epoch=min(old.producer_epoch + 1, LAST_EPOCH),
            last_epoch=last_epoch,
            previous_producer_id=-1,
            next_producer_id=-1,
            bumps_epoch=False,
        )

    def _write(self, transactional_id: str, new: TransactionEntry, answer: A) -> Decision[A]:
        old = self.transactions.get(transactional_id)
        if old is not None:
            check_step(old.state, new.state)
        return Outcome(((transactional_id, new),), answer)


def _predecessor(transaction: TransactionEntry) -> ProducerIdAndEpoch | None:
    """Who the producer was before its last request gave it a new epoch, or for want of epochs a new id."""
    if transaction.last_epoch < 0:
        return None
    rotated = transaction.previous_producer_id >= 0
    return ProducerIdAndEpoch(
        transaction.previous_producer_id if rotated else transaction.producer_id, transaction.last_epoch
    )


def _resumed(transaction: TransactionEntry) -> ResumedProducer:
    """Who has a transaction that was taken over, and who began it."""
    return ResumedProducer(
        ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch),
        ProducerIdAndEpoch(transaction.producer_id, transaction.opened_epoch),
    )


def _is_retry_of_end(transaction: TransactionEntry, producer: ProducerIdAndEpoch) -> bool:
    """Whether a producer asks for the end of a transaction that was ended with a new epoch before (KIP-890)."""
    has_ended = transaction.bumps_epoch and transaction.state not in (TransactionState.ONGOING, TransactionState.EMPTY)
    return has_ended and producer == _predecessor(transaction)


def _superseded(transactional_id: str, producer: ProducerIdAndEpoch) -> SupersededProducer:
    return SupersededProducer(
        f"producer {producer.producer_id} with epoch {producer.epoch} is not the current one of {transactional_id}: "
        "a newer instance has taken over, or its transaction took too long"
    )


def _being_completed(transactional_id: str) -> ConcurrentTransactions:
    return ConcurrentTransactions(f"the last transaction of {transactional_id} is still being completed")
