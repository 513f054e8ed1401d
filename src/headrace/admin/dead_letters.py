"""The dead letters of a pipeline, by reason, with samples.

The newest letters of each dead-letter topic are read, up to `limit` in all and within the bounds of a scan
(`message_scan.py`), as the person: topics that the person may not READ are named and left out.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.message_filter import message_filter
from headrace.admin.message_scan import Found, Scan, ScanBounds
from headrace.admin.messages import MessageEntry, entries, partition_bounds
from headrace.admin.pipelines import DESCRIBE_PIPELINE
from headrace.admin.routes import AdminReply, AdminRequest, route
from headrace.model.acls import AclOperation, ResourceType
from headrace.model.failure_headers import REASON
from headrace.model.ids import TopicName
from headrace.records.reader import Record

REPLAYS_TOPIC = TopicName("__pipeline_replays")
"""The notes of which letters were replayed: `pipelines/dead_letters/replay.py` writes them."""
MAX_LETTERS = 5_000
_MAX_SAMPLES = 20
_MAX_REASONS = 100
_SAMPLE_BYTES = 4 * 1024
_NOTE = re.compile(r"(.+)/(\d{1,9})/\d{1,18}")


class LetterQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_LETTERS, description="How many of the newest letters are read.")] = 1_000
    samples: Annotated[int, Meta(ge=0, le=_MAX_SAMPLES, description="How many letters of each reason are shown.")] = 3


class LetterTopicEntry(msgspec.Struct, frozen=True):
    topic: str
    letters: int
    """The number of its offsets: an upper bound."""
    is_readable: bool
    """False if the person lacks READ, or if the topic does not exist yet."""


class LetterReason(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    letters: int
    replayed: int
    """How many of them were sent back already."""
    first_ms: int
    last_ms: int
    topics: list[str]
    samples: list[MessageEntry]


class DeadLetterPage(msgspec.Struct, frozen=True, kw_only=True):
    topics: list[LetterTopicEntry]
    reasons: list[LetterReason]
    """The most frequent first; at most 100."""
    scanned: int
    waiting: int
    """How many of the letters that were read were not sent back."""
    is_complete: bool
    """Whether all letters were read."""


class _ReasonCount:
    def __init__(self) -> None:
        self.letters = self.replayed = 0
        self.first_ms, self.last_ms = 2**62, 0
        self.topics: dict[str, None] = {}
        self.samples: list[Found] = []


@route("GET", "/pipelines/{pipeline}/dead-letters", needs=DESCRIBE_PIPELINE, query=LetterQuery, answer=DeadLetterPage)
async def list_dead_letters(request: AdminRequest) -> AdminReply:
    """The dead letters of a pipeline by reason, with samples; needs READ on their topics."""
    query = request.query(LetterQuery)
    found = await request.services.pipelines.describe(request.parameters["pipeline"])
    topics: list[LetterTopicEntry] = []
    reasons: dict[str, _ReasonCount] = {}
    scanned, is_complete = 0, True
    async with request.services.scanning:
        replayed = await _replayed(request)
        for topic in found.dead_letter_topics:
            if not _is_readable(request, topic):
                topics.append(LetterTopicEntry(topic, 0, False))
                continue
            bounds = await partition_bounds(request, topic, None)
            total = sum(each.end - each.start for each in bounds.values())
            topics.append(LetterTopicEntry(topic, total, True))
            letters = await _newest(request, topic, bounds, query.limit - scanned)
            scanned += len(letters)
            is_complete = is_complete and len(letters) >= total
            _count(reasons, topic, letters, replayed.get(_topic_id(request, topic), {}), query.samples)
    ordered = sorted(reasons.items(), key=lambda each: (-each[1].letters, each[0]))
    shown = [await _shown(request, reason, each) for reason, each in ordered[:_MAX_REASONS]]
    waiting = scanned - sum(each.replayed for each in reasons.values())
    return AdminReply(
        DeadLetterPage(topics=topics, reasons=shown, scanned=scanned, waiting=waiting, is_complete=is_complete)
    )


def _is_readable(request: AdminRequest, topic: str) -> bool:
    exists = TopicName(topic) in request.services.metadata.image.topics
    return exists and request.allows(AclOperation.READ, ResourceType.TOPIC, topic)


def _topic_id(request: AdminRequest, topic: str) -> str:
    return str(request.services.metadata.image.topics[TopicName(topic)].topic_id)


async def _newest(request: AdminRequest, topic: str, bounds: dict[int, ScanBounds], limit: int) -> list[Found]:
    if limit <= 0:
        return []
    ends = {index: each.end for index, each in bounds.items()}
    return await Scan(request, topic, bounds, ends, message_filter().matches, False).backward(limit)


def _count(
    reasons: dict[str, _ReasonCount],
    topic: str,
    letters: Iterable[Found],
    replayed: dict[int, set[range]],
    samples: int,
) -> None:
    for partition, record in sorted(letters, key=lambda each: -each[1].timestamp):
        count = reasons.setdefault(_reason(record), _ReasonCount())
        count.letters += 1
        count.replayed += any(record.offset in each for each in replayed.get(partition, ()))
        count.first_ms, count.last_ms = min(count.first_ms, record.timestamp), max(count.last_ms, record.timestamp)
        count.topics[topic] = None
        if len(count.samples) < samples:
            count.samples.append((partition, record))


def _reason(record: Record) -> str:
    found = next((value for name, value in record.headers if name == REASON), None)
    return found.decode(errors="replace") if found else "no reason is given"


async def _shown(request: AdminRequest, reason: str, count: _ReasonCount) -> LetterReason:
    return LetterReason(
        reason=reason,
        letters=count.letters,
        replayed=count.replayed,
        first_ms=count.first_ms,
        last_ms=count.last_ms,
        topics=[*count.topics],
        samples=await entries(request, next(iter(count.topics), ""), count.samples, _SAMPLE_BYTES),
    )


async def _replayed(request: AdminRequest) -> dict[str, dict[int, set[range]]]:
    """Offsets that were replayed, by the id of the dead-letter topic and partition; only what the person may READ."""
    found: dict[str, dict[int, set[range]]] = {}
    if not _is_readable(request, REPLAYS_TOPIC):
        return found
    bounds = await partition_bounds(request, REPLAYS_TOPIC, None)
    starts = {index: each.start for index, each in bounds.items()}
    scan = Scan(request, REPLAYS_TOPIC, bounds, starts, message_filter().matches, False)
    for _, record in await scan.forward(MAX_LETTERS):
        for topic_id, partition, offsets in _notes(record):
            found.setdefault(topic_id, {}).setdefault(partition, set()).add(offsets)
    return found


def _notes(record: Record) -> Iterator[tuple[str, int, range]]:
    """The ranges of a note; none if it is of a version that is not known."""
    key = _NOTE.fullmatch((record.key or b"").decode(errors="replace"))
    try:
        ranges = msgspec.json.decode(record.value or b"[]", type=list[tuple[int, int]])
    except msgspec.MsgspecError:
        return
    if key is not None:
        for first, last in ranges:
            yield key[1], int(key[2]), range(first, last + 1)
