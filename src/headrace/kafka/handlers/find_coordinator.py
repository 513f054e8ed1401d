"""FindCoordinator (10), versions 0-6: which broker coordinates a group, a transaction or a share group.

None does yet: every key is answered with COORDINATOR_NOT_AVAILABLE and a sentence, so that a client that needs one says
why it waits, and everything that needs none works. v4 and later ask for many keys at once. A kind of key that this
version of the API does not have is INVALID_REQUEST.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Answer, Context, handles
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

KEY = 10
_KINDS = {0: ("consumer groups", 0), 1: ("transactions", 1), 2: ("share groups", 6)}
"""What a key type stands for, and the version that brought it."""

_NOWHERE = {"node_id": -1, "host": "", "port": -1}


@handles(KEY, 0, 6)
def find_coordinator(ctx: Context, request: Any) -> Answer:
    schema = ctx.schema
    error, message = _refusal(getattr(request, "key_type", 0), ctx.version)
    told = {**_NOWHERE, "error_code": error, "error_message": message}
    keys = getattr(request, "coordinator_keys", None)
    if keys is None:
        return make(schema.FindCoordinatorResponse, throttle_time=NO_THROTTLE, **told)
    return make(
        schema.FindCoordinatorResponse,
        throttle_time=NO_THROTTLE,
        coordinators=tuple(make(schema.Coordinator, key=key, **told) for key in keys),
    )


def _refusal(key_type: int, version: int) -> tuple[ErrorCode, str]:
    kind, since = _KINDS.get(key_type, ("", 99))
    if version < since:
        return ErrorCode.invalid_request, f"version {version} of FindCoordinator has no key type {key_type}"
    return ErrorCode.coordinator_not_available, f"this broker does not coordinate {kind} yet"
