"""The headers that a dead letter carries about the failure, and how a failure reaches a queue's broker.

A receiver gives a message back with a reason, which is text for people. `reason_with` adds a second line to it, a JSON
array with the fields of a `Failure`; the broker that writes the dead letter takes both apart (`read_reason`) and writes
the fields as headers. The reason is a plain string for everything in between, and for an older broker.
"""

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec

REASON = "headrace-reason"
EXCEPTION_TYPE = "headrace-exception-type"
EXCEPTION_MESSAGE = "headrace-exception-message"
EXCEPTION_FILE = "headrace-exception-file"
EXCEPTION_LINE = "headrace-exception-line"
ATTEMPTS = "headrace-attempts"

FAILURE_HEADERS = frozenset({REASON, EXCEPTION_TYPE, EXCEPTION_MESSAGE, EXCEPTION_FILE, EXCEPTION_LINE, ATTEMPTS})


_Line = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class Failure(NamedTuple):
    """An exception in fields. `file` and `line` are the innermost place in the user's own code: not in the standard
    library, an installed package or the SDK, unless there is no other."""

    type: str
    message: str
    file: str
    line: _Line

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""


_decode = msgspec.json.Decoder(Failure).decode


def failure_headers(reason: str, failure: Failure | None, attempts: int) -> list[tuple[str, str]]:
    """The headers of a dead letter; those of the exception only where there was one."""
    headers = [(REASON, reason)]
    if failure is not None:
        headers += [
            (EXCEPTION_TYPE, failure.type),
            (EXCEPTION_MESSAGE, failure.message),
            (EXCEPTION_FILE, failure.file),
            (EXCEPTION_LINE, str(failure.line)),
        ]
    return [*headers, (ATTEMPTS, str(attempts))]


def without_failure(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Headers without those of an earlier failure."""
    return [each for each in headers if each[0] not in FAILURE_HEADERS]


def reason_with(reason: str, failure: Failure) -> str:
    """A reason that carries the fields of a failure."""
    return f"{reason}\n{msgspec.json.encode(failure).decode()}"


def read_reason(text: str) -> tuple[str, Failure | None]:
    """A reason without the fields, and the fields if it carries them."""
    reason, _, fields = text.rpartition("\n")
    if not fields.startswith("["):
        return text, None
    try:
        return reason, _decode(fields)
    except (ValueError, RecursionError):
        return text, None
