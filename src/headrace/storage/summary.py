"""Summaries of logs: everything that opening a log needs to know, so that one that has not changed need not be read.

A summary is made while all of its log is on disk and committed. It is a cache: it counts only as long as the recovery
point is where the summary ends, and the file of the active segment has the size, the time of its last change and the
inode number that it had. An append, a truncation or a restored backup changes at least one of these, and a roll adds a
segment. In any other case the log is read, and what the log says holds.

    log-summary-checkpoint
        {"version":1,"boot":"64d5…","crc":3735928559}      CRC-32 of the next line
        [["orders",0,"lbCkT3rkTIqjYWJJsGNsZQ",[…]],…]      topic, partition, topic id, `LogSummary`

Unless the broker has stopped cleanly, summaries are good for the boot in which they were written: the indexes that they
count on are written and not synced, which a killed process cannot undo, and a power failure can.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

import msgspec

from headrace.model.ids import PartitionIndex, TopicName, TopicPartition
from headrace.runtime.disk import Disk, FileStamp
from headrace.storage.aborted import AbortedIndexEntry
from headrace.storage.files import LOG, offset_name

_log = logging.getLogger(__name__)

LOG_SUMMARIES = "log-summary-checkpoint"
_VERSION = 1
_CLOSED = Struct(">qqqq")
_LOG_BYTES_MAX = 32 * 1024
_ALL_BYTES_MAX = 16 * 1024 * 1024
"""A log whose summary is larger, or has no room, is read when it is opened: nothing is to be large that is written so
often."""


class LogSummary(msgspec.Struct, frozen=True, array_like=True):
    """What a log was like when nothing was left to be flushed. New fields go to the end, with defaults."""

    end_offset: int
    base_offset: int
    """Of the active segment, as all up to `unindexed_bytes`."""
    size: int
    modified_ns: int
    inode: int
    offset_entries: int
    """How many entries the file of the offset index has; none is only in memory."""
    time_entries: int
    first_timestamp: int | None
    max_timestamp: int
    max_timestamp_offset: int
    unindexed_bytes: int
    closed_crc: int
    """`crc_of_sizes` of the closed segments."""
    epochs: list[tuple[int, int]]
    are_epochs_stored: bool
    """Whether the epoch checkpoint of the partition has these."""
    aborted: list[AbortedIndexEntry]
    """Aborted transactions with their markers in the active segment."""
    producers: bytes
    """A producer snapshot of the end offset."""

    def is_of(self, disk: Disk, folder: Path) -> bool:
        """Whether the active segment in a partition's folder is as it was."""
        try:
            stamp = disk.stamp(folder / offset_name(self.base_offset, LOG))
        except OSError:
            return False
        return stamp == FileStamp(self.size, self.modified_ns, self.inode)


class SegmentSizes(NamedTuple):
    base_offset: int
    log_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def crc_of_sizes(segments: Iterable[SegmentSizes]) -> int:
    """By this closed segments are known to have the sizes they had."""
    return crc32(b"".join(_CLOSED.pack(*sizes) for sizes in segments))


class Summarized(NamedTuple):
    topic_id: UUID
    summary: LogSummary


class _Head(msgspec.Struct):
    version: int
    boot: str = ""
    crc: int = 0


_Line = tuple[str, int, UUID, LogSummary]


def summaries_to_bytes(boot_id: str, summaries: Mapping[TopicPartition, Summarized]) -> bytes:
    lines, size = [], 0
    for partition, (topic_id, summary) in sorted(summaries.items()):
        line = msgspec.json.encode((partition.topic, partition.partition, topic_id, summary))
        if len(line) <= _LOG_BYTES_MAX and size + len(line) <= _ALL_BYTES_MAX:
            lines.append(line)
            size += len(line)
    body = b"[" + b",\n".join(lines) + b"]\n"
    return msgspec.json.encode(_Head(_VERSION, boot_id, crc32(body))) + b"\n" + body


def read_summaries(disk: Disk, path: Path) -> tuple[str, dict[TopicPartition, Summarized]]:
    """The boot in which a file was written, and the summaries in it.

    There are none in one that is missing, damaged or of a newer version: the logs are read instead.
    """
    try:
        head_line, _, body = disk.read_bytes(path).partition(b"\n")
        head = msgspec.json.decode(head_line, type=_Head)
        if head.version != _VERSION:
            return "", {}
        if crc32(body) != head.crc:
            raise ValueError("wrong checksum")
        lines = msgspec.json.decode(body, type=list[_Line])
    except FileNotFoundError:
        return "", {}
    except (ValueError, msgspec.DecodeError) as error:
        _log.warning("%s is damaged (%s): logs are read instead", path, error)
        return "", {}
    return head.boot, {
        TopicPartition(TopicName(topic), PartitionIndex(index)): Summarized(topic_id, summary)
        for topic, index, topic_id, summary in lines
    }
