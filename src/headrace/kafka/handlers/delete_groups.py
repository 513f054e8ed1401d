"""DeleteGroups (42), versions 0-2: delete groups that have no members, with their offsets."""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.coordinator.shard import Result
from headrace.kafka.dispatch import Answer, Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.later import answer_with_all
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.runtime.deferred import Deferred

KEY = 42


@handles(KEY, 0, 2)
def delete_groups(ctx: Context, request: Any) -> Answer | Deferred[Answer]:
    names = list(dict.fromkeys(request.groups_names))

    def answer(results: list[Result[None]]) -> Answer:
        return make(
            ctx.schema.DeleteGroupsResponse,
            throttle_time=NO_THROTTLE,
            results=tuple(
                make(
                    ctx.schema.DeletableGroupResult,
                    group_id=name,
                    error_code=ErrorCode.none if result.error is None else error_code(result.error),
                )
                for name, result in zip(names, results, strict=True)
            ),
        )

    return answer_with_all([ctx.services.groups.delete_group(name) for name in names], answer)
