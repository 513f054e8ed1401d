"""Offset arithmetic of the source: ranges, splits, limits and losses. Pure.

Offsets of many partitions are a mapping of (topic, partition). As JSON they look as in Spark's Kafka source:
`{"orders": {"0": 23, "1": 42}}`, where -1 stands for the latest and -2 for the earliest offset.
"""

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from headrace.model.errors import HeadraceError

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]

LATEST, EARLIEST = -1, -2
BEGAN = "began at"
"""The key, beside the topics, that stores the start of a stream's first micro-batch in its end offsets. It contains a
space, so it is no topic's name."""
MAX_OFFSET = 2**63 - 1


class OffsetsError(HeadraceError):
    """Offsets or partitions that cannot be parsed."""


class OffsetRange(NamedTuple):
    """Offsets of one partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from offset {self.start} to {self.end}"


class OffsetLoss(NamedTuple):
    """Offsets that were due to be read and no longer exist."""

    topic: str
    partition: int
    start: int
    end: int
    is_another_log: bool = False
    """The log ends at `start` although it was already read up to `end`: the topic was recreated."""

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        if self.is_another_log:
            return f"{where} ends at offset {self.start} although it was read up to {self.end}: the topic was recreated"
        return f"offsets {self.start} to {self.end - 1} of {where} no longer exist"


# -- JSON


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets as JSON, in a fixed order: Spark compares offsets by their text."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(data: Mapping[str, Any]) -> dict[Partition, int]:
    """The offsets of a stream, without the start of its first micro-batch: see `began`."""
    return {
        (topic, int(partition)): offset
        for topic, parts in data.items()
        if topic != BEGAN
        for partition, offset in parts.items()
    }


def began(end: Mapping[str, Any]) -> dict[Partition, int] | None:
    """The start of a stream's first micro-batch, if `end` is the end of that one."""
    return from_json(end[BEGAN]) if BEGAN in end else None


def parse_offsets(text: str, *, lowest: int = EARLIEST) -> dict[Partition, int]:
    """Parse offsets, or times, that a user wrote as JSON. `lowest` is the smallest valid number."""
    example = '{"topic": {"0": 23, "1": -2}}'
    found: dict[Partition, int] = {}
    for topic, parts in _object(text, example).items():
        if not isinstance(parts, dict):
            raise OffsetsError(f"the topic {topic!r} has no partitions: write {example}")
        for partition, offset in parts.items():
            if not partition.isascii() or not partition.isdigit():
                raise OffsetsError(f"{partition!r} of topic {topic!r} is not a partition: write {example}")
            if type(offset) is not int or not lowest <= offset <= MAX_OFFSET:
                raise OffsetsError(f"{offset!r} for {topic}-{partition} is not a number from {lowest} on")
            found[topic, int(partition)] = offset
    return found


def parse_partitions(text: str) -> frozenset[Partition]:
    """Parse partitions that a user wrote as JSON: `{"orders": [0, 1]}`."""
    example = '{"topic": [0, 1]}'
    found: set[Partition] = set()
    for topic, parts in _object(text, example).items():
        if not isinstance(parts, list) or not all(type(part) is int and part >= 0 for part in parts):
            raise OffsetsError(f"the partitions of topic {topic!r} are not a list of numbers: write {example}")
        found.update((topic, part) for part in parts)
    if not found:
        raise OffsetsError(f"no partition is named: write {example}")
    return frozenset(found)


def _object(text: str, example: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise OffsetsError(f"{text!r} is not JSON: write {example}") from None
    if not isinstance(data, dict):
        raise OffsetsError(f"{text!r} is not a JSON object: write {example}")
    return data


# -- limits


def in_turn(start: Offsets, latest: Offsets, after: Partition | None) -> list[Partition]:
    """The partitions with unread offsets, in round-robin order starting after `after`."""
    waiting = sorted(partition for partition, size in _sizes(start, latest).items() if size > 0)
    first = 0 if after is None else sum(partition <= after for partition in waiting)
    return waiting[first:] + waiting[:first]


def limited(start: Offsets, latest: Offsets, max_records: int, after: Partition | None = None) -> dict[Partition, int]:
    """End offsets so that at most `max_records` offsets are read, shared in proportion to each partition's backlog.

    Every partition gets at least one offset if the limit allows; otherwise those after `after` come first, so that none
    starves.
    """
    sizes = _sizes(start, latest)
    if sum(sizes.values()) <= max_records:
        return dict(latest)
    waiting = in_turn(start, latest, after)
    if max_records < len(waiting):
        given = dict.fromkeys(waiting[:max_records], 1)
    else:
        given = _shared(waiting, sizes, max_records)
    return _ends(start, latest, given)


def _shared(waiting: list[Partition], sizes: Offsets, max_records: int) -> dict[Partition, int]:
    """One offset each, the rest in proportion to the backlog; the rounding remainder goes to the largest."""
    rest = max_records - len(waiting)
    left = {partition: sizes[partition] - 1 for partition in waiting}
    total = sum(left.values())
    given = {partition: 1 + (rest * size // total if total else 0) for partition, size in left.items()}
    over = max_records - sum(given.values())
    for partition in sorted(waiting, key=lambda partition: (given[partition] - sizes[partition], partition)):
        more = min(over, sizes[partition] - given[partition])
        given[partition] += more
        over -= more
    return given


def limited_bytes(
    start: Offsets,
    latest: Offsets,
    max_bytes: int,
    bytes_per_offset: Mapping[Partition, float],
    after: Partition | None = None,
) -> dict[Partition, int]:
    """End offsets so that about `max_bytes` are read, by the average bytes per offset of each partition.

    The partition after `after` always gets at least one offset: otherwise a record larger than the limit, or a small
    backlog beside a large one, would never be read.
    """
    sizes = _sizes(start, latest)
    weights = {part: Fraction(max(bytes_per_offset.get(part, 1.0), 0.001)) for part, size in sizes.items() if size > 0}
    total = sum(sizes[partition] * weight for partition, weight in weights.items())
    if total <= max_bytes:
        return dict(latest)
    share = Fraction(max_bytes) / total
    given = {partition: int(sizes[partition] * share) for partition in weights}
    first = in_turn(start, latest, after)[0]
    given[first] = max(given[first], 1)
    return _ends(start, latest, given)


def _sizes(start: Offsets, latest: Offsets) -> dict[Partition, int]:
    return {partition: max(0, end - start.get(partition, end)) for partition, end in latest.items()}


def _ends(start: Offsets, latest: Offsets, given: Offsets) -> dict[Partition, int]:
    return {
        partition: end if end < start.get(partition, end) else start.get(partition, end) + given.get(partition, 0)
        for partition, end in latest.items()
    }


# -- ranges


def ranges(start: Offsets, end: Offsets, earliest: Offsets) -> tuple[list[OffsetRange], list[OffsetLoss]]:
    """The ranges to read between two sets of offsets, and the offsets in between that no longer exist.

    A partition without a start is new, and is read from its first offset. If its end is before its start the topic was
    recreated, and if its first offset is past the start records were deleted: what exists is read, the rest is a loss.
    A partition without an earliest offset no longer exists.
    """
    found: list[OffsetRange] = []
    losses: list[OffsetLoss] = []
    for topic, partition in sorted(end):
        where = (topic, partition)
        wanted, until = start.get(where), end[where]
        first = earliest.get(where)
        if first is None:
            if wanted is None or wanted < until:
                losses.append(OffsetLoss(topic, partition, wanted or 0, until))
            continue
        if wanted is None:
            wanted = min(first, until)
        if until < wanted:
            losses.append(OffsetLoss(topic, partition, until, wanted, is_another_log=True))
            wanted = first
        elif wanted < first and wanted < until:
            losses.append(OffsetLoss(topic, partition, wanted, min(first, until)))
            wanted = first
        if wanted < until:
            found.append(OffsetRange(topic, partition, wanted, until))
    return found, losses


def split(whole: Iterable[OffsetRange], *, min_parts: int = 0, max_records: int = 0) -> list[OffsetRange]:
    """Split ranges into at least `min_parts` parts (if there are as many offsets), none larger than `max_records`.

    Larger ranges are split into more parts, and the parts of a range differ by at most one offset.
    """
    whole = [range_ for range_ in whole if range_.size > 0]
    counts = {range_: -(-range_.size // max_records) if max_records > 0 else 1 for range_ in whole}
    missing = min(min_parts, sum(range_.size for range_ in whole)) - sum(counts.values())
    if missing > 0:
        total = sum(range_.size for range_ in whole)
        for range_ in whole:
            counts[range_] = max(counts[range_], min(range_.size, min_parts * range_.size // total))
        while sum(counts.values()) < min(min_parts, total):
            # The range with the largest parts.
            most = max(
                (range_ for range_ in whole if counts[range_] < range_.size), key=lambda one: one.size / counts[one]
            )
            counts[most] += 1
    return [part for range_ in whole for part in _cut(range_, counts[range_])]


def _cut(whole: OffsetRange, count: int) -> Iterable[OffsetRange]:
    for index in range(count):
        start = whole.start + whole.size * index // count
        end = whole.start + whole.size * (index + 1) // count
        yield whole._replace(start=start, end=end)
