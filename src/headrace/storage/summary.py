"""Summaries of logs: the state that opening a log needs, so that an unchanged log need not be read.

A summary is made while all of its log is on disk and committed. It is a cache: it is valid only while the recovery
point is the summary's end offset, and the file of the active segment has the same size, modification time and inode
number. An append, a truncation or a restored backup changes at least one of these, and a roll adds a segment. In any
other case the log is read, and takes precedence.

    log-summary-checkpoint
        {"version":1,"boot":"64d5…","crc":3735928559}      CRC-32 of the next line
        [["orders",0,"lbCkT3rkTIqjYWJJsGNsZQ",[…]],…]      topic, partition, topic id, `LogSummary`

Without a clean shutdown, summaries are valid only during the boot in which they were written: the indexes they rely on
are written but not synced, so they survive a killed process, but not a power failure.
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
"""The limit of the file, because it is written often. A log whose summary does not fit is read when it is opened."""


class LogSummary(msgspec.Struct, frozen=True, array_like=True):
    """The state of a log when everything was flushed. New fields go to the end, with defaults."""

    end_offset: int
    base_offset: int
    """Of the active segment, like all fields up to `unindexed_bytes`."""
    size: int
    modified_ns: int
    inode: int
    offset_entries: int
    """The number of entries in the file of the offset index; none is only in memory."""
    time_entries: int
    first_timestamp: int | None
    max_timestamp: int
    max_timestamp_offset: int
    unindexed_bytes: int
    closed_crc: int
    """`crc_of_sizes` of the closed segments."""
    epochs: list[tuple[int, int]]
    are_epochs_stored: bool
    """Whether the partition's epoch checkpoint has these epochs."""
    aborted: list[AbortedIndexEntry]
    """Aborted transactions with their markers in the active segment."""
    producers: bytes
    """A producer snapshot of the end offset."""

    def is_of(self, disk: Disk, folder: Path) -> bool:
        """Whether the active segment in a partition's folder is unchanged."""
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
    """A checksum of the sizes of closed segments, to detect changes."""
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
    """Read a file: the boot in which it was written, and its summaries.

    A missing or damaged file, or one of a newer version, has none: the logs are read instead.
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
