"""The JSON protocol of SQS (`application/x-amz-json-1.0`): the action is in a header; errors are in the body and,
by the code of the older protocol, in a header.

As with AWS, numbers and booleans are accepted as strings, and no strings as numbers (`payload.py`).
"""

from typing import Any

import msgspec

from headrace.sqs import errors
from headrace.sqs.calls import ACTIONS, RegisteredAction
from headrace.sqs.errors import SqsError
from headrace.sqs.payload import fitted

CONTENT_TYPE = b"application/x-amz-json-1.0"
TARGET_PREFIX = "AmazonSQS."

_encode = msgspec.json.Encoder().encode


def find(target: str) -> RegisteredAction:
    name = target.removeprefix(TARGET_PREFIX)
    found = ACTIONS.get(name)
    if found is None or not target.startswith(TARGET_PREFIX):
        raise errors.unknown_operation(name or target)
    return found


def read(wanted: RegisteredAction, body: bytes) -> Any:
    try:
        return wanted.decode(body or b"{}")
    except msgspec.ValidationError:
        return _read_otherwise(wanted, body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise errors.malformed(f"The request is not what {wanted.name} takes: {error}.") from None


def _read_otherwise(wanted: RegisteredAction, body: bytes) -> Any:
    """A request with members of other types than those of the API."""
    try:
        return msgspec.convert(fitted(msgspec.json.decode(body), wanted.request), wanted.request)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise errors.malformed(f"The request is not what {wanted.name} takes: {error}.") from None


def write(result: msgspec.Struct | None) -> bytes:
    return b"{}" if result is None else _encode(result)


def write_error(error: SqsError) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The body, and headers."""
    fault = "Sender" if error.is_senders_fault else "Receiver"
    body = _encode({"__type": error.kind, "message": str(error)})
    return body, [(b"x-amzn-query-error", f"{error.code};{fault}".encode()), (b"x-amzn-errortype", error.kind.encode())]
