"""TagQueue, UntagQueue and ListQueueTags: words of the owner's own about a queue, at most 50."""

import msgspec

from headrace.queues.api import Edit
from headrace.sqs import errors
from headrace.sqs.attributes import TAG_PREFIX, tags_of
from headrace.sqs.calls import Call, action

_MOST = 50
_MOST_KEY_LENGTH = 128
_MOST_VALUE_LENGTH = 256


class TagQueue(msgspec.Struct):
    QueueUrl: str | None = None
    Tags: dict[str, str] | None = None


@action(TagQueue)
async def tag_queue(call: Call, request: TagQueue) -> None:
    info = call.find(request.QueueUrl)
    if not request.Tags:
        raise errors.missing_parameter("Tags")
    check_tags(request.Tags, info.name, has=tags_of(info))
    await call.queues.alter(info.name, Edit({}, {TAG_PREFIX + key: value for key, value in request.Tags.items()}))


class UntagQueue(msgspec.Struct):
    QueueUrl: str | None = None
    TagKeys: list[str] | None = None


@action(UntagQueue)
async def untag_queue(call: Call, request: UntagQueue) -> None:
    info = call.find(request.QueueUrl)
    if not request.TagKeys:
        raise errors.invalid_parameter("Tag keys must be between 1 and 128 characters in length.")
    await call.queues.alter(info.name, Edit({}, {TAG_PREFIX + key: None for key in request.TagKeys}))


class ListQueueTags(msgspec.Struct):
    QueueUrl: str | None = None


class ListQueueTagsResult(msgspec.Struct, omit_defaults=True):
    Tags: dict[str, str] | None = None


@action(ListQueueTags)
async def list_queue_tags(call: Call, request: ListQueueTags) -> ListQueueTagsResult:
    return ListQueueTagsResult(tags_of(call.find(request.QueueUrl)) or None)


def check_tags(tags: dict[str, str], queue: str, has: dict[str, str] | None = None) -> None:
    if len({*tags, *(has or {})}) > _MOST:
        raise errors.invalid_parameter(f"Too many tags added for queue {queue}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= _MOST_KEY_LENGTH:
            raise errors.invalid_parameter("Tag keys must be between 1 and 128 characters in length.")
        if len(value) > _MOST_VALUE_LENGTH:
            raise errors.invalid_parameter("Tag values must be between 0 and 256 characters in length.")
