"""The data keys of a topic as the metadata store has them: wrapped, so that they are useless without the master key."""

from dataclasses import dataclass

_CORRUPT_MESSAGE, _POLICY_VIOLATION = 2, 44


def unreadable_text(code: int, topic: str) -> str | None:
    """Why the records of an encrypted topic cannot be read, and what to do, for the error code of a fetch.

    None for a code that does not mean that. The answer to a fetch has no text for its reason.
    """
    if code == _POLICY_VIOLATION:
        return (
            f"the topic {topic} was shredded: what was written before that cannot be read any more. To let consumers "
            f"pass it: headrace topic truncate {topic}"
        )
    if code == _CORRUPT_MESSAGE:
        return (
            f"a batch of the encrypted topic {topic} was changed on disk, or copied there from another place; the log "
            f"of the broker says at which offset. Restore it, or let consumers pass it: headrace topic truncate "
            f"{topic} --partition NUMBER --before OFFSET"
        )
    return None


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
