"""Produce (0), versions 0-13: append batches to the log unchanged, or recompressed with their topic's codec.

- Versions 0-2 are advertised, since older librdkafka turns compression off without them, and refused with
  UNSUPPORTED_VERSION: they carry message formats that Headrace does not store.
- Two phases: the call appends, in the order of arrival; the answer is sent when the records are committed (acks=all),
  or at once (acks=1). acks=0 gets no answer; a failure closes the connection, the only signal such a client gets.
- Exactly one batch of version 2 per partition. Only its header is read; on compacted topics the keys, too.
- If the topic's `compression.type` is not `producer`, a batch in another codec is recompressed first.
- If the topic has schema validation, batches with records that do not fit their schema are INVALID_RECORD, with the
  reason for each such record; NOT_ENOUGH_REPLICAS while the registry cannot be asked, so that clients retry.
- Clients cannot produce to internal topics: INVALID_TOPIC_EXCEPTION. Records for a topic whose data keys were destroyed
  are INVALID_RECORD: POLICY_VIOLATION, which a fetch of them gets, would say that there is no room now.
- An idempotent producer's duplicate is answered with the offset of the original, when that is committed.
- From v13 on topics are named by id.
- Only the leader accepts records. Others answer NOT_LEADER_OR_FOLLOWER, from v10 on with the leader and its endpoint
  (KIP-951); so does a leader that loses leadership while records wait to be committed.
- acks=all with fewer replicas in sync than min.insync.replicas: NOT_ENOUGH_REPLICAS, or if the ISR shrank after the
  append and the records were not committed in time, NOT_ENOUGH_REPLICAS_AFTER_APPEND.
- A broker whose lease may have expired handles acks=1 as acks=all: another broker may lead already, without the records
  that only this one has.
- A transactional batch needs an open transaction of its producer that includes the partition, which is verified with
  the coordinator; if that is another broker, only when the partition has no record of the transaction yet. Before v12
  AddPartitionsToTxn must have added it, else INVALID_TXN_STATE (TRANSACTION_ABORTABLE in v11); from v12 on (transaction
  version 2) the partition is added first.
- If the backlog of a partition is at its bound: POLICY_VIOLATION (`refuse`); the request waits for room, and after a
  while the partition is answered with NOT_ENOUGH_REPLICAS, which clients retry (`block`). Each with a message.
- If a quota of bytes stored by topics with a prefix has no room: POLICY_VIOLATION, with a message; above nine tenths of
  it the producer is delayed.
- A client that exceeds its quota producer_byte_rate gets its answer at once, and is then delayed; with acks=0, too. So
  is every producer while the disk is nearly full; when even less room is left, KAFKA_STORAGE_ERROR.
- Permissions: WRITE on each topic, else TOPIC_AUTHORIZATION_FAILED; a forbidden topic is not looked up by name, an
  unknown id is UNKNOWN_TOPIC_ID. With a transactional id also WRITE on it, else nothing is written:
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
- No difference from Kafka; as there, a request that times out may still have been written.
"""

from collections.abc import Container, Coroutine, Mapping
from types import MappingProxyType

from kio.schema.errors import ErrorCode

from headrace.kafka.backlog_waits import Batch, check_backlog
from headrace.kafka.dispatch import NO_ANSWER, Context, Raw, Result, handles
from headrace.kafka.errors import error_message
from headrace.kafka.grants import TopicGrants
from headrace.kafka.permissions import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID, not_authorized
from headrace.kafka.produce_answers import (
    KEY,
    Produced,
    Topics,
    WaitingProduce,
    count_errors,
    failed_partition,
    produce_answer,
)
from headrace.kafka.recompression import Refused
from headrace.kafka.schema_checks import BatchToCheck, CheckedPlace
from headrace.kafka.stored_append import append_within
from headrace.kafka.transaction_requests import code_for_writing, joined
from headrace.model.errors import (
    CoordinatorError,
    DiskFull,
    HeadraceError,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicName,
    InvalidTransaction,
    NotEnoughReplicas,
    ProtocolError,
    TransactionError,
    UnknownTopicId,
)
from headrace.model.ids import ProducerIdAndEpoch
from headrace.model.image import INTERNAL_TOPICS
from headrace.protocol.codec import read_request_header, response_header
from headrace.protocol.fast import ProducedPartition, TopicKey, produce_response
from headrace.protocol.produce_request import PartitionData, ProduceRequest, read_produce_request
from headrace.quotas.disk_pressure import NEARLY_FULL
from headrace.records.batch import HEADER_SIZE, BatchHeader, Buffer, check_batch, read_header
from headrace.records.validation import validate_for_topic
from headrace.replication.partition import Partition
from headrace.runtime.deferred import Deferred
from headrace.security.authorizer import Authorizer
from headrace.storage.appender import AppendResult
from headrace.transactions.records import Place

ACKS_ALL = -1
_ABORTABLE_FROM = 11
_ADDS_PARTITIONS_FROM = 12

Asked = Mapping[Place, HeadraceError | None]
"""Partitions that were just verified with the coordinator, each with its refusal, if any."""
_NOTHING_ASKED: Asked = MappingProxyType({})


def refuse_old_versions(frame: bytes | memoryview, version: int) -> bytes:
    """Answer UNSUPPORTED_VERSION for each partition of a request, in the layout of versions 0-2."""
    request = read_produce_request(frame, read_request_header(frame, flexible=False))
    refused: Topics = [
        (topic, [ProducedPartition(index, ErrorCode.unsupported_version.value) for index, _ in partitions])
        for topic, partitions in request.topics
    ]
    return produce_response(version, b"", refused)


@handles(
    KEY,
    0,
    13,
    read=read_produce_request,
    min_served=3,
    refuse=refuse_old_versions,
    needs=(WRITE_TOPIC, WRITE_TRANSACTIONAL_ID),
)
def produce(ctx: Context, request: ProduceRequest) -> "Result[Produced]":
    authorizer = ctx.services.security.authorizer
    denied = None if authorizer is None else _denied(ctx, request, authorizer)
    if denied:
        request = _without_records(request, denied)
    waits = ctx.services.backlog_waits
    if waits.is_needed and (waiting := waits.concerned(request)):
        return _produce_with_room(ctx, request, waiting, denied)
    return _produce_unchecked(ctx, request, denied)


async def _produce_with_room(
    ctx: Context, request: ProduceRequest, waiting: list[Batch], denied: Refused | None
) -> Produced | Deferred[Produced]:
    await ctx.services.backlog_waits.until_room(waiting)
    result = _produce_unchecked(ctx, request, denied)
    return await result if isinstance(result, Coroutine) else result


def _produce_unchecked(ctx: Context, request: ProduceRequest, denied: Refused | None) -> "Result[Produced]":
    checks = ctx.services.schema_checks
    if checks.is_needed and (batches := checks.concerned(request)):
        if not checks.pass_at_once(batches):
            return _produce_checked(ctx, request, batches, denied)
        return _produce_allowed(ctx, request, denied, {batch.place for batch in batches})
    return _produce_allowed(ctx, request, denied, ())


def _produce_allowed(
    ctx: Context, request: ProduceRequest, denied: Refused | None, checked: Container[CheckedPlace]
) -> "Result[Produced]":
    """`checked` are the partitions whose batches were checked by their schemas."""
    recompressor = ctx.services.recompressor
    if recompressor.is_needed and recompressor.concerns(request):
        return _produce_recompressed(ctx, request, denied, checked)
    if request.transactional_id is not None and _must_ask(ctx, request.transactional_id):
        missing = _missing(ctx, request)
        if missing:
            return _produce_when_joined(ctx, request, missing, denied, checked)
    return _produce(ctx, request, denied)


def _denied(ctx: Context, request: ProduceRequest, authorizer: Authorizer) -> Refused | None:
    """Return the partitions that the client may not write to, each with its error; None if it may write to all."""
    transactional_id = request.transactional_id
    peer = ctx.peer
    grants = peer.grants
    if grants.given_by is not authorizer or grants.given_to is not peer.subject:
        grants.renew(authorizer, peer.subject)
    granted = grants.writable
    if transactional_id is None:
        for topic, _ in request.topics:
            if topic not in granted:
                break
        else:
            return None
    elif not ctx.allows(WRITE_TRANSACTIONAL_ID, transactional_id):
        error: HeadraceError = not_authorized(WRITE_TRANSACTIONAL_ID, transactional_id)
        return {(topic, index): error for topic, partitions in request.topics for index, _ in partitions}
    denied: Refused = {}
    for topic, partitions in request.topics:
        name = topic if isinstance(topic, str) else ctx.services.metadata.image.topic_names.get(topic)
        if name is not None and ctx.allows(WRITE_TOPIC, name):
            TopicGrants.add(granted, topic)
            continue
        if name is None:
            error = UnknownTopicId(f"there is no topic with id {topic}")
        else:
            error = not_authorized(WRITE_TOPIC, str(topic))
        for index, _ in partitions:
            denied[topic, index] = error
    return denied or None


def _without_records(request: ProduceRequest, denied: Refused) -> ProduceRequest:
    """Remove the records that are not to be written, so that they neither join a transaction nor are recompressed."""
    topics = [
        (topic, [PartitionData(index, None if (topic, index) in denied else records) for index, records in partitions])
        for topic, partitions in request.topics
    ]
    return request._replace(topics=topics)


def _must_ask(ctx: Context, transactional_id: str) -> bool:
    """Whether the coordinator must be awaited: to add partitions, or because it is on another broker."""
    return ctx.header.api_version >= _ADDS_PARTITIONS_FROM or not ctx.services.transactions.is_here(transactional_id)


def _missing(ctx: Context, request: ProduceRequest) -> dict[ProducerIdAndEpoch, list[Partition]]:
    """Return the partitions that have no record yet of the transaction that the request writes, by producer."""
    missing: dict[ProducerIdAndEpoch, list[Partition]] = {}
    for topic, partitions in request.topics:
        for index, records in partitions:
            if records is None or len(records) < HEADER_SIZE:
                continue
            header = read_header(records)
            try:
                partition = _partition(ctx, topic, index)
            except HeadraceError:
                continue
            producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
            if header.is_transactional and not partition.log.producers.is_open(*producer):
                missing.setdefault(producer, []).append(partition)
    return missing


async def _produce_checked(
    ctx: Context, request: ProduceRequest, batches: list[BatchToCheck], denied: Refused | None
) -> Produced | Deferred[Produced]:
    refused = await ctx.services.schema_checks.refused(request, batches)
    if refused:
        request = _without_records(request, refused)
    result = _produce_allowed(ctx, request, {**(denied or {}), **refused}, {batch.place for batch in batches})
    return await result if isinstance(result, Coroutine) else result


async def _produce_recompressed(
    ctx: Context, request: ProduceRequest, denied: Refused | None, checked: Container[CheckedPlace]
) -> Produced | Deferred[Produced]:
    request, refused = await ctx.services.recompressor.recompress(request)
    if denied:
        refused |= denied
    if request.transactional_id is not None and _must_ask(ctx, request.transactional_id):
        return await _produce_when_joined(ctx, request, _missing(ctx, request), refused, checked)
    return _produce(ctx, request, {**ctx.services.schema_checks.unchecked(request, checked), **refused})


async def _produce_when_joined(
    ctx: Context,
    request: ProduceRequest,
    missing: dict[ProducerIdAndEpoch, list[Partition]],
    refused: Refused | None,
    checked: Container[CheckedPlace],
) -> Produced | Deferred[Produced]:
    assert request.transactional_id is not None
    adds = ctx.header.api_version >= _ADDS_PARTITIONS_FROM
    async with joined(ctx.services, request.transactional_id, missing, adds=adds) as problems:
        asked: Asked = {
            (partition.topic, partition.index): problems.get((partition.topic, partition.index))
            for partitions in missing.values()
            for partition in partitions
        }
        unchecked = ctx.services.schema_checks.unchecked(request, checked)
        return _produce(ctx, request, {**unchecked, **(refused or {})}, asked)


def _produce(
    ctx: Context, request: ProduceRequest, refused: Refused | None = None, asked: Asked = _NOTHING_ASKED
) -> Produced | Deferred[Produced]:
    acks = request.acks
    waiting = WaitingProduce(ctx) if acks == ACKS_ALL else None
    topics: Topics = []
    has_failures = False
    problem = _problem_with_request(ctx, request)
    now_ms = ctx.services.clock.wall_ms()
    for topic, partitions in request.topics:
        produced: list[ProducedPartition] = []
        topics.append((topic, produced))
        for index, records in partitions:
            if problem is not None:
                # Not raised: with its traceback it would refer to itself and to the request, until these are collected.
                produced.append(failed_partition(ctx, topic, index, problem))
                has_failures = True
                continue
            try:
                if refused and (topic, index) in refused:
                    raise refused[topic, index]
                partition = _partition(ctx, topic, index)
                result = _append(ctx, request, partition, records, now_ms, asked)
            except TransactionError as error:
                version = ctx.header.api_version
                code = code_for_writing(
                    error,
                    knows_abortable=version >= _ABORTABLE_FROM,
                    knows_concurrent=version >= _ADDS_PARTITIONS_FROM,
                )
                produced.append(ProducedPartition(index, code.value, error_message=error_message(error)))
                has_failures = True
                continue
            except CoordinatorError as error:
                code = ErrorCode.not_enough_replicas
                produced.append(ProducedPartition(index, code.value, error_message=error_message(error)))
                has_failures = True
                continue
            except HeadraceError as error:
                produced.append(failed_partition(ctx, topic, index, error))
                has_failures = True
                continue
            produced.append(
                ProducedPartition(index, 0, result.base_offset, result.append_time_ms, result.log_start_offset)
            )
            if waiting is None and partition.has_others_in_sync and acks and not ctx.services.is_certain():
                waiting = WaitingProduce(ctx)
            if waiting is not None:
                waiting.watch(partition, result.last_offset + 1, produced, topic)
    if has_failures:
        _count_rejected(ctx, request, topics)
    throttle_ms = 0 if ctx.metered is None else ctx.metered.produced(has_answer=acks != 0)
    if waiting is not None and waiting.count:
        return waiting.start(topics, request.timeout_ms)
    if acks == 0:
        if has_failures:
            count_errors(ctx, topics)
        _close_on_failure(topics)
        return NO_ANSWER
    if has_failures:
        return Raw((produce_answer(ctx, topics),))
    return Raw((produce_response(ctx.header.api_version, response_header(ctx.header), topics, throttle_ms),))


def _count_rejected(ctx: Context, request: ProduceRequest, topics: Topics) -> None:
    """Count the bytes of batches that were not appended, for topics that this broker has partitions of."""
    table = ctx.services.partitions.traffic
    if table is None:
        return
    for (topic, partitions), (_, produced) in zip(request.topics, topics, strict=True):
        name = topic if isinstance(topic, str) else ctx.services.metadata.image.topic_names.get(topic, "")
        traffic = table.topics.get(name)
        if traffic is not None:
            for (_, records), part in zip(partitions, produced, strict=True):
                if part.error_code and records is not None:
                    traffic.bytes_rejected += len(records)


def _problem_with_request(ctx: Context, request: ProduceRequest) -> HeadraceError | None:
    if request.acks not in (-1, 0, 1):
        return InvalidRequiredAcks(f"acks={request.acks} is not one of -1, 0 and 1")
    if ctx.services.quotas.disk.is_refusing:
        return DiskFull(NEARLY_FULL)
    return None


def _partition(ctx: Context, topic: TopicKey, index: int) -> Partition:
    table = ctx.services.partitions
    return table.get(topic, index) if isinstance(topic, str) else table.by_id(topic, index)


def _append(
    ctx: Context, request: ProduceRequest, partition: Partition, records: Buffer | None, now_ms: int, asked: Asked
) -> AppendResult:
    if partition.topic in INTERNAL_TOPICS:
        raise InvalidTopicName(f"only the broker itself writes to {partition.topic}")
    if not partition.is_writable:
        # Before the partition is added to a transaction.
        partition.check_writable()
    if not records:
        raise InvalidRecord("a partition was sent without a record batch")
    header = check_batch(records)
    if header.is_transactional:
        _check_transaction(ctx, request, partition, header, asked)
    if request.acks == ACKS_ALL and partition.in_sync_count < partition.settings.min_insync_replicas:
        raise NotEnoughReplicas(
            f"{partition.topic}-{partition.index} has {partition.in_sync_count} replicas in sync, "
            f"min.insync.replicas is {partition.settings.min_insync_replicas}"
        )
    batch = validate_for_topic(records, header, partition.settings, now_ms, request_version=ctx.header.api_version)
    if batch is not records:
        header = read_header(batch)
    if (guard := partition.backlog) is not None:
        check_backlog(partition, guard, header, len(batch))
    if (room := partition.stored) is not None:
        return append_within(ctx, partition, room, batch, header)
    return partition.append(batch, header)


def _check_transaction(
    ctx: Context, request: ProduceRequest, partition: Partition, header: BatchHeader, asked: Asked
) -> None:
    """Refuse a batch whose transaction is not open, or does not have this partition.

    A coordinator on this broker is authoritative: the partition may not have the marker of a decided transaction yet.
    The partition's own state is used only while the coordinator is unavailable. One on another broker has been asked if
    the partition has no record of the transaction; if it has one, the marker that ends the transaction is yet to come.
    """
    producer, place = ProducerIdAndEpoch(header.producer_id, header.producer_epoch), (partition.topic, partition.index)
    if request.transactional_id is None:
        raise InvalidTransaction("a transactional batch was sent outside a transaction")
    problem = asked.get(place)
    if problem is not None:
        raise problem
    transactions = ctx.services.transactions
    if place in asked and not transactions.is_here(request.transactional_id):
        return
    try:
        transactions.verify(request.transactional_id, producer, place)
    except CoordinatorError:
        if not partition.log.producers.is_open(*producer):
            raise


def _close_on_failure(topics: Topics) -> None:
    for topic, produced in topics:
        for part in produced:
            if part.error_code:
                raise ProtocolError(f"could not write to {topic}-{part.partition} with acks=0: {part.error_message}")
