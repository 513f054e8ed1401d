"""CreateQueue.

- An existing queue is fine if every attribute given, and the tags if any are given, have the values that it has.
- The name ends in `.fifo` if and only if it is a fifo queue.
- A name is free again `sqs.recreate.wait.ms` after its queue was deleted.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from headrace.model.acls import AclOperation
from headrace.model.errors import QueueExists, UnknownQueue
from headrace.queues.api import QueueEdit, QueueInfo
from headrace.sqs import attributes, errors
from headrace.sqs.access import TAG_PREFIX
from headrace.sqs.actions.tags import check_tags
from headrace.sqs.calls import QueueNeed, SqsRequest, action
from headrace.sqs.needs import CREATE_QUEUE_NAME, write_to

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|(?=.{6,80}$)[A-Za-z0-9_-]+\.fifo")
_EXISTS = "A queue already exists with the same name and a different value for"


class CreateQueueRequest(msgspec.Struct):
    QueueName: str | None = None
    Attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = None


class CreateQueueResult(msgspec.Struct):
    QueueUrl: str


def _if_policy_is_set(_: SqsRequest, request: CreateQueueRequest) -> Iterable[str]:
    return (request.QueueName or "",) if attributes.changes_policy(request) else ()


@action(
    CreateQueueRequest,
    needs=(
        CREATE_QUEUE_NAME,
        QueueNeed(AclOperation.ALTER, _if_policy_is_set, "the queue, if it is given a policy"),
        write_to(attributes.dead_letter_targets, "the dead-letter queue, if it is given one"),
    ),
)
async def create_queue(call: SqsRequest, request: CreateQueueRequest) -> CreateQueueResult:
    name = request.QueueName
    if name is None:
        raise errors.missing_queue_name()
    given = attributes.given_attributes(request.Attributes)
    _check_name(name, attributes.is_true(attributes.FIFO, given))
    existing = _find(call, name)
    change = attributes.parse(call.realm, name, given, existing)
    tags = request.tags or {}
    check_tags(tags, name)
    if existing is None:
        wait_s = call.realm.deletions.wait_s(name)
        if wait_s:
            raise errors.queue_deleted_recently(wait_s)
        existing = await _create(call, name, change, tags)
    _check_same(call, existing, given, tags)
    return CreateQueueResult(call.url(name))


async def _create(
    call: SqsRequest, name: str, change: attributes.AttributeChange, tags: Mapping[str, str]
) -> QueueInfo:
    """The new queue, or the one that another client created at the same time."""
    now = str(call.realm.wall_ms() // 1000)
    stored = {attributes.CREATED: now, attributes.MODIFIED: now, **change.stored}
    stored |= {TAG_PREFIX + key: value for key, value in tags.items()}
    settings = {"type": "fifo" if name.endswith(attributes.FIFO_SUFFIX) else "standard", **change.settings}
    try:
        return await call.queues.create(name, QueueEdit(settings, stored))
    except QueueExists:
        existing = _find(call, name)
        if existing is None:
            raise
        return existing


def _check_same(call: SqsRequest, existing: QueueInfo, given: Mapping[str, str], tags: Mapping[str, str]) -> None:
    compared = {name: value for name, value in given.items() if name != attributes.FIFO}
    different = attributes.first_difference(call.realm, existing, compared)
    if different is not None:
        raise errors.queue_name_exists(f"{_EXISTS} attribute {different}")
    if tags and tags != attributes.tags_of(existing):
        raise errors.queue_name_exists(f"{_EXISTS} tags")


def _find(call: SqsRequest, name: str) -> QueueInfo | None:
    try:
        return call.queues.find(name)
    except UnknownQueue:
        return None


def _check_name(name: str, is_fifo: bool | None) -> None:
    """`is_fifo` is None where the attribute is not given."""
    has_suffix = name.endswith(attributes.FIFO_SUFFIX)
    if is_fifo and not (has_suffix and _NAME.fullmatch(name)):
        raise errors.invalid_parameter(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            "underscores, must end with .fifo suffix and be 1 to 80 in length."
        )
    if not is_fifo and (has_suffix or _NAME.fullmatch(name) is None):
        raise errors.invalid_parameter(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
    if is_fifo is False:
        raise errors.invalid_attribute_name(attributes.FIFO)
