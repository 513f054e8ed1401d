"""ShareFetch (78), versions 1-2: records for a member of a share group (KIP-932), and its acknowledgements.

- Batches are sent as they are in the log, with the ranges of offsets that were acquired for the member. These are never
  more than max records, in either acquire mode (v2, KIP-1206): Kafka continues to the end of a batch in the mode
  batch-optimized. With max records or max bytes 0 nothing is acquired.
- Acquisitions are committed before the answer: the delivery count of a record rises with each delivery.
- Long polling without polling: a fetch is woken by new records, by released ones, and by the end of max wait.
- Sessions: see `share_sessions.py`. When a session or its connection ends, the member's records are released at once
  and count as delivered; if the member ended the session, that does not count towards the delivery count limit.
- A request that renews (v2, KIP-1222) fetches nothing; its limits must be 0.
- Acknowledgements are answered when they are committed. A record that the member has not acquired is
  INVALID_RECORD_STATE, and then none of the request's acknowledgements for its partition are applied.
- The records that were acquired count towards consumer_byte_rate. A member that exceeds it gets them and is delayed
  then, where Kafka answers with none and leaves them locked.
- Permissions: READ on the group, else nothing is done. READ on each topic of the session, checked at each request and
  again when it has waited, and of the acknowledgements; else the partition is TOPIC_AUTHORIZATION_FAILED.
"""

from functools import partial
from typing import TYPE_CHECKING

from headrace.kafka.background_answers import answer_later
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import READ_GROUP, READ_TOPIC
from headrace.kafka.share_acks import acknowledge, acknowledgements, places_of, release
from headrace.kafka.share_fetch import ShareFetch, answer
from headrace.kafka.share_sessions import FINAL, INITIAL, ShareSession
from headrace.model.errors import HeadraceError, ProtocolError
from headrace.protocol.units import to_ms
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.share_fetch.v2.request import ShareFetchRequest
    from kio.schema.share_fetch.v2.response import ShareFetchResponse

KEY = 78


@handles(KEY, 1, 2, needs=(READ_GROUP, READ_TOPIC))
def share_fetch(ctx: Context, request: "ShareFetchRequest") -> "ShareFetchResponse | Deferred[ShareFetchResponse]":
    try:
        session = _session(ctx, request, *_checked(ctx, request))
    except HeadraceError as error:
        return answer(ctx, error=error)
    session.end_wait()
    fetch = ShareFetch(ctx, request, session)
    session.waiting = fetch.hurry
    return answer_later(
        _work(ctx, request, session, fetch),
        lambda error: answer(ctx, error=error),
        hurry=fetch.hurry,
        size_bytes=max(0, request.max_bytes),
    )


async def _work(
    ctx: Context, request: "ShareFetchRequest", session: ShareSession, fetch: ShareFetch
) -> "ShareFetchResponse":
    settings = ctx.services.metadata.group_settings(session.group_id)
    renews = getattr(request, "is_renew_ack", False)
    outcomes = await acknowledge(
        ctx, session, acknowledgements(request), may_renew=renews and settings.share_renew_acknowledge_enable
    )
    if request.share_session_epoch == FINAL:
        await release(ctx, session, is_excused=True)
    elif not renews:
        await fetch.run()
        if session.is_over:
            # The session ended during the fetch, and the records acquired before were already released.
            fetch.taken.clear()
            await release(ctx, session, is_excused=True)
    if ctx.metered is not None:
        ctx.metered.consumed(fetch.taken_bytes)
    return answer(ctx, lock_timeout_ms=settings.share_record_lock_duration_ms, fetched=fetch, acknowledged=outcomes)


def _checked(ctx: Context, request: "ShareFetchRequest") -> tuple[str, str]:
    """Return the group and the member of a valid request; raises the error of an invalid or forbidden one."""
    if not request.group_id or not request.member_id:
        raise ProtocolError("a share fetch must name its group and its member")
    ctx.require(READ_GROUP, request.group_id)
    if request.share_session_epoch < FINAL:
        raise ProtocolError(f"the share session epoch {request.share_session_epoch} has no meaning")
    if request.share_session_epoch == INITIAL and acknowledgements(request):
        raise ProtocolError("the first request of a share session has nothing to acknowledge")
    limits = (to_ms(request.max_wait), request.min_bytes, request.max_bytes, request.max_records)
    if getattr(request, "is_renew_ack", False) and any(limits):
        raise ProtocolError("a request that renews fetches nothing: its limits must be 0")
    return request.group_id, request.member_id


def _session(ctx: Context, request: "ShareFetchRequest", group_id: str, member_id: str) -> ShareSession:
    sessions, epoch = ctx.services.share_sessions, request.share_session_epoch
    if epoch == FINAL:
        return sessions.end(group_id, member_id)
    if epoch != INITIAL:
        session = sessions.go_on(group_id, member_id, epoch)
    else:
        session = sessions.begin(group_id, member_id)
        ctx.peer.on_closed[session] = partial(_disconnected, ctx, session)
        session.on_end = partial(_forget, ctx, session)
    sessions.change(session, places_of(request.topics), places_of(request.forgotten_topics_data))
    return session


def _forget(ctx: Context, session: ShareSession) -> None:
    ctx.peer.on_closed.pop(session, None)


def _disconnected(ctx: Context, session: ShareSession) -> None:
    """Release the member's records, which it can no longer acknowledge. That counts as a failed delivery, like an
    expired lock: a record may have made the member crash."""
    if ctx.services.share_sessions.drop(session):
        answer_later(_release(ctx, session), lambda _: None)


async def _release(ctx: Context, session: ShareSession) -> None:
    await release(ctx, session, is_excused=False)
