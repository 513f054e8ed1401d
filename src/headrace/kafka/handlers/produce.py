"""Produce (0), versions 0-13: batches go to the log as they came.

- Versions 0-2 are advertised, since older librdkafka turns compression off without them, and refused with
  UNSUPPORTED_VERSION: they carry message formats that Headrace does not store.
- Two phases: the call appends, in the order of arrival; the answer comes when the records are committed (acks=all), or
  at once (acks=1). acks=0 gets no answer, and a failure closes the connection, which is how such a client is told.
- Exactly one batch of version 2 per partition. Only its header is read; on compacted topics the keys, too.
- Internal topics take nothing from clients: INVALID_TOPIC_EXCEPTION.
- An idempotent producer's duplicate is answered with the offset of the original, when that is committed.
- From v13 on topics are named by id.
- Difference to Kafka: a request that times out waiting may still have been written, as there; nothing else.
"""

from collections.abc import Sequence
from functools import partial

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import NO_ANSWER, Answer, Context, Raw, handles
from headrace.kafka.errors import error_code, error_message
from headrace.model.errors import (
    HeadraceError,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicName,
    InvalidTransaction,
    NotEnoughReplicas,
    ProtocolError,
)
from headrace.model.image import INTERNAL_TOPICS
from headrace.protocol.codec import read_request_header, response_header
from headrace.protocol.fast import ProducedPartition, TopicKey, produce_response
from headrace.protocol.produce_request import ProduceRequest, read_produce_request
from headrace.records.batch import Buffer, check_batch, read_header
from headrace.records.validation import validate_for_topic
from headrace.replication.partition import Partition
from headrace.runtime.deferred import Deferred
from headrace.storage.log import AppendResult

KEY = 0
ACKS_ALL = -1

Topics = list[tuple[TopicKey, list[ProducedPartition]]]


def refuse_old_versions(frame: bytes | memoryview, version: int) -> bytes:
    """UNSUPPORTED_VERSION for each partition of a request in the layout of versions 0-2."""
    request = read_produce_request(frame, read_request_header(frame, flexible=False))
    refused: Topics = [
        (topic, [ProducedPartition(index, ErrorCode.unsupported_version.value) for index, _ in partitions])
        for topic, partitions in request.topics
    ]
    return produce_response(version, b"", refused)


@handles(KEY, 0, 13, read=read_produce_request, min_served=3, refuse=refuse_old_versions)
def produce(ctx: Context, request: ProduceRequest) -> Answer | Deferred[Answer]:
    acks = request.acks
    waiting = _Waiting(ctx) if acks == ACKS_ALL else None
    topics: Topics = []
    problem = _problem_with_request(request)
    table = ctx.services.partitions
    now_ms = ctx.services.clock.wall_ms()
    for topic, partitions in request.topics:
        produced: list[ProducedPartition] = []
        topics.append((topic, produced))
        for index, records in partitions:
            try:
                if problem is not None:
                    raise problem
                partition = table.get(topic, index) if isinstance(topic, str) else table.by_id(topic, index)
                result = _append(partition, records, acks, ctx.header.api_version, now_ms)
            except HeadraceError as error:
                produced.append(_failed(index, error))
                continue
            produced.append(
                ProducedPartition(index, 0, result.base_offset, result.append_time_ms, result.log_start_offset)
            )
            if waiting is not None:
                waiting.watch(partition, result.last_offset + 1, produced)
    if waiting is not None and waiting.count:
        return waiting.start(topics, request.timeout_ms)
    if acks == 0:
        _close_on_failure(topics)
        return NO_ANSWER
    return Raw((produce_response(ctx.header.api_version, response_header(ctx.header), topics),))


def _problem_with_request(request: ProduceRequest) -> HeadraceError | None:
    if request.acks not in (-1, 0, 1):
        return InvalidRequiredAcks(f"acks={request.acks} is not one of -1, 0 and 1")
    if request.transactional_id is not None:
        return InvalidTransaction("this broker has no transaction coordinator")
    return None


def _append(partition: Partition, records: Buffer | None, acks: int, version: int, now_ms: int) -> AppendResult:
    if partition.topic in INTERNAL_TOPICS:
        raise InvalidTopicName(f"only the broker itself writes to {partition.topic}")
    if not records:
        raise InvalidRecord("a partition was sent without a record batch")
    header = check_batch(records)
    if header.is_transactional:
        raise InvalidTransaction("a transactional batch was sent outside a transaction")
    if acks == ACKS_ALL and partition.in_sync_count < partition.settings.min_insync_replicas:
        raise NotEnoughReplicas(
            f"{partition.topic}-{partition.index} has {partition.in_sync_count} replicas in sync, "
            f"min.insync.replicas is {partition.settings.min_insync_replicas}"
        )
    batch = validate_for_topic(records, header, partition.settings, now_ms, request_version=version)
    if batch is not records:
        header = read_header(batch)
    return partition.append(batch, header)


def _failed(index: int, error: BaseException) -> ProducedPartition:
    indexes: Sequence[int] = getattr(error, "record_indexes", ())
    message = error_message(error)
    return ProducedPartition(
        index,
        error_code(error).value,
        record_errors=tuple((at, message) for at in indexes),
        error_message=message,
    )


def _close_on_failure(topics: Topics) -> None:
    for topic, produced in topics:
        for part in produced:
            if part.error_code:
                raise ProtocolError(f"could not write to {topic}-{part.partition} with acks=0: {part.error_message}")


class _Waiting:
    """An answer that waits until each of its partitions has committed."""

    __slots__ = ("_answer", "_ctx", "_topics", "_unsettled", "count")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._topics: Topics = []
        self._unsettled: dict[int, tuple[list[ProducedPartition], int]] = {}
        self._answer: Deferred[Answer] | None = None
        self.count = 0

    def watch(self, partition: Partition, offset: int, produced: list[ProducedPartition]) -> None:
        token = self.count
        if not partition.when_committed(offset, partial(self._settled, token)):
            self._unsettled[token] = (produced, len(produced) - 1)
            self.count += 1

    def start(self, topics: Topics, timeout_ms: int) -> Deferred[Answer]:
        self._topics = topics
        self._answer = Deferred()
        if not self._unsettled:
            # The log failed under a later batch of the same request.
            self._finish()
            return self._answer
        services = self._ctx.services
        services.expiries.add(services.clock.monotonic_ms() + max(0, timeout_ms), self._expired)
        return self._answer

    def _settled(self, token: int, error: BaseException | None) -> None:
        place = self._unsettled.pop(token, None)
        if place is None:
            return
        if error is not None:
            produced, at = place
            produced[at] = _failed(produced[at].partition, error)
        if not self._unsettled:
            self._finish()

    def _expired(self) -> None:
        for produced, at in self._unsettled.values():
            produced[at] = ProducedPartition(
                produced[at].partition,
                ErrorCode.request_timed_out.value,
                error_message="the records were written but not committed in time",
            )
        self._unsettled.clear()
        self._finish()

    def _finish(self) -> None:
        ctx, answer = self._ctx, self._answer
        if answer is None:
            return
        ctx.services.expiries.remove(self._expired)
        head = response_header(ctx.header)
        answer.resolve(Raw((produce_response(ctx.header.api_version, head, self._topics),)))
