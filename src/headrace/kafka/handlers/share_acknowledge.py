"""ShareAcknowledge (79), versions 1-2: members of share groups (KIP-932) acknowledge the records that they acquired.

- Accept, release, reject, and gap for offsets without a record; from v2 on also renew, to extend a record's lock
  (KIP-1222).
- All or nothing for each partition: INVALID_RECORD_STATE if the member has not acquired one of the records.
- Answered when the acknowledgement is committed: an accepted or rejected record is never redelivered.
- Needs a session that a ShareFetch began. Epoch -1 ends it, and the member's remaining records are released at once.
- Permissions: READ on the group, else nothing is done; READ on each topic, else its partitions are
  TOPIC_AUTHORIZATION_FAILED.
"""

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.kafka.background_answers import answer_later
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import READ_GROUP, READ_TOPIC
from headrace.kafka.share_acks import Outcomes, acknowledge, acknowledgements, release
from headrace.kafka.share_fetch import leader_instead, make_endpoints, make_leader
from headrace.kafka.share_sessions import FINAL, INITIAL, InvalidShareSessionEpoch, ShareSession
from headrace.model.errors import HeadraceError, ProtocolError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
    from kio.schema.share_acknowledge.v2.response import PartitionData, ShareAcknowledgeResponse

KEY = 79


@handles(KEY, 1, 2, needs=(READ_GROUP, READ_TOPIC))
def share_acknowledge(
    ctx: Context, request: "ShareAcknowledgeRequest"
) -> "ShareAcknowledgeResponse | Deferred[ShareAcknowledgeResponse]":
    try:
        session = _session(ctx, request)
    except HeadraceError as error:
        return _answer(ctx, {}, error=error)
    session.end_wait()
    return answer_later(
        _work(ctx, request, session),
        lambda error: _answer(ctx, {}, error=error),
    )


async def _work(ctx: Context, request: "ShareAcknowledgeRequest", session: ShareSession) -> "ShareAcknowledgeResponse":
    settings = ctx.services.metadata.group_settings(session.group_id)
    may_renew = getattr(request, "is_renew_ack", False) and settings.share_renew_acknowledge_enable
    outcomes = await acknowledge(ctx, session, acknowledgements(request), may_renew=may_renew)
    if request.share_session_epoch == FINAL:
        await release(ctx, session, is_excused=True)
    return _answer(ctx, outcomes, lock_timeout_ms=settings.share_record_lock_duration_ms)


def _session(ctx: Context, request: "ShareAcknowledgeRequest") -> ShareSession:
    sessions, epoch = ctx.services.share_sessions, request.share_session_epoch
    if not request.group_id or not request.member_id:
        raise ProtocolError("a share acknowledgement must name its group and its member")
    ctx.require(READ_GROUP, request.group_id)
    if epoch == FINAL:
        return sessions.end(request.group_id, request.member_id)
    if epoch <= INITIAL:
        raise InvalidShareSessionEpoch("a share session begins with a fetch, not with acknowledgements")
    return sessions.go_on(request.group_id, request.member_id, epoch)


def _answer(
    ctx: Context, outcomes: Outcomes, *, lock_timeout_ms: int = 0, error: BaseException | None = None
) -> "ShareAcknowledgeResponse":
    schema = ctx.schema
    by_topic: dict[UUID, list[PartitionData]] = {}
    leaders: list[tuple[int, int] | None] = []
    for place, problem in outcomes.items():
        leader = leader_instead(ctx, place, problem)
        leaders.append(leader)
        by_topic.setdefault(place.topic_id, []).append(
            make(
                schema.PartitionData,
                partition_index=place.partition,
                error_code=ErrorCode.none if problem is None else error_code(problem),
                error_message=None if problem is None else error_message(problem),
                current_leader=make_leader(ctx, leader),
            )
        )
    return make(
        schema.ShareAcknowledgeResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else error_message(error),
        acquisition_lock_timeout=timedelta(milliseconds=lock_timeout_ms),
        responses=tuple(
            make(schema.ShareAcknowledgeTopicResponse, topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic.items()
        ),
        node_endpoints=make_endpoints(ctx, leaders),
    )
