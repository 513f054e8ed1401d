"""Runs: consecutive Produce requests of a connection to one partition, which are handled as one.

A client that pipelines small requests sends many in one piece. Those that repeat each other (`produce_pattern.py`) are
appended with one write, wait together for one flush, and are answered together. A request that comes alone is a run of
one: its pattern saves decoding it.

A run has only requests for which nothing else is to be done, and that succeed. Every other one is left to the handler:
one that is to be refused, a duplicate, or one that begins a segment. If the write fails, nothing of it remains, and all
its requests are handled one by one, so that each gets the answer that it would have got without the others.

The answers of a run leave together, when the last of its records is committed. If that is ruled out, or takes too long,
each request is answered for itself.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from typing import NamedTuple

from headrace.config.topic import TopicSettings
from headrace.kafka.answer_queue import AnswerQueue
from headrace.kafka.answers import AnswerSlot
from headrace.kafka.client_meters import timed_later
from headrace.kafka.dispatch import Answer, Context, Peer, Raw, route
from headrace.kafka.produce_answers import KEY, failed_partition, produce_answer, timed_out_partition
from headrace.kafka.request_turn import TurnTimer
from headrace.kafka.services import Services
from headrace.model.errors import HeadraceError
from headrace.model.image import INTERNAL_TOPICS
from headrace.observe.request_mark import thread_mark
from headrace.protocol.codec import RequestHeader
from headrace.protocol.fast import ProducedPartition
from headrace.protocol.frames import Frame, framed
from headrace.protocol.produce_pattern import ProducePattern, pattern_of
from headrace.records.batch import check_batch
from headrace.records.validation import validate_for_topic
from headrace.replication.partition import Partition
from headrace.runtime.deferred import Deferred
from headrace.security.audit.event import AuditClass
from headrace.storage.appender import ProducedBatch

PRODUCE_HEAD = b"\x00\x00"
"""The first two bytes of a Produce request."""
_ACKS_ALL = -1
_PATTERNS_MAX = 64
AwaitAnswer = Callable[[AnswerSlot, Context, Deferred[Answer]], None]


class _AppendedRun(NamedTuple):
    context: Context
    """That of the first request."""
    pattern: ProducePattern
    partition: Partition
    answers: list[bytes]
    """The answer to each request, as a frame: if its records are committed."""
    ends: list[int]
    """The offset after the records of each request."""


class ProduceRuns:
    """The runs of one connection."""

    __slots__ = ("_answers", "_common_end", "_mark", "_patterns", "_timer")

    def __init__(self, answers: AnswerQueue, timer: TurnTimer | None) -> None:
        self._answers = answers
        self._timer = timer
        self._mark = thread_mark()
        self._patterns: dict[bytes, ProducePattern] = {}
        self._common_end = 0
        """Where the records began in the last request that had a pattern."""

    def handle(
        self,
        frames: deque[Frame],
        most: int,
        peer: Peer,
        services: Services,
        now_ms: float,
        await_answer: AwaitAnswer,
    ) -> bool:
        """Handle a run of at most so many requests; False if the first one has to be handled by itself.

        `await_answer` is called if the answers have to wait.
        """
        first = frames[0]
        pattern = self._pattern(first) if isinstance(first, bytes) else None
        if pattern is None or (partition := _partition(pattern, peer, services)) is None:
            return False
        correlation_id = int.from_bytes(first[4:8], "big", signed=True)
        header = RequestHeader(KEY, pattern.api_version, correlation_id, pattern.client_id, pattern.records_at)
        self._mark.request = context = Context(header, peer, services)
        timer, meter, room_bytes = self._timer, peer.meter, inf
        if timer is not None and timer.key != KEY:
            timer.switch(KEY, peer.is_follower)
        if services.quotas.is_active:
            room_bytes = 0.0 if meter is None else meter.quick_bytes(pattern.client_id, now_ms)
        used: list[bytes] = []
        base_offset = partition.log.end_offset
        try:
            run = partition.append_run(
                _batches(pattern, partition.settings, islice(frames, most), room_bytes, services.clock.wall_ms(), used)
            )
        except HeadraceError:
            return False
        if not run:
            return False
        for _ in run:
            frames.popleft()
        if room_bytes != inf and meter is not None:
            meter.count_quick(sum(map(len, islice(used, len(run)))), now_ms)
        peer.requests += len(run)
        peer.client_id = pattern.client_id
        if timer is not None:
            timer.count += len(run)
        start_offset, answers, ends = partition.log.start_offset, [], []
        for frame, batch in zip(used, run, strict=False):
            answers.append(pattern.answer(frame, base_offset, start_offset))
            base_offset += batch.header.last_offset_delta + 1
            ends.append(base_offset)
        self._answer(_AppendedRun(context, pattern, partition, answers, ends), await_answer)
        return True

    def _answer(self, run: "_AppendedRun", await_answer: AwaitAnswer) -> None:
        """Answer the requests of a run: at once, or when their records are committed."""
        context, timer, count = run.context, self._timer, len(run.answers)
        slot = AnswerSlot(count, is_framed=True)
        self._answers.add(slot)
        if run.pattern.acks == _ACKS_ALL or (run.partition.has_others_in_sync and not context.services.is_certain()):
            waiting = _WaitingRun(run)
            if not run.partition.when_committed(run.ends[-1], waiting.settled):
                if timer is not None:
                    slot.turn = timer.later(count)
                await_answer(slot, _timed(context), waiting.start())
                return
        if not self._answers.fill(slot, run.answers) and timer is not None:
            slot.turn = timer.later(count)

    def _pattern(self, frame: bytes) -> ProducePattern | None:
        pattern = self._patterns.get(frame[8 : self._common_end])
        if pattern is None or not frame.startswith(pattern.head):
            pattern = pattern_of(frame)
            if pattern is None or route(KEY, pattern.api_version) is None:
                return None
            if len(self._patterns) >= _PATTERNS_MAX:
                self._patterns.clear()
            self._patterns[pattern.common] = pattern
            self._common_end = pattern.records_at
        return pattern


def _timed(context: Context) -> Context:
    """The context of an answer that is given later: the time that takes counts."""
    if context.services.quotas.is_timing:
        context = timed_later(context)
        if context.metered is not None:
            context.metered.retire()
    return context


def _partition(pattern: ProducePattern, peer: Peer, services: Services) -> Partition | None:
    """The partition of the requests, unless the handler has to do more with them than to append their batches."""
    security, topic = services.security, pattern.topic
    authorizer, grants = security.authorizer, peer.grants
    if authorizer is not None and (
        grants.given_by is not authorizer or grants.given_to is not peer.subject or topic not in grants.writable
    ):
        return None
    if services.quotas.disk.is_refusing or AuditClass.PRODUCE in security.audit.rules.classes:
        return None
    table, index = services.partitions, pattern.partition
    try:
        partition = table.get(topic, index) if isinstance(topic, str) else table.by_id(topic, index)
    except HeadraceError:
        return None
    settings = partition.settings
    if (
        not partition.is_writable
        or partition.topic in INTERNAL_TOPICS
        or partition.backlog is not None
        or partition.stored is not None
        or settings.compression_type != "producer"
        or settings.message_timestamp_type != "CreateTime"
        or settings.checks_schemas
        or (pattern.acks == _ACKS_ALL and partition.in_sync_count < settings.min_insync_replicas)
    ):
        return None
    return partition


def _batches(
    pattern: ProducePattern,
    settings: TopicSettings,
    frames: Iterable[Frame],
    room_bytes: float,
    now_ms: int,
    used: list[bytes],
) -> Iterator[ProducedBatch]:
    """The batches of requests, up to one that does not repeat the others or is invalid; `used` gets the requests."""
    version = pattern.api_version
    for frame in frames:
        if not isinstance(frame, bytes) or (room_bytes := room_bytes - len(frame)) < 0:
            return
        records = pattern.records(frame)
        if records is None:
            return
        try:
            header = check_batch(records)
            if validate_for_topic(records, header, settings, now_ms, request_version=version) is not records:
                return
        except HeadraceError:
            return
        used.append(frame)
        yield ProducedBatch(records, header)


class _WaitingRun:
    """The answers of a run that wait until its records are committed."""

    __slots__ = ("_answer", "_run")

    def __init__(self, run: _AppendedRun) -> None:
        self._run = run
        self._answer: Deferred[Answer] = Deferred()

    def start(self) -> Deferred[Answer]:
        if not self._answer.done:
            services = self._run.context.services
            until_ms = services.clock.monotonic_ms() + max(0, self._run.pattern.timeout_ms)
            services.expiries.add(until_ms, self._expired)
        return self._answer

    def settled(self, error: BaseException | None) -> None:
        """The last record is committed, or that is ruled out."""
        if self._answer.done:
            return
        context, pattern = self._run.context, self._run.pattern
        context.services.expiries.remove(self._expired)
        if error is None:
            self._answer.resolve(Raw(self._run.answers))
        else:
            self._refuse(failed_partition(context, pattern.topic, pattern.partition, error))

    def _expired(self) -> None:
        self._refuse(timed_out_partition(self._run.partition))

    def _refuse(self, refused: ProducedPartition) -> None:
        """Answer with an error the requests whose records are not committed."""
        run = self._run
        committed = run.partition.high_watermark
        answers = [
            answer if end <= committed else self._refusal(answer, refused)
            for answer, end in zip(run.answers, run.ends, strict=True)
        ]
        self._answer.resolve(Raw(answers))

    def _refusal(self, answer: bytes, refused: ProducedPartition) -> bytes:
        context, correlation_id = self._run.context, int.from_bytes(answer[4:8], "big", signed=True)
        context = context._replace(header=context.header._replace(correlation_id=correlation_id))
        return framed(produce_answer(context, [(self._run.pattern.topic, [refused])]))
