"""Repeated fetches of consumers, answered at once from the page cache.

A consumer sends the same Fetch over and over, with other offsets (`fetch_pattern.py`). If everything that the answer
needs is at hand, it is made here, without decoding the request and without the steps of `fetch.py`. It is the same
answer, and counts the same. Every other request is left to the handler, and nothing has changed then: one that is to
wait for data, that a quota limits, whose permissions were not checked before, of a partition that another broker leads,
whose records are encrypted, are to be checked or have to be read from the disk, or that gets an error.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple, cast

from kio.schema.errors import ErrorCode

from headrace.kafka.answer_queue import AnswerQueue
from headrace.kafka.dispatch import Context, Peer
from headrace.kafka.fetch import READ_COMMITTED, answer_with
from headrace.kafka.fetch_reads import records_in_page_cache
from headrace.kafka.fetch_sessions import PartitionFetch, PartitionKey
from headrace.kafka.outbox import Part
from headrace.kafka.request_meter import FETCH
from headrace.kafka.request_turn import TurnTimer
from headrace.kafka.services import Services
from headrace.model.errors import HeadraceError
from headrace.observe.request_mark import thread_mark
from headrace.protocol.codec import RequestHeader
from headrace.protocol.fast import FETCH_TOPIC_IDS_FROM, FetchedPartition, TopicKey
from headrace.protocol.fetch_pattern import NO_EPOCH, FetchPattern, PatternPartition, fetch_pattern_of
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.security.audit.event import AuditClass
from headrace.storage.slice import Slice

FETCH_HEAD = b"\x00\x01"
"""The first two bytes of a Fetch request."""
_PATTERNS_MAX = 8
_LENGTH = Struct(">i")


class _Found(NamedTuple):
    """What is answered for a partition."""

    numbers: tuple[int, int, int]
    """High watermark, last stable offset and log start offset."""
    slice: Slice | None
    records: Part | None


class _Known:
    """A pattern, and the partitions that it names as of a state of the partition table."""

    __slots__ = ("_changes", "_partitions", "pattern")

    def __init__(self, pattern: FetchPattern) -> None:
        self.pattern = pattern
        self._partitions: list[Partition] = []
        self._changes = -1

    def partitions(self, table: PartitionTable) -> list[Partition]:
        """The partitions on this broker. Raises the reason if one is not."""
        if table.changes != self._changes:
            self._partitions = []
            self._partitions = [_located(table, each) for each in self.pattern.partitions]
            self._changes = table.changes
        return self._partitions


class QuickFetches:
    """The repeated fetches of one connection."""

    __slots__ = ("_answers", "_known", "_last_size", "_mark", "_timer")

    def __init__(self, answers: AnswerQueue, timer: TurnTimer | None) -> None:
        self._answers = answers
        self._timer = timer
        self._mark = thread_mark()
        self._known: list[_Known] = []
        self._last_size = 0
        """The size of the last request that repeated no other: those of many sizes are not worth a pattern."""

    def handle(self, frame: bytes, peer: Peer, services: Services) -> bool:
        """Answer a request; False if the handler has to."""
        # What a client reads in order from the disk is read ahead, of which the handler takes care.
        if self._answers.slots or peer.is_follower or peer.ordered_reads:
            return False
        variables = None
        for known in self._known:
            pattern = known.pattern
            if pattern.size == len(frame) and (variables := pattern.variables(frame)) is not None:
                break
        else:
            self._learn(frame)
            return False
        if variables is None or not _is_free(pattern, peer, services):
            return False
        correlation_id, epoch, offsets = variables
        header = RequestHeader(
            FETCH, pattern.api_version, int.from_bytes(correlation_id, "big", signed=True), pattern.client_id, 0
        )
        self._mark.request = context = Context(header, peer, services)
        try:
            if pattern.limits.session_id:
                return self._continue_session(context, pattern, epoch, offsets)
            if epoch != NO_EPOCH:
                return False  # It begins a session.
            partitions = known.partitions(services.partitions)
            found = _look(context, pattern, partitions, offsets, pattern.partitions)
        except HeadraceError:
            return False
        if found is None:
            return False
        self._note(context, partitions, offsets, found)
        sizes = [0 if each.records is None else len(each.records) for each in found]
        heads = pattern.heads(correlation_id, [each.numbers for each in found], sizes)
        parts: list[Part] = []
        run = b""
        for head, each in zip(heads, found, strict=False):
            run += head
            if each.records is not None:
                parts += (run, each.records)
                run = b""
        parts.append(run + heads[-1])
        self._send(parts, sum(sizes) + sum(map(len, heads)))
        return True

    def _learn(self, frame: bytes) -> None:
        """Remember the pattern of a request that seems to repeat the one before."""
        size, self._last_size = self._last_size, len(frame)
        if size == len(frame) and (pattern := fetch_pattern_of(frame)) is not None:
            self._known = [_Known(pattern), *self._known[: _PATTERNS_MAX - 1]]

    def _continue_session(self, context: Context, pattern: FetchPattern, epoch: int, offsets: Sequence[int]) -> bool:
        services = context.services
        sessions, limits = services.fetch_sessions, pattern.limits
        session = sessions.find(limits.session_id, epoch, by_id=pattern.api_version >= FETCH_TOPIC_IDS_FROM)
        if session is None or session.waiting is not None or session.changes is not None:
            return False
        changed = {
            PartitionKey(each.topic, each.partition): PartitionFetch(
                offset, each.max_bytes, each.leader_epoch, -1, each.log_start_offset
            )
            for offset, each in zip(offsets, pattern.partitions, strict=True)
        }
        everything = [(key, changed.pop(key, fetch)) for key, fetch in session.wanted.items()]
        if changed or not everything:
            return False
        wanted: list[PatternPartition] = []
        for (topic, index), fetch in everything:
            if topic is None or fetch.last_fetched_epoch >= 0:
                return False
            wanted.append(PatternPartition(topic, index, fetch.max_bytes, fetch.current_leader_epoch, -1))
        if not _may_read(context.peer, services, {each.topic for each in wanted}):
            return False
        partitions = [_located(services.partitions, each) for each in wanted]
        offsets = [fetch.offset for _, fetch in everything]
        found = _look(context, pattern, partitions, offsets, wanted)
        if found is None:
            return False
        sessions.go_on(session, services.clock.monotonic_ms())
        session.change(everything, ())
        self._note(context, partitions, offsets, found)
        aborted = () if limits.isolation == READ_COMMITTED else None
        news = session.take_news(
            [
                (
                    key,
                    FetchedPartition(
                        key.partition, 0, *each.numbers, aborted, () if each.records is None else (each.records,)
                    ),
                )
                for (key, _), each in zip(everything, found, strict=True)
            ]
        )
        parts = [*answer_with(context, news, error=ErrorCode.none, session_id=session.session_id).buffers]
        self._send(parts, sum(map(len, parts)))
        return True

    def _send(self, parts: list[Part], size: int) -> None:
        """Pass on an answer without its length."""
        parts[0] = _LENGTH.pack(size) + cast(bytes, parts[0])
        self._answers.pass_on(parts, size)

    def _note(
        self, context: Context, partitions: Sequence[Partition], offsets: Sequence[int], found: Sequence[_Found]
    ) -> None:
        """Count the request, and what its client gets."""
        peer, timer = context.peer, self._timer
        peer.requests += 1
        peer.client_id = context.header.client_id
        if timer is not None:
            if timer.key != FETCH:
                timer.switch(FETCH, peer.is_follower)
            timer.count += 1
        for partition, offset, each in zip(partitions, offsets, found, strict=True):
            cut, traffic = each.slice, partition.traffic
            if cut is not None and traffic is not None:
                traffic.bytes_out += cut.length
                traffic.messages_out += cut.end_offset - offset


def _is_free(pattern: FetchPattern, peer: Peer, services: Services) -> bool:
    """Whether nothing is to be decided, counted or recorded for these requests but what is counted here."""
    quotas = services.quotas
    if quotas.is_active:
        meter = peer.meter
        if meter is None or meter.generation.is_over or meter.client_id != pattern.client_id or meter.is_counted:
            return False
    return AuditClass.CONSUME not in services.security.audit.rules.classes and _may_read(peer, services, pattern.topics)


def _may_read(peer: Peer, services: Services, topics: Iterable[TopicKey]) -> bool:
    """Whether the client was found to be allowed to read these topics, and that still holds."""
    authorizer, grants = services.security.authorizer, peer.grants
    return authorizer is None or (
        grants.given_by is authorizer
        and grants.given_to is peer.subject
        and all(topic in grants.readable for topic in topics)
    )


def _located(table: PartitionTable, wanted: PatternPartition) -> Partition:
    topic, index = wanted.topic, wanted.partition
    return table.get(topic, index) if isinstance(topic, str) else table.by_id(topic, index)


def _look(
    context: Context,
    pattern: FetchPattern,
    partitions: Sequence[Partition],
    offsets: Sequence[int],
    wanted: Sequence[PatternPartition],
) -> list[_Found] | None:
    """Locate and read what the answer has; None if it is not at hand or not enough, and the handler has to."""
    settings, limits = context.services.settings, pattern.limits
    is_elsewhere = bool(pattern.rack) and pattern.rack != settings.broker_rack
    is_committed = limits.isolation == READ_COMMITTED
    left_bytes = most_bytes = min(limits.max_bytes, settings.fetch_max_bytes)
    delivered, total_bytes, is_enough = context.peer.delivered, 0, limits.max_wait_ms <= 0
    is_first = True
    found: list[_Found] = []
    for partition, offset, each in zip(partitions, offsets, wanted, strict=True):
        replica, log = partition.replica, partition.log
        if (
            not replica.is_leader
            or each.leader_epoch not in (-1, replica.leader_epoch)
            or (is_elsewhere and partition.leading is not None)
            or log.cipher is not None
            or (is_committed and log.aborted)
            or partition in delivered
        ):
            return None
        high_watermark, stable = log.high_watermark, replica.last_stable_offset
        numbers = (high_watermark, stable, log.start_offset)
        below = stable if is_committed else high_watermark
        if offset >= below or (left_bytes <= 0 and not is_first):
            if not log.start_offset <= offset <= log.end_offset:
                return None
            found.append(_Found(numbers, None, None))
            continue
        cut = log.slice(offset, min(each.max_bytes, left_bytes), below, at_least_one=is_first)
        records = None
        if cut is not None:
            if cut.end_offset < 0 or (cut.is_closed and partition.is_replicated):
                return None
            records = records_in_page_cache(cut)
            if records is None:
                return None
            left_bytes = max(0, left_bytes - cut.takes_bytes)
            total_bytes += cut.takes_bytes
            is_enough = is_enough or cut.is_closed
            is_first = False
        found.append(_Found(numbers, cut, records))
    return found if is_enough or total_bytes >= min(limits.min_bytes, most_bytes) else None
