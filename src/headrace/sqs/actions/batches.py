"""Batch actions: limits on their entries, the ids of entries, and a result for each."""

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from headrace.sqs import errors
from headrace.sqs.errors import SqsError

MOST_ENTRIES = 10
_is_id = re.compile(r"[A-Za-z0-9_-]{1,80}").fullmatch


class BatchResultErrorEntry(msgspec.Struct, omit_defaults=True):
    Id: str
    SenderFault: bool
    Code: str
    Message: str | None = None


class _Entry(Protocol):
    @property
    def Id(self) -> str | None: ...


E = TypeVar("E", bound=_Entry)


def checked(entries: Sequence[E] | None, kind: str) -> list[tuple[str, E]]:
    """The entries with their ids. `kind` is what a message about the batch calls an entry."""
    if entries is None:
        raise errors.missing_parameter("Entries")
    if not entries:
        raise errors.batch_error(
            "EmptyBatchRequest", f"There should be at least one {kind}BatchRequestEntry in the request."
        )
    if len(entries) > MOST_ENTRIES:
        raise errors.batch_error(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {MOST_ENTRIES}. You have sent {len(entries)}.",
        )
    seen: set[str] = set()
    found: list[tuple[str, E]] = []
    for number, entry in enumerate(entries, 1):
        entry_id = entry.Id
        if entry_id is None:
            raise errors.missing_parameter(f"{kind}BatchRequestEntry.{number}.Id")
        if _is_id(entry_id) is None:
            raise errors.batch_error(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most "
                "80 letters long.",
            )
        if entry_id in seen:
            raise errors.batch_error("BatchEntryIdsNotDistinct", f"Id {entry_id} repeated.")
        seen.add(entry_id)
        found.append((entry_id, entry))
    return found


def failed(entry_id: str, error: SqsError) -> BatchResultErrorEntry:
    return BatchResultErrorEntry(entry_id, error.is_senders_fault, error.code, str(error))
