"""`TransactionalBroker` of `two_phase.py` over the wire protocol: the ledger and the transactions of one sink."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.client.partitioners import by_key
from headrace.model.ids import NO_PRODUCER, ProducerIdAndEpoch
from headrace.pipelines.sink.ledger import (
    LEDGER_PARTITIONS,
    LEDGER_SETTINGS,
    LEDGER_TOPIC,
    LedgerEntry,
    OpenTransaction,
    from_bytes,
    ledger_transactional_id,
    task_prefix,
    to_bytes,
)
from headrace.pipelines.sink.two_phase import Claim, RowsLost, SinkFenced, TransactionExpired
from headrace.records.batch import iter_headers
from headrace.records.builder import build_batch
from headrace.records.markers import read_marker
from headrace.records.reader import Record, iter_records
from headrace.wire import EARLIEST, LATEST, Cluster, ErrorCode, ProducerFenced, Refused, TransactionLost, Unsupported

log = logging.getLogger(__name__)

T = TypeVar("T")

_OPEN = "Ongoing"
_CLAIM_TIMEOUT_MS = 60_000
"""Transaction timeout of a ledger entry; while one is open, only this sink waits for it."""
_FIRST_LOOK_BACK = 64
_LOOK_BACK_FACTOR = 8
_AT_ONCE = 8
"""Number of parallel connections that prepare and end transactions, if there are more transactions than this."""
_REFUSES_TWO_PHASE = (ErrorCode.transactional_id_authorization_failed, ErrorCode.unsupported_version)


class WireBroker:
    """`timeout_ms` is the timeout of the tasks' transactions. With `skips_lost`, lost rows are logged, not raised."""

    def __init__(self, cluster: Cluster, sink_id: str, *, timeout_ms: int, skips_lost: bool = False) -> None:
        self._cluster = cluster
        self._sink_id = sink_id
        self._ledger_id = ledger_transactional_id(sink_id)
        self._timeout_ms = timeout_ms
        self._skips_lost = skips_lost
        self._partition: int | None = None

    # -- the ledger

    def claim(self, held: Claim | None) -> Claim:
        claimed = NO_PRODUCER if held is None else ProducerIdAndEpoch(held.producer_id, held.epoch)
        try:
            return Claim(
                *self._cluster.init_producer_id(self._ledger_id, timeout_ms=_CLAIM_TIMEOUT_MS, claimed=claimed)
            )
        except (ProducerFenced, TransactionLost) as error:
            raise self._fenced() from error

    def holds(self, claim: Claim) -> bool:
        found = self._cluster.describe_transaction(self._ledger_id)
        return found is not None and found.producer == (claim.producer_id, claim.epoch)

    def read(self) -> LedgerEntry | None:
        """Search backwards from the end of the log in growing steps: the entry of an active sink is near the end.

        While the claim is held, this sink has no open ledger transaction, but other sinks may have. Therefore the log
        is read to the high watermark instead of the last stable offset, and transaction markers are matched here.
        """
        place = (LEDGER_TOPIC, self._ledger_partition())
        start = self._cluster.list_offsets({place: EARLIEST})[place].offset
        end = self._cluster.list_offsets({place: LATEST})[place].offset
        look_back = _FIRST_LOOK_BACK
        while True:
            begin = max(start, end - look_back)
            value = self._last_value(place, begin, end)
            if value is not None:
                return from_bytes(value)
            if begin == start:
                return None
            look_back *= _LOOK_BACK_FACTOR

    def write(self, claim: Claim, entry: LedgerEntry) -> Claim:
        producer = ProducerIdAndEpoch(claim.producer_id, claim.epoch)
        record = Record(0, round(time.time() * 1000), self._sink_id.encode(), to_bytes(entry))
        batch = build_batch(
            [record],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=claim.sequence,
            transactional=True,
        )
        place = (LEDGER_TOPIC, self._ledger_partition())
        try:
            self._cluster.produce({place: batch}, transactional_id=self._ledger_id)
            after = self._cluster.end_txn(self._ledger_id, producer, committed=True)
        except (ProducerFenced, TransactionLost) as error:
            raise self._fenced() from error
        return Claim(*after, sequence=claim.sequence + 1 if after == producer else 0)

    def _ledger_partition(self) -> int:
        if self._partition is None:
            found = self._cluster.metadata([LEDGER_TOPIC]).get(LEDGER_TOPIC)
            if found is None:
                self._cluster.create_topic(LEDGER_TOPIC, partitions=LEDGER_PARTITIONS, settings=LEDGER_SETTINGS)
                found = self._cluster.metadata([LEDGER_TOPIC])[LEDGER_TOPIC]
            self._partition = by_key(self._sink_id.encode(), len(found.partitions))
        return self._partition

    def _last_value(self, place: tuple[str, int], begin: int, end: int) -> bytes | None:
        """This sink's last committed entry between two offsets."""
        undecided: dict[int, bytes] = {}
        last: bytes | None = None
        for producer_id, content in self._contents(place, begin, end):
            if isinstance(content, bytes):
                undecided[producer_id] = content
            elif (value := undecided.pop(producer_id, None)) is not None and content:
                last = value
        # An entry without a marker is being written by a newer driver: it is not committed yet.
        return last

    def _contents(self, place: tuple[str, int], begin: int, end: int) -> Iterator[tuple[int, bytes | bool]]:
        """(producer id, entry) for this sink's entries, (producer id, is a commit) for every transaction marker."""
        key = self._sink_id.encode()
        while begin < end:
            records = bytes(self._cluster.fetch(*place, begin).records)
            before = begin
            for at, header in iter_headers(records):
                batch = memoryview(records)[at : at + header.size]
                begin = header.base_offset + header.last_offset_delta + 1
                if header.is_control:
                    marker = read_marker(batch, header)
                    if marker is not None:
                        yield header.producer_id, marker.committed
                    continue
                for record in iter_records(batch, header):
                    if record.key == key and record.value is not None:
                        yield header.producer_id, record.value
            if begin == before:
                return

    def _fenced(self) -> SinkFenced:
        return SinkFenced(
            f"another query or driver has taken over the sink {self._sink_id}: each query needs its own sinkId, "
            "and only the newest driver of a query may write"
        )

    # -- the transactions of tasks

    def open_transactions(self) -> Sequence[OpenTransaction]:
        prefix = task_prefix(self._sink_id)
        names = [name for name in self._cluster.list_transactions([_OPEN]) if name.startswith(prefix)]
        described = [self._cluster.describe_transaction(name) for name in names]
        return [
            OpenTransaction(each.transactional_id, *each.producer)
            for each in described
            if each is not None and each.state == _OPEN
        ]

    def prepare(self, transactions: Sequence[OpenTransaction]) -> Sequence[OpenTransaction]:
        return self._for_each(transactions, self._prepare)

    def commit(self, transactions: Sequence[OpenTransaction]) -> None:
        self._for_each(transactions, self._commit)

    def abort(self, transactions: Sequence[OpenTransaction]) -> None:
        self._for_each(transactions, self._abort)

    def _prepare(self, cluster: Cluster, transaction: OpenTransaction) -> OpenTransaction:
        name, producer = transaction.transactional_id, _producer(transaction)
        try:
            resumed = cluster.resume_txn(name, timeout_ms=self._timeout_ms, claimed=producer)
        except (Unsupported, Refused) as error:
            if isinstance(error, ProducerFenced | TransactionLost):
                raise self._transaction_expired(name) from error
            if isinstance(error, Refused) and error.code not in _REFUSES_TWO_PHASE:
                raise
            self._check_time_left(cluster, transaction)
            return transaction
        if resumed.ongoing != producer:
            raise self._transaction_expired(name)
        return OpenTransaction(name, *resumed.producer)

    def _check_time_left(self, cluster: Cluster, transaction: OpenTransaction) -> None:
        """On brokers without two-phase commit: raise unless a third of the transaction timeout is left."""
        found = cluster.describe_transaction(transaction.transactional_id)
        if found is None or found.state != _OPEN or found.producer != _producer(transaction):
            raise self._transaction_expired(transaction.transactional_id)
        left_ms = found.started_ms + found.timeout_ms - time.time() * 1000
        if left_ms < self._timeout_ms / 3:
            raise TransactionExpired(
                f"the batch took {(found.timeout_ms - left_ms) / 1000:,.0f} s of the {found.timeout_ms / 1000:,.0f} s "
                "that its transactions may stay open, which leaves too little to commit them safely: raise "
                "transactionTimeout (and transaction.max.timeout.ms on the broker), or make batches smaller"
            )

    def _transaction_expired(self, name: str) -> TransactionExpired:
        return TransactionExpired(
            f"the transaction {name} ended before its batch was committed: the batch took longer than "
            f"transactionTimeout ({self._timeout_ms / 1000:,.0f} s), or another driver aborted it; none of its "
            "rows are visible, and a restart repeats the batch"
        )

    def _commit(self, cluster: Cluster, transaction: OpenTransaction) -> None:
        try:
            cluster.end_txn(transaction.transactional_id, _producer(transaction), committed=True)
        except (ProducerFenced, TransactionLost) as error:
            problem = (
                f"rows of the sink {self._sink_id} are lost: the batch of transaction {transaction.transactional_id} "
                f"was committed, but the transaction was aborted or has expired ({error}); to continue without these "
                "rows, set the option lostTransactions to skip for one run"
            )
            if not self._skips_lost:
                raise RowsLost(problem) from error
            log.error("%s", problem)

    def _abort(self, cluster: Cluster, transaction: OpenTransaction) -> None:
        try:
            cluster.end_txn(transaction.transactional_id, _producer(transaction), committed=False)
        except (ProducerFenced, TransactionLost):
            return  # It has ended, or a newer producer epoch owns it.

    def _for_each(
        self, transactions: Sequence[OpenTransaction], do: Callable[[Cluster, OpenTransaction], T]
    ) -> list[T]:
        if len(transactions) <= _AT_ONCE:
            return [do(self._cluster, each) for each in transactions]
        shares = [transactions[start::_AT_ONCE] for start in range(_AT_ONCE)]

        def work(share: Sequence[OpenTransaction]) -> list[T]:
            with Cluster(self._cluster.bootstrap, credentials=self._cluster.credentials) as cluster:
                return [do(cluster, each) for each in share]

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            done = list(pool.map(work, shares))
        return [done[index % _AT_ONCE][index // _AT_ONCE] for index in range(len(transactions))]


def _producer(transaction: OpenTransaction) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(transaction.producer_id, transaction.epoch)
