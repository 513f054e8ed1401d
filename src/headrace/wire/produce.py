"""Produces encoded record batches to the leaders of their partitions; initializes producers and ends transactions.

Under transaction version 2 (KIP-890) a partition joins a transaction at its first write, and each transaction has its
own epoch. Under version 1 the client first adds each partition at the coordinator (AddPartitionsToTxn). The broker's
feature `transaction.version` decides which one holds.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from struct import Struct
from types import ModuleType
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.model.ids import NO_PRODUCER, ProducerIdAndEpoch, by_topic
from headrace.model.image import Endpoint
from headrace.protocol.client_codec import request_header
from headrace.protocol.codec import make
from headrace.protocol.units import from_ms
from headrace.records.batch import read_header
from headrace.runtime.varint import encode_uvarint
from headrace.wire.connection import WireConnection
from headrace.wire.errors import PASSING, Refused, TopicNotFound, WireError, check, refusal
from headrace.wire.router import TRANSACTION, LeaderRouter, Partition

PRODUCE, ADD_PARTITIONS_TO_TXN, INIT_PRODUCER_ID, END_TXN = 0, 24, 22, 26
_PRODUCE_LOWEST, _PRODUCE_V1, _PRODUCE_V2 = 9, 11, 12
_END_TXN_V1, _END_TXN_V2 = 4, 5
_ADD_PARTITIONS_VERSION = 3
_CLAIMING_VERSION, _INIT_PRODUCER_ID_VERSION, _TWO_PHASE_VERSION = 3, 5, 6
_FEATURE = "transaction.version"
ACKS_ALL = -1
UNKNOWN_OFFSET = -1

_I32 = Struct(">i")
_ACKS = Struct(">hi")


class ResumedTransaction(NamedTuple):
    producer: ProducerIdAndEpoch
    """The producer id and epoch that ends the open transaction, or begins the next."""
    ongoing: ProducerIdAndEpoch | None
    """The producer id and epoch that began the open transaction, if there is one."""


class Transactions:
    """The state of transactions between requests: under version 1, the partitions that were added."""

    def __init__(self) -> None:
        self._added: dict[tuple[str, ProducerIdAndEpoch], set[Partition]] = {}

    def added(self, transactional_id: str, producer: ProducerIdAndEpoch) -> set[Partition]:
        return self._added.setdefault((transactional_id, producer), set())

    def forget(self, transactional_id: str) -> None:
        self._added = {key: added for key, added in self._added.items() if key[0] != transactional_id}


def is_version_2(connection: WireConnection) -> bool:
    return connection.served.features.get(_FEATURE, 0) >= 2


def produce(
    router: LeaderRouter,
    transactions: Transactions,
    batches: Mapping[Partition, bytes],
    *,
    transactional_id: str | None,
    timeout_ms: int,
) -> dict[Partition, int]:
    """Write a batch to each partition. Returns base offsets; -1 if a retry found the batch written already."""
    offsets: dict[Partition, int] = {}

    def attempt() -> None:
        missing = {partition: batch for partition, batch in batches.items() if partition not in offsets}
        if transactional_id is not None and not router.any_broker(is_version_2):
            _add_partitions(router, transactions, transactional_id, missing)
        _produce_once(router, missing, offsets, transactional_id, timeout_ms)

    router.patiently(attempt)
    return offsets


def _produce_once(
    router: LeaderRouter,
    batches: Mapping[Partition, bytes],
    offsets: dict[Partition, int],
    transactional_id: str | None,
    timeout_ms: int,
) -> None:
    """Send one request to each leader, all in flight at once. Successes go to `offsets`; a failure is raised."""
    failures: list[WireError] = []
    asked: list[Endpoint] = []
    for address, part in router.by_leader(batches).items():
        try:
            with router.using(address) as connection:
                send_produce(connection, part, transactional_id, timeout_ms)
            asked.append(address)
        except WireError as error:
            failures.append(error)
    for address in asked:
        try:
            with router.using(address) as connection:
                failures += receive_produce(connection, offsets)
        except WireError as error:
            failures.append(error)
    if failures:
        # Errors that a retry cannot fix are raised first.
        raise min(failures, key=lambda error: isinstance(error, (*PASSING, TopicNotFound)))


def send_produce(
    connection: WireConnection, batches: Mapping[Partition, bytes], transactional_id: str | None, timeout_ms: int
) -> None:
    highest = _PRODUCE_V2 if is_version_2(connection) else _PRODUCE_V1
    version = connection.version(PRODUCE, highest, _PRODUCE_LOWEST)
    write = partial(_produce_request, version, connection.client_id, batches, transactional_id, timeout_ms)
    connection.send(PRODUCE, version, write, timeout_ms / 1000)


def _produce_request(
    version: int,
    client_id: str,
    batches: Mapping[Partition, bytes],
    transactional_id: str | None,
    timeout_ms: int,
    correlation_id: int,
) -> bytes:
    """Written by hand, so that records are copied once: the layout is in `protocol/produce_request.py`."""
    name = b"\x00" if transactional_id is None else _compact(transactional_id)
    topics = by_topic(batches)
    out: list[bytes] = [
        request_header(PRODUCE, version, correlation_id, client_id),
        name,
        _ACKS.pack(ACKS_ALL, timeout_ms),
        encode_uvarint(len(topics) + 1),
    ]
    for topic, indexes in topics.items():
        out += (_compact(topic), encode_uvarint(len(indexes) + 1))
        for index in indexes:
            batch = batches[topic, index]
            out += (_I32.pack(index), encode_uvarint(len(batch) + 1), batch, b"\x00")
        out.append(b"\x00")
    out.append(b"\x00")
    return b"".join(out)


def _compact(text: str) -> bytes:
    data = text.encode()
    return encode_uvarint(len(data) + 1) + data


def receive_produce(connection: WireConnection, offsets: dict[Partition, int]) -> list[Refused]:
    """Add the base offsets of written batches to `offsets`. Returns the refusals."""
    failures: list[Refused] = []
    for topic in connection.receive().read().responses:
        for part in topic.partition_responses:
            partition = (topic.name, part.index)
            if part.error_code is ErrorCode.none:
                offsets[partition] = part.base_offset
            elif part.error_code is ErrorCode.duplicate_sequence_number:
                # A duplicate of an old batch: it is in the log, at an offset that the broker does not remember.
                offsets[partition] = UNKNOWN_OFFSET
            else:
                failures.append(refusal(f"writing to {topic.name}-{part.index}", part.error_code, part.error_message))
    return failures


def _add_partitions(
    router: LeaderRouter, transactions: Transactions, transactional_id: str, batches: Mapping[Partition, bytes]
) -> None:
    by_producer: dict[ProducerIdAndEpoch, list[Partition]] = {}
    for partition, batch in batches.items():
        header = read_header(batch)
        by_producer.setdefault(ProducerIdAndEpoch(header.producer_id, header.producer_epoch), []).append(partition)
    for producer, partitions in by_producer.items():
        added = transactions.added(transactional_id, producer)
        missing = [partition for partition in partitions if partition not in added]
        if missing:
            _tell_coordinator(router, transactional_id, producer, missing)
            added.update(missing)


def _tell_coordinator(
    router: LeaderRouter, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[Partition]
) -> None:
    def build(schema: ModuleType) -> Any:
        return make(
            schema.AddPartitionsToTxnRequest,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=tuple(
                make(schema.AddPartitionsToTxnTopic, name=topic, partitions=tuple(indexes))
                for topic, indexes in by_topic(partitions).items()
            ),
        )

    answer = router.coordinated(
        TRANSACTION, transactional_id, ADD_PARTITIONS_TO_TXN, _ADD_PARTITIONS_VERSION, build, lowest=0
    )
    for topic in answer.results_by_topic_v3_and_below:
        for part in topic.results_by_partition:
            where = f"adding {topic.name}-{part.partition_index} to the transaction of {transactional_id}"
            _check_coordinator(router, transactional_id, where, part.partition_error_code)


def init_producer_id(
    router: LeaderRouter,
    transactions: Transactions,
    transactional_id: str | None,
    timeout_ms: int,
    *,
    two_phase: bool,
    claimed: ProducerIdAndEpoch = NO_PRODUCER,
) -> ProducerIdAndEpoch:
    """A new producer. With a transactional id: the previous producer is fenced, its open transaction aborted."""
    highest = _TWO_PHASE_VERSION if two_phase else _INIT_PRODUCER_ID_VERSION
    lowest = 0 if claimed is NO_PRODUCER else _CLAIMING_VERSION
    return _init(
        router, transactions, transactional_id, timeout_ms, highest, lowest, claimed, two_phase=two_phase
    ).producer


def resume_txn(
    router: LeaderRouter,
    transactions: Transactions,
    transactional_id: str,
    timeout_ms: int,
    claimed: ProducerIdAndEpoch = NO_PRODUCER,
) -> ResumedTransaction:
    """A new producer that fences the previous one and keeps its transaction open (KIP-939)."""
    version = _TWO_PHASE_VERSION
    return _init(router, transactions, transactional_id, timeout_ms, version, version, claimed, two_phase=True)


def _init(
    router: LeaderRouter,
    transactions: Transactions,
    transactional_id: str | None,
    timeout_ms: int,
    highest: int,
    lowest: int = 0,
    claimed: ProducerIdAndEpoch = NO_PRODUCER,
    *,
    two_phase: bool,
) -> ResumedTransaction:
    def build(schema: ModuleType) -> Any:
        return make(
            schema.InitProducerIdRequest,
            transactional_id=transactional_id,
            transaction_timeout=from_ms(timeout_ms),
            producer_id=claimed.producer_id,
            producer_epoch=claimed.epoch,
            enable2_pc=two_phase,
            keep_prepared_txn=lowest == _TWO_PHASE_VERSION,
        )

    def attempt() -> ResumedTransaction:
        if transactional_id is None:
            answer = router.any_broker(lambda connection: connection.call(INIT_PRODUCER_ID, highest, build))
        else:
            answer = router.coordinated(TRANSACTION, transactional_id, INIT_PRODUCER_ID, highest, build, lowest=lowest)
        what = f"initializing the producer {transactional_id}" if transactional_id else "asking for a producer id"
        _check_coordinator(router, transactional_id, what, answer.error_code)
        ongoing_id = getattr(answer, "ongoing_txn_producer_id", -1)
        return ResumedTransaction(
            ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch),
            ProducerIdAndEpoch(ongoing_id, answer.ongoing_txn_producer_epoch) if ongoing_id >= 0 else None,
        )

    if transactional_id is not None:
        transactions.forget(transactional_id)
    return router.patiently(attempt)


def end_txn(
    router: LeaderRouter,
    transactions: Transactions,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    *,
    committed: bool,
) -> ProducerIdAndEpoch:
    """Commit or abort. Returns the producer id and epoch for the next transaction."""

    def build(schema: ModuleType) -> Any:
        return make(
            schema.EndTxnRequest,
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=committed,
        )

    def attempt() -> ProducerIdAndEpoch:
        highest = _END_TXN_V2 if router.any_broker(is_version_2) else _END_TXN_V1
        answer = router.coordinated(TRANSACTION, transactional_id, END_TXN, highest, build)
        verb = "committing" if committed else "aborting"
        _check_coordinator(router, transactional_id, f"{verb} the transaction of {transactional_id}", answer.error_code)
        if getattr(answer, "producer_id", -1) < 0:
            return producer
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    transactions.forget(transactional_id)
    return router.patiently(attempt)


def _check_coordinator(router: LeaderRouter, transactional_id: str | None, what: str, code: ErrorCode) -> None:
    if code is not ErrorCode.none and transactional_id is not None:
        router.forget_coordinator(TRANSACTION, transactional_id)
    check(what, code)
