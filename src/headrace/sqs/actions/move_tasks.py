"""StartMessageMoveTask, CancelMessageMoveTask and ListMessageMoveTasks: messages out of a dead-letter queue.

The source is the dead-letter queue of some queue. Without a destination each message goes to where it came from. The
handle of a task is told while it runs.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error

import msgspec

from headrace.model.errors import UnknownQueue
from headrace.queues.api import Filter, Move, QueueInfo
from headrace.sqs import errors
from headrace.sqs.calls import Call, action, required, within

_MOST_PER_SECOND = 500
_RUNNING = "RUNNING"


class StartMessageMoveTask(msgspec.Struct):
    SourceArn: str | None = None
    DestinationArn: str | None = None
    MaxNumberOfMessagesPerSecond: int | None = None


class StartMessageMoveTaskResult(msgspec.Struct):
    TaskHandle: str


@action(StartMessageMoveTask)
async def start_message_move_task(call: Call, request: StartMessageMoveTask) -> StartMessageMoveTaskResult:
    source = _queue(call, request.SourceArn, "SourceArn")
    destination = None
    if request.DestinationArn:
        destination = _queue(call, request.DestinationArn, "DestinationArn")
        if destination.settings.is_fifo != source.settings.is_fifo:
            raise errors.unsupported_operation("The destination must be a queue of the same type as the source.")
    per_second = request.MaxNumberOfMessagesPerSecond
    if per_second is not None:
        within(per_second, 1, _MOST_PER_SECOND, "MaxNumberOfMessagesPerSecond", default=1)
    if not any(info.settings.dead_letter == source.name for info in call.queues.queues()):
        raise errors.invalid_parameter("Source queue must be configured as a Dead Letter Queue.")
    if any(move.status == _RUNNING for move in await call.queues.moves(source.name)):
        raise errors.unsupported_operation(
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
        )
    move = await call.queues.start_move(source.name, destination.name if destination else None, Filter(), per_second)
    return StartMessageMoveTaskResult(_handle(call, move))


class CancelMessageMoveTask(msgspec.Struct):
    TaskHandle: str | None = None


class CancelMessageMoveTaskResult(msgspec.Struct):
    ApproximateNumberOfMessagesMoved: int


@action(CancelMessageMoveTask)
async def cancel_message_move_task(call: Call, request: CancelMessageMoveTask) -> CancelMessageMoveTaskResult:
    handle = required(request.TaskHandle, "TaskHandle")
    try:
        move_id, _, arn = b64decode(handle, altchars="-_", validate=True).decode().partition("|")
    except (UnicodeError, Base64Error, ValueError):
        raise errors.invalid_value(handle, "TaskHandle", "It is not a valid task handle.") from None
    source = _queue(call, arn, "SourceArn")
    if not any(move.id == move_id and move.status == _RUNNING for move in await call.queues.moves(source.name)):
        raise errors.resource_not_found("Task does not exist, or is not active.")
    move = await call.queues.cancel_move(move_id)
    return CancelMessageMoveTaskResult(move.moved)


class ListMessageMoveTasks(msgspec.Struct):
    SourceArn: str | None = None
    MaxResults: int | None = None


class ListMessageMoveTasksResultEntry(msgspec.Struct, omit_defaults=True):
    Status: str
    SourceArn: str
    ApproximateNumberOfMessagesMoved: int
    ApproximateNumberOfMessagesToMove: int
    StartedTimestamp: int
    TaskHandle: str | None = None
    DestinationArn: str | None = None
    MaxNumberOfMessagesPerSecond: int | None = None
    FailureReason: str | None = None


class ListMessageMoveTasksResult(msgspec.Struct, omit_defaults=True):
    Results: list[ListMessageMoveTasksResultEntry] | None = None


@action(ListMessageMoveTasks)
async def list_message_move_tasks(call: Call, request: ListMessageMoveTasks) -> ListMessageMoveTasksResult:
    source = _queue(call, request.SourceArn, "SourceArn")
    limit = within(request.MaxResults, 1, 10, "MaxResults", default=1)
    moves = await call.queues.moves(source.name)
    return ListMessageMoveTasksResult([_entry(call, move) for move in moves[:limit]])


def _entry(call: Call, move: Move) -> ListMessageMoveTasksResultEntry:
    return ListMessageMoveTasksResultEntry(
        Status=move.status,
        SourceArn=call.realm.arn(move.source),
        ApproximateNumberOfMessagesMoved=move.moved,
        ApproximateNumberOfMessagesToMove=move.to_move,
        StartedTimestamp=move.started_at_ms,
        TaskHandle=_handle(call, move) if move.status == _RUNNING else None,
        DestinationArn=call.realm.arn(move.destination) if move.destination is not None else None,
        MaxNumberOfMessagesPerSecond=move.per_second,
        FailureReason=move.failure,
    )


def _queue(call: Call, arn: str | None, parameter: str) -> QueueInfo:
    text = required(arn, parameter)
    try:
        return call.queues.find(call.realm.queue_of_arn(text))
    except UnknownQueue:
        raise errors.resource_not_found(
            f"The resource that you specified for the {parameter} parameter doesn't exist."
        ) from None


def _handle(call: Call, move: Move) -> str:
    return urlsafe_b64encode(f"{move.id}|{call.realm.arn(move.source)}".encode()).decode("ascii")
