"""FindCoordinator (10), versions 0-6: which broker coordinates a group, a transaction or a share group.

- The internal topic of a coordinator is created by the first request for it; the answer waits for that.
- v4 and later have many keys per request. A key type that the request's version does not have is INVALID_REQUEST; one
  that this broker does not coordinate is COORDINATOR_NOT_AVAILABLE, with a message that says so.
- Permissions, for each key: DESCRIBE on the group or transactional id; CLUSTER_ACTION for a share coordinator, which
  only brokers look for. Without it no internal topic is created.
"""

from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from headrace.kafka import views
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import CLUSTER_ACTION, DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID
from headrace.model.errors import CoordinatorNotAvailable, HeadraceError, ProtocolError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as SingleFindCoordinatorRequest
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
    from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse

KEY = 10
_GROUP, _TRANSACTION = 0, 1
_KINDS = {0: ("consumer groups", 0), 1: ("transactions", 1), 2: ("share groups", 6)}
"""The meaning of each key type, and the first version with it."""


@handles(KEY, 0, 6, needs=(DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID, CLUSTER_ACTION))
async def find_coordinator(ctx: Context, request: "FindCoordinatorRequest") -> "FindCoordinatorResponse":
    schema = ctx.schema
    key_type = getattr(request, "key_type", 0)
    keys = getattr(request, "coordinator_keys", None)
    if keys is None:
        found = await _find(ctx, key_type, cast("SingleFindCoordinatorRequest", request).key)
        return make(schema.FindCoordinatorResponse, throttle_time=NO_THROTTLE, **found)
    return make(
        schema.FindCoordinatorResponse,
        throttle_time=NO_THROTTLE,
        coordinators=tuple([make(schema.Coordinator, key=key, **await _find(ctx, key_type, key)) for key in keys]),
    )


async def _find(ctx: Context, key_type: int, key: str) -> dict[str, object]:
    try:
        broker_id = await _broker_for(ctx, key_type, key)
        for broker, endpoint in views.brokers(ctx, ctx.services.metadata.image):
            if broker.broker_id == broker_id:
                return {
                    "error_code": ErrorCode.none,
                    "error_message": None if ctx.version == 0 else "",
                    "node_id": broker_id,
                    "host": endpoint.host,
                    "port": endpoint.port,
                }
        raise CoordinatorNotAvailable(f"the broker that coordinates {key} is not available")
    except HeadraceError as error:
        return {
            "error_code": error_code(error),
            "error_message": error_message(error),
            "node_id": -1,
            "host": "",
            "port": -1,
        }


async def _broker_for(ctx: Context, key_type: int, key: str) -> int:
    kind, since = _KINDS.get(key_type, ("", 99))
    if ctx.version < since:
        raise ProtocolError(f"version {ctx.version} of FindCoordinator has no key type {key_type}")
    _check(ctx, key_type, key)
    coordinator = ctx.services.coordinators.get(key_type)
    if coordinator is None:
        raise CoordinatorNotAvailable(f"this broker does not coordinate {kind} yet")
    await coordinator.ensure_topic()
    return coordinator.leader_for(key)


def _check(ctx: Context, key_type: int, key: str) -> None:
    if key_type == _GROUP:
        ctx.require(DESCRIBE_GROUP, key)
    elif key_type == _TRANSACTION:
        ctx.require(DESCRIBE_TRANSACTIONAL_ID, key)
    else:
        ctx.require(CLUSTER_ACTION)
