"""The permissions that actions on queues need: `@action(…, needs=(READ_QUEUE,))` declares them beside the action.

They are checked before the action runs, so that its answer does not reveal anything. The tests generate a matrix of
requests from these declarations, and compare the table in `docs/compatibility.md` with them.
"""

from collections.abc import Callable, Iterable
from typing import Any

from headrace.model.acls import AclOperation
from headrace.sqs import errors
from headrace.sqs.calls import QueueNeed, SqsRequest

Names = Callable[[SqsRequest, Any], Iterable[str]]

THE_QUEUE = "the queue"


def _by_url(call: SqsRequest, request: Any) -> Iterable[str]:
    return (call.name(request.QueueUrl),)


def _by_name(_: SqsRequest, request: Any) -> Iterable[str]:
    if not request.QueueName:
        raise errors.missing_queue_name()
    return (request.QueueName,)


def _none(_: SqsRequest, __: Any) -> Iterable[str]:
    return ()


READ_QUEUE = QueueNeed(AclOperation.READ, _by_url, THE_QUEUE)
WRITE_QUEUE = QueueNeed(AclOperation.WRITE, _by_url, THE_QUEUE)
DELETE_QUEUE = QueueNeed(AclOperation.DELETE, _by_url, THE_QUEUE)
DESCRIBE_QUEUE = QueueNeed(AclOperation.DESCRIBE, _by_url, THE_QUEUE)
ALTER_QUEUE = QueueNeed(AclOperation.ALTER, _by_url, THE_QUEUE)
ALTER_QUEUE_CONFIGS = QueueNeed(AclOperation.ALTER_CONFIGS, _by_url, THE_QUEUE)

DESCRIBE_QUEUE_NAME = QueueNeed(AclOperation.DESCRIBE, _by_name, THE_QUEUE)
CREATE_QUEUE_NAME = QueueNeed(AclOperation.CREATE, _by_name, "the queue, or the cluster")

DESCRIBE_LISTED = QueueNeed(AclOperation.DESCRIBE, _none, "each queue that is listed, others being left out")
"""Checked by the action itself, for each queue (`SqsRequest.sees`)."""


ALL_ORIGINS = "every queue whose dead-letter queue is the source, without a destination"


def write_to(queues: Names, about: str, *, is_named: bool = True) -> QueueNeed:
    """To send to other queues by way of the action."""
    return QueueNeed(AclOperation.WRITE, queues, about, ("SendMessage",), is_named)
