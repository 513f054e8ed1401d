"""The partition of an internal topic that has the state of a key: of a group, a transactional id, a queue. Pure.

The partition of a queue is a function of its topic id alone and of the number of partitions, which never changes: it
is the same for a queue as long as it exists, on every broker. See invariant 99.
"""

from functools import lru_cache
from uuid import UUID

_INT32 = 0xFFFF_FFFF


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, by which Kafka's tools find the partition of a group or transactional id."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & _INT32
    return value - (1 << 32) if value & 0x8000_0000 else value


def partition_of(key: str, count: int) -> int:
    """The partition of a key, as in Kafka: the hash's absolute value (0 for the smallest integer) modulo `count`."""
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % count


partition_for = lru_cache(maxsize=4096)(partition_of)
"""`partition_of` for keys that are looked up again and again."""


def state_name(topic_id: UUID, partition: int, group: str = "") -> str:
    """The key of the state of a queue, whose partition is 0, or of a share group on a partition of a topic."""
    return f"{topic_id.hex}:{partition}:{group}"


def state_partition(topic_id: UUID, count: int) -> int:
    """The partition of `__queue_state`, which has `count` of them, that has the state of the queue with this id."""
    return partition_of(state_name(topic_id, 0), count)
