"""ListGroups (16), versions 0-5: the groups that this broker coordinates, of either protocol.

v4 filters by state, v5 by type, both case-insensitively; no filter means all. Permission: DESCRIBE on the cluster shows
all groups, else only those with DESCRIBE on the group are listed; there is no error.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.groups.group import Listed
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.list_groups.v5.request import ListGroupsRequest
    from kio.schema.list_groups.v5.response import ListGroupsResponse

KEY = 16


@handles(KEY, 0, 5, needs=(DESCRIBE_CLUSTER, DESCRIBE_GROUP))
def list_groups(ctx: Context, request: "ListGroupsRequest") -> "ListGroupsResponse":
    schema = ctx.schema
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    kinds = {kind.lower() for kind in getattr(request, "types_filter", ())}
    error, groups = ErrorCode.none, list[Listed]()
    try:
        groups = ctx.services.groups.listed()
    except HeadraceError as failure:
        error = error_code(failure)
    if not ctx.shows(DESCRIBE_CLUSTER):
        groups = [group for group in groups if ctx.shows(DESCRIBE_GROUP, group.group_id)]
    return make(
        schema.ListGroupsResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        groups=tuple(
            make(
                schema.ListedGroup,
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind,
            )
            for group in groups
            if (not states or group.state.lower() in states) and (not kinds or group.kind in kinds)
        ),
    )
