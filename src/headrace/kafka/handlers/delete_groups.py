"""DeleteGroups (42), versions 0-2: delete groups that have no members, with their offsets.

Of a share group, how far it is in its partitions is forgotten first, where these are led: if that fails, the group is
still there to be deleted again.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.coordinator.shard import Result
from headrace.kafka.dispatch import Answer, Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.later import answer_with_all
from headrace.kafka.share_offsets import forget, without_members
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.runtime.deferred import Deferred

KEY = 42


@handles(KEY, 0, 2)
async def delete_groups(ctx: Context, request: Any) -> Answer | Deferred[Answer]:
    names = list(dict.fromkeys(request.groups_names))
    refused: dict[str, HeadraceError] = {}
    for name in names:
        try:
            await _forget_share_offsets(ctx, name)
        except HeadraceError as error:
            refused[name] = error
    deleted = [name for name in names if name not in refused]

    def answer(results: list[Result[None]]) -> Answer:
        errors = refused | {name: result.error for name, result in zip(deleted, results, strict=True)}
        return make(
            ctx.schema.DeleteGroupsResponse,
            throttle_time=NO_THROTTLE,
            results=tuple(
                make(
                    ctx.schema.DeletableGroupResult,
                    group_id=name,
                    error_code=ErrorCode.none if (error := errors[name]) is None else error_code(error),
                )
                for name in names
            ),
        )

    return answer_with_all([ctx.services.groups.delete_group(name) for name in deleted], answer)


async def _forget_share_offsets(ctx: Context, group_id: str) -> None:
    try:
        group = ctx.services.groups.share(group_id)
    except HeadraceError:
        # Not a share group, or not here: whoever deletes it says so.
        return
    without_members(ctx, group_id)
    await forget(ctx, group, group.about.begun)
