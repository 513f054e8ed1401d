"""The transaction coordinator's state machine. Pure: an operation returns records and an answer, `apply` changes state.

Guarantees:
- a transaction's outcome is decided once, by one record (PrepareCommit or PrepareAbort), and is then final;
- a producer with an older epoch, or with a superseded producer id, changes nothing;
- the retry of a request whose response was lost gets the same response: InitProducerId with the previous epoch
  (KIP-360), EndTxn with the previous epoch (KIP-890).

Two-phase commit (KIP-939) is for an external coordinator that decides later: a producer may request transactions
without a timeout, and a newer instance may take over an open transaction instead of aborting it.

Follows Kafka 4.1. Two rules are stricter: a producer with a stale epoch in InitProducerId is fenced even while a newer
instance has a transaction open, where Kafka would abort that one; and the service waits for a decided transaction where
Kafka responds CONCURRENT_TRANSACTIONS.
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
from headrace.transactions.states import COMPLETES, DECIDED, IDLE, TransactionState, check_transition

A = TypeVar("A")
Decision = Outcome[TransactionRecord, A]

LAST_EPOCH = 2**15 - 1
"""Only for markers: a producer gets at most the epoch before it."""

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a producer in two-phase commit: its transactions stay open until they are ended."""


class ResumedProducer(NamedTuple):
    """A new producer instance, and the producer that began the transaction it took over, or `NO_PRODUCER`."""

    producer: ProducerIdAndEpoch
    ongoing: ProducerIdAndEpoch


def is_exhausted(epoch: int) -> bool:
    """True if a producer with this epoch needs a new producer id for the next one."""
    return epoch >= LAST_EPOCH - 1


class TransactionMachine(FormattedMachine[str, TransactionEntry]):
    """The state of one shard's transactional ids."""

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
        """Nothing to do: this topic has no transactional records."""

    def loaded(self, now_ms: float) -> None:
        """Nothing to do: deadlines follow from the stored times."""

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
        """A new producer instance. The answer None: its predecessor's transaction is being aborted; call again after.

        `claimed` is the producer id and epoch in the request, if any. `fresh_producer_id` is an unused id, used if one
        is needed. With `two_phase` its transactions have no timeout, whatever `timeout_ms` is.
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
            # The transaction's own producer gets the new epoch by retrying; a predecessor stays fenced.
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
        """Like `init`, but an open transaction stays open, for the new instance to end (KIP-939).

        The answer names the producer that began it, however often it was taken over since. A producer with exhausted
        epochs keeps its last one, so its predecessor is not fenced until the transaction ends.
        """
        old = self.transactions.get(transactional_id)
        if old is None or old.state is not TransactionState.ONGOING:
            outcome = self.init(
                transactional_id, timeout_ms, claimed, fresh_producer_id, now_ms, two_phase=two_phase
            )  # fmt: skip
            assert outcome.answer is not None, "no open transaction has to be aborted first"
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
        """Raise unless the claimed producer is the current one, or its predecessor retrying its last request."""
        if claimed is NO_PRODUCER or claimed == (old.producer_id, old.producer_epoch):
            return
        if old.state is TransactionState.ONGOING or claimed != _predecessor(old):
            raise _superseded(transactional_id, claimed)

    # -- partitions

    def add(
        self, transactional_id: str, producer: ProducerIdAndEpoch, places: Iterable[Place], now_ms: int
    ) -> Decision[None]:
        """Add the partitions (including `__consumer_offsets`) that the transaction is about to write to."""
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
            # Requests from before the transaction can no longer be retried.
            last_epoch=-1,
            previous_producer_id=-1,
        )
        return self._write(transactional_id, new, None)

    def verify(self, transactional_id: str, producer: ProducerIdAndEpoch, place: Place) -> None:
        """Raise unless this producer's transaction is open and includes this partition."""
        old = self._current(transactional_id, producer)
        if old.state in DECIDED:
            raise _being_completed(transactional_id)
        if old.state is not TransactionState.ONGOING or place not in old.partitions:
            raise TransactionAbortable(
                f"{place[0]}-{place[1]} is not part of an open transaction of {transactional_id}: abort and retry it"
            )

    # -- commit and abort

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
        """Commit or abort a transaction. The answer is the producer's id and epoch from now on.

        `bumps_epoch` is transaction version 2: the next transaction has a new epoch, and a retry has the old one.
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
        """Abort a transaction past its timeout and fence its producer; the answer is False if it is not overdue."""
        old = self.transactions.get(transactional_id)
        if old is None or old.state is not TransactionState.ONGOING or old.timeout_ms == NO_TIMEOUT_MS:
            return Outcome((), False)
        if now_ms < old.started_ms + old.timeout_ms:
            return Outcome((), False)
        return self._write(transactional_id, self._fenced(old, now_ms), True)

    def complete(self, transactional_id: str, now_ms: int) -> Decision[None]:
        """Complete a decided transaction, once all of its markers are committed."""
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

    # -- expiration

    def expired(self, before_ms: int) -> Iterator[str]:
        """The idle transactional ids last used before `before_ms`."""
        for transactional_id, transaction in self.transactions.items():
            if transaction.state in IDLE and transaction.updated_ms < before_ms:
                yield transactional_id

    def forget(self, transactional_id: str, before_ms: int) -> Decision[None]:
        old = self.transactions.get(transactional_id)
        if old is None or old.state not in IDLE or old.updated_ms >= before_ms:
            return Outcome((), None)
        check_transition(old.state, TransactionState.DEAD)
        return Outcome(((transactional_id, None),), None)

    # -- helpers

    def _known(self, transactional_id: str) -> TransactionEntry:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise InvalidProducerMapping(f"unknown transactional id {transactional_id}: call InitProducerId first")
        return transaction

    def _current(self, transactional_id: str, producer: ProducerIdAndEpoch) -> TransactionEntry:
        """The state of a transactional id; raises unless `producer` is its current producer."""
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
        """The abort of an open transaction that fences its producer: no producer has the markers' epoch."""
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
            check_transition(old.state, new.state)
        return Outcome(((transactional_id, new),), answer)


def _predecessor(transaction: TransactionEntry) -> ProducerIdAndEpoch | None:
    """The producer's id and epoch before its last request bumped the epoch, or replaced an exhausted id."""
    if transaction.last_epoch < 0:
        return None
    rotated = transaction.previous_producer_id >= 0
    return ProducerIdAndEpoch(
        transaction.previous_producer_id if rotated else transaction.producer_id, transaction.last_epoch
    )


def _resumed(transaction: TransactionEntry) -> ResumedProducer:
    """The producer of a transaction that was taken over, and the producer that began it."""
    return ResumedProducer(
        ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch),
        ProducerIdAndEpoch(transaction.producer_id, transaction.opened_epoch),
    )


def _is_retry_of_end(transaction: TransactionEntry, producer: ProducerIdAndEpoch) -> bool:
    """True for a retry of an EndTxn that already ended the transaction and bumped the epoch (KIP-890)."""
    has_ended = transaction.bumps_epoch and transaction.state not in (TransactionState.ONGOING, TransactionState.EMPTY)
    return has_ended and producer == _predecessor(transaction)


def _superseded(transactional_id: str, producer: ProducerIdAndEpoch) -> SupersededProducer:
    return SupersededProducer(
        f"producer {producer.producer_id} with epoch {producer.epoch} of {transactional_id} is fenced: "
        "a newer instance has taken over, or its transaction timed out"
    )


def _being_completed(transactional_id: str) -> ConcurrentTransactions:
    return ConcurrentTransactions(f"the last transaction of {transactional_id} is still being completed")
