"""Small files of a data directory: offsets by partition and a partition's topic id, in Kafka's formats.

recovery-point-offset-checkpoint    everything below is on disk and was checked
log-start-offset-checkpoint         log start offsets that are inside a segment
replication-offset-checkpoint       high watermarks (in a cluster)
    0                               version
    1                               number of lines that follow
    orders 0 1042                   topic, partition, offset

partition.metadata
    version: 0
    topic_id: lbCkT3rkTIqjYWJJsGNsZQ
"""

import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from headrace.model.ids import PartitionIndex, TopicName, TopicPartition
from headrace.runtime.disk import Disk

_log = logging.getLogger(__name__)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_STOP = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"


def offsets_to_bytes(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, int]:
    """Read the offsets in a checkpoint. A missing one is empty; a damaged one is too, and is logged."""
    try:
        version, count, *lines = disk.read_bytes(path).decode("ascii").split("\n")
        if version != "0" or lines.pop() != "" or len(lines) != int(count):
            raise ValueError("wrong version or number of lines")
        offsets = {}
        for line in lines:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(TopicName(topic), PartitionIndex(int(partition)))] = int(offset)
        return offsets
    except FileNotFoundError:
        return {}
    except (ValueError, IndexError) as error:
        _log.error("%s is damaged (%s) and is ignored", path, error)
        return {}


def topic_id_to_text(topic_id: UUID) -> str:
    """A topic id as Kafka writes it: base64 without padding."""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def topic_id_from_text(text: str) -> UUID:
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def write_partition_metadata(disk: Disk, folder: Path, topic_id: UUID) -> None:
    text = f"version: 0\ntopic_id: {topic_id_to_text(topic_id)}\n"
    disk.write_atomic(folder / PARTITION_METADATA, text.encode())


def read_partition_metadata(disk: Disk, folder: Path) -> UUID | None:
    """The topic id of a partition's folder; None if it is missing or cannot be read."""
    try:
        lines = disk.read_bytes(folder / PARTITION_METADATA).decode("ascii").splitlines()
        fields = dict(line.split(": ", 1) for line in lines)
        return topic_id_from_text(fields["topic_id"])
    except (FileNotFoundError, ValueError, KeyError):
        return None
