"""TagQueue, UntagQueue and ListQueueTags: key-value pairs of the owner's own about a queue, at most 50."""

from collections.abc import Mapping
from unicodedata import category

import msgspec

from headrace.queues.api import QueueEdit
from headrace.sqs import errors
from headrace.sqs.access import TAG_PREFIX
from headrace.sqs.attributes import tags_of
from headrace.sqs.calls import SqsRequest, action
from headrace.sqs.needs import ALTER_QUEUE_CONFIGS, DESCRIBE_QUEUE

_MOST = 50
_MOST_KEY_LENGTH = 128
_MOST_VALUE_LENGTH = 256
_RESERVED = "aws:"
_SYMBOLS = frozenset("_.:/=+-@\t\n\r")
_ALLOWED = "may only contain unicode letters, digits, whitespace, or one of these symbols: _ . : / = + - @"


class TagQueue(msgspec.Struct):
    QueueUrl: str | None = None
    Tags: dict[str, str] | None = None


@action(TagQueue, needs=(ALTER_QUEUE_CONFIGS,))
async def tag_queue(call: SqsRequest, request: TagQueue) -> None:
    info = call.find(request.QueueUrl)
    if not request.Tags:
        raise errors.missing_parameter("Tags")
    check_tags(request.Tags, info.name, has=tags_of(info))
    await call.queues.alter(info.name, QueueEdit({}, {TAG_PREFIX + key: value for key, value in request.Tags.items()}))


class UntagQueue(msgspec.Struct):
    QueueUrl: str | None = None
    TagKeys: list[str] | None = None


@action(UntagQueue, needs=(ALTER_QUEUE_CONFIGS,))
async def untag_queue(call: SqsRequest, request: UntagQueue) -> None:
    info = call.find(request.QueueUrl)
    if request.TagKeys is None:
        raise errors.missing_parameter("TagKeys")
    if not request.TagKeys:
        raise _wrong_key_length()
    for key in request.TagKeys:
        _check_key(key)
    await call.queues.alter(info.name, QueueEdit({}, {TAG_PREFIX + key: None for key in request.TagKeys}))


class ListQueueTags(msgspec.Struct):
    QueueUrl: str | None = None


class ListQueueTagsResult(msgspec.Struct, omit_defaults=True):
    Tags: dict[str, str] | None = None


@action(ListQueueTags, needs=(DESCRIBE_QUEUE,))
async def list_queue_tags(call: SqsRequest, request: ListQueueTags) -> ListQueueTagsResult:
    return ListQueueTagsResult(tags_of(call.find(request.QueueUrl)) or None)


def check_tags(tags: Mapping[str, str], queue: str, has: Mapping[str, str] | None = None) -> None:
    if len({*tags, *(has or {})}) > _MOST:
        raise errors.invalid_parameter(f"Too many tags added for queue {queue}.")
    for key, value in tags.items():
        _check_key(key)
        if key.lower().startswith(_RESERVED):
            raise errors.invalid_parameter(f'Tag keys cannot begin with "{_RESERVED}", which is reserved.')
        if len(value) > _MOST_VALUE_LENGTH:
            raise errors.invalid_parameter("Tag values must be between 0 and 256 characters in length.")
        if not _has_only_allowed(value):
            raise errors.invalid_parameter(f"Tag values {_ALLOWED}")


def _check_key(key: str) -> None:
    if not 1 <= len(key) <= _MOST_KEY_LENGTH:
        raise _wrong_key_length()
    if not _has_only_allowed(key):
        raise errors.invalid_parameter(f"Tag keys {_ALLOWED}")


def _wrong_key_length() -> errors.SqsError:
    return errors.invalid_parameter("Tag keys must be between 1 and 128 characters in length.")


def _has_only_allowed(text: str) -> bool:
    """Letters, digits and separators, by their categories in Unicode, and some symbols."""
    return all(each in _SYMBOLS or category(each)[0] in "LNZ" for each in text)
