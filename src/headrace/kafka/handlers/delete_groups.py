"""DeleteGroups (42), versions 0-2: delete groups that have no members, with their offsets.

A share group's state is deleted on the leaders of its partitions first: if that fails, the group still exists and the
deletion can be retried. Permission: DELETE on each group.
"""

import asyncio
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import DELETE_GROUP
from headrace.kafka.share_offsets import forget, settled, without_members
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
    from kio.schema.delete_groups.v2.response import DeleteGroupsResponse

KEY = 42


@handles(KEY, 0, 2, needs=(DELETE_GROUP,))
async def delete_groups(ctx: Context, request: "DeleteGroupsRequest") -> "DeleteGroupsResponse":
    names = list(dict.fromkeys(request.groups_names))
    codes = await asyncio.gather(*(_delete(ctx, name) for name in names))
    return make(
        ctx.schema.DeleteGroupsResponse,
        throttle_time=NO_THROTTLE,
        results=tuple(
            make(ctx.schema.DeletableGroupResult, group_id=name, error_code=code)
            for name, code in zip(names, codes, strict=True)
        ),
    )


async def _delete(ctx: Context, group_id: str) -> ErrorCode:
    groups = ctx.services.groups
    try:
        ctx.require(DELETE_GROUP, group_id)
        if groups.is_share(group_id):
            group = without_members(ctx, group_id)
            await forget(ctx, group, group.about.begun)
        await settled(groups.delete_group(group_id))
    except HeadraceError as error:
        return error_code(error)
    return ErrorCode.none
