"""The headers of a dead letter that describe the failure, and how a failure is sent to a queue's broker.

A receiver nacks a message with a reason, a text for people. `reason_with` appends a second line, a JSON array with the
fields of a `Failure`; the broker that writes the dead letter splits the two (`read_reason`) and writes the fields as
headers. Everything in between, and an older broker, treats the reason as a plain string.
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
    """The fields of an exception. `file` and `line` are the innermost frame in the user's own code: not in the standard
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
    """The failure headers of a dead letter; those about an exception only if there was one."""
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
    """The headers without those of an earlier failure."""
    return [each for each in headers if each[0] not in FAILURE_HEADERS]


def reason_with(reason: str, failure: Failure) -> str:
    """The reason with the fields of a failure appended."""
    return f"{reason}\n{msgspec.json.encode(failure).decode()}"


def read_reason(text: str) -> tuple[str, Failure | None]:
    """The reason without the fields, and the failure if it has one."""
    reason, _, fields = text.rpartition("\n")
    if not fields.startswith("["):
        return text, None
    try:
        return reason, _decode(fields)
    except (ValueError, RecursionError):
        return text, None
