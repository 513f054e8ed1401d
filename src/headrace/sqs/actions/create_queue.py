"""CreateQueue.

- One that is there is fine if every attribute given has the value that the queue has; others are not compared.
- The name ends in `.fifo` if and only if it is a fifo queue.
- A name is free again `sqs.recreate.wait.ms` after its queue was deleted.
"""

import re

import msgspec

from headrace.model.errors import QueueExists, UnknownQueue
from headrace.queues.api import Edit, QueueInfo
from headrace.sqs import attributes, errors
from headrace.sqs.actions.tags import check_tags
from headrace.sqs.calls import Call, action

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|(?=.{6,80}$)[A-Za-z0-9_-]+\.fifo")


class CreateQueue(msgspec.Struct):
    QueueName: str | None = None
    Attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = None


class CreateQueueResult(msgspec.Struct):
    QueueUrl: str


@action(CreateQueue)
async def create_queue(call: Call, request: CreateQueue) -> CreateQueueResult:
    name = request.QueueName
    if name is None:
        raise errors.missing_parameter("QueueName")
    given = {key.strip(): value for key, value in (request.Attributes or {}).items()}
    _check_name(name, given)
    change = attributes.parse(call.realm, name, given)
    tags = request.tags or {}
    check_tags(tags, name)
    existing = _find(call, name)
    if existing is None:
        wait_s = call.realm.deletions.wait_s(name)
        if wait_s:
            raise errors.queue_deleted_recently(wait_s)
        now = str(call.realm.wall_ms() // 1000)
        kept = {attributes.CREATED: now, attributes.MODIFIED: now, **change.kept}
        kept |= {attributes.TAG_PREFIX + key: value for key, value in tags.items()}
        settings = {"type": "fifo" if name.endswith(attributes.FIFO_SUFFIX) else "standard", **change.settings}
        try:
            existing = await call.queues.create(name, Edit(settings, kept))
        except QueueExists:
            existing = _find(call, name)
            if existing is None:
                raise
    given.pop("FifoQueue", None)
    different = attributes.first_difference(call.realm, existing, given)
    if different is not None:
        raise errors.queue_name_exists(
            f"A queue already exists with the same name and a different value for attribute {different}"
        )
    return CreateQueueResult(call.url(name))


def _find(call: Call, name: str) -> QueueInfo | None:
    try:
        return call.queues.find(name)
    except UnknownQueue:
        return None


def _check_name(name: str, given: dict[str, str]) -> None:
    if _NAME.fullmatch(name) is None:
        raise errors.invalid_parameter(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
    is_fifo = given.get("FifoQueue") == "true"
    if is_fifo and not name.endswith(attributes.FIFO_SUFFIX):
        raise errors.invalid_parameter(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            "underscores, must end with .fifo suffix and be 1 to 80 in length."
        )
    if not is_fifo and name.endswith(attributes.FIFO_SUFFIX):
        raise errors.invalid_parameter(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
