"""The data keys of a topic as the metadata store has them: wrapped, so that they are useless without the master key."""

from dataclasses import dataclass


def shredded_text(topic: str) -> str:
    """Why records of a shredded topic cannot be read, and what to do."""
    return (
        f"the topic {topic} was shredded: what was written before that cannot be read any more. To let consumers pass "
        f"it: headrace topic truncate {topic}"
    )


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """One version of a topic's data key, encrypted by a master key."""

    version: int
    wrapped: bytes
    master_key_id: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class TopicDataKeys:
    """The versions of one topic's data key. New batches use the newest; older ones are for reading."""

    versions: tuple[WrappedKey, ...]
    last_version: int
    """The highest version ever assigned: a version is not assigned again, even after its key was shredded."""
    shredded_ms: int | None = None
    """When the keys up to then were destroyed; None if they never were."""
