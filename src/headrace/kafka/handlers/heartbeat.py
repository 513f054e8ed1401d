"""Heartbeat (12), versions 0-4: renews a classic group member's session; the answer says if it must rejoin.

Permission: READ on the group.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.groups.offsets import Committer
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import READ_GROUP
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.heartbeat.v4.response import HeartbeatResponse

KEY = 12


@handles(KEY, 0, 4, needs=(READ_GROUP,))
def heartbeat(ctx: Context, request: "HeartbeatRequest") -> "HeartbeatResponse":
    error = ErrorCode.none
    by = Committer(request.member_id, getattr(request, "group_instance_id", None), request.generation_id)
    try:
        ctx.require(READ_GROUP, request.group_id)
        ctx.services.groups.heartbeat(request.group_id, by)
    except HeadraceError as failure:
        error = error_code(failure)
    return make(ctx.schema.HeartbeatResponse, throttle_time=NO_THROTTLE, error_code=error)
