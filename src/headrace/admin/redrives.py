"""Redrives: moving dead letters back to the queues that they came from, with progress."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError
from headrace.admin.routes import AdminReply, AdminRequest, queue_need, route
from headrace.model.acls import AclOperation
from headrace.model.queue_wire import Filter, Move

_MOVED_BY = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
"""The actions that AWS wants to be allowed on the source, besides that on the task."""
_RUNNING = ("RUNNING", "CANCELLING")
_MAX_IDS = 1_000

START_REDRIVE = queue_need(AclOperation.READ, "StartMessageMoveTask", *_MOVED_BY)
CANCEL_REDRIVE = queue_need(AclOperation.READ, "CancelMessageMoveTask", *_MOVED_BY)
LIST_REDRIVES = queue_need(AclOperation.DESCRIBE, "ListMessageMoveTasks")


class RedriveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    to: str | None = None
    """The queue to move messages to; null: each to the queue that it came from."""
    rate: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    """Messages per second; null: as quickly as possible."""
    reason_contains: Annotated[str, Meta(max_length=1024)] = ""
    body_contains: Annotated[str, Meta(max_length=1024)] = ""
    ids: Annotated[list[str], Meta(max_length=_MAX_IDS)] = []
    """Only these messages; empty: all that match."""
    limit: Annotated[int, Meta(ge=1)] | None = None


class RedriveTask(msgspec.Struct, frozen=True):
    id: str
    source: str
    to: str | None
    status: str
    """running, completed, cancelling, cancelled or failed."""
    started_ms: int
    moved: int
    to_move: int
    """The approximate number when it started."""
    rate: int | None
    failure: str | None


def _task(move: Move) -> RedriveTask:
    return RedriveTask(
        move.id,
        move.source,
        move.destination,
        move.status.lower(),
        move.started_at_ms,
        move.moved,
        move.to_move,
        move.per_second,
        move.failure,
    )


@route("GET", "/queues/{queue}/redrive", needs=LIST_REDRIVES, answer=list[RedriveTask])
async def list_redrives(request: AdminRequest) -> AdminReply:
    """The redrives out of a dead-letter queue with their progress, the latest first, at most ten."""
    return AdminReply([_task(each) for each in await request.services.queues.moves(request.parameters["queue"])])


@route("POST", "/queues/{queue}/redrive", needs=START_REDRIVE, body=RedriveRequest, answer=RedriveTask)
async def start_redrive(request: AdminRequest) -> AdminReply:
    """Move the messages of a dead-letter queue back to where they came from, or to another queue."""
    source, wanted, queues = request.parameters["queue"], request.read(RedriveRequest), request.services.queues
    info = queues.find(source)
    origins = [each.name for each in queues.queues() if each.settings.dead_letter == source and each.name != source]
    check = request.services.queue_access.check
    for target in [wanted.to] if wanted.to is not None else origins:
        check(request.subject, AclOperation.WRITE, target, ("SendMessage",), is_named=wanted.to is not None)
    if wanted.to is None and not origins:
        raise AdminError(409, "no_dead_letter_queue", f"{source} is no queue's dead-letter queue: say where to move to")
    if wanted.to is not None:
        if wanted.to == source:
            raise AdminError(400, "invalid_request", "messages cannot be moved to the queue that they are in")
        if queues.find(wanted.to).settings.is_fifo != info.settings.is_fifo:
            raise AdminError(409, "other_type", "messages are moved between queues of the same type")
    if any(each.status in _RUNNING for each in await queues.moves(source)):
        raise AdminError(409, "redrive_in_progress", f"messages of {source} are being moved already")
    chosen = Filter(
        ids=tuple(wanted.ids),
        reason_contains=wanted.reason_contains,
        body_contains=wanted.body_contains.encode(),
        limit=wanted.limit,
    )
    return AdminReply(_task(await queues.start_move(source, wanted.to, chosen, wanted.rate)), 202)


@route("DELETE", "/queues/{queue}/redrive", needs=CANCEL_REDRIVE, answer=RedriveTask)
async def cancel_redrive(request: AdminRequest) -> AdminReply:
    """Cancel the redrive that is running."""
    source, queues = request.parameters["queue"], request.services.queues
    for each in await queues.moves(source):
        if each.status in _RUNNING:
            return AdminReply(_task(await queues.cancel_move(each.id)))
    raise AdminError(409, "no_redrive", f"no messages of {source} are being moved")
