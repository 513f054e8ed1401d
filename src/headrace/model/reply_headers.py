"""Headers by which the sender of a message asks for its result, and by which it is answered.

A message with both `headrace-reply-to` and `headrace-call-id` is a call. Its worker sends the value that it returned to
that reply queue, and when it is dead-lettered the reply says why. Names of reply queues begin with `replies.`: no one
can use a call to let workers or brokers write to any other queue.
"""

import re
from collections.abc import Iterable

from headrace.model.failure_headers import failure_headers, read_reason

REPLY_TO = "headrace-reply-to"
CALL_ID = "headrace-call-id"
OUTCOME = "headrace-outcome"
RETURNED = b"returned"
FAILED = b"failed"
REPLY_QUEUES = "replies."
_MAX_LENGTH = 249
_ESCAPED = re.compile(r"[^a-zA-Z0-9-]")

Headers = list[tuple[str, bytes | None]]


def reply_prefix(owner: str) -> str:
    """What the names of an owner's reply queues begin with. It never covers those of another owner: the part between
    the dots has none, and `_` is written `__`, any other byte than letters, digits and `-` as `_` and two digits."""
    return f"{REPLY_QUEUES}{_ESCAPED.sub(_escaped, owner)}."


def _escaped(found: re.Match[str]) -> str:
    return "__" if found[0] == "_" else "".join(f"_{byte:02x}" for byte in found[0].encode())


def reply_address(headers: Iterable[tuple[str, bytes | None]]) -> tuple[str, bytes] | None:
    """The reply queue and the call id of a call; None for any other message."""
    found = {name: value for name, value in headers if name in (REPLY_TO, CALL_ID)}
    queue, call_id = found.get(REPLY_TO), found.get(CALL_ID)
    if not queue or not call_id or len(queue) > _MAX_LENGTH or len(call_id) > _MAX_LENGTH:
        return None
    name = queue.decode(errors="replace")
    return (name, call_id) if name.startswith(REPLY_QUEUES) else None


def returned_headers(call_id: bytes, content_type: str | None) -> Headers:
    """The headers of the reply with a returned value."""
    headers: Headers = [(CALL_ID, call_id), (OUTCOME, RETURNED)]
    if content_type is not None:
        headers.append(("content-type", content_type.encode()))
    return headers


def failed_headers(call_id: bytes, reason: str, attempts: int) -> Headers:
    """The headers of the reply to a call that was dead-lettered; `reason` as a receiver gave it."""
    text, failure = read_reason(reason)
    described = [(name, value.encode()) for name, value in failure_headers(text, failure, attempts)]
    return [(CALL_ID, call_id), (OUTCOME, FAILED), *described]
