"""StartMessageMoveTask, CancelMessageMoveTask and ListMessageMoveTasks: messages out of a dead-letter queue.

The source is the dead-letter queue of another queue. Without a destination each message goes back to the queue that it
came from. A task has a handle only while it runs.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.model.acls import AclOperation
from headrace.model.errors import UnknownQueue
from headrace.queues.api import Filter, Move, QueueInfo
from headrace.sqs import errors
from headrace.sqs.arns import parse_arn
from headrace.sqs.calls import QueueNeed, SqsRequest, action, required
from headrace.sqs.needs import ALL_ORIGINS, write_to

_MOST_PER_SECOND = 500
_MOST_RESULTS = 10
_RUNNING = "RUNNING"
_CANCELLING = "CANCELLING"


class StartMessageMoveTask(msgspec.Struct):
    SourceArn: str | None = None
    DestinationArn: str | None = None
    MaxNumberOfMessagesPerSecond: int | None = None


class StartMessageMoveTaskResult(msgspec.Struct):
    TaskHandle: str


def _source_name(call: SqsRequest, request: Any) -> Iterable[str]:
    return (_name(call, request.SourceArn, "SourceArn"),)


def _destination_name(call: SqsRequest, request: StartMessageMoveTask) -> Iterable[str]:
    return (_name(call, request.DestinationArn, "DestinationArn"),) if request.DestinationArn else ()


def _origin_names(call: SqsRequest, request: StartMessageMoveTask) -> Iterable[str]:
    """Without a destination, the queues that messages of the source come from."""
    return () if request.DestinationArn else sources_of(call, _name(call, request.SourceArn, "SourceArn"))


def sources_of(call: SqsRequest, dead_letter_queue: str) -> list[str]:
    return [info.name for info in call.queues.queues() if info.settings.dead_letter == dead_letter_queue]


MOVED_BY = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
"""The actions that AWS wants to be allowed on the source, besides that on the task."""


@action(
    StartMessageMoveTask,
    needs=(
        QueueNeed(AclOperation.READ, _source_name, "the source", ("StartMessageMoveTask", *MOVED_BY)),
        write_to(_destination_name, "the destination"),
        write_to(_origin_names, ALL_ORIGINS, is_named=False),
    ),
)
async def start_message_move_task(call: SqsRequest, request: StartMessageMoveTask) -> StartMessageMoveTaskResult:
    source = _queue(call, request.SourceArn, "SourceArn")
    if not sources_of(call, source.name):
        raise errors.invalid_parameter("Source queue must be configured as a Dead Letter Queue.")
    destination = _destination(call, request.DestinationArn, source)
    per_second = request.MaxNumberOfMessagesPerSecond
    if per_second is not None and not 1 <= per_second <= _MOST_PER_SECOND:
        raise errors.not_between("MaxNumberOfMessagesPerSecond", 1, _MOST_PER_SECOND)
    if any(move.status in (_RUNNING, _CANCELLING) for move in await call.queues.moves(source.name)):
        raise errors.invalid_parameter(
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
        )
    move = await call.queues.start_move(source.name, destination.name if destination else None, Filter(), per_second)
    return StartMessageMoveTaskResult(_handle(call, move))


def _destination(call: SqsRequest, arn: str | None, source: QueueInfo) -> QueueInfo | None:
    if not arn:
        return None
    destination = _queue(call, arn, "DestinationArn")
    if destination.name == source.name:
        raise errors.invalid_parameter("Source queue arn and destination queue arn cannot be the same.")
    if destination.settings.is_fifo != source.settings.is_fifo:
        raise errors.invalid_parameter("The source queue and destination queue must be of the same queue type.")
    return destination


class CancelMessageMoveTask(msgspec.Struct):
    TaskHandle: str | None = None


class CancelMessageMoveTaskResult(msgspec.Struct):
    ApproximateNumberOfMessagesMoved: int


def _cancelled_source(call: SqsRequest, request: CancelMessageMoveTask) -> Iterable[str]:
    _, arn = _handle_parts(required(request.TaskHandle, "TaskHandle"))
    return (_name(call, arn, "SourceArn"),)


@action(
    CancelMessageMoveTask,
    needs=(QueueNeed(AclOperation.READ, _cancelled_source, "the source", ("CancelMessageMoveTask", *MOVED_BY)),),
)
async def cancel_message_move_task(call: SqsRequest, request: CancelMessageMoveTask) -> CancelMessageMoveTaskResult:
    handle = required(request.TaskHandle, "TaskHandle")
    move_id, arn = _handle_parts(handle)
    source = _queue(call, arn, "SourceArn")
    found = [move for move in await call.queues.moves(source.name) if move.id == move_id]
    if not found:
        raise errors.resource_not_found("Task does not exist.")
    if found[0].status != _RUNNING:
        raise errors.invalid_parameter("Only active tasks can be cancelled.")
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


@action(ListMessageMoveTasks, needs=(QueueNeed(AclOperation.DESCRIBE, _source_name, "the source"),))
async def list_message_move_tasks(call: SqsRequest, request: ListMessageMoveTasks) -> ListMessageMoveTasksResult:
    source = _queue(call, request.SourceArn, "SourceArn")
    limit = 1 if request.MaxResults is None else request.MaxResults
    if not 1 <= limit <= _MOST_RESULTS:
        raise errors.not_between("MaxResults", 1, _MOST_RESULTS)
    moves = await call.queues.moves(source.name)
    return ListMessageMoveTasksResult([_entry(call, move) for move in moves[:limit]])


def _entry(call: SqsRequest, move: Move) -> ListMessageMoveTasksResultEntry:
    return ListMessageMoveTasksResultEntry(
        Status=move.status,
        SourceArn=call.realm.arn(move.source),
        ApproximateNumberOfMessagesMoved=move.moved,
        ApproximateNumberOfMessagesToMove=move.to_move,
        StartedTimestamp=move.started_at_ms,
        TaskHandle=_handle(call, move) if move.status == _RUNNING else None,
        DestinationArn=call.realm.arn(move.destination) if move.destination is not None else None,
        MaxNumberOfMessagesPerSecond=move.per_second,
        FailureReason=_failure(call, move),
    )


def _failure(call: SqsRequest, move: Move) -> str | None:
    """AWS answers with a code. For a reason that AWS does not have, the sentence has to do."""
    if move.failure is not None and move.destination is not None:
        try:
            call.queues.find(move.destination)
        except UnknownQueue:
            return errors.queue_does_not_exist().code
    return move.failure


def _name(call: SqsRequest, arn: str | None, parameter: str) -> str:
    """The name of a queue of this account, which need not exist."""
    parsed = parse_arn(required(arn, parameter))
    if parsed is None:
        raise errors.malformed_arn(parameter)
    if parsed[1:4] != ("sqs", call.realm.region, call.realm.account):
        raise _not_found(parameter)
    return parsed.resource


def _queue(call: SqsRequest, arn: str | None, parameter: str) -> QueueInfo:
    try:
        return call.queues.find(_name(call, arn, parameter))
    except UnknownQueue:
        raise _not_found(parameter) from None


def _not_found(parameter: str) -> errors.SqsError:
    return errors.resource_not_found(f"The resource that you specified for the {parameter} parameter doesn't exist.")


def _handle_parts(handle: str) -> tuple[str, str]:
    """The id of the task and the ARN of its source."""
    try:
        move_id, separator, arn = b64decode(handle, altchars="-_", validate=True).decode().partition("|")
    except (UnicodeError, Base64Error, ValueError):
        separator = move_id = arn = ""
    if not separator or parse_arn(arn) is None:
        raise errors.invalid_parameter("Value for parameter TaskHandle is invalid.")
    return move_id, arn


def _handle(call: SqsRequest, move: Move) -> str:
    return urlsafe_b64encode(f"{move.id}|{call.realm.arn(move.source)}".encode()).decode("ascii")
