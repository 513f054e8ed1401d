"""Transactional ids, with the transactions that are open, and producers that have written to a topic."""

import asyncio
from collections import defaultdict
from types import ModuleType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError, check_kafka
from headrace.admin.kafka_requests import TRANSACTION, ask, coordinated, leader_of, patiently, topic_image
from headrace.admin.pages import Listing, Page, PageQuery
from headrace.admin.routes import (
    SHOWN_TRANSACTIONS,
    WRITE_TRANSACTION,
    Access,
    AdminReply,
    AdminRequest,
    RouteNeed,
    route,
)
from headrace.model.acls import AclOperation, ResourceType
from headrace.monitor.snapshots import TransactionStat
from headrace.protocol.codec import make
from headrace.protocol.units import from_ms, to_ms

_INIT_PRODUCER_ID, _DESCRIBE_PRODUCERS, _DESCRIBE_TRANSACTIONS, _LIST_TRANSACTIONS = 22, 61, 65, 66
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_NO_TIMEOUT_MS = 2**31 - 1
_DEFAULT_TIMEOUT_MS = 60_000
_MAX_PRODUCERS = 1_000


class TransactionRow(msgspec.Struct, frozen=True):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    started_ms: int | None
    """When the open transaction began; null if none is open."""
    updated_ms: int
    timeout_ms: int
    coordinator: int
    partition_count: int
    partitions: list[tuple[str, int]]
    """The first 100 that the transaction has written to."""


class TransactionQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    state: Literal["", "open"] = ""
    """open: only those with an open transaction."""


def _entry(found: TransactionStat) -> TransactionRow:
    return TransactionRow(
        transactional_id=found.transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        state=found.state,
        started_ms=found.started_ms,
        updated_ms=found.updated_ms,
        timeout_ms=found.timeout_ms,
        coordinator=found.coordinator,
        partition_count=found.partition_count,
        partitions=found.partitions,
    )


_TRANSACTIONS: Listing[TransactionStat, TransactionRow] = Listing(TransactionRow, _entry, name="transactional_id")


@route("GET", "/transactions", needs=SHOWN_TRANSACTIONS, query=TransactionQuery, answer=Page[TransactionRow])
async def list_transactions(request: AdminRequest) -> AdminReply:
    """The transactional ids of the cluster, with their transactions."""
    query = request.query(TransactionQuery)
    shown = [
        each
        for each in await request.services.monitor.transactions()
        if (not query.state or each.started_ms is not None)
        and request.shows(ResourceType.TRANSACTIONAL_ID, each.transactional_id)
    ]
    return AdminReply(_TRANSACTIONS.page(shown, query))


class TransactionAbort(msgspec.Struct, frozen=True):
    transactional_id: str
    before: str
    """The state that the transaction was in."""
    producer_epoch: int
    """The new epoch: the producer with an older one is fenced."""


@route("POST", "/transactions/{transactional_id:path}/abort", needs=WRITE_TRANSACTION, answer=TransactionAbort)
async def abort_transaction(request: AdminRequest) -> AdminReply:
    """Abort the open transaction of a transactional id, and fence its producer."""
    name = request.parameters["transactional_id"]
    state = await patiently(lambda: _state(request, name))
    if state not in _OPEN:
        raise AdminError(409, "no_open_transaction", f"{name} has no open transaction: its state is {state}")
    timeout_ms = await patiently(lambda: _timeout_ms(request, name))
    # It stays as it is, for the next instance of the producer.
    timeout_ms = max(timeout_ms, 1_000) if timeout_ms < _NO_TIMEOUT_MS else _DEFAULT_TIMEOUT_MS

    def build(schema: ModuleType) -> Any:
        return make(
            schema.InitProducerIdRequest,
            transactional_id=name,
            transaction_timeout=from_ms(timeout_ms),
            producer_id=-1,
            producer_epoch=-1,
        )

    async def attempt() -> int:
        while True:
            answer = await coordinated(request, TRANSACTION, name, _INIT_PRODUCER_ID, 4, build)
            if answer.error_code.name != "concurrent_transactions":
                check_kafka(answer.error_code)
                return int(answer.producer_epoch)
            # The markers of the abort are being written.
            await asyncio.sleep(_RETRY_S)

    async with asyncio.timeout(_PATIENCE_S):
        epoch = await patiently(attempt)
    return AdminReply(TransactionAbort(name, state, epoch))


async def _state(request: AdminRequest, name: str) -> str:
    """The state at the coordinator, at this moment."""

    def build(schema: ModuleType) -> Any:
        return make(
            schema.ListTransactionsRequest,
            state_filters=(),
            producer_id_filters=(),
            transactional_id_pattern="^\\Q" + name.replace("\\E", "\\E\\\\E\\Q") + "\\E$",
        )

    answer = await coordinated(request, TRANSACTION, name, _LIST_TRANSACTIONS, 2, build)
    check_kafka(answer.error_code)
    for each in answer.transaction_states:
        if each.transactional_id == name:
            return str(each.transaction_state)
    raise AdminError(404, "unknown_transactional_id", f"there is no transactional id {name}")


async def _timeout_ms(request: AdminRequest, name: str) -> int:
    def build(schema: ModuleType) -> Any:
        return make(schema.DescribeTransactionsRequest, transactional_ids=(name,))

    (found,) = (await coordinated(request, TRANSACTION, name, _DESCRIBE_TRANSACTIONS, 0, build)).transaction_states
    check_kafka(found.error_code)
    return to_ms(found.transaction_timeout)


_RETRY_S = 0.1
_PATIENCE_S = 30.0


class ProducerQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: Annotated[str, Meta(min_length=1, max_length=249)]


class ProducerRow(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None
    """The first offset of its open transaction; null if none is open."""


READ_ANY_TOPIC = RouteNeed(AclOperation.READ, ResourceType.TOPIC, access=Access.DELEGATED)


@route("GET", "/producers", needs=READ_ANY_TOPIC, query=ProducerQuery, answer=list[ProducerRow])
async def list_producers(request: AdminRequest) -> AdminReply:
    """The idempotent and transactional producers that have written to a topic, at most 1,000."""
    topic = request.query(ProducerQuery).topic
    if not request.allows(AclOperation.READ, ResourceType.TOPIC, topic):
        # Before it is looked up: whether it exists is not shown. The API of Kafka reports the denial.
        await _producers_of(request, topic, None, [0])
    by_leader: defaultdict[int, list[int]] = defaultdict(list)
    for index in range(len(topic_image(request, topic).partitions)):
        by_leader[leader_of(request, topic, index)].append(index)
    found = await asyncio.gather(
        *(_producers_of(request, topic, leader, indexes) for leader, indexes in by_leader.items())
    )
    entries = sorted((each for part in found for each in part), key=lambda each: (each.partition, each.producer_id))
    return AdminReply(entries[:_MAX_PRODUCERS])


async def _producers_of(request: AdminRequest, topic: str, leader: int | None, indexes: list[int]) -> list[ProducerRow]:
    def build(schema: ModuleType) -> Any:
        wanted: Any = make(schema.TopicRequest, name=topic, partition_indexes=tuple(indexes))
        return make(schema.DescribeProducersRequest, topics=(wanted,))

    (answer,) = (await ask(request, _DESCRIBE_PRODUCERS, 0, build, broker_id=leader)).topics
    found = []
    for part in answer.partitions:
        check_kafka(part.error_code, part.error_message)
        for each in part.active_producers:
            start = int(each.current_txn_start_offset)
            found.append(
                ProducerRow(
                    topic=topic,
                    partition=int(part.partition_index),
                    producer_id=int(each.producer_id),
                    producer_epoch=int(each.producer_epoch),
                    last_sequence=int(each.last_sequence),
                    last_timestamp_ms=int(each.last_timestamp),
                    transaction_start_offset=None if start < 0 else start,
                )
            )
    return found
