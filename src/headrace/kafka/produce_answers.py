"""The answers of Produce: those of requests that wait until their records are committed, and those with errors."""

from functools import partial
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, NoAnswer, Raw
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.leaders import LEADER_ERRORS, current_leader, endpoints_of
from headrace.model.errors import InvalidRecord, TopicShredded
from headrace.protocol.codec import response_header
from headrace.protocol.fast import ProducedPartition, TopicKey, produce_response
from headrace.replication.partition import Partition
from headrace.runtime.deferred import Deferred

KEY = 0
Produced = Raw | NoAnswer
Topics = list[tuple[TopicKey, list[ProducedPartition]]]


def produce_answer(ctx: Context, topics: Topics) -> bytes:
    """Encode the answer, with the endpoints of current leaders for the partitions that were refused."""
    leaders = [part.current_leader for _, produced in topics for part in produced if part.error_code]
    if leaders:
        count_errors(ctx, topics)
    endpoints = endpoints_of(ctx, leaders) if leaders else ()
    throttle_ms = 0 if ctx.metered is None else ctx.metered.throttle_ms
    header = ctx.header
    return produce_response(header.api_version, response_header(header), topics, throttle_ms, endpoints)


def count_errors(ctx: Context, topics: Topics) -> None:
    meter = ctx.services.meter
    if meter is not None:
        for _, produced in topics:
            for part in produced:
                if part.error_code:
                    meter.failed(KEY, part.error_code)


def failed_partition(ctx: Context, topic: TopicKey, index: int, error: BaseException) -> ProducedPartition:
    message = error_message(error)
    code = ErrorCode.invalid_record.value if isinstance(error, TopicShredded) else error_code(error).value
    return ProducedPartition(
        index,
        code,
        record_errors=error.record_errors if isinstance(error, InvalidRecord) else (),
        error_message=message,
        current_leader=current_leader(ctx, topic, index) if code in LEADER_ERRORS else None,
    )


def timed_out_partition(partition: Partition) -> ProducedPartition:
    code, why = ErrorCode.request_timed_out, "the records were written but not committed in time"
    if partition.in_sync_count < partition.settings.min_insync_replicas:
        code, why = ErrorCode.not_enough_replicas_after_append, f"{why}: too few replicas are in sync"
    return ProducedPartition(partition.index, code.value, error_message=why)


class _Watched(NamedTuple):
    partition: Partition
    topic: TopicKey
    produced: list[ProducedPartition]
    at: int
    """The index of this partition's answer in `produced`."""


class WaitingProduce:
    """An answer that waits until the records of all its partitions are committed."""

    __slots__ = ("_answer", "_ctx", "_topics", "_unsettled", "count")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._topics: Topics = []
        self._unsettled: dict[int, _Watched] = {}
        self._answer: Deferred[Produced] | None = None
        self.count = 0

    def watch(self, partition: Partition, offset: int, produced: list[ProducedPartition], topic: TopicKey) -> None:
        token = self.count
        if not partition.when_committed(offset, partial(self._settled, token)):
            self._unsettled[token] = _Watched(partition, topic, produced, len(produced) - 1)
            self.count += 1

    def start(self, topics: Topics, timeout_ms: int) -> Deferred[Produced]:
        self._topics = topics
        self._answer = Deferred()
        if not self._unsettled:
            # The log failed at a later batch of the same request.
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
            _, topic, produced, at = place
            produced[at] = failed_partition(self._ctx, topic, produced[at].partition, error)
        if not self._unsettled:
            self._finish()

    def _expired(self) -> None:
        for partition, _, produced, at in self._unsettled.values():
            produced[at] = timed_out_partition(partition)
        self._unsettled.clear()
        self._finish()

    def _finish(self) -> None:
        ctx, answer = self._ctx, self._answer
        if answer is None:
            return
        ctx.services.expiries.remove(self._expired)
        answer.resolve(Raw((produce_answer(ctx, self._topics),)))
