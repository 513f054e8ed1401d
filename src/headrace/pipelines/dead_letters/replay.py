"""Lists and replays dead letters, for `headrace pipeline dlq`. Needs neither Spark nor Arrow.

A dead letter is replayed exactly once: the record is written to its topic in the same transaction as a note in the
compacted topic `__pipeline_replays`. Of two concurrent replays of a dead-letter topic, the later one fences the earlier
and has read all of its notes.

    key     the dead-letter topic's id, the partition, and the first offset of the note
    value   JSON: the replayed offsets, as ranges [first, last]
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from headrace.client.message import ORIGINAL_OFFSET, ORIGINAL_TIMESTAMP, Message
from headrace.client.retry import OWN_HEADERS
from headrace.model.failure_headers import REASON
from headrace.model.ids import ProducerIdAndEpoch
from headrace.pipelines.errors import NotReady, PipelineFailed
from headrace.pipelines.source.messages import read_messages
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.wire import EARLIEST, READ_COMMITTED, Cluster, Partition, WireError

REPLAYS_TOPIC = "__pipeline_replays"
_CHUNK_LETTERS = 500
_CHUNK_BYTES = 512 * 1024
_TRANSACTION_MS = 60_000


@dataclass(slots=True)
class ReasonSummary:
    """The dead letters with one reason, counted."""

    reason: str
    count: int = 0
    replayed: int = 0
    first_ms: int = 0
    last_ms: int = 0
    samples: list[Message] = field(default_factory=list)


def read_letters(cluster: Cluster, topic: str) -> Iterator[Message]:
    """All dead letters that are in a topic now, partition by partition."""
    for partition, (start, end) in _bounds(cluster, topic).items():
        yield from read_messages(cluster, topic, partition, start, end)


def count_letters(cluster: Cluster, topic: str) -> int:
    """The number of offsets of a dead-letter topic: a cheap upper bound of its dead letters."""
    return sum(end - start for start, end in _bounds(cluster, topic).values())


def by_reason(letters: Iterable[Message], replayed: dict[int, set[int]], samples: int = 1) -> list[ReasonSummary]:
    """The dead letters counted by reason, the most frequent first."""
    found: dict[str, ReasonSummary] = {}
    for letter in letters:
        text = letter.header(REASON) or "no reason is given"
        entry = found.setdefault(text, ReasonSummary(text, first_ms=letter.timestamp_ms or 0))
        entry.count += 1
        entry.replayed += letter.offset in replayed.get(letter.partition, ())
        entry.first_ms = min(entry.first_ms, letter.timestamp_ms or 0)
        entry.last_ms = max(entry.last_ms, letter.timestamp_ms or 0)
        if len(entry.samples) < samples:
            entry.samples.append(letter)
    return sorted(found.values(), key=lambda each: (-each.count, each.reason))


def read_replayed(cluster: Cluster, topic: str) -> dict[int, set[int]]:
    """By partition, the offsets of the dead letters that were replayed already."""
    done: dict[int, set[int]] = {}
    prefix = _note_prefix(cluster, topic)
    if not cluster.metadata([REPLAYS_TOPIC]):
        return done
    for note in read_letters(cluster, REPLAYS_TOPIC):
        key = (note.key or b"").decode(errors="replace")
        if key.startswith(prefix) and note.payload is not None:
            partition = int(key.removeprefix(prefix).split("/")[0])
            ranges = json.loads(note.payload)
            if not isinstance(ranges, list):
                raise PipelineFailed(f"a note of {REPLAYS_TOPIC} was written by a newer Headrace: use that one")
            for first, last in ranges:
                done.setdefault(partition, set()).update(range(first, last + 1))
    return done


@dataclass(slots=True)
class ReplayedDeadLetters:
    """Totals of a replay."""

    sent: int = 0
    skipped: int = 0
    """Did not match the filter."""
    done_before: int = 0
    without_origin: int = 0
    by_topic: dict[str, int] = field(default_factory=dict)


def replay(
    cluster: Cluster,
    topic: str,
    *,
    wanted: Callable[[Message], bool] = lambda letter: True,
    dry_run: bool = False,
    on_progress: Callable[[int], None] = lambda seen: None,
) -> ReplayedDeadLetters:
    """Write dead letters back to their original partitions, with the original key, value, headers and timestamp."""
    sender = None if dry_run else _Sender(cluster, topic)
    result = ReplayedDeadLetters()
    done = read_replayed(cluster, topic)
    waiting: list[Message] = []
    seen = waiting_bytes = 0
    for letter in read_letters(cluster, topic):
        seen += 1
        if letter.offset in done.get(letter.partition, ()):
            result.done_before += 1
        elif letter.header(ORIGINAL_OFFSET) is None:
            result.without_origin += 1
        elif not wanted(letter):
            result.skipped += 1
        else:
            waiting.append(letter)
            waiting_bytes += len(letter.payload or b"") + len(letter.key or b"") + 200
        if len(waiting) >= _CHUNK_LETTERS or waiting_bytes >= _CHUNK_BYTES:
            _flush(sender, waiting, result)
            waiting, waiting_bytes = [], 0
            on_progress(seen)
    _flush(sender, waiting, result)
    on_progress(seen)
    return result


def _flush(sender: "_Sender | None", letters: list[Message], result: ReplayedDeadLetters) -> None:
    if sender is not None and letters:
        sender.send(letters)
    result.sent += len(letters)
    for letter in letters:
        result.by_topic[letter.origin[0]] = result.by_topic.get(letter.origin[0], 0) + 1


class _Sender:
    """Replays dead letters, one transaction per chunk."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._id = f"headrace-replay/{topic}"
        self._prefix = _note_prefix(cluster, topic)
        if not cluster.metadata([REPLAYS_TOPIC]):
            cluster.create_topic(REPLAYS_TOPIC, partitions=1, settings={"cleanup.policy": "compact"})
        # Before reading notes: this aborts an open transaction of an earlier replay, so its notes are final.
        self._producer: ProducerIdAndEpoch = cluster.init_producer_id(self._id, timeout_ms=_TRANSACTION_MS)
        self._sequences: dict[Partition, int] = {}

    def send(self, letters: list[Message]) -> None:
        records: dict[Partition, list[Record]] = {}
        for letter in letters:
            topic, partition, _ = letter.origin
            records.setdefault((topic, partition), []).append(_original(letter))
        self._check(records)
        records[REPLAYS_TOPIC, 0] = [*self._notes(letters)]
        try:
            self._cluster.produce({where: self._batch(where, each) for where, each in records.items()},
                                  transactional_id=self._id)  # fmt: skip
            ended = self._cluster.end_txn(self._id, self._producer, committed=True)
        except WireError as error:
            raise PipelineFailed(f"the replay stopped, and can be continued by running it again: {error}") from error
        if ended != self._producer:
            self._sequences = {}
        self._producer = ended

    def _check(self, records: Iterable[Partition]) -> None:
        """Raise `NotReady` for a deleted topic, before producing to it would auto-create it."""
        topics = self._cluster.metadata({topic for topic, _ in records})
        for topic, partition in records:
            if topic not in topics or partition >= len(topics[topic].partitions):
                raise NotReady(f"dead letters came from {topic}/{partition}, which no longer exists: create it again")

    def _notes(self, letters: list[Message]) -> Iterator[Record]:
        by_partition: dict[int, list[int]] = {}
        for letter in letters:
            by_partition.setdefault(letter.partition, []).append(letter.offset)
        for partition, offsets in by_partition.items():
            key = f"{self._prefix}{partition}/{offsets[0]}".encode()
            yield Record(0, _now_ms(), key, json.dumps(ranges_of(offsets)).encode())

    def _batch(self, where: Partition, records: list[Record]) -> bytes:
        sequence = self._sequences.get(where, 0)
        self._sequences[where] = sequence + len(records)
        return build_batch(
            records,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )


def ranges_of(offsets: Iterable[int]) -> list[list[int]]:
    """`[1, 2, 3, 7]` as `[[1, 3], [7, 7]]`."""
    found: list[list[int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset - 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return found


def _original(letter: Message) -> Record:
    """The original record of a dead letter."""
    time_text = letter.header(ORIGINAL_TIMESTAMP) or ""
    timestamp = int(time_text) if time_text.isdecimal() else _now_ms()
    headers = tuple(each for each in letter.headers if each[0] not in OWN_HEADERS)
    return Record(0, timestamp, letter.key, letter.payload, headers)


def _note_prefix(cluster: Cluster, topic: str) -> str:
    """The key prefix of a topic's notes: its id, so that notes do not apply to a recreated topic."""
    found = cluster.metadata([topic]).get(topic)
    if found is None:
        raise NotReady(f"there is no topic {topic} at {cluster.bootstrap}: nothing was dead-lettered yet")
    return f"{found.topic_id or topic}/"


def _bounds(cluster: Cluster, topic: str) -> dict[int, tuple[int, int]]:
    found = cluster.metadata([topic]).get(topic)
    if found is None:
        raise NotReady(f"there is no topic {topic} at {cluster.bootstrap}: nothing was dead-lettered yet")
    partitions = [(topic, index) for index in range(len(found.partitions))]
    starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.list_offsets(partitions, isolation=READ_COMMITTED)
    return {where[1]: (starts[where].offset, ends[where].offset) for where in partitions}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
